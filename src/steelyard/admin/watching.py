"""`steelyard admin COMMAND --watch`: the same question again and again, until Ctrl-C.

On a terminal each answer takes the place of the one before, on the alternate screen, so that the
terminal is afterwards as it was. In a pipe or a file the answers follow each other, each below a
line with its time; with `--json` each is one line with the field `at`. A question that fails, such
as while a nameserver restarts, is shown as such, and asked again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, Self

from steelyard.admin import exits
from steelyard.admin.answers import CommandOutcome, Unreachable, document_text
from steelyard.admin.pipes import closed
from steelyard.admin.printing import date_seconds
from steelyard.admin.reaching import PatientAdmin, told
from steelyard.admin.streams import OutputError
from steelyard.errors import ArgumentError, ConfigError, SteelyardError
from steelyard.printable import printable, printable_lines
from steelyard.wording import counted

Ask = Callable[[], Awaitable[tuple[CommandOutcome, list[Unreachable]]]]


class Observation(NamedTuple):
    """What was found at a time, in ms: `outcome`, or None and the `error`."""

    at: int
    outcome: CommandOutcome | None
    unreachable: list[Unreachable]
    error: str = ""


class _View(Protocol):
    """Shows readings. `with` it."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, reading: Observation) -> None:
        """Show the next reading. Raises BrokenPipeError when nobody reads any more."""


async def watch(admin: PatientAdmin, ask: Ask, options: argparse.Namespace) -> int:
    """Ask every `options.watch` seconds, and show the answers; return the exit code.

    Ends at SIGINT, SIGTERM, or when the reader of the output has closed it. Raises ConfigError for
    what no further question can put right.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    loop.add_signal_handler(signal.SIGTERM, end, exits.SUCCESS)
    loop.add_signal_handler(signal.SIGINT, end, exits.INTERRUPTED)
    reader = asyncio.ensure_future(closed(sys.stdout.fileno()))
    reader.add_done_callback(lambda _: end(exits.CLOSED_PIPE))
    view: _View
    if options.json:
        view = _JsonLines()
    elif sys.stdout.isatty():
        view = _Screen(options.watch)
    else:
        view = _Paragraphs()
    with view:
        if isinstance(view, _Screen):
            loop.add_signal_handler(signal.SIGWINCH, view.redraw)
        asking = asyncio.ensure_future(_repeat(admin, ask, options.watch, view))
        waits: list[asyncio.Future[Any]] = [ended, asking]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        reader.cancel()
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
    return ended.result()


async def _repeat(admin: PatientAdmin, ask: Ask, seconds: float, view: _View) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + seconds
        view.show(await _read(admin, ask))
        await asyncio.sleep(due - loop.time())


async def _read(admin: PatientAdmin, ask: Ask) -> Observation:
    admin.failures.clear()  # whoever did not answer may be back
    admin.refusals.clear()
    at = time.time_ns() // 1_000_000
    try:
        outcome, unreachable = await ask()
    except (ArgumentError, ConfigError):
        raise
    except SteelyardError as error:
        return Observation(at, None, [], " ".join(str(error).split()) or type(error).__name__)
    return Observation(at, outcome, unreachable)


# -- views -----------------------------------------------------------------------------------------


class _JsonLines:
    """One JSON object per reading. `at`: when it began, in ms; `error` if it failed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def show(self, reading: Observation) -> None:
        document: dict[str, object] = {"at": reading.at}
        if reading.outcome is None:
            document["error"] = reading.error
        else:
            document |= reading.outcome.document
        print(document_text(document, reading.unreachable, indent=None), end="", flush=True)


class _Paragraphs:
    """Each reading below its time, with an empty line after it; errors are on standard error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def show(self, reading: Observation) -> None:
        for line in _problems(reading):
            print(f"steelyard: {line}", file=sys.stderr, flush=True)
        if reading.outcome is not None:
            text = printable_lines(reading.outcome.text)
            print(f"{date_seconds(reading.at)}\n{text}\n", end="", flush=True)


class _Screen:
    """The alternate screen of a terminal; what does not fit it is cut off."""

    def __init__(self, seconds: float) -> None:
        command = shlex.join(["steelyard", *sys.argv[1:]])
        self._title = f"every {seconds:g} s: {command}"
        self._last: Observation | None = None
        """The latest reading that has an outcome."""
        self._latest: Observation | None = None

    def __enter__(self) -> Self:
        _write("\x1b[?1049h\x1b[?25l\x1b[?7l")  # alternate screen, no cursor, no wrapped lines
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, OutputError):
            _write("\x1b[?7h\x1b[?25h\x1b[?1049l")

    def show(self, reading: Observation) -> None:
        self._latest = reading
        if reading.outcome is not None:
            self._last = reading
        self.redraw()

    def redraw(self) -> None:
        """Write the latest reading, also after the size of the terminal has changed."""
        if self._latest is None:
            return
        lines = [printable(self._title), date_seconds(self._latest.at)]
        lines += map(printable, _problems(self._latest))
        lines.append("")
        if self._last is not None and self._last.outcome is not None:
            if self._last is not self._latest:
                lines.append(f"as of {date_seconds(self._last.at)}:")
            lines += printable_lines(self._last.outcome.text).splitlines()
        height = os.get_terminal_size(sys.stdout.fileno()).lines
        if len(lines) > height > 0:
            left_out = len(lines) - height + 1
            more = counted(left_out, "more line")
            lines[height - 1 :] = [f"... {more}: a larger terminal shows all"]
        _write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")


def _problems(reading: Observation) -> list[str]:
    return list(filter(None, [reading.error, *map(told, reading.unreachable)]))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
