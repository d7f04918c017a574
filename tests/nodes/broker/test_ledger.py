"""The rebalance ledger as the broker writes it."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import GROUP, Rig, pull_ext
from tests.nodes.broker.driver import START, TOPIC

from steelyard.config import BrokerConfig
from steelyard.groups.remoting.registry import Registry
from steelyard.ledger.events import (
    LEDGER_TOPIC,
    Backlog,
    BrokerStarted,
    BrokerStopped,
    Committed,
    Delivered,
    HandedOver,
    MemberJoined,
    MemberLeft,
    Record,
    Requested,
    decode,
)
from steelyard.nodes.broker import ledger
from steelyard.nodes.broker.backlogs import Backlogs
from steelyard.nodes.broker.ledger import Ledger
from steelyard.nodes.broker.node import Stop
from steelyard.nodes.seam import Asked, Closed
from steelyard.store.memory import MemoryDisk
from steelyard.wire.remoting.codes import RequestCode, ResponseCode

PULL, COMMIT = RequestCode.PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET
B = "broker-a"


def since(rig: Rig, kind: type[Record]) -> list[Record]:
    return [record for record in rig.ledger() if isinstance(record, kind)]


def deliver(rig: Rig, link: int, offset: int, count: int = 32, **more: object) -> None:
    assert rig.ask(link, PULL, pull_ext(offset, maxMsgNums=count, **more)).code == 0


def delivered(at: int, until: int, client: str, first: int, next_: int, **more: int) -> Delivered:
    return Delivered(
        at=at,
        broker=B,
        group=GROUP,
        client=client,
        topic=TOPIC,
        queue=0,
        until=until,
        first=first,
        next=next_,
        count=more.get("count", next_ - first),
        stored=more.get("stored", START),
    )


@pytest.fixture
def full(rig: Rig) -> Rig:
    """Ten messages in the queue; links 1 and 2 are the members a and b."""
    for client in ("a", "b"):
        link = rig.connect()
        for _ in range(5):
            rig.send(link)
        rig.beat(link, client, TOPIC)
    return rig


def test_starts_stops_joins_and_leaves_are_written_as_they_happen(rig: Rig) -> None:
    a, b = rig.connect(), rig.connect()
    rig.beat(a, "a", TOPIC)
    rig.advance(10)
    rig.beat(b, "b", TOPIC)
    rig.beat(b, "b", TOPIC, "T2", version=2)
    rig.event(Closed(a, "gone"))
    rig.ask(b, RequestCode.UNREGISTER_CLIENT, {"clientID": "b", "consumerGroup": GROUP})

    def joined(at: int, client: str, cause: str, *members: str, topics: tuple[str, ...]) -> Record:
        return MemberJoined(
            at=at, broker=B, group=GROUP, client=client, cause=cause, members=members, topics=topics
        )

    def left(at: int, client: str, cause: str, *members: str) -> Record:
        return MemberLeft(at=at, broker=B, group=GROUP, client=client, cause=cause, members=members)

    later = START + 10
    assert rig.ledger() == [
        BrokerStarted(at=START, broker=B),
        joined(START, "a", "heartbeat", "a", topics=(TOPIC,)),
        joined(later, "b", "heartbeat", "a", "b", topics=(TOPIC,)),
        joined(later, "b", "subscription", "a", "b", topics=("T2", TOPIC)),
        left(later, "a", "closed", "b"),
        left(later, "b", "unregistered"),
    ]
    rig.event(Asked(1, Stop()))
    rig.restart()
    assert rig.ledger()[-2:] == [
        BrokerStopped(at=later, broker=B),
        BrokerStarted(at=later, broker=B),
    ]


def test_deliveries_without_a_gap_to_one_client_are_one_record_a_second(full: Rig) -> None:
    deliver(full, 1, 0, 3)
    full.advance(150)
    deliver(full, 1, 3, 2)
    assert since(full, Delivered) == []
    full.advance(850)
    assert since(full, Delivered) == [delivered(START, START + 150, "a", 0, 5)]
    full.advance(5_000)
    assert len(since(full, Delivered)) == 1


def test_messages_that_waited_begin_another_record(full: Rig) -> None:
    """Else nobody could see that the queue stood still."""
    deliver(full, 1, 0, 3)
    full.advance(250)
    deliver(full, 1, 3, 2)
    full.advance(1_000)
    assert since(full, Delivered) == [
        delivered(START, START, "a", 0, 3),
        delivered(START + 250, START + 250, "a", 3, 5),
    ]


def test_who_asks_for_a_queue_is_noted_when_it_is_another(full: Rig) -> None:
    """Whether or not there are messages, and not for clients that are no members."""
    stranger = full.connect()
    for link, offset in ((1, 0), (1, 10), (2, 10), (stranger, 10), (2, 10), (1, 0)):
        full.post(link, PULL, pull_ext(offset, sysFlag=6, subscription="*"))
        full.advance(10)
    full.advance(1_000)
    assert since(full, Requested) == [
        Requested(at=START + at, broker=B, group=GROUP, client=client, topic=TOPIC, queue=0)
        for at, client in ((0, "a"), (20, "b"), (50, "a"))
    ]


def test_more_queues_than_can_be_remembered_are_noted_again(
    full: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "READERS_MAX", 1)
    for queue in (0, 0, 1, 0):
        full.post(1, PULL, pull_ext(10 if queue == 0 else 0, queueId=queue))
    full.advance(1_000)
    asked = [one.queue for one in since(full, Requested) if isinstance(one, Requested)]
    assert asked == [0, 1, 0]


def test_another_client_or_another_offset_begins_another_record(full: Rig) -> None:
    deliver(full, 1, 0, 4)
    deliver(full, 2, 4, 4)
    deliver(full, 2, 0, 2)
    full.advance(1_000)
    assert since(full, Delivered) == [
        delivered(START, START, "a", 0, 4),
        delivered(START, START, "b", 4, 8),
        delivered(START, START, "b", 0, 2),
    ]


def test_a_filter_skips_and_the_record_says_so(full: Rig) -> None:
    full.send(1, i="TAGS\x01red")
    deliver(full, 1, 0, sysFlag=4, subscription="red")
    full.advance(1_000)
    (record,) = since(full, Delivered)
    assert isinstance(record, Delivered)
    assert (record.first, record.next, record.count) == (10, 11, 1)


def test_messages_that_a_filter_skips_do_not_split_a_record(full: Rig) -> None:
    for tag in ("red", "blue", "blue", "red"):
        full.send(1, i=f"TAGS\x01{tag}")
    ext: dict[str, object] = {"sysFlag": 4, "subscription": "red"}
    deliver(full, 1, 10, 1, **ext)
    deliver(full, 1, 11, 1, **ext)
    full.advance(1_000)
    (record,) = since(full, Delivered)
    assert isinstance(record, Delivered)
    assert (record.first, record.next, record.count) == (10, 14, 2)


def test_a_puller_without_heartbeat_goes_by_its_address(full: Rig) -> None:
    link = full.connect("10.9.9.9:1")
    deliver(full, link, 0, sysFlag=4, subscription="*")
    full.advance(1_000)
    (record,) = since(full, Delivered)
    assert isinstance(record, Delivered)
    assert record.client == "10.9.9.9:1"


def test_of_the_commits_of_a_second_the_last_is_written(full: Rig) -> None:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    for offset in (1, 2, 5, 5):
        full.ask(1, COMMIT, ext | {"commitOffset": offset})
        full.advance(100)
    full.advance(1_000)
    full.ask(2, COMMIT, ext | {"commitOffset": 5})
    full.advance(2_000)
    assert since(full, Committed) == [
        Committed(at=START + 200, broker=B, group=GROUP, topic=TOPIC, queue=0, offset=5, client="a")
    ]


def test_what_a_member_handed_over_is_noted_and_its_waiting_pull_ends(full: Rig) -> None:
    """It gives the queue up: the offset did not move, but the record says what was handed over."""
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 5}
    full.ask(1, COMMIT, ext)
    full.advance(1_000)
    mine = full.post(1, PULL, pull_ext(10, sysFlag=6))
    other = full.post(2, PULL, pull_ext(10, sysFlag=6))
    full.advance(10)
    full.ask(1, COMMIT, ext | {"handedOffset": 8, "handedMs": 30})
    answer = full.reply_to(1, mine)
    assert answer is not None
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert full.reply_to(2, other) is None
    full.advance(1_000)
    commits = [one for one in since(full, Committed) if isinstance(one, Committed)]
    assert [(one.offset, one.handed, one.handed_at) for one in commits] == [
        (5, None, None),
        (5, 8, START + 980),
    ]


def test_the_backlog_is_known_when_a_broker_is_back_and_a_member_has_joined(full: Rig) -> None:
    """Also if nobody was delivered anything yet; of other topics, nothing is known."""
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 4}
    full.ask(1, COMMIT, ext)
    full.restart()
    link = full.connect()
    full.beat(link, "c", "T2")
    full.advance(2_000)
    assert since(full, Backlog) == []
    full.beat(link, "c", TOPIC, "T2", version=2)
    full.advance(1_000)
    waiting = [(one.topic, one.waiting) for one in since(full, Backlog) if isinstance(one, Backlog)]
    assert waiting == [(TOPIC, (6,))]


def test_members_that_a_stopping_broker_loses_give_up_nothing() -> None:
    """What they were delivered is still theirs; of a member that leaves it waits again."""
    for is_stopping, waiting in ((True, (2,)), (False, (7,))):
        subject = Ledger(BrokerConfig(name=B), Registry(), Backlogs(B, lambda topic, queue: 12))
        subject.delivered(delivered(START, START, "a", 5, 10), 5, START)
        if is_stopping:
            subject.stopped(START)
        subject.left(MemberLeft(START + 10, B, GROUP, "a", "closed", ()))
        (body,) = subject.take(START + 1_000)
        backlogs = [one for one in decode(body) if isinstance(one, Backlog)]
        assert [one.waiting for one in backlogs] == [waiting]


def test_when_a_member_passed_the_first_message_on_is_noted(full: Rig) -> None:
    """Not for clients that are no members, and not where that cannot be."""
    stranger = full.connect()
    full.advance(100)
    for link, ms in ((1, 40), (1, -1), (1, ledger.HANDED_MS_MAX + 1), (stranger, 40)):
        full.post(link, PULL, pull_ext(10, sysFlag=6, subscription="*", handedMs=ms))
    full.advance(1_000)
    assert since(full, HandedOver) == [
        HandedOver(at=START + 60, broker=B, group=GROUP, client="a", topic=TOPIC, queue=0)
    ]


def test_reading_the_ledger_is_not_noted_and_wakes_its_readers(full: Rig) -> None:
    start = len(full.messages(LEDGER_TOPIC))
    ext = pull_ext(start, topic=LEDGER_TOPIC, sysFlag=6, consumerGroup="spark")
    opaque = full.post(1, PULL, ext)
    deliver(full, 1, 0)
    full.advance(1_000)
    answer = full.reply_to(1, opaque)
    assert answer is not None
    assert answer.ext["nextBeginOffset"] == str(start + 1)
    full.advance(10_000)
    assert len(full.messages(LEDGER_TOPIC)) == start + 1


def test_an_idle_broker_writes_nothing_and_one_without_ledger_never(rig: Rig) -> None:
    rig.advance(60_000)
    assert rig.ledger() == [BrokerStarted(at=START, broker=B)]
    rig = Rig(BrokerConfig(ledger=False))
    rig.beat(rig.connect(), "a", TOPIC)
    rig.advance(60_000)
    assert rig.messages(LEDGER_TOPIC) == []


def test_what_waits_is_bounded(full: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "PENDING_MAX", 3)
    monkeypatch.setattr(ledger, "RECORDS_PER_MESSAGE", 2)
    for offset in (0, 5, 0, 5):
        deliver(full, 1, offset, 1)
    assert len(since(full, Requested)) + len(since(full, Delivered)) == 3
    full.advance(1_000)
    assert len(since(full, Delivered)) == 4


def test_a_full_disk_costs_records_and_nothing_else() -> None:
    disk = MemoryDisk()
    rig = Rig(disk=disk)
    link = rig.connect()
    rig.beat(link, "a", TOPIC)
    disk.room_bytes = 10
    rig.beat(link, "a", TOPIC, f"%RETRY%{GROUP}", version=2)
    assert any("ledger" in tell.text for tell in rig.told)
    disk.room_bytes = None
    rig.event(Closed(link, "gone"))
    assert isinstance(rig.ledger()[-1], MemberLeft)
