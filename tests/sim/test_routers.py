"""Who gets a request, and when KV that is handed on arrives."""

from paceline.core.request import Request, RequestId, StopRule, token_array
from paceline.costs.step import LinearLaw
from paceline.sim.handoff import Handoff, Link
from paceline.sim.policies import Policy
from paceline.sim.replica import Replica
from paceline.sim.router import LeastLoaded, PrefixAffinity, RoundRobin


def request(number: int, stem: int, num_tokens: int = 100) -> Request:
    """A prompt whose first 64 tokens are its stem's."""
    return Request(RequestId(number), token_array([stem] * 64 + [1_000 + number] * (num_tokens - 64)), StopRule(4))


def test_round_robin_takes_each_in_turn() -> None:
    router = RoundRobin()
    assert [router.choose(request(number, 0), [9, 0, 0]) for number in range(4)] == [0, 1, 2, 0]


def test_the_least_loaded_is_the_first_of_the_fewest() -> None:
    assert LeastLoaded().choose(request(0, 0), [3, 1, 1]) == 1


def test_a_prefix_goes_where_it_went_before() -> None:
    router, loads = PrefixAffinity(), [2, 2, 2]
    first = {stem: router.choose(request(stem, stem), [stem != 0, stem != 1, stem != 2]) for stem in range(3)}
    assert first == {0: 0, 1: 1, 2: 2}
    for number in range(3, 12):
        assert router.choose(request(number, number % 3), loads) == number % 3


def test_but_not_to_a_replica_that_has_far_more_than_its_share() -> None:
    router = PrefixAffinity()
    assert router.choose(request(0, 7), [0, 5]) == 0
    assert router.choose(request(1, 7), [9, 1]) == 1


def test_a_prefill_replica_sends_one_prompt_at_a_time() -> None:
    handoff = Handoff([Replica(Policy(), LinearLaw())], Link(1e6, 1e4), num_senders=2)
    sent = request(0, 0, 100)  # one second on the link
    assert handoff.arrives_s(0, sent, 10.0) == 11.0
    assert handoff.arrives_s(0, sent, 10.5) == 12.0
    assert handoff.arrives_s(1, sent, 10.5) == 11.5
    assert handoff.arrives_s(0, sent, 20.0) == 21.0
