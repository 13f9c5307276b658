"""Result files: the first line is the header, each further line one request with all its token times.

Any tool that reads JSON lines can read them; we read back exactly what we wrote. A file from elsewhere may be damaged
or huge: lines and their number are bounded, and an error names the line, the field and what to do.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from paceline.bench.record import RequestRecord
from paceline.bench.result import FORMAT_VERSION, Header, Result
from paceline.errors import ConfigError

# A request of 100,000 tokens takes about 4 MB.
MAX_LINE_BYTES = 32 * 2**20
MAX_REQUESTS = 2_000_000

Decoded = TypeVar("Decoded")


class ResultFileError(ConfigError):
    """A result file can't be read."""


def write_result(path: Path, result: Result) -> None:
    """Write the file whole, then give it its name: a run that dies leaves no half file under it. Raises
    ResultFileError.
    """
    partial = path.with_name(path.name + ".partial")
    encoder = msgspec.json.Encoder()
    try:
        with partial.open("wb") as file:
            file.write(encoder.encode(result.header) + b"\n")
            file.writelines(encoder.encode(record) + b"\n" for record in result.records)
        os.replace(partial, path)
    except OSError as error:
        raise ResultFileError(f"result file {path}: {error.strerror or error}") from error


def read_result(path: Path) -> Result:
    """Read a file that `write_result` wrote; raise ResultFileError, with the line's number, for anything else."""
    try:
        with path.open("rb") as file:
            lines = _lines(path, file)
            header = _read_header(path, next(lines, b""))
            decoder = msgspec.json.Decoder(RequestRecord)
            records = tuple(_decode(path, number, line, decoder) for number, line in enumerate(lines, start=2))
    except OSError as error:
        raise ResultFileError(f"result file {path}: {error.strerror or error}") from error
    _check(path, header, records)
    return Result(header, records)


def _lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise ResultFileError(f"result file {path}, line {number}: longer than {MAX_LINE_BYTES} bytes")
        if number > MAX_REQUESTS + 1:
            raise ResultFileError(f"result file {path}: more than {MAX_REQUESTS} requests; split the file by label")
        yield line


def _read_header(path: Path, line: bytes) -> Header:
    if not line:
        raise ResultFileError(f"result file {path}: is empty; a first line with the header is expected")
    header = _decode(path, 1, line, msgspec.json.Decoder(Header))
    if header.version != FORMAT_VERSION:
        raise ResultFileError(
            f"result file {path}, line 1: version is {header.version}, this paceline reads {FORMAT_VERSION}"
        )
    return header


def _decode(path: Path, number: int, line: bytes, decoder: "msgspec.json.Decoder[Decoded]") -> Decoded:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "" if line.endswith(b"\n") else " (the file ends inside this line: it was cut off; remove the line)"
        raise ResultFileError(f"result file {path}, line {number}: {error}{hint}") from error


def _check(path: Path, header: Header, records: tuple[RequestRecord, ...]) -> None:
    """What the types can't say: labels belong to points, a record's three event lists have one length."""
    labels = {point.label for point in header.points}
    for number, record in enumerate(records, start=2):
        if record.label not in labels:
            raise ResultFileError(f"result file {path}, line {number}: label {record.label!r} is no point of line 1")
        lengths = {len(record.event_times_s), len(record.event_tokens), len(record.read_sizes)}
        if len(lengths) > 1:
            raise ResultFileError(
                f"result file {path}, line {number}: event_times_s, event_tokens and read_sizes differ in length"
            )
    if header.knee is not None and header.knee not in labels:
        raise ResultFileError(f"result file {path}, line 1: knee {header.knee!r} is no point")
