"""`--costs`: what a step costs, as one text.

linear                                     the law of the published batching tables
linear:fixed=0.005,prefill=2e-5,decode=5e-4
h100,llama-2-7b                            the datasheet estimator; 8xh100,llama-3-70b: eight cards, one model
this,./config.json,weights=int8,kv=fp8     any hardware and model that `plan` takes, and formats other than the stored
fitted:FILE                                a step time fitted to measured steps, as JSON

Hardware, model, formats, efficiency and workspace mean what they mean to the planner: both answer from the same facts.
"""

import re
from dataclasses import dataclass
from math import floor
from pathlib import Path

import msgspec

from paceline.costs.estimator import DatasheetEstimator
from paceline.costs.fitted import FittedStepTime
from paceline.costs.formats import kv_format
from paceline.costs.load import Margins
from paceline.costs.step import LinearLaw, StepTime
from paceline.costs.units import counted, sized
from paceline.errors import ConfigError, PacelineError
from paceline.sim.named_hardware import card_named, efficiency_of
from paceline.sim.named_model import model_named

USAGE = "linear, linear:fixed=S,prefill=S,decode=S, HARDWARE,MODEL such as h100,llama-2-7b or 8xh100,…, or fitted:FILE"
NUMBER_FORMATS = re.compile(r",\s*(weights|kv)=([^,=]*)$")
MARGINS = Margins()
LINEAR_KEYS = {"fixed": "fixed_s", "prefill": "prefill_token_s", "decode": "decode_row_s"}


@dataclass(frozen=True, slots=True)
class Costs:
    """A step time and what else is known with it: tokens of KV that fit beside weights and workspace, the
    model's context, bytes of KV a token has, and what the hardware's links carry.
    """

    step_time: StepTime
    pool_tokens: int | None = None
    max_context: int | None = None
    kv_bytes_per_token: float | None = None
    link_bytes_per_s: float | None = None


def parse_costs(text: str) -> Costs:
    """The costs a text stands for. Raises ConfigError."""
    kind, _, rest = text.partition(":")
    if kind == "linear":
        return Costs(_linear(text, rest))
    if kind == "fitted":
        return Costs(read_fitted(Path(rest), f"--costs {text}"))
    hardware, comma, model = text.partition(",")
    if not comma:
        raise ConfigError(f"--costs {text!r}: expected {USAGE}")
    try:
        return _datasheet(hardware.strip(), model.strip())
    except PacelineError as error:
        raise ConfigError(f"--costs {text}: {error.message}") from error


def told_costs(text: str, step_time: StepTime) -> str:
    """The option as a report says it, with what it stood for: a file may change, and a machine is measured anew."""
    if not isinstance(step_time, DatasheetEstimator):
        return text
    card, weights = step_time.hardware, step_time.weights
    return (
        f"{text}: {counted(step_time.model.num_params)} parameters of {weights.bytes_per_number:.4g} bytes "
        f"({weights.name}), KV {step_time.kv.name}; {step_time.num_cards} × {card.name} of "
        f"{card.flops_per_s / 1e12:.4g} TFLOP/s and {card.bytes_per_s / 1e9:.4g} GB/s, {step_time.efficiency:.0%} of it"
    )


def _linear(text: str, rest: str) -> LinearLaw:
    values: dict[str, float] = {}
    for pair in rest.split(",") if rest else ():
        key, _, number = pair.partition("=")
        if key not in LINEAR_KEYS:
            raise ConfigError(f"--costs {text!r}: {key!r} is not one of {', '.join(LINEAR_KEYS)}")
        try:
            values[LINEAR_KEYS[key]] = float(number)
        except ValueError:
            raise ConfigError(f"--costs {text!r}: {key} must be a number of seconds, got {number!r}") from None
    return LinearLaw(**values)


def read_fitted(path: Path, option: str) -> FittedStepTime:
    """What `replay --fit` wrote; errors name the `option`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=FittedStepTime)
    except OSError as error:
        raise ConfigError(f"{option}: {error.strerror or error}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{option}: {error}; `paceline replay FILE --fit` writes such a file") from error


def _datasheet(hardware: str, rest: str) -> Costs:
    """`rest`: the model, which may be a path with commas, and what its numbers are stored in instead, at the end."""
    match = re.fullmatch(r"(?:(\d{1,4})\s*[x×]\s*)?(\S.*)", hardware)
    if match is None:
        raise ConfigError(f"expected {USAGE}, got hardware {hardware!r}")
    card_name = match.group(2)
    model, formats = _split_formats(rest)
    card = card_named(card_name)
    size, weights = model_named(model, formats.get("weights"))
    estimator = DatasheetEstimator(
        size,
        card,
        int(match.group(1) or 1),
        weights=weights,
        kv=kv_format(formats.get("kv", "bf16")),
        efficiency=efficiency_of(card_name),
    )
    link = card.link_bytes_per_s
    return Costs(
        step_time=estimator,
        pool_tokens=_pool_tokens(estimator, card_name),
        max_context=size.max_context,
        kv_bytes_per_token=estimator.kv_bytes_per_token,
        link_bytes_per_s=None if link is None else link * estimator.num_cards,
    )


def _split_formats(rest: str) -> tuple[str, dict[str, str]]:
    """`MODEL,weights=fp8,kv=fp8`: the model and the formats."""
    formats: dict[str, str] = {}
    while match := NUMBER_FORMATS.search(rest):
        if match.group(1) in formats:
            raise ConfigError(f"{match.group(1)} is given twice: leave one out")
        formats[match.group(1)] = match.group(2).strip()
        rest = rest[: match.start()].rstrip()
    if not rest:
        raise ConfigError(f"expected {USAGE}, got no model")
    return rest, formats


def _pool_tokens(estimator: DatasheetEstimator, card_name: str) -> int:
    """Tokens of KV beside the weights and the planner's workspace."""
    workspace_bytes = estimator.memory_bytes * MARGINS.workspace_share
    pool_tokens = estimator.memory_limit(1, workspace_bytes)
    if pool_tokens < 1:
        usable_bytes = (estimator.memory_bytes - workspace_bytes) / estimator.num_cards
        num_cards = floor(estimator.weights_bytes / usable_bytes) + 1
        raise ConfigError(
            f"the weights take {sized(estimator.weights_bytes)}, the memory holds {sized(estimator.memory_bytes)}, "
            f"{MARGINS.workspace_share:.0%} of it kept as workspace: give at least {num_cards}x{card_name}, or smaller "
            f"numbers, such as weights=int4 at the end"
        )
    return pool_tokens
