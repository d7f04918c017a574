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

NAMES = ("broker-a", "broker-b")
GROUPS = [f"group-{number}" for number in range(8)]


def commit(brokers: Brokers, name: str, group: str, offset: int) -> int:
    answer = brokers.ask(name, committing(group, "orders", {3: offset}), 8, OffsetCommitResponse)
    return answer.topics[0].partitions[0].error_code


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
        topics = (OffsetFetchRequestTopic("orders", partition_indexes=(3,)),)
        fetch = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(one.key, topics=topics),))
        (group,) = brokers.ask(of_id[one.node_id], fetch, 8, OffsetFetchResponse).groups
        assert group.topics[0].partitions[0].committed_offset == number
