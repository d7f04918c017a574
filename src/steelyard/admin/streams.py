"""The standard streams of the command line: open at its start, and with an error of their own.

A full disk behind `> file` is the error of the output, not of what a command was doing when it
printed. So the output raises OutputError, which is neither an OSError nor a SteelyardError: whoever
handles those must not take it for one of theirs.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputError(Exception):
    """Standard output cannot be written, such as to a full disk; the text says why."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write the output: {error.strerror or error}")


class _Output(io.FileIO):
    """Standard output. Raises OutputError; but BrokenPipeError when its reader has closed it."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except (BrokenPipeError, BlockingIOError):
            raise
        except OSError as error:
            raise OutputError(error) from None


def prepare() -> None:
    """Open closed streams on the null device, and let standard output raise OutputError.

    Called once, before anything is printed and before descriptors are opened: the next file or
    socket would get the number of a closed stream, and uvloop ends the process when it closes one.
    """
    for descriptor in range(3):
        _open_if_closed(descriptor)
    # They are None where Python found the descriptor closed.
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = _with_own_error(sys.stdout or open(1, "w", closefd=False))  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def discard_output() -> None:
    """Drop what is still buffered: it would be written, and fail again, when the process ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _open_if_closed(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)  # the lowest free number, so usually the right one
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)
        os.set_inheritable(descriptor, True)


def _with_own_error(output: TextIO) -> TextIO:
    """Return a stream for the same descriptor, buffered in the same way."""
    assert isinstance(output, io.TextIOWrapper)
    raw = _Output(output.fileno(), "w", closefd=False)
    unbuffered = isinstance(output.buffer, io.RawIOBase)  # PYTHONUNBUFFERED
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding=output.encoding,
        errors=output.errors,
        line_buffering=output.line_buffering,
        write_through=output.write_through,
    )
