"""Assignors by their names on the wire.

| name | module | |
|---|---|---|
| range | `ranges` | runs of neighbouring partitions, topic by topic |
| roundrobin | `roundrobin` | round-robin over all topics |
| sticky | `sticky` | balanced, few moves; eager |
| cooperative-sticky | `sticky` | balanced, few moves; members keep reading what stays |
| even | `even` | Steelyard's own: the same, and each topic spread over the members |

A coordinator chooses among the names sent by all members of a group.
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
    """Return the assignor of that name. Raises ConfigError that lists the existing names."""
    found = ASSIGNORS.get(name)
    if found is None:
        raise ConfigError(f"unknown assignor {name!r}; expected one of: {', '.join(ASSIGNORS)}")
    return found
