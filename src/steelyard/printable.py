"""Escaping of text from peers for log lines and terminals.

Client ids, user agents, groups of hostile servers, properties and remarks may contain anything: an
escape sequence would affect the terminal of whoever reads the log, a line feed would forge a log
line, a bidirectional control would disguise the text. Each such character is replaced by its escape
as in Python's `repr`.
"""

from __future__ import annotations

import re

_UNFIT = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: escape sequences, line ends
    "\u2028\u2029"  # line and paragraph separator
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what changes the direction of writing
    "\u200b\ufeff\ufff9-\ufffb\ud800-\udfff]"  # invisible ones, halves of a character
)
_UNFIT_BUT_LINES = re.compile(_UNFIT.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def printable(text: str) -> str:
    """Return `text` on one line, without control characters."""
    if _UNFIT.search(text) is None:
        return text
    return _UNFIT.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Return `text` without control characters except line feeds and tabs, for multi-line texts."""
    if _UNFIT_BUT_LINES.search(text) is None:
        return text
    return _UNFIT_BUT_LINES.sub(_escape, text)


def printable_json(text: str) -> str:
    """Return a JSON text without control characters except line feeds; it stays the same JSON."""
    if _UNFIT_BUT_LINES.search(text) is None:
        return text
    return _UNFIT_BUT_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    short = {9: "\\t", 10: "\\n", 13: "\\r"}.get(code)
    return short or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")
