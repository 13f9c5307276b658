"""One HTTP request's inputs on their way through the engine: submitted a few at a time, pooled states come back.

Owns the request ids; whoever opened a session closes it, and closing cancels what has not finished. At most half of
the engine's rows are taken at once: a call with thousands of inputs neither fills the queue nor keeps a chat that
arrives meanwhile from being admitted, and half the rows are more than a step's tokens can serve anyway.
"""

import time
from collections import deque
from collections.abc import AsyncIterator, Sequence

from paceline.core.request import Request, RequestId, StopRule, token_array
from paceline.engine.client import EngineClient
from paceline.engine.stream import OutputStream
from paceline.errors import PacelineError
from paceline.server.session import Usage
from paceline.server.timing import RequestTiming

POOLED = StopRule(max_tokens=0)


class EmbeddingSession:
    """The inputs of one HTTP request, from submission to their pooled states. `usage` counts those that came back."""

    def __init__(self, client: EngineClient, priority: int, namespace: bytes) -> None:
        self.timing = RequestTiming(arrival_s=time.monotonic())
        self.usage = Usage(0, 0, 0)
        self._client = client
        self._priority = priority
        self._namespace = namespace
        self._stream = OutputStream()
        self._waiting: deque[tuple[int, Sequence[int]]] = deque()
        self._open: dict[RequestId, tuple[int, int]] = {}
        self._is_closed = False

    def most_tokens(self, inputs: Sequence[Sequence[int]]) -> int:
        """The most tokens that the inputs can come to."""
        return sum(map(len, inputs))

    def submit(self, inputs: Sequence[Sequence[int]]) -> None:
        """Have the inputs computed as `pooled` is read."""
        self.timing.submitted_s = time.monotonic()
        self._waiting.extend(enumerate(inputs))

    async def pooled(self) -> AsyncIterator[tuple[int, bytes]]:
        """(input index, pooled state) in order of completion. Raises what the engine refused with or died of."""
        max_open = max(1, self._client.limits.max_num_seqs // 2)
        while self._waiting or self._open:
            while self._waiting and len(self._open) < max_open and not self._is_closed:
                self._send(*self._waiting.popleft())
            for output in await self._stream.take():
                index, num_tokens = self._open.pop(output.request_id)
                if output.pooled is None:
                    raise PacelineError("the engine could not finish this request")
                before = self.usage
                cached_tokens = before.cached_tokens + output.num_cached_tokens
                self.usage = Usage(before.prompt_tokens + num_tokens, 0, cached_tokens)
                yield index, output.pooled

    def fail(self, error: PacelineError) -> None:
        """End the session with an error, which `pooled` raises now or when it begins."""
        self.close()
        self._stream.fail(error)

    def close(self) -> None:
        """Cancel what has not finished, submit nothing more. May be called twice."""
        self._is_closed = True
        for request_id in self._open:
            self._client.cancel(request_id)

    def _send(self, index: int, tokens: Sequence[int]) -> None:
        request = Request(
            request_id=self._client.draw_request_id(),
            prompt=token_array(tokens),
            stop=POOLED,
            arrival_s=time.monotonic(),
            priority=self._priority,
            namespace=self._namespace,
            pooling=self._client.limits.pooling,
        )
        self._open[request.request_id] = index, len(tokens)
        self._client.submit(request, self._stream)
