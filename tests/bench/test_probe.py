"""What the client finds out about a server before it measures, and how it adapts."""

from collections.abc import Callable

import pytest

from mocks import RunningMock, items, run_against
from paceline.bench.endpoint import BenchError, parse_url
from paceline.bench.load import Load
from paceline.bench.record import Outcome, TokenCount

Mocked = Callable[..., RunningMock]


def test_a_server_that_takes_everything_is_asked_for_everything(mock: Mocked) -> None:
    server = mock(first_s=0.0, gap_s=0.0)
    run = run_against(server, Load(items(1, output_tokens=2, prompt_tokens=40), concurrency=1))
    body = server.log()[-1]["body"]
    assert len(body["prompt"]) == 40
    assert body["stream_options"] == {"include_usage": True}
    assert (body["ignore_eos"], body["max_tokens"], body["model"]) == (True, 2, "mock")
    assert run.abilities.max_model_len == 100_000
    assert ("version", "1.0") in run.abilities.about
    assert run.abilities.notes == ()


@pytest.mark.parametrize("field", ["stream_options", "ignore_eos", "temperature"])
def test_a_field_that_is_refused_by_name_is_left_out_and_noted(mock: Mocked, field: str) -> None:
    server = mock(first_s=0.0, gap_s=0.0, refused_fields=[field])
    run = run_against(server, Load(items(2, output_tokens=4), concurrency=1))
    assert all(record.outcome is Outcome.COMPLETED for record in run.records)
    assert field not in server.log()[-1]["body"]
    assert any(field in note for note in run.abilities.notes)
    expected = TokenCount.EVENTS if field == "stream_options" else TokenCount.USAGE
    assert run.records[0].token_count is expected


def test_the_limit_goes_by_its_newer_name_where_that_is_asked_for(mock: Mocked) -> None:
    server = mock(first_s=0.0, gap_s=0.0, refused_fields=["max_tokens"])
    run = run_against(server, Load(items(1, output_tokens=4), concurrency=1), is_chat=True)
    assert run.records[0].output_tokens == 4
    assert server.log()[-1]["body"]["max_completion_tokens"] == 4


def test_a_server_that_takes_nothing_is_given_up_with_its_reason(mock: Mocked) -> None:
    with pytest.raises(BenchError, match="unknown field model"):
        run_against(mock(refused_fields=["model"]), Load([], concurrency=1))


def test_without_token_ids_the_prompt_is_words_of_the_length_asked_for(mock: Mocked) -> None:
    server = mock(first_s=0.0, gap_s=0.0, takes_ids=False)
    run = run_against(server, Load(items(2, output_tokens=2, prompt_tokens=40), concurrency=1))
    first, second = (entry["body"]["prompt"].split() for entry in server.log()[-2:])
    assert len(first) == len(second) == 40
    assert first != second
    assert {record.prompt_tokens for record in run.records} == {40}


def test_what_the_template_adds_is_taken_off_the_prompt(mock: Mocked) -> None:
    server = mock(first_s=0.0, gap_s=0.0, overhead_tokens=7)
    run = run_against(server, Load(items(1, output_tokens=2, prompt_tokens=40), concurrency=1), is_chat=True)
    assert len(server.log()[-1]["body"]["messages"][0]["content"].split()) == 33
    assert run.records[0].prompt_tokens == 40
    assert len(run.records[0].event_times_s) == 2, "the chunk with the role alone is no token"


def test_nobody_there_is_said_with_the_remedy() -> None:
    class Nobody:
        url = "http://127.0.0.1:9"

    with pytest.raises(BenchError, match="is the server running"):
        run_against(Nobody(), Load([]))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1/"])
def test_urls_are_read_as_people_type_them(text: str) -> None:
    assert parse_url(text) == "http://127.0.0.1:8000"


@pytest.mark.parametrize("text", ["ftp://x", "http://", ""])
def test_a_bad_url_is_refused(text: str) -> None:
    with pytest.raises(BenchError, match="expected a URL"):
        parse_url(text)
