"""Each ailment of Kafka's groups found, and a healthy group left alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from steelyard.groups.doctor import Ailment
from steelyard.groups.kafka.doctor import AWAITED_MS, EXPIRED_MIN, EXPIRED_MS, diagnose
from steelyard.groups.kafka.effects import EXPIRED, LEFT
from steelyard.groups.kafka.report import (
    KafkaAwaited,
    KafkaFlapping,
    KafkaGroupMember,
    KafkaGroupReport,
    KafkaOffset,
    KafkaRebalance,
)
from steelyard.types import TopicPartition

NOW = 1_700_000_000_000


def member(name: str, *partitions: int, topic: str = "T") -> KafkaGroupMember:
    held = tuple(TopicPartition(topic, number) for number in partitions)
    return KafkaGroupMember(f"{name}-id", name, "/10.0.0.7", None, held)


def row(
    partition: int, offset: int | None, end: int | None, reader: str = "a-id", topic: str = "T"
) -> KafkaOffset:
    return KafkaOffset(topic, partition, "broker-a", partition, offset, reader, end)


HEALTHY = KafkaGroupReport(
    group="g",
    kind="classic",
    state="Stable",
    coordinator="broker-a",
    generation=3,
    assignor="range",
    leader="a-id",
    members=(member("a", 0), member("b", 1)),
    rebalances=(KafkaRebalance(NOW - 1_000, 2, LEFT, "c left"),),
    began_at=None,
    awaited=(),
    offsets=(row(0, 5, 9), row(1, None, 4, "b-id"), row(2, 4, None, "", "Gone")),
)
LATE = KafkaAwaited("a-id", "a", "/10.0.0.7", "JoinGroup", NOW - AWAITED_MS - 2_500, NOW + 30_000)


def expired(times: int, at: int) -> tuple[KafkaRebalance, ...]:
    return tuple(KafkaRebalance(at, n, EXPIRED, f"c{n} said nothing") for n in range(times))


def test_a_healthy_group() -> None:
    assert diagnose(HEALTHY, NOW) == []
    connect = replace(HEALTHY, assignor="sessioned", members=(member("a"), member("b")))
    assert diagnose(connect, NOW) == [], "what Kafka Connect shares out are not partitions"


@pytest.mark.parametrize(
    ("report", "ailment", "said"),
    [
        (
            replace(HEALTHY, members=(), state="Empty"),
            Ailment.NOBODY,
            "no member of group g is onl",
        ),
        (
            replace(HEALTHY, state="PreparingRebalance", began_at=NOW - 20_000, awaited=(LATE,)),
            Ailment.MEMBER_AWAITED,
            "waiting for a/10.0.0.7 for 12 s: JoinGroup; the group continues without it in 30 s",
        ),
        (
            replace(
                HEALTHY,
                began_at=NOW - 20_000,
                awaited=(replace(LATE, since=None, until=None, what="Heartbeat"),),
            ),
            Ailment.MEMBER_AWAITED,
            "waiting for a/10.0.0.7 for 20 s: Heartbeat",
        ),
        (
            replace(HEALTHY, rebalances=expired(EXPIRED_MIN, NOW - EXPIRED_MS + 1)),
            Ailment.MEMBERS_EXPIRE,
            "stopped sending heartbeats 3 times in the last ten minutes; most recently: c2 said nothing",
        ),
        (
            replace(HEALTHY, flapping=(KafkaFlapping("a/10.0.0.7", 4, NOW - 9_000, NOW + 3_000),)),
            Ailment.MEMBER_FLAPS,
            "a/10.0.0.7 has joined and gone 4 times in the last half an hour, each time within a"
            " minute; it is kept waiting for 3 s",
        ),
        (
            replace(HEALTHY, members=(*HEALTHY.members, member("c"), member("d"))),
            Ailment.MEMBER_IDLE,
            "c, d read no partition; the group has 4 members for 2 partitions",
        ),
        (
            replace(HEALTHY, members=(member("a"), member("b")), offsets=()),
            Ailment.MEMBER_IDLE,
            "no member of the group reads any partition; it has 2 members",
        ),
        (
            replace(HEALTHY, offsets=(row(0, 5, 9), row(2, 3, 4, ""), row(3, 4, 4, ""))),
            Ailment.QUEUE_WITHOUT_MEMBER,
            "T-2 have messages, but no member reads them",
        ),
        (
            replace(HEALTHY, offsets=(row(0, 3, 4, "", "Old"), row(0, 4, 4, "", "Done"))),
            Ailment.TOPIC_NOT_READ,
            "offsets of Old, where messages wait",
        ),
        (
            replace(HEALTHY, offsets=(row(0, 10, 9), row(1, 9, 9, "b-id"))),
            Ailment.OFFSET_BEYOND_END,
            "offsets of T-0 are beyond",
        ),
    ],
)
def test_ailments(report: KafkaGroupReport, ailment: Ailment, said: str) -> None:
    (finding,) = diagnose(report, NOW)
    assert finding.ailment is ailment
    assert said in finding.what


def test_a_group_that_has_just_begun_to_rebalance_is_not_ill() -> None:
    early = replace(LATE, since=NOW - AWAITED_MS)
    idle = (*HEALTHY.members, member("c"))
    report = replace(HEALTHY, began_at=NOW - AWAITED_MS, awaited=(early,), members=idle)
    assert diagnose(report, NOW) == []


def test_members_that_fell_silent_long_ago_are_forgotten() -> None:
    long_ago = expired(5, NOW - EXPIRED_MS)
    few = expired(EXPIRED_MIN - 1, NOW)
    assert diagnose(replace(HEALTHY, rebalances=(*long_ago, *few)), NOW) == []
