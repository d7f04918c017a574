"""What a request names again is answered once, however it is handled."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig
from tests.nodes.broker.kafka.requests import committing, joining

from steelyard.nodes.broker.dynamic_configs import BROKER
from steelyard.nodes.broker.kafka.requests import repeats
from steelyard.nodes.broker.kafka.requests.repeats import NAMING, without_repeats
from steelyard.nodes.broker.turns import Steps, finish
from steelyard.types import joined
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic
from steelyard.wire.kafka.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from steelyard.wire.kafka.messages.consumer_groups import ConsumerGroupDescribeRequest
from steelyard.wire.kafka.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
)
from steelyard.wire.kafka.messages.logs import DescribeProducersRequest
from steelyard.wire.kafka.messages.logs import TopicRequest as DescribedTopic
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from steelyard.wire.kafka.messages.topics import CREATE_TOPICS, CreateTopicsRequest
from steelyard.wire.kafka.messages.transactions import DescribeTransactionsRequest
from steelyard.wire.kafka.schema import ApiMessage, write

FEW, MANY = 20, 20_000

BY_NAME = OffsetFetchRequestTopic(TOPIC, partition_indexes=[0, 1])


def all_offsets(times: int) -> ApiMessage:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)] * times)


def some_offsets(times: int) -> ApiMessage:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[BY_NAME])] * times)


def topics_of_a_group(times: int) -> ApiMessage:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[BY_NAME] * times)])


def partitions_of_a_group(times: int) -> ApiMessage:
    topic = replace(BY_NAME, partition_indexes=[0, 1] * times)
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[topic])])


def offsets_of_old_clients(times: int) -> ApiMessage:
    return OffsetFetchRequest(
        "g", [OffsetFetchRequestTopic(TOPIC, partition_indexes=[0, 1] * times)]
    )


def groups(times: int) -> ApiMessage:
    return DescribeGroupsRequest(["g", "h"] * times)


def consumer_groups(times: int) -> ApiMessage:
    return ConsumerGroupDescribeRequest(["g", "h"] * times)


def deleted_groups(times: int) -> ApiMessage:
    return DeleteGroupsRequest(["h", "g"] * times)


def topics(times: int) -> ApiMessage:
    return MetadataRequest([MetadataRequestTopic(name=TOPIC)] * times, False)


def settings(times: int) -> ApiMessage:
    resource = DescribeConfigsResource(BROKER, "0", None)
    return DescribeConfigsRequest([resource] * times, include_documentation=True)


def producers(times: int) -> ApiMessage:
    return DescribeProducersRequest([DescribedTopic(TOPIC, [0, 1] * times)] * 2)


def transactions(times: int) -> ApiMessage:
    return DescribeTransactionsRequest(["t", "u"] * times)


CASES = [
    (all_offsets, 8),
    (some_offsets, 9),
    (topics_of_a_group, 9),
    (partitions_of_a_group, 9),
    (offsets_of_old_clients, 5),
    (groups, 5),
    (consumer_groups, 1),
    (deleted_groups, 2),
    (topics, 9),
    (settings, 4),
    (producers, 0),
    (transactions, 0),
]


@pytest.fixture
def rig(rig: KafkaRig) -> KafkaRig:
    rig.create_topic(TOPIC, 3)
    rig.ask(committing("g", TOPIC, {0: 5, 1: 6}), 8, OffsetCommitResponse)
    rig.post(joining("h", TOPIC), 3, link=rig.connect())
    rig.advance(5_000)  # it has its first generation
    return rig


@pytest.mark.parametrize("times", [FEW, MANY])
@pytest.mark.parametrize(("make", "version"), CASES, ids=[case[0].__name__ for case in CASES])
def test_it_is_answered_once(make: Any, version: int, times: int, rig: KafkaRig) -> None:
    """In a short request, and in a long one that is handled in parts."""
    request: ApiMessage = make(times)
    api = next(api for api in APIS.values() if api.request is type(request))
    if make is deleted_groups:
        results = rig.ask(request, version, DeleteGroupsResponse).results
        assert [result.group_id for result in results] == ["h", "g"]
        assert results[1].error_code == 0
        return
    once, again = (
        joined(
            write(rig.ask(each, version, api.response), version, flexible=api.is_flexible(version))
        )
        for each in (make(1), request)
    )
    assert again == once


def test_what_is_new_in_something_named_again_is_answered(rig: KafkaRig) -> None:
    def group(*partitions: int) -> OffsetFetchRequestGroup:
        topic = OffsetFetchRequestTopic(TOPIC, partition_indexes=partitions)
        return OffsetFetchRequestGroup("g", topics=[topic])

    asked = [group(0), group(0, 2), group(1, 1), group(1), OffsetFetchRequestGroup("g", topics=[])]
    answer = rig.ask(OffsetFetchRequest(groups=asked), 8, OffsetFetchResponse)
    told = [
        [(part.partition_index, part.committed_offset) for part in topic.partitions]
        for each in answer.groups
        for topic in each.topics
    ]
    assert told == [[(0, 5)], [(2, -1)], [(1, 6)]]
    assert len(answer.groups) == 4


def test_one_topic_id_under_many_names_is_one_topic(rig: KafkaRig) -> None:
    topic_id = rig.create_topic("other", 2)
    asked = [MetadataRequestTopic(topic_id, f"name-{number}") for number in range(FEW)]
    request = MetadataRequest([*asked, MetadataRequestTopic(name="other")])
    found = finish(without_repeats(request, 3, 12))
    assert isinstance(found, MetadataRequest)
    assert found.topics == [asked[0], MetadataRequestTopic(name="other")]


@pytest.mark.parametrize("step", [1, 3, 10_000])
def test_it_takes_steps(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "STEP_ITEMS", step)
    names = [f"{number % 7}" for number in range(30)]

    def watched() -> Steps[None]:
        found = yield from without_repeats(DescribeGroupsRequest(names), 15, 5)
        assert found == DescribeGroupsRequest(names[:7])

    assert len(list(watched())) == 30 // step


@pytest.mark.parametrize("key", sorted(NAMING))
def test_nothing_is_taken_from_a_request_that_names_nothing_again(key: int) -> None:
    api = APIS[key]
    for version in range(api.versions[0], api.versions[1] + 1):
        request = api.request()
        assert finish(without_repeats(request, key, version)) == request


def test_other_requests_stay_as_they_are() -> None:
    request = CreateTopicsRequest()
    assert finish(without_repeats(request, CREATE_TOPICS.key, 7)) is request
