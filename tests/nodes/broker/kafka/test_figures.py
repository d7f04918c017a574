"""What brokers answer those who watch the cluster about Kafka's groups (9104)."""

from __future__ import annotations

import pytest
from tests.nodes.broker.kafka import test_reports
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.test_reports import GROUPS, NAMES, coordinators

from steelyard.nodes.broker.kafka import figures as handlers
from steelyard.wire import figures
from steelyard.wire.figures import KafkaFigures
from steelyard.wire.remoting.codes import ResponseCode, SteelyardCode

brokers = test_reports.brokers


def asked(brokers: Brokers, name: str) -> KafkaFigures:
    answer = brokers.command(name, SteelyardCode.KAFKA_FIGURES, {})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return figures.read(answer.body, KafkaFigures)


def test_each_broker_answers_for_the_groups_that_it_coordinates(brokers: Brokers) -> None:
    of_group = coordinators(brokers)
    found = {name: asked(brokers, name) for name in NAMES}
    assert all(each.ready for each in found.values())
    for name, each in found.items():
        mine = sorted(group for group in GROUPS if of_group[group] == name)
        assert [row.group for row in each.groups] == mine
        for row in each.groups:
            assert (row.kind, row.members) == ("classic", 0)
            offset = GROUPS.index(row.group)
            assert [(one.topic, one.partition, one.offset) for one in row.offsets] == [
                ("orders", partition, offset) for partition in range(4)
            ]
    places = {row.offsets for each in found.values() for row in each.groups}
    queues = {(one.partition, one.broker, one.queue_id) for place in places for one in place}
    assert len(queues) == 4, "each partition is one queue, whoever is asked"
    assert {broker for _, broker, _ in queues} == set(NAMES)


def test_offsets_beyond_the_limit_are_counted(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = asked(brokers, "broker-a")
    assert len(whole.groups) >= 2
    monkeypatch.setattr(handlers, "ROWS_MAX", 3)
    found = asked(brokers, "broker-a")
    (group,) = found.groups
    assert group.offsets == whole.groups[0].offsets[:3]
    partitions = max(0, len(whole.partitions) - 3)
    assert found.left_out == 1 + (len(whole.groups) - 1) + partitions
