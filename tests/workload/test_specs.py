"""Texts of the command line become parts of a workload; wrong ones are answered with what is allowed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.workload.arrivals import ClosedLoop, Constant, Gamma, OnOff, Poisson
from paceline.workload.catalogue import find_workload
from paceline.workload.distributions import Clipped, Fixed, Geometric, LogNormal, Uniform
from paceline.workload.lengths import Lengths
from paceline.workload.prefixes import Documents, FewShot, SharedShare, SystemPrompt, Unshared
from paceline.workload.sessions import Sessions
from paceline.workload.specs import parse_arrivals, parse_length_pair, parse_lengths, parse_prefix, parse_sessions

PARSERS = (parse_lengths, parse_length_pair, parse_arrivals, parse_prefix, parse_sessions)


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parse_lengths, "128", Fixed(128)),
        (parse_lengths, "fixed:tokens=128", Fixed(128)),
        (parse_lengths, " uniform: low=32, high=255 ", Uniform(32, 255)),
        (parse_lengths, "geometric:mean=64", Geometric(64)),
        (parse_lengths, "lognormal:median=161,sigma=0.8", LogNormal(161, 0.8)),
        (parse_lengths, "lognormal:mean=338,sd=200", LogNormal.from_mean(338, 200)),
        (parse_lengths, "lognormal:median=161,sigma=0.8,max=2048", Clipped(LogNormal(161, 0.8), 0, 2048)),
        (parse_length_pair, "128/geometric:mean=64", Lengths(Fixed(128), Geometric(64))),
        (parse_length_pair, "azure2023_conv", find_workload("azure2023_conv").lengths),
        (parse_arrivals, "closed:concurrency=8", ClosedLoop(8)),
        (parse_arrivals, "constant:rate=20", Constant(20)),
        (parse_arrivals, "poisson:rate=4", Poisson(4)),
        (parse_arrivals, "gamma:rate=4,cv=2", Gamma(4, 0.25)),
        (parse_arrivals, "gamma:rate=4,shape=0.835", Gamma(4, 0.835)),
        (parse_arrivals, "onoff:rate=8,on=2,off=6", OnOff(8, 2, 6)),
        (parse_prefix, "none", Unshared()),
        (parse_prefix, "share:share=0.5", SharedShare(0.5)),
        (parse_prefix, "system:tokens=512", SystemPrompt(512)),
        (parse_prefix, "fewshot:examples=8,tokens=64", FewShot(8, 64)),
        (parse_prefix, "documents:tokens=24000,questions=8", Documents(24000, 8, 1)),
        (parse_prefix, "documents:tokens=24000,questions=8,open=4", Documents(24000, 8, 4)),
        (parse_sessions, "none", None),
        (parse_sessions, "fixed:turns=16,think=0.5", Sessions(Fixed(16), Fixed(0.5))),
        (
            parse_sessions,
            "geometric:turns=8,think=2,sigma=1,history=0,max_prompt=2048",
            Sessions(Geometric(8), LogNormal(2, 1), replays_history=False, max_prompt_tokens=2048),
        ),
    ],
)
def test_a_text_stands_for_a_part(parse, text: str, expected: object) -> None:  # type: ignore[no-untyped-def]
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_lengths, "gauss:mean=1", "--input-len: 'gauss:mean=1' is not one of: fixed:tokens=N (or just N); unif"),
        (parse_lengths, "0", "--input-len 'fixed:tokens=0': tokens must be between 1 and 16777216, got 0"),
        (parse_lengths, "fixed:tokens=1.5", "tokens must be a whole number, got 1.5; usage: fixed:tokens=N"),
        (parse_lengths, "lognormal:median=161", "needs either median and sigma or mean and sd; usage: lognormal:"),
        (parse_lengths, "lognormal:median=1,sd=2", "needs either median and sigma or mean and sd"),
        (parse_lengths, "uniform:low=9,high=3", "high must be between 9 and 16777216, got 3"),
        (parse_lengths, "uniform:low=9", "high missing; usage: uniform:low=N,high=N"),
        (parse_length_pair, "nobody", "--lengths: there is no workload named 'nobody'; known: azure2023_conv, "),
        (parse_length_pair, "1/x", "--lengths (output): 'x' is not one of"),
        (
            parse_arrivals,
            "poisson:rate=0",
            "--arrivals 'poisson:rate=0': rate must be between 1e-06 and 1000000, got 0",
        ),
        (parse_arrivals, "poisson:rate=nan", "rate must be a number, got 'nan'"),
        (parse_arrivals, "poisson:rate=4,rate=5", "rate is given twice"),
        (parse_arrivals, "poisson:rte=4", "'rte=4' is not a known key=number"),
        (parse_arrivals, "poisson:4", "'4' is not a known key=number"),
        (parse_arrivals, "gamma:rate=4", "needs either shape or cv"),
        (parse_arrivals, "gamma:rate=4,shape=1,cv=1", "needs either shape or cv"),
        (parse_arrivals, "", "--arrivals: '' is not one of: closed:concurrency=N; constant:rate=X"),
        (parse_arrivals, "x" * 5000, "is not one of"),
        (parse_prefix, "share:share=1.5", "--prefix 'share:share=1.5': share must be between 0 and 1, got 1.5"),
        (parse_sessions, "fixed:turns=3,sigma=1", "give think, its median in seconds, as well"),
        (parse_sessions, "fixed:turns=3,history=2", "history must be 0 or 1, got 2"),
    ],
)
def test_a_wrong_text_names_option_value_and_what_is_allowed(parse, text: str, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert message in caught.value.message
    assert len(caught.value.message) < 700


def test_the_option_is_the_callers() -> None:
    with pytest.raises(ConfigError, match=r"^--output-len 'uniform:low=1': high missing"):
        parse_lengths("uniform:low=1", option="--output-len")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(PARSERS),
    st.text(max_size=30) | st.from_regex(r"[a-z]{4,9}:(rate|mean|tokens|low|high|turns)=[-0-9.e]{1,6}(,[a-z]=1)?"),
)
def test_no_text_gets_more_than_a_refusal(parse, text: str) -> None:  # type: ignore[no-untyped-def]
    refusal = "--"
    try:
        parse(text)
    except ConfigError as error:
        refusal = error.message
    assert refusal.startswith("--")
