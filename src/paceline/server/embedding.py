"""POST /v1/embeddings: read, parse, encode, compute while the client is there, answer.

Vectors are put into JSON as they arrive, so that a large answer never holds the event loop for long.
"""

from array import array
from collections.abc import Sequence

import msgspec
from fastapi import Request, Response

from paceline.server.admission import reserve_tokens, start_deadline
from paceline.server.auth import check_key
from paceline.server.context import ServingContext
from paceline.server.embedding_request import EmbeddingRequest, encode_inputs, parse_embedding
from paceline.server.embedding_session import EmbeddingSession
from paceline.server.receive import read_body
from paceline.server.record import record_of
from paceline.server.sse import ClientGoneError, run_while_connected

CLIENT_GONE_STATUS = 499


async def embeddings(context: ServingContext, request: Request) -> Response:
    """The whole route. Raises PacelineError for whatever keeps it from an answer."""
    check_key(request, context.config.api_keys)
    text, limits = context.check_ready(), context.client.limits
    parsed = parse_embedding(await read_body(request), limits)
    context.check_model(parsed.model)
    record = record_of(request.scope)
    record.model = parsed.model
    session = EmbeddingSession(context.client, parsed.priority, parsed.namespace)
    context.open_sessions.add(session)

    async def answer() -> bytes:
        inputs = await encode_inputs(text, parsed, limits.effective_context)
        reserve_tokens(record, sum(map(len, inputs)))
        deadline = start_deadline(record, context.config.request_timeout_s, session.fail)
        try:
            return await collect(session, parsed, inputs)
        finally:
            if deadline is not None:
                deadline.cancel()

    try:
        body = await run_while_connected(answer(), request.receive)
    except ClientGoneError:
        record.is_client_gone = True
        return Response(status_code=CLIENT_GONE_STATUS)
    finally:
        session.close()
        context.open_sessions.discard(session)
    return Response(body, media_type="application/json")


async def collect(session: EmbeddingSession, request: EmbeddingRequest, inputs: "Sequence[array[int]]") -> bytes:
    """The answer's body, vectors in the order of the inputs."""
    data = [msgspec.Raw()] * len(inputs)
    async for index, pooled in session.pooled(inputs):
        vector = request.form.apply(pooled)
        # msgspec writes bytes as base64.
        values = vector.tobytes() if request.is_base64 else vector.tolist()
        data[index] = msgspec.Raw(msgspec.json.encode({"object": "embedding", "index": index, "embedding": values}))
    num_tokens = sum(map(len, inputs))
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return msgspec.json.encode({"object": "list", "data": data, "model": request.model, "usage": usage})
