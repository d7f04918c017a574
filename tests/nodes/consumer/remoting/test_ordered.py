"""Ordered consumption: one batch of a queue at a time, under the broker's lock, in the order of the offsets."""

from __future__ import annotations

import pytest
from tests.edges import assert_every_edge
from tests.nodes.consumer.remoting.conftest import (
    Broker,
    Group,
    Rig,
    batch_of,
    offsets_of,
    queues,
    reply,
)

from steelyard.nodes.consumer.remoting.contract import Resize, Stop
from steelyard.nodes.consumer.remoting.ordered import TURNS
from steelyard.nodes.seam import Deliver, Handled
from steelyard.types import ConsumeOrderlyStatus, MessageQueue
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import LockBatchBody, LockBatchResponseBody
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.properties import decode_properties

SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class LockTable:
    """The locks of one broker, as a RocketMQ broker keeps them, but without an end."""

    def __init__(self, broker: Broker) -> None:
        self.owners: dict[MessageQueue, str] = {}
        self.silent = False
        broker.script[RequestCode.LOCK_BATCH_MQ] = self.lock
        broker.script[RequestCode.UNLOCK_BATCH_MQ] = self.unlock

    def lock(self, command: Command) -> Command | None:
        body = fastjson.read(LockBatchBody, command.body)
        granted = [
            queue
            for queue in body.mq_set
            if self.owners.setdefault(queue, body.client_id) == body.client_id
        ]
        return None if self.silent else reply(body=LockBatchResponseBody(tuple(granted)))

    def unlock(self, command: Command) -> Command:
        body = fastjson.read(LockBatchBody, command.body)
        for queue in body.mq_set:
            if self.owners.get(queue) == body.client_id:
                del self.owners[queue]
        return reply()


class OrderedGroup(Group):
    """A member that consumes in order, and the locks of its brokers."""

    def __init__(self, count: int = 1, **settings: object) -> None:
        super().__init__(count, orderly=True, **settings)
        self.locks_a, self.locks_b = LockTable(self.a), LockTable(self.b)

    def verdict(self, hand: Deliver, *, ok: bool = True) -> None:
        self.rig.hands.remove(hand)
        status = ConsumeOrderlyStatus.SUCCESS if ok else SUSPEND
        self.rig.put(Handled(hand.ticket, status))

    def consume_all(self) -> list[int]:
        """The listener is content with everything. Returns the offsets in the order it saw them."""
        seen: list[int] = []
        while self.rig.hands:
            seen += offsets_of(self.rig.hands[0])
            self.verdict(self.rig.hands[0])
        return seen


def handed(rig: Rig) -> list[tuple[str, list[int], list[int]]]:
    """What the listener has: broker, offsets, and how often each was tried before."""
    return [
        (batch.queue.broker_name, offsets_of(hand), [m.reconsume_times for m in batch.messages])
        for hand in rig.hands
        for batch in (batch_of(hand),)
    ]


def test_one_batch_of_a_queue_is_out_at_a_time() -> None:
    group = OrderedGroup(consume_batch=2)
    rig = group.start()
    rig.publish(group.a, "T", 0, 5)
    rig.publish(group.b, "T", 0, 1)
    assert handed(rig) == [("a", [0, 1], [0, 0]), ("b", [0], [0])]
    group.verdict(rig.hands[0])
    assert handed(rig) == [("b", [0], [0]), ("a", [2, 3], [0, 0])]
    assert group.offset("a", 0) == 2
    assert group.consume_all() == [0, 2, 3, 4]
    assert group.offset("a", 0) == 5


def test_a_queue_keeps_its_place_at_the_listener_for_a_minute() -> None:
    group = OrderedGroup(handed_max=1)
    rig = group.start()
    rig.publish(group.a, "T", 0, 4)
    rig.publish(group.b, "T", 0, 1)
    group.verdict(rig.hands[0])
    assert handed(rig) == [("a", [1], [0])]
    rig.advance(60_000)
    group.verdict(rig.hands[0])
    assert handed(rig) == [("a", [2], [0])]
    rig.advance(1)
    group.verdict(rig.hands[0])
    assert handed(rig) == [("b", [0], [0])]
    assert group.consume_all() == [0, 3]


