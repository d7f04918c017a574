"""Regular expressions that come from clients, by RE2: as Kafka's broker does it, whose RE2/J is the same language.

Time grows with the length of the name only, whatever the pattern: no client can hold up the broker with one.
Source: GroupMetadataManager.throwIfRegularExpressionIsInvalid, re2/doc/syntax.txt.
"""

from __future__ import annotations

import re2

PATTERN_CHARACTERS_MAX = 1_000
MEMORY_BYTES_MAX = 1024 * 1024
"""Of a compiled pattern."""


class PatternError(ValueError):
    """A text is not a pattern, or one that is too large; says what is wrong."""


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
        """True where all of `name` matches."""
        return self._pattern.fullmatch(name) is not None


def _text_of(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return cause.decode("utf-8", "replace") if isinstance(cause, bytes) else str(cause)
