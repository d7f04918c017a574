"""Records of KIP-848 groups: a static member that comes back has another id, but there is no new epoch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from steelyard.incident.kafka.broker_log import COORDINATOR, UNLOADED, Evidence
from steelyard.incident.kafka.costs import costs
from steelyard.incident.kafka.offsets_topic import CommitSeries, GroupHistory, GroupRecord
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.coordinator_records import (
    CONSUMER_GROUP_CURRENT,
    CONSUMER_GROUP_MEMBER_METADATA,
    CONSUMER_GROUP_METADATA,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    CurrentPartitions,
    GroupKey,
    MemberKey,
)

TOPIC_ID = b"\1" * 16
SUBSCRIBED = CONSUMER_GROUP_MEMBER_METADATA.number
CURRENT = CONSUMER_GROUP_CURRENT.number


def epoch(at: int, number: int) -> GroupRecord:
    value = ConsumerGroupMetadataValue(number)
    return GroupRecord(at, CONSUMER_GROUP_METADATA.number, GroupKey("g"), value)


def comes(at: int, member: str, instance: str | None, *partitions: int) -> list[GroupRecord]:
    key = MemberKey("g", member)
    subscribed = ConsumerGroupMemberMetadataValue(instance, None, "c", "/h", ("T",))
    held = ConsumerGroupCurrentMemberAssignmentValue(
        2, 1, assigned_partitions=(CurrentPartitions(TOPIC_ID, partitions),)
    )
    return [GroupRecord(at, SUBSCRIBED, key, subscribed), GroupRecord(at, CURRENT, key, held)]


def gets(at: int, member: str, *partitions: int) -> GroupRecord:
    """A member has these from now on."""
    return comes(at, member, None, *partitions)[1]


def goes(at: int, member: str) -> list[GroupRecord]:
    return [GroupRecord(at, kind, MemberKey("g", member), None) for kind in (CURRENT, SUBSCRIBED)]


def history(records: Sequence[GroupRecord], silent: range) -> GroupHistory:
    """Both partitions are committed each second, but in that time."""
    commits = {TopicPartition("T", number): CommitSeries() for number in range(2)}
    for series in commits.values():
        for at in range(1_000, 60_000, 1_000):
            if at not in silent:
                series.at.append(at)
                series.offsets.append(at)
    return GroupHistory("g", commits, list(records))


def test_a_static_member_that_comes_back() -> None:
    records = [epoch(500, 2), *comes(500, "a", "i", 0), *comes(500, "b", None, 1)]
    records += [*goes(30_500, "a"), *comes(30_500, "d", "i", 0)]
    found = costs(history(records, range(28_000, 32_000)), {TOPIC_ID: "T"})
    first, second = found.rebalances
    assert (first.trigger, first.members_after) == ("joined", ("c-a", "c-b"))
    assert (second.trigger, second.started_at, second.generation) == ("static", 30_500, 2)
    assert (second.members_before, second.members_after) == (("c-a", "c-b"), ("c-b", "c-d"))
    moved, stalled = (row for row in found.handoffs if row.rebalance == second.rebalance)
    assert (moved.kind, moved.queue, moved.from_client, moved.to_client) == (
        "moved",
        0,
        "c-a",
        "c-d",
    )
    assert (moved.pause_ms, moved.pause_error_ms) == (4_000, 1_000)
    assert (stalled.kind, stalled.queue, stalled.from_client) == ("stalled", 1, "c-b")
    assert [(one.client, one.start, one.end) for one in found.holdings if not one.queue] == [
        ("c-a", 500, 30_500),
        ("c-d", 30_500, 59_000),
    ]


def test_an_epoch_that_is_told_again_with_its_target_is_no_other_one() -> None:
    records = [
        epoch(10_000, 1),
        *comes(10_000, "m1", None, 0, 1),
        epoch(20_000, 2),
        *comes(20_000, "m2", None),
        epoch(21_000, 2),
        gets(21_050, "m1", 0),
        gets(21_100, "m2", 1),
    ]
    rows = costs(history(records, range(0)), {TOPIC_ID: "T"}).rebalances
    assert [(row.started_at, row.trigger) for row in rows] == [
        (10_000, "joined"),
        (20_000, "joined"),
    ]


def test_another_member_is_no_static_one() -> None:
    """Without a new epoch, members that come and go are of the epoch that follows."""
    records = [epoch(500, 2), *comes(500, "a", "i", 0, 1)]
    records += [*goes(30_500, "a"), *comes(30_500, "d", "j", 0, 1), epoch(30_600, 3)]
    found = costs(history(records, range(0)), {TOPIC_ID: "T"})
    assert "static" not in {row.trigger for row in found.rebalances}


def test_one_commit_that_was_refused_is_no_stall() -> None:
    records = [epoch(500, 2), *comes(500, "a", None, 0, 1)]
    records += [epoch(30_500, 3), *comes(30_500, "b", None)]
    for silent, stalled in ((range(30_000, 31_000), 0), (range(30_000, 32_001), 2)):
        found = costs(history(records, silent), {TOPIC_ID: "T"})
        joined = found.rebalances[1]
        assert (joined.trigger, joined.queues_moved) == ("joined", 0)
        assert joined.queues_stalled == stalled, silent


ROLLING = (
    epoch(500, 2),
    *(*comes(500, "a", None, 0), *comes(500, "b", None, 1)),
    *(*goes(30_200, "a"), epoch(30_200, 3), gets(30_300, "b", 0, 1)),
    *(epoch(30_400, 4), *comes(30_400, "e", None)),
)
"""a leaves, and b gets its partition before e joins and gets none: within one commit interval."""


@pytest.mark.parametrize(
    ("silent", "pause_ms", "stalled"),
    [(range(0), 500, []), (range(30_001, 35_000), 4_350, [1])],
)
def test_a_pause_that_outlasts_the_next_rebalance(
    silent: range, pause_ms: int, stalled: list[int]
) -> None:
    """It is that of the move. What was nobody else's before the pause, stood still."""
    found = costs(history(ROLLING, silent), {TOPIC_ID: "T"})
    _, left, joined = found.rebalances
    assert (left.trigger, joined.trigger) == ("left (unregistered)", "joined")
    (moved,) = (row for row in found.handoffs if row.rebalance == left.rebalance)
    assert (moved.queue, moved.kind, moved.from_client, moved.to_client) == (
        0,
        "moved",
        "c-a",
        "c-b",
    )
    assert (moved.pause_ms, moved.pause_error_ms) == (pause_ms, 500 if not silent else 650)
    assert [
        (row.queue, row.kind) for row in found.handoffs if row.rebalance == joined.rebalance
    ] == [(queue, "stalled") for queue in stalled]


