"""Words of messages for people: numbers of things, and the names that were probably meant."""

from __future__ import annotations

from collections.abc import Iterable

SIMILARITY_MIN = 0.65
"""How similar names must be for one to be a slip of the other; see `SequenceMatcher.ratio`.

A slip in a name of four letters leaves 0.75 (`bdoy`). At 0.6, which difflib suggests, two words of
five letters may have no more in common than three of them, as `price` and `topic`.
"""


def counted(count: int, noun: str) -> str:
    """Return a number of things: `0 queues`, `1 queue`, `1,024 queues`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def nearest(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the known names that `name` is probably a slip of, the nearest first.

    Upper and lower case are the same. There are `most` names at most, and often none.
    """
    from difflib import get_close_matches  # for mistakes only

    names = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), names, most, SIMILARITY_MIN)
    return [names[each] for each in near]
