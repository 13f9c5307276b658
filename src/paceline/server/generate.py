"""The two routes that generate, in one shape: read, parse, encode; then a response that submits, streams or collects.

Whatever goes wrong before the engine's first news still answers with a status; later, in a stream, it becomes an event.
The client is watched all the time, also while the answer is not streamed: one that leaves cancels its sequences.
"""

from collections.abc import Sequence

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from paceline.errors import PacelineError
from paceline.server.admission import Admission
from paceline.server.answer import AnswerFormat, collect, stream_events
from paceline.server.auth import check_key
from paceline.server.chat_answer import ChatAnswer
from paceline.server.completion_answer import CompletionAnswer
from paceline.server.context import ServingContext
from paceline.server.errors import error_response
from paceline.server.introduce import introduce_tokens
from paceline.server.prompts import encode_chat, encode_completion
from paceline.server.protocol import parse_chat, parse_completion
from paceline.server.reading import chat_reading
from paceline.server.receive import read_body
from paceline.server.record import record_of
from paceline.server.session import Session
from paceline.server.sse import KEEP_ALIVE_S, ClientGoneError, run_while_connected, send_stream
from paceline.server.tool_answer import ToolAnswer


async def chat_completions(context: ServingContext, request: Request) -> Response:
    """POST /v1/chat/completions."""
    check_key(request, context.config.api_keys)
    text = context.check_ready()
    parsed = parse_chat(await read_body(request), context.client.limits, text.defaults)
    context.check_model(parsed.model)
    token_ids = await encode_chat(text, parsed)
    reading = chat_reading(context.config, text, parsed, token_ids)
    options = parsed.options if reading is None else reading.options(parsed.options, text.tokenizer)
    plain = ChatAnswer(parsed.model, options, text.tokenizer)
    answer: AnswerFormat = plain if reading is None else ToolAnswer(plain, reading, options.num_choices)
    session = Session(context.client, text.tokenizer, options, context.draw_seed, context.metrics.requests)
    return GenerationResponse(context, session, [token_ids], answer)


async def completions(context: ServingContext, request: Request) -> Response:
    """POST /v1/completions."""
    check_key(request, context.config.api_keys)
    text = context.check_ready()
    parsed = parse_completion(await read_body(request), context.client.limits, text.defaults)
    context.check_model(parsed.model)
    prompts = await encode_completion(text, parsed)
    answer = CompletionAnswer(parsed.model, parsed, prompts, text.tokenizer)
    session = Session(context.client, text.tokenizer, parsed.options, context.draw_seed, context.metrics.requests)
    return GenerationResponse(context, session, [prompt.token_ids for prompt in prompts], answer)


class GenerationResponse(Response):
    """Runs one session from submission to the last byte. The session is closed however that ends."""

    def __init__(
        self, context: ServingContext, session: Session, prompts: Sequence[Sequence[int]], answer: AnswerFormat
    ) -> None:
        super().__init__()
        self._context = context
        self._session = session
        self._prompts = prompts
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless the client leaves first, which is no error."""
        record = record_of(scope)
        record.model = self._answer.model
        admission = Admission(self._session, record, self._context.config.request_timeout_s)
        self._context.open_sessions.add(self._session)
        try:
            await run_while_connected(self._run(admission, scope, receive, send), receive)
        except ClientGoneError:
            record.is_client_gone = True
        finally:
            admission.close()
            self._context.open_sessions.discard(self._session)

    async def _run(self, admission: Admission, scope: Scope, receive: Receive, send: Send) -> None:
        session, options = self._session, self._session.options
        try:
            if options.sampling.grammar is not None:
                await introduce_tokens(self._context)
            admission.submit(self._prompts)
            # A stream that waits long begins without news, so that it can be kept alive.
            await session.wait_for_first(KEEP_ALIVE_S if options.is_streamed else None)
            if not options.is_streamed:
                choices = await collect(session, len(self._prompts) * options.num_choices)
                body = Response(self._answer.whole(choices, session), media_type="application/json")
        except PacelineError as error:
            session.count_error(error)
            await error_response(error)(scope, receive, send)
            return
        if options.is_streamed:
            await send_stream(stream_events(session, self._answer, options.includes_usage), send)
        else:
            await body(scope, receive, send)
