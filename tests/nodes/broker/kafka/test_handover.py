"""Two layouts of coordinators that meet: one holds, and what was kept under the other is handed over."""

from __future__ import annotations

import pytest
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.test_layouts import (
    TRANSACTIONS,
    commit,
    committed,
    errors,
    find,
    layout,
    poll,
)
from tests.nodes.broker.kafka.test_transactions import TOPIC, Client

from steelyard.nodes.broker.peers.requests import HANDOVER
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from steelyard.wire.kafka.messages.groups import ListGroupsRequest, ListGroupsResponse

A, B = "broker-a", "broker-b"


def alone(brokers: Brokers, name: str) -> None:
    """Nothing runs but this broker, which takes itself for the whole cluster, and a nameserver that knows nobody."""
    stop(brokers)
    brokers.start_nameserver()
    brokers.listed = (name,)
    brokers.start(name)
    brokers.advance(4_000)


def stop(brokers: Brokers) -> None:
    for name in list(brokers.processes):
        brokers.kill(name)


def meet(brokers: Brokers, *names: str) -> None:
    """Start the brokers, each with the list of both; what happens takes its time."""
    brokers.listed = (A, B)
    for name in names:
        brokers.start(name)
    brokers.advance(10_000)


@pytest.fixture
def torn() -> Brokers:
    """Broker-a has laid all coordinators out over itself, and so has broker-b. Both know the same topics."""
    brokers = Brokers(A, B)
    brokers.create(A, "orders", 1)
    brokers.create(A, TOPIC, 4)
    for name in (A, B):
        alone(brokers, name)
        assert poll(brokers, "g") == name
        assert poll(brokers, "tx", TRANSACTIONS) == name
    return brokers


def test_offsets_of_both_layouts_are_there_after_they_met(torn: Brokers) -> None:
    """A group of either, and one of both, which counts as it was committed last."""
    assert commit(torn, B, "of-b", 7) == ErrorCode.NONE
    assert commit(torn, B, "of-both", 8) == ErrorCode.NONE
    alone(torn, A)
    assert commit(torn, A, "of-a", 5) == ErrorCode.NONE
    assert commit(torn, A, "of-both", 6) == ErrorCode.NONE
    stop(torn)
    torn.start_nameserver()
    meet(torn, B, A)
    assert poll(torn, "of-b") == A
    told = {"of-a": 5, "of-b": 7, "of-both": 6}
    assert {group: committed(torn, A, group) for group in told} == told
    assert {group: committed(torn, B, group) for group in told} == dict.fromkeys(
        told, ErrorCode.NOT_COORDINATOR
    )
    assert torn.ask(B, ListGroupsRequest(), 4, ListGroupsResponse).groups == ()
    for order in ((A, B), (B, A)):
        stop(torn)
        torn.start_nameserver()
        meet(torn, *order)
        assert {group: committed(torn, A, group) for group in told} == told


@pytest.mark.parametrize("has_offsets", [False, True])
def test_members_whose_coordinator_assigns_join_the_new_one(
    torn: Brokers, *, has_offsets: bool
) -> None:
    """GROUP_ID_NOT_FOUND would end Java's consumers, which never meet it where groups are not lost."""

    def beat(name: str, epoch: int) -> tuple[int, int]:
        request = ConsumerGroupHeartbeatRequest(
            *("g", "m", epoch),
            rebalance_timeout_ms=-1 if epoch else 1_000,
            subscribed_topic_names=None if epoch else ["orders"],
            topic_partitions=None if epoch else (),
        )
        answer = torn.ask(name, request, 1, ConsumerGroupHeartbeatResponse)
        return answer.error_code, answer.member_epoch

    if has_offsets:
        assert commit(torn, B, "g", 7) == ErrorCode.NONE
    assert beat(B, 0) == (0, 1)
    stop(torn)
    torn.start_nameserver()
    meet(torn, B, A)
    assert beat(B, 1)[0] == ErrorCode.NOT_COORDINATOR
    assert beat(A, 1)[0] == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(A, 0) == (0, 1)
    assert beat(A, 1) == (0, 1)


def test_operators_are_told_of_both_layouts_and_what_to_do(torn: Brokers) -> None:
    stop(torn)
    torn.start_nameserver()
    meet(torn, B, A)
    (text,) = {text for text in errors(torn) if "__consumer_offsets was laid out twice" in text}
    assert "broker-a:50" in text
    assert "broker-b:50" in text
    assert "--kafka-brokers" in text
    said = [tell.text for tell in torn.told if "has handed over" in tell.text]
    assert len(said) == 2, said


