"""What members that join one after the other cost a classic group: rebalances, and for how long members stand still.

Part of `bench/storms.py`. The production coordinator in virtual time, with members of an eager assignor, which read
nothing from the answer that tells them to rejoin until they have their new share. Each answer takes its member
`REACTION_MS`. Members wait with heartbeats, as with delayed answers.
"""

from __future__ import annotations

import heapq
import random
from typing import NamedTuple

from tests.groups.kafka.conftest import GROUP, START, Topics, assignment, subscription

from steelyard.config import KafkaConfig, StoreConfig
from steelyard.groups.kafka.coordinator import Coordinator
from steelyard.groups.kafka.effects import Began, Effects, Replied
from steelyard.groups.kafka.groups import Asker, CoordinatedGroups
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

REACTION_MS = 5
SESSION_MS = 45_000
HEARTBEAT_MS = 3_000
PROTOCOL = (JoinGroupRequestProtocol("range", subscription()),)


class ClassicCost(NamedTuple):
    rebalances: int
    joins: int
    stopped_s: float
    """For how long the first member read nothing."""
    mean_s: float
    """From a newcomer's first request to its share."""
    longest_s: float


class Member:
    """A client of the classic protocol; `link` is also its number."""

    def __init__(self, link: int, came_at: int) -> None:
        self.link, self.came_at = link, came_at
        self.asker = Asker(f"c{link}", "/10.0.0.1", link, "bench")
        self.member_id, self.generation, self.must = "", -1, "join"
        self.led: tuple[str, ...] = ()
        self.first_at: int | None = None
        self.stopped_at: int | None = came_at
        self.stopped_ms = 0

    def heard(self, message: ApiMessage, now: int) -> int:
        """Take an answer; return when to send the next request."""
        if isinstance(message, JoinGroupResponse):
            self.member_id = message.member_id or self.member_id
            if message.error_code == ErrorCode.NONE:
                self.generation, self.must = message.generation_id, "sync"
                self.led = tuple(one.member_id for one in message.members)
            return now + REACTION_MS
        assert isinstance(message, SyncGroupResponse | HeartbeatResponse)
        if message.error_code != ErrorCode.NONE:
            self.must = "join"
            self.stopped_at = now if self.stopped_at is None else self.stopped_at
            return now + REACTION_MS
        if isinstance(message, SyncGroupResponse):
            self.must = "beat"
            self.first_at = now if self.first_at is None else self.first_at
            self.stopped_ms += now - (self.stopped_at if self.stopped_at is not None else now)
            self.stopped_at = None
            return now + REACTION_MS
        return now + REACTION_MS  # waits again, as soon as it was answered


def play(count: int, gap_ms: int, window_max_ms: int) -> ClassicCost:
    """So many members, one every `gap_ms`, with this `group_join_window_max_ms`."""
    config = KafkaConfig(
        group_join_window_max_ms=window_max_ms, offsets_retention_check_interval_ms=10**12
    )
    store = Store(MemoryDisk(), StoreConfig())
    store.open(START)
    tables = (store.table("kafka_groups"), store.table("kafka_offsets"))
    coordinator = Coordinator(
        config, CoordinatedGroups(), Topics(), *tables, random.Random(1), START
    )
    members = [Member(link, START + link * gap_ms) for link in range(count)]
    queue = [(one.came_at, one.link) for one in members]
    rebalances = joins = 0
    now, end = START, members[-1].came_at + 2 * HEARTBEAT_MS
    while now < end:
        due_at, at = coordinator.next_at, queue[0][0] if queue else end
        effects: Effects = []
        if due_at is not None and due_at < at:
            now = max(now, due_at)
            coordinator.due(now, effects)
        elif queue:
            now, link = max(now, at), heapq.heappop(queue)[1]
            joins += members[link].must == "join"
            _send(coordinator, members[link], now, effects)
        else:
            break
        for effect in effects:
            rebalances += isinstance(effect, Began)
            if isinstance(effect, Replied):
                assert isinstance(effect.handle, int)
                heapq.heappush(
                    queue, (members[effect.handle].heard(effect.message, now), effect.handle)
                )
    waits = [one.first_at - one.came_at for one in members if one.first_at is not None]
    assert len(waits) == count
    first = members[0]
    return ClassicCost(
        rebalances, joins, first.stopped_ms / 1e3, sum(waits) / count / 1e3, max(waits) / 1e3
    )


def _send(coordinator: Coordinator, member: Member, now: int, effects: Effects) -> None:
    asker, handle = member.asker, member.link
    if member.must == "join":
        join = JoinGroupRequest(
            GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            member_id=member.member_id,
            protocol_type="consumer",
            protocols=PROTOCOL,
        )
        coordinator.join(join, 9, asker, handle, now, effects)
    elif member.must == "sync":
        shares = tuple(
            SyncGroupRequestAssignment(one, assignment([number]))
            for number, one in enumerate(member.led)
        )
        sync = SyncGroupRequest(
            GROUP, member.generation, member.member_id, None, "consumer", "range", shares
        )
        coordinator.sync(sync, 5, asker, handle, now, effects)
    else:
        beat = HeartbeatRequest(GROUP, member.generation, member.member_id)
        coordinator.heartbeat(beat, 4, asker, handle, now, effects)


def table(grid: tuple[tuple[int, int], ...]) -> str:
    """Members and gaps down, with and without the window."""
    lines = [
        "| classic, members, apart | window | rebalances | JoinGroups | first member stopped | share: mean, longest |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for count, gap_ms in grid:
        for window_max_ms in (0, KafkaConfig().group_join_window_max_ms):
            cost = play(count, gap_ms, window_max_ms)
            lines.append(
                f"| {count}, {gap_ms} ms | {window_max_ms} ms | {cost.rebalances} | {cost.joins} |"
                f" {cost.stopped_s:.2f} s | {cost.mean_s:.2f} s, {cost.longest_s:.2f} s |"
            )
    return "\n".join(lines)
