"""Assignors by their names on the wire.

| name | module | |
|---|---|---|
| range | `ranges` | runs of neighbouring partitions, topic by topic |
| roundrobin | `roundrobin` | dealt out one by one |
| sticky | `sticky` | balanced, few moves; eager |
| cooperative-sticky | `sticky` | balanced, few moves; members go on reading what stays |
| even | `even` | Steelyard's own: the same, and each topic spread over the members |

A coordinator chooses among the names that all members of a group sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from steelyard.allocate.assignors import even, ranges, roundrobin, sticky
from steelyard.allocate.assignors.plan import Assignor
from steelyard.errors import ConfigError

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {
        assignor.name: assignor
        for assignor in (
            ranges.ASSIGNOR,
            roundrobin.ASSIGNOR,
            sticky.STICKY,
            sticky.COOPERATIVE_STICKY,
            even.ASSIGNOR,
        )
    }
)


def assignor(name: str) -> Assignor:
    """The assignor of that name. Raises ConfigError, which lists the names there are."""
    found = ASSIGNORS.get(name)
    if found is None:
        raise ConfigError(f"unknown assignor {name!r}; expected one of: {', '.join(ASSIGNORS)}")
    return found
