"""A tokenizer from the files beside a safetensors checkpoint.

tokenizer.json is the library's own format and decides how text becomes ids; tokenizer_config.json and
generation_config.json say which ids begin and end.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from paceline.errors import CheckpointError
from paceline.text.tokenizer import Spelling, Tokenizer, Vocabulary, end_ids

MAX_FILE_BYTES = 128 << 20
# Ids past this are taken for damage: the piece table is as long as the largest id.
MAX_VOCABULARY = 1 << 22
MARKED_SPACE_DECODERS = frozenset({"Metaspace", "ByteFallback", "Replace"})


def folder_tokenizer(folder: Path) -> Tokenizer:
    """Build the tokenizer of a checkpoint folder. Raises CheckpointError naming the file at fault."""
    text = read_text(folder / "tokenizer.json")
    if text is None:
        raise CheckpointError(f"{folder / 'tokenizer.json'} is missing: a checkpoint folder needs it to read text")
    description = parse_object(text, folder / "tokenizer.json")
    try:
        backend = Backend.from_str(text)
    except Exception as error:
        raise CheckpointError(f"{folder / 'tokenizer.json'} can't be loaded: {error}") from None
    backend.no_truncation()
    backend.no_padding()
    config = read_object(folder / "tokenizer_config.json")
    generation = read_object(folder / "generation_config.json")
    return Tokenizer(backend, _vocabulary(backend, description, config, generation))


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty when there is no such file."""
    text = read_text(path)
    return {} if text is None else parse_object(text, path)


def read_text(path: Path) -> str | None:
    """A file's text, None when there is no such file. Raises CheckpointError for one too large or not UTF-8."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise CheckpointError(f"{path} has {path.stat().st_size} bytes; at most {MAX_FILE_BYTES} are read")
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} can't be read: {error}") from None


def parse_object(text: str, path: Path) -> dict[str, Any]:
    """Parse a JSON object. Raises CheckpointError for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value


def _vocabulary(
    backend: Backend, description: Mapping[str, Any], config: Mapping[str, Any], generation: Mapping[str, Any]
) -> Vocabulary:
    pieces = _pieces(backend)
    added = backend.get_added_tokens_decoder()
    bos_id, eos_id = (_named_id(backend, config, key) for key in ("bos_token", "eos_token"))
    # Checkpoints mark their turn ends as special or not; both kinds end a turn.
    special = {token_id for token_id, token in added.items() if token.special}
    named = _generation_ends(generation, len(pieces)) + ([] if eos_id is None else [eos_id])
    adds = _added_around(backend)
    decoders = list(_decoders(description.get("decoder")))
    return Vocabulary(
        pieces=pieces,
        spelling=_spelling(decoders),
        literal_ids=frozenset(added),
        special_ids=frozenset(special),
        eos_ids=end_ids(pieces, added, named),
        bos_id=bos_id,
        eos_id=eos_id,
        add_bos=_flag(config, "add_bos_token", bos_id in adds),
        add_eos=_flag(config, "add_eos_token", eos_id in adds),
        strips_first_space=any(_strips(decoder) for decoder in decoders),
    )


def _pieces(backend: Backend) -> tuple[str | None, ...]:
    """Pieces by id, added tokens included; None where no token has the id."""
    vocab = backend.get_vocab(with_added_tokens=True)
    largest = max(vocab.values(), default=-1)
    if largest >= MAX_VOCABULARY:
        raise CheckpointError(f"tokenizer.json has a token with id {largest}; ids below {MAX_VOCABULARY} are read")
    pieces: list[str | None] = [None] * (largest + 1)
    for piece, token_id in vocab.items():
        pieces[token_id] = piece
    return tuple(pieces)


def _decoders(description: Any) -> Iterator[Mapping[str, Any]]:
    """The steps of the `decoder` entry, sequences flattened one level as the library writes them."""
    if not isinstance(description, dict):
        return
    steps = description.get("decoders") if description.get("type") == "Sequence" else [description]
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, dict):
            yield step


def _spelling(decoders: list[Mapping[str, Any]]) -> Spelling:
    kinds = [str(decoder.get("type")) for decoder in decoders]
    if "ByteLevel" in kinds:
        return Spelling.BYTE_LEVEL
    if MARKED_SPACE_DECODERS.intersection(kinds):
        return Spelling.MARKED_SPACES
    raise CheckpointError(
        f"tokenizer.json has decoder {' + '.join(kinds) or 'none'}; "
        f"known are ByteLevel and {', '.join(sorted(MARKED_SPACE_DECODERS))}"
    )


def _strips(decoder: Mapping[str, Any]) -> bool:
    """Whether decoding takes away the space that encoding put before the text."""
    if decoder.get("type") == "Metaspace":
        return decoder.get("prepend_scheme", "always") != "never" and decoder.get("add_prefix_space") is not False
    return decoder.get("type") == "Strip" and decoder.get("start") == 1


def _added_around(backend: Backend) -> frozenset[int]:
    """Ids the tokenizer's own post-processor puts around a text."""
    bare = backend.encode("a", add_special_tokens=False).ids
    whole = backend.encode("a", add_special_tokens=True).ids
    return frozenset(whole).difference(bare)


def _named_id(backend: Backend, config: Mapping[str, Any], key: str) -> int | None:
    """The id of `bos_token` or `eos_token`: a string, or an object with `content`; null is none."""
    value = config.get(key)
    piece = value.get("content") if isinstance(value, dict) else value
    if piece is None:
        return None
    token_id = backend.token_to_id(piece) if isinstance(piece, str) else None
    if token_id is None:
        raise CheckpointError(f"tokenizer_config.json names {key} {piece!r}, which tokenizer.json does not have")
    return token_id


def _generation_ends(generation: Mapping[str, Any], vocab_size: int) -> list[int]:
    """`eos_token_id` of generation_config.json: an id, a list of ids, or nothing."""
    value = generation.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for token_id in ids:
        if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < vocab_size:
            raise CheckpointError(
                f"generation_config.json has eos_token_id {token_id!r}; it must be an id below {vocab_size}"
            )
    return ids


def _flag(config: Mapping[str, Any], key: str, default: bool) -> bool:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise CheckpointError(f"tokenizer_config.json has {key} {value!r}; it must be true or false")
    return value
