"""JoinGroups of newcomers to a classic group with members that wait before they are handled.

Until then the group knows nothing of them: its members go on reading. There are two reasons:

- **The window** (`groups.kafka.window`): newcomers that come one after the other are handled
  together, and so are one rebalance. They are handled earlier if a rebalance begins anyway: they
  take part in it. They also wait until the heartbeats of all members wait, for REACHED_MS at
  most: a member whose heartbeat does not wait, as after a rebalance or a commit, hears of the next
  rebalance up to an interval late, and those that heard of it first would stop reading and wait.
  While the leader assigns, newcomers to a group of Java clients do not wait: its members wait for
  the leader's answer then, and all rejoin at once. Other clients do so up to two seconds later
  (librdkafka), and read nothing meanwhile. A newcomer of librdkafka's to a group with a cooperative
  assignor waits for JOIN_AGAIN_MS at least: before that it would not come to the second round, in
  which it gets what others have given up in the first.
- **Damping** (`groups.flapping`): a member that joins and goes again and again has to wait, longer
  each time. A rebalance that begins anyway does not end this.

Both end when the group has no members any more, and when another request comes on the link, because
the answers of a link keep their order. A JoinGroup is dropped with its link. Members that rejoin
never wait, nor do static members that return: neither is a change.
"""

from __future__ import annotations

import msgspec

from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.classic.joining import Join
from steelyard.groups.kafka.classic.members import bytes_of, topics_of
from steelyard.groups.kafka.classic.state import ClassicGroupState
from steelyard.groups.kafka.classic.waiting import LateAnswers
from steelyard.groups.kafka.effects import Effects
from steelyard.groups.kafka.groups import Group
from steelyard.groups.kafka.timers import SESSION, Timers
from steelyard.groups.kafka.waiting import JAVA, is_librdkafka
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_protocol import PROTOCOL_TYPE

DEFERRED = "deferred"
"""Purpose of a group's timer: JoinGroups have waited long enough."""

REACHED_MS = 3_300
"""Time in which all members send a heartbeat: the usual interval, and some."""

JOIN_AGAIN_MS = 1_020
"""Time from one JoinGroup of librdkafka's to the next, unless it has given up partitions, and some.

Source: rdkafka_cgrp.c, rd_kafka_cgrp_join_state_serve (`rkcg_join_intvl`).
"""

COOPERATIVE = "cooperative-sticky"
"""The cooperative assignor of librdkafka."""

DEFERRED_MAX = 10_000
"""Most JoinGroups that wait, in all groups."""

