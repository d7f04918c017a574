"""Loggers that escape control characters from peers, and log lines of JSON."""

from __future__ import annotations

import logging

from steelyard.driver.log_lines import json_line
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


class JsonLines(logging.Formatter):
    """Formats records as `log_lines` describes. Set `server` when the server's name is known."""

    server = ""

    def format(self, record: logging.LogRecord) -> str:
        traceback = record.exc_text or ""
        if record.exc_info and not traceback:
            traceback = self.formatException(record.exc_info)
        return json_line(
            record.created,
            record.levelname,
            record.name,
            record.getMessage(),
            server=self.server,
            traceback=printable_lines(traceback),
        )


def logger(name: str) -> logging.Logger:
    """Return the logger of this name; all loggers of Steelyard are created here."""
    found = logging.getLogger(name)
    found.addFilter(_printable)  # a filter that is already there is not added again
    return found
