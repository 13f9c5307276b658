"""The block pool against a model that keeps a holder count and a flag for every block."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from paceline.core.blocks import BlockPool
from paceline.core.request import BlockId

MOVES = st.lists(
    st.tuples(st.sampled_from(("take", "hold", "drop", "publish", "reclaim")), st.integers(0, 5)), max_size=80
)


def _is_allowed(move: str, holders: int, is_published: bool) -> bool:
    if move == "hold":
        return is_published
    if move == "drop":
        return holders > 0
    if move == "publish":
        return holders > 0 and not is_published
    return is_published and holders == 0


@given(num_blocks=st.integers(1, 6), moves=MOVES)
def test_every_block_is_free_in_use_or_cached_whatever_is_called(num_blocks: int, moves: list[tuple[str, int]]) -> None:
    pool = BlockPool(num_blocks)
    holders, published = [0] * num_blocks, [False] * num_blocks
    for move, index in moves:
        block = BlockId(index % num_blocks)
        if move == "take":
            taken = pool.take()
            assert (taken is None) == all(h > 0 or p for h, p in zip(holders, published, strict=True))
            if taken is not None:
                assert holders[taken] == 0, "a held block was taken"
                assert not published[taken], "a cached block was taken"
                holders[taken] = 1
        elif not _is_allowed(move, holders[block], published[block]):
            with pytest.raises(AssertionError, match=f"block {block} is"):
                getattr(pool, move)(block)
        else:
            getattr(pool, move)(block)
            holders[block] += {"hold": 1, "drop": -1}.get(move, 0)
            published[block] = {"publish": True, "reclaim": False}.get(move, published[block])
        kinds = list(zip(holders, published, strict=True))
        assert pool.num_in_use == sum(h > 0 for h, _ in kinds)
        assert pool.num_cached == sum(h == 0 and p for h, p in kinds)
        assert pool.num_free == len(pool.free_blocks()) == sum(h == 0 and not p for h, p in kinds)
        assert pool.num_available == pool.num_free + pool.num_cached
        assert [pool.holders(BlockId(i)) for i in range(num_blocks)] == holders
        assert [pool.is_published(BlockId(i)) for i in range(num_blocks)] == published
