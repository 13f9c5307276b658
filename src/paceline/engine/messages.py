"""The words API process and engine process speak: one frozen struct a message, msgpack on the wire.

Commands go down, replies come up, one message a frame, in order. There are no acknowledgements: a request is answered
by Outputs until each of its sequences has finished, or once by Refused. Loading ends with Ready or LoadFailed.
Prompts travel as the bytes of their 32-bit array (both ends are one machine).
"""

from array import array
from typing import Self

import msgspec

from paceline.core.output import SequenceOutput
from paceline.core.request import Pooling, Request, RequestId, SamplingParams, StopRule
from paceline.core.spellings import Spellings
from paceline.engine.contract import EngineGauges, EngineLimits
from paceline.errors import ContextLengthError, OverloadedError, PacelineError, RequestError, UnsupportedFieldError


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Queue a request."""

    request_id: RequestId
    prompt: bytes
    stop: StopRule
    sampling: SamplingParams
    num_sequences: int
    arrival_s: float
    priority: int
    namespace: bytes
    pooling: Pooling | None = None

    @classmethod
    def of(cls, request: Request) -> Self:
        """The message that carries `request`."""
        return cls(
            request_id=request.request_id,
            prompt=request.prompt.tobytes(),
            stop=request.stop,
            sampling=request.sampling,
            num_sequences=request.num_sequences,
            arrival_s=request.arrival_s,
            priority=request.priority,
            namespace=request.namespace,
            pooling=request.pooling,
        )

    def request(self) -> Request:
        """The request it carries."""
        prompt = array("i")
        prompt.frombytes(self.prompt)
        return Request(
            request_id=self.request_id,
            prompt=prompt,
            stop=self.stop,
            sampling=self.sampling,
            num_sequences=self.num_sequences,
            arrival_s=self.arrival_s,
            priority=self.priority,
            namespace=self.namespace,
            pooling=self.pooling,
        )


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """The client went away: end every sequence of the request."""

    request_id: RequestId


class Finish(msgspec.Struct, frozen=True, tag=True):
    """A stop string ended one choice after `num_tokens` tokens."""

    request_id: RequestId
    choice_index: int
    num_tokens: int


class LearnSpellings(msgspec.Struct, frozen=True, tag=True):
    """How the model's tokens are spelled: once for each engine process, before or after the first grammar."""

    spellings: Spellings


class AskGauges(msgspec.Struct, frozen=True, tag=True):
    """Answer with Gauges; answers come in the order of the questions."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The engine has loaded and warmed up."""

    limits: EngineLimits


class LoadFailed(msgspec.Struct, frozen=True, tag=True):
    """The engine can't load; the process exits after saying so."""

    message: str


class Outputs(msgspec.Struct, frozen=True, tag=True):
    """All news of one step."""

    outputs: list[SequenceOutput]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The request was not queued. `error` names a class of `REFUSALS`."""

    request_id: RequestId
    error: str
    message: str
    param: str | None
    retry_after_s: float

    @classmethod
    def of(cls, request_id: RequestId, error: PacelineError) -> Self:
        """The message that carries `error`."""
        param = error.param if isinstance(error, RequestError) else None
        retry_after_s = error.retry_after_s if isinstance(error, OverloadedError) else 0.0
        name = next(name for name, kind in REFUSALS.items() if isinstance(error, kind))
        return cls(request_id, name, error.message, param, retry_after_s)

    def exception(self) -> PacelineError:
        """The error it carries, to be raised again."""
        if self.error == OverloadedError.__name__:
            return OverloadedError(self.message, self.retry_after_s)
        kind = REFUSALS[self.error]
        return kind(self.message, self.param) if issubclass(kind, RequestError) else kind(self.message)


class Gauges(msgspec.Struct, frozen=True, tag=True):
    """The engine's state when the question arrived."""

    gauges: EngineGauges


# Leaves before the classes they derive from: the first that matches is the name sent.
REFUSALS: dict[str, type[PacelineError]] = {
    kind.__name__: kind
    for kind in (ContextLengthError, UnsupportedFieldError, RequestError, OverloadedError, PacelineError)
}

Command = Submit | Cancel | Finish | LearnSpellings | AskGauges
Reply = Ready | LoadFailed | Outputs | Refused | Gauges
