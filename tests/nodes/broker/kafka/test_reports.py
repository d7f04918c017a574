"""What brokers answer an operator who asks of Kafka groups (9101)."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeVar

import msgspec
import pytest
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.requests import committing

from steelyard.groups.kafka.report import KafkaGroup, KafkaGroupReport, KafkaOffset
from steelyard.nodes.broker.kafka.groups import reports
from steelyard.wire.kafka.messages.cluster import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitResponse,
)
from steelyard.wire.remoting.codes import ResponseCode, SteelyardCode

NAMES = ("broker-a", "broker-b")
GROUPS = [f"group-{number}" for number in range(8)]
KAFKA_GROUPS = SteelyardCode.KAFKA_GROUPS

T = TypeVar("T")


@pytest.fixture
def brokers() -> Brokers:
    """Two, with a topic of four partitions; each group has committed its number of each partition."""
    brokers = Brokers(*NAMES)
    brokers.create("broker-a", "orders", 4)
    for group, name in coordinators(brokers).items():
        request = committing(group, "orders", dict.fromkeys(range(4), GROUPS.index(group)))
        brokers.ask(name, request, 8, OffsetCommitResponse)
    return brokers


def coordinators(brokers: Brokers) -> dict[str, str]:
    """By group: the name of the broker that coordinates it."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=GROUPS)
    brokers.post("broker-a", request, 6)  # the first question makes __consumer_offsets
    brokers.advance(5_000)
    found = brokers.ask("broker-a", request, 6, FindCoordinatorResponse).coordinators
    return {one.key: NAMES[one.node_id - 1] for one in found}


def asked(brokers: Brokers, name: str, kind: type[T], **ext: str) -> T:
    answer = brokers.command(name, KAFKA_GROUPS, ext)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return msgspec.json.decode(answer.body, type=kind)


def test_each_broker_lists_the_groups_that_it_coordinates(brokers: Brokers) -> None:
    wanted = coordinators(brokers)
    lists = [asked(brokers, name, tuple[KafkaGroup, ...]) for name in NAMES]
    assert all(lists), "both coordinate some"
    assert {one.group: one.coordinator for each in lists for one in each} == wanted
    for each in lists:
        assert all(one.group < other.group for one, other in pairwise(each))
        assert {(one.kind, one.state, one.members) for one in each} == {("classic", "Empty", 0)}


def test_only_the_coordinator_reports_with_offsets_of_all_brokers(brokers: Brokers) -> None:
    for group, mine in coordinators(brokers).items():
        (other,) = set(NAMES) - {mine}
        refused = brokers.command(other, KAFKA_GROUPS, {"group": group})
        assert refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert refused.remark == f"{other} coordinates no Kafka group {group}"
        report = asked(brokers, mine, KafkaGroupReport, group=group)
        leaders = [NAMES[node_id - 1] for node_id in brokers.leaders(mine, "orders")]
        assert set(leaders) == set(NAMES)
        rows = [(row.partition, row.broker_name, row.offset) for row in report.offsets]
        offset = GROUPS.index(group)
        assert rows == [(number, name, offset) for number, name in enumerate(leaders)]
        assert report.lag == 0, "nobody said yet where the partitions end"


def test_unknown_groups_are_refused(brokers: Brokers) -> None:
    for name in NAMES:
        for group in ("nobody", ""):
            answer = brokers.command(name, KAFKA_GROUPS, {"group": group})
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_answers_are_cut_where_they_would_not_fit(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "GROUPS_MAX", 1)
    monkeypatch.setattr(reports, "OFFSETS_MAX", 3)
    for name in NAMES:
        (one,) = asked(brokers, name, tuple[KafkaGroup, ...])
        report = asked(brokers, name, KafkaGroupReport, group=one.group)
        assert [row.partition for row in report.offsets] == [0, 1, 2]


@pytest.mark.parametrize(
    ("offset", "end", "lag"), [(3, 5, 2), (5, 5, 0), (7, 5, 0), (None, 5, None), (3, None, None)]
)
def test_lag(offset: int | None, end: int | None, lag: int | None) -> None:
    assert KafkaOffset("orders", 0, "broker-a", 0, offset, end_offset=end).lag == lag
