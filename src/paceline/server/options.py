"""What both routes share of a request: how to sample, when to end, what to report. Values checked, null resolved."""

from dataclasses import dataclass

from paceline.core.request import SEED_MASK, SamplingParams
from paceline.engine.contract import EngineLimits
from paceline.errors import RequestError
from paceline.server import limits
from paceline.server.body import Body, StreamOptions
from paceline.server.checks import check_length, check_range, check_token_ids, shown
from paceline.server.structured import parse_grammar
from paceline.text.stops import StopStrings


@dataclass(frozen=True, slots=True)
class Ending:
    """When generation ends. `max_tokens` None: as long as the context allows."""

    max_tokens: int | None
    ignore_eos: bool
    stops: StopStrings
    stop_token_ids: frozenset[int]
    includes_stop_string: bool


@dataclass(frozen=True, slots=True)
class Options:
    """A valid request but for its prompt. `sampling` lacks the seed (None: one is drawn) and the end tokens.

    `max_prompt_tokens`: of a longer prompt only that many last tokens are kept; None keeps all.
    `kept_special_ids`: special tokens that stay in the text, since a parser reads them. `keeps_tokens`: deltas hold
    their tokens even without logprobs, since someone counts them.
    """

    seed: int | None
    sampling: SamplingParams
    ending: Ending
    num_choices: int
    num_prompt_logprobs: int | None
    is_streamed: bool
    includes_usage: bool
    repeats_usage: bool
    returns_token_ids: bool
    skips_special_tokens: bool
    max_prompt_tokens: int | None
    priority: int
    namespace: bytes
    kept_special_ids: frozenset[int] = frozenset()
    keeps_tokens: bool = False


def parse_options(body: Body, facts: EngineLimits, num_logprobs: int | None) -> Options:
    """Check the shared fields of a body. `num_logprobs` is the route's reading of logprobs and top_logprobs."""
    vocab_size = facts.vocab_size
    num_choices = 1 if body.n is None else body.n
    check_range(num_choices, 1, limits.MAX_CHOICES, "n")
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options needs stream true", "stream_options")
    if body.stream and body.prompt_logprobs is not None:
        raise RequestError("prompt_logprobs needs stream false", "prompt_logprobs")
    priority = body.priority or 0
    check_range(priority, -limits.MAX_INT32, limits.MAX_INT32, "priority")
    reporting = body.stream_options or StreamOptions()
    ending = parse_ending(body, vocab_size)
    return Options(
        seed=parse_seed(body.seed),
        sampling=parse_sampling(body, vocab_size, num_logprobs),
        ending=ending,
        num_choices=num_choices,
        num_prompt_logprobs=body.prompt_logprobs,
        is_streamed=body.stream is True,
        includes_usage=reporting.include_usage is True,
        repeats_usage=reporting.include_usage is True and reporting.continuous_usage_stats is True,
        returns_token_ids=body.return_token_ids is True,
        skips_special_tokens=body.skip_special_tokens is not False,
        max_prompt_tokens=parse_truncation(body.truncate_prompt_tokens, ending.max_tokens, facts.effective_context),
        priority=priority,
        namespace=parse_namespace(body.cache_salt),
    )


def parse_sampling(body: Body, vocab_size: int, num_logprobs: int | None) -> SamplingParams:
    """How tokens are drawn, but for the seed."""
    for name, value in (("top_logprobs" if body.top_logprobs else "logprobs", num_logprobs),
                        ("prompt_logprobs", body.prompt_logprobs)):  # fmt: skip
        if value is not None:
            check_range(value, 0, limits.MAX_LOGPROBS, name)
    return SamplingParams(
        temperature=in_range(body.temperature, 1.0, (0, limits.MAX_TEMPERATURE), "temperature"),
        top_k=parse_top_k(body.top_k, vocab_size),
        top_p=above_zero(body.top_p, 1.0, 1, "top_p"),
        min_p=in_range(body.min_p, 0.0, (0, 1), "min_p"),
        repetition_penalty=above_zero(
            body.repetition_penalty, 1.0, limits.MAX_REPETITION_PENALTY, "repetition_penalty"
        ),
        presence_penalty=parse_penalty(body.presence_penalty, "presence_penalty"),
        frequency_penalty=parse_penalty(body.frequency_penalty, "frequency_penalty"),
        logit_bias=parse_logit_bias(body.logit_bias or {}, vocab_size),
        num_logprobs=num_logprobs,
        num_prompt_logprobs=body.prompt_logprobs,
        min_tokens=body.min_tokens or 0,
        grammar=parse_grammar(body),
    )


