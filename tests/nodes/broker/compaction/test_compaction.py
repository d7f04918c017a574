"""When a log is compacted, what stays of it, and what both dialects see of a compacted topic."""

from __future__ import annotations

import pytest
from tests.nodes.broker.compaction.conftest import (
    INTERVAL_MS,
    SOON,
    compact,
    ready_rig,
    records,
    small_rig,
    state,
)
from tests.nodes.broker.conftest import Rig, pull_ext
from tests.nodes.broker.driver import START, TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig
from tests.nodes.broker.kafka.test_configs import alter
from tests.nodes.broker.kafka.test_fetch import request
from tests.nodes.broker.kafka.test_markers import known, mark
from tests.nodes.broker.kafka.test_produce import send

from steelyard.config import BrokerConfig, StoreConfig
from steelyard.groups.remoting.subscriptions import ALL, Filter
from steelyard.nodes.broker.compaction import passes
from steelyard.nodes.broker.compaction.passes import of_one_pass
from steelyard.nodes.broker.conversion.to_rocketmq import Conversion
from steelyard.nodes.broker.filters import read_matching
from steelyard.nodes.broker.turns import SLICE
from steelyard.sql92.parser import parse
from steelyard.store.check import CheckFinding, check
from steelyard.store.files import Files
from steelyard.store.memory import MemoryDisk
from steelyard.types import Effort, joined
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import FetchResponse
from steelyard.wire.kafka.messages.logs import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from steelyard.wire.kafka.records import TRANSACTIONAL, Record, read_headers, write_batch
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.message import BatchEntry, decode_records, encode_batch

SET = 0
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


def rows(*pairs: tuple[bytes | None, bytes | None], **more: int) -> bytes:
    """A batch of records with these keys and values."""
    return write_batch(
        [Record(n, START + n, key, value) for n, (key, value) in enumerate(pairs)], **more
    )


def write(rig: KafkaRig, *pairs: tuple[bytes | None, bytes | None]) -> int:
    answer = send(rig, rows(*pairs))
    assert answer.error_code == 0
    return answer.base_offset


def fill(rig: KafkaRig, count: int = 12) -> None:
    """Close the segment, by records of a key of their own."""
    for number in range(count):
        write(rig, (b"filling", b"%d" % number * 20))


def offsets(rig: KafkaRig) -> list[int]:
    return [record.offset for record in records(rig) if record.key != b"filling"]


# -- when ------------------------------------------------------------------------------------------


def test_the_last_record_of_each_key_stays_at_its_offset() -> None:
    rig = ready_rig()
    write(rig, (b"a", b"1"), (b"b", b"2"))
    write(rig, (b"a", b"3"), (b"c", b"4"))
    fill(rig)
    assert compact(rig) == 1
    assert offsets(rig) == [1, 2, 3]
    assert [each.level for each in rig.told if "was compacted up to" in each.text] == ["INFO"]
    table = rig.node._parts.statistics
    assert 0 < table.compacted_bytes_left < table.compacted_bytes
    assert compact(rig) == 0, "nothing new is there"


def test_what_is_left_between_gaps_is_one_answer_to_a_fetch() -> None:
    rig = ready_rig(segment_bytes=6_000)
    for number in range(30):
        write(rig, (b"key %d" % number, b""))
        write(rig, (b"filling", b""))
    fill(rig, 60)
    assert compact(rig) == 1
    answer = rig.ask(request(0, topic=TOPIC, part_bytes=6_000), 11, FetchResponse)
    data = joined([answer.responses[0].partitions[0].records or b""])
    found = [header.base_offset for _, header in read_headers(data)]
    assert found[:30] == list(range(0, 60, 2))
    assert offsets(rig) == found[:30]


def test_a_topic_can_be_compacted_from_now_on_and_no_longer() -> None:
    rig = ready_rig({"min.cleanable.dirty.ratio": "0"})
    write(rig, (b"a", b"1"))
    write(rig, (b"a", b"2"))
    fill(rig)
    assert compact(rig) == 0
    assert alter(rig, ("cleanup.policy", SET, "compact,delete")) == 0
    rig.advance(10_000)
    compact(rig)
    assert offsets(rig) == [1]
    assert alter(rig, ("cleanup.policy", SET, "delete")) == 0
    rig.advance(10_000)
    write(rig, (b"a", b"3"))
    fill(rig)
    assert compact(rig) == 0


