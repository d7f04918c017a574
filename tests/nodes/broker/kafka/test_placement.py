"""34, 43, 45, 46 and 75: where partitions lie, and that they stay there."""

from __future__ import annotations

import pytest
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.conftest import KafkaRig

from steelyard.nodes.broker.kafka.data.log_dirs import FOLDER
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    DescribedTopicName,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    PartitionCursor,
)
from steelyard.wire.kafka.messages.placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)

E = ErrorCode


@pytest.fixture
def topics(rig: KafkaRig) -> KafkaRig:
    """`a` with three partitions, `b` with two."""
    rig.create_topic("a", 3)
    rig.create_topic("b", 2)
    return rig


# -- 75 DescribeTopicPartitions ----------------------------------------------------------------------


Page = tuple[list[tuple[str, list[int]]], tuple[str, int] | None]


def page(
    rig: KafkaRig, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> Page:
    """The partitions in a page, and where the next one begins."""
    wanted = [DescribedTopicName(name) for name in names]
    begin = None if cursor is None else PartitionCursor(*cursor)
    message = DescribeTopicPartitionsRequest(wanted, limit, begin)
    answer = rig.ask(message, 0, DescribeTopicPartitionsResponse)
    told = [
        (
            topic.name or "",
            [topic.error_code]
            if topic.error_code
            else [p.partition_index for p in topic.partitions],
        )
        for topic in answer.topics
    ]
    end = answer.next_cursor
    return told, None if end is None else (end.topic_name, end.partition_index)


@pytest.mark.parametrize(
    ("names", "limit", "cursor", "expected"),
    [
        ((), 5, ("a", 0), ([("a", [0, 1, 2]), ("b", [0, 1])], None)),
        (("b", "a", "b"), 5, None, ([("a", [0, 1, 2]), ("b", [0, 1])], None)),
        (("b", "a"), 2, None, ([("a", [0, 1])], ("a", 2))),
        (("b", "a"), 3, None, ([("a", [0, 1, 2])], ("b", 0))),
        (("b", "a"), 0, None, ([("a", [0])], ("a", 1))),
        (("b", "a"), 2, ("a", 2), ([("a", [2]), ("b", [0])], ("b", 1))),
        (("b", "a"), 1, ("a", 7), ([("a", []), ("b", [0])], ("b", 1))),
        ((), 2, ("a", 1), ([("a", [1, 2])], ("b", 0))),
        ((), 9, ("aa", 1), ([("b", [0, 1])], None)),
        (("b", "a"), 2, ("c", 0), ([("a", [42]), ("b", [42])], None)),
        (("b", "a"), 2, ("a", -1), ([("a", [42]), ("b", [42])], None)),
        (("nope", "a"), 3, None, ([("a", [0, 1, 2])], ("nope", 0))),
        (("0", "a"), 1, None, ([("0", [3]), ("a", [0])], ("a", 1))),
        (("", "x/y"), 9, None, ([("", [17]), ("x/y", [17])], None)),
    ],
)
def test_pages(
    topics: KafkaRig,
    names: tuple[str, ...],
    limit: int,
    cursor: tuple[str, int] | None,
    expected: Page,
) -> None:
    """As a broker of Apache Kafka 4.3 answers the same requests."""
    assert page(topics, *names, limit=limit, cursor=cursor) == expected


def test_pages_lead_through_everything(topics: KafkaRig) -> None:
    seen: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = ("a", 0)  # behind the topic of the ledger
    while True:
        told, cursor = page(topics, limit=2, cursor=cursor)
        seen += [(name, each) for name, partitions in told for each in partitions]
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


def test_a_partition_without_its_broker_is_told_so() -> None:
    brokers = Brokers("broker-a", "broker-b")
    brokers.create("broker-a", "t", 2)
    brokers.kill("broker-b")
    brokers.advance(60_000)
    message = DescribeTopicPartitionsRequest([DescribedTopicName("t")])
    answer = brokers.ask("broker-a", message, 0, DescribeTopicPartitionsResponse)
    parts = {each.replica_nodes[0]: each for each in answer.topics[0].partitions}
    assert (parts[1].error_code, parts[1].leader_id, list(parts[1].offline_replicas)) == (0, 1, [])
    assert (parts[2].error_code, parts[2].leader_id) == (E.LEADER_NOT_AVAILABLE, -1)
    assert list(parts[2].offline_replicas) == [2]
    assert elected(brokers, 0, "t") == {parts[1].partition_index: 84, parts[2].partition_index: 80}
    assert elected(brokers, 1, "t") == {parts[1].partition_index: 84, parts[2].partition_index: 83}
    everything = brokers.ask("broker-a", ElectLeadersRequest(0, None), 2, ElectLeadersResponse)
    told = {
        each.topic: [p.error_code for p in each.partition_result]
        for each in everything.replica_election_results
    }
    assert told["t"] == [80]


def elected(brokers: Brokers, kind: int, topic: str) -> dict[int, int]:
    message = ElectLeadersRequest(kind, [TopicPartitions(topic, [0, 1])])
    answer = brokers.ask("broker-a", message, 2, ElectLeadersResponse)
    (result,) = answer.replica_election_results
    return {each.partition_id: each.error_code for each in result.partition_result}


# -- 43 ElectLeaders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_no_election_is_needed(topics: KafkaRig, version: int) -> None:
    asked = [TopicPartitions("a", [0, 9]), TopicPartitions("nope", [0])]
    answer = topics.ask(ElectLeadersRequest(0, asked), version, ElectLeadersResponse)
    assert answer.error_code == 0
    assert [
        (
            each.topic,
            [(p.partition_id, p.error_code, p.error_message) for p in each.partition_result],
        )
        for each in answer.replica_election_results
    ] == [
        (
            "a",
            [
                (0, 84, "Leader election not needed for topic partition."),
                (9, 3, "No such partition as a-9"),
            ],
        ),
        ("nope", [(0, 3, "No such topic as nope")]),
    ]


def test_elections_of_all_and_of_unknown_types(topics: KafkaRig) -> None:
    answer = topics.ask(ElectLeadersRequest(1, None), 2, ElectLeadersResponse)
    found = {each.topic: each.partition_result for each in answer.replica_election_results}
    assert {"a", "b"} <= found.keys()
    assert not any(found.values())
    message = ElectLeadersRequest(2, [TopicPartitions("a", [0])])
    answer = topics.ask(message, 2, ElectLeadersResponse)
    (result,) = answer.replica_election_results
    assert (answer.error_code, result.partition_result[0].error_code) == (42, 42)
    assert result.partition_result[0].error_message == "Unknown election type 2"


# -- 45 and 46 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "partition", "replicas", "code", "text"),
    [
        ("a", 0, [1], 0, None),
        ("a", 1, None, E.NO_REASSIGNMENT_IN_PROGRESS, None),
        ("a", 2, [2], E.INVALID_REPLICA_ASSIGNMENT, "includes broker 2, but no such broker"),
        ("a", 2, [1, 2], E.INVALID_REPLICA_ASSIGNMENT, "includes broker 2, but no such broker"),
        ("a", 2, [1, 1], E.INVALID_REPLICA_ASSIGNMENT, "includes the broker 1 more than once"),
        ("a", 2, [], E.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list"),
        ("a", 9, [1], E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition a:9."),
        ("nope", 0, [1], E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named nope."),
    ],
)
def test_a_reassignment(
    topics: KafkaRig,
    topic: str,
    partition: int,
    replicas: list[int] | None,
    code: int,
    text: str | None,
) -> None:
    """As a broker of Apache Kafka 4.3 answers."""
    asked = [ReassignableTopic(topic, [ReassignablePartition(partition, replicas)])]
    for version in (0, 1):
        answer = topics.ask(
            AlterPartitionReassignmentsRequest(topics=asked),
            version,
            AlterPartitionReassignmentsResponse,
        )
        (result,) = answer.responses[0].partitions
        assert (answer.error_code, result.partition_index, result.error_code) == (
            0,
            partition,
            code,
        )
        assert (
            result.error_message is None if text is None else text in (result.error_message or "")
        )
    listed = topics.ask(ListPartitionReassignmentsRequest(), 0, ListPartitionReassignmentsResponse)
    assert listed == ListPartitionReassignmentsResponse(error_message=None)


def test_a_partition_cannot_move_to_another_broker() -> None:
    brokers = Brokers("broker-a", "broker-b")
    brokers.create("broker-a", "t", 2)

    def moved(replicas: list[int], *, may_grow: bool = True) -> tuple[int, str | None]:
        asked = [ReassignableTopic("t", [ReassignablePartition(0, replicas)])]
        message = AlterPartitionReassignmentsRequest(60_000, may_grow, asked)
        answer = brokers.ask("broker-b", message, 1, AlterPartitionReassignmentsResponse)
        result = answer.responses[0].partitions[0]
        return result.error_code, result.error_message

    outcomes = {node_id: moved([node_id])[0] for node_id in (1, 2)}
    assert sorted(outcomes.values()) == [0, E.INVALID_REPLICA_ASSIGNMENT]
    code, text = moved([1, 2])
    assert code == E.INVALID_REPLICA_ASSIGNMENT
    assert text is not None
    assert "no replication" in text
    assert moved([1, 2], may_grow=False)[0] == E.INVALID_REPLICATION_FACTOR


# -- 34 AlterReplicaLogDirs ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_is_in_the_one_directory(topics: KafkaRig, version: int) -> None:
    asked = [
        AlterReplicaLogDir(
            FOLDER, [AlterReplicaLogDirTopic("a", [0, 9]), AlterReplicaLogDirTopic("nope", [0])]
        ),
        AlterReplicaLogDir("/elsewhere", [AlterReplicaLogDirTopic("b", [1])]),
    ]
    message = AlterReplicaLogDirsRequest(asked)
    answer = topics.ask(message, version, AlterReplicaLogDirsResponse)
    told = {
        each.topic_name: [(p.partition_index, p.error_code) for p in each.partitions]
        for each in answer.results
    }
    assert told == {"a": [(0, 0), (9, 3)], "nope": [(0, 3)], "b": [(1, E.LOG_DIR_NOT_FOUND)]}
