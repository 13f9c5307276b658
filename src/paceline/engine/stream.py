"""Where the outputs of one HTTP request arrive: the sequences of one or several engine requests, in order of arrival.

Owned by the client (which puts) and by one task (which takes); both on the event loop's thread. A taker gets everything
that has arrived since its last turn in one list, so that a slow taker costs fewer turns, not more memory for them.
"""

import asyncio

from paceline.core.output import SequenceOutput
from paceline.core.request import RequestId
from paceline.errors import PacelineError


class OutputStream:
    """Outputs of the choices expected, until all have closed."""

    def __init__(self) -> None:
        self._arrived: list[SequenceOutput] = []
        self._open_choices: dict[RequestId, set[int]] = {}
        self._error: PacelineError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def expect(self, request_id: RequestId, num_sequences: int) -> None:
        """Outputs of `num_sequences` choices of this request will come."""
        self._open_choices[request_id] = set(range(num_sequences))

    def put(self, output: SequenceOutput) -> bool:
        """Add an output unless its choice has closed; true when this was the last of its request."""
        choices = self._open_choices.get(output.request_id)
        if choices is None or output.choice_index not in choices:
            return False
        self._arrived.append(output)
        self._wake()
        return output.finish_reason is not None and self.close_choice(output.request_id, output.choice_index)

    def close_choice(self, request_id: RequestId, choice_index: int) -> bool:
        """Take no more outputs of a choice; true when it was the last open one of its request."""
        choices = self._open_choices.get(request_id, set())
        choices.discard(choice_index)
        if choices:
            return False
        self._open_choices.pop(request_id, None)
        self._wake()
        return True

    def fail(self, error: PacelineError) -> None:
        """End the stream with `error`, after what has already arrived was taken."""
        self._error = error
        self._open_choices.clear()
        self._wake()

    async def take(self) -> list[SequenceOutput]:
        """Everything that arrived since the last call; waits for something. [] when all choices have closed.

        Raises the error that ended the stream.
        """
        while not self._arrived and self._open_choices:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._arrived:
            arrived, self._arrived = self._arrived, []
            return arrived
        if self._error is not None:
            raise self._error
        return []

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