@pytest.mark.parametrize(
    ("suspend_ms", "rest_ms"), [(0, 10), (1_000, 1_000), (29_000, 29_000), (99_000, 30_000)]
)
def test_a_failed_batch_holds_its_queue_up_and_comes_again(suspend_ms: int, rest_ms: int) -> None:
    group = OrderedGroup(suspend_ms=suspend_ms, consume_batch=2)
    rig = group.start()
    rig.publish(group.a, "T", 0, 3)
    for tried in range(20):
        assert handed(rig) == [("a", [0, 1], [tried, tried])]
        group.verdict(rig.hands[0], ok=False)
        rig.advance(rest_ms - 1)
        assert not rig.hands
        rig.advance(1)
    assert group.offset("a", 0) == 0
    assert group.consume_all() == [0, 1, 2]
    assert not rig.to(group.a, 36, 310)


def test_a_queue_that_rests_leaves_its_place_to_others() -> None:
    group = OrderedGroup(handed_max=1)
    rig = group.start()
    rig.publish(group.a, "T", 0, 1)
    rig.publish(group.b, "T", 0, 1)
    group.verdict(rig.hands[0], ok=False)
    assert handed(rig) == [("b", [0], [0])]
    rig.advance(1_000)
    group.verdict(rig.hands[0])
    assert handed(rig) == [("a", [0], [1])]


def leaving(
    properties: bytes = b"UNIQ_KEY\x01K\x02TAGS\x01red\x02", tries: int = 2
) -> OrderedGroup:
    """A group whose message 0 of broker a has failed `tries` times, which is as often as it may."""
    group = OrderedGroup(retry_max=tries)
    group.ns.add("%RETRY%g", group.a, group.b, queues=1)
    rig = group.start()
    rig.publish(group.a, "T", 0, 2, properties)
    for _ in range(tries):
        group.verdict(rig.hands[0], ok=False)
        rig.advance(1_000)
    return group


def copies(group: OrderedGroup) -> list[Command]:
    return group.rig.to(group.a, 310) + group.rig.to(group.b, 310)


def test_a_message_tried_too_often_leaves_as_a_copy_and_the_queue_goes_on() -> None:
    """sendMessageBack: what the broker needs to put it into the dead-letter topic."""
    group = leaving()
    assert not copies(group)
    group.verdict(group.rig.hands[0], ok=False)
    (copy,) = copies(group)
    assert copy.body == b"body"
    ext = dict(copy.ext)
    assert decode_properties(ext.pop("i")) == {
        "UNIQ_KEY": "K",
        "TAGS": "red",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": "K",
        "DELAY": "5",
    }
    assert ext.pop("n") in ("a", "b")
    assert ext == {
        "a": "CLIENT_INNER_PRODUCER",
        "b": "%RETRY%g",
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": str(group.rig.now),
        "h": "0",
        "j": "3",
        "k": "false",
        "l": "2",
        "m": "false",
    }
    assert group.offset("a", 0) == 1
    assert handed(group.rig) == [("a", [1], [0])]


def test_a_copy_that_nobody_takes_stays_in_its_queue() -> None:
    group = leaving()
    for broker in (group.a, group.b):
        broker.script[310] = lambda command: reply(1, "no")
    group.verdict(group.rig.hands[0], ok=False)
    assert "stays in its queue: code 1: no" in group.rig.tells[-1].text
    assert group.offset("a", 0) == 0
    group.rig.advance(1_000)
    assert handed(group.rig) == [("a", [0], [3])]
    for broker in (group.a, group.b):
        broker.script[310] = broker._send
    group.verdict(group.rig.hands[0], ok=False)
    assert handed(group.rig) == [("a", [1], [0])]


@pytest.mark.parametrize("code", [10, 11, 12])
def test_a_copy_that_is_stored_with_a_reservation_is_not_sent_again(code: int) -> None:
    group = leaving()
    stored = reply(code, msgId="0A", queueId=0, queueOffset=0)
    for broker in (group.a, group.b):
        broker.script[310] = lambda command: stored
    group.verdict(group.rig.hands[0], ok=False)
    assert len(copies(group)) == 1
    assert group.offset("a", 0) == 1
    assert handed(group.rig) == [("a", [1], [0])]


