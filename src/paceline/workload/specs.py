"""Texts of the command line into parts of a workload: `lognormal:median=161,sigma=0.8`, `poisson:rate=4`, …

A text is a kind, and after a colon `key=number` pairs. Errors name the option, the kind and what is allowed.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from paceline.errors import ConfigError
from paceline.workload.arrivals import Arrivals, ClosedLoop, Constant, Gamma, OnOff, Poisson
from paceline.workload.catalogue import find_workload
from paceline.workload.checks import check_whole, plain
from paceline.workload.distributions import MAX_VALUE, Clipped, Distribution, Fixed, Geometric, LogNormal, Uniform
from paceline.workload.lengths import Lengths
from paceline.workload.prefixes import Documents, FewShot, Prefix, SharedShare, SystemPrompt, Unshared
from paceline.workload.sessions import MAX_PROMPT_TOKENS, Sessions

MAX_SPEC_CHARS = 1000

Values = dict[str, float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One kind of a spec: its usage as help shows it, the keys it must and may have, and what it makes of them."""

    usage: str
    required: tuple[str, ...]
    make: Callable[[Values], T]
    optional: tuple[str, ...] = ()


def _clipped(inner: Distribution, values: Values) -> Distribution:
    if "min" not in values and "max" not in values:
        return inner
    return Clipped(inner, values.get("min", 0.0), values.get("max", MAX_VALUE))


def _whole(values: Values, key: str, default: int = 1) -> int:
    value = values.get(key, default)
    check_whole(key, value, 1, int(MAX_VALUE))
    return int(value)


def _log_normal(values: Values) -> Distribution:
    given = set(values) - {"min", "max"}
    if given == {"median", "sigma"}:
        return _clipped(LogNormal(values["median"], values["sigma"]), values)
    if given == {"mean", "sd"}:
        return _clipped(LogNormal.from_mean(values["mean"], values["sd"]), values)
    raise ConfigError("needs either median and sigma or mean and sd")


def _gamma(values: Values) -> Arrivals:
    if ("shape" in values) == ("cv" in values):
        raise ConfigError("needs either shape or cv (shape = 1 / cv^2)")
    if "cv" in values:
        return Gamma.from_cv(values["rate"], values["cv"])
    return Gamma(values["rate"], values["shape"])


def _sessions(num_turns: Distribution, values: Values) -> Sessions:
    think_s, sigma = values.get("think", 0.0), values.get("sigma", 0.0)
    if sigma and not think_s:
        raise ConfigError("sigma is the spread of the think time: give think, its median in seconds, as well")
    if values.get("history", 1) not in (0, 1):
        raise ConfigError(f"history must be 0 or 1, got {plain(values['history'])}")
    return Sessions(
        num_turns=num_turns,
        think_s=LogNormal(think_s, sigma) if sigma else Fixed(think_s),
        replays_history=values.get("history", 1) == 1,
        max_prompt_tokens=_whole(values, "max_prompt", MAX_PROMPT_TOKENS),
    )


_CLIP = ("min", "max")
LENGTH_KINDS: Mapping[str, Kind[Distribution]] = {
    "fixed": Kind("fixed:tokens=N (or just N)", ("tokens",), lambda v: Fixed(_whole(v, "tokens"))),
    "uniform": Kind("uniform:low=N,high=N", ("low", "high"), lambda v: Uniform(_whole(v, "low"), _whole(v, "high"))),
    "geometric": Kind("geometric:mean=X[,min=N,max=N]", ("mean",), lambda v: _clipped(Geometric(v["mean"]), v), _CLIP),
    "lognormal": Kind(
        "lognormal:median=X,sigma=X[,min=N,max=N] or lognormal:mean=X,sd=X[,min=N,max=N]",
        (),
        _log_normal,
        ("median", "sigma", "mean", "sd", *_CLIP),
    ),
}

ARRIVAL_KINDS: Mapping[str, Kind[Arrivals]] = {
    "closed": Kind("closed:concurrency=N", ("concurrency",), lambda v: ClosedLoop(_whole(v, "concurrency"))),
    "constant": Kind("constant:rate=X", ("rate",), lambda v: Constant(v["rate"])),
    "poisson": Kind("poisson:rate=X", ("rate",), lambda v: Poisson(v["rate"])),
    "gamma": Kind("gamma:rate=X,cv=X or gamma:rate=X,shape=X", ("rate",), _gamma, ("cv", "shape")),
    "onoff": Kind(
        "onoff:rate=X,on=SECONDS,off=SECONDS", ("rate", "on", "off"), lambda v: OnOff(v["rate"], v["on"], v["off"])
    ),
}

