"""Which members of Kafka groups flap (`groups.flapping`), from what the coordinators report.

A static member is known by its instance id, any other by its client id and host: its member id is
another one after each start.
"""

from __future__ import annotations

from steelyard.groups.flapping import Flapping
from steelyard.groups.kafka.effects import STATIC, SUBSCRIPTION, Effects, Joined, Left
from steelyard.types import LogLine

REPLACED = "replaced"
"""The cause with which a static member goes whose place another one takes, without a rebalance."""


def name_of(instance_id: str | None, client_id: str, host: str) -> str:
    """Return the name by which a client is known after a restart."""
    return f"{client_id}{host}" if instance_id is None else f"{instance_id} (static)"


def joined(flapping: Flapping, event: Joined, now: int, effects: Effects) -> int:
    """Note that a member joined, or subscribes anew; return how often its name has flapped."""
    member = event.member
    name = name_of(member.instance_id, member.client_id, member.host)
    if event.cause == SUBSCRIPTION:
        return flapping.count(event.group_id, name, now)
    count = flapping.joined(event.group_id, member.member_id, name, now)
    text = None if event.cause == STATIC else flapping.warning(event.group_id, name, now)
    if text is not None:
        effects.append(LogLine("WARNING", text))
    return count


def left(flapping: Flapping, event: Left, now: int) -> None:
    """Note that a member left."""
    seen_at = now if event.heard_at is None else event.heard_at
    disturbs = event.cause != REPLACED
    flapping.left(event.group_id, event.member_id, seen_at, now, disturbs=disturbs)
