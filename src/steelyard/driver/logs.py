"""Loggers whose lines cannot be split or coloured by what peers send."""

from __future__ import annotations

import logging

from steelyard.printable import printable, printable_lines


class Printable(logging.Filter):
    """Escapes control characters in each record, line feeds too but in those logged with `extra=LINES` and in tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        escape = printable_lines if getattr(record, "lines", False) else printable
        record.msg = escape(record.getMessage())
        record.args = None
        if record.exc_info and record.exc_text is None:
            record.exc_text = printable_lines(_traces.formatException(record.exc_info))
        return True


LINES = {"lines": True}
"""For a record that has lines by design; what is in them must be printable."""

_traces = logging.Formatter()
_printable = Printable()


def logger(name: str) -> logging.Logger:
    """The logger of this name; all of Steelyard's are made here."""
    found = logging.getLogger(name)
    found.addFilter(_printable)  # once: a filter that is there is not added again
    return found
