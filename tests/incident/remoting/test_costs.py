"""RocketMQ's logs: what the lines say, and what was done to a group on RocketMQ 5.3."""

from __future__ import annotations

import msgspec
import pytest
from tests.incident.dumps import GOLDEN
from tests.incident.truth import Truth, compare, compare_holdings

from steelyard.incident.remoting.costs import PERSIST_MS, rocketmq_costs
from steelyard.incident.remoting.logs import (
    Connected,
    Disconnected,
    HeldQueues,
    LogEvent,
    read_rocketmq_log,
)
from steelyard.incident.tables import IncidentCosts
from steelyard.types import MessageQueue

FOLDER = GOLDEN / "rocketmq-5.3.3"


def events(*names: str) -> list[LogEvent]:
    paths = sorted((FOLDER / "logs").glob("*.log"))
    return [
        event
        for path in paths
        if not names or path.name in names
        for event in read_rocketmq_log(path.read_text().splitlines())
    ]


def costs(found: list[LogEvent]) -> IncidentCosts:
    (one,) = rocketmq_costs(found)
    return one


def client(name: str) -> str:
    """Client ids are address@name here; the tables of the tests have the names."""
    return name.rpartition("@")[2]


def test_six_incidents() -> None:
    truth = msgspec.json.decode((FOLDER / "truth.json").read_bytes(), type=list[Truth])
    found = costs(events())
    rows = [
        msgspec.structs.replace(
            row,
            members_before=tuple(map(client, row.members_before)),
            members_after=tuple(map(client, row.members_after)),
        )
        for row in found.rebalances[: len(truth)]  # at the end all were closed
    ]
    compare(rows, found.handoffs, truth, PERSIST_MS)
    compare_holdings(found.holdings, truth, 4, client)
    assert {row.confidence for row in rows} == {"high"}
    assert [row.queues_moved for row in rows] == [0, 2, 1, 1, 2, 2]


def test_without_the_brokers_log() -> None:
    found = costs([event for event in events() if isinstance(event, HeldQueues)])
    assert {row.trigger for row in found.rebalances} == {"routes"}
    assert {row.confidence for row in found.rebalances} <= {"medium", "low"}


def test_without_the_clients_logs() -> None:
    found = costs(events("cluster-broker.log"))
    assert [row.trigger for row in found.rebalances][:3] == ["joined"] * 3
    assert found.handoffs == []


CHANNEL = (
    "ClientChannelInfo [channel=[id: 0xaa, L:/10.0.0.1:10911 {sign} R:/10.0.0.7:50140],"
    " clientId=10.0.0.7@17#1, language=JAVA, version=479, lastUpdateTimestamp={heard}]"
)
QUEUES = "[MessageQueue [topic=T, brokerName=b, queueId=0], MessageQueue [topic=T, brokerName=b, queueId=12]]"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "2026-11-24 08:00:01 INFO X - new consumer connected, group: g CONSUME_PASSIVELY CLUSTERING"
            f" channel: {CHANNEL.format(sign='-', heard=1795478401250)}",
            Connected(1795478401250, "g", "10.0.0.7@17#1"),
        ),
        (
            "2026-11-24 08:00:02.125 INFO X - unregister a consumer[g] from consumerGroupInfo "
            + CHANNEL.format(sign="-", heard=1),
            Disconnected(1795478402125, "g", "10.0.0.7@17#1", "unregistered"),
        ),
        (
            "2026-11-24 08:00:03 WARN X - NETTY EVENT: remove not active channel["
            + CHANNEL.format(sign="!", heard=1)
            + "] from ConsumerGroupInfo groupChannelTable, consumer group: g",
            Disconnected(1795478403000, "g", "10.0.0.7@17#1", "closed"),
        ),
        (
            "2026-11-24 08:00:04,500 INFO [7] [R] [x#y:1] - rebalanced result changed."
            " allocateMessageQueueStrategyName=AVG, group=g, topic=T, clientId=c, mqAllSize=13,"
            f" cidAllSize=2, rebalanceResultSize=2, rebalanceResultSet={QUEUES}",
            HeldQueues(
                1795478404500,
                "g",
                "T",
                "c",
                frozenset((MessageQueue("T", "b", 0), MessageQueue("T", "b", 12))),
            ),
        ),
        ("2026-11-24 08:00:05 INFO X - new consumer group", None),
        ("no time: rebalanced result changed.", None),
    ],
)
def test_lines(line: str, expected: LogEvent | None) -> None:
    assert list(read_rocketmq_log([line])) == ([] if expected is None else [expected])


def test_a_member_whose_heartbeats_stopped() -> None:
    lines = [
        "2026-11-24 08:00:01 INFO X - new consumer connected, group: g CONSUME_PASSIVELY CLUSTERING"
        f" channel: {CHANNEL.format(sign='-', heard=1795478401250)}",
        "2026-11-24 08:02:01 WARN X - SCAN: remove expired channel from ConsumerManager consumerTable."
        " channel=10.0.0.7:50140, consumerGroup=g",
    ]
    found = costs(list(read_rocketmq_log(lines)))
    assert [row.trigger for row in found.rebalances] == ["joined", "left (expired)"]