def test_without_a_retry_topic_there_is_nowhere_to_go() -> None:
    group = OrderedGroup(retry_max=0, consume_batch=2)
    rig = group.start()
    rig.publish(group.a, "T", 0, 2)
    group.verdict(rig.hands[0], ok=False)
    assert "no route for topic %RETRY%g" in rig.tells[-1].text
    rig.advance(1_000)
    assert handed(rig) == [("a", [0, 1], [1, 1])]


def test_of_a_batch_those_that_left_do_not_come_again() -> None:
    group = OrderedGroup(retry_max=0, consume_batch=3)
    group.ns.add("%RETRY%g", group.a, group.b, queues=1)
    rig = group.start()
    rig.publish(group.a, "T", 0, 4)
    group.b.script[310] = lambda command: reply(1, "no")
    group.verdict(rig.hands[0], ok=False)
    rig.advance(1_000)
    ((_, offsets, tries),) = handed(rig)
    assert (offsets, tries) in (([1], [1]), ([0, 2], [1, 1]))  # the copies go to a and b in turn
    group.b.script[310] = group.b._send
    group.verdict(rig.hands[0], ok=False)
    assert handed(rig) == [("a", [3], [0])]
    assert group.offset("a", 0) == 3


def test_nothing_is_consumed_before_the_lock_is_there() -> None:
    group = OrderedGroup()
    group.locks_a.owners[MessageQueue("T", "a", 0)] = "somebody"
    group.a.offsets["T", 0] = 0
    rig = group.start()
    rig.publish(group.a, "T", 0, 1)
    rig.advance(120_000)
    assert not rig.hands
    assert not group.pulls(group.a)
    group.locks_a.owners.clear()
    rig.advance(1_000)
    assert handed(rig) == [("a", [0], [0])]


def test_a_lock_that_is_not_renewed_stops_the_consumption_after_half_a_minute() -> None:
    group = OrderedGroup()
    rig = group.start()
    rig.publish(group.a, "T", 0, 3)
    group.locks_a.silent = True
    rig.advance(29_999)
    group.verdict(rig.hands[0])
    assert handed(rig) == [("a", [1], [0])]
    rig.advance(1)
    group.verdict(rig.hands[0])
    rig.advance(60_000)
    assert not rig.hands
    group.locks_a.silent = False
    rig.advance(4_000)
    assert handed(rig) == [("a", [2], [0])]


def test_a_lock_that_somebody_else_got_ends_the_holding() -> None:
    group = OrderedGroup()
    rig = group.start()
    rig.publish(group.a, "T", 0, 3)
    rig.advance(5_000)
    group.locks_a.owners[MessageQueue("T", "a", 0)] = "somebody"
    rig.advance(30_000)
    group.verdict(rig.hands[0])
    rig.advance(60_000)
    assert not rig.hands
    group.a.offsets["T", 0] = 2  # somebody's progress
    group.locks_a.owners.clear()
    rig.advance(1_000)
    assert handed(rig) == [("a", [2], [0])]


def test_a_queue_whose_lock_may_have_been_somebody_elses_starts_anew() -> None:
    """The broker drops a lock after a minute. Who had the queue meanwhile may have consumed from it."""
    group = OrderedGroup()
    rig = group.start()
    rig.publish(group.a, "T", 0, 3)
    group.locks_a.silent = True
    rig.advance(70_000)
    group.verdict(rig.hands[0])
    group.a.offsets["T", 0] = 2
    group.locks_a.silent = False
    rig.advance(4_000)
    assert handed(rig) == [("a", [2], [0])]


