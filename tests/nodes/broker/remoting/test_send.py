"""Sends: what is stored, what is answered, what is refused; batches, delays, dead letters, the disk."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from tests.nodes.broker.conftest import Rig, pull_ext, send_ext
from tests.nodes.broker.driver import START, TOPIC

from steelyard.config import BrokerConfig, FlushMode, StoreConfig
from steelyard.nodes.broker import durability, turns
from steelyard.nodes.broker.remoting.send import STEP_WRITES
from steelyard.nodes.broker.topics import SCHEDULE_TOPIC
from steelyard.nodes.broker.turns import TURNS_TIMER
from steelyard.store.memory import MemoryDisk, MemoryFile
from steelyard.wire.remoting import frame
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.message import BatchEntry, decode_records, encode_batch
from steelyard.wire.remoting.names import DEFAULT_TOPIC
from steelyard.wire.remoting.properties import decode_properties

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


def test_a_message_is_stored_as_sent_with_its_place_and_the_brokers_properties(rig: Rig) -> None:
    link = rig.connect("10.1.2.3:4567")
    properties = "UNIQ_KEY\x01ABC\x02WAIT\x01true\x02TAGS\x01red"
    answer = rig.send(link, b"body", queue_id=2, h=7, i=properties, j=3)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext == {
        "msgId": answer.ext["msgId"],
        "queueId": "2",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    (view,) = rig.messages(TOPIC, 2)
    assert answer.ext["msgId"] == view.offset_message_id
    assert view.body == b"body"
    assert view.property_bytes == b"UNIQ_KEY\x01ABC\x02TAGS\x01red\x02CLUSTER\x01DefaultCluster\x02"
    assert (view.flag, view.reconsume_times, view.queue_id, view.queue_offset) == (7, 3, 2, 0)
    assert (view.born_timestamp, view.store_timestamp) == (START - 5, START)
    assert (view.born_host, view.store_host) == ("10.1.2.3:4567", "127.0.0.1:10911")


def test_the_old_header_and_an_ipv6_peer_do_as_well(rig: Rig) -> None:
    link = rig.connect("[::1]:4567")
    ext = {
        "producerGroup": "p",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": 1,
        "flag": 0,
    }
    assert rig.ask(link, RequestCode.SEND_MESSAGE, ext, b"x").code == ResponseCode.SUCCESS
    (view,) = rig.messages(TOPIC)
    assert view.born_host == "[::1]:4567"
    assert dict(view.properties) == {"CLUSTER": "DefaultCluster"}


@pytest.mark.parametrize(
    ("properties", "stored"),
    [
        ("", {}),
        ("WAIT\x01true\x02A\x011\x02", {"A": "1"}),
        ("A\x011\x02WAIT\x01true", {"A": "1"}),
        ("A\x011\x02WAIT\x01true\x02B\x012", {"A": "1", "B": "2"}),
        ("AWAIT\x01true\x02", {"AWAIT": "true"}),
        ("WAIT\x01false\x02", {"WAIT": "false"}),
        ("CLUSTER\x01other\x02A\x011", {"A": "1"}),
    ],
)
def test_wait_goes_and_cluster_is_ours(rig: Rig, properties: str, stored: dict[str, str]) -> None:
    rig.send(rig.connect(), i=properties)
    (view,) = rig.messages(TOPIC)
    assert dict(view.properties) == stored | {"CLUSTER": "DefaultCluster"}


def test_a_topic_is_made_after_the_default_topic_at_most_as_wide(rig: Rig) -> None:
    link = rig.connect()
    for wanted, made in ((4, 4), (100, 8)):
        topic = f"wants{wanted}"
        assert rig.send(link, topic=topic, d=wanted).code == 0
        table = rig.ask(link, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}).body
        assert table.count(b'"queueId"') == made


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"b": "no such/topic"}, ResponseCode.INVALID_PARAMETER),
        ({"b": ""}, ResponseCode.INVALID_PARAMETER),
        ({"b": "t" * 128}, ResponseCode.INVALID_PARAMETER),
        ({"b": "t" * 127}, ResponseCode.SUCCESS),
        ({"b": "%RETRY%" + "g" * 200}, ResponseCode.SUCCESS),
        ({"c": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"c": "SELF_TEST_TOPIC"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"d": 0}, ResponseCode.TOPIC_NOT_EXIST),
        ({"e": 8}, ResponseCode.INVALID_PARAMETER),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"b": "SELF_TEST_TOPIC"}, ResponseCode.NO_PERMISSION),
        ({"b": "rmq_sys_wheel_timer"}, ResponseCode.NO_PERMISSION),
        ({"b": "rmq_sys_wheel_timer_slots"}, ResponseCode.NO_PERMISSION),
        ({"i": "TRAN_MSG\x01true\x02TIMER_DELAY_MS\x01soon"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"i": "TIMER_DELAY_SEC\x01259201"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"i": "TIMER_DELIVER_MS\x01-10"}, ResponseCode.SUCCESS),
        ({"i": "TIMER_DELIVER_MS\x011\x02TIMER_DEL_UNIQKEY\x01k"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"i": "A\x01" + "x" * 32767}, ResponseCode.MESSAGE_ILLEGAL),
        ({"e": "many"}, ResponseCode.SYSTEM_ERROR),
        ({"e": 2**40}, ResponseCode.SYSTEM_ERROR),
        ({"i": "A\x01\ud800"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_what_is_refused_with_which_code(
    rig: Rig, changes: dict[str, object], code: ResponseCode
) -> None:
    answer = rig.ask(rig.connect(), SEND, send_ext() | changes, b"x")
    assert answer.code == code
    assert bool(answer.remark) == (code != ResponseCode.SUCCESS)
    stored = sum(len(rig.messages(str(changes.get("b", TOPIC)), q)) for q in range(8))
    assert stored == (code == ResponseCode.SUCCESS)


def test_a_missing_field_is_named() -> None:
    rig = Rig()
    ext = send_ext()
    del ext["g"]
    answer = rig.ask(rig.connect(), SEND, ext)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "`g`" in answer.remark


def test_a_body_may_be_as_large_as_configured_and_no_larger() -> None:
    rig = Rig(BrokerConfig(store=StoreConfig(message_bytes_max=100)))
    link = rig.connect()
    assert rig.send(link, bytes(100)).code == ResponseCode.SUCCESS
    assert rig.send(link, bytes(101)).code == ResponseCode.MESSAGE_ILLEGAL


def test_any_queue_will_do() -> None:
    rig = Rig()
    link = rig.connect()
    queues = {rig.send(link, queue_id=-1).ext["queueId"] for _ in range(60)}
    assert queues == {"0", "1", "2", "3"}


def test_a_topic_may_be_closed_to_producers(rig: Rig) -> None:
    link = rig.connect()
    ext = {
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 4,
        "topicFilterType": "SINGLE_TAG",
    }
    assert rig.ask(link, RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0
    assert rig.send(link).code == ResponseCode.NO_PERMISSION


def test_without_automatic_topics_a_topic_must_be_there() -> None:
    rig = Rig()
    link = rig.connect()
    assert rig.ask(link, RequestCode.GET_TOPIC_CONFIG, {"topic": DEFAULT_TOPIC}).code == 0
    rig.config = BrokerConfig(auto_create_topics=False)
    rig.restart()
    link = rig.connect()
    assert rig.send(link).code == ResponseCode.TOPIC_NOT_EXIST
    asked = rig.ask(link, RequestCode.GET_TOPIC_CONFIG, {"topic": DEFAULT_TOPIC})
    assert asked.code == ResponseCode.TOPIC_NOT_EXIST, "clients would wait for topics to be created"


def test_one_way_sends_are_stored_and_not_answered(rig: Rig) -> None:
    link = rig.connect()
    opaque = rig.post(link, SEND, send_ext(), b"x", oneway=True)
    assert rig.reply_to(link, opaque) is None
    assert len(rig.messages(TOPIC)) == 1


# -- batches ---------------------------------------------------------------------------------------


def test_a_batch_becomes_messages_at_consecutive_offsets(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link, b"before")
    entries = [BatchEntry(n, b"m%d" % n, b"TAGS\x01t%d" % n) for n in range(3)]
    answer = rig.ask(link, BATCH, send_ext(m="true"), encode_batch(entries))
    views = rig.messages(TOPIC)
    assert [view.queue_offset for view in views] == [0, 1, 2, 3]
    assert [(v.flag, v.body, v.tags) for v in views[1:]] == [
        (0, b"m0", "t0"),
        (1, b"m1", "t1"),
        (2, b"m2", "t2"),
    ]
    assert answer.ext["msgId"] == ",".join(view.offset_message_id for view in views[1:])
    assert answer.ext["queueOffset"] == "1"


def test_a_batch_is_stored_where_the_positions_in_addresses_begin_again(rig: Rig) -> None:
    """A queue takes more than 1 TiB over the years."""
    rig.send(rig.connect())
    (begun,) = (
        path
        for path in rig.disk.files
        if path.startswith(f"logs/{TOPIC}/0-") and path.endswith(".log")
    )
    rig.disk.remove(begun)
    rig.disk.open(f"{begun.rpartition('/')[0]}/{(1 << 40) - 500:020}-{1:020}.log")
    rig.restart()
    link = rig.connect()
    entries = [BatchEntry(0, b"%d" % number, b"") for number in range(10)]
    assert (
        rig.ask(link, BATCH, send_ext(m="true"), encode_batch(entries)).code == ResponseCode.SUCCESS
    )
    assert rig.send(link, b"10").code == ResponseCode.SUCCESS
    for _ in range(2):
        views = rig.messages(TOPIC)
        assert [(view.queue_offset, view.body) for view in views] == [
            (1 + each, b"%d" % each) for each in range(11)
        ]
        places = [view.physical_offset & (1 << 40) - 1 for view in views]
        assert min(places) < 1_000 < max(places)
        for view in views:
            answer = rig.ask(
                rig.connect(), RequestCode.VIEW_MESSAGE_BY_ID, {"offset": view.physical_offset}
            )
            assert decode_records(answer.body)[0].body == view.body
        rig.restart()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        encode_batch([BatchEntry(0, b"x", b"DELAY\x013\x02")]),
        encode_batch([BatchEntry(0, b"x", b"TRAN_MSG\x01true\x02")]),
        encode_batch([BatchEntry(0, b"x", b"") for _ in range(4)]),
        encode_batch([BatchEntry(0, b"x", b"")])[:-1],
    ],
)
def test_a_bad_batch_is_refused_whole(body: bytes) -> None:
    rig = Rig(BrokerConfig(batch_messages_max=3))
    answer = rig.ask(rig.connect(), BATCH, send_ext(m="true"), body)
    assert answer.code in (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_ERROR)
    assert rig.messages(TOPIC) == []


def test_a_batch_of_more_than_10_000_messages_is_taken(rig: Rig) -> None:
    """As Apache's broker does; its bytes bound it."""
    body = encode_batch([BatchEntry(0, b"x", b"") for _ in range(10_001)])
    link = rig.connect()
    opaque = rig.post(link, BATCH, send_ext(m="true"), body)
    answer = rig.reply_to(link, opaque)
    before = 0
    while answer is None:
        assert TURNS_TIMER in rig.timers, "it waits for nothing"
        rig.advance(1)
        log = rig.store.log(TOPIC, 0)
        stored = 0 if log is None else log.max_offset
        assert stored - before <= STEP_WRITES
        before = stored
        answer = rig.reply_to(link, opaque)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext["queueOffset"] == "0"
    assert answer.ext["msgId"].count(",") == 10_000
    assert len(rig.messages(TOPIC)) == 10_001
    decoder = frame.reply_decoder()
    (read,) = decoder.feed(frame.encode(answer))
    assert read.ext == answer.ext


