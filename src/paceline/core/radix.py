"""The radix tree: which token sequences have their KV in which blocks. It holds no references; the KV manager does.

One node is one block. A node's key is its tokens as bytes (4 a token): looking up a block is one dictionary access,
comparing tokens is a memory compare, and equality of *content* decides; the hash (keyed per process) only finds the
bucket. Only a leaf may be shorter than a block. Namespaces have separate roots and never share.

    namespace b""     root ── [t0…t15]→7 ── [t16…t31]→2 ── [t32…t38]→9   (partial leaf of 7 tokens)
                                         └─ [u16…u31]→4

`closest` finds the child that shares the most leading tokens with a key: in a sorted list the longest common prefix
is always attained by a neighbour of the insertion point, so it costs a bisection, not a scan.

Eviction takes the least recently used leaf from a heap of candidates; stale entries are skipped when they surface.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from paceline.core.request import BlockId

TOKEN_BYTES = 4


def block_key(token_bytes: bytes) -> bytes:
    """The dictionary key of a block's tokens: the tokens themselves."""
    return token_bytes


def common_tokens(a: bytes, b: bytes) -> int:
    """Number of leading tokens that a and b share."""
    size = min(len(a), len(b))
    if a[:size] == b[:size]:
        return size // TOKEN_BYTES
    low, high = 0, size  # a[:low] == b[:low] and a[:high] != b[:high]
    while high - low > 64:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    difference = int.from_bytes(a[low:high], "little") ^ int.from_bytes(b[low:high], "little")
    first_bit = (difference & -difference).bit_length() - 1
    return (low + first_bit // 8) // TOKEN_BYTES


@dataclass(slots=True, eq=False)
class Node:
    """One published block; `tick` is the last logical time a lease used it. A root's key is its namespace."""

    parent: "Node | None"
    key: bytes
    block: BlockId
    tick: int = 0
    children: "dict[bytes, Node]" = field(default_factory=dict)
    sorted_keys: list[bytes] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens whose KV the block holds."""
        return len(self.key) // TOKEN_BYTES


class RadixTree:
    """Nodes by content. Costs O(1) dictionary accesses a block of the key."""

    def __init__(self, block_size: int) -> None:
        self._block_bytes = block_size * TOKEN_BYTES
        self._roots: dict[bytes, Node] = {}
        self._candidates: list[tuple[int, int, Node]] = []
        self._serial = 0
        self.num_nodes = 0

    def root(self, namespace: bytes) -> Node:
        """The root of a namespace, made on first use; it goes with its last child, so don't keep it."""
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = Node(None, namespace, BlockId(-1))
        return root

    def child(self, parent: Node, tokens: bytes) -> Node | None:
        """The child with exactly these tokens."""
        return parent.children.get(block_key(tokens))

    def walk(self, namespace: bytes, tokens: bytes) -> tuple[list[Node], Node | None, int]:
        """The longest cached prefix of `tokens`: whole nodes, then the node that shares the most of the next block,
        and how many tokens of it.
        """
        path: list[Node] = []
        node = self._roots.get(namespace)
        start = 0
        while node is not None and start + self._block_bytes <= len(tokens):
            child = self.child(node, tokens[start : start + self._block_bytes])
            if child is None:
                break
            path.append(child)
            node, start = child, start + self._block_bytes
        return path, *self.closest(node, tokens[start : start + self._block_bytes])

    def closest(self, parent: Node | None, tokens: bytes) -> tuple[Node | None, int]:
        """The child sharing the most leading tokens with `tokens`, and how many; (None, 0) if none shares any."""
        if parent is None or not tokens:
            return None, 0
        index = bisect_left(parent.sorted_keys, tokens)
        best: tuple[Node | None, int] = (None, 0)
        for key in parent.sorted_keys[max(index - 1, 0) : index + 1]:
            shared = common_tokens(key, tokens)
            if shared > best[1]:
                best = (parent.children[block_key(key)], shared)
        return best

    def insert(self, parent: Node, tokens: bytes, block: BlockId) -> Node:
        """A new child of `parent`; it must not exist yet."""
        key = block_key(tokens)
        assert key not in parent.children, "a block's content is inserted twice"
        assert parent.parent is None or len(parent.key) == self._block_bytes, "a partial leaf may not get children"
        node = parent.children[key] = Node(parent, key, block)
        insort(parent.sorted_keys, key)
        self.num_nodes += 1
        return node

    def offer(self, node: Node) -> None:
        """A leaf that nobody holds may be evicted, ranked by its tick."""
        self._serial += 1
        heappush(self._candidates, (node.tick, self._serial, node))
        if len(self._candidates) > 2 * self.num_nodes + 64:
            self._candidates = [entry for entry in self._candidates if self._is_current(entry)]
            heapify(self._candidates)

    def evict(self, is_held: Callable[[BlockId], bool]) -> BlockId | None:
        """Forget the least recently used leaf that nobody holds; its parent becomes a candidate. None if there is
        none.
        """
        while self._candidates:
            entry = heappop(self._candidates)
            node = entry[2]
            if not self._is_current(entry) or is_held(node.block):
                continue
            parent = node.parent
            assert parent is not None
            self._remove(node, parent)
            if parent.parent is not None and not parent.children and not is_held(parent.block):
                self.offer(parent)
            return node.block
        return None

    def nodes(self) -> list[Node]:
        """Every node (for checks; walks the tree)."""
        found: list[Node] = []
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if node.parent is not None:
                found.append(node)
        return found

    def _is_current(self, entry: tuple[int, int, Node]) -> bool:
        tick, _, node = entry
        return node.parent is not None and not node.children and node.tick == tick

    def _remove(self, node: Node, parent: Node) -> None:
        del parent.children[node.key]
        del parent.sorted_keys[bisect_left(parent.sorted_keys, node.key)]
        node.parent = None
        self.num_nodes -= 1
        if not parent.children and parent.parent is None:
            del self._roots[parent.key]
