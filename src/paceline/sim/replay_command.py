"""`paceline replay FILE`: does a fresh scheduler decide what the recorded one did? And what did its steps cost?"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer

from paceline.errors import ConfigError
from paceline.sim.recording import read_recording
from paceline.sim.replay import PlanDiffersError, ReplayedPart, replay_all

DIFFERENT_EXIT_CODE = 1


def replay_recording(path: Path, fit: Path | None = None) -> int:
    """Tell; the exit code is 0 when every plan is the same. `fit`: where a step time fitted to the steps goes."""
    try:
        parts = replay_all(read_recording(path))
    except PlanDiffersError as error:
        typer.echo(f"{path}: the plans differ. {error.message}", err=True)
        return DIFFERENT_EXIT_CODE
    num_steps, num_requests = sum(part.num_steps for part in parts), sum(part.num_requests for part in parts)
    starts = "" if len(parts) == 1 else f" and {len(parts)} starts of the engine"
    typer.echo(f"{path}: {num_steps} plans of {num_requests} requests{starts}, all identical")
    if fit is not None:
        typer.echo(write_fit(fit, parts))
    return 0


def write_fit(path: Path, parts: Sequence[ReplayedPart]) -> str:
    """Fit a step time to the recorded durations, for `simulate --costs fitted:FILE`; what to say of it. Raises
    ConfigError when there are too few steps.
    """
    # Imported here: a replay needs no NumPy.
    from paceline.costs.fit import fit_step_time

    law, error = fit_step_time([sample for part in parts for sample in part.samples])
    try:
        path.write_bytes(msgspec.json.encode(law) + b"\n")
    except OSError as failure:
        raise ConfigError(f"--fit {path}: {failure.strerror or failure}") from failure
    return (
        f"{path}: step time fitted to {error.num_steps} steps; on steps it was not fitted to it is off by "
        f"{error.median:.1%} (median), {error.p90:.1%} (p90); all together {error.bias - 1:+.1%}"
    )