def test_a_long_batch_with_a_wrong_end_stores_nothing(rig: Rig) -> None:
    body = encode_batch([BatchEntry(0, b"x", b"") for _ in range(5_000)])
    link = rig.connect()
    opaque = rig.post(link, BATCH, send_ext(m="true"), body[:-1])
    while (answer := rig.reply_to(link, opaque)) is None:
        assert TURNS_TIMER in rig.timers, "it waits for nothing"
        rig.advance(1)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert rig.messages(TOPIC) == []


def test_a_topic_that_is_deleted_amid_a_long_batch_stays_deleted(rig: Rig) -> None:
    body = encode_batch([BatchEntry(0, b"x", b"") for _ in range(3_000)])
    link = rig.connect()
    opaque = rig.post(link, BATCH, send_ext(m="true"), body)
    while not rig.messages(TOPIC):
        assert TURNS_TIMER in rig.timers, "it waits for nothing"
        rig.advance(1)
    assert rig.reply_to(link, opaque) is None
    deleted = rig.ask(rig.connect(), RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
    assert deleted.code == ResponseCode.SUCCESS
    while (answer := rig.reply_to(link, opaque)) is None:
        assert TURNS_TIMER in rig.timers, "it waits for nothing"
        rig.advance(1)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert rig.store.log(TOPIC, 0) is None


def test_long_batches_that_wait_are_bounded_in_bytes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = encode_batch([BatchEntry(0, b"x", b"") for _ in range(1_500)])
    monkeypatch.setattr(turns, "LINK_BYTES_MAX", 2 * len(body))
    link = rig.connect()
    posted = [rig.post(link, BATCH, send_ext(m="true"), body) for _ in range(3)]
    refused = rig.reply_to(link, posted[2])
    assert refused is not None
    assert refused.code == ResponseCode.SYSTEM_BUSY
    while TURNS_TIMER in rig.timers:
        rig.advance(1)
    assert len(rig.messages(TOPIC)) == 3_000


def test_a_delay_of_zero_is_none(rig: Rig) -> None:
    """Java writes the property when its `setDelayTimeLevel(0)` is called."""
    body = encode_batch([BatchEntry(0, b"x", b"DELAY\x010\x02")])
    assert rig.ask(rig.connect(), BATCH, send_ext(m="true"), body).code == ResponseCode.SUCCESS


def test_a_batch_wakes_a_pull_with_all_of_it(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link, b"before")
    opaque = rig.post(link, RequestCode.PULL_MESSAGE, pull_ext(1, sysFlag=6))
    body = encode_batch([BatchEntry(0, b"m%d" % n, b"") for n in range(5)])
    rig.ask(link, BATCH, send_ext(m="true"), body)
    answer = rig.reply_to(link, opaque)
    assert answer is not None
    assert answer.ext["nextBeginOffset"] == "6"


# -- delays and dead letters -----------------------------------------------------------------------


def test_a_delayed_message_comes_when_it_is_due_and_not_before(rig: Rig) -> None:
    link = rig.connect()
    answer = rig.send(link, b"later", queue_id=1, i="DELAY\x012\x02K\x01v")
    assert (answer.code, answer.ext["queueId"]) == (0, "1")
    assert rig.messages(TOPIC, 1) == []
    rig.advance(4_999)
    assert rig.messages(TOPIC, 1) == []
    rig.advance(1)
    (view,) = rig.messages(TOPIC, 1)
    assert view.body == b"later"
    assert view.properties["K"] == "v"
    assert "DELAY" not in view.properties
    assert view.store_timestamp == START + 5_000


def test_delayed_messages_survive_a_restart_and_come_once(rig: Rig) -> None:
    link = rig.connect()
    for number in range(3):
        rig.send(link, b"%d" % number, i="DELAY\x011")
        rig.advance(400)
    rig.store.close()
    rig.restart()
    rig.advance(5_000)
    rig.store.close()
    rig.restart()
    rig.advance(5_000)
    assert [view.body for view in rig.messages(TOPIC)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("ahead_ms", [1, 3_600_000])
def test_a_delay_that_began_by_a_clock_that_was_ahead_begins_again_with_a_restart(
    rig: Rig, ahead_ms: int
) -> None:
    rig.send(rig.connect(), b"first", i="DELAY\x012")
    rig.now -= ahead_ms
    rig.restart()
    rig.advance(1_000)
    rig.send(rig.connect(), b"second", i="DELAY\x012")
    rig.advance(3_999)
    assert rig.messages(TOPIC) == []
    rig.advance(1)
    assert [view.body for view in rig.messages(TOPIC)] == [b"first"]
    rig.advance(1_000)
    assert [view.body for view in rig.messages(TOPIC)] == [b"first", b"second"]


@pytest.mark.parametrize("flush", ["async", "sync"])
@pytest.mark.parametrize(
    "kept", [StoreConfig(retention_ms=1_000), StoreConfig(retention_bytes=500)], ids=["ms", "bytes"]
)
def test_retention_keeps_delayed_messages_until_they_were_delivered(
    flush: FlushMode, kept: StoreConfig
) -> None:
    store = replace(kept, segment_bytes=500, retention_check_interval_ms=1_000)
    rig = Rig(BrokerConfig(flush=flush, store=store))
    link = rig.connect()
    for number in range(10):
        rig.send(link, b"%d" % number, i="DELAY\x015")
    rig.advance(30_000)
    rig.restart()
    link = rig.connect()
    for number in range(10):
        rig.send(link, b"%d" % number, i="DELAY\x015")
    rig.advance(70_000)
    delivered, waited = rig.store.log(TOPIC, 0), rig.store.log(SCHEDULE_TOPIC, 4)
    assert delivered is not None
    assert waited is not None
    assert delivered.max_offset == 20
    assert waited.min_offset > 15


@pytest.mark.parametrize("written_back", [(), ("tables/",)])
def test_a_delayed_message_that_was_lost_with_the_power_comes_again(
    written_back: tuple[str, ...],
) -> None:
    rig = Rig(BrokerConfig(flush="sync"))
    rig.send(rig.connect(), b"later", i="DELAY\x011")
    rig.disk_answers = False
    rig.advance(1_000)
    assert len(rig.messages(TOPIC)) == 1
    rig.disk_answers = True
    rig.lose_power(*written_back)
    rig.advance(1_000)
    assert [view.body for view in rig.messages(TOPIC)] == [b"later"]


def test_a_delayed_message_that_the_disk_has_comes_once() -> None:
    rig = Rig(BrokerConfig(flush="sync"))
    rig.send(rig.connect(), i="DELAY\x011")
    rig.advance(1_000)
    rig.restart()
    rig.advance(1_000)
    assert len(rig.messages(TOPIC)) == 1


def test_progress_of_delayed_messages_that_found_no_room_is_recorded_with_a_later_flush() -> None:
    rig = Rig(BrokerConfig(flush="sync"))
    rig.send(rig.connect(), i="DELAY\x011")
    rig.disk_answers = False
    rig.advance(1_000)
    rig.disk.room_bytes = 0
    rig.answer_flushes()
    assert rig.told[-1].text.startswith("the progress of delayed messages is not recorded: ")
    rig.disk.room_bytes = None
    rig.disk_answers = True
    rig.advance(1_000)
    rig.restart()
    rig.advance(1_000)
    assert len(rig.messages(TOPIC)) == 1


class Unreadable(MemoryDisk):
    """While `fails`, what is in files with `SCHEDULE` in their path cannot be read."""

    fails = False

    def open(self, path: str) -> MemoryFile:
        file = super().open(path)
        if not isinstance(file, UnreadableFile) and "SCHEDULE" in path:
            file = self.files[path] = UnreadableFile(self)
        return file


class UnreadableFile(MemoryFile):
    def read(self, position: int, size: int) -> bytes:
        disk = self._disk
        if isinstance(disk, Unreadable) and disk.fails:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(position, size)


@pytest.mark.parametrize("waiting", [0, 300])
def test_delayed_messages_come_once_their_log_can_be_read(waiting: int) -> None:
    """Whoever sends one is told that it is stored; it comes when the disk can be read again."""
    disk = Unreadable()
    rig = Rig(disk=disk)
    link = rig.connect()
    for _ in range(waiting):
        rig.send(link, b"before", i="DELAY\x011")
    disk.fails = True
    assert rig.send(link, b"last", i="DELAY\x011").code == ResponseCode.SUCCESS
    rig.advance(5_000)
    assert rig.messages(TOPIC) == []
    disk.fails = False
    rig.advance(5_000)
    bodies = [view.body for view in rig.messages(TOPIC)]
    assert bodies == [b"before"] * waiting + [b"last"]


def test_levels_beyond_the_last_wait_two_hours(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link, i="DELAY\x0199")
    rig.beat(link, "c", TOPIC)
    rig.advance(7_199_999)
    assert rig.messages(TOPIC) == []
    rig.advance(1)
    assert len(rig.messages(TOPIC)) == 1


def test_a_delayed_message_of_a_deleted_topic_is_dropped_aloud(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link, i="DELAY\x011")
    rig.ask(link, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
    rig.advance(2_000)
    assert any("dropped" in tell.text for tell in rig.told)


def test_a_retry_sent_by_the_client_goes_to_the_dead_letters_after_the_last_try(rig: Rig) -> None:
    link = rig.connect()
    retry, dead = "%RETRY%group-a", "%DLQ%group-a"
    rig.send(link, topic=retry, j=2, l=2, i="DELAY\x011")
    rig.advance(1_000)
    assert len(rig.messages(retry)) == 1
    rig.send(link, topic=retry, j=3, l=2, i="DELAY\x011")
    rig.advance(1_000)
    assert len(rig.messages(retry)) == 1
    assert len(rig.messages(dead)) == 1
    rig.send(link, topic=retry, j=16)
    rig.send(link, topic=retry, j=17)
    assert (len(rig.messages(retry)), len(rig.messages(dead))) == (2, 2)


# -- the disk --------------------------------------------------------------------------------------


def test_with_sync_flush_replies_wait_for_the_disk_and_share_flushes() -> None:
    rig = Rig(BrokerConfig(flush="sync"))
    rig.disk_answers = False
    link = rig.connect()
    first = rig.post(link, SEND, send_ext(), b"1")
    second = rig.post(link, SEND, send_ext(), b"2")
    third = rig.post(link, BATCH, send_ext(m="true"), encode_batch([BatchEntry(0, b"3", b"")]))
    assert len(rig.flushes) == 1
    rig.answer_flushes()
    replies = [rig.reply_to(link, opaque) for opaque in (first, second, third)]
    assert [reply is not None for reply in replies] == [True, False, False]
    assert len(rig.flushes) == 1
    rig.answer_flushes()
    assert all(rig.reply_to(link, opaque) for opaque in (first, second, third))
    assert not rig.flushes


def test_more_replies_than_may_wait_for_the_disk_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durability, "WAITING_MAX", 1)
    rig = Rig(BrokerConfig(flush="sync"))
    rig.disk_answers = False
    link = rig.connect()
    for _ in range(2):
        rig.post(link, SEND, send_ext(), b"x")
    answer = rig.send(link)
    assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.FLUSH_DISK_TIMEOUT, "2")


def test_with_sync_flush_wait_false_is_answered_at_once() -> None:
    rig = Rig(BrokerConfig(flush="sync"))
    rig.disk_answers = False
    assert rig.send(rig.connect(), i="WAIT\x01false").code == 0


@pytest.mark.parametrize("text", ["NOWAIT\x01false", "A\x01WAIT\x01false"])
def test_with_sync_flush_no_property_of_the_application_is_taken_for_wait(text: str) -> None:
    rig = Rig(BrokerConfig(flush="sync"))
    rig.disk_answers = False
    link = rig.connect()
    single = rig.post(link, SEND, send_ext(i=text), b"1")
    entry = BatchEntry(0, b"2", text.encode())
    several = rig.post(link, BATCH, send_ext(m="true"), encode_batch([entry]))
    assert rig.reply_to(link, single) is None
    assert rig.reply_to(link, several) is None
    for _ in range(2):
        rig.answer_flushes()
    assert rig.reply_to(link, single) is not None
    assert rig.reply_to(link, several) is not None


def test_with_async_flush_the_disk_is_asked_now_and_then(rig: Rig) -> None:
    rig.disk_answers = False
    rig.advance(1_000)
    rig.answer_flushes()
    rig.store.flush()
    rig.send(rig.connect())
    rig.advance(1_000)
    assert len(rig.flushes) == 1


def test_a_full_disk_acknowledges_nothing_and_keeps_what_was_acknowledged() -> None:
    disk = MemoryDisk()
    rig = Rig(BrokerConfig(ledger=False), disk)
    link = rig.connect()
    assert rig.send(link, b"kept").code == 0
    disk.room_bytes = 50
    answer = rig.send(link, b"lost")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark
    assert rig.send(link, b"lost too").code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert [tell.level for tell in rig.told] == ["ERROR"]
    disk.room_bytes = None
    assert rig.send(link, b"after").ext["queueOffset"] == "1"
    assert [view.body for view in rig.messages(TOPIC)] == [b"kept", b"after"]


def test_properties_are_those_of_the_wire_whatever_they_hold(rig: Rig) -> None:
    rig.send(rig.connect(), i="a\x01b\x01c\x02\x02novalue\x02KEYS\x01k1 k2")
    (view,) = rig.messages(TOPIC)
    text = "a\x01b\x01c\x02KEYS\x01k1 k2\x02CLUSTER\x01DefaultCluster"
    assert dict(view.properties) == decode_properties(text)