DEFERRED_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes of their metadata."""


class DeferredJoin(msgspec.Struct, frozen=True, eq=False):
    """A JoinGroup that waits: for the end of the window, or until `until` if it is damped.

    `ready_at`: when its client can take part in a second round.
    """

    group_id: str
    join: Join
    until: int | None
    ready_at: int = 0


class DeferredJoins:
    """The JoinGroups that wait. The caller handles those that `take` and `released` return."""

    def __init__(self, timers: Timers, late: LateAnswers) -> None:
        self._timers = timers
        self._late = late
        self._by_group: dict[str, list[DeferredJoin]] = {}
        self._by_link: dict[int, list[DeferredJoin]] = {}
        self._count = self._bytes = 0

    def defer(self, group: ClassicGroup, join: Join, delay_ms: int, now: int) -> bool:
        """Let a JoinGroup wait; False: it is handled now. `delay_ms`: of a member that flaps."""
        if not _is_newcomer(group, join):
            if group.is_empty and _is_change(join):
                group.window.joined(now)
            return False
        has_room = (
            self._count < DEFERRED_MAX
            and self._bytes + bytes_of(join.protocols) <= DEFERRED_BYTES_MAX
        )
        if has_room and delay_ms and not join.request.member_id and _is_spared(group, join):
            self._add(group, join, now + delay_ms, now)
            return True
        if not _is_change(join):
            return False
        group.window.joined(now)
        ready_at = _ready_at(group, join, now)
        if not has_room or (ready_at <= now and self._is_over(group, now)):
            return False
        member_id = join.request.member_id
        if member_id:
            # Its id is not in use yet, and must not expire before.
            until = now + max(group.window.most_ms, REACHED_MS)
            if group.awaited_until is not None:  # the leader has yet to assign
                until = max(until, group.awaited_until + REACHED_MS)
            at = until + join.request.session_timeout_ms
            self._timers.set(group.key(SESSION, member_id), at)
        self._add(group, join, None, now, ready_at)
        return True

    def _is_over(self, group: ClassicGroup, now: int) -> bool:
        """Return whether newcomers that wait for the window are handled now."""
        if group.state is ClassicGroupState.COMPLETING and group.window.most_ms:
            return all(member.software == JAVA for member in group.members.values())
        if group.state is not ClassicGroupState.STABLE:
            return True
        if not group.window.is_due(now):
            return False
        since = group.window.since
        if not group.window.most_ms or since is None or now >= since + REACHED_MS:
            return True
        return now >= self._all_ready_at(group) and self._late.all_wait(group)

    def _all_ready_at(self, group: ClassicGroup) -> int:
        """Return when the clients of all newcomers that wait can take part in a second round."""
        waiting = self._by_group.get(group.group_id, ())
        return max((one.ready_at for one in waiting), default=0)

    def _add(
        self, group: ClassicGroup, join: Join, until: int | None, now: int, ready_at: int = 0
    ) -> None:
        one = DeferredJoin(group.group_id, join, until, ready_at)
        self._by_group.setdefault(group.group_id, []).append(one)
        self._by_link.setdefault(join.asker.link, []).append(one)
        self._count += 1
        self._bytes += bytes_of(join.protocols)
        self._time(group, now)

    def _time(self, group: ClassicGroup, now: int) -> None:
        """Set the timer for those that wait longest in the group."""
        waiting = self._by_group.get(group.group_id, ())
        times = [one.until for one in waiting if one.until is not None]
        if len(times) < len(waiting):
            times.append(self._look_at(group, now))
        key = group.key(DEFERRED)
        if times:
            self._timers.set(key, min(times))
        else:
            self._timers.drop(key)

    def _look_at(self, group: ClassicGroup, now: int) -> int:
        """Return when to see again whether the window is over."""
        if group.state is not ClassicGroupState.STABLE:
            return now + REACHED_MS  # earlier if the leader has assigned
        due_at, since = group.window.due_at, group.window.since
        assert due_at is not None
        assert since is not None
        due_at = max(due_at, min(self._all_ready_at(group), since + REACHED_MS))
        return due_at if now < due_at else since + REACHED_MS

    def take(self, group_id: str, group: Group | None, now: int) -> list[Join]:
        """Remove and return the JoinGroups to handle now. Call it after each event of a group."""
        waiting = self._by_group.get(group_id)
        if waiting is None:
            if isinstance(group, ClassicGroup) and group.state is not ClassicGroupState.STABLE:
                group.window.ended(now)
            return []
        is_over = isinstance(group, ClassicGroup) and self._is_over(group, now)
        if not isinstance(group, ClassicGroup) or group.is_empty:
            taken = list(waiting)
        else:
            taken = [one for one in waiting if (is_over if one.until is None else one.until <= now)]
        for one in taken:
            self._remove(one)
        if isinstance(group, ClassicGroup):
            if is_over:
                group.window.ended(now)
            self._time(group, now)
        return [one.join for one in taken]

    def released(self, link: int) -> list[Join]:
        """Remove and return the JoinGroups of a link on which something else came."""
        waiting = list(self._by_link.get(link, ()))
        for one in waiting:
            self._remove(one)
        return [one.join for one in waiting]

    def closed(self, link: int) -> None:
        """Drop the JoinGroups of a closed link."""
        self.released(link)

    def refused(self, group_id: str, error: ErrorCode, effects: Effects) -> None:
        """Answer those of a group that this coordinator does not serve any more."""
        for one in list(self._by_group.get(group_id, ())):
            self._remove(one)
            one.join.refused(error, effects, one.join.request.member_id)

    def damped(self, group_id: str) -> list[tuple[Join, int]]:
        """Return the JoinGroups of a group that are damped, with the end of their waits."""
        waiting = self._by_group.get(group_id, ())
        return [(one.join, one.until) for one in waiting if one.until is not None]

    def groups(self) -> list[str]:
        """Return the groups with JoinGroups that wait, sorted."""
        return sorted(self._by_group)

    def _remove(self, one: DeferredJoin) -> None:
        link = one.join.asker.link
        self._by_group[one.group_id].remove(one)
        self._by_link[link].remove(one)
        if not self._by_group[one.group_id]:
            del self._by_group[one.group_id]
        if not self._by_link[link]:
            del self._by_link[link]
        self._count -= 1
        self._bytes -= bytes_of(one.join.protocols)

    def check(self, groups: dict[str, ClassicGroup]) -> None:
        """Assert that nobody waits for ever, and that only groups with members keep one waiting."""
        assert self._count == sum(map(len, self._by_group.values()))
        assert self._count == sum(map(len, self._by_link.values()))
        for group_id, waiting in self._by_group.items():
            group = groups[group_id]
            assert waiting
            assert not group.is_empty
            assert self._timers.at(group.key(DEFERRED)) is not None
            if any(one.until is None for one in waiting):
                states = (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING)
                assert group.state in states
                assert group.window.due_at is not None


def _is_newcomer(group: ClassicGroup, join: Join) -> bool:
    """Return whether a request is of a client that is not a member yet."""
    member_id, instance_id = join.request.member_id, join.request.group_instance_id
    if group.is_empty or group.state is ClassicGroupState.DEAD:
        return False
    if instance_id is not None:
        return not member_id and instance_id not in group.static
    return not member_id or member_id in group.pending


def _is_change(join: Join) -> bool:
    """Return whether a newcomer's request adds it to the group, and does not only get it an id."""
    request = join.request
    return bool(request.member_id) or request.group_instance_id is not None or join.version < 4


def _ready_at(group: ClassicGroup, join: Join, now: int) -> int:
    """Return when the client of a newcomer can take part in a second round."""
    has_rounds = group.state is ClassicGroupState.STABLE and group.protocol == COOPERATIVE
    if has_rounds and group.window.most_ms and is_librdkafka(join.asker.software):
        return now + JOIN_AGAIN_MS
    return now


def _is_spared(group: ClassicGroup, join: Join) -> bool:
    """Return whether the group can do without a newcomer: others read its topics."""
    topics = topics_of(join.request.protocol_type, join.protocols)
    return join.request.protocol_type == PROTOCOL_TYPE == group.protocol_type and all(
        group.subscribes_to(topic) for topic in topics
    )
