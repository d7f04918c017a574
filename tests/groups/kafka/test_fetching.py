"""OffsetFetch in all its shapes."""

from __future__ import annotations

import pytest
from tests.groups.kafka.conftest import GROUP, TOPIC, Rig

from steelyard.nodes.broker.turns import finish
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.commit(5, metadata="so far")
    rig.commit(6, topic="invoices", partition=1)
    return rig


def asked(rig: Rig, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    return finish(rig.coordinator.fetches.fetch(request, version, {}))


def test_up_to_version_7_for_one_group(rig: Rig) -> None:
    request = OffsetFetchRequest(GROUP, (OffsetFetchRequestTopic(TOPIC, partition_indexes=(0, 1)),))
    partitions = (
        OffsetFetchResponsePartition(0, 5, 3, "so far"),
        OffsetFetchResponsePartition(1, -1),
    )
    expected = OffsetFetchResponse(topics=(OffsetFetchResponseTopic(TOPIC, partitions=partitions),))
    assert asked(rig, request, 7) == expected


def test_all_topics(rig: Rig) -> None:
    answer = asked(rig, OffsetFetchRequest(GROUP, None), 5)
    found = {
        (t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions
    }
    assert found == {("invoices", 1): 6, (TOPIC, 0): 5}
    assert asked(rig, OffsetFetchRequest("nobody", None), 5) == OffsetFetchResponse()


def test_a_group_that_is_not_there_is_no_error(rig: Rig) -> None:
    """kfake answers GROUP_ID_NOT_FOUND, on which librdkafka's committed() fails."""
    request = OffsetFetchRequest(
        "nobody", (OffsetFetchRequestTopic(TOPIC, partition_indexes=(0,)),)
    )
    answer = asked(rig, request, 5)
    assert answer.error_code == 0
    assert answer.topics[0].partitions == (OffsetFetchResponsePartition(0, -1),)


def test_from_version_8_for_many_groups(rig: Rig) -> None:
    rig.commit(8, group="other")
    topics = (OffsetFetchRequestTopic(TOPIC, partition_indexes=(0,)),)
    groups = (
        OffsetFetchRequestGroup(GROUP, topics=topics),
        OffsetFetchRequestGroup("other", "me", 4, None),
        OffsetFetchRequestGroup("elsewhere", topics=topics),
    )
    refused = {"elsewhere": ErrorCode.NOT_COORDINATOR}
    answer = finish(rig.coordinator.fetches.fetch(OffsetFetchRequest(groups=groups), 9, refused))
    assert answer.groups == (
        OffsetFetchResponseGroup(
            GROUP,
            (
                OffsetFetchResponseTopic(
                    TOPIC, partitions=(OffsetFetchResponsePartition(0, 5, 3, "so far"),)
                ),
            ),
        ),
        OffsetFetchResponseGroup(
            "other",
            (OffsetFetchResponseTopic(TOPIC, partitions=(OffsetFetchResponsePartition(0, 8, 3),)),),
        ),
        OffsetFetchResponseGroup("elsewhere", (), ErrorCode.NOT_COORDINATOR),
    )


def test_from_version_10_by_topic_ids(rig: Rig) -> None:
    topic_id = rig.topics.id_of(TOPIC)
    topics = (
        OffsetFetchRequestTopic(topic_id=topic_id, partition_indexes=(0,)),
        OffsetFetchRequestTopic(topic_id=b"?" * 16, partition_indexes=(0,)),
    )
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(GROUP, topics=topics),))
    found, unknown = asked(rig, request, 10).groups[0].topics
    assert (found.topic_id, found.partitions[0].committed_offset) == (topic_id, 5)
    assert unknown.topic_id == b"?" * 16
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    del rig.topics.counts["invoices"]
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(GROUP, topics=None),))
    assert [topic.topic_id for topic in asked(rig, request, 10).groups[0].topics] == [topic_id]


def test_errors_of_the_first_versions_are_those_of_partitions(rig: Rig) -> None:
    request = OffsetFetchRequest(GROUP, (OffsetFetchRequestTopic(TOPIC, partition_indexes=(0,)),))
    refused = {GROUP: ErrorCode.NOT_COORDINATOR}
    one = finish(rig.coordinator.fetches.fetch(request, 1, refused))
    assert one.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    two = finish(rig.coordinator.fetches.fetch(request, 2, refused))
    assert (two.topics, two.error_code) == ((), ErrorCode.NOT_COORDINATOR)
