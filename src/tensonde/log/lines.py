"""How a line of the log reads: on the screen, in a file, as JSON."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import Any

from tensonde.model.printable import printable


class ScreenLine(logging.Formatter):
    """`tensonde: ...`; what is not a warning says what it is."""

    def format(self, record: logging.LogRecord) -> str:
        text = printable(super().format(record))
        if record.levelno >= logging.WARNING:
            return f"tensonde: {text}"
        return f"tensonde: {record.levelname.lower()} ({module(record)}): {text}"


class FileLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).isoformat(sep=" ", timespec="milliseconds")
        return f"{when} {record.levelname} {module(record)} [{record.process}] {super().format(record)}"


class JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry: dict[str, Any] = {
            "time": when,
            "level": record.levelname.lower(),
            "module": module(record),
            "process": record.process,
            "rank": int(os.environ.get("RANK", "0") or 0),
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def module(record: logging.LogRecord) -> str:
    """The sub-module that speaks."""
    return record.name.partition(".")[2] or "tensonde"
