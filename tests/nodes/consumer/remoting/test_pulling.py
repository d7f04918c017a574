"""The pull loops: what each answer does, limits, brokers that fail or misbehave."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.nodes.consumer.remoting.conftest import (
    Group,
    inner_batch,
    offsets_of,
    pulled,
    queues,
    record,
    reply,
)

from steelyard.types import ConsumeFrom, LogLine, MessageQueue, Subscription
from steelyard.wire.remoting.command import Command


def ready(**settings: object) -> Group:
    """A member with one queue on each broker, its pulls held."""
    group = Group(1, **settings)
    group.start()
    return group


def test_a_pull_asks_as_the_java_client_does() -> None:
    group = Group(1)
    group.a.offsets["T", 0] = 0
    group.start()
    (pull,) = group.pulls(group.a)
    version = pull.ext["subVersion"]
    assert pull.ext == {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "2",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subVersion": version,
        "expressionType": "TAG",
        "bname": "a",
    }


def test_messages_come_in_order_and_the_next_pull_goes_out_at_once() -> None:
    group = ready(consume_batch=10)
    rig = group.rig
    rig.publish(group.a, "T", 0, 40)
    assert [offsets_of(hand) for hand in rig.hands] == [
        list(range(10)),
        list(range(10, 20)),
        list(range(20, 30)),
        [30, 31],
        list(range(32, 40)),
    ]
    assert [pull.ext["queueOffset"] for pull in group.pulls(group.a)] == ["0", "32", "40"]


def test_the_commit_rides_on_the_pull() -> None:
    group = ready()
    rig = group.rig
    rig.publish(group.a, "T", 0, 1)
    rig.handle_all()
    rig.publish(group.a, "T", 0, 1)
    pull = group.pulls(group.a)[-1]
    assert (pull.ext["sysFlag"], pull.ext["commitOffset"]) == ("3", "1")
    assert group.a.offsets["T", 0] == 1


@pytest.mark.parametrize("code", [19, 20])
def test_nothing_found_moves_on_to_the_next_offset(code: int) -> None:
    group = ready()
    rig = group.rig
    rig.answer(group.a, group.a.held.pop(), pulled([], 50, code))
    assert group.pulls(group.a)[-1].ext["queueOffset"] == "50"
    assert group.offset("a", 0) == 50
    assert not rig.hands


def test_a_moved_offset_is_followed_and_committed() -> None:
    """What the listener had from before counts for nothing."""
    group = ready()
    rig = group.rig
    rig.publish(group.a, "T", 0, 3)
    old = list(rig.hands)
    rig.answer(group.a, group.a.held.pop(), pulled([], 1_000, 21))
    assert group.pulls(group.a)[-1].ext["queueOffset"] == "1000"
    assert group.commits(group.a) == [1_000]
    for hand in old:
        rig.handled(hand)
    assert group.offset("a", 0) == 1_000


def test_a_moved_offset_that_is_the_same_is_not_asked_in_a_circle() -> None:
    group = ready()
    group.a.script[11] = lambda command: pulled([], int(command.ext["queueOffset"]), 21)
    rig = group.rig
    rig.answer(group.a, group.a.held.pop(), pulled([], 5, 21))
    before = len(group.pulls(group.a))
    rig.advance(10_000)
    assert len(group.pulls(group.a)) == before + 10


@pytest.mark.parametrize(("code", "wait_ms"), [(2, 20), (215, 20), (1, 1_000), (26, 1_000)])
def test_a_refused_pull_is_repeated_after_a_while(code: int, wait_ms: int) -> None:
    group = ready()
    rig = group.rig
    before = len(group.pulls(group.a))
    rig.answer(group.a, group.a.held.pop(), reply(code, "no"))
    rig.advance(wait_ms - 1)
    assert len(group.pulls(group.a)) == before
    rig.advance(1)
    assert len(group.pulls(group.a)) == before + 1
    refused = LogLine("WARNING", f"pull from a:1 refused: code {code}: no")
    assert (refused in rig.tells) == (wait_ms == 1_000)


def test_a_busy_broker_is_asked_less_and_less_often_until_it_has_something() -> None:
    group = ready()
    rig = group.rig
    times: list[int] = []

    def busy(_: Command) -> Command:
        times.append(rig.now)
        return reply(2, "busy")

    serve, group.a.script[11] = group.a.script[11], busy
    rig.answer(group.a, group.a.held.pop(), reply(2, "busy"))
    rig.advance(10_000)
    waits = [after - before for before, after in pairwise(times)]
    assert waits[:6] == [40, 80, 160, 320, 640, 1_000]
    assert set(waits[6:]) == {1_000}
    group.a.script[11] = serve
    rig.publish(group.a, "T", 0, 1)
    rig.advance(1_000)
    times.clear()
    group.a.script[11] = busy
    rig.answer(group.a, group.a.held.pop(), reply(2, "busy"))
    rig.advance(100)
    assert [after - before for before, after in pairwise(times)] == [40]


@pytest.mark.parametrize("code", [24, 25])
def test_a_broker_that_does_not_know_the_member_gets_a_heartbeat_first(code: int) -> None:
    group = ready()
    rig = group.rig
    rig.sent.clear()
    rig.answer(group.a, group.a.held.pop(), reply(code))
    assert [c.code for _, c in rig.sent] == [34]
    rig.advance(1_000)
    assert [c.code for _, c in rig.sent if c.code in (34, 11)] == [34, 11]


@pytest.mark.parametrize(
    "answer",
    [
        reply(),
        reply(nextBeginOffset="x", minOffset=0, maxOffset=0),
        pulled([b"garbage"], 5),
        pulled([record("T", 0, 0)[:-3]], 1),
        reply(21),
    ],
)
def test_a_broken_answer_is_told_and_asked_again(answer: Command) -> None:
    group = ready()
    rig = group.rig
    rig.answer(group.a, group.a.held.pop(), answer)
    assert "is invalid" in rig.tells[-1].text
    assert not rig.hands
    before = len(group.pulls(group.a))
    rig.advance(1_000)
    assert group.pulls(group.a)[before].ext["queueOffset"] == "0"


def test_messages_that_were_not_asked_for_are_left_out() -> None:
    group = Group(1)
    group.a.offsets["T", 0] = 5
    rig = group.start()
    messages = [record("T", 0, offset) for offset in (3, 4, 5, 6, 6, 5)]
    rig.answer(group.a, group.a.held.pop(), pulled(messages, 7))
    assert rig.handle_all() == [5, 6]
    assert group.offset("a", 0) == 7


def test_a_second_answer_to_one_pull_is_dropped() -> None:
    group = ready()
    rig = group.rig
    command = group.a.held.pop()
    rig.answer(group.a, command, pulled([record("T", 0, 0)], 1))
    rig.answer(group.a, command, pulled([record("T", 0, 0)], 1))
    assert rig.handle_all() == [0]


def test_messages_with_another_tag_of_the_same_hash_are_left_out() -> None:
    group = ready(subscriptions=(Subscription("T", "Aa"),))
    rig = group.rig
    messages = [
        record("T", 0, 0, properties=b"TAGS\x01BB\x02"),
        record("T", 0, 1, properties=b"TAGS\x01Aa\x02"),
        record("T", 0, 2, properties=b"TAGS\x01BB\x02"),
    ]
    rig.answer(group.a, group.a.held.pop(), pulled(messages, 3))
    assert rig.handle_all() == [1]
    assert group.offset("a", 0) == 3


def test_messages_of_a_batch_that_is_stored_as_one_are_handed_and_committed_one_by_one() -> None:
    group = Group(1, subscriptions=(Subscription("T", "x"),))
    group.a.offsets["T", 0] = 5
    rig = group.start()
    messages = [inner_batch("T", 0, 4, "x", "x", "y", "x"), record("T", 0, 8)]
    rig.answer(group.a, group.a.held.pop(), pulled(messages, 9))
    assert [offsets_of(hand) for hand in rig.hands] == [[5], [7]]
    rig.handled(rig.hands[0])
    rig.advance(5_000)
    assert group.offset("a", 0) == 7
    assert rig.handle_all() == [7]
    rig.advance(5_000)
    assert group.offset("a", 0) == 9


@pytest.mark.parametrize(
    ("limits", "cached"),
    [
        ({"queue_messages_max": 40}, 64),
        ({"queue_bytes_max": 40 * 4}, 64),
        ({"queue_span_max": 40}, 64),
    ],
)
def test_pulling_pauses_beyond_a_limit_and_goes_on_below(
    limits: dict[str, object], cached: int
) -> None:
    group = ready(**limits)
    rig = group.rig
    rig.publish(group.a, "T", 0, 200)
    assert group.pulls(group.a)[-1].ext["queueOffset"] == "32"
    rig.advance(1_000)
    assert group.pulls(group.a)[-1].ext["queueOffset"] == "32"
    seen = rig.handle_all()
    assert seen == list(range(cached))
    rig.advance(50)
    assert group.pulls(group.a)[-1].ext["queueOffset"] == str(cached + 32)
    while len(seen) < 200:
        seen += rig.handle_all()
        rig.advance(50)
    assert seen == list(range(200))


def test_a_broker_that_answers_nothing_at_once_is_asked_only_now_and_then() -> None:
    group = ready()
    rig = group.rig
    group.a.script[11] = lambda command: pulled([], int(command.ext["queueOffset"]), 19)
    before = len(group.pulls(group.a))
    rig.answer(group.a, group.a.held.pop(), pulled([], 0, 19))
    rig.advance(1_000)
    assert len(group.pulls(group.a)) - before <= 22


def test_a_pull_without_an_answer_closes_the_link_and_is_sent_again() -> None:
    group = ready()
    rig = group.rig
    group.a.held.clear()
    before = len(group.pulls(group.a))
    old = rig.link_to(group.a)
    asked = len(group.a.asked)
    rig.advance(30_000)
    assert old not in rig.links
    rig.advance(1_000)
    assert len(group.pulls(group.a)) == before + 1
    on_new_link = [code for code in group.a.codes()[asked:] if code in (34, 11)]
    assert on_new_link[-2:] == [34, 11]


def test_a_lost_commit_is_sent_again() -> None:
    group = ready()
    rig = group.rig
    rig.publish(group.a, "T", 0, 2)
    rig.handle_all()
    rig.publish(group.a, "T", 0, 1)
    assert group.a.offsets["T", 0] == 2
    rig.crash(group.a)
    group.a.offsets.clear()
    group.a.up = True
    rig.advance(5_000)
    assert group.a.offsets["T", 0] == 2


# -- where to start --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("consume_from", "topic_start", "retry_start"),
    [
        (ConsumeFrom.LAST_OFFSET, 3, 0),
        (ConsumeFrom.FIRST_OFFSET, 0, 0),
        (ConsumeFrom.TIMESTAMP, 1, 2),
    ],
)
def test_without_a_committed_offset_the_setting_tells_where_to_start(
    consume_from: ConsumeFrom, topic_start: int, retry_start: int
) -> None:
    group = Group(1, consume_from=consume_from, consume_timestamp=123)
    group.ns.add("T", group.a, queues=1)
    group.ns.add("%RETRY%g", group.a, queues=1)
    group.a.fill("T", 0, 3)
    group.a.fill("%RETRY%g", 0, 2)
    rig = group.start()
    starts = {c.ext["topic"]: c.ext["queueOffset"] for c in reversed(rig.to(group.a, 11))}
    assert starts == {"T": str(topic_start), "%RETRY%g": str(retry_start)}
    if consume_from is ConsumeFrom.TIMESTAMP:
        assert [c.ext["timestamp"] for c in rig.to(group.a, 29)] == ["123"]


@pytest.mark.parametrize(("offset", "topic_start"), [(0, 0), (2, 2), (3, 3), (99, 3)])
@pytest.mark.parametrize("consume_from", ConsumeFrom)
def test_an_offset_to_start_at_comes_before_the_setting(
    consume_from: ConsumeFrom, offset: int, topic_start: int
) -> None:
    """No further than the end of the queue; the retry topic is read from its beginning, as far as the setting says."""
    group = Group(1, consume_from=consume_from, consume_timestamp=123, consume_offset=offset)
    group.ns.add("T", group.a, queues=1)
    group.ns.add("%RETRY%g", group.a, queues=1)
    group.a.fill("T", 0, 3)
    group.a.fill("%RETRY%g", 0, 2)
    rig = group.start()
    starts = {c.ext["topic"]: c.ext["queueOffset"] for c in reversed(rig.to(group.a, 11))}
    retry_start = "2" if consume_from is ConsumeFrom.TIMESTAMP else "0"
    assert starts == {"T": str(topic_start), "%RETRY%g": retry_start}


@pytest.mark.parametrize("strictly", [False, True])
def test_who_begins_strictly_objects_to_a_young_queue_being_read_from_its_beginning(
    strictly: bool,
) -> None:
    group = Group(1, consume_strictly=strictly)
    rig = group.start()
    (asked,) = rig.to(group.a, 14)
    assert asked.ext.get("setZeroIfNotFound") == ("false" if strictly else None)


@pytest.mark.parametrize("code", [14, 30])
@pytest.mark.parametrize("wrong", [reply(1, "no"), reply(), reply(offset="x"), None])
def test_a_start_that_is_not_told_is_asked_again(code: int, wrong: Command | None) -> None:
    group = Group(1)
    original = group.a.script[code]
    group.a.script[code] = lambda command: wrong
    rig = group.start()
    assert group.state().held == queues("T", "a", 0) + queues("T", "b", 0)
    assert MessageQueue("T", "a", 0) not in group.state().offsets
    assert group.pulls(group.a) == []
    group.a.script[code] = original
    rig.advance(1_000 if wrong is not None else 4_000)
    assert len(group.pulls(group.a)) == 1


def test_a_queue_lost_while_its_offset_is_asked_for_is_not_pulled() -> None:
    group = Group(1)
    group.b.script[14] = lambda command: None
    rig = group.start()
    (asked,) = rig.to(group.b, 14)
    rig.advance(2_000)
    group.a.members = group.b.members = ["c1", "c2"]
    rig.push(group.a, Command(code=40, flag=2, ext={"consumerGroup": "g"}))
    rig.advance(0)
    assert group.state().held == queues("T", "a", 0)
    rig.answer(group.b, asked, reply(offset=0))
    assert group.pulls(group.b) == []
    assert group.commits(group.b) == []


def test_a_given_up_queue_is_committed_and_late_answers_do_not_count() -> None:
    """RocketMQ's way: nothing is waited for."""
    group = ready(clean_handover=False)
    rig = group.rig
    rig.publish(group.b, "T", 0, 3)
    first, second, third = rig.hands
    rig.handled(first)
    held = group.b.held[-1]
    rig.advance(2_000)
    group.a.members = group.b.members = ["c1", "c2"]
    rig.push(group.a, Command(code=40, flag=2, ext={"consumerGroup": "g"}))
    rig.advance(0)
    assert group.state().held == queues("T", "a", 0)
    assert group.commits(group.b) == [1]
    rig.handled(second)
    rig.handled(third, ok=False)
    rig.answer(group.b, held, pulled([record("T", 0, 3)], 4))
    assert not rig.hands
    rig.advance(20_000)
    assert group.b.offsets["T", 0] == 1
    assert group.b.sent_back == []


def test_waiting_messages_of_a_given_up_queue_are_not_handed() -> None:
    group = ready(handed_max=1, clean_handover=False)
    rig = group.rig
    rig.publish(group.b, "T", 0, 3)
    rig.advance(2_000)
    group.a.members = group.b.members = ["c1", "c2"]
    rig.push(group.a, Command(code=40, flag=2, ext={"consumerGroup": "g"}))
    rig.advance(0)
    assert rig.handle_all() == [0]
    assert group.b.offsets["T", 0] == 0


def test_a_queue_that_nobody_looked_at_for_two_minutes_is_taken_anew() -> None:
    group = ready(pull_idle_max_ms=10_000, pull_hold_ms=60_000, pull_timeout_ms=90_000)
    rig = group.rig
    before = group.a.count(14)
    rig.advance(20_000)
    assert group.a.count(14) == before + 1