def parse_ending(body: Body, vocab_size: int) -> Ending:
    """When generation ends."""
    max_tokens, name = body.max_tokens, "max_tokens"
    if body.max_completion_tokens is not None:
        if max_tokens not in (None, body.max_completion_tokens):
            raise RequestError("max_tokens and max_completion_tokens differ; send one", "max_tokens")
        max_tokens, name = body.max_completion_tokens, "max_completion_tokens"
    if max_tokens is not None:
        check_range(max_tokens, 0, limits.MAX_INT32, name)
    min_tokens = body.min_tokens or 0
    check_range(min_tokens, 0, limits.MAX_INT32 if max_tokens is None else max_tokens, "min_tokens")
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    stop_token_ids = body.stop_token_ids or []
    check_length(stop_token_ids, limits.MAX_STOP_TOKENS, "stop_token_ids", "ids")
    check_token_ids(stop_token_ids, vocab_size, "stop_token_ids")
    return Ending(
        max_tokens=max_tokens,
        ignore_eos=body.ignore_eos is True,
        stops=StopStrings(stops, body.include_stop_str_in_output is True),
        stop_token_ids=frozenset(stop_token_ids),
        includes_stop_string=body.include_stop_str_in_output is True,
    )


def parse_truncation(wish: int | None, max_tokens: int | None, context: int) -> int | None:
    """How many of a prompt's last tokens are kept: None all, -1 as many as leave room for max_tokens."""
    if wish is None:
        return None
    if wish == -1:
        return max(1, context - (1 if max_tokens is None else max_tokens))
    if not 1 <= wish <= limits.MAX_INT32:
        raise RequestError(
            f"truncate_prompt_tokens must be -1 (as many as fit) or 1 to {limits.MAX_INT32}, got {shown(wish)}",
            "truncate_prompt_tokens",
        )
    return wish


def parse_top_k(top_k: int | None, vocab_size: int) -> int | None:
    """None when off; -1 and 0 mean off too, as in vLLM, and so does the whole vocabulary."""
    if top_k is None or top_k in (-1, 0):
        return None
    check_range(top_k, 1, limits.MAX_INT32, "top_k")
    return top_k if top_k < vocab_size else None


def parse_penalty(value: float | None, name: str) -> float:
    """A presence or frequency penalty."""
    return in_range(value, 0.0, (-limits.MAX_PENALTY, limits.MAX_PENALTY), name)


def parse_seed(seed: int | None) -> int | None:
    """A seed in [0, 2**64); negative ones wrap."""
    if seed is None:
        return None
    check_range(seed, limits.MIN_SEED, limits.MAX_SEED, "seed")
    return seed & SEED_MASK


def parse_logit_bias(bias: dict[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    """Token id and bias pairs, ascending by id."""
    check_length(bias, limits.MAX_LOGIT_BIAS, "logit_bias", "entries")
    pairs = {}
    for key, value in bias.items():
        if not (key.isascii() and key.lstrip("-").isdigit() and len(key) <= len(str(limits.MAX_INT32))):
            raise RequestError(f"logit_bias keys must be token ids, got {shown(key)}", "logit_bias")
        check_token_ids((int(key),), vocab_size, "logit_bias")
        check_range(value, -limits.MAX_LOGIT_BIAS_VALUE, limits.MAX_LOGIT_BIAS_VALUE, "logit_bias")
        pairs[int(key)] = value
    return tuple(sorted(pairs.items()))


def parse_namespace(cache_salt: str | None) -> bytes:
    """The part of the prefix cache a request may share: requests with another salt never hit its blocks."""
    if cache_salt is None:
        return b""
    if not 0 < len(cache_salt) <= limits.MAX_CACHE_SALT_CHARS:
        raise RequestError(
            f"cache_salt must have 1 to {limits.MAX_CACHE_SALT_CHARS} characters, got {len(cache_salt)}", "cache_salt"
        )
    return b"salt:" + cache_salt.encode()


def in_range(value: float | None, default: float, bounds: tuple[float, float], name: str) -> float:
    """The value, or its default when absent, inside closed bounds."""
    if value is None:
        return default
    check_range(value, *bounds, name)
    return value


def above_zero(value: float | None, default: float, high: float, name: str) -> float:
    """The value, or its default when absent, in (0, high]."""
    if value is None:
        return default
    if not 0 < value <= high:
        raise RequestError(f"{name} must be above 0 and at most {high}, got {shown(value)}", name)
    return value
