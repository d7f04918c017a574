"""The output of `steelyard consume`, and its end."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from steelyard.admin import exits
from steelyard.admin.pipes import closed
from steelyard.admin.streams import OutputError
from steelyard.errors import SteelyardError


class Printer:
    """Writes lines until there are enough or a stop is requested.

    `ended`: the exit code, or the error that ended it.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._count: int | None = options.count
        self._left: int | None = options.count
        self._timeout: float | None = options.timeout

    @property
    def left(self) -> int | None:
        """The number of lines still wanted; None without a limit."""
        return self._left

    def end(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)

    def fail(self, error: SteelyardError | OutputError) -> None:
        """End; `wait` raises the error."""
        if not self.ended.done():
            self.ended.set_exception(error)

    def print(self, lines: Sequence[bytes]) -> bool:
        """Write lines, no more than are `left`; return False if they could not be written."""
        try:
            sys.stdout.buffer.write(b"".join([line + b"\n" for line in lines]))
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            self.end(exits.CLOSED_PIPE)
            return False
        except OutputError as error:
            self.fail(error)
            return False
        if self._left is not None:
            self._left -= len(lines)
            if not self._left:
                self.end(exits.SUCCESS)
        return True

    async def wait(self) -> int:
        """Wait for the end: enough lines, a signal, the time-out, or a closed output.

        Raises the error of `fail`.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.end, exits.SUCCESS)
        loop.add_signal_handler(signal.SIGINT, self.end, exits.INTERRUPTED)
        reader = asyncio.ensure_future(closed(sys.stdout.fileno()))
        reader.add_done_callback(lambda _: self.end(exits.CLOSED_PIPE))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                await asyncio.wait([self.ended])
        if not self.ended.done():
            self._time_out()
        reader.cancel()
        return self.ended.result()

    def _time_out(self) -> None:
        """End; if lines are missing, say so on standard error."""
        if self._count is None or self._left is None:
            self.end(exits.SUCCESS)
            return
        printed = self._count - self._left
        text = f"{printed} of {self._count} messages arrived within {self._timeout:g} s"
        print(f"steelyard: {text}", file=sys.stderr)
        self.end(exits.FAILED)
