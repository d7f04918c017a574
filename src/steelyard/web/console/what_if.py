"""What strategies would do with the queues of a group, for any number of members. Pure.

Members are those that there are, in the order of their ids, then new ones; with fewer members than
now, the last ones are left out. All are taken to subscribe to all topics of the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steelyard.allocate import contiguous, even, pinned, rooms
from steelyard.allocate.assignors.plan import AssignFunction, Subscriber
from steelyard.allocate.assignors.registry import ASSIGNORS
from steelyard.allocate.assignors.uniform import assign as assign_uniform
from steelyard.allocate.plan import Claim, Plan, Strategy
from steelyard.allocate.registry import STRATEGIES
from steelyard.checks import unknown
from steelyard.errors import ConfigError, RouteError, SteelyardError
from steelyard.types import MessageQueue, TopicPartition
from steelyard.web.console.answers import GroupPicture, ShareView, WhatIf, WhatIfResult
from steelyard.wire.remoting.flags import java_string_key
from steelyard.wire.remoting.names import RETRY_PREFIX
from steelyard.wording import counted

QUEUES_MAX = 20_000
"""Most queues that plans are computed for."""

REMOTING_NAMES = (
    *("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY-AVG"),
    *("MACHINE_ROOM", "CONFIG", "EVEN"),
)
KAFKA_NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky", "uniform", "even")

UNPLANNED: Mapping[str, str] = {
    "share": "their members read partitions together",
    "streams": "their coordinator assigns tasks instead of partitions",
}
"""Kinds of groups that no plan is computed for, and why."""

ROUNDS = 2
"""Rebalances until all partitions are assigned: cooperative members give up some in the first."""

KAFKA_ASSIGNORS: Mapping[str, AssignFunction] = {
    "uniform": assign_uniform,
    **{name: assignor.assign for name, assignor in ASSIGNORS.items()},
}

Shares = Mapping[str, Sequence[str]]
"""The keys of each member's queues."""


def what_if(picture: GroupPicture, members: int | None, strategy: str | None) -> WhatIf:
    """Return what strategies would do; nothing for groups whose kind has none.

    Raises RouteError for a strategy that does not fit the group.
    """
    if picture.kind in UNPLANNED:
        if strategy is None:
            return WhatIf(strategies=[], results=[])
        raise RouteError(
            f"{picture.kind} groups have no strategy {strategy}: {UNPLANNED[picture.kind]}"
        )
    names = REMOTING_NAMES if picture.dialect == "rocketmq" else KAFKA_NAMES
    if strategy is not None and strategy not in names:
        raise RouteError(str(unknown(f"strategy of {picture.dialect} groups", strategy, names)))
    if len(picture.queues) > QUEUES_MAX:
        raise ConfigError(f"the group has more than {QUEUES_MAX} queues, too many to plan for")
    people = _members(picture, members)
    plan = _remoting if picture.dialect == "rocketmq" else _kafka
    owners = {queue.key: queue.owner for queue in picture.queues}
    return WhatIf(
        strategies=list(names),
        results=[
            _result(name, people, owners, plan(picture, people, name))
            for name in (names if strategy is None else (strategy,))
        ],
    )


def _members(picture: GroupPicture, count: int | None) -> list[str]:
    there = sorted((member.id for member in picture.members), key=java_string_key)
    wanted = max(1, len(there)) if count is None else count
    news = (f"new-{number}" for number in range(1, wanted + 1))
    free = [name for name in news if name not in there]
    return [*there[:wanted], *free[: max(0, wanted - len(there))]]


# -- RocketMQ --------------------------------------------------------------------------------------


def _remoting(picture: GroupPicture, members: Sequence[str], name: str) -> Shares:
    queues = {
        queue.key: MessageQueue(queue.topic, queue.broker or "", queue.queue)
        for queue in picture.queues
        if not queue.topic.startswith(RETRY_PREFIX)
    }
    keys = {queue: key for key, queue in queues.items()}
    held: dict[str, list[MessageQueue]] = {member: [] for member in members}
    for one in picture.queues:
        if one.owner in held and one.key in queues:
            held[one.owner].append(queues[one.key])
    claims: list[Claim[MessageQueue]] = [
        Claim(member, tuple(sorted(held[member])))
        for member in sorted(members, key=java_string_key)
    ]
    shares: dict[str, list[str]] = {member: [] for member in members}
    for part in _parts(sorted(queues.values()), name):
        plan = _strategy(name, part, held)(claims, part)
        for member, share in zip(plan.members, plan.shares, strict=True):
            shares[member] += [keys[queue] for queue in share]
    return shares


