"""Text grows token by token as it would decode whole."""

from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_pieces import sentence_piece_metadata

from paceline.text.gguf_tokenizer import gguf_tokenizer
from paceline.text.incremental import IncrementalText
from paceline.text.tokenizer import Tokenizer


def deltas(tokenizer: Tokenizer, ids: list[int], **options: bool) -> list[str]:
    text = IncrementalText(tokenizer, **options)
    return [*(text.push(token_id) for token_id in ids), text.flush()]


@given(text=st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_joined_deltas_are_the_decoding_of_the_whole(smol: Tokenizer, text: str) -> None:
    ids = smol.encode(text, False)
    assert "".join(deltas(smol, ids)) == smol.decode(ids)


@given(ids=st.lists(st.integers(0, 49151) | st.integers(17, 400), max_size=40), skip_special=st.booleans())
@settings(max_examples=400, deadline=None)
def test_so_they_are_for_any_bytes(smol: Tokenizer, ids: list[int], skip_special: bool) -> None:
    assert "".join(deltas(smol, ids, skip_special=skip_special)) == smol.decode(ids, skip_special)


def test_a_split_character_comes_with_its_last_byte(smol: Tokenizer) -> None:
    ids = smol.encode("👍", False)
    assert len(ids) == 3
    assert deltas(smol, ids) == ["", "", "👍", ""]
    assert deltas(smol, ids[:2]) == ["", "", "\ufffd"]
    letter = smol.encode("a", False)
    assert deltas(smol, ids[:2] + letter) == ["", "", "\ufffda", ""]
    assert deltas(smol, ids[1:2]) == ["\ufffd", ""], "a byte that begins no character is invalid at once"


def test_special_tokens_are_skipped_unless_asked_for(smol: Tokenizer) -> None:
    ids = smol.encode("a<|im_end|>b", False)
    assert "".join(deltas(smol, ids)) == "ab"
    assert "".join(deltas(smol, ids, skip_special=False)) == "a<|im_end|>b"


def test_only_the_beginning_of_a_text_loses_the_space_put_before_it() -> None:
    tokenizer = gguf_tokenizer(sentence_piece_metadata(add_space_prefix=True))
    ids = tokenizer.encode("Hello world", True)
    assert "".join(deltas(tokenizer, ids, at_start=True)) == "Hello world"
    assert "".join(deltas(tokenizer, ids)) == " Hello world"


def test_special_tokens_that_a_parser_reads_are_kept(smol: Tokenizer) -> None:
    kept = smol.special_ids_of(["<|im_start|>", "no token", "the"])
    assert kept == {1}
    text = IncrementalText(smol, kept_special_ids=kept)
    assert [text.push(token_id) for token_id in (1, 2)] == ["<|im_start|>", ""]
