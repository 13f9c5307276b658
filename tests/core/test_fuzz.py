"""A short run of the fuzzer; `make soak` runs a million operations of it."""

from fuzz import REQUIRED, fuzz


def test_fifteen_thousand_random_operations_keep_every_promise_and_reach_every_rare_place() -> None:
    events = fuzz(15_000, seed=1)
    missed = [name for name in REQUIRED if events[name] == 0]
    assert not missed, f"never happened: {missed}"
