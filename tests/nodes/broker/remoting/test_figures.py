"""What brokers answer those who watch the cluster (9103, 9105)."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import GROUP, Rig, pull_ext
from tests.nodes.broker.driver import START, TOPIC
from tests.nodes.broker.remoting.test_admin import CREATE, HEADER

from steelyard.nodes.broker.remoting import figures as handlers
from steelyard.nodes.seam import Measured
from steelyard.wire import figures
from steelyard.wire.figures import (
    BrokerFigures,
    Durations,
    GroupFigures,
    OffsetRow,
    ProcessFigures,
    QueueTimes,
    StoreTimes,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode, SteelyardCode


def asked(rig: Rig, link: int) -> BrokerFigures:
    opaque = rig.post(link, SteelyardCode.FIGURES)
    rig.advance(100)  # it takes turns
    answer = rig.reply_to(link, opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return figures.read(answer.body, BrokerFigures)


def times(rig: Rig, link: int, *offsets: int, topic: str = TOPIC) -> tuple[int, ...]:
    body = figures.write(StoreTimes((QueueTimes(topic, 0, offsets),)))
    opaque = rig.post(link, SteelyardCode.STORE_TIMES, body=body)
    rig.advance(100)
    answer = rig.reply_to(link, opaque)
    assert answer is not None
    told = figures.read(answer.body, StoreTimes)
    assert rig.now - 100 <= told.now <= rig.now
    (queue,) = told.queues
    return queue.values


def commit(rig: Rig, link: int, offset: int) -> None:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": offset}
    assert rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def test_queues_groups_and_counters(rig: Rig) -> None:
    link = rig.connect()
    rig.ask(link, CREATE, HEADER)
    for _ in range(5):
        rig.send(link)
        rig.advance(10)
    rig.beat(link, "c", TOPIC)
    commit(rig, link, 2)
    rig.ask(link, RequestCode.PULL_MESSAGE, pull_ext(2))
    found = asked(rig, link)
    (queue,) = [row for row in found.queues if row.topic == TOPIC]
    assert (queue.queue_id, queue.begin, queue.end) == (0, 0, 5)
    assert queue.size_bytes > 5 * len(b"hello")
    assert found.groups == (GroupFigures(GROUP, 1, (OffsetRow(TOPIC, 0, 2, 3, START + 20),)),)
    assert found.messages_out == 3
    assert found.requests["SEND_MESSAGE_V2"] == 5
    assert found.requests["PULL_MESSAGE"] == 1
    assert found.left_out == 0
    commit(rig, link, 5)
    assert asked(rig, link).groups[0].offsets == (OffsetRow(TOPIC, 0, 5, 0, 0),)


def test_a_member_that_never_commits_is_behind(rig: Rig) -> None:
    """It hangs in its first message, say. Broadcasts commit nothing at brokers."""
    link = rig.connect()
    rig.ask(link, CREATE, HEADER)
    rig.send(link)
    rig.send(link)
    rig.beat(link, "c", TOPIC)
    (group,) = asked(rig, link).groups
    assert (group.group, group.members) == (GROUP, 1)
    assert group.offsets == (OffsetRow(TOPIC, 0, -1, 2, START),)
    commit(rig, link, 1)
    assert [row.offset for row in asked(rig, link).groups[0].offsets] == [1]


def test_what_is_refused_and_what_waits(rig: Rig) -> None:
    link = rig.connect()
    rig.ask(link, CREATE, HEADER)
    rig.send(link)
    assert rig.send(link, b"x" * (4 * 1024 * 1024 + 1)).code == ResponseCode.MESSAGE_ILLEGAL
    rig.beat(link, "c", TOPIC)
    rig.post(link, RequestCode.PULL_MESSAGE, pull_ext(1, suspendTimeoutMillis=60_000))
    rig.post(link, 9_999)
    found = asked(rig, link)
    assert found.refused == {"MESSAGE_ILLEGAL": 1}
    assert found.parked["pull"] == 1
    assert found.requests[handlers.OTHERS] == 1


def test_what_the_driver_measured_is_passed_on(rig: Rig) -> None:
    link = rig.connect()
    assert asked(rig, link).process is None
    measured = ProcessFigures(Durations(), Durations(), {}, 1, 2, 3, 4.5, 6)
    measured.syncs.add(0.02)
    rig.event(Measured(measured))
    assert asked(rig, link).process == measured


def test_rows_beyond_the_limit_are_counted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    link = rig.connect()
    rig.ask(link, CREATE, HEADER)
    for queue_id in range(3):
        rig.send(link, queue_id=queue_id)
        ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id, "commitOffset": 1}
        rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
    whole = asked(rig, link)
    assert len(whole.queues) > 2
    monkeypatch.setattr(handlers, "ROWS_MAX", 2)
    found = asked(rig, link)
    assert found.queues == whole.queues[:2]
    (group,) = found.groups
    assert len(group.offsets) == 2
    assert found.left_out == len(whole.queues) - 2 + 1


def test_when_messages_were_stored(rig: Rig) -> None:
    link = rig.connect()
    rig.ask(link, CREATE, HEADER)
    for _ in range(3):
        rig.send(link)
        rig.advance(10)
    assert times(rig, link, 0, 2, 3, -1) == (START, START + 20, 0, START)
    assert times(rig, link, 0, topic="nowhere") == (0,)


def test_too_many_times_and_nonsense_are_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "TIMES_MAX", 2)
    link = rig.connect()
    for body in (figures.write(StoreTimes((QueueTimes(TOPIC, 0, (1, 2, 3)),))), b"{", b"[1]"):
        answer = rig.ask(link, SteelyardCode.STORE_TIMES, body=body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
