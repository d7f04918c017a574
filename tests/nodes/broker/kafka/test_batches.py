"""Requests that change very many topics are handled in parts, and refused as a whole where they are too many."""

from __future__ import annotations

from typing import Any

import pytest
from tests.nodes.broker.kafka.conftest import KafkaRig

from steelyard.nodes.broker.kafka.requests import batches
from steelyard.nodes.broker.kafka.requests.batches import RECORDS_MAX
from steelyard.nodes.broker.kafka.requests.wide import PART_TOPICS
from steelyard.nodes.broker.turns import TURNS_TIMER
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages import configs as messages
from steelyard.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from steelyard.wire.kafka.schema import NO_ID, ApiMessage

E = ErrorCode
COUNT = 3 * PART_TOPICS
NAMES = [f"t{number}" for number in range(COUNT)]


def creating(names: list[str]) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names], 1_000)


def growing(names: list[str]) -> CreatePartitionsRequest:
    return CreatePartitionsRequest([CreatePartitionsTopic(name, 2, None) for name in names])


def deleting(names: list[str]) -> DeleteTopicsRequest:
    return DeleteTopicsRequest([DeleteTopicState(name) for name in names])


def deleting_by_name(names: list[str]) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=names)


def setting(names: list[str]) -> messages.AlterConfigsRequest:
    config = [messages.AlterableConfig("retention.ms", "70000")]
    return messages.AlterConfigsRequest(
        [messages.AlterConfigsResource(2, name, config) for name in names]
    )


def changing(names: list[str]) -> messages.IncrementalAlterConfigsRequest:
    config = [messages.ConfigOperation("retention.ms", 0, "70000")]
    return messages.IncrementalAlterConfigsRequest(
        [messages.IncrementalAlterConfigsResource(2, name, config) for name in names]
    )


CASES = [
    (creating, 7, CreateTopicsResponse, "topics", "name"),
    (growing, 3, CreatePartitionsResponse, "results", "name"),
    (deleting, 6, DeleteTopicsResponse, "responses", "name"),
    (deleting_by_name, 5, DeleteTopicsResponse, "responses", "name"),
    (setting, 2, messages.AlterConfigsResponse, "responses", "resource_name"),
    (
        changing,
        1,
        messages.IncrementalAlterConfigsResponse,
        "responses",
        "resource_name",
    ),
]
EACH = pytest.mark.parametrize(
    ("make", "version", "kind", "array", "name"), CASES, ids=[case[0].__name__ for case in CASES]
)


def told(answer: ApiMessage, array: str, name: str) -> list[tuple[str, int]]:
    return [(getattr(each, name), each.error_code) for each in getattr(answer, array)]


def prepared(make: Any) -> KafkaRig:
    rig = KafkaRig()
    if make is not creating:
        for at in range(0, COUNT, PART_TOPICS):
            rig.ask(creating(NAMES[at : at + PART_TOPICS]), 7, CreateTopicsResponse)
    return rig


def facts(rig: KafkaRig) -> dict[str, object]:
    assert rig.node._kafka is not None
    cluster = rig.node._kafka.cluster
    return {name: cluster.topic(name) for name in cluster.names()}


@EACH
def test_very_many_are_changed_in_turns(
    make: Any, version: int, kind: type[ApiMessage], array: str, name: str
) -> None:
    rig = prepared(make)
    before = facts(rig)
    correlation = rig.post(make(NAMES), version)
    while True:
        after = facts(rig)
        changed = [each for each in NAMES if before.get(each) != after.get(each)]
        assert len(changed) <= PART_TOPICS
        before = after
        if correlation in rig.answers:
            break
        assert TURNS_TIMER in rig.timers, "it waits for nothing"
        rig.advance(1)
    answer = rig.answer_to(correlation, kind)
    assert answer is not None
    assert told(answer, array, name) == [(each, 0) for each in NAMES]


@EACH
def test_what_is_named_twice_is_refused_wherever_it_is(
    make: Any, version: int, kind: type[ApiMessage], array: str, name: str
) -> None:
    rig = prepared(make)
    before = facts(rig)
    twice = [NAMES[0], NAMES[5]]
    answer = rig.ask(make([*NAMES, *twice, NAMES[5]]), version, kind)
    codes = dict(told(answer, array, name))
    expected = {each: E.INVALID_REQUEST if each in twice else E.NONE for each in NAMES}
    assert codes == expected
    after = facts(rig)
    assert [before.get(each) for each in twice] == [after.get(each) for each in twice]


@EACH
def test_too_many_are_refused_as_a_whole(
    make: Any, version: int, kind: type[ApiMessage], array: str, name: str
) -> None:
    rig = KafkaRig()
    rig.create_topic("t0")
    before = facts(rig)
    names = [f"t{number}" for number in range(RECORDS_MAX + 1)]
    answer = rig.ask(make(names), version, kind)
    assert told(answer, array, name) == [(each, E.POLICY_VIOLATION) for each in names]
    assert facts(rig) == before


def test_as_many_as_may_be_are_no_more_than_that() -> None:
    assert not batches.is_excessive(deleting([str(number) for number in range(RECORDS_MAX)]))


def test_settings_of_one_topic_count(rig: KafkaRig) -> None:
    configs = [CreatableTopicConfig("retention.ms", "70000")] * RECORDS_MAX
    request = CreateTopicsRequest([CreatableTopic("t", 1, 1, (), configs)], 1_000)
    (topic,) = rig.ask(request, 7, CreateTopicsResponse).topics
    assert (topic.error_code, topic.topic_id) == (E.POLICY_VIOLATION, NO_ID)