def test_a_pause_is_unknown_if_the_partition_moves_again() -> None:
    """The last of its owners has the whole of it."""
    records = [*ROLLING, gets(30_450, "b", 1), gets(30_500, "e", 0)]
    found = costs(history(records, range(0)), {TOPIC_ID: "T"})
    _, left, joined = found.rebalances
    moves = {row.rebalance: row for row in found.handoffs if row.kind == "moved"}
    assert (moves[left.rebalance].to_client, moves[left.rebalance].pause_ms) == ("c-b", None)
    last = moves[joined.rebalance]
    assert (last.from_client, last.to_client) == ("c-b", "c-e")
    assert (last.last_commit_ms, last.first_commit_ms) == (30_000, 31_000)


def test_a_pause_is_unknown_if_the_coordinator_restarts() -> None:
    """What the new owner commits first may have been processed long before."""
    lines = [Evidence(30_500, "g", "", UNLOADED, ""), Evidence(30_900, "g", "", COORDINATOR, "")]
    found = costs(history(ROLLING, range(0)), {TOPIC_ID: "T"}, lines)
    (left,) = (row for row in found.rebalances if row.trigger == "left (unregistered)")
    (moved,) = (row for row in found.handoffs if row.rebalance == left.rebalance)
    assert (moved.last_commit_ms, moved.first_commit_ms, moved.pause_ms) == (30_000, None, None)
