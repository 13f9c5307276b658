"""A bounded run of `schema_fuzz.py` on the scripted engine; `make soak` runs 500 examples on the real model."""

from collections.abc import Callable
from pathlib import Path

from schema_fuzz import fuzz, gauges, reference_ids, wait_for_baseline

from running_server import RunningServer

NUM_EXAMPLES = 25


def test_no_request_the_document_describes_or_forbids_is_our_fault(
    start_server: Callable[..., RunningServer], journal: Path
) -> None:
    server = start_server(context=256, journal=str(journal))
    baseline, before = gauges(server), reference_ids(server, "scripted")
    tallies = list(fuzz(server, NUM_EXAMPLES))
    bodies = [tally for tally in tallies if tally.route.startswith("POST") and "ping" not in tally.route]
    assert len(bodies) >= 12, "six routes that take a body, in two modes"
    for tally in bodies:
        assert tally.num_examples >= NUM_EXAMPLES
        assert tally.statuses.keys() <= {200, 400, 404}, tally
        assert (200 in tally.statuses) == (tally.mode == "positive"), tally
    assert reference_ids(server, "scripted") == before
    assert journal.read_text().splitlines()[-1] == "1 0", "nothing but the reference stream was running"
    wait_for_baseline(server, baseline)
