"""Tokenizers built from checkpoints give the ids and bytes that were published."""

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import regex
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sentence_pieces import MARK, sentence_piece_metadata
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors

from paceline.errors import CheckpointError, RequestError
from paceline.text.folder_tokenizer import folder_tokenizer
from paceline.text.gguf_tokenizer import gguf_tokenizer
from paceline.text.tokenizer import Tokenizer

CORPUS = [
    "Hello, world! I'll say we've seen it's 2024-11-29, $1,234.56 and 10000000.",
    "def f(x):\n    return x ** 2  # square\n\n\n\tif True:\r\n\t\tpass\r\n",
    "Größe, naïve, façade, Ångström; Привет, мир! 你好,世界。こんにちは 안녕하세요 مرحبا",
    "👍🏽 🇨🇭 👨‍👩‍👧‍👦 ½ ² Ⅷ ٣٤٥ e\u0301 \u200b zero\u00a0width",
    "   leading,   runs    of     spaces \n \n  and trailing   ",
    "'S 'T don't DON'T you're YOU'RE 'tis 'llama",
    '<html><body class="x">&amp;</body></html> {"a": [1, 2.5e-10, null]}',
    "\x00\x01\x7f control \x1b[31m bytes",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 5 + "1234567890" * 3,
    "",
    " ",
    "\n",
]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def byte_spelling() -> dict[int, str]:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelling = {byte: chr(byte) for byte in printable}
    hidden = (byte for byte in range(256) if byte not in spelling)
    return spelling | {byte: chr(256 + index) for index, byte in enumerate(hidden)}


def naive_encode(metadata: dict[str, Any], text: str) -> list[int]:
    """SmolLM2's rule from its definition: digits apart, GPT-2 words, then the best-ranked merge while there is one."""
    ids = {piece: i for i, piece in enumerate(metadata["tokenizer.ggml.tokens"])}
    ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(metadata["tokenizer.ggml.merges"])}
    spelling = byte_spelling()
    found = []
    for run in regex.findall(r"\p{N}|\P{N}+", text):
        for word in regex.findall(GPT2, run):
            parts = [spelling[byte] for byte in word.encode()]
            while len(parts) > 1:
                pairs = list(pairwise(parts))
                best = min(pairs, key=lambda pair: ranks.get(pair, 1 << 30))
                if best not in ranks:
                    break
                at = pairs.index(best)
                parts[at : at + 2] = ["".join(best)]
            found.extend(ids[part] for part in parts)
    return found


