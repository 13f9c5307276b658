"""POST /v1/embeddings: read, parse, encode, compute while the client is there, answer.

Vectors are put into JSON one by one as they arrive (63 µs at width 576, 440 µs at 4096), so that a large answer never
holds the event loop for long.
"""

import asyncio

import msgspec
from fastapi import Request, Response

from paceline.errors import PacelineError
from paceline.server.admission import Admission
from paceline.server.auth import check_key
from paceline.server.context import ServingContext
from paceline.server.counted import CLIENT_GONE_STATUS
from paceline.server.embedding_request import EmbeddingRequest, encode_inputs, parse_embedding
from paceline.server.embedding_session import EmbeddingSession
from paceline.server.receive import read_body
from paceline.server.record import record_of
from paceline.server.sse import ClientGoneError, run_while_connected


async def embeddings(context: ServingContext, request: Request) -> Response:
    """The whole route. Raises PacelineError for whatever keeps it from an answer."""
    check_key(request, context.config.api_keys)
    text, limits = context.check_ready(), context.client.limits
    parsed = parse_embedding(await read_body(request), limits)
    context.check_model(parsed.model)
    record = record_of(request.scope)
    record.model = parsed.model
    session = EmbeddingSession(context.client, parsed.priority, parsed.namespace)
    admission = Admission(session, record, context.config.request_timeout_s)
    context.open_sessions.add(session)

    async def answer() -> bytes:
        admission.submit(await encode_inputs(text, parsed, limits.effective_context))
        return await collect(session, parsed)

    try:
        body = await run_while_connected(answer(), request.receive)
    except ClientGoneError:
        record.is_client_gone = True
        return Response(status_code=CLIENT_GONE_STATUS)
    except PacelineError as error:
        session.timing.error_code = error.code
        raise
    finally:
        admission.close()
        context.open_sessions.discard(session)
    return Response(body, media_type="application/json")


async def collect(session: EmbeddingSession, request: EmbeddingRequest) -> bytes:
    """The answer's body, vectors in the order of the inputs."""
    data = [msgspec.Raw()] * len(request.inputs)
    async for index, pooled in session.pooled():
        vector = request.form.apply(pooled)
        # msgspec writes bytes as base64.
        values = vector.tobytes() if request.is_base64 else vector.tolist()
        data[index] = msgspec.Raw(msgspec.json.encode({"object": "embedding", "index": index, "embedding": values}))
        await asyncio.sleep(0)  # A stream's event may go between two vectors.
    num_tokens = session.usage.prompt_tokens
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return msgspec.json.encode({"object": "list", "data": data, "model": request.model, "usage": usage})