def test_a_queue_that_comes_back_waits_for_the_batch_of_its_former_life() -> None:
    """Two batches of one queue are never out at once, whatever became of the holding in between."""
    group = OrderedGroup()
    rig = group.start()
    rig.publish(group.a, "T", 0, 2)
    rig.advance(5_000)
    group.locks_a.owners[MessageQueue("T", "a", 0)] = "somebody"
    rig.advance(30_000)
    group.locks_a.owners.clear()
    rig.advance(5_000)
    assert group.state().held == queues("T", "a", 0) + queues("T", "b", 0)
    assert handed(rig) == [("a", [0], [0])]
    group.verdict(rig.hands[0])
    assert handed(rig) == [("a", [0], [0])], "the late verdict counts for nothing"
    assert group.consume_all() == [0, 1]


def give_away(group: OrderedGroup) -> None:
    """Another member joins; it gets the queue of broker b."""
    for broker in (group.a, group.b):
        broker.members.append("c2")
    group.rig.push(group.a, Command(code=40, flag=2, ext={"consumerGroup": "g"}))
    group.rig.advance(1_000)


def test_a_queue_that_is_given_up_is_unlocked_once_its_batch_is_done() -> None:
    group = OrderedGroup()
    rig = group.start()
    rig.publish(group.b, "T", 0, 2)
    give_away(group)
    assert MessageQueue("T", "b", 0) in group.locks_b.owners
    group.verdict(rig.hands[0])
    assert not rig.hands
    rig.advance(100)
    assert group.b.offsets["T", 0] == 1
    assert MessageQueue("T", "b", 0) not in group.locks_b.owners


def test_what_fails_in_a_queue_that_is_given_up_is_left_to_the_next_owner() -> None:
    group = OrderedGroup(retry_max=0)
    group.ns.add("%RETRY%g", group.a, group.b, queues=1)
    rig = group.start()
    rig.publish(group.b, "T", 0, 2)
    give_away(group)
    group.verdict(rig.hands[0], ok=False)
    rig.advance(100)
    assert group.b.offsets["T", 0] == 0
    assert not copies(group)
    assert MessageQueue("T", "b", 0) not in group.locks_b.owners


def test_a_queue_that_rests_is_given_up_at_once() -> None:
    group = OrderedGroup(suspend_ms=30_000)
    rig = group.start()
    rig.publish(group.b, "T", 0, 2)
    group.verdict(rig.hands[0], ok=False)
    give_away(group)
    assert group.b.offsets["T", 0] == 0
    assert MessageQueue("T", "b", 0) not in group.locks_b.owners
    rig.advance(60_000)
    assert not rig.hands


def test_a_stop_waits_for_a_message_that_leaves() -> None:
    group = leaving()
    for broker in (group.a, group.b):
        broker.script[310] = lambda command: None
    group.verdict(group.rig.hands[0], ok=False)
    stop = group.rig.ask(Stop())
    assert stop not in group.rig.answers
    (copy,) = copies(group)
    broker = group.a if group.rig.to(group.a, 310) else group.b
    group.rig.answer(broker, copy, reply())
    group.rig.advance(100)
    assert group.rig.answers[stop] is None
    assert group.a.offsets["T", 0] == 1


def test_more_and_fewer_places_at_the_listener() -> None:
    group = OrderedGroup(count=3, handed_max=2)
    rig = group.start()
    for number in range(3):
        rig.publish(group.a, "T", number, 2)
    assert len(rig.hands) == 2
    rig.ask(Resize(5, 5))
    assert len(rig.hands) == 3
    rig.ask(Resize(1, 1))
    group.verdict(rig.hands[0])
    group.verdict(rig.hands[0])
    assert len(rig.hands) == 1
    assert sorted(group.consume_all()) == [0, 1, 1, 1]


def test_offsets_far_apart_do_not_stop_an_ordered_queue() -> None:
    """The span limit is one of concurrent consumption (DefaultMQPushConsumerImpl.pullMessage)."""
    group = OrderedGroup(queue_span_max=1)
    rig = group.start()
    rig.publish(group.a, "T", 0, 200)
    rig.advance(1_000)
    assert len(group.pulls(group.a)) > 6
    assert group.consume_all() == list(range(200))


def test_every_edge_of_a_turn_is_taken() -> None:
    assert_every_edge(
        TURNS,
        test_a_copy_that_nobody_takes_stays_in_its_queue,
        test_a_queue_whose_lock_may_have_been_somebody_elses_starts_anew,
    )
