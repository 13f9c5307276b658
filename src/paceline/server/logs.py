"""How log lines look: for people, or one JSON object a line (--log-format). Standard error, this process only.

A record may carry `fields`, a mapping of facts; its message then names the kind of line. Plain lines show facts as
name=value, JSON lines have them as members.
"""

import json
import logging
import sys
from datetime import UTC, datetime


class PlainFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO request request_id=req-1 status=200`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the lines of a trace if there is one."""
        facts = (f"{name}={shown(value)}" for name, value in fields_of(record).items())
        line = " ".join((timestamp(record), record.levelname, record.getMessage(), *facts))
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """`{"time": "...", "level": "INFO", "message": "request", "request_id": "req-1", "status": 200}`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, a trace included."""
        line = {"time": timestamp(record), "level": record.levelname, "message": record.getMessage()}
        trace = {"trace": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps(line | fields_of(record) | trace, ensure_ascii=False)


def configure_logging(log_format: str) -> None:
    """Send this process's log lines to standard error: ours from INFO, everybody else's from WARNING."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter())
    logging.root.handlers = [handler]
    logging.root.setLevel(logging.WARNING)
    logging.getLogger("paceline").setLevel(logging.INFO)


def timestamp(record: logging.LogRecord) -> str:
    """When, in UTC."""
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The facts of a line; none for most."""
    fields: dict[str, object] = getattr(record, "fields", {})
    return fields


def shown(value: object) -> str:
    """A value that stays one word: text with spaces or quotes in it is quoted, a list is joined by commas."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return ",".join(map(shown, value)) or "-"
    text = str(value)
    return text if text.isprintable() and not set(text) & {" ", '"', "="} and text else json.dumps(text)
