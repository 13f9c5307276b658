"""One HTTP request's inputs on their way through the engine: submitted a few at a time, pooled states come back.

Owns the request ids; whoever opened a session closes it, and closing cancels what has not finished. At most half of
the engine's rows are taken at once: a call with thousands of inputs neither fills the queue nor keeps a chat that
arrives meanwhile from being admitted, and half the rows are more than a step's tokens can serve anyway.
"""

import time
from array import array
from collections import deque
from collections.abc import AsyncIterator, Sequence

from paceline.core.request import Request, RequestId, StopRule
from paceline.engine.client import EngineClient
from paceline.engine.stream import OutputStream
from paceline.errors import PacelineError

POOLED = StopRule(max_tokens=0)


class EmbeddingSession:
    """The inputs of one HTTP request, from submission to their pooled states."""

    def __init__(self, client: EngineClient, priority: int, namespace: bytes) -> None:
        self._client = client
        self._priority = priority
        self._namespace = namespace
        self._stream = OutputStream()
        self._index_of: dict[RequestId, int] = {}
        self._is_closed = False

    async def pooled(self, inputs: "Sequence[array[int]]") -> AsyncIterator[tuple[int, bytes]]:
        """(input index, pooled state) in order of completion. Raises what the engine refused with or died of."""
        max_open = max(1, self._client.limits.max_num_seqs // 2)
        waiting = deque(enumerate(inputs))
        while waiting or self._index_of:
            while waiting and len(self._index_of) < max_open and not self._is_closed:
                self._submit(*waiting.popleft())
            for output in await self._stream.take():
                index = self._index_of.pop(output.request_id)
                if output.pooled is None:
                    raise PacelineError("the engine could not finish this request")
                yield index, output.pooled

    def fail(self, error: PacelineError) -> None:
        """End the session with an error, which `pooled` raises now or when it begins."""
        self.close()
        self._stream.fail(error)

    def close(self) -> None:
        """Cancel what has not finished, submit nothing more. May be called twice."""
        self._is_closed = True
        for request_id in self._index_of:
            self._client.cancel(request_id)

    def _submit(self, index: int, tokens: "array[int]") -> None:
        request = Request(
            request_id=self._client.draw_request_id(),
            prompt=tokens,
            stop=POOLED,
            arrival_s=time.monotonic(),
            priority=self._priority,
            namespace=self._namespace,
            pooling=self._client.limits.pooling,
        )
        self._index_of[request.request_id] = index
        self._client.submit(request, self._stream)