def test_little_that_is_new_waits() -> None:
    rig = ready_rig({**SOON, "min.cleanable.dirty.ratio": "0.5"})
    for number in range(40):
        write(rig, (b"key %d" % number, b"x" * 50))
    assert compact(rig) == 1
    write(rig, (b"key 1", b"new"))
    fill(rig)
    assert compact(rig) == 0
    assert alter(rig, ("min.cleanable.dirty.ratio", SET, "0.05")) == 0
    rig.advance(10_000)
    compact(rig)
    assert state(records(rig))[b"key 1"] == b"new"
    assert 1 not in offsets(rig)


def test_what_is_young_is_not_compacted_and_what_is_old_in_any_case() -> None:
    rig = ready_rig({**SOON, "min.compaction.lag.ms": "50000"})
    write(rig, (b"a", b"1"))
    write(rig, (b"a", b"2"))
    fill(rig)
    assert compact(rig) == 0
    rig.advance(60_000)
    compact(rig)
    assert offsets(rig) == [1]
    rig = ready_rig({**SOON, "min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "40000"})
    write(rig, (b"a", b"1"))
    write(rig, (b"a", b"2"))
    assert compact(rig) == 0
    rig.advance(50_000)
    write(rig, (b"b", b"1"))  # closes the segment, by its age
    assert len(rig.log().closed()) == 1
    assert compact(rig) == 1
    assert offsets(rig) == [1, 2]


def test_an_open_transaction_holds_compaction_back() -> None:
    rig = ready_rig()
    write(rig, (b"a", b"1"))
    write(rig, (b"a", b"2"))
    fill(rig)
    closed = len(rig.log().closed())
    opened = rows(
        (b"t", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
    )
    assert send(rig, opened).error_code == 0
    begun = rig.log().max_offset - 1
    fill(rig, 20)
    compact(rig)
    assert offsets(rig)[0] == 1
    assert all(s.name.round for s in rig.log().closed() if s.end[1] <= begun)
    assert not any(s.name.round for s in rig.log().closed() if s.end[1] > begun)
    assert closed
    assert mark(rig, 7, commit=True) == 0
    fill(rig, 20)
    compact(rig)
    assert [r.offset for r in records(rig) if r.key == b"t"] == [begun]


def test_more_keys_than_fit_into_memory_take_several_passes() -> None:
    rig = ready_rig(compaction_keys_max=5)
    for number in range(60):
        write(rig, (b"key %d" % (number % 20), b"%d" % number))
    expected = state(records(rig))
    assert compact(rig) > 3
    assert state(records(rig)) == expected
    end = rig.log().closed()[-1].end[1]
    assert len([offset for offset in offsets(rig) if offset < end]) <= 20 + 5


def test_a_pass_takes_as_much_new_as_was_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ready_rig()
    for number in range(200):
        write(rig, (b"key %d" % number, b"x" * 60))
    segments = rig.log().closed()
    size = segments[0].size
    monkeypatch.setattr(passes, "PASS_BYTES", 3 * size)
    assert len(of_one_pass(segments, 0)) == 3
    assert len(of_one_pass(segments, segments[1].end[1])) == 2 + 3
    assert len(of_one_pass(segments, segments[9].end[1])) == 10 + 10
    assert of_one_pass(segments, segments[-2].end[1]) == segments
    expected = state(records(rig))
    assert compact(rig) > 2
    assert state(records(rig)) == expected


def test_a_batch_with_more_keys_than_fit_is_left_alone() -> None:
    rig = ready_rig(compaction_keys_max=2)
    write(rig, *((b"key %d" % number, b"x" * 100) for number in range(6)))
    fill(rig)
    assert compact(rig) == 0
    assert any("more keys than compaction may keep" in line.text for line in rig.told)


def test_a_topic_may_be_deleted_in_the_middle() -> None:
    rig = ready_rig()
    for number in range(200):
        write(rig, (b"a", b"%d" % number), (b"b", b"x" * 40))
    rig.disk_answers = False
    rig.advance(INTERVAL_MS + 100)
    assert not rig.node._compaction.is_idle
    assert any(path.endswith(".cleaning") for path in rig.disk.files)
    rig.node._delete_topic(TOPIC, rig.now, [])
    rig.disk_answers = True
    rig.answer_flushes()
    rig.advance(5_000)
    assert rig.node._compaction.is_idle
    assert not [path for path in rig.disk.files if path.startswith(f"logs/{TOPIC}")]


def test_damage_is_not_compacted_away() -> None:
    rig = ready_rig()
    write(rig, (b"a", b"1"))
    write(rig, (b"a", b"2"))
    fill(rig)
    segment = rig.log().closed()[0]
    rig.disk.files[segment.log_path].data[65] ^= 1
    rig.restart()
    assert compact(rig) == 0
    assert rig.log().closed()[0].name.round == 0
    assert any("was not compacted" in line.text for line in rig.told)
    assert rig.log().give_up(0) == (0, 1)
    rig.advance(3_700_000)
    assert rig.log().closed()[0].name.round
    assert offsets(rig)[0] == 1


def test_a_full_disk_loses_nothing() -> None:
    rig = ready_rig(disk_full_ratio=1.0)
    for number in range(100):
        write(rig, (b"%d" % (number % 30), b"x" * 60))
    expected = state(records(rig))
    rig.disk.room_bytes = 200
    rig.advance(10 * INTERVAL_MS)
    assert state(records(rig)) == expected
    rig.disk.room_bytes = None
    rig.advance(3_700_000)
    compact(rig)
    assert state(records(rig)) == expected
    assert rig.log().closed()[0].name.round


def test_without_a_checkpoint_it_begins_anew() -> None:
    rig = ready_rig()
    for number in range(60):
        write(rig, (b"%d" % (number % 3), b"x" * 60))
    compact(rig)
    expected = records(rig)
    rig.disk.files["tables/compacted.table"].truncate(0)
    rig.restart()
    assert compact(rig) == 1
    assert [r.offset for r in records(rig)] == [r.offset for r in expected]


# -- tombstones and markers ------------------------------------------------------------------------


def test_a_tombstone_stays_until_its_horizon() -> None:
    rig = ready_rig()
    write(rig, (b"a", b"1"))
    write(rig, (b"a", None), (b"b", b"2"))
    fill(rig)
    compact(rig)
    assert offsets(rig) == [1, 2]
    (header,) = [
        each for _, each in read_headers(rig.log().read_run(1, 1).data) if each.base_offset == 1
    ]
    assert header.delete_horizon_ms is not None
    assert rig.now < header.delete_horizon_ms <= rig.now + 100_000
    assert [r.timestamp for r in records(rig)][:2] == [START, START + 1]
    rig.advance(110_000)
    fill(rig)
    compact(rig)
    assert offsets(rig) == [2]


def test_segments_of_tombstones_may_grow_and_lose_nothing_at_a_restart() -> None:
    """With its horizon each record of a batch takes more bytes, as its time is noted as a difference to the batch's."""
    rig = ready_rig()
    for number in range(0, 60, 6):
        write(rig, *[(b"%02d" % each, None) for each in range(number, number + 6)])
    write(rig, (b"z", b"1"))
    before = rig.log().size()
    compact(rig)
    assert rig.log().size() > before
    rig.restart()
    assert offsets(rig) == list(range(61))
    rig.node.check()
    findings = [each for each in check(Files(rig.disk.copy())) if isinstance(each, CheckFinding)]
    assert findings == []


def test_aborted_records_go_and_then_their_marker() -> None:
    rig = ready_rig()
    for number in range(3):
        data = rows(
            (b"t", b"%d" % number),
            producer_id=7,
            producer_epoch=0,
            base_sequence=number,
            attributes=TRANSACTIONAL,
        )
        assert send(rig, data).error_code == 0
        assert mark(rig, 7, commit=number != 1) == 0
    fill(rig)
    assert len(known(rig).aborted(rig.log(), 0, 100)) == 1
    for _ in range(4):
        compact(rig)
        rig.advance(110_000)
        fill(rig)
        assert [r.offset for r in records(rig) if r.key == b"t"] == [4]
    assert known(rig).aborted(rig.log(), 0, 100) == []
    rig.restart()
    assert known(rig).aborted(rig.log(), 0, 100) == []
    assert [r.offset for r in records(rig) if r.key == b"t"] == [4]


# -- records without a key -------------------------------------------------------------------------


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("version", [7, 8, 11])
def test_records_without_a_key_are_refused(compression: Compression, version: int) -> None:
    rig = ready_rig()
    batch = rows((b"a", b"1"), (None, b"2"), (b"", b"3"), (None, b"4"), compression=compression)
    answer = send(rig, batch, version)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert rig.store.log(TOPIC, 0) is None or not rig.log().max_offset
    if version >= 8:
        text = f"Compacted topic cannot accept message without key in topic partition {TOPIC}-0"
        assert [(e.batch_index, e.batch_index_error_message) for e in answer.record_errors] == [
            (1, text),
            (3, text),
        ]
        assert answer.error_message is not None
        assert answer.error_message.startswith(
            "One or more records have been rejected due to 2 record errors in total, and only"
            " showing the first three errors at most: [RecordError(batchIndex=1, message='Comp"
        )
    assert send(rig, rows((b"a", b"1"), compression=compression), version).error_code == 0


def test_a_damaged_batch_is_refused_where_keys_are_looked_at() -> None:
    rig = ready_rig()
    batch = bytearray(rows((b"a", b"1")))
    batch[61] = 0xFF
    from crc32c import crc32c

    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    assert send(rig, bytes(batch)).error_code == ErrorCode.CORRUPT_MESSAGE


# -- RocketMQ --------------------------------------------------------------------------------------


def rocketmq_rig(attributes: str = "+cleanup.policy=COMPACTION") -> tuple[Rig, int]:
    store = StoreConfig(segment_bytes=600, compaction_interval_ms=INTERVAL_MS, retention_ms=0)
    rig = Rig(BrokerConfig(store=store))
    link = rig.connect()
    header = headers.CreateTopicRequestHeader(
        topic="Table",
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        attributes=attributes,
    )
    answer = rig.ask(link, RequestCode.UPDATE_AND_CREATE_TOPIC, headers.write(header))
    assert answer.code == ResponseCode.SUCCESS
    return rig, link


def put(rig: Rig, link: int, body: bytes, key: str) -> int:
    properties = f"KEYS\x01{key}\x02" if key else ""
    return rig.send(link, body, topic="Table", i=properties).code


def messages(rig: Rig, link: int, **filtered: object) -> list[tuple[int, bytes]]:
    """What a consumer pulls from the beginning."""
    found: list[tuple[int, bytes]] = []
    log = rig.store.log("Table", 0)
    assert log is not None
    offset = 0
    while offset < log.max_offset:
        asked = pull_ext(topic="Table", queueId=0, queueOffset=offset, sysFlag=4)
        answer = rig.ask(link, RequestCode.PULL_MESSAGE, asked | filtered)
        if answer.code == ResponseCode.SUCCESS:
            found += [(view.queue_offset, view.body) for view in decode_records(answer.body, "b")]
        following = int(answer.ext["nextBeginOffset"])
        assert following > offset
        offset = following
    return found


def wait(rig: Rig) -> None:
    rig.advance(20_000)
    assert rig.node._compaction.is_idle


def test_a_rocketmq_topic_is_compacted_by_keys() -> None:
    rig, link = rocketmq_rig()
    for number in range(40):
        assert put(rig, link, b"%d" % number, f"k{number % 4}") == 0
    addresses = {view.queue_offset: view.physical_offset for view in rig.messages("Table")}
    wait(rig)
    log = rig.store.log("Table", 0)
    assert log is not None
    end = log.closed()[-1].end[1]
    left = messages(rig, link)
    assert [each for each in left if each[0] < end] == [
        (number, b"%d" % number) for number in range(end - 4, end)
    ]
    assert left[-1] == (39, b"39")
    for number in range(40):
        asked = {"offset": addresses[number]}
        answer = rig.ask(link, RequestCode.VIEW_MESSAGE_BY_ID, asked)
        assert (answer.code == ResponseCode.SUCCESS) == (number >= end - 4)


@pytest.mark.parametrize("condition", ["KEYS is not null", "KEYS = 'k2'", "KEYS is null"])
def test_a_condition_is_met_beyond_what_compaction_removed(condition: str) -> None:
    rig, link = rocketmq_rig()
    for number in range(40):
        assert put(rig, link, b"%d" % number, f"k{number % 4}") == 0
    wait(rig)
    left = messages(rig, link)
    assert left[0][0] > 0
    found = messages(rig, link, expressionType="SQL92", subscription=condition)
    wanted = {"KEYS is not null": left, "KEYS is null": []}
    assert found == wanted.get(condition, [each for each in left if each[0] % 4 == 2])


def test_a_search_by_condition_gets_over_a_long_gap_between_batches() -> None:
    rig = ready_rig()
    write(rig, *[(b"a", b"")] * 1_000)
    write(rig, (b"a", b""))
    fill(rig)
    compact(rig)
    log = rig.log()
    wanted = Filter(condition=parse("KEYS is not null"))
    found = read_matching(log, 0, 32, 10_000, wanted, log.max_offset, Effort(SLICE))
    assert (found.count, found.next_offset) == (0, 1_000)


@pytest.mark.proof
def test_an_empty_body_deletes_its_key_in_time() -> None:
    rig, link = rocketmq_rig()
    assert put(rig, link, b"1", "a") == 0
    assert put(rig, link, b"", "a") == 0
    for number in range(10):
        put(rig, link, b"%d" % number, "b")
    wait(rig)
    assert messages(rig, link)[0] == (1, b"")
    rig.advance(86_400_000)
    for number in range(20):
        put(rig, link, b"%d" % number, "b")
    wait(rig)
    assert messages(rig, link)[0][0] > 1


def test_a_message_without_keys_is_refused() -> None:
    rig, link = rocketmq_rig()
    for key in ("", " "):
        answer = rig.send(link, b"x", topic="Table", i=f"KEYS\x01{key}\x02")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark is not None
        assert "Required message key is missing" in answer.remark
    batch = encode_batch([BatchEntry(0, b"x", b"KEYS\x01a\x02"), BatchEntry(0, b"y", b"")])
    assert rig.send(link, batch, topic="Table", m="true").code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.store.log("Table", 0) is None or not rig.messages("Table")


def test_attributes_of_a_topic() -> None:
    rig, _ = rocketmq_rig("")
    topic = rig.node._parts.topics.get("Table")
    assert topic is not None
    assert topic.attributes == {}
    rig, link = rocketmq_rig()
    topic = rig.node._parts.topics.get("Table")
    assert topic is not None
    assert topic.attributes == {"cleanup.policy": "compact"}
    header = headers.CreateTopicRequestHeader(
        topic="Table",
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        attributes="-cleanup.policy,+message.type=NORMAL",
    )
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    assert rig.ask(link, code, headers.write(header)).code == 0
    topic = rig.node._parts.topics.get("Table")
    assert topic is not None
    assert topic.attributes == {"cleanup.policy": "delete"}
    assert put(rig, link, b"x", "") == 0
    wrong = {**headers.write(header), "attributes": "+cleanup.policy=SHRINK"}
    assert rig.ask(link, code, wrong).code == ResponseCode.SYSTEM_ERROR


# -- the other dialect, and searches ---------------------------------------------------------------


def test_rocketmq_reads_what_is_left_of_batches() -> None:
    rig = ready_rig()
    write(rig, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4"))
    write(rig, (b"a", b"5"), (b"c", b"6"))
    fill(rig)
    compact(rig)
    log = rig.log()
    conversion = Conversion(HOST)
    assert conversion.read_batches(log, 1, 10, 10_000, log.max_offset) is None
    for start, expected in ((0, [1, 3, 4, 5]), (2, [3, 4, 5]), (3, [3, 4, 5]), (4, [4, 5])):
        found = conversion.read(log, start, 4, 10_000, ALL, log.max_offset)
        assert found is not None
        views = list(decode_records(found.data, "b"))
        assert [view.queue_offset for view in views][: len(expected)] == expected[:4]
        assert found.first_offset == expected[0]
    one = conversion.read(log, 0, 1, 10_000, ALL, log.max_offset)
    assert one is not None
    assert (one.count, one.next_offset) == (1, 2)


def test_offsets_are_found_by_time() -> None:
    rig = ready_rig()
    write(rig, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
    write(rig, (b"a", b"4"))
    fill(rig)
    compact(rig)

    def first_at(timestamp: int) -> tuple[int, int]:
        part = ListOffsetsPartition(0, -1, timestamp)
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(TOPIC, [part])])
        answer = rig.ask(request, 5, ListOffsetsResponse).topics[0].partitions[0]
        assert answer.error_code == 0
        return answer.offset, answer.timestamp

    assert first_at(START) == (1, START + 1)
    assert first_at(START + 2) == (2, START + 2)
    assert first_at(-2)[0] == 0


def test_a_broker_without_kafka_leaves_the_logs_of_transactions_alone() -> None:
    rig = ready_rig()
    data = rows(
        (b"t", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
    )
    assert send(rig, data).error_code == 0
    fill(rig)
    rig.node._kafka = None
    disk: MemoryDisk = rig.disk.copy()
    store = StoreConfig(segment_bytes=600, compaction_interval_ms=INTERVAL_MS, retention_ms=0)
    plain = Rig(BrokerConfig(store=store), disk)
    plain.advance(20_000)
    log = plain.store.log(TOPIC, 0)
    assert log is not None
    assert log.closed()
    assert not any(segment.name.round for segment in log.closed())


def test_nothing_is_compacted_with_an_interval_of_0() -> None:
    rig = small_rig()
    rig.config = BrokerConfig(
        store=StoreConfig(segment_bytes=600, compaction_interval_ms=0), kafka=rig.config.kafka
    )
    rig.restart()
    rig.create_topic(settings=SOON)
    write(rig, (b"a", b"1"))
    fill(rig)
    rig.advance(100_000)
    assert not any(segment.name.round for segment in rig.log().closed())
