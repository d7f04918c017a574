"""Which members of RocketMQ groups flap (`groups.flapping`), from changes of the registry.

A client id has the address of its machine, and often a part that is another one after each start:
`10.0.0.1@4711#839210` (Java), `10.0.0.1@4711` (others), but `10.0.0.1@billing` if the application
names its instance. Without that part, all processes of a machine have one name.
Source: ClientConfig.buildMQClientId, changeInstanceNameToPID.
"""

from __future__ import annotations

import re

from steelyard.groups.flapping import Flapping
from steelyard.groups.remoting.registry import GroupChange
from steelyard.types import LogLine

_PROCESS = re.compile(r"@\d+(#\d+)?(@.*)?$")
"""Process id, start time and unit name in a client id."""


def name_of(client_id: str) -> str:
    """Return the name by which a client is known after a restart."""
    return _PROCESS.sub("", client_id)


def changed(flapping: Flapping, change: GroupChange, now: int, effects: list[LogLine]) -> int:
    """Note a change of a group; return how often the name of the member has flapped."""
    group, client_id, name = change.group, change.client_id, name_of(change.client_id)
    if change.kind == "left":
        seen_at = now if change.heard_at is None else change.heard_at
        flapping.left(group, client_id, seen_at, now, disturbs=True)
        return 0
    if change.cause == "subscription":
        return flapping.count(group, name, now)
    count = flapping.joined(group, client_id, name, now)
    subject = name if name == client_id else f"a client at {name} (this time {client_id})"
    text = flapping.warning(group, name, now, subject)
    if text is not None:
        effects.append(LogLine("WARNING", text))
    return count
