"""The two files of a batch: the input, read as a stream, twice; the output, which only ever grows.

What makes a batch survive kill -9: an answer counts once its line, newline included, is on the disk. A line that
was cut off is taken away at the next start, and its request asked again; every other line is an answer that stands.
"""

import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from paceline.errors import ConfigError
from paceline.offline.batch_ledger import Ledger
from paceline.offline.batch_lines import MAX_LINE_BYTES, AnswerName, BadLine, BatchRequest, key_of, parse_line

SKIP_BYTES = 2**20
ANSWER_START = b'{"id":"batch_'


@dataclass(frozen=True, slots=True)
class Contents:
    """What the first reading of the input found. `model`: the one its first request names."""

    num_lines: int
    model: str | None


def read_requests(path: Path) -> Iterator[BatchRequest | BadLine]:
    """Every line that is not blank, in order. Raises ConfigError when the file can't be read."""
    try:
        with path.open("rb") as file:
            number = 0
            while data := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                ends_here = len(data) <= MAX_LINE_BYTES or data.endswith(b"\n")
                while not ends_here:
                    rest = file.readline(SKIP_BYTES)
                    ends_here = not rest or rest.endswith(b"\n")
                if data.strip():
                    yield parse_line(number, data)
    except OSError as error:
        raise ConfigError(f"batch input {path}: {error.strerror or error}") from None


def read_contents(path: Path, ledger: Ledger) -> Contents:
    """Enter every custom_id into the ledger. Raises ConfigError for an id that two lines have."""
    num_lines, model = 0, None
    for line in read_requests(path):
        num_lines += 1
        if (earlier := ledger.add(line.key, line.number)) is not None:
            raise ConfigError(
                f"batch input {path}: custom_id {str(line.custom_id)[:80]!r} of line {line.number} is that of line "
                f"{earlier} too; answers could not be told apart, give each line its own"
            )
        if model is None and isinstance(line, BatchRequest):
            model = line.model
    return Contents(num_lines, model)


class OutputFile:
    """The output, open for appending and locked against a second batch; created if it isn't there. `resume` first."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when the file can't be written, or another batch writes it."""
        self._path = path
        self._appending = threading.Lock()
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sync_folder(path.absolute().parent)
        except BlockingIOError:
            raise ConfigError(f"batch output {path}: another batch is writing it; wait for that one") from None
        except OSError as error:
            raise ConfigError(f"batch output {path}: {error.strerror or error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._appending:
            os.close(self._descriptor)

    def resume(self, ledger: Ledger) -> int:
        """Mark the lines that have their answer here, and cut a torn last line; how many have. Raises ConfigError for
        a line that isn't an answer to this input: nothing has been changed then.
        """
        num_answered = 0
        with self._path.open("rb") as file:
            for place, data in enumerate(file, start=1):
                if data.endswith(b"\n"):
                    num_answered += self._mark(ledger, place, data)
                elif data.startswith(ANSWER_START[: len(data)]):
                    self._cut_torn_line()
                else:
                    raise self._refusal(place, "is no answer of a batch")
        return num_answered

    def _mark(self, ledger: Ledger, place: int, data: bytes) -> bool:
        try:
            name = msgspec.json.decode(data, type=AnswerName)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._refusal(place, f"is no answer of a batch: {error}") from None
        number = ledger.line_of(key_of(name))
        if number is not None:
            return ledger.mark_answered(number)
        if name.custom_id is not None:
            raise self._refusal(place, f"answers {name.custom_id[:80]!r}, which the input does not ask")
        return False  # a line that had no custom_id and was corrected since: it is asked as what it became

    def _refusal(self, place: int, what: str) -> ConfigError:
        return ConfigError(f"batch output {self._path}: line {place} {what}; give another output file")

    def append(self, lines: Sequence[bytes]) -> None:
        """Write whole lines and wait until the disk has them. Raises ConfigError when it can't; safe from a thread."""
        data = memoryview(b"".join(lines))
        with self._appending:
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
                os.fsync(self._descriptor)
            except OSError as error:
                self._cut_torn_line()  # nothing may be appended to it
                raise ConfigError(
                    f"batch output {self._path}: {error.strerror or error}; what is written stands, run again to go on"
                ) from None

    def _cut_torn_line(self) -> None:
        """Take away what follows the last newline."""
        size = end = os.lseek(self._descriptor, 0, os.SEEK_END)
        while end:
            start = max(0, end - SKIP_BYTES)
            place = os.pread(self._descriptor, end - start, start).rfind(b"\n")
            if place >= 0:
                end = start + place + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._descriptor, end)
            os.fsync(self._descriptor)


def sync_folder(folder: Path) -> None:
    """Make a new file's name durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
