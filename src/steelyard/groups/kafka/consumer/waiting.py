"""Heartbeats of KIP-848 groups that wait for news, and the interval that each answer tells.

- A heartbeat without news for its member waits. It is answered as soon as its member has to give up
  partitions or gets some (`groups.ConsumerGroups.wake`). A higher epoch of the group is no news.
- A member that has yet to give up partitions is answered at once, and so is one that reports what
  it owns: clients send their next heartbeat only after the answer, and librdkafka goes on only
  after the answer to its report (WAIT_ACK).
- An answer tells a short interval while something is under way for its member: it has just changed,
  has to give up partitions, or has yet to get some. Otherwise it tells the usual one. An answer
  that another request has released tells a short one as well: otherwise the member would hear of
  nothing for a whole interval (Java counts a new interval from the answer).
- Java, and our own member, count an interval from the answer (COUNTING_FROM_ANSWERS): after a wait
  they are told a short one, and wait again.
- librdkafka counts it from the heartbeat, and uses the interval that it was told last as the
  time-out of the next heartbeat. It looks for requests that are over their time-outs once a second,
  and then closes the connection. So a wait leaves it 750 ms of that for the way, on busy machines
  as well; after a short interval it does not wait at all. The interval told grows step by step: it
  is what was waited and UNHEARD_MS, so that nobody is without news for longer. An answer with news,
  or released by another request, tells what was waited, if that is longer than the short interval:
  the next heartbeat comes at once as well, and can wait. Other clients are taken to be like
  librdkafka.
- A member of the classic protocol is told no interval. Its Heartbeat waits as in a classic group,
  until it must join again (`classic_members`).

What else ends a wait, and when nobody waits, is in `groups.kafka.waiting`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from steelyard.config import KafkaConfig
from steelyard.groups.kafka.consumer.group import SESSION, ConsumerGroup
from steelyard.groups.kafka.consumer.member import ConsumerGroupMember, ConsumerGroupMemberState
from steelyard.groups.kafka.effects import Effects, Handle, Replied
from steelyard.groups.kafka.groups import Asker
from steelyard.groups.kafka.timers import Timers
from steelyard.groups.kafka.times import GroupTimes
from steelyard.groups.kafka.waiting import (
    COUNTING_FROM_ANSWERS,
    LateMessage,
    LateReplies,
    Waiter,
    may_wait,
    wait_ms,
)
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from steelyard.wire.kafka.messages.groups import HeartbeatResponse

SHORT_MS = 100
"""The interval that is told while something is under way for a member, if it is no time-out."""

SHORT_TIMEOUT_MS = 200
"""The same for clients that use it as a time-out, too, which busy brokers have to meet."""

MARGIN_MS = 750
"""What a wait leaves of a heartbeat's time-out: 15 % of the usual 5 s."""

UNHEARD_MS = 1_500
"""Longest time from the end of a wait to the next heartbeat."""

FLEXIBLE_VERSION = 4
"""All versions of this request are flexible, as Heartbeat is from this version on."""


class Pace(msgspec.Struct):
    """What a member was told last.

    `counts_from_answers`: its client does, and has a time-out of its own;
    `reports`: it has yet to report that it has changed.
    """

    told_ms: int
    counts_from_answers: bool = False
    reports: bool = False

    @property
    def wait_ms(self) -> int:
        """Return how long its next heartbeat may wait if what was told is its time-out."""
        return max(self.told_ms - MARGIN_MS, 0)


