"""`paceline plan fit RECORDING`: a step time fitted to a server's own steps, for `plan --fitted` and `simulate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from paceline.costs.fit import fit_step_time
from paceline.costs.fitted import FitError, FittedStepTime
from paceline.costs.units import digits, timed
from paceline.errors import ConfigError
from paceline.sim.costs_option import parse_costs
from paceline.sim.measured import measured_steps
from paceline.sim.recording import read_recording

DEFAULT_FILE = Path("costs.json")


def fit(
    recording: Annotated[Path, typer.Argument(help="What a server wrote with --record.")],
    out: Annotated[Path, typer.Option(help="Where the step time goes.")] = DEFAULT_FILE,
) -> None:
    """Fit a step time to the recorded steps of a server; its error is that on steps it did not see."""
    law, error = fit_step_time(measured_steps(read_recording(recording)))
    try:
        out.write_bytes(msgspec.json.encode(law))
    except OSError as problem:
        raise ConfigError(f"--out {out}: {problem.strerror}") from None
    for line in told(law, error):
        typer.echo(line)
    typer.echo(f"{out}: for paceline plan --fitted {out}, and paceline simulate --costs fitted:{out}")


def told(law: FittedStepTime, error: FitError) -> Sequence[str]:
    """The law, and how far to trust it."""
    return (
        f"a step: {timed(law.overhead_s)} + {timed(law.token_s)} × max(tokens, {digits(law.ridge_tokens)}) + "
        f"{digits(law.context_token_s * 1e9)} ns a token of context + {digits(law.pair_s * 1e9)} ns a pair attended + "
        f"{timed(law.sampled_s)} a token sampled",
        f"error on steps it was not fitted to: median {error.median:.1%}, p90 {error.p90:.1%}, largest "
        f"{error.largest:.0%}; all {error.num_steps:,} steps together: {error.bias:.3f} of the measured time",
    )


def read_fitted(path: Path) -> FittedStepTime:
    """A step time that `fit` wrote. Raises ConfigError."""
    law = parse_costs(f"fitted:{path}").step_time
    assert isinstance(law, FittedStepTime), "the costs fitted:FILE are a fitted step time"
    return law
