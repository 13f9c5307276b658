"""A key's allowance, on a clock that tests turn: never more than the rate allows, never refused for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.server.rate_limit import WINDOW_S, Bucket, KeyLimits

RATES = st.integers(1, 10_000)
# Seconds to wait, tokens to reserve, and the share of them that is really used.
DEEDS = st.lists(
    st.tuples(st.floats(0, 200), st.integers(1, 30_000), st.floats(0, 1)), min_size=1, max_size=60
)  # fmt: skip


@given(RATES, DEEDS)
def test_use_never_passes_the_rate_by_more_than_a_minute(rate: int, deeds: list[tuple[float, int, float]]) -> None:
    bucket, now_s, num_used, largest = Bucket(rate, 0.0), 0.0, 0.0, 0.0
    for pause_s, wish, share in deeds:
        now_s += pause_s
        if bucket.wait_s(wish, now_s) > 0:
            continue
        taken = bucket.take(wish, now_s)
        used = wish * share
        bucket.put(taken - used, now_s)
        num_used += used
        largest = max(largest, used - taken)
        # Only what one request used beyond a full bucket may lie above the line.
        assert num_used <= rate * (now_s / WINDOW_S + 1) + largest + 1e-6 * num_used
        assert bucket.level(now_s) <= rate


@given(RATES, DEEDS)
def test_whoever_waits_as_told_is_let_in(rate: int, deeds: list[tuple[float, int, float]]) -> None:
    bucket, now_s = Bucket(rate, 0.0), 0.0
    for pause_s, wish, share in deeds:
        now_s += pause_s
        wait_s = bucket.wait_s(wish, now_s)
        now_s += wait_s * (1 + 1e-9) + (1e-6 if wait_s else 0)
        assert bucket.wait_s(wish, now_s) == 0
        taken = bucket.take(wish, now_s)
        bucket.put(taken - wish * share, now_s)


@given(RATES, st.integers(1, 30_000), st.floats(0, 1000))
def test_what_was_not_used_comes_back(rate: int, wish: int, now_s: float) -> None:
    bucket = Bucket(rate, 0.0)
    taken = bucket.take(wish, now_s)
    bucket.put(taken, now_s)
    assert bucket.level(now_s) == pytest.approx(rate)


def test_the_worked_example() -> None:
    bucket = Bucket(600, 0.0)
    taken = bucket.take(300, 0.0)
    bucket.put(taken - 150, 0.0)
    assert bucket.level(0.0) == 450
    assert bucket.wait_s(4096, 0.0) == 15.0
    taken = bucket.take(4096, 15.0)
    assert (taken, bucket.level(15.0)) == (600, 0)
    bucket.put(taken - 2000, 15.0)
    assert bucket.level(15.0) == -1400
    assert bucket.wait_s(100, 15.0) == 150.0


def test_headers_are_those_of_openai() -> None:
    limits = KeyLimits.of(60, 6000, 0.0)
    assert limits.requests is not None
    limits.requests.take(30, 0.0)
    assert dict(limits.headers(10.0)) == {
        b"x-ratelimit-limit-requests": b"60",
        b"x-ratelimit-remaining-requests": b"40",
        b"x-ratelimit-reset-requests": b"20.000s",
        b"x-ratelimit-limit-tokens": b"6000",
        b"x-ratelimit-remaining-tokens": b"6000",
        b"x-ratelimit-reset-tokens": b"0.000s",
    }
    assert KeyLimits.of(None, None, 0.0).headers(0.0) == []
