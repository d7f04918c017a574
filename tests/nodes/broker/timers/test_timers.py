"""Messages delayed to the millisecond: when they come, what survives, how they are recalled."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nodes.broker.conftest import Rig, send_ext
from tests.nodes.broker.driver import START, TOPIC
from tests.nodes.broker.remoting.test_transactions import end, half

from steelyard.config import BrokerConfig, StoreConfig
from steelyard.nodes.broker.timers import rows, slots, timers, window
from steelyard.nodes.broker.topics import TIMER_SLOTS_TOPIC, TIMER_TOPIC
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import BatchEntry, encode_batch
from steelyard.wire.remoting.recall import RecallHandle

HOUR = 3_600_000
DAY = 24 * HOUR
SLOT = 5_000
"""A slot's time with `_small`."""


def later(
    rig: Rig, link: int, body: bytes, delay_ms: int, key: str = "", queue_id: int = 0
) -> Command:
    text = f"UNIQ_KEY\x01{key or body.decode()}\x02TIMER_DELAY_MS\x01{delay_ms}"
    return rig.send(link, body, queue_id=queue_id, i=text)


def bodies(rig: Rig, queue_id: int = 0) -> list[bytes]:
    return [view.body for view in rig.messages(TOPIC, queue_id)]


def recall(rig: Rig, link: int, sent: Command, topic: str = TOPIC) -> Command:
    ext = {"producerGroup": "p", "topic": topic, "recallHandle": sent.ext["recallHandle"]}
    return rig.ask(link, RequestCode.RECALL_MESSAGE, ext)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All limits are so small that everything happens."""
    make_small(monkeypatch)


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "SLOT_MS", SLOT)
    monkeypatch.setattr(timers, "SLOT_MS", SLOT)
    monkeypatch.setattr(timers, "AHEAD_MS", 500)
    monkeypatch.setattr(window, "ROWS_MAX", 6)
    monkeypatch.setattr(timers, "SPILL_ROWS", 10)
    monkeypatch.setattr(timers, "SPILL_SLOTS_MAX", 2)
    monkeypatch.setattr(timers, "BATCH_MAX", 3)
    monkeypatch.setattr(timers, "_READ_MESSAGES", 4)
    monkeypatch.setattr(slots, "ROWS_MAX", 4)
    monkeypatch.setattr(slots, "_READ_RECORDS", 2)


# -- delivery --------------------------------------------------------------------------------------


def test_a_message_comes_at_its_millisecond_with_what_rocketmq_leaves_on_it(rig: Rig) -> None:
    link = rig.connect()
    rig.advance(7)
    answer = later(rig, link, b"later", 1_234, queue_id=1)
    assert (answer.code, answer.ext["queueId"]) == (0, "1")
    rig.advance(1_233)
    assert rig.messages(TOPIC, 1) == []
    rig.advance(1)
    (view,) = rig.messages(TOPIC, 1)
    assert view.body == b"later"
    assert dict(view.properties) == {
        "UNIQ_KEY": "later",
        "TIMER_DELAY_MS": "1234",
        "CLUSTER": "DefaultCluster",
        "TIMER_OUT_MS": str(START + 1_241),
        "TIMER_ENQUEUE_MS": str(START + 7),
        "TIMER_DEQUEUE_MS": str(START + 1_241),
    }
    assert view.store_timestamp == START + 1_241


@pytest.mark.parametrize("text", ["TIMER_DELAY_MS\x010", f"TIMER_DELIVER_MS\x01{START}"])
def test_a_time_that_has_passed_means_at_once(rig: Rig, text: str) -> None:
    answer = rig.send(rig.connect(), b"now", i=text)
    assert "recallHandle" not in answer.ext
    assert bodies(rig) == [b"now"]


def test_messages_come_in_the_order_of_their_times(rig: Rig) -> None:
    link = rig.connect()
    for delay in (50, 20, HOUR, 20, 3 * DAY, 1):
        later(rig, link, b"%d" % delay, delay)
    rig.advance(50)
    assert bodies(rig) == [b"1", b"20", b"20", b"50"]
    rig.advance(HOUR - 51)
    assert len(bodies(rig)) == 4
    rig.advance(1)
    assert bodies(rig)[4:] == [b"%d" % HOUR]
    rig.now = START + 3 * DAY - 100
    rig.advance(99)
    assert len(bodies(rig)) == 5
    rig.advance(1)
    assert bodies(rig)[5:] == [b"%d" % (3 * DAY)]


def test_a_delay_level_counts_before_a_time(rig: Rig) -> None:
    rig.send(rig.connect(), b"x", i="DELAY\x011\x02TIMER_DELAY_MS\x015000")
    rig.advance(1_000)
    (view,) = rig.messages(TOPIC)
    assert "TIMER_DELAY_MS" not in view.properties


def test_a_message_that_has_waited_and_failed_is_retried_by_level(rig: Rig) -> None:
    link = rig.connect()
    rig.beat(link, "c", TOPIC)
    later(rig, link, b"fails", 1_000)
    rig.advance(1_000)
    (view,) = rig.messages(TOPIC)
    ext = {"offset": view.physical_offset, "group": "group-a", "delayLevel": 0}
    rig.ask(link, RequestCode.CONSUMER_SEND_MSG_BACK, ext)
    rig.advance(9_999)
    assert rig.messages("%RETRY%group-a") == []
    rig.advance(1)
    (again,) = rig.messages("%RETRY%group-a")
    assert "TIMER_DELAY_MS" not in again.properties
    # A client that sends its own copy back, with all properties, is not delayed for long either.
    text = props.encode_properties({**view.properties, "RETRY_TOPIC": TOPIC})
    rig.send(link, b"copy", topic="%RETRY%group-a", j=1, i=text)
    assert rig.messages("%RETRY%group-a")[-1].body == b"copy"


def test_a_batch_must_not_have_delayed_messages(rig: Rig) -> None:
    batch = encode_batch([BatchEntry(0, b"x", b"TIMER_DELAY_MS\x015\x02")])
    code = RequestCode.SEND_BATCH_MESSAGE
    answer = rig.ask(rig.connect(), code, send_ext(m="true"), batch)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_message_of_a_deleted_topic_is_dropped_aloud(rig: Rig) -> None:
    link = rig.connect()
    later(rig, link, b"x", 5)
    rig.ask(link, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
    rig.advance(5)
    assert "its topic 'TopicA' is gone" in rig.told[-1].text


# -- transactions ----------------------------------------------------------------------------------


def test_no_message_of_a_client_is_taken_for_a_record_of_kafkas(rig: Rig) -> None:
    link = rig.connect()
    text = "steelyard.kafka\x011\x02TIMER_DELAY_MS\x011000"
    assert rig.send(link, b"single", i=text).code == 0
    more = {"steelyard.kafka": "1", "TIMER_DELAY_MS": "1000"}
    assert end(rig, link, half(rig, link, "01", b"committed", **more)).code == 0
    rig.advance(1_000)
    assert (bodies(rig), bodies(rig, 2)) == ([b"single"], [b"committed"])


def test_the_delay_of_a_transaction_counts_from_its_commit(rig: Rig) -> None:
    link = rig.connect()
    sent = half(rig, link, TIMER_DELAY_MS="1000")
    rig.advance(600)
    assert end(rig, link, sent).code == ResponseCode.SUCCESS
    rig.advance(999)
    assert rig.messages(TOPIC, 2) == []
    rig.restart()
    rig.advance(1)
    (view,) = rig.messages(TOPIC, 2)
    assert "TRAN_MSG" not in view.properties
    rig.restart()
    rig.advance(5_000)
    assert len(rig.messages(TOPIC, 2)) == 1


def test_a_transaction_that_could_not_be_delayed_is_refused_before_it_is_executed(rig: Rig) -> None:
    assert half(rig, rig.connect(), TIMER_DELAY_SEC="999999").code == ResponseCode.MESSAGE_ILLEGAL


# -- recall ----------------------------------------------------------------------------------------


def test_a_recalled_message_never_comes(rig: Rig) -> None:
    link = rig.connect()
    kept, gone = later(rig, link, b"kept", 500), later(rig, link, b"gone", 500)
    answer = recall(rig, link, gone)
    assert (answer.code, answer.ext["msgId"]) == (0, "gone")
    rig.restart()
    rig.advance(1_000)
    assert bodies(rig) == [b"kept"]
    answer = recall(rig, rig.connect(), kept)
    assert (answer.code, answer.remark) == (604, "recall failed, timestamp invalid")


def test_a_message_that_recalls_is_as_good_as_a_request(rig: Rig) -> None:
    """As clients before 5.3.3 did it."""
    link = rig.connect()
    due = START + 500
    rig.send(link, b"gone", i=f"UNIQ_KEY\x01K\x02TIMER_DELIVER_MS\x01{due}")
    text = f"TIMER_DEL_UNIQKEY\x01{TOPIC}+K\x02TIMER_DELIVER_MS\x01{due}"
    rig.send(link, b"0", i=text)
    rig.advance(1_000)
    assert bodies(rig) == []


def test_a_recall_concerns_one_topic_only(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link, b"", topic="Other")
    handle = RecallHandle.decode(later(rig, link, b"kept", 500).ext["recallHandle"])
    assert handle == RecallHandle(TOPIC, "broker-a", START + 500, "kept")
    ext = {
        "producerGroup": "p",
        "topic": "Other",
        "recallHandle": RecallHandle("Other", "broker-a", handle.due, "kept").encode(),
    }
    assert rig.ask(link, RequestCode.RECALL_MESSAGE, ext).code == ResponseCode.SUCCESS
    rig.advance(500)
    assert bodies(rig) == [b"kept"]


@pytest.mark.parametrize(
    ("topic", "handle", "code", "remark"),
    [
        ("nowhere", "x", 17, "the topic[nowhere] not exist"),
        (TOPIC, "", 604, "recall handle is invalid"),
        (TOPIC, "%%", 604, "recall handle is invalid"),
        (TOPIC, "djIgYSBiIGMgZA==", 604, "recall handle is invalid"),
        (TOPIC, RecallHandle("Other", "broker-a", START + 9, "k").encode(), 604, "topic not match"),
        (TOPIC, RecallHandle(TOPIC, "broker-b", START + 9, "k").encode(), 604, "not available"),
        (TOPIC, RecallHandle(TOPIC, "broker-a", START, "k").encode(), 604, "timestamp invalid"),
        (TOPIC, RecallHandle(TOPIC, "broker-a", -1, "k").encode(), 604, "timestamp invalid"),
        (TOPIC, RecallHandle(TOPIC, "broker-a", START + 4 * DAY, "k").encode(), 604, "timestamp"),
    ],
)
def test_what_cannot_be_recalled(rig: Rig, topic: str, handle: str, code: int, remark: str) -> None:
    link = rig.connect()
    rig.send(link)
    ext = {"producerGroup": "p", "topic": topic, "recallHandle": handle}
    answer = rig.ask(link, RequestCode.RECALL_MESSAGE, ext)
    assert answer.code == code
    assert remark in answer.remark


# -- what survives ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("_small")
def test_messages_survive_kills_and_come_once_and_in_order(rig: Rig) -> None:
    delays = [(number * 7919) % (5 * SLOT) + 1 for number in range(60)]
    link = rig.connect()
    for delay in delays:
        later(rig, link, b"%d" % delay, delay)
        if delay % 13 == 0:
            rig.restart()
            link = rig.connect()
    rig.advance(0)
    assert rig.store.logs(TIMER_SLOTS_TOPIC)
    while rig.now < START + 5 * SLOT:
        rig.advance(SLOT // 3)
        rig.restart()
    assert bodies(rig) == [b"%d" % delay for delay in sorted(delays)]
    for view, delay in zip(rig.messages(TOPIC), sorted(delays), strict=True):
        assert START + delay <= view.store_timestamp <= START + delay + SLOT // 3
    rig.advance(2 * SLOT)
    assert rig.store.logs(TIMER_SLOTS_TOPIC) == []


@pytest.mark.usefixtures("_small")
def test_what_was_overdue_comes_at_once_after_a_restart(rig: Rig) -> None:
    link = rig.connect()
    for hour in range(30):
        later(rig, link, b"%d" % hour, hour * SLOT + 1)
    rig.store.close()
    rig.now += 20 * DAY
    rig.restart()
    rig.advance(0)
    assert bodies(rig) == [b"%d" % hour for hour in range(30)]
    later(rig, rig.connect(), b"new", 5)
    rig.advance(5)
    assert bodies(rig)[30:] == [b"new"]


@pytest.mark.parametrize(
    "written_back", [(), ("tables/",), ("tables/", "logs/rmq_sys_wheel_timer_")]
)
@pytest.mark.usefixtures("_small")
def test_what_was_acknowledged_survives_power_cuts(written_back: tuple[str, ...]) -> None:
    rig = Rig(BrokerConfig(flush="sync"))
    link = rig.connect()
    for number in range(40):
        later(rig, link, b"%d" % number, (number % 4 + 1) * SLOT)
        if number % 7 == 0:
            rig.disk_answers = False
            rig.advance(1)
            rig.disk_answers = True
            rig.lose_power(*written_back)
            link = rig.connect()
    for _ in range(5):
        rig.advance(SLOT)
        rig.lose_power(*written_back)
    found = bodies(rig)
    assert set(found) == {b"%d" % number for number in range(40)}
    assert len(found) < 60


@pytest.mark.usefixtures("_small")
def test_with_flush_async_rows_are_not_taken_for_written_before_the_disk_has_them() -> None:
    """The power goes between the flush of the messages and that of the slots; the table is there."""
    rig = Rig(BrokerConfig(flush="async"))
    link = rig.connect()
    for number in range(9):
        later(rig, link, b"%d" % number, SLOT)
    rig.advance(1_000)  # the disk has the messages
    rig.disk_answers = False
    for number in range(9, 12):
        later(rig, link, b"%d" % number, SLOT)
    rig.advance(100)
    assert rig.store.logs(TIMER_SLOTS_TOPIC)
    rig.disk_answers = True
    rig.lose_power("tables/")
    rig.advance(SLOT)
    assert bodies(rig)[:9] == [b"%d" % number for number in range(9)]


def test_nothing_is_early_after_the_clock_was_set_back(rig: Rig) -> None:
    later(rig, rig.connect(), b"first", 10_000)
    rig.advance(10_000)
    rig.now -= 5_000
    rig.restart()
    later(rig, rig.connect(), b"second", 1_000)
    rig.advance(5_000)
    assert bodies(rig) == [b"first"]
    rig.advance(1)
    assert bodies(rig) == [b"first", b"second"]


def test_retention_keeps_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    rig = Rig(BrokerConfig(store=StoreConfig(retention_ms=1_000, segment_bytes=400)))
    link = rig.connect()
    for number in range(40):
        later(rig, link, b"%d" % number, 2 * SLOT if number % 9 else 500)
    rig.advance(2 * SLOT)
    assert len(bodies(rig)) == 35
    rig.advance(2 * SLOT)
    log = rig.store.log(TIMER_TOPIC, 0)
    assert log is not None
    assert log.min_offset > 20


def test_the_rows_of_a_damaged_slot_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    rig = Rig()
    link = rig.connect()
    for number in range(25):
        later(rig, link, b"%d" % number, 2 * SLOT + number)
    rig.advance(1)
    rig.store.close()
    for path, file in rig.disk.files.items():
        if TIMER_SLOTS_TOPIC in path and path.endswith(".log"):
            file.data[-30] ^= 1
            file.data[100] ^= 1
    rig.restart()
    rig.advance(3 * SLOT)
    assert bodies(rig) == [b"%d" % number for number in range(25)]
    assert any("are made again" in line.text for line in rig.told)


def test_a_full_disk_delays_and_loses_nothing(rig: Rig) -> None:
    link = rig.connect()
    for number in range(5):
        later(rig, link, b"%d" % number, 1_000)
    rig.disk.room_bytes = 100
    rig.advance(5_000)
    assert any("delayed messages wait" in line.text for line in rig.told)
    rig.disk.room_bytes = None
    rig.advance(1_000)
    assert bodies(rig) == [b"%d" % number for number in range(5)]


# -- all together ----------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3 * SLOT)),
        st.tuples(st.just("soon"), st.integers(1, 50)),
        st.tuples(st.just("recall"), st.integers(0, 50)),
        st.tuples(st.just("advance"), st.integers(0, SLOT)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("stop"), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_whatever_happens_each_comes_once_in_time_unless_recalled(
    steps: list[tuple[str, int]],
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_small(monkeypatch)
        run(steps)


def run(steps: list[tuple[str, int]]) -> None:
    rig = Rig()
    link = rig.connect()
    sent: dict[int, tuple[int, Command]] = {}
    recalled: set[int] = set()
    for what, value in steps:
        if what in ("send", "soon"):
            sent[len(sent)] = rig.now + value, later(rig, link, b"%d" % len(sent), value)
        elif what == "recall" and value in sent and sent[value][0] > rig.now:
            assert recall(rig, link, sent[value][1]).code == ResponseCode.SUCCESS
            recalled.add(value)
        elif what == "advance":
            rig.advance(value)
        elif what in ("kill", "stop"):
            if what == "stop":
                rig.store.close()
            rig.restart()
            link = rig.connect()
    rig.advance(4 * SLOT)
    expected = sorted((due, number) for number, (due, _) in sent.items() if number not in recalled)
    found = [(view.store_timestamp, int(view.body)) for view in rig.messages(TOPIC)]
    assert found == expected
