"""Strategies by the names that RocketMQ gives them (`AllocateMessageQueueStrategy.getName`), and ours.

| name | module | |
|---|---|---|
| AVG | `contiguous` | runs of neighbouring queues; RocketMQ's default |
| AVG_BY_CIRCLE | `circle` | dealt out one by one |
| CONSISTENT_HASH | `ring` | by hash: few moves, uneven; `ring.consistent_hash(n)` for other than 10 places a member |
| MACHINE_ROOM_NEARBY-AVG, -AVG_BY_CIRCLE, -CONSISTENT_HASH | `rooms` | members read the brokers of their room; `rooms.nearby` to say what a room is |
| MACHINE_ROOM | `rooms` | needs its rooms: `allocate=rooms.machine_room({"idc1"})` |
| CONFIG | `pinned` | needs its lists: `allocate=pinned.pinned({"client": queues})` |
| EVEN | `even` | Steelyard's own: all topics together, even, few moves |

Nothing on the wire tells which strategy a member uses: a group whose members differ reads some
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
    """The strategy of that name. Raises ConfigError, which lists the names there are."""
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
