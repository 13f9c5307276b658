"""What was asked: the frozen request that enters the scheduler. Parsed and valid by the time it exists."""

from array import array
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NewType

RequestId = NewType("RequestId", int)
SequenceId = NewType("SequenceId", int)
BlockId = NewType("BlockId", int)

SEED_STRIDE = 0x9E37_79B9_7F4A_7C15
SEED_MASK = (1 << 64) - 1


class FinishReason(StrEnum):
    """How a sequence ended; exactly one of these, once."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


class GrammarKind(StrEnum):
    """What a grammar's text is written in. LARK is llguidance's dialect; CHOICE is a JSON list of strings."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the whole output must match. Equal grammars are compiled once.

    `param`: the request's field that asked for it, which errors name; grammars that differ in it alone are equal.
    """

    kind: GrammarKind
    text: str
    param: str = field(default="grammar", compare=False)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one token is drawn. Order: bias, penalties, temperature, top-k, top-p, min-p; logprobs are of the raw logits.

    temperature 0 is greedy. `seed` is always set (the API draws one when the user gave none), in [0, 2**64).
    `num_logprobs`: None reports no alternatives, k reports the k best beside the chosen token.
    `num_prompt_logprobs`: likewise for every prompt position but the first; None for no prompt scoring.
    `forbidden_before_min`: token ids that may not be drawn before `min_tokens` outputs (the stop tokens).
    `grammar`: the output matches it, or is cut short by a limit.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0
    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None
    min_tokens: int = 0
    forbidden_before_min: tuple[int, ...] = ()
    grammar: Grammar | None = None

    def for_choice(self, choice_index: int) -> "SamplingParams":
        """The parameters of the choice_index-th of n sequences; choice 0 equals the n=1 request."""
        if choice_index == 0:
            return self
        return replace(self, seed=(self.seed + choice_index * SEED_STRIDE) & SEED_MASK)


class Pooling(StrEnum):
    """Which hidden states (final norm) of the prompt become its embedding: the last position's, or the mean of all."""

    LAST = "last"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a sequence ends by itself: a stop token (after `min_tokens` outputs) or `max_tokens` outputs.

    max_tokens 0 scores or pools the prompt and samples nothing. Stop *strings* are the API side's business (`text/`).
    """

    max_tokens: int
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the scheduler sees it: token ids in, `num_sequences` independent continuations out.

    `arrival_s` is on the loop's clock; `priority`: lower is earlier; `namespace` keeps prefix caches apart
    (adapter, salt, KV format, model revision, each tagged). `pooling` asks for hidden states instead of tokens.
    """

    request_id: RequestId
    prompt: "array[int]"
    stop: StopRule
    sampling: SamplingParams = field(default_factory=SamplingParams)
    num_sequences: int = 1
    arrival_s: float = 0.0
    priority: int = 0
    namespace: bytes = b""
    pooling: Pooling | None = None

    def __post_init__(self) -> None:
        assert len(self.prompt) > 0, "a request needs at least one prompt token"
        assert self.num_sequences > 0, "a request needs at least one sequence"
        assert self.stop.max_tokens >= 0, "max_tokens can't be negative"
        is_plain = self.stop.max_tokens == 0 and self.num_sequences == 1
        assert self.pooling is None or is_plain, "a pooled request samples nothing, once"


def token_array(tokens: SequenceOf[int]) -> "array[int]":
    """Token ids as the 32-bit array every room passes around."""
    return array("i", tokens)
