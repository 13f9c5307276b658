"""A choice's tokens and text are shown together and end together."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_pieces import sentence_piece_metadata

from paceline.text.choice import ChoiceText, TextPiece, prompt_texts
from paceline.text.gguf_tokenizer import gguf_tokenizer
from paceline.text.stops import StopStrings
from paceline.text.tokenizer import Tokenizer

# A greedy continuation of "One, two, three, four,", and text whose characters are split over tokens.
COUNTING = " five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen"
SPLIT = "Naïve 👍🏽 café — 你好, мир ½\n1. Yés"


def run(tokenizer: Tokenizer, ids: list[int], stops: list[str], include_stop: bool = False) -> list[TextPiece]:
    """The pieces of a stream, ended by a stop or by the end of the tokens."""
    choice = ChoiceText(tokenizer, StopStrings(stops, include_stop))
    pieces = []
    for token_id in ids:
        pieces.append(choice.push(token_id))
        if choice.is_finished:
            break
    else:
        pieces.append(choice.finish())
    assert choice.num_tokens == sum(len(piece.tokens) for piece in pieces), "every kept token is handed out once"
    return pieces


def joined(pieces: list[TextPiece]) -> str:
    return "".join(piece.text for piece in pieces)


def test_b001_no_part_of_a_stop_string_is_shown(smol: Tokenizer) -> None:
    for text in (COUNTING, SPLIT + SPLIT):
        ids = smol.encode(text, False)
        assert smol.decode(ids) == text
        for start in range(1, 16):
            for length in range(1, 13):
                stop = text[start : start + length]
                pieces = run(smol, ids, [stop])
                assert joined(pieces) == text[: text.index(stop)]
                assert pieces[-1].stop == stop
                assert joined(run(smol, ids, [stop], include_stop=True)) == text[: text.index(stop)] + stop


def test_b003_a_stop_that_ends_inside_a_token_counts_that_token(smol: Tokenizer) -> None:
    ids = smol.encode(COUNTING, False)
    parts = [smol.decode([token_id]) for token_id in ids]
    checked = 0
    for k in range(1, len(parts)):
        stop = parts[k - 1][-1] + parts[k][:3]
        before = "".join(parts[:k])
        if len(parts[k]) < 4 or COUNTING.index(stop) != len(before) - 1:
            continue
        choice = ChoiceText(smol, StopStrings([stop, "fifteen"]))
        pieces = [choice.push(token_id) for token_id in ids[: k + 1]]
        assert choice.is_finished
        assert choice.num_tokens == k + 1
        assert joined(pieces) == COUNTING[: COUNTING.index(stop)]
        assert [token.token_id for piece in pieces for token in piece.tokens] == ids[: k + 1]
        checked += 1
    assert checked >= 3


def test_b003_tokens_past_the_stop_are_dropped_when_the_decision_had_to_wait(smol: Tokenizer) -> None:
    ids = smol.encode("x a b c d", False)
    choice = ChoiceText(smol, StopStrings([" b", " a b c e"]))
    pieces = [choice.push(token_id) for token_id in ids]
    assert choice.is_finished
    assert pieces[-1].stop == " b"
    assert joined(pieces) == "x a"
    assert choice.num_tokens == 3
    assert [token.token_id for piece in pieces for token in piece.tokens] == ids[:3]


@given(
    text=st.text(alphabet="ab é👍", min_size=1, max_size=20),
    stops=st.lists(st.text(alphabet="ab é👍", min_size=1, max_size=4), max_size=3),
    include_stop=st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_text_tokens_and_counts_agree_whatever_the_stops(
    smol: Tokenizer, text: str, stops: list[str], include_stop: bool
) -> None:
    ids = smol.encode(text, False)
    pieces = run(smol, ids, stops, include_stop)
    found = [(text.index(stop), len(stop)) for stop in stops if stop in text]
    start, length = min(found, default=(len(text), 0))
    assert joined(pieces) == text[: start + length if include_stop else start]
    tokens = [token for piece in pieces for token in piece.tokens]
    assert [token.token_id for token in tokens] == ids[: len(tokens)]
    kept = smol.decode(ids[: len(tokens)])
    assert kept.startswith(text[: start + length]), "the token that completed the stop is kept"
    assert not found or not smol.decode(ids[: len(tokens) - 1]).startswith(text[: start + length]), "and is the last"
    shown = 0
    for piece in pieces[:-1]:
        shown += len(piece.text)
        assert all(token.end <= shown for token in piece.tokens), "a token comes with its text, not before"


@given(ids=st.lists(st.integers(0, 49151) | st.integers(17, 400), max_size=30), hidden=st.booleans())
@settings(max_examples=400, deadline=None)
def test_parts_joined_are_the_text_for_any_bytes(smol: Tokenizer, ids: list[int], hidden: bool) -> None:
    choice = ChoiceText(smol, start_offset=100)
    pieces = [choice.push(token_id) for token_id in ids]
    if hidden:
        pieces.append(choice.push(2, is_shown=False))
    pieces.append(choice.finish())
    tokens = [token for piece in pieces for token in piece.tokens]
    assert joined(pieces) == smol.decode(ids)
    assert "".join(token.text for token in tokens) == joined(pieces)
    assert [token.raw for token in tokens] == [smol.token_bytes(token_id) for token_id in ids + [2] * hidden]
    assert [token.offset for token in tokens] == [
        100 + sum(len(token.text) for token in tokens[:i]) for i in range(len(tokens))
    ]


def test_b015_offsets_of_an_echoed_prompt_fit_its_text(smol: Tokenizer) -> None:
    prompt = "\n1. Answer: Yés"
    ids = smol.encode(prompt, True)
    tokens = prompt_texts(smol, ids, has_added_bos=False)
    assert "".join(token.text for token in tokens) == prompt
    for index, token in enumerate(tokens):
        assert token.offset == len("".join(before.text for before in tokens[:index]))
    split = prompt_texts(smol, smol.encode("é👍", False), has_added_bos=False)
    assert [token.text for token in split] == ["é", "", "", "👍"]
    assert b"".join(token.raw for token in split) == "é👍".encode()


def test_an_echoed_prompt_shows_special_tokens_but_not_the_added_beginning() -> None:
    for adds_space in (False, True):
        tokenizer = gguf_tokenizer(sentence_piece_metadata(adds_space))
        for prompt, has_added_bos in (("Hello world", True), ("<bos>Hello", False)):
            ids = tokenizer.encode(prompt, True)
            tokens = prompt_texts(tokenizer, ids, has_added_bos)
            assert len(tokens) == len(ids)
            if not adds_space or has_added_bos:
                assert "".join(token.text for token in tokens) == prompt


def test_a_stop_token_is_counted_but_not_shown(smol: Tokenizer) -> None:
    choice = ChoiceText(smol, skip_special=False)
    pieces = [choice.push(token_id) for token_id in smol.encode("done", False)]
    pieces += [choice.push(2, is_shown=False), choice.finish()]
    assert joined(pieces) == "done"
    assert choice.num_tokens == len(smol.encode("done", False)) + 1


def test_a_token_costs_the_same_late_in_a_long_text(smol: Tokenizer) -> None:
    ids = smol.encode(COUNTING, False) * 100
    choice = ChoiceText(smol, StopStrings(["never in it", "\n\n\n"]))
    times = []
    for begin in range(0, len(ids), len(ids) // 10):
        start = time.perf_counter()
        for token_id in ids[begin : begin + len(ids) // 10]:
            choice.push(token_id)
        times.append(time.perf_counter() - start)
    assert min(times[5:]) < 4 * min(times[:5])
    assert min(times) / (len(ids) // 10) < 100e-6
