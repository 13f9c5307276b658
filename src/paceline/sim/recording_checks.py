"""What a line of a recording must hold before a scheduler sees it.

A recording is a file from outside, and a scheduler trusts its callers: a size that asks for all memory, a negative
time, a token that is none must be found here, and named.
"""

from collections.abc import Iterator

from paceline.engine.journal import Header, Line, Step
from paceline.engine.messages import Submit

TOKEN_BYTES = 4
MAX_TOKEN_ID = 2**31 - 1
# Of a pool, which lists its free blocks; 2^24 blocks of 16 tokens of the smallest model we know are 6 TB.
MAX_BLOCKS = 2**24
MAX_ROWS = 2**16
MAX_TOKENS = 2**40
MAX_TIME_S = 1e12
HEADER_LIMITS = {
    "max_num_seqs": MAX_ROWS,
    "max_step_tokens": MAX_TOKENS,
    "max_context": MAX_TOKENS,
    "num_blocks": MAX_BLOCKS,
    "block_size": 2**12,
}


def problem_of(line: Line) -> str | None:
    """What is wrong with a line: the field, what it may be and what it is; None where nothing is."""
    return next(_problems(line), None)


def _problems(line: Line) -> Iterator[str]:
    match line:
        case Header():
            for name, most in HEADER_LIMITS.items():
                yield from _outside(name, getattr(line, name), 1, most)
        case Submit():
            yield from _of_submit(line)
        case Step():
            yield from _of_step(line)


def _of_submit(line: Submit) -> Iterator[str]:
    if not line.prompt or len(line.prompt) % TOKEN_BYTES:
        yield f"prompt must be whole tokens of {TOKEN_BYTES} bytes, one at least, got {len(line.prompt)} bytes"
    yield from _outside("stop.max_tokens", line.stop.max_tokens, 0, MAX_TOKENS)
    yield from _outside("num_sequences", line.num_sequences, 1, MAX_ROWS)
    yield from _outside("arrival_s", line.arrival_s, 0, MAX_TIME_S)


def _of_step(line: Step) -> Iterator[str]:
    yield from _outside("ready_s", line.ready_s, 0, MAX_TIME_S)
    yield from _outside("duration_s", line.duration_s, 0, MAX_TIME_S)
    for token in (token for row in line.sampled for token in row if not 0 <= token <= MAX_TOKEN_ID):
        yield f"sampled must hold token ids, 0 to {MAX_TOKEN_ID}, got {token}"
    num_rows = len(line.sampled)
    for name, position in [("ends", end[0]) for end in line.ends] + [("scores", score[0]) for score in line.scores]:
        if not 0 <= position < num_rows:
            yield f"{name} must be of one of the {num_rows} rows in sampled, counted from 0, got row {position}"
    for _, number in line.scores:
        yield from _outside("scores", number, 0, MAX_BLOCKS)


def _outside(name: str, value: float, least: int, most: float) -> Iterator[str]:
    if not least <= value <= most:
        yield f"{name} must be {least} to {most:.15g}, got {value!r}"
