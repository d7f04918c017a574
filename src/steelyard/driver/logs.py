"""Loggers that escape control characters from peers."""

from __future__ import annotations

import logging

from steelyard.printable import printable, printable_lines


class Printable(logging.Filter):
    """Escapes control characters in log records.

    Line feeds are kept in records logged with `extra=LINES` and in tracebacks.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        escape = printable_lines if getattr(record, "lines", False) else printable
        record.msg = escape(record.getMessage())
        record.args = None
        if record.exc_info and record.exc_text is None:
            record.exc_text = printable_lines(_traces.formatException(record.exc_info))
        return True


LINES = {"lines": True}
"""Marks a record with intentional line feeds; its contents must already be printable."""

_traces = logging.Formatter()
_printable = Printable()


def logger(name: str) -> logging.Logger:
    """Return the logger of this name; all loggers of Steelyard are created here."""
    found = logging.getLogger(name)
    found.addFilter(_printable)  # a filter that is already there is not added again
    return found