class LateHeartbeats(LateReplies):
    """The heartbeats that wait, and the pace of each member. `enabled`: otherwise nobody waits."""

    def __init__(self, config: KafkaConfig, times: GroupTimes, *, enabled: bool) -> None:
        super().__init__()
        self.enabled = enabled
        self._times = times
        self._wait_max_ms = config.group_heartbeat_wait_max_ms
        self._paces: dict[tuple[str, str], Pace] = {}

    # -- what a member is told -------------------------------------------------------------------

    def heard(self, group_id: str, member_id: str, software: str) -> None:
        """Note the client of a member, from which a heartbeat came."""
        if self.enabled:
            pace = self._pace(group_id, member_id)
            pace.counts_from_answers = software in COUNTING_FROM_ANSWERS

    def short_ms(self, group_id: str, member_id: str, waited_ms: int = 0) -> int:
        """Return the interval of a member for which something is under way.

        With it, the next heartbeat comes soon after an answer that waited so long.
        """
        counts_from_answers = self._pace(group_id, member_id).counts_from_answers
        short_ms = SHORT_MS if counts_from_answers else max(SHORT_TIMEOUT_MS, waited_ms)
        return min(short_ms, self._times.heartbeat_interval_ms(group_id))

    def interval_ms(
        self,
        group_id: str,
        member: ConsumerGroupMember,
        *,
        changed: bool,
        reported: bool,
        waited_ms: int = 0,
        usual_ms: int | None = None,
    ) -> int:
        """Return the interval to tell a member, in an answer that comes now.

        `changed`: by this heartbeat; `reported`: it has told what it owns; `waited_ms`: since the
        heartbeat; `usual_ms`: for a member for which nothing is under way, if it is not the
        configured one.
        """
        configured_ms = self._times.heartbeat_interval_ms(group_id)
        if not self.enabled:
            return configured_ms
        pace = self._pace(group_id, member.member_id)
        told_ms = usual_ms or configured_ms
        if changed or (reported and pace.reports) or not _is_stable(member):
            told_ms = self.short_ms(group_id, member.member_id, waited_ms)
        elif reported or not pace.wait_ms:  # so it could not wait
            told_ms = min(told_ms, UNHEARD_MS)
        pace.reports, pace.told_ms = changed, told_ms
        return told_ms

    def forget(self, group_id: str, member_id: str) -> None:
        """Forget a member that is none any more."""
        self._paces.pop((group_id, member_id), None)

    # -- waiting ---------------------------------------------------------------------------------

    def wait(
        self,
        group_id: str,
        member: ConsumerGroupMember,
        asker: Asker,
        handle: Handle,
        now: int,
        effects: Effects,
        *,
        usual_ms: int | None = None,
    ) -> bool:
        """Let a heartbeat without news wait if it may; return whether it does.

        None of its member may still wait. `usual_ms`: see `interval_ms`.
        """
        self.released(asker.link, now, effects)
        if (
            not self.enabled
            or member.state is ConsumerGroupMemberState.UNREVOKED_PARTITIONS
            or not may_wait(asker, FLEXIBLE_VERSION)
        ):
            return False
        most_ms = self._limits.limited(group_id, member.member_id, self._wait_max_ms)
        pace = self._pace(group_id, member.member_id)
        if not pace.counts_from_answers:
            most_ms = min(most_ms, pace.wait_ms)
        time_ms = wait_ms(most_ms, self._times.session_timeout_ms(group_id))
        if not time_ms:
            return False
        usual_ms = usual_ms or self._times.heartbeat_interval_ms(group_id)
        is_short = pace.counts_from_answers or not _is_stable(member)
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.short_ms(group_id, member.member_id, time_ms)
            if is_short
            else min(usual_ms, time_ms + UNHEARD_MS),
        )
        due_at = now + time_ms
        self._waiting.add(
            Waiter(group_id, member.member_id, handle, asker.link, answer, now, due_at)
        )
        return True

    def wait_classic(
        self,
        group_id: str,
        member_id: str,
        session_timeout_ms: int,
        asker: Asker,
        version: int,
        handle: Handle,
        now: int,
        effects: Effects,
    ) -> bool:
        """Let the Heartbeat of a member of the classic protocol wait if it may, as `wait` does."""
        self.released(asker.link, now, effects)
        if not self.enabled or not may_wait(asker, version):
            return False
        answer, most_ms = HeartbeatResponse(), self._wait_max_ms
        return self._await(
            group_id, member_id, asker.link, handle, answer, most_ms, session_timeout_ms, now
        )

    def left(self, group_id: str, member_id: str, error: ErrorCode, effects: Effects) -> None:
        """Answer a member that is away or replaced, and forget what it was told."""
        self.gone(group_id, member_id, error, effects)
        self.forget(group_id, member_id)

    def _early(self, waiter: Waiter, now: int) -> LateMessage:
        if isinstance(waiter.message, HeartbeatResponse):
            return waiter.message
        assert isinstance(waiter.message, ConsumerGroupHeartbeatResponse)
        short_ms = self.short_ms(waiter.group_id, waiter.member_id, now - waiter.since)
        self._pace(waiter.group_id, waiter.member_id).told_ms = short_ms
        return msgspec.structs.replace(waiter.message, heartbeat_interval_ms=short_ms)

    def _pace(self, group_id: str, member_id: str) -> Pace:
        key = group_id, member_id
        if key not in self._paces:
            self._paces[key] = Pace(self._times.heartbeat_interval_ms(group_id))
        return self._paces[key]

    def due(self, now: int, effects: Effects) -> None:
        """Answer those that have waited long enough."""
        for waiter in self._waiting.due(now):
            if isinstance(waiter.message, ConsumerGroupHeartbeatResponse):
                pace = self._pace(waiter.group_id, waiter.member_id)
                pace.told_ms = waiter.message.heartbeat_interval_ms
            effects.append(Replied(waiter.handle, waiter.message))

    def check(self, groups: Iterable[ConsumerGroup], timers: Timers) -> None:
        """Assert that those who wait have nothing to give up, and that no session ends before."""
        self._waiting.check()
        known = {group.group_id: group for group in groups}
        for group_id in self._waiting.groups():
            for waiter in self._waiting.of_group(group_id):
                member = known[group_id].member(waiter.member_id)
                assert member is not None
                assert member.state is not ConsumerGroupMemberState.UNREVOKED_PARTITIONS
                ends = timers.at((group_id, SESSION, waiter.member_id))
                assert ends is not None
                assert waiter.due_at < ends
        for group_id, member_id in self._paces:
            assert known[group_id].member(member_id) is not None


def _is_stable(member: ConsumerGroupMember) -> bool:
    return member.state is ConsumerGroupMemberState.STABLE
