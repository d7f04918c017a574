"""Messages that a concurrent listener has for too long go back, and those that no broker takes back by address."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.remoting.conftest import Group, offsets_of, reply

from steelyard.nodes.consumer.remoting.contract import Resize
from steelyard.wire.remoting.properties import decode_properties

TIMEOUT_MS = 60_000


def overdue(**settings: object) -> Group:
    """Messages 0 to 2 are with the listener for all the time that they have."""
    group = Group(1, consume_timeout_ms=TIMEOUT_MS, **settings)
    rig = group.start()
    rig.publish(group.a, "T", 0, 3)
    return group


def test_the_head_of_a_queue_goes_back_when_its_time_is_over_and_the_offset_goes_on() -> None:
    group = overdue()
    rig = group.rig
    head, second, third = rig.hands
    rig.handled(third)
    rig.advance(TIMEOUT_MS - 1)
    assert not group.a.sent_back
    rig.advance(1)
    assert group.a.sent_back == [0, 1000], "when the first has gone, the second is the head"
    assert [c.ext["delayLevel"] for c in rig.to(group.a, 36)] == ["3", "3"]
    assert group.offset("a", 0) == 3
    rig.handled(head, ok=False)
    rig.handled(second)
    assert group.a.sent_back == [0, 1000]
    assert group.offset("a", 0) == 3


def test_a_message_that_no_offset_waits_for_stays_with_its_listener() -> None:
    """Java looks at the first message of a queue only."""
    group = overdue()
    rig = group.rig
    group.a.script[36] = lambda command: None
    rig.advance(TIMEOUT_MS)
    assert len(rig.to(group.a, 36)) == 1


def test_what_came_later_has_its_own_time() -> None:
    group = Group(1, consume_timeout_ms=TIMEOUT_MS)
    rig = group.start()
    rig.publish(group.a, "T", 0, 1)
    rig.advance(40_000)
    rig.publish(group.b, "T", 0, 1)
    rig.advance(20_000)
    assert (group.a.sent_back, group.b.sent_back) == ([0], [])
    rig.advance(40_000)
    assert (group.a.sent_back, group.b.sent_back) == ([0], [0])


def test_a_listener_that_is_quick_meets_no_timer() -> None:
    group = Group(1, consume_timeout_ms=TIMEOUT_MS)
    rig = group.start()
    for _ in range(5):
        rig.publish(group.a, "T", 0, 1)
        rig.handle_all()
        rig.advance(TIMEOUT_MS)
    assert not group.a.sent_back


def test_a_verdict_in_time_after_a_vain_attempt_counts() -> None:
    group = overdue()
    rig = group.rig
    group.a.script[36] = lambda command: reply(1, "no")
    rig.advance(TIMEOUT_MS)
    assert group.offset("a", 0) == 0
    assert any("take their listener too long" in tell.text for tell in rig.tells)
    rig.handle_all()
    assert group.offset("a", 0) == 3


def test_a_verdict_during_a_vain_attempt_does_not() -> None:
    """It came too late; what did not go back is handed again."""
    group = overdue()
    rig = group.rig
    group.a.script[36] = lambda command: None
    rig.advance(TIMEOUT_MS)
    rig.handle_all()
    rig.answer(group.a, rig.to(group.a, 36)[0], reply(1, "no"))
    assert group.offset("a", 0) == 0
    rig.advance(5_000)
    assert [offsets_of(hand) for hand in rig.hands] == [[0]]
    rig.handle_all()
    assert group.offset("a", 0) == 3


def test_an_attempt_in_vain_is_repeated_every_second() -> None:
    group = overdue()
    rig = group.rig
    group.a.script[36] = lambda command: reply(1, "no")
    rig.advance(TIMEOUT_MS + 3_000)
    assert [c.ext["offset"] for c in rig.to(group.a, 36)] == ["0"] * 4


def test_the_place_at_the_listener_stays_taken() -> None:
    group = overdue(handed_max=3)
    rig = group.rig
    rig.publish(group.a, "T", 0, 2)
    rig.advance(TIMEOUT_MS)
    assert len(group.a.sent_back) == 3
    assert len(rig.hands) == 3
    rig.handled(rig.hands[0])
    assert [offsets_of(hand) for hand in rig.hands] == [[1], [2], [3]]


def test_zero_means_any_time() -> None:
    group = Group(1, consume_timeout_ms=0)
    rig = group.start()
    rig.publish(group.a, "T", 0, 1)
    rig.advance(3_600_000)
    assert not group.a.sent_back


# -- copies --------------------------------------------------------------------------------------------


def test_what_a_broker_does_not_take_back_is_sent_as_a_copy() -> None:
    """DefaultMQPushConsumerImpl.sendMessageBackAsNormalMessage."""
    group = Group(1)
    group.ns.add("%RETRY%g", group.b, queues=1)
    rig = group.start()
    group.a.script[36] = lambda command: reply(1, "no")
    rig.publish(group.a, "T", 0, 2, b"TAGS\x01red\x02")
    rig.handled(rig.hands[0], ok=False)
    rig.handle_all()
    (copy,) = rig.to(group.b, 310)
    properties = decode_properties(copy.ext["i"])
    assert properties == {
        "TAGS": "red",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": "7F000001000010000000000000000000",
        "DELAY": "3",
    }
    assert (copy.ext["b"], copy.ext["j"], copy.ext["l"]) == ("%RETRY%g", "1", "16")
    assert group.offset("a", 0) == 2


def test_a_copy_that_is_refused_is_handed_again() -> None:
    group = Group(1)
    group.ns.add("%RETRY%g", group.b, queues=1)
    rig = group.start()
    group.a.script[36] = lambda command: reply(1, "no")
    group.b.script[310] = lambda command: reply(1, "neither")
    rig.publish(group.a, "T", 0, 1)
    rig.handled(rig.hands[0], ok=False)
    assert "not sent back: code 1: neither" in rig.tells[-1].text
    rig.advance(5_000)
    assert rig.handle_all() == [0]


@pytest.mark.parametrize("code", [10, 11, 12])
def test_a_copy_that_is_stored_with_a_reservation_is_not_handed_again(code: int) -> None:
    group = Group(1)
    group.ns.add("%RETRY%g", group.b, queues=1)
    rig = group.start()
    group.a.script[36] = lambda command: reply(1, "no")
    group.b.script[310] = lambda command: reply(code, msgId="0A", queueId=0, queueOffset=0)
    rig.publish(group.a, "T", 0, 1)
    rig.handled(rig.hands[0], ok=False)
    rig.advance(5_000)
    assert not rig.hands
    assert group.offset("a", 0) == 1


def test_more_and_fewer_places_at_the_listener() -> None:
    group = Group(1, handed_max=2)
    rig = group.start()
    rig.publish(group.a, "T", 0, 9)
    assert len(rig.hands) == 2
    rig.ask(Resize(1, 4))
    assert len(rig.hands) == 4
    rig.ask(Resize(1, 1))
    for _ in range(3):
        rig.handled(rig.hands[0])
    assert len(rig.hands) == 1
    assert len(rig.handle_all()) == 6
