"""What an operator wants to know of a classic group: why it rebalances, and whom it waits for.

Apache Kafka answers neither; confluentinc/kafka-rest#611 is one of many who looked for a member that never polls.
"""

from __future__ import annotations

import msgspec

from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.classic.state import State
from steelyard.groups.kafka.timers import JOIN, SYNC, Timers


class Waiting(msgspec.Struct, frozen=True):
    """A member that others wait for. `what`: JoinGroup or SyncGroup; `since`: ms since the epoch."""

    member_id: str
    client_id: str
    host: str
    what: str
    since: int


class Overview(msgspec.Struct, frozen=True):
    """One group. `cause`, `began_at`: of the rebalance that goes on, else of the last one; `trigger`: its kind, see `effects`.

    `until`: when those that are still waited for will be taken out, None where nobody is waited for.
    """

    group_id: str
    state: str
    since: int
    generation: int
    protocol: str
    leader: str
    members: tuple[str, ...]
    trigger: str
    cause: str
    began_at: int
    waiting: tuple[Waiting, ...]
    until: int | None


def overview(group: ClassicGroup, timers: Timers) -> Overview:
    """How the group stands now."""
    waiting = _waiting(group)
    kind = JOIN if group.state is State.PREPARING else SYNC
    cause = group.begun[-1].cause if group.begun else None
    return Overview(
        group.group_id,
        group.state,
        group.since,
        group.generation,
        group.protocol or "",
        group.leader or "",
        group.member_ids(),
        "" if cause is None else cause.trigger,
        "" if cause is None else cause.text,
        group.began_at,
        waiting,
        timers.at(group.key(kind)) if waiting else None,
    )


def _waiting(group: ClassicGroup) -> tuple[Waiting, ...]:
    since = group.awaited_since
    if group.state is State.PREPARING:
        absent = [member for member in group.members.values() if not member.is_joining]
        waiting = [Waiting(m.member_id, m.client_id, m.host, "JoinGroup", since) for m in absent]
        waiting += [Waiting(id, "", "", "JoinGroup", at) for id, at in group.pending.items()]
        return tuple(waiting)
    if group.state is not State.COMPLETING:
        return ()
    absent = [group.members[member_id] for member_id in sorted(group.unsynced)]
    return tuple(Waiting(m.member_id, m.client_id, m.host, "SyncGroup", since) for m in absent)