@pytest.fixture(scope="module")
def published(smol_metadata: dict[str, Any]) -> Backend:
    """SmolLM2's tokenizer.json as published: digits apart, then the library's own GPT-2 splitter."""
    vocab = {piece: i for i, piece in enumerate(smol_metadata["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in smol_metadata["tokenizer.ggml.merges"]]
    backend = Backend(models.BPE(vocab=vocab, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(vocab)[:17])
    return backend


@pytest.mark.parametrize("text", CORPUS)
def test_smollm2_ids_follow_the_rule_s_definition(smol: Tokenizer, smol_metadata: dict[str, Any], text: str) -> None:
    assert smol.encode(text, False) == naive_encode(smol_metadata, text)


@pytest.mark.parametrize("text", [*CORPUS, "<|im_start|>user\nHi 12<|im_end|>\n<|im_start|>assistant\n"])
def test_smollm2_ids_equal_the_published_tokenizer_s(smol: Tokenizer, published: Backend, text: str) -> None:
    assert smol.encode(text, True) == published.encode(text).ids


def missing_bytes(metadata: dict[str, Any]) -> set[int]:
    pieces = set(metadata["tokenizer.ggml.tokens"])
    return {byte for byte, character in byte_spelling().items() if character not in pieces}


def test_smollm2_has_no_token_for_a_few_bytes_and_leaves_them_out(
    smol: Tokenizer, smol_metadata: dict[str, Any]
) -> None:
    assert missing_bytes(smol_metadata) == {4, 6, 19, 20, 22, 29, 192, 193, 241, 242, *range(245, 256)}
    assert smol.encode("a\x16b", False) == smol.encode("a", False) + smol.encode("b", False)


@given(text=st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_gets_the_published_ids_and_comes_back(
    smol: Tokenizer, smol_metadata: dict[str, Any], published: Backend, text: str
) -> None:
    ids = smol.encode(text, False)
    assert ids == published.encode(text).ids
    assume(missing_bytes(smol_metadata).isdisjoint(text.encode()))
    assert smol.decode(ids, skip_special=False) == text
    assert b"".join(map(smol.token_bytes, ids)) == text.encode()


@given(ids=st.lists(st.integers(0, 49151), max_size=30))
@settings(max_examples=300, deadline=None)
def test_any_ids_decode_as_the_published_tokenizer_decodes(smol: Tokenizer, published: Backend, ids: list[int]) -> None:
    assert smol.decode(ids, skip_special=False) == published.decode(ids, skip_special_tokens=False)
    assert smol.decode(ids) == published.decode(ids, skip_special_tokens=True)


def test_smollm2_facts(smol: Tokenizer) -> None:
    assert smol.vocab_size == 49152
    assert smol.bos_id == 1
    assert smol.eos_ids == {0, 2}
    assert smol.special_ids == set(range(17))
    assert (smol.bos_token, smol.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert smol.encode("Hello", True) == smol.encode("Hello", False)
    assert smol.token_bytes(49152) == b""


def test_building_takes_a_fraction_of_a_second(smol_metadata: dict[str, Any]) -> None:
    """Target 0.35 s; the bound leaves room for a busy machine."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        gguf_tokenizer(smol_metadata)
        times.append(time.perf_counter() - start)
    assert min(times) < 1.0


def test_special_tokens_are_skipped_or_shown(smol: Tokenizer) -> None:
    ids = smol.encode("a<|im_end|>b", False)
    assert smol.decode(ids) == "ab"
    assert smol.decode(ids, skip_special=False) == "a<|im_end|>b"


def test_a_lone_surrogate_is_the_sender_s_mistake(smol: Tokenizer) -> None:
    with pytest.raises(RequestError, match="surrogate"):
        smol.encode("\ud800", True)


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("llama-bpe", "12345 don'T\r\n x", ["123", "45", " don", "'T", "\r\n", " x"]),
        ("qwen2", "123 a\n\n b", ["1", "2", "3", " a", "\n\n", " b"]),
        ("gpt-2", "12345 don't  x", ["12345", " don", "'t", " ", " x"]),
        ("smollm", "12345  x", ["1", "2", "3", "4", "5", " ", " x"]),
        ("default", "1234+x", ["123", "4", "+", "x"]),
    ],
)
def test_each_named_rule_splits_as_published(name: str, text: str, pieces: list[str]) -> None:
    """A vocabulary of exactly the expected pieces that also holds every byte: a wrong cut shows as more tokens."""
    spelling = byte_spelling()
    words = ["".join(spelling[byte] for byte in piece.encode()) for piece in pieces]
    merges, tokens = [], list(spelling.values())
    for word in words:
        for end in range(2, len(word) + 1):
            merges.append(f"{word[: end - 1]} {word[end - 1]}")
            tokens.append(word[:end])
    tokens = list(dict.fromkeys(tokens))
    tokenizer = gguf_tokenizer(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": name,
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.merges": list(dict.fromkeys(merges)),
        }
    )
    assert [tokenizer.decode([token_id]) for token_id in tokenizer.encode(text, False)] == pieces


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tokenizer.ggml.model": "bert"}, "tokenizer.ggml.model is 'bert'"),
        ({"tokenizer.ggml.pre": "tekken"}, "tokenizer.ggml.pre is 'tekken'"),
        ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.tokens": ["a", 1]}, "tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.tokens": ["a" * 513]}, "513"),
        ({"tokenizer.ggml.merges": ["zz qq"]}, "tokenizer.ggml.merges"),
        ({"tokenizer.ggml.merges": ["nospace"]}, "tokenizer.ggml.merges"),
        ({"tokenizer.ggml.token_type": [1]}, "tokenizer.ggml.token_type"),
        ({"tokenizer.ggml.eos_token_id": 7}, "tokenizer.ggml.eos_token_id"),
        ({"tokenizer.ggml.bos_token_id": -1}, "tokenizer.ggml.bos_token_id"),
        ({"tokenizer.ggml.add_bos_token": "yes"}, "tokenizer.ggml.add_bos_token"),
    ],
)
def test_damaged_metadata_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["a", "b", "ab"],
        "tokenizer.ggml.merges": ["a b"],
    }
    gguf_tokenizer(metadata)
    with pytest.raises(CheckpointError) as caught:
        gguf_tokenizer(metadata | change)
    assert named in caught.value.message


def naive_sentence_pieces(metadata: dict[str, Any], text: str) -> list[int]:
    """SentencePiece's BPE from its definition: join the adjacent pair whose piece scores best, leftmost first."""
    pieces, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    scores = {p: s for p, s, t in zip(pieces, metadata["tokenizer.ggml.scores"], types, strict=True) if t == 1}
    ids = {piece: i for i, piece in enumerate(pieces)}
    parts = list(text.replace(" ", MARK))
    while True:
        joined = ["".join(pair) for pair in pairwise(parts)]
        best = max(joined, key=lambda piece: scores.get(piece, -1e9), default="")
        if best not in scores:
            break
        at = joined.index(best)
        parts[at : at + 2] = [best]
    found = []
    for part in parts:
        found.extend([ids[part]] if part in scores else [ids[f"<0x{byte:02X}>"] for byte in part.encode()])
    return found


@given(text=st.text(alphabet="Helo world,é🙂\n", max_size=30).filter(lambda text: "  " not in text))
@settings(max_examples=300, deadline=None)
def test_sentence_pieces_merge_by_score_and_fall_back_to_bytes(text: str) -> None:
    metadata = sentence_piece_metadata()
    tokenizer = gguf_tokenizer(metadata)
    assert tokenizer.encode(text, False) == naive_sentence_pieces(metadata, text)
    assert tokenizer.decode(tokenizer.encode(text, True)) == text


@given(text=st.text(alphabet="Helo wrd", max_size=20).filter(lambda text: "  " not in text))
@settings(max_examples=200, deadline=None)
def test_the_space_before_a_sentence_piece_text_is_added_and_taken_away(text: str) -> None:
    metadata = sentence_piece_metadata(add_space_prefix=True)
    tokenizer = gguf_tokenizer(metadata)
    assert tokenizer.decode(tokenizer.encode(text, True)) == text
    if text and not text.startswith(" "):
        assert tokenizer.encode(text, False) == naive_sentence_pieces(metadata, f" {text}")


def test_user_defined_pieces_match_the_text_as_written() -> None:
    tokenizer = gguf_tokenizer(sentence_piece_metadata())
    two_spaces = 3 + 256 + 2
    assert two_spaces in tokenizer.encode("Hello  Hello", False)
    assert tokenizer.token_bytes(two_spaces) == b"  "
    assert two_spaces not in tokenizer.special_ids


def test_b007_beginning_token_is_never_doubled() -> None:
    tokenizer = gguf_tokenizer(sentence_piece_metadata())
    hello = tokenizer.encode("Hello", True)
    assert hello[0] == 2
    assert hello.count(2) == 1
    assert tokenizer.encode("<bos>Hello", True) == hello
    assert tokenizer.encode("<bos>Hello", False) == hello
    assert tokenizer.eos_ids == {1, 4 + 256}


def write_folder(folder: Path, backend: Backend, config: dict[str, Any], generation: dict[str, Any]) -> None:
    (folder / "tokenizer.json").write_text(backend.to_str(), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    (folder / "generation_config.json").write_text(json.dumps(generation), "utf-8")


def test_a_folder_s_tokenizer_equals_the_file_s(smol: Tokenizer, published: Backend, tmp_path: Path) -> None:
    config = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "add_bos_token": False}
    write_folder(tmp_path, published, config, {"eos_token_id": [2, 5]})
    tokenizer = folder_tokenizer(tmp_path)
    for text in CORPUS:
        ids = tokenizer.encode(text, True)
        assert ids == smol.encode(text, True)
        assert tokenizer.decode(ids, skip_special=False) == text
    assert tokenizer.eos_ids == {0, 2, 5}
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.vocab_size) == (1, 2, 49152)
    assert tokenizer.special_ids == smol.special_ids


def test_a_folder_s_post_processor_says_that_a_beginning_is_added(published: Backend, tmp_path: Path) -> None:
    backend = Backend.from_str(published.to_str())
    backend.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", pair="$A $B", special_tokens=[("<|im_start|>", 1)]
    )
    write_folder(tmp_path, backend, {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}, {})
    tokenizer = folder_tokenizer(tmp_path)
    assert tokenizer.encode("Hi", True) == [1, *tokenizer.encode("Hi", False)]
    assert tokenizer.encode("<|im_start|>Hi", True) == tokenizer.encode("Hi", True)


def test_a_damaged_folder_is_refused_by_file_name(published: Backend, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing"):
        folder_tokenizer(tmp_path)
    write_folder(tmp_path, published, {"bos_token": "<nowhere>"}, {})
    with pytest.raises(CheckpointError, match="'<nowhere>'"):
        folder_tokenizer(tmp_path)
    write_folder(tmp_path, published, {}, {"eos_token_id": 10**9})
    with pytest.raises(CheckpointError, match="1000000000"):
        folder_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{", "utf-8")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is not JSON"):
        folder_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Martian"}}', "utf-8")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json can't be loaded"):
        folder_tokenizer(tmp_path)
