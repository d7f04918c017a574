"""What members that join one after the other cost a KIP-848 group's coordinator: targets, CPU, and until each has its share.

`.venv/bin/python bench/storms.py` prints the tables of docs/REBALANCING.md, that of classic groups (`classic_storms`)
second; `--tiny` is a grid of a second. The production coordinator runs in virtual time, with members that send their
heartbeats when they were told to, wait for answers, and give up partitions at once; CPU is that of the coordinator
alone, without wire formats, ledger and disk.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if Path(entry).resolve() != HERE)]

from tests.groups.kafka.consumer.conftest import NOW, World, label_of, told  # noqa: E402

from bench import classic_storms  # noqa: E402
from steelyard.config import KafkaConfig, StoreConfig  # noqa: E402
from steelyard.groups.kafka.consumer.group import ConsumerGroup  # noqa: E402
from steelyard.groups.kafka.consumer.groups import ConsumerGroups  # noqa: E402
from steelyard.groups.kafka.coordinator import Coordinator  # noqa: E402
from steelyard.groups.kafka.effects import Effects, Replied  # noqa: E402
from steelyard.groups.kafka.groups import Asker, CoordinatedGroups  # noqa: E402
from steelyard.store.memory import MemoryDisk  # noqa: E402
from steelyard.store.store import Store  # noqa: E402
from steelyard.types import TopicPartition  # noqa: E402
from steelyard.wire.kafka.messages.consumer_groups import (  # noqa: E402
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

GROUP = "g"
SETTLE_MS = 60_000
"""Longest time after the last join."""


class Storm(NamedTuple):
    members: int
    partitions: int
    gap_ms: int


GRID = (Storm(50, 64, 100), Storm(50, 64, 1_000), Storm(500, 1_000, 0), Storm(500, 1_000, 50))
TINY = (Storm(8, 8, 20),)
CLASSIC_GRID = ((50, 20), (50, 100), (50, 1_000))
CLASSIC_TINY = ((8, 20),)
"""Members, and how many ms apart they join."""


class Cost(NamedTuple):
    targets: int
    heartbeats: int
    cpu_s: float
    mean_s: float
    """Until a member that joined had its first partition."""
    longest_s: float
    settled_s: float
    """From the first join until everybody has the share of the last target."""


class Member:
    """A client of the protocol; `link` is also its number."""

    def __init__(self, link: int) -> None:
        self.link = link
        self.member_id = f"m{link:04}"
        self.epoch = 0
        self.owned: frozenset[TopicPartition] = frozenset()
        self.reports = False
        self.joined_at: int | None = None
        self.first_at: int | None = None
        self.sent_at = 0

    def request(self, now: int) -> ConsumerGroupHeartbeatRequest:
        self.sent_at = now
        if self.epoch == 0:
            return ConsumerGroupHeartbeatRequest(
                GROUP,
                self.member_id,
                0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
        owned = told(self.owned) if self.reports else None
        self.reports = False
        return ConsumerGroupHeartbeatRequest(
            GROUP, self.member_id, self.epoch, topic_partitions=owned
        )

    def heard(self, answer: ConsumerGroupHeartbeatResponse, now: int) -> int:
        """Take an answer; return when to send the next heartbeat."""
        assert not answer.error_code, answer.error_message
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            given = frozenset(
                TopicPartition(label_of(part.topic_id), number)
                for part in answer.assignment.topic_partitions
                for number in part.partitions
            )
            if given != self.owned:
                self.owned, self.reports = given, True
                if given and self.first_at is None:
                    self.first_at = now
                return now  # clients report changes at once
        # librdkafka's interval counts from the heartbeat before.
        return max(now, self.sent_at + answer.heartbeat_interval_ms)


def play(storm: Storm, window_max_ms: int) -> Cost:
    """One storm, with this `group_join_window_max_ms`."""
    config = KafkaConfig(
        group_join_window_max_ms=window_max_ms, offsets_retention_check_interval_ms=10**12
    )
    store = Store(MemoryDisk(), StoreConfig())
    store.open(NOW)
    groups, world, rng = CoordinatedGroups(), World(t=storm.partitions), random.Random(1)
    tables = (store.table("kafka_groups"), store.table("kafka_offsets"))
    coordinator = Coordinator(config, groups, world, *tables, rng, NOW)
    table = store.table("kafka_consumer_groups")
    consumers = ConsumerGroups(config, world, groups, table, rng, coordinator)
    members = [Member(link) for link in range(storm.members)]
    queue = [(NOW + one.link * storm.gap_ms, one.link) for one in members]
    targets, heartbeats, cpu, now = 0, 0, 0, NOW
    assigned_epoch = settled_at = 0
    end = queue[-1][0] + SETTLE_MS
    while now < end:
        due_at = consumers.next_at
        at = queue[0][0] if queue else end
        effects: Effects = []
        if due_at is not None and due_at < at:
            now = max(now, due_at)
            begun = time.process_time_ns()
            consumers.due(now, effects)
        elif queue:
            now, link = max(now, at), heapq.heappop(queue)[1]
            member, heartbeats = members[link], heartbeats + 1
            member.joined_at = now if member.joined_at is None else member.joined_at
            request, asker = member.request(now), Asker("app", "/10.0.0.1", link, "bench")
            begun = time.process_time_ns()
            answer = consumers.heartbeat(request, 1, asker, now, effects, link)
            if answer is not None:
                effects.append(Replied(link, answer))
        else:
            break
        consumers.wake(now, effects)
        cpu += time.process_time_ns() - begun
        group = groups.get(GROUP)
        assert isinstance(group, ConsumerGroup)
        if group.assignment_epoch != assigned_epoch:
            targets, assigned_epoch, settled_at = targets + 1, group.assignment_epoch, 0
        for effect in effects:
            if isinstance(effect, Replied):
                assert isinstance(effect.handle, int)
                assert isinstance(effect.message, ConsumerGroupHeartbeatResponse)
                next_at = members[effect.handle].heard(effect.message, now)
                heapq.heappush(queue, (next_at, effect.handle))
        if all(one.joined_at for one in members) and not settled_at and group.state == "Stable":
            settled_at = now
        if settled_at and now > settled_at + 2 * config.group_consumer_heartbeat_interval_ms:
            break
    assert settled_at, "it did not settle"
    waits = [one.first_at - (one.joined_at or 0) for one in members if one.first_at is not None]
    assert len(waits) == len(members)
    return Cost(
        targets,
        heartbeats,
        cpu / 1e9,
        sum(waits) / len(waits) / 1e3,
        max(waits) / 1e3,
        (settled_at - NOW) / 1e3,
    )


def table(grid: Sequence[Storm]) -> str:
    lines = [
        "| members, partitions, apart | window | targets | heartbeats | CPU | first share: mean, longest | settled |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for storm in grid:
        for window_max_ms in (0, KafkaConfig().group_join_window_max_ms):
            cost = play(storm, window_max_ms)
            lines.append(
                f"| {storm.members}, {storm.partitions}, {storm.gap_ms} ms | {window_max_ms} ms |"
                f" {cost.targets} | {cost.heartbeats} | {cost.cpu_s:.2f} s |"
                f" {cost.mean_s:.2f} s, {cost.longest_s:.2f} s | {cost.settled_s:.2f} s |"
            )
            print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    is_tiny = parser.parse_args().tiny
    print(table(TINY if is_tiny else GRID))
    print()
    print(classic_storms.table(CLASSIC_TINY if is_tiny else CLASSIC_GRID))
