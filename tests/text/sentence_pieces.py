"""Small SentencePiece vocabularies made for tests."""

from typing import Any

MARK = "\N{LOWER ONE EIGHTH BLOCK}"


def sentence_piece_metadata(add_space_prefix: bool = False) -> dict[str, Any]:
    """A vocabulary in Gemma's shape: pad 0, eos 1, bos 2, unk 3, all bytes, two spaces as one token, scored pieces."""
    pieces = [
        "<pad>",
        "<eos>",
        "<bos>",
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "<end_of_turn>",
        MARK * 2,
    ]
    types = [3, 3, 3, 2, *[6] * 256, 3, 4]
    scores = [0.0] * len(pieces)
    words = [
        "lo",
        "Hel",
        "He",
        "Hello",
        f"{MARK}w",
        "or",
        f"{MARK}wor",
        f"{MARK}world",
        "ld",
        "l",
        "el",
        f"{MARK}He",
        "llo",
    ]
    letters = [MARK, *"Heloworldé,.!\n"]
    for rank, piece in enumerate(dict.fromkeys([*words, *letters])):
        if piece not in pieces:
            pieces.append(piece)
            types.append(1)
            scores.append(-float(rank))
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.add_space_prefix": add_space_prefix,
    }
