"""Reports of a node's errors in the log, with the events that led to them.

An error of a node is a bug in Steelyard. The first of a kind is logged with its traceback and, at
most once a minute, with the node's last events and their effects; the same error again gets one
line, and after REPEATS_MAX within a minute it is only counted. A client that can provoke an error
therefore cannot fill the log or the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import logging
from steelyard.driver.logs import LINES
from steelyard.printable import printable

EVENTS_MAX = 200
"""Events remembered for a report."""

EVENT_BYTES_MAX = 16 * 1024
"""Size above which only the kind of an event or effect is remembered, so that 200 take <= 6 MB."""

WINDOW_MS = 60_000
REPEATS_MAX = 10
"""How often the same error is logged within WINDOW_MS."""

KINDS_MAX = 100
"""Different errors distinguished; beyond that the counts start again."""

TEXT_MAX = 60
LINE_MAX = 500
"""Maximum characters of one text in a report, and of one event with its effects."""

ITEMS_MAX = 8
DEPTH_MAX = 3
"""Items shown of a sequence or a mapping, and depth to which structures are shown."""

SECRETS = frozenset(("accesskey", "signature", "securitytoken"))
"""Lower-case names of properties whose values are hidden (acl/common/SessionCredentials.java)."""


class _Kind(msgspec.Struct):
    since: int
    count: int = 0
    unlogged: int = 0


class Failures:
    """Reporter of a node's errors.

    `remember` is a bare append: it is called with (now, event, effects) for every event.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._events: deque[tuple[int, object, object]] = deque(maxlen=EVENTS_MAX)
        self.remember = self._events.append
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        self._told_events_at: int | None = None
        self.count = 0
        """Errors so far, logged or not."""

    def report(self, what: str, error: BaseException, now: int) -> None:
        """Log an error of the node or of an effect; `what` says what happened and what follows."""
        self.count += 1
        kind = self._kind(error, now)
        if kind.count == 1:
            before = (
                f" ({kind.unlogged} more of these in the preceding minutes)"
                if kind.unlogged
                else ""
            )
            kind.unlogged = 0
            self._log.error("%s%s: %r", what, before, error, exc_info=error)
            self._tell_events(now)
        elif kind.count < REPEATS_MAX:
            self._log.error("%s, as before: %r", what, error)
        elif kind.count == REPEATS_MAX:
            self._log.error(
                "%s: %r: the same error %d times within %d s; this is a bug in Steelyard, please"
                " report it; "
                "for the rest of the minute it is only counted",
                *(what, error, REPEATS_MAX, WINDOW_MS // 1000),
            )
        else:
            kind.unlogged += 1

    def report_end(self, what: str, error: BaseException, now: int) -> None:
        """Log the error that ends the node, always in full."""
        self.count += 1
        self._log.critical("%s: %r", what, error, exc_info=error)
        self._told_events_at = None
        self._tell_events(now)

    def _kind(self, error: BaseException, now: int) -> _Kind:
        """Return the errors of this type from this line of code, including this one."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        line = () if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        key = (type(error), *line)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= KINDS_MAX:
                self._kinds.clear()
            kind = self._kinds[key] = _Kind(now)
        elif now - kind.since >= WINDOW_MS:
            kind.since, kind.count = now, 0
        kind.count += 1
        return kind

    def _tell_events(self, now: int) -> None:
        if self._told_events_at is not None and now - self._told_events_at < WINDOW_MS:
            return
        self._told_events_at = now
        lines = [
            f"{(at - now) / 1000:+10.3f} s  {_cut(f'{brief(event)} -> {brief(effects)}', LINE_MAX)}"
            for at, event, effects in self._events
        ]
        self._log.error(
            "the last %d events and their effects:\n%s",
            len(lines),
            "\n".join(map(printable, lines)),
            extra=LINES,
        )


def brief(value: object, depth: int = DEPTH_MAX) -> str:
    """Format a value on one line for people: texts cut, bytes counted, secrets hidden.

    Never raises.
    """
    try:
        return _brief(value, depth)
    except Exception as error:  # a repr of foreign code
        return f"<{type(value).__name__}, which cannot be shown: {type(error).__name__}>"


def _brief(value: object, depth: int) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if value is None or isinstance(value, int | float | str):
        return _cut(repr(value), TEXT_MAX)
    if isinstance(value, type):
        return value.__name__
    name = type(value).__name__
    if isinstance(value, msgspec.Struct):
        if not depth:
            return f"{name}(...)"
        shown = [
            f"{field}={brief(getattr(value, field), depth - 1)}"
            for field in value.__struct_fields__
        ]
        return f"{name}({', '.join(shown)})"
    if isinstance(value, BaseException):
        return _cut(repr(value), TEXT_MAX)
    if isinstance(value, Mapping):
        pairs = [
            f"{brief(key, 0)}: {'***' if str(key).lower() in SECRETS else brief(item, depth - 1)}"
            for key, item in list(value.items())[:ITEMS_MAX]
        ]
        return (
            f"{{{', '.join(pairs)}{_more(len(value))}}}" if depth > 0 else f"<{len(value)} pairs>"
        )
    if isinstance(value, Sequence | Set):
        if depth <= 0:
            return f"<{len(value)} items>"
        items = [brief(item, depth - 1) for item in list(value)[:ITEMS_MAX]]
        return f"[{', '.join(items)}{_more(len(value))}]"
    return f"<{name}>"


def _more(count: int) -> str:
    return f", ... {count} in all" if count > ITEMS_MAX else ""


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
