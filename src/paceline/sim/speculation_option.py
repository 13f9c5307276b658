"""`--speculation`: drafting as one text, `draft=4,alpha=0.7,cost=0.1`; α and the cost are those of the closed form."""

from paceline.costs.speculation import MAX_DRAFTS, Speculation
from paceline.errors import ConfigError

USAGE = "draft=K,alpha=A,cost=C: drafts a step, the chance that one is kept, a draft's pass as a share of a decode step"
KEYS = ("draft", "alpha", "cost")
NO_DRAFTS = Speculation(0.0, 0, 0.0)


def parse_speculation(text: str) -> Speculation:
    """The drafting that a text stands for. Raises ConfigError."""
    values: dict[str, float] = {}
    for pair in text.split(","):
        key, _, number = (part.strip() for part in pair.partition("="))
        if key not in KEYS or key in values:
            raise ConfigError(f"--speculation {text!r}: expected {USAGE}")
        try:
            values[key] = float(number)
        except ValueError:
            raise ConfigError(f"--speculation {text!r}: {key} must be a number, got {number!r}") from None
    missing = [key for key in KEYS if key not in values]
    if missing:
        raise ConfigError(f"--speculation {text!r}: {missing[0]} is missing; expected {USAGE}")
    num_drafts = checked_drafts("--speculation: draft", values["draft"])
    try:
        return Speculation(values["alpha"], num_drafts, values["cost"])
    except ConfigError as error:
        raise ConfigError(f"--speculation {text!r}: {error.message}") from None


def checked_drafts(name: str, value: float) -> int:
    """Drafts a step. Raises ConfigError."""
    if not 1 <= value <= MAX_DRAFTS or value != int(value):
        raise ConfigError(f"{name} must be a whole number from 1 to {MAX_DRAFTS}, got {value:g}")
    return int(value)


def told_speculation(speculation: Speculation) -> str:
    """It in a report's words."""
    if speculation.num_drafts == 0:
        return "none"
    return f"{speculation.num_drafts} drafts, α {speculation.acceptance:g}, cost {speculation.draft_cost:g}"
