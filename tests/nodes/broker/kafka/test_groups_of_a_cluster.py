"""Groups where there are several brokers: one coordinates each group, the others say that it is not they."""

from __future__ import annotations

from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.requests import committing

from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from steelyard.wire.kafka.messages.groups import ListGroupsRequest, ListGroupsResponse
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from steelyard.wire.kafka.messages.topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

NAMES = ("broker-a", "broker-b")
GROUPS = [f"group-{number}" for number in range(8)]


def commit(brokers: Brokers, name: str, group: str, offset: int) -> int:
    answer = brokers.ask(name, committing(group, "orders", {3: offset}), 8, OffsetCommitResponse)
    return answer.topics[0].partitions[0].error_code


def committed(brokers: Brokers, name: str, group: str) -> int:
    topics = (OffsetFetchRequestTopic("orders", partition_indexes=(3,)),)
    fetch = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group, topics=topics),))
    (found,) = brokers.ask(name, fetch, 8, OffsetFetchResponse).groups
    return found.topics[0].partitions[0].committed_offset


def test_every_group_has_one_coordinator_that_keeps_its_offsets() -> None:
    brokers = Brokers(*NAMES)
    brokers.create("broker-a", "orders", 4)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=GROUPS)
    for name in NAMES:  # the first question makes __consumer_offsets
        brokers.post(name, request, 6)
        brokers.advance(5_000)
    found = brokers.ask("broker-a", request, 6, FindCoordinatorResponse).coordinators
    assert brokers.ask("broker-b", request, 6, FindCoordinatorResponse).coordinators == found
    ids = sorted({one.node_id for one in found})
    assert len(ids) == 2
    of_id = dict(zip(ids, NAMES, strict=True))
    for number, one in enumerate(found):
        mine = of_id[one.node_id]
        (other,) = set(NAMES) - {mine}
        assert commit(brokers, mine, one.key, number) == ErrorCode.NONE
        assert commit(brokers, other, one.key, 99) == ErrorCode.NOT_COORDINATOR
    listed = {
        name: {
            group.group_id
            for group in brokers.ask(name, ListGroupsRequest(), 4, ListGroupsResponse).groups
        }
        for name in NAMES
    }
    assert listed["broker-a"] | listed["broker-b"] == set(GROUPS)
    assert not listed["broker-a"] & listed["broker-b"]
    for name in NAMES:
        brokers.kill(name)
        brokers.start(name)
    brokers.advance(60_000)
    for number, one in enumerate(found):
        assert committed(brokers, of_id[one.node_id], one.key) == number


def test_offsets_in_a_topic_that_was_made_again_while_their_coordinator_was_down() -> None:
    """The new topic has other records at these offsets: the group must begin in it as any other does."""
    names = (*NAMES, "broker-c")
    brokers = Brokers(*names)
    brokers.create("broker-a", "orders", 4)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=GROUPS)
    for name in names:
        brokers.post(name, request, 6)
        brokers.advance(5_000)
    found = brokers.ask("broker-a", request, 6, FindCoordinatorResponse).coordinators
    group = next(one.key for one in found if one.node_id == 3)
    assert commit(brokers, "broker-c", group, 7) == ErrorCode.NONE
    brokers.kill("broker-c")
    brokers.advance(10_000)
    delete = DeleteTopicsRequest(topics=[DeleteTopicState("orders")])
    answer = brokers.ask("broker-a", delete, 6, DeleteTopicsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE
    brokers.advance(3_000)
    again = brokers.create("broker-a", "orders", 4).topic_id
    brokers.advance(3_000)
    brokers.start("broker-c")
    brokers.advance(10_000)
    assert committed(brokers, "broker-c", group) == -1
    for name in names:
        (topic,) = brokers.metadata(name, "orders").topics
        assert (topic.topic_id, len(topic.partitions)) == (again, 4), "nor do its records come back"
