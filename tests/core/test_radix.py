"""The radix tree against scans: which child is closest, which prefix is longest, what is evicted next."""

import hypothesis.strategies as st
from hypothesis import given

from paceline.core.kv import KvManager
from paceline.core.radix import RadixTree, common_tokens
from paceline.core.request import BlockId, token_array

TOKENS = st.lists(st.sampled_from((0, 1, 2, 255, 256, 65_535, 1 << 24)), max_size=6)
TEXTS = st.lists(st.integers(0, 1), max_size=9)


def _naive_common(a: list[int], b: list[int]) -> int:
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count


@given(
    shared=st.lists(st.integers(0, 1 << 30), max_size=80),
    a=st.lists(st.integers(0, 300), max_size=40),
    b=st.lists(st.integers(0, 300), max_size=40),
)
def test_common_tokens_counts_whole_tokens(shared: list[int], a: list[int], b: list[int]) -> None:
    left, right = token_array(shared + a), token_array(shared + b)
    assert common_tokens(left.tobytes(), right.tobytes()) == _naive_common(list(left), list(right))


@given(children=st.lists(TOKENS.filter(bool), max_size=12, unique_by=tuple), wanted=TOKENS)
def test_the_closest_child_shares_as_much_as_any(children: list[list[int]], wanted: list[int]) -> None:
    tree = RadixTree(block_size=6)
    root = tree.root(b"")
    for index, tokens in enumerate(children):
        tree.insert(root, token_array(tokens).tobytes(), BlockId(index))
    found, shared = tree.closest(root, token_array(wanted).tobytes())
    best = max((_naive_common(tokens, wanted) for tokens in children), default=0)
    assert shared == best
    assert (found is None) == (best == 0)
    if found is not None:
        assert _naive_common(list(token_array(children[found.block])), wanted) == best


@given(block_size=st.integers(1, 4), texts=st.lists(TEXTS, max_size=10), wanted=TEXTS, limit=st.integers(0, 9))
def test_a_match_is_the_longest_prefix_ever_closed(
    block_size: int, texts: list[list[int]], wanted: list[int], limit: int
) -> None:
    kv = KvManager(128, block_size)
    for text in texts:
        tokens = token_array(text)
        lease = kv.open(kv.match(b"", tokens, len(tokens))).lease
        kv.grow(lease, len(tokens))
        kv.close(lease, tokens, len(tokens))
        kv.check([])
    match = kv.match(b"", token_array(wanted), limit)
    longest = max((_naive_common(text, wanted[:limit]) for text in texts), default=0)
    assert len(match.path) * block_size + match.num_copied == longest
    assert kv.match(b"other", token_array(wanted), limit).path == ()
    num_needed = len({tuple(text[:end]) for text in texts for end in range(block_size, len(text) + 1, block_size)})
    assert kv.pool.num_cached >= num_needed, "a full block was lost"
    assert kv.pool.num_cached <= num_needed + len(texts), "a full block is kept twice"


@given(order=st.permutations(range(6)), touched=st.integers(0, 5))
def test_the_least_recently_used_leaf_is_evicted_first(order: list[int], touched: int) -> None:
    kv = KvManager(6, 2)
    for text in order:
        lease = kv.open(kv.match(b"", token_array([text, text]), 1)).lease
        kv.grow(lease, 2)
        kv.close(lease, token_array([text, text]), 2)
    lease = kv.open(kv.match(b"", token_array([touched, touched, 9]), 2)).lease
    kv.close(lease, token_array([touched, touched, 9]), 2)
    expected = [text for text in order if text != touched] + [touched]
    newcomer, evicted = kv.open(kv.match(b"", token_array([7]), 0)).lease, list[int]()
    present = set(order)
    for num_blocks in range(1, 7):
        assert kv.grow(newcomer, 2 * num_blocks)
        left = {text for text in present if kv.match(b"", token_array([text, text]), 2).path}
        evicted += present - left
        present = left
        kv.check([newcomer])
    assert evicted == expected


def test_eviction_takes_leaves_before_the_prefix_they_stand_on() -> None:
    kv = KvManager(4, 2)
    long, newcomer = token_array([1, 2, 3, 4, 5, 6, 7, 8]), token_array([9] * 8)
    lease = kv.open(kv.match(b"", long, 8)).lease
    kv.grow(lease, 8)
    kv.close(lease, long, 8)
    lease = kv.open(kv.match(b"", newcomer, 7)).lease
    for num_left in (3, 2, 1, 0):
        kv.grow(lease, 8 - 2 * num_left)
        assert len(kv.match(b"", long, 8).path) == num_left