def test_a_group_waits_until_what_was_kept_of_it_has_come(torn: Brokers) -> None:
    """1. The layouts meet, and broker-b goes before it hands anything over. 2. Its groups get no answer that says they have no
    offsets, also after a restart. 3. It comes back."""
    assert commit(torn, B, "g", 7) == ErrorCode.NONE
    stop(torn)
    torn.start_nameserver()
    torn.lost = lambda command: command.code == HANDOVER
    meet(torn, B, A)
    torn.kill(B)
    torn.lost = lambda command: False
    for _ in range(2):
        assert find(torn, A, "g").node_id == 1
        assert committed(torn, A, "g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert commit(torn, A, "g", 1) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        torn.kill(A)
        torn.start(A)
        torn.advance(10_000)
    torn.start(B)
    torn.advance(10_000)
    assert committed(torn, A, "g") == 7


def test_who_is_left_out_of_the_list_is_not_waited_for(torn: Brokers) -> None:
    assert commit(torn, B, "g", 7) == ErrorCode.NONE
    stop(torn)
    torn.start_nameserver()
    torn.lost = lambda command: command.code == HANDOVER
    meet(torn, B, A)
    alone(torn, A)
    assert committed(torn, A, "g") == -1


def test_every_broker_comes_to_the_same_layout_in_whatever_order_they_start(torn: Brokers) -> None:
    seen = set()
    for order in ((A, B), (B, A)):
        stop(torn)
        torn.start_nameserver()
        meet(torn, *order)
        seen |= {tuple(layout(torn, name, "__consumer_offsets")) for name in order}
    assert seen == {tuple((number, (1,)) for number in range(50))}


@pytest.mark.parametrize("ending", [True, False])
def test_an_open_transaction_goes_on_with_the_coordinator_that_holds(
    torn: Brokers, ending: bool
) -> None:
    """It was begun with broker-b, and ends with broker-a; its producer's epoch is what it was."""
    producer = Client(torn, asked=B)
    assert producer.coordinator == B
    assert producer.init() == ErrorCode.NONE
    mine = torn.leaders(B, TOPIC).index(2)
    producer.begin(mine)
    stop(torn)
    torn.start_nameserver()
    meet(torn, A, B)
    assert producer.end(commit=ending) == ErrorCode.NOT_COORDINATOR
    producer.coordinator = producer.coordinator_of("tx", TRANSACTIONS)
    assert producer.coordinator == A
    assert producer.stable(mine) == 0
    assert producer.end(commit=ending) == ErrorCode.NONE
    torn.advance(2_000)
    assert producer.stable(mine) == 2
    assert producer.state().transaction_state == ("CompleteCommit" if ending else "CompleteAbort")
    before = producer.producer_id, producer.epoch
    assert producer.init() == ErrorCode.NONE
    assert (producer.producer_id, producer.epoch - 1) == before


def test_a_transaction_that_was_begun_with_both_ends_where_the_later_one_is_not_over(
    torn: Brokers,
) -> None:
    """The older one of the same id cannot be committed by anybody any more: what it wrote is void."""
    old = Client(torn, asked=B)
    assert old.init() == ErrorCode.NONE
    mine = torn.leaders(B, TOPIC).index(2)
    old.begin(mine)
    alone(torn, A)
    new = Client(torn)
    assert new.init() == ErrorCode.NONE
    new.begin(torn.leaders(A, TOPIC).index(1))
    stop(torn)
    torn.start_nameserver()
    meet(torn, A, B)
    assert new.end(commit=True) == ErrorCode.NONE
    torn.advance(5_000)
    found = new.fetched(mine)
    assert found.last_stable_offset == 2
    assert [each.producer_id for each in found.aborted_transactions or ()] == [old.producer_id]


def test_what_is_kept_comes_in_pieces(torn: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.nodes.broker.kafka.groups.handover.OFFSETS_MAX", 2)
    groups = [f"g{number}" for number in range(7)]
    for number, group in enumerate(groups):
        assert commit(torn, B, group, number) == ErrorCode.NONE
    stop(torn)
    torn.start_nameserver()
    meet(torn, B, A)
    assert [committed(torn, A, group) for group in groups] == list(range(7))


def test_a_topic_that_was_made_twice_keeps_all_its_queues(torn: Brokers) -> None:
    """Each broker alone made `t`. The later one holds; the queues of the other come behind its own, and an error says so."""
    for name in (B, A):
        alone(torn, name)
        assert torn.create(name, "t", 2).error_code == 0
    stop(torn)
    torn.start_nameserver()
    meet(torn, B, A)
    torn.advance(10_000)
    assert torn.leaders(A, "t") == torn.leaders(B, "t") == [1, 1, 2, 2]
    (text,) = {text for text in errors(torn) if "topic t was laid out twice" in text}
    assert "broker-a:2" in text
    assert "broker-b:2" in text
    stop(torn)
    torn.start_nameserver()
    meet(torn, B, A)
    assert torn.leaders(B, "t") == [1, 1, 2, 2]