PREFIX_KINDS: Mapping[str, Kind[Prefix]] = {
    "none": Kind("none", (), lambda v: Unshared()),
    "share": Kind("share:share=X", ("share",), lambda v: SharedShare(v["share"])),
    "system": Kind("system:tokens=N", ("tokens",), lambda v: SystemPrompt(_whole(v, "tokens"))),
    "fewshot": Kind(
        "fewshot:examples=N,tokens=N",
        ("examples", "tokens"),
        lambda v: FewShot(_whole(v, "examples"), _whole(v, "tokens")),
    ),
    "documents": Kind(
        "documents:tokens=N,questions=N[,open=N]",
        ("tokens", "questions"),
        lambda v: Documents(_whole(v, "tokens"), _whole(v, "questions"), _whole(v, "open")),
        ("open",),
    ),
}

_SESSION_KEYS = ("think", "sigma", "history", "max_prompt")
_SESSION_USAGE = "[,think=SECONDS,sigma=X,history=0|1,max_prompt=N]"
SESSION_KINDS: Mapping[str, Kind[Sessions | None]] = {
    "none": Kind("none", (), lambda v: None),
    "fixed": Kind(
        f"fixed:turns=N{_SESSION_USAGE}", ("turns",), lambda v: _sessions(Fixed(_whole(v, "turns")), v), _SESSION_KEYS
    ),
    "geometric": Kind(
        f"geometric:turns=MEAN{_SESSION_USAGE}",
        ("turns",),
        lambda v: _sessions(Geometric(v["turns"]), v),
        _SESSION_KEYS,
    ),
}


def parse_lengths(text: str, option: str = "--input-len") -> Distribution:
    """A distribution of lengths; a bare number is a fixed length."""
    return _parse(option, f"fixed:tokens={text.strip()}" if text.strip().isdecimal() else text, LENGTH_KINDS)


def parse_length_pair(text: str, option: str = "--lengths") -> Lengths:
    """`INPUT/OUTPUT` lengths, or the name of a workload, whose lengths (and their correlation) are taken."""
    input_text, slash, output_text = text.partition("/")
    if not slash:
        return find_workload(text.strip(), option).lengths
    return Lengths(parse_lengths(input_text, f"{option} (input)"), parse_lengths(output_text, f"{option} (output)"))


def parse_arrivals(text: str, option: str = "--arrivals") -> Arrivals:
    """An arrival process."""
    return _parse(option, text, ARRIVAL_KINDS)


def parse_prefix(text: str, option: str = "--prefix") -> Prefix:
    """A prefix graph."""
    return _parse(option, text, PREFIX_KINDS)


def parse_sessions(text: str, option: str = "--sessions") -> Sessions | None:
    """Sessions; None for `none`."""
    return _parse(option, text, SESSION_KINDS)


def _parse(option: str, text: str, kinds: Mapping[str, Kind[T]]) -> T:
    """The value a spec stands for. Raises ConfigError naming option, text and what is allowed."""
    name, _, rest = text[:MAX_SPEC_CHARS].strip().partition(":")
    kind = kinds.get(name)
    if kind is None or len(text) > MAX_SPEC_CHARS:
        allowed = "; ".join(kind.usage for kind in kinds.values())
        raise ConfigError(f"{option}: {text[:80]!r} is not one of: {allowed}")
    try:
        return kind.make(_values(rest, kind))
    except ConfigError as error:
        raise ConfigError(f"{option} {text[:80]!r}: {error.message}; usage: {kind.usage}") from None


def _values(text: str, kind: Kind[T]) -> Values:
    """The key=number pairs: each allowed key at most once, the required ones all there."""
    values: Values = {}
    for pair in text.split(",") if text.strip() else ():
        key, equals, number = (part.strip() for part in pair.partition("="))
        if not equals or key not in (*kind.required, *kind.optional):
            raise ConfigError(f"{pair.strip()[:40]!r} is not a known key=number")
        if key in values:
            raise ConfigError(f"{key} is given twice")
        values[key] = _number(key, number)
    missing = [key for key in kind.required if key not in values]
    if missing:
        raise ConfigError(f"{' and '.join(missing)} missing")
    return values


def _number(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{key} must be a number, got {text[:40]!r}")
    return value
