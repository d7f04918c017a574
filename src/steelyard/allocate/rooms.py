"""MACHINE_ROOM and MACHINE_ROOM_NEARBY: brokers and members are in rooms (data centres).

- `machine_room`: the group reads only the queues of the given rooms. Laws: disjoint, fair over what
  it reads, complete only within those rooms.
- `nearby`: the queues of a room go to the members of the same room, by an inner strategy; those of
  a room without members go to all members. Laws: complete and disjoint as the inner strategy is;
  fair at most within a room. A room that has a member keeps its queues.
Source: rebalance/AllocateMessageQueueByMachineRoom.java, AllocateMachineRoomNearby.java.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from steelyard.allocate.plan import Claim, Plan, Strategy
from steelyard.errors import ConfigError
from steelyard.types import MessageQueue

T = TypeVar("T")

QueueRoom = Callable[[MessageQueue], str]
"""The room of a queue's broker (`MachineRoomResolver.brokerDeployIn`)."""
MemberRoom = Callable[[str], str]
"""The room of a member by its client id (`MachineRoomResolver.consumerDeployIn`)."""


def machine_room(rooms: Collection[str]) -> Strategy:
    """Create MACHINE_ROOM, which reads from brokers named `room@name` for each of `rooms`.

    With n such queues and m members, each gets `n div m` neighbouring ones, and the first `n mod m`
    members get one more each from the end of the list. Raises ConfigError without a room.
    """
    wanted = frozenset((rooms,) if isinstance(rooms, str) else rooms)
    if not wanted:
        raise ConfigError("no room; name one or more, as they stand before the @ of broker names")

    def allocate(
        claims: Sequence[Claim[MessageQueue]], queues: Sequence[MessageQueue]
    ) -> Plan[MessageQueue]:
        members = tuple(claim.member for claim in claims)
        if not members:
            return Plan((), ())
        near = [queue for queue in queues if _room_before_at(queue.broker_name) in wanted]
        size, longer = divmod(len(near), len(members))
        rest = len(near) - longer
        shares = tuple(
            (
                *near[position * size : (position + 1) * size],
                *(near[rest + position : rest + position + 1]),
            )
            for position in range(len(members))
        )
        return Plan(members, shares)

    return allocate


def _room_before_at(broker_name: str) -> str | None:
    """Return the room of `room@name`; None otherwise.

    Java's `split` drops empty parts at the end.
    """
    room, _, name = broker_name.rstrip("@").partition("@")
    return room if name and "@" not in name else None


def room_of_queue(queue: MessageQueue) -> str:
    """Return the broker's name up to the first `-`, or all of it: `idc1-broker-a` is in idc1."""
    return queue.broker_name.partition("-")[0]


def room_of_member(client_id: str) -> str:
    """Return the client id up to the first `-`, or all of it: `idc1-10.0.0.1@7` is in idc1."""
    return client_id.partition("-")[0]


def nearby(
    inner: Strategy,
    queue_room: QueueRoom = room_of_queue,
    member_room: MemberRoom = room_of_member,
) -> Strategy:
    """Create MACHINE_ROOM_NEARBY-<inner>. Allocating raises ConfigError for an empty room.

    RocketMQ leaves both room functions to the application; the ones given here follow its own
    tests. With them, members whose client id names no room are in rooms without brokers, and share
    the queues of rooms without members.
    """

    def allocate(
        claims: Sequence[Claim[MessageQueue]], queues: Sequence[MessageQueue]
    ) -> Plan[MessageQueue]:
        positions = range(len(claims))
        queues_in = _by_room(queues, lambda queue: _named(queue_room(queue), queue))
        positions_in = _by_room(
            positions,
            lambda position: _named(member_room(claims[position].member), claims[position].member),
        )
        shares: list[list[MessageQueue]] = [[] for _ in claims]

        def share_out(room: str, receivers: Sequence[int]) -> None:
            plan = inner([claims[position] for position in receivers], queues_in[room])
            for position, share in zip(receivers, plan.shares, strict=True):
                shares[position] += share

        # A member's own room comes first, then rooms without members in the order of their names.
        for room, receivers in positions_in.items():
            if room in queues_in:
                share_out(room, receivers)
        for room in sorted(queues_in.keys() - positions_in.keys(), key=_java_order):
            share_out(room, positions)
        return Plan(tuple(claim.member for claim in claims), tuple(map(tuple, shares)))

    return allocate


def _by_room(things: Sequence[T], room_of: Callable[[T], str]) -> Mapping[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for thing in things:
        rooms.setdefault(room_of(thing), []).append(thing)
    return rooms


def _named(room: str, whose: object) -> str:
    if not room:
        raise ConfigError(f"no machine room for {whose!r}; the room function must name one")
    return room


def _java_order(text: str) -> bytes:
    """Sort key that orders strings by UTF-16 units, as Java's TreeMap does."""
    return text.encode("utf-16-be", "surrogatepass")
