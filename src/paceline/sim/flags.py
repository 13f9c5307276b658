"""Flags of `paceline simulate` that would change nothing beside others: refused by name, never dropped in silence."""

from collections.abc import Collection
from dataclasses import fields
from pathlib import Path

from paceline.errors import ConfigError
from paceline.sim.options import Options

OF_A_TRACE = ("speed", "shrink")
OF_DRAWN_REQUESTS = ("workload", "arrivals", "prefix", "sessions")
OF_SENT_REQUESTS = (*OF_DRAWN_REQUESTS, *OF_A_TRACE, "trace", "requests", "max_tokens")
# What a report is and what it measures by: all that a recorded run, shown as it was, leaves open.
OF_A_REPORT = ("ttft", "itl", "e2e", "out")


def check_flags(options: Options, replay: Path | None, sweep: str | None) -> None:
    """Raises ConfigError with the first flag that has no effect, and why."""
    defaults = Options()
    given = [each.name for each in fields(options) if getattr(options, each.name) != getattr(defaults, each.name)]
    if replay is not None and options.costs is None:
        why = "--replay shows the run as it was; with --costs its requests meet other flags"
        given += [] if sweep is None else ["sweep"]
        _refuse([name for name in given if name not in OF_A_REPORT], given, why)
        return
    if replay is not None:
        _refuse(OF_SENT_REQUESTS, given, "--replay sends the requests that were recorded")
    elif options.trace is not None:
        _refuse(OF_DRAWN_REQUESTS, given, "--trace has lengths and times of its own; see --speed and --shrink")
    else:
        _refuse(OF_A_TRACE, given, "it scales a --trace, and none is given")
    if options.prefill_replicas == "0":
        _refuse(("transfer",), given, "it is what --prefill-replicas send over, and there are none")


def _refuse(without_effect: Collection[str], given: Collection[str], why: str) -> None:
    for name in without_effect:
        if name in given:
            raise ConfigError(f"--{name.replace('_', '-')} changes nothing here: {why}")
