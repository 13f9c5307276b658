"""Reads what an engine wrote with `--record`: parts, each a header and the inputs of one scheduler.

A file may be damaged, huge or cut off in its last line (an engine that was killed): lines are bounded, an error names
the line, a torn last line ends the reading.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from paceline.engine.journal import FORMAT_VERSION, Header, Line
from paceline.errors import ConfigError
from paceline.sim.recording_checks import problem_of

# A prompt of a million tokens takes about 6 MB.
MAX_LINE_BYTES = 64 * 2**20


class RecordingError(ConfigError):
    """A recording can't be read."""


def read_recording(path: Path) -> Iterator[Line]:
    """The lines in their order; the first is a Header. Raises RecordingError, with the line's number."""
    decoder = msgspec.json.Decoder(Line)
    number = 0
    try:
        with path.open("rb") as file:
            for number, text in _numbered(path, file):
                line = _decode(path, number, text, decoder)
                if line is None:
                    return
                if number == 1 and not isinstance(line, Header):
                    raise RecordingError(f"recording {path}, line 1: a Header is expected, got {type(line).__name__}")
                if isinstance(line, Header) and line.version != FORMAT_VERSION:
                    raise RecordingError(
                        f"recording {path}, line {number}: version is {line.version}, "
                        f"this paceline reads {FORMAT_VERSION}"
                    )
                problem = problem_of(line)
                if problem is not None:
                    raise RecordingError(f"recording {path}, line {number}: {problem}")
                yield line
    except OSError as error:
        raise RecordingError(f"recording {path}: {error.strerror or error}") from error
    if number == 0:
        raise RecordingError(f"recording {path}: is empty; a server writes it with --record")


def _numbered(path: Path, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while text := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(text) > MAX_LINE_BYTES:
            raise RecordingError(f"recording {path}, line {number}: longer than {MAX_LINE_BYTES} bytes")
        yield number, text


def _decode(path: Path, number: int, text: bytes, decoder: "msgspec.json.Decoder[Line]") -> Line | None:
    """None for a torn last line."""
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if not text.endswith(b"\n") and number > 1:
            return None
        raise RecordingError(f"recording {path}, line {number}: {error}") from error
