"""The block pool: who holds each KV block. It knows nothing of tokens.

A block is, exactly once, one of

    free        on the free list
    in use      held by at least one lease; its content may also be published to the radix tree
    cached      held by nobody, content published: evictable

and `num_free + num_in_use + num_cached` is the size of the pool after every call.
"""

from array import array

from paceline.core.request import BlockId


class BlockPool:
    """Reference counts over `num_blocks` blocks; every call is O(1)."""

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks > 0, "a pool needs at least one block"
        self.num_blocks = num_blocks
        self.num_cached = 0
        self._free = [BlockId(index) for index in range(num_blocks - 1, -1, -1)]
        self._holders = array("i", bytes(4 * num_blocks))
        self._is_published = bytearray(num_blocks)

    @property
    def num_free(self) -> int:
        """Blocks on the free list."""
        return len(self._free)

    @property
    def num_available(self) -> int:
        """Blocks a lease could get: free ones and evictable ones."""
        return len(self._free) + self.num_cached

    @property
    def num_in_use(self) -> int:
        """Blocks held by at least one lease."""
        return self.num_blocks - len(self._free) - self.num_cached

    def holders(self, block: BlockId) -> int:
        """How many leases hold the block."""
        return self._holders[block]

    def is_published(self, block: BlockId) -> bool:
        """Whether the radix tree knows the block's content."""
        return bool(self._is_published[block])

    def take(self) -> BlockId | None:
        """A free block, held once; None when the free list is empty."""
        if not self._free:
            return None
        block = self._free.pop()
        self._holders[block] = 1
        return block

    def hold(self, block: BlockId) -> None:
        """One more lease holds a published block."""
        assert self._is_published[block], f"block {block} is shared before its content is published"
        if self._holders[block] == 0:
            self.num_cached -= 1
        self._holders[block] += 1

    def drop(self, block: BlockId) -> None:
        """One lease lets go; the last one leaves the block cached if published, free otherwise."""
        assert self._holders[block] > 0, f"block {block} is dropped more often than held"
        self._holders[block] -= 1
        if self._holders[block] == 0:
            if self._is_published[block]:
                self.num_cached += 1
            else:
                self._free.append(block)

    def publish(self, block: BlockId) -> None:
        """The tree now knows the content of a held block."""
        assert self._holders[block] > 0, f"block {block} is published by nobody"
        assert not self._is_published[block], f"block {block} is published twice"
        self._is_published[block] = 1

    def reclaim(self, block: BlockId) -> None:
        """The tree forgot a cached block: it is free again."""
        assert self._is_published[block], f"block {block} is reclaimed but was never published"
        assert self._holders[block] == 0, f"block {block} is reclaimed while held"
        self._is_published[block] = 0
        self.num_cached -= 1
        self._free.append(block)

    def free_blocks(self) -> frozenset[BlockId]:
        """The free list as a set (for checks)."""
        return frozenset(self._free)
