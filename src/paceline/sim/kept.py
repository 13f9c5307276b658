"""The records of a simulation that are kept for its report: all, or, of a long run, one in 2, 4, 8 … requests.

A record holds the time of each of its tokens, so that memory would grow with the run. Once `MAX_CELLS` are held, every
second request is let go, and of the later ones as many. Which ones is decided by a hash of a request's number: not by
when it came, how it fared, or its turn in a session. The same run keeps the same ones.
"""

from paceline.bench.record import RequestRecord
from paceline.sim.mixed import mixed

# A cell is a token's time, 32 bytes; the rest of a record takes about RECORD_CELLS.
MAX_CELLS = 2**22
RECORD_CELLS = 12


class KeptRecords:
    """Takes records one by one. `one_in`: of so many requests one is in `records`; `last`: the one that ended last."""

    def __init__(self, max_cells: int = MAX_CELLS) -> None:
        self.records: list[RequestRecord] = []
        self.one_in = 1
        self.num_seen = 0
        self.last: RequestRecord | None = None
        self._max_cells = max_cells
        self._num_cells = 0

    def add(self, record: RequestRecord) -> None:
        """Keep the record, or not."""
        self.num_seen += 1
        if self.last is None or record.ended_s >= self.last.ended_s:
            self.last = record
        if not self._is_kept(record):
            return
        self.records.append(record)
        self._num_cells += cells(record)
        while self._num_cells > self._max_cells and len(self.records) > 1:
            self.one_in *= 2
            self.records = [kept for kept in self.records if self._is_kept(kept)]
            self._num_cells = sum(map(cells, self.records))

    @property
    def share(self) -> float:
        """Of the requests seen, how many are kept."""
        return len(self.records) / self.num_seen if self.num_seen else 1.0

    @property
    def warning(self) -> str | None:
        """What a reader has to know; None where all are kept."""
        if self.one_in == 1:
            return None
        return (
            f"{self.num_seen:,} requests were simulated, and one in {self.one_in} of them kept "
            f"({len(self.records):,}): percentiles, plots and the file are theirs; "
            "counts and rates are those of all"
        )

    def _is_kept(self, record: RequestRecord) -> bool:
        return self.one_in == 1 or mixed(record.index) % self.one_in == 0


def cells(record: RequestRecord) -> int:
    """What a record takes of the memory for them."""
    return RECORD_CELLS + len(record.event_times_s)
