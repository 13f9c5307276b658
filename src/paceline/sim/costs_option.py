"""`--costs`: what a step costs, as one text.

linear                                     the law of the published batching tables
linear:fixed=0.005,prefill=2e-5,decode=5e-4
h100,llama-2-7b                            the datasheet estimator; 8xh100,llama-3-70b: eight cards, one model
fitted:FILE                                a step time fitted to measured steps, as JSON
"""

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.costs.estimator import DatasheetEstimator
from paceline.costs.fitted import FittedStepTime
from paceline.costs.hardware import find_hardware
from paceline.costs.known_models import find_model
from paceline.costs.step import LinearLaw, StepTime
from paceline.errors import ConfigError

USAGE = "linear, linear:fixed=S,prefill=S,decode=S, HARDWARE,MODEL such as h100,llama-2-7b or 8xh100,…, or fitted:FILE"
LINEAR_KEYS = {"fixed": "fixed_s", "prefill": "prefill_token_s", "decode": "decode_row_s"}


@dataclass(frozen=True, slots=True)
class Costs:
    """A step time and what else is known with it: tokens of KV that fit beside the weights, the model's context, bytes
    of KV a token has, and what the hardware's links carry.
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
    return _datasheet(hardware.strip(), model.strip())


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


def _datasheet(hardware: str, model: str) -> Costs:
    match = re.fullmatch(r"(?:(\d{1,4})\s*[x×]\s*)?(\S.*)", hardware)
    if match is None:
        raise ConfigError(f"--costs: expected {USAGE}, got hardware {hardware!r}")
    size = find_model(model)
    estimator = DatasheetEstimator(size, find_hardware(match.group(2)), int(match.group(1) or 1))
    pool_tokens = estimator.memory_limit(1)
    if pool_tokens < 1:
        raise ConfigError(
            f"--costs {hardware},{model}: the weights take {estimator.weights_bytes / 1e9:.1f} GB, "
            f"the memory holds {estimator.memory_bytes / 1e9:.1f} GB: give more cards, such as 8x{match.group(2)}"
        )
    link = estimator.hardware.link_bytes_per_s
    return Costs(
        step_time=estimator,
        pool_tokens=pool_tokens,
        max_context=size.max_context,
        kv_bytes_per_token=estimator.kv_bytes_per_token,
        link_bytes_per_s=None if link is None else link * estimator.num_cards,
    )
