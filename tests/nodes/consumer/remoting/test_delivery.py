"""Between the node and the listener: turns, verdicts, messages that go back."""

from __future__ import annotations

from tests.nodes.consumer.remoting.conftest import Group, batch_of, offsets_of, reply

from steelyard.nodes.consumer.remoting.node import Stop
from steelyard.types import MessageQueue
from steelyard.wire.remoting.command import Command


def test_no_more_batches_at_once_than_the_listener_has_threads() -> None:
    group = Group(1, handed_max=3)
    rig = group.start()
    rig.publish(group.a, "T", 0, 10)
    assert len(rig.hands) == 3
    rig.handled(rig.hands[1])
    assert [offsets_of(hand) for hand in rig.hands] == [[0], [2], [3]]


def test_queues_take_turns() -> None:
    group = Group(1, handed_max=1)
    rig = group.start()
    rig.publish(group.a, "T", 0, 3)
    rig.publish(group.b, "T", 0, 3)
    seen = []
    while rig.hands:
        seen.append(batch_of(rig.hands[0]).queue.broker_name)
        rig.handled(rig.hands[0])
    assert seen == ["a", "a", "b", "a", "b", "b"]


def test_the_commit_stays_below_a_message_that_hangs() -> None:
    group = Group(1)
    rig = group.start()
    rig.publish(group.a, "T", 0, 10)
    hanging = rig.hands[4]
    for hand in list(rig.hands):
        if hand is not hanging:
            rig.handled(hand)
    rig.advance(5_000)
    assert group.a.offsets["T", 0] == 4
    rig.handled(hanging)
    rig.advance(5_000)
    assert group.a.offsets["T", 0] == 10


def test_a_message_for_later_goes_back_to_its_broker_and_is_done_here() -> None:
    group = Group(1)
    rig = group.start()
    group.a.script[36] = lambda command: None
    properties = b"UNIQ_KEY\x01KEY7\x02"
    rig.publish(group.a, "T", 0, 2, properties)
    rig.handled(rig.hands[0], ok=False)
    rig.handle_all()
    assert group.offset("a", 0) == 0
    (back,) = rig.to(group.a, 36)
    assert back.ext == {
        "offset": "0",
        "group": "g",
        "delayLevel": "0",
        "originMsgId": "KEY7",
        "originTopic": "T",
        "unitMode": "false",
        "maxReconsumeTimes": "16",
    }
    rig.answer(group.a, back, reply())
    assert group.offset("a", 0) == 2


def test_a_message_that_the_broker_does_not_take_is_handed_again() -> None:
    group = Group(1)
    rig = group.start()
    group.a.script[36] = lambda command: reply(1, "no")
    rig.publish(group.a, "T", 0, 2)
    rig.handled(rig.hands[0], ok=False)
    rig.handle_all()
    assert group.offset("a", 0) == 0
    assert "not sent back: code 1: no" in rig.tells[-1].text
    rig.advance(4_999)
    assert not rig.hands
    rig.advance(1)
    assert [offsets_of(hand) for hand in rig.hands] == [[0]]
    rig.handle_all()
    assert group.offset("a", 0) == 2


def test_of_a_batch_only_the_messages_that_failed_to_go_back_come_again() -> None:
    group = Group(1, consume_batch=8)
    rig = group.start()
    group.a.script[36] = lambda command: reply(int(command.ext["offset"]) == 1000)
    rig.publish(group.a, "T", 0, 3)
    rig.handled(rig.hands[0], ok=False)
    assert [c.ext["offset"] for c in rig.to(group.a, 36)] == ["0", "1000", "2000"]
    assert group.offset("a", 0) == 0
    rig.advance(5_000)
    assert [offsets_of(hand) for hand in rig.hands] == [[1]]
    group.a.script[36] = lambda command: reply()
    rig.handled(rig.hands[0], ok=False)
    assert group.offset("a", 0) == 3


def test_a_broker_that_dies_while_a_message_goes_back() -> None:
    group = Group(1)
    rig = group.start()
    group.a.script[36] = lambda command: None
    rig.publish(group.a, "T", 0, 1)
    rig.handled(rig.hands[0], ok=False)
    rig.crash(group.a)
    rig.advance(5_000)
    assert rig.handle_all() == [0]


def test_messages_on_their_way_back_keep_their_place_at_the_listener() -> None:
    group = Group(1, handed_max=1)
    rig = group.start()
    group.a.script[36] = lambda command: None
    rig.publish(group.a, "T", 0, 2)
    rig.handled(rig.hands[0], ok=False)
    assert not rig.hands
    rig.answer(group.a, rig.to(group.a, 36)[0], reply())
    assert rig.handle_all() == [1]


def test_a_stop_waits_for_a_message_on_its_way_back_but_not_for_one_to_hand_again() -> None:
    group = Group(1)
    rig = group.start()
    group.a.script[36] = lambda command: None
    rig.publish(group.a, "T", 0, 1)
    rig.handled(rig.hands[0], ok=False)
    stop = rig.ask(Stop())
    assert stop not in rig.answers
    rig.answer(group.a, rig.to(group.a, 36)[0], reply())
    assert rig.answers[stop] is None
    assert group.a.offsets["T", 0] == 1

    other = Group(1)
    rig = other.start()
    other.a.script[36] = lambda command: reply(1)
    rig.publish(other.a, "T", 0, 1)
    rig.handled(rig.hands[0], ok=False)
    stop = rig.ask(Stop())
    assert rig.answers[stop] is None
    assert other.a.offsets["T", 0] == 0


def test_a_message_of_the_retry_topic_has_its_own_topic_back() -> None:
    group = Group(1)
    group.ns.add("%RETRY%g", group.a, queues=1)
    rig = group.start()
    rig.publish(group.a, "%RETRY%g", 0, 1, b"RETRY_TOPIC\x01T\x02")
    (hand,) = rig.hands
    batch = batch_of(hand)
    assert batch.queue == MessageQueue("%RETRY%g", "a", 0)
    assert batch.messages[0].topic == "T"
    rig.handled(hand, ok=False)
    assert rig.to(group.a, 36)[0].ext["originTopic"] == "T"


def test_a_queue_lost_before_its_messages_come_again() -> None:
    group = Group(1)
    rig = group.start()
    group.b.script[36] = lambda command: reply(1)
    rig.publish(group.b, "T", 0, 1)
    rig.handled(rig.hands[0], ok=False)
    rig.advance(1_000)
    group.a.members = group.b.members = ["c1", "c2"]
    rig.push(group.a, Command(code=40, flag=2, ext={"consumerGroup": "g"}))
    rig.advance(10_000)
    assert not rig.hands
