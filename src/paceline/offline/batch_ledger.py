"""Which custom_id stands in which line of the input, and which lines have been answered.

Kept in an unnamed SQLite database: small ones stay in memory, large ones go to a file that vanishes with the process,
so that a file of any length needs about the same memory and ids are compared exactly. A line's key is its custom_id, or
bytes that name the line where it has none: a line that was corrected between two runs is another one.
"""

import sqlite3

LineKey = str | bytes

TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE asked (key NOT NULL PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE answered (number INTEGER PRIMARY KEY);
"""


class Ledger:
    """Line numbers count from 1. Not for use from several threads."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(TABLES)

    def add(self, key: LineKey, number: int) -> int | None:
        """Note that a line has this key; the number of the line that had it before, if any."""
        try:
            self._database.execute("INSERT INTO asked VALUES (?, ?)", (key, number))
        except sqlite3.IntegrityError:
            return self.line_of(key)
        return None

    def line_of(self, key: LineKey) -> int | None:
        """The line with this key."""
        row = self._database.execute("SELECT number FROM asked WHERE key = ?", (key,)).fetchone()
        return None if row is None else int(row[0])

    def mark_answered(self, number: int) -> bool:
        """Note that a line has its answer; False when it had one already."""
        return self._database.execute("INSERT OR IGNORE INTO answered VALUES (?)", (number,)).rowcount == 1

    def is_answered(self, number: int) -> bool:
        """Whether the line has its answer."""
        return self._database.execute("SELECT 1 FROM answered WHERE number = ?", (number,)).fetchone() is not None

    def close(self) -> None:
        """Drop it all."""
        self._database.close()
