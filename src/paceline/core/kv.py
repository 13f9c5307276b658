"""The KV manager: leases over the block pool, and the prefix cache that outlives them. Only writer of both.

A lease is proof of holding blocks: the sequence's block table so far. Its first `num_published` blocks are nodes of
the radix tree, from the root to `tip`; the rest are private. Blocks become shareable as soon as they are full of
*computed* tokens (`commit`), and what remains at the end, the partial tail included, when the lease closes.

Invariants (checked by `check`, after every operation in tests):
  - each block is free, cached or in use, exactly once, and the counts add up;
  - a held node's ancestors are held, hence a leaf that nobody holds always exists when anything is evictable;
  - a node's block is published, and no two nodes have the same block.

Worked example, block size 4. Sequence A knows tokens 1..10, computed: blocks [7 8 9], 7 and 8 published.
A closes: 9 becomes a partial leaf [9 10]. B asks for 1..8 9 11: it shares 7 and 8, and copies the first slot of 9.
"""

from array import array
from dataclasses import dataclass, field

from paceline.core.blocks import BlockPool
from paceline.core.plan import BlockCopy
from paceline.core.radix import TOKEN_BYTES, Node, RadixTree
from paceline.core.request import BlockId


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix: whole shared blocks, then `num_copied` tokens of one partly matching block."""

    namespace: bytes
    path: tuple[Node, ...]
    partial: Node | None
    num_copied: int


@dataclass(slots=True, eq=False)
class Lease:
    """Blocks held for one sequence. `is_attached`: its blocks are still entering the tree as they fill; a sequence
    that finds its content already there goes on privately until it closes."""

    namespace: bytes
    blocks: list[BlockId]
    tip: Node | None = None
    num_published: int = 0
    is_attached: bool = True


@dataclass(frozen=True, slots=True)
class Opening:
    """A fresh lease, its cached tokens, and the copy that makes the last of them true."""

    lease: Lease
    num_cached_tokens: int
    copies: tuple[BlockCopy, ...] = field(default=())


class KvManager:
    """Block tables for sequences and the prefix cache over one pool of `num_blocks` blocks of `block_size` tokens."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.pool = BlockPool(num_blocks)
        self.block_size = block_size
        self.num_evictions = 0
        self._tree = RadixTree(block_size)
        self._tick = 0

    @property
    def pool_tokens(self) -> int:
        """Tokens the empty pool can hold."""
        return self.pool.num_blocks * self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def match(self, namespace: bytes, tokens: "array[int]", limit: int) -> Match:
        """The longest cached prefix of tokens[:limit], to the token. Changes nothing."""
        path, partial, num_copied = self._tree.walk(namespace, tokens[:limit].tobytes())
        return Match(namespace, tuple(path), partial, num_copied)

    def cost(self, match: Match, num_tokens: int) -> int:
        """Blocks by which `pool.num_available` falls when a sequence of `num_tokens` opens with `match` and is
        computed.
        """
        unheld = sum(1 for node in match.path if self.pool.holders(node.block) == 0)
        return self.blocks_for(num_tokens) - len(match.path) + unheld

    def open(self, match: Match) -> Opening:
        """A lease on the matched prefix. The partly matched block is copied if a block for the copy is available."""
        self._tick += 1
        for node in match.path:
            self.pool.hold(node.block)
            node.tick = self._tick
        tip = match.path[-1] if match.path else None
        lease = Lease(match.namespace, [node.block for node in match.path], tip, len(match.path))
        num_cached = len(match.path) * self.block_size
        target = self._copy_target(match.partial)
        if match.partial is None or target is None:
            return Opening(lease, num_cached)
        lease.blocks.append(target)
        copy = BlockCopy(match.partial.block, target, match.num_copied)
        return Opening(lease, num_cached + match.num_copied, (copy,))

    def grow(self, lease: Lease, num_tokens: int) -> tuple[BlockId, ...] | None:
        """Extend the lease to hold `num_tokens` tokens: the new blocks, or None (and no change) if too few are
        available.
        """
        missing = -(-num_tokens // self.block_size) - len(lease.blocks)
        if missing <= 0:
            return ()
        if missing > self.pool.num_available:
            return None
        added = tuple(self._take() for _ in range(missing))
        lease.blocks.extend(added)
        return added

    def commit(self, lease: Lease, tokens: "array[int]", num_computed: int) -> None:
        """Publish the blocks that are full of computed tokens."""
        size = self.block_size
        while lease.is_attached and (lease.num_published + 1) * size <= num_computed:
            start = lease.num_published * size
            key = tokens[start : start + size].tobytes()
            parent = lease.tip or self._tree.root(lease.namespace)
            if self._tree.child(parent, key) is not None:
                lease.is_attached = False
            else:
                lease.tip = self._publish(parent, key, lease.blocks[lease.num_published])
                lease.num_published += 1

    def close(self, lease: Lease, tokens: "array[int]", num_computed: int) -> None:
        """Let go of every block. Computed content stays cached (the partial tail too); duplicates and the rest become
        free.
        """
        self._tick += 1
        tip = self._publish_rest(lease, tokens, num_computed)
        for block in lease.blocks:
            self.pool.drop(block)
        node = tip
        while node is not None and node.parent is not None:
            node.tick = self._tick
            node = node.parent
        if tip is not None:
            self._offer_if_idle(tip)
        lease.blocks.clear()
        lease.tip, lease.num_published, lease.is_attached = None, 0, False

    def num_blocks_freed_by(self, lease: Lease) -> int:
        """Blocks that closing the lease would make available."""
        return sum(1 for block in lease.blocks if self.pool.holders(block) == 1)

    def check(self, leases: list[Lease]) -> None:
        """Assert the invariants above, given every open lease. Walks everything: for tests."""
        nodes = self._tree.nodes()
        held: dict[BlockId, int] = {}
        for lease in leases:
            for block in lease.blocks:
                held[block] = held.get(block, 0) + 1
        published = {node.block for node in nodes}
        free = self.pool.free_blocks()
        assert len(published) == len(nodes) == self._tree.num_nodes, "two nodes share a block"
        assert len(free) == self.pool.num_free, "a block is free twice"
        assert not free & published, "a free block is published"
        assert not free & held.keys(), "a free block is held"
        assert len(free | published | held.keys()) == self.pool.num_blocks, "a block is lost"
        assert self.pool.num_cached == len(published - held.keys()), "the count of cached blocks is off"
        for index in range(self.pool.num_blocks):
            block = BlockId(index)
            assert self.pool.holders(block) == held.get(block, 0), f"block {block}: holders are miscounted"
            assert self.pool.is_published(block) == (block in published), f"block {block}: published flag is off"
        for node in nodes:
            parent = node.parent
            if parent is not None and parent.parent is not None and node.block in held:
                assert parent.block in held, "a held node's parent is not held"

    def _take(self) -> BlockId:
        block = self.pool.take()
        if block is None:
            victim = self._tree.evict(self._is_held)
            assert victim is not None, "blocks are counted as evictable but no leaf is"
            self.num_evictions += 1
            self.pool.reclaim(victim)
            block = self.pool.take()
            assert block is not None
        return block

    def _copy_target(self, source: Node | None) -> BlockId | None:
        """A block to copy `source` into. The source must outlive the taking: its content is read when the plan runs."""
        if source is None:
            return None
        self.pool.hold(source.block)
        target = self._take() if self.pool.num_available else None
        self.pool.drop(source.block)
        source.tick = self._tick
        self._offer_if_idle(source)
        return target

    def _publish(self, parent: Node, key: bytes, block: BlockId) -> Node:
        node = self._tree.insert(parent, key, block)
        node.tick = self._tick
        self.pool.publish(block)
        return node

    def _publish_rest(self, lease: Lease, tokens: "array[int]", num_computed: int) -> Node | None:
        """Walk on from the tip, publishing what the tree does not have; the deepest node reached."""
        size, tip = self.block_size, lease.tip
        for index in range(lease.num_published, self.blocks_for(num_computed)):
            key = tokens[index * size : min((index + 1) * size, num_computed)].tobytes()
            parent = tip or self._tree.root(lease.namespace)
            known, shared = self._tree.closest(parent, key)
            if known is None or shared * TOKEN_BYTES < len(key):
                tip = self._publish(parent, key, lease.blocks[index])
            elif known.num_tokens * TOKEN_BYTES == len(key):
                tip = known
            else:
                known.tick = self._tick
                self._offer_if_idle(known)
                break
        return tip

    def _offer_if_idle(self, node: Node) -> None:
        if not node.children and self.pool.holders(node.block) == 0:
            self._tree.offer(node)

    def _is_held(self, block: BlockId) -> bool:
        return self.pool.holders(block) > 0
