"""Strategies by their names in RocketMQ (`AllocateMessageQueueStrategy.getName`), and our own.

| name | module | |
|---|---|---|
| AVG | `contiguous` | runs of neighbouring queues; RocketMQ's default |
| AVG_BY_CIRCLE | `circle` | round-robin |
| CONSISTENT_HASH | `ring` | by hash: few moves, uneven; see `ring.consistent_hash` |
| MACHINE_ROOM_NEARBY-AVG, ... | `rooms` | members read from brokers in their room: `rooms.nearby` |
| MACHINE_ROOM | `rooms` | needs its rooms: `allocate=rooms.machine_room({"idc1"})` |
| CONFIG | `pinned` | needs its lists: `allocate=pinned.pinned({"client": queues})` |
| EVEN | `even` | Steelyard's own: all topics together, even, few moves |

The wire protocol does not convey a member's strategy: a group whose members differ reads some
queues twice and others never.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from steelyard.allocate import circle, contiguous, even, ring, rooms
from steelyard.allocate.plan import Strategy
from steelyard.errors import ConfigError

_PLAIN: Mapping[str, Strategy] = {
    "AVG": contiguous.allocate,
    "AVG_BY_CIRCLE": circle.allocate,
    "CONSISTENT_HASH": ring.allocate,
}

STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        **_PLAIN,
        **{f"MACHINE_ROOM_NEARBY-{name}": rooms.nearby(inner) for name, inner in _PLAIN.items()},
        "EVEN": even.allocate,
    }
)

_WITH_ARGUMENTS: Mapping[str, str] = {
    "MACHINE_ROOM": "steelyard.allocate.rooms.machine_room(rooms)",
    "CONFIG": "steelyard.allocate.pinned.pinned(lists)",
}


def strategy(name: str) -> Strategy:
    """Return the strategy of that name. Raises ConfigError that lists the existing names."""
    found = STRATEGIES.get(name)
    if found is None and name in _WITH_ARGUMENTS:
        raise ConfigError(
            f"{name} needs arguments, which a name cannot give: pass "
            f"allocate={_WITH_ARGUMENTS[name]} to the consumer instead"
        )
    if found is None:
        raise ConfigError(
            f"unknown allocation strategy {name!r}; expected one of: {', '.join(STRATEGIES)}"
        )
    return found
