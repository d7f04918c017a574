"""Clients' regular expressions, evaluated by RE2, whose language is that of Kafka's RE2/J.

Time is linear in the length of the name for any pattern: no client can block the broker with one.
Source: GroupMetadataManager.throwIfRegularExpressionIsInvalid, re2/doc/syntax.txt.
"""

from __future__ import annotations

import re2

PATTERN_CHARACTERS_MAX = 1_000
MEMORY_BYTES_MAX = 1024 * 1024
"""Most memory of a compiled pattern."""


class PatternError(ValueError):
    """An invalid pattern, or one that is too large; the text says why."""


class Pattern:
    """A compiled pattern. Raises PatternError."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise PatternError(f"it is longer than {PATTERN_CHARACTERS_MAX} characters")
        options = re2.Options()
        options.log_errors = False
        options.max_mem = MEMORY_BYTES_MAX
        try:
            self._pattern = re2.compile(text, options)
        except (re2.error, UnicodeEncodeError) as error:
            raise PatternError(_text_of(error)) from None

    def matches(self, name: str) -> bool:
        """Return whether all of `name` matches."""
        return self._pattern.fullmatch(name) is not None


def _text_of(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return cause.decode("utf-8", "replace") if isinstance(cause, bytes) else str(cause)
