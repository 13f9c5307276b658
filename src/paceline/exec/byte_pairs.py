"""Text to token ids from the tokens' bytes alone, for the texts that a grammar forces.

Byte pair encoding (Sennrich et al. 2016) with the order of ids as the order of merges, as tiktoken does: vocabularies
number their tokens in the order in which they were merged. A text is first cut where tokenizers of all families cut it:
before a space, and between letters, digits and punctuation. Whatever comes out spells the text; where a model's own
tokenizer would cut it otherwise, its tokens are merely not the ones the model saw most in training.
"""

import re
from functools import lru_cache
from itertools import pairwise

from paceline.core.spellings import Spellings

PIECE = re.compile(rb" ?[A-Za-z\x80-\xff]{1,32}| ?[0-9]{1,32}| ?[^A-Za-z0-9\x80-\xff ]{1,32}| +")
MAX_CACHED_PIECES = 8192
NO_TOKEN = 1 << 31


class BytePairs:
    """One vocabulary's merges. Thread-safe."""

    def __init__(self, spellings: Spellings) -> None:
        special = frozenset(spellings.special_ids)
        self._ids = {
            spelling: token_id
            for token_id, spelling in enumerate(spellings.token_bytes)
            if spelling and token_id not in special
        }
        self._encode_piece = lru_cache(MAX_CACHED_PIECES)(self._merge)

    def encode(self, text: bytes) -> list[int]:
        """Token ids that spell the text, but for bytes that no token has."""
        return [token_id for piece in PIECE.findall(text) for token_id in self._encode_piece(piece)]

    def _merge(self, piece: bytes) -> tuple[int, ...]:
        ids, parts = self._ids, [piece[index : index + 1] for index in range(len(piece))]
        # ranks[i]: the id that parts i and i + 1 merge to.
        ranks = [ids.get(a + b, NO_TOKEN) for a, b in pairwise(parts)]
        while ranks and (lowest := min(ranks)) < NO_TOKEN:
            index = ranks.index(lowest)
            parts[index : index + 2] = [parts[index] + parts[index + 1]]
            del ranks[index]
            for left in (index - 1, index):
                if 0 <= left < len(ranks):
                    ranks[left] = ids.get(parts[left] + parts[left + 1], NO_TOKEN)
        return tuple(ids[part] for part in parts if part in ids)
