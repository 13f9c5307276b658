"""`paceline replay FILE`: does a fresh scheduler decide what the recorded one did?"""

from pathlib import Path

import typer

from paceline.sim.recording import read_recording
from paceline.sim.replay import PlanDiffersError, replay_all

DIFFERENT_EXIT_CODE = 1


def replay_recording(path: Path) -> int:
    """Tell; the exit code is 0 when every plan is the same."""
    try:
        parts = replay_all(read_recording(path))
    except PlanDiffersError as error:
        typer.echo(f"{path}: the plans differ. {error.message}", err=True)
        return DIFFERENT_EXIT_CODE
    num_steps, num_requests = sum(part.num_steps for part in parts), sum(part.num_requests for part in parts)
    starts = "" if len(parts) == 1 else f" and {len(parts)} starts of the engine"
    typer.echo(f"{path}: {num_steps} plans of {num_requests} requests{starts}, all identical")
    return 0