def _parts(queues: Sequence[MessageQueue], name: str) -> list[list[MessageQueue]]:
    """Return the queues that are divided together: of one topic, or of all."""
    if name == "EVEN":
        return [list(queues)]
    by_topic: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_topic.setdefault(queue.topic, []).append(queue)
    return list(by_topic.values())


def _strategy(
    name: str, queues: Sequence[MessageQueue], held: Mapping[str, Sequence[MessageQueue]]
) -> Strategy:
    """Return a strategy; those with arguments get what the group has now."""
    if name == "EVEN":
        return even.allocate
    if name == "CONFIG":
        return _pinned(held)
    if name == "MACHINE_ROOM":
        found = {
            queue.broker_name.partition("@")[0] for queue in queues if "@" in queue.broker_name
        }
        return rooms.machine_room(found) if found else _nothing
    return STRATEGIES[name]


def _pinned(held: Mapping[str, Sequence[MessageQueue]]) -> Strategy:
    lists = {member: found for member, found in held.items() if found}
    try:
        return pinned.pinned(lists)
    except SteelyardError:
        return contiguous.allocate  # two members hold one queue at the moment


def _nothing(
    claims: Sequence[Claim[MessageQueue]], queues: Sequence[MessageQueue], /
) -> Plan[MessageQueue]:
    """No broker's name has a room: nobody reads anything."""
    return Plan(tuple(claim.member for claim in claims), tuple(() for _ in claims))


# -- Kafka -----------------------------------------------------------------------------------------


def _kafka(picture: GroupPicture, members: Sequence[str], name: str) -> Shares:
    keys = {TopicPartition(queue.topic, queue.queue): queue.key for queue in picture.queues}
    counts: dict[str, int] = {}
    for queue in picture.queues:
        counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue + 1)
    topics = tuple(sorted(counts))
    owned: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for queue in picture.queues:
        if queue.owner in owned:
            owned[queue.owner].append(TopicPartition(queue.topic, queue.queue))
    for generation in range(1, ROUNDS + 1):
        subscribers = [
            Subscriber(
                member,
                topics,
                tuple(sorted(owned[member])),
                generation,
                user_data=_user_data(name, owned[member], generation),
            )
            for member in members
        ]
        found = KAFKA_ASSIGNORS[name](subscribers, counts)
        owned = {member: found.get(member, []) for member in members}
    return {member: [keys[place] for place in owned[member] if place in keys] for member in members}


def _user_data(name: str, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
    """Return what a member would send to the leader of a sticky group."""
    assignor = ASSIGNORS.get(name)
    return None if assignor is None else assignor.user_data(owned, generation)


# -- results ---------------------------------------------------------------------------------------


def _result(
    name: str, members: Sequence[str], owners: Mapping[str, str | None], shares: Shares
) -> WhatIfResult:
    targets = {key: member for member, keys in shares.items() for key in keys}
    moved = sum(
        1 for key, owner in owners.items() if owner is not None and targets.get(key) != owner
    )
    sizes = [len(shares[member]) for member in members]
    idle = sizes.count(0)
    unread = sum(1 for key in owners if key not in targets and not key.startswith(RETRY_PREFIX))
    return WhatIfResult(
        strategy=name,
        members=[ShareView(id=member, queues=sorted(shares[member])) for member in members],
        moved=moved,
        smallest=min(sizes),
        largest=max(sizes),
        idle=idle,
        text=_sentence(moved, min(sizes), max(sizes), idle, unread),
    )


def _sentence(moved: int, smallest: int, largest: int, idle: int, unread: int) -> str:
    each = counted(smallest, "queue") if smallest == largest else f"{smallest} to {largest} queues"
    text = (
        f"Each member reads {each}, and {counted(moved, 'queue')} change{'s' * (moved == 1)} hands"
    )
    if idle:
        text += f"; {counted(idle, 'member')} {'has' if idle == 1 else 'have'} nothing to read"
    if unread:
        text += f"; nobody reads {counted(unread, 'queue')}"
    return text + "."
