"""19 CreateTopics, 20 DeleteTopics, 37 CreatePartitions: every rule of Kafka's that has an error code."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.requests import producing

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.nodes.broker.topics import QUEUES_MAX
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from steelyard.wire.kafka.messages.data import (
    ProduceResponse,
)
from steelyard.wire.kafka.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from steelyard.wire.kafka.schema import NO_ID, ApiMessage

E = ErrorCode


def create(
    rig: KafkaRig, *topics: CreatableTopic, version: int = 7, trial: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics, 1000, trial)
    return list(rig.ask(request, version, CreateTopicsResponse).topics)


def create_one(rig: KafkaRig, topic: CreatableTopic) -> CreatableTopicResult:
    (result,) = create(rig, topic)
    return result


def partitions(rig: KafkaRig, name: str) -> int:
    request = MetadataRequest([MetadataRequestTopic(name=name)], False)
    return len(rig.ask(request, 12, MetadataResponse).topics[0].partitions)


def assigned(*brokers: Sequence[int], first: int = 0) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(first + at, ids) for at, ids in enumerate(brokers)]


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_made_in_every_version(rig: KafkaRig, version: int) -> None:
    (result,) = create(rig, CreatableTopic("new", 3, 1), version=version)
    assert (result.name, result.error_code, result.error_message) == ("new", 0, None)
    assert partitions(rig, "new") == 3
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.configs, "never null: Java's client fails at that"
    assert result.topic_id != NO_ID


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (CreatableTopic("there", 1, 1), E.TOPIC_ALREADY_EXISTS),
        (CreatableTopic("", 1, 1), E.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("..", 1, 1), E.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("a/b", 1, 1), E.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("x" * 250, 1, 1), E.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("SCHEDULE_TOPIC_XXXX", 1, 1), E.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("dotted.name", 1, 1), E.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("t", 0, 1), E.INVALID_PARTITIONS),
        (CreatableTopic("t", -2, 1), E.INVALID_PARTITIONS),
        (CreatableTopic("t", QUEUES_MAX + 1, 1), E.INVALID_PARTITIONS),
        (CreatableTopic("t", 1, 0), E.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("t", 1, -2), E.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("t", 1, 2), E.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("t", 1, -1, assigned([1])), E.INVALID_REQUEST),
        (CreatableTopic("t", -1, 1, assigned([1])), E.INVALID_REQUEST),
        (CreatableTopic("t", -1, -1, assigned([1], first=1)), E.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("t", -1, -1, assigned([1]) * 2), E.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("t", -1, -1, assigned([])), E.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("t", -1, -1, assigned([1, 1])), E.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("t", -1, -1, assigned([2])), E.INVALID_REPLICA_ASSIGNMENT),
        (
            CreatableTopic("t", 1, 1, (), [CreatableTopicConfig("no.such", "1")]),
            E.INVALID_CONFIG,
        ),
        (
            CreatableTopic("t", 1, 1, (), [CreatableTopicConfig("retention.ms", None)]),
            E.INVALID_CONFIG,
        ),
        (
            CreatableTopic("t", 1, 1, (), [CreatableTopicConfig("retention.ms", "-2")]),
            E.INVALID_CONFIG,
        ),
    ],
)
def test_what_cannot_be_is_refused_and_not_made(
    rig: KafkaRig, topic: CreatableTopic, error: ErrorCode
) -> None:
    rig.create_topic("there", 2)
    rig.create_topic("dotted_name", 2)
    result = create_one(rig, topic)
    assert result.error_code == error
    assert result.error_message
    assert result.configs == ()
    assert partitions(rig, "t") == 0
    assert partitions(rig, "there") == 2


def test_a_bad_topic_does_not_hinder_the_others(rig: KafkaRig) -> None:
    results = create(rig, CreatableTopic("bad!", 1, 1), CreatableTopic("good", 1, 1))
    assert [result.error_code for result in results] == [E.INVALID_TOPIC_EXCEPTION, 0]
    assert partitions(rig, "good") == 1


def test_a_topic_named_twice_is_refused_once(rig: KafkaRig) -> None:
    results = create(rig, CreatableTopic("twice", 1, 1), CreatableTopic("twice", 2, 1))
    assert [(r.name, r.error_code) for r in results] == [("twice", E.INVALID_REQUEST)]
    assert partitions(rig, "twice") == 0


def test_minus_one_is_the_default(rig: KafkaRig) -> None:
    result = create_one(rig, CreatableTopic("usual", -1, -1))
    assert (result.error_code, result.num_partitions) == (0, 1)


def test_brokers_may_be_assigned(rig: KafkaRig) -> None:
    result = create_one(rig, CreatableTopic("assigned", -1, -1, assigned([1], [1])))
    assert (result.error_code, result.num_partitions) == (0, 2)


def test_a_trial_makes_nothing(rig: KafkaRig) -> None:
    (result,) = create(rig, CreatableTopic("trial", 3, 1), trial=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 3, NO_ID)
    assert partitions(rig, "trial") == 0


def test_the_answer_has_the_settings(rig: KafkaRig) -> None:
    settings = [CreatableTopicConfig("retention.ms", "5")]
    result = create_one(rig, CreatableTopic("set", 1, 1, (), settings))
    told = {config.name: (config.value, config.config_source) for config in result.configs or ()}
    assert told["retention.ms"] == ("5", 1)
    assert told["cleanup.policy"] == ("delete", 5)


def test_a_name_may_be_one_that_rocketmq_does_not_have(rig: KafkaRig) -> None:
    for name in ("with.dots", "x" * 249):
        assert create_one(rig, CreatableTopic(name, 1, 1)).error_code == 0
    rig.restart()
    assert partitions(rig, "with.dots") == 1


# -- partitions ------------------------------------------------------------------------------------


def grow(
    rig: KafkaRig, *topics: CreatePartitionsTopic, version: int = 3, trial: bool = False
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(topics, 1000, trial)
    return list(rig.ask(request, version, CreatePartitionsResponse).results)


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_in_every_version(rig: KafkaRig, version: int) -> None:
    rig.create_topic("grows", 2)
    (result,) = grow(rig, CreatePartitionsTopic("grows", 5, None), version=version)
    assert result == CreatePartitionsTopicResult("grows")
    assert partitions(rig, "grows") == 5
    rig.restart()
    assert partitions(rig, "grows") == 5


@pytest.mark.parametrize(
    ("topic", "error", "text"),
    [
        (CreatePartitionsTopic("t", 2, None), E.INVALID_PARTITIONS, "already has 2 partition(s)"),
        (CreatePartitionsTopic("t", 1, None), E.INVALID_PARTITIONS, "1 would not be an increase"),
        (CreatePartitionsTopic("t", QUEUES_MAX + 1, None), E.INVALID_PARTITIONS, str(QUEUES_MAX)),
        (CreatePartitionsTopic("no", 2, None), E.UNKNOWN_TOPIC_OR_PARTITION, "does not host"),
        (
            CreatePartitionsTopic("t", 4, [CreatePartitionsAssignment([1])]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "only 1 assignment(s)",
        ),
        (
            CreatePartitionsTopic("t", 3, [CreatePartitionsAssignment([9])]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "broker 9",
        ),
    ],
)
def test_what_is_no_growth_is_refused(
    rig: KafkaRig, topic: CreatePartitionsTopic, error: ErrorCode, text: str
) -> None:
    rig.create_topic("t", 2)
    (result,) = grow(rig, topic)
    assert result.error_code == error
    assert text in (result.error_message or "")
    assert partitions(rig, "t") == 2


def test_partitions_may_be_assigned_or_tried(rig: KafkaRig) -> None:
    rig.create_topic("t", 2)
    more = CreatePartitionsTopic("t", 3, [CreatePartitionsAssignment([1])])
    assert grow(rig, more, trial=True)[0].error_code == 0
    assert partitions(rig, "t") == 2
    assert grow(rig, more)[0].error_code == 0
    assert partitions(rig, "t") == 3


def test_a_topic_that_grows_twice_in_one_request_is_refused(rig: KafkaRig) -> None:
    rig.create_topic("t", 2)
    results = grow(rig, CreatePartitionsTopic("t", 3, None), CreatePartitionsTopic("t", 4, None))
    assert [result.error_code for result in results] == [E.INVALID_REQUEST]
    assert partitions(rig, "t") == 2


# -- deletion --------------------------------------------------------------------------------------


def delete(rig: KafkaRig, *states: DeleteTopicState) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(topics=states)
    return list(rig.ask(request, 6, DeleteTopicsResponse).responses)


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name(rig: KafkaRig, version: int) -> None:
    rig.create_topic("gone")
    request = DeleteTopicsRequest(topic_names=["gone", "never"])
    answer = rig.ask(request, version, DeleteTopicsResponse)
    found = {result.name: result.error_code for result in answer.responses}
    assert found == {"gone": 0, "never": E.UNKNOWN_TOPIC_OR_PARTITION}
    assert partitions(rig, "gone") == 0


def test_topics_are_deleted_by_id(rig: KafkaRig) -> None:
    topic_id = rig.create_topic("gone")
    (result,) = delete(rig, DeleteTopicState(None, topic_id))
    assert (result.name, result.topic_id, result.error_code) == ("gone", topic_id, 0)
    (again,) = delete(rig, DeleteTopicState(None, topic_id))
    assert again.error_code == E.UNKNOWN_TOPIC_ID


def test_records_go_with_their_topic(rig: KafkaRig) -> None:
    rig.create_topic("gone")
    request = producing("gone", 0, batch(b"old"))
    answer = rig.ask(request, 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0
    delete(rig, DeleteTopicState("gone"))
    assert rig.store.log("gone", 0) is None
    rig.create_topic("gone")
    answer = rig.ask(request, 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].base_offset == 0


def test_a_topic_is_deleted_where_the_disk_is_full(rig: KafkaRig) -> None:
    """What is to be remembered of it fits where its records were."""
    rig.create_topic("gone", 3)
    answer = rig.ask(producing("gone", 0, batch(b"x" * 1_000)), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0
    rig.disk.room_bytes = 0
    (result,) = delete(rig, DeleteTopicState("gone"))
    assert result.error_code == 0
    rig.restart()
    rig.advance(1_000)
    assert partitions(rig, "gone") == 0
    assert rig.store.log("gone", 0) is None


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (DeleteTopicState(None, NO_ID), E.INVALID_REQUEST),
        (DeleteTopicState("there", b"x" * 16), E.INVALID_REQUEST),
        (DeleteTopicState("RMQ_SYS_REBALANCE_LEDGER"), E.INVALID_TOPIC_EXCEPTION),
        (DeleteTopicState("TBW102"), E.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_cannot_be_deleted_stays(
    rig: KafkaRig, state: DeleteTopicState, error: ErrorCode
) -> None:
    rig.create_topic("there")
    (result,) = delete(rig, state)
    assert result.error_code == error
    assert partitions(rig, "there") == 1


def test_a_topic_named_twice_is_not_deleted(rig: KafkaRig) -> None:
    topic_id = rig.create_topic("there")
    (result,) = delete(rig, DeleteTopicState("there"), DeleteTopicState("there"))
    assert result.error_code == E.INVALID_REQUEST
    results = delete(rig, DeleteTopicState("there"), DeleteTopicState(None, topic_id))
    assert [result.error_code for result in results] == [E.INVALID_REQUEST] * 2
    assert partitions(rig, "there") == 1


def test_with_sync_flush_topics_are_on_the_disk_before_clients_hear_of_them() -> None:
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), flush="sync"))
    rig.create_topic("there")
    rig.disk_answers = False
    requests: list[tuple[ApiMessage, int]] = [
        (CreateTopicsRequest([CreatableTopic("new", 1, 1)], 1000), 7),
        (MetadataRequest([MetadataRequestTopic(name="made-when-asked-for")]), 9),
        (CreatePartitionsRequest([CreatePartitionsTopic("there", 3, None)]), 3),
        (DeleteTopicsRequest([DeleteTopicState("there")]), 6),
    ]
    waits = []
    for message, version in requests:
        number = rig.post(message, version, link=rig.connect())
        waits.append(number not in rig.answers)
        rig.disk_answers = True
        rig.answer_flushes()
        assert number in rig.answers
        rig.disk_answers = False
    assert waits == [True] * len(requests)
