"""Fetch: limits, waiting, sessions, what is refused, and records of the other dialect."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.nodes.broker.driver import START, TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.test_produce import request as produce_request
from tests.nodes.broker.kafka.test_produce import send
from tests.store.conftest import WornDisk

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.nodes.broker.kafka.data import fetch as fetching
from steelyard.nodes.broker.kafka.data import fetch_sessions
from steelyard.nodes.broker.kafka.data.fetch_parked import PARKED_MAX
from steelyard.nodes.broker.kafka.data.fetch_sessions import EVICTION_MS
from steelyard.nodes.broker.writer import BatchOrigin
from steelyard.nodes.seam import Closed
from steelyard.types import joined
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ProduceResponse,
)
from steelyard.wire.kafka.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse
from steelyard.wire.kafka.records import read_headers, read_records
from steelyard.wire.kafka.schema import Records
from steelyard.wire.remoting.message import BatchEntry
from steelyard.wire.remoting.names import PERM_WRITE

SMALL = batch(b"x")
SIZE = len(SMALL)


def request(
    *offsets: int,
    topic: str = TOPIC,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 30,
    part_bytes: int = 1 << 20,
    isolation: int = 0,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[int] = (),
    topic_id: bytes = bytes(16),
    epoch: int = -1,
) -> FetchRequest:
    """An offset for each partition from 0 on, -1 for none."""
    parts = [
        FetchPartition(index, epoch, offset, partition_max_bytes=part_bytes)
        for index, offset in enumerate(offsets)
        if offset >= 0
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic, topic_id, parts)] if parts else [],
        forgotten_topics_data=[ForgottenTopic(topic, topic_id, forgotten)] if forgotten else [],
    )


def fetch(rig: KafkaRig, asked: FetchRequest, version: int = 12) -> FetchResponse:
    return rig.ask(asked, version, FetchResponse)


def parts(answer: FetchResponse) -> list[PartitionData]:
    return [part for topic in answer.responses for part in topic.partitions]


def offsets(found: Records | None) -> list[int]:
    """Of all records of whole batches."""
    assert found is not None
    data = joined([found])
    return [r.offset for at, _ in read_headers(data) for r in read_records(data, at)]


# -- what is given ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 13))
def test_batches_come_as_they_were_sent(rig: KafkaRig, version: int) -> None:
    rig.create_topic()
    sent = batch(b"a", b"b")
    send(rig, sent)
    send(rig, sent)
    (part,) = parts(fetch(rig, request(0), version))
    assert part.error_code == 0
    assert (part.high_watermark, part.last_stable_offset) == (4, 4)
    assert part.aborted_transactions is None
    assert offsets(part.records) == [0, 1, 2, 3]
    assert part.records is not None
    assert joined([part.records]).startswith(sent)
    (part,) = parts(fetch(rig, request(3), version))
    assert offsets(part.records) == [2, 3], "the batch that holds the offset, whole"
    (part,) = parts(fetch(rig, request(4), version))
    assert (part.error_code, part.records, part.high_watermark) == (0, b"", 4)


@pytest.mark.parametrize("restart", [False, True])
def test_what_the_disk_cannot_read_is_an_error_of_storage_behind_what_it_can(restart: bool) -> None:
    disk = WornDisk()
    rig = KafkaRig(disk=disk)
    rig.create_topic()
    for _ in range(6):
        send(rig, SMALL)
    if restart:  # then nothing counts as verified
        rig.restart()
    log = rig.store.log(TOPIC, 0)
    assert log is not None
    disk.wear(log._segments.all[0].log_path, 3 * SIZE + 20)
    offset = 0
    while offset < 3:
        (part,) = parts(fetch(rig, request(offset)))
        assert part.error_code == 0
        offset = offsets(part.records)[-1] + 1
    (part,) = parts(fetch(rig, request(3)))
    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (part,) = parts(fetch(rig, request(4)))
    assert offsets(part.records) == [4, 5]


@pytest.mark.parametrize("version", range(13, 19))
def test_topics_go_by_id_since_version_13(rig: KafkaRig, version: int) -> None:
    topic_id = rig.create_topic()
    send(rig, SMALL)
    answer = fetch(rig, request(0, topic_id=topic_id), version)
    assert answer.responses[0].topic_id == topic_id
    assert offsets(parts(answer)[0].records) == [0]
    for unknown in (b"?" * 16, bytes(16)):
        (part,) = parts(fetch(rig, request(0, topic_id=unknown), version))
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_that_was_never_written_to(rig: KafkaRig) -> None:
    rig.create_topic()
    (part,) = parts(fetch(rig, request(0)))
    assert (part.error_code, part.high_watermark, part.log_start_offset) == (0, 0, 0)
    (part,) = parts(fetch(rig, request(1)))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("offset", "code"), [(2, 0), (3, 1), (5, 1), (0, 1), (1, 0), (2**62, 1)])
def test_offsets_out_of_range(rig: KafkaRig, offset: int, code: int) -> None:
    rig.create_topic()
    send(rig, batch(b"a", b"b"))
    rig.log().delete_before(1)
    (part,) = parts(fetch(rig, request(offset)))
    assert part.error_code == code
    if code:
        assert (part.high_watermark, part.log_start_offset) == (-1, -1)


def test_limits_but_always_one_whole_batch(rig: KafkaRig) -> None:
    rig.create_topic(partitions=3)
    for _ in range(3):
        send(rig, SMALL)
    part = parts(fetch(rig, request(0, part_bytes=1)))[0]
    assert offsets(part.records) == [0]
    part = parts(fetch(rig, request(0, part_bytes=2 * SIZE)))[0]
    assert offsets(part.records) == [0, 1]
    part = parts(fetch(rig, request(0, part_bytes=3 * SIZE - 1)))[0]
    assert offsets(part.records) == [0, 1]
    part = parts(fetch(rig, request(0, max_bytes=0)))[0]
    assert offsets(part.records) == [0]


def test_the_limit_of_all_partitions_together(rig: KafkaRig) -> None:
    rig.create_topic(partitions=3)
    for _ in range(2):
        rig.ask(produce_request(SMALL, SMALL, SMALL), 9, ProduceResponse)
    given = parts(fetch(rig, request(0, 0, 0, max_bytes=3 * SIZE)))
    assert [offsets(part.records) for part in given] == [[0, 1], [0], []]
    assert [part.high_watermark for part in given] == [2, 2, 2]
    given = parts(fetch(rig, request(0, 0, 0, max_bytes=3 * SIZE - 1)))
    assert [offsets(part.records) for part in given] == [[0, 1], [], []]


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-2, ErrorCode.FENCED_LEADER_EPOCH)],
)
def test_the_leader_epoch_is_0(rig: KafkaRig, epoch: int, code: int) -> None:
    rig.create_topic()
    (part,) = parts(fetch(rig, request(0, epoch=epoch)))
    assert part.error_code == code


def test_unknown_topics_and_closed_ones(rig: KafkaRig) -> None:
    (part,) = parts(fetch(rig, request(0)))
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rig.create_topic()
    topics = rig.node._parts.topics
    config = topics.get(TOPIC)
    assert config is not None
    topics.put(replace(config, perm=PERM_WRITE), rig.now)
    (part,) = parts(fetch(rig, request(0)))
    assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_what_rocketmq_wrote_comes_as_batches(rig: KafkaRig) -> None:
    rig.create_topic()
    send(rig, batch(b"kafka"))
    messages = [BatchEntry(0, b"rocket", b"KEYS\x01k\x02TAGS\x01t\x02")] * 2
    origin = BatchOrigin(b"\x7f\0\0\1\0\0\0\1", START)
    rig.node._parts.writer.write_many(TOPIC, 0, messages, origin, rig.now, [])
    send(rig, batch(b"kafka"))
    seen = []
    offset = 0
    while offset < 4:
        (part,) = parts(fetch(rig, request(offset)))
        assert part.records
        data = joined([part.records])
        records = [r for at, _ in read_headers(data) for r in read_records(data, at)]
        seen += [(record.offset, record.value) for record in records]
        offset = records[-1].offset + 1
    assert seen == [(0, b"kafka"), (1, b"rocket"), (2, b"rocket"), (3, b"kafka")]


def test_what_goes_out_is_counted(rig: KafkaRig) -> None:
    rig.create_topic()
    send(rig, batch(b"a", b"b"))
    fetch(rig, request(0))
    assert rig.node._parts.statistics.got_messages == 2


# -- waiting ---------------------------------------------------------------------------------------


def test_a_fetch_waits_for_records(rig: KafkaRig) -> None:
    rig.create_topic()
    number = rig.post(request(0, max_wait_ms=500), 12)
    assert rig.answer_to(number, FetchResponse) is None
    rig.link = rig.connect()
    send(rig, SMALL)
    answer = rig.answer_to(number, FetchResponse)
    assert answer is not None
    assert offsets(parts(answer)[0].records) == [0]


def test_or_until_its_time_is_over(rig: KafkaRig) -> None:
    rig.create_topic()
    number = rig.post(request(0, max_wait_ms=500), 12)
    rig.advance(499)
    assert rig.answer_to(number, FetchResponse) is None
    rig.advance(11)
    answer = rig.answer_to(number, FetchResponse)
    assert answer is not None
    assert parts(answer)[0].records == b""


def test_a_fetch_waits_for_enough(rig: KafkaRig) -> None:
    rig.create_topic(partitions=2)
    send(rig, SMALL)
    number = rig.post(request(0, 0, max_wait_ms=500, min_bytes=3 * SIZE), 12)
    rig.link = rig.connect()
    send(rig, SMALL)
    assert rig.answer_to(number, FetchResponse) is None
    rig.ask(produce_request(SMALL, SMALL), 9, ProduceResponse)
    answer = rig.answer_to(number, FetchResponse)
    assert answer is not None
    assert [offsets(part.records) for part in parts(answer)] == [[0, 1, 2], []], (
        "it was woken by the third"
    )


def test_errors_do_not_wait(rig: KafkaRig) -> None:
    rig.create_topic()
    fetch(rig, request(0, 5, max_wait_ms=500))
    fetch(rig, request(7, max_wait_ms=500))


def test_nothing_asked_is_answered_at_once(rig: KafkaRig) -> None:
    assert fetch(rig, request(max_wait_ms=500)).responses == []


def test_who_is_gone_waits_no_more(rig: KafkaRig) -> None:
    rig.create_topic()
    link = rig.connect()
    number = rig.post(request(0, max_wait_ms=500), 12, link=link)
    rig.event(Closed(link, "gone"))
    send(rig, SMALL)
    assert rig.answer_to(number, FetchResponse) is None


@pytest.mark.parametrize("by_time", [False, True])
def test_many_that_waited_are_answered_in_turns(
    rig: KafkaRig, by_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that park as many as they may do not keep others waiting, whatever ends the wait."""
    monkeypatch.setattr(fetching, "WOKEN_MAX", 10)
    rig.create_topic()
    links = [rig.connect() for _ in range(3)]
    asked = [
        rig.post(request(0, max_wait_ms=200), 12, link=link)
        for link in links
        for _ in range(PARKED_MAX)
    ]
    assert not rig.answers.keys() & set(asked)
    if by_time:
        rig.advance(200)
    else:
        send(rig, SMALL)
    assert [each for each in asked if each in rig.answers] == asked[:10]
    rig.event(Closed(links[1], "gone"))
    left = [*asked[:PARKED_MAX], *asked[2 * PARKED_MAX :]]
    for answered in (20, 30, 32):
        rig.advance(1)
        assert [each for each in left if each in rig.answers] == left[:answered]
    for each in left:
        answer = rig.answer_to(each, FetchResponse)
        assert answer is not None
        assert bool(parts(answer)[0].records) != by_time


def test_few_fetches_of_a_link_wait(rig: KafkaRig) -> None:
    rig.create_topic()
    link = rig.connect()
    numbers = [rig.post(request(0, max_wait_ms=500), 12, link=link) for _ in range(PARKED_MAX + 1)]
    assert all(rig.answer_to(number, FetchResponse) is None for number in numbers[:-1])
    send(rig, SMALL)
    answers = [rig.answer_to(number, FetchResponse) for number in numbers]
    assert [len(parts(a)[0].records or b"") for a in answers if a] == [SIZE] * PARKED_MAX + [0]


def test_with_sync_flush_nobody_reads_ahead_of_the_disk() -> None:
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), flush="sync"))
    rig.create_topic()
    send(rig, SMALL)
    rig.disk_answers = False
    number = rig.post(request(1, max_wait_ms=500), 12)
    rig.link = rig.connect()
    rig.post(produce_request(SMALL), 9, link=rig.connect())
    (part,) = parts(fetch(rig, request(0)))
    assert (offsets(part.records), part.high_watermark) == ([0], 1)
    assert rig.answer_to(number, FetchResponse) is None
    rig.answer_flushes()
    answer = rig.answer_to(number, FetchResponse)
    assert answer is not None
    assert (offsets(parts(answer)[0].records), parts(answer)[0].high_watermark) == ([1], 2)


def test_with_sync_flush_a_fetch_waits_for_what_the_disk_is_about_to_have() -> None:
    """What was written before it came, and could not be read yet, counts as soon as it can."""
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), flush="sync"))
    rig.create_topic(partitions=2)
    send(rig, SMALL)
    rig.disk_answers = False
    for _ in range(2):
        rig.post(produce_request(SMALL), 9, link=rig.connect())
    number = rig.post(request(1, max_wait_ms=500, min_bytes=2 * SIZE), 12)
    other = rig.post(request(2, max_wait_ms=500), 12, link=rig.connect())
    rig.answer_flushes()  # of the first
    assert rig.answer_to(number, FetchResponse) is None
    rig.answer_flushes()
    for each, found in ((number, [1, 2]), (other, [2])):
        answer = rig.answer_to(each, FetchResponse)
        assert answer is not None
        assert offsets(parts(answer)[0].records) == found


# -- sessions --------------------------------------------------------------------------------------


def test_a_session_tells_what_has_changed(rig: KafkaRig) -> None:
    rig.create_topic(partitions=3)
    send(rig, SMALL)
    first = fetch(rig, request(0, 0, 0, session=(0, 0)))
    session = first.session_id
    assert session > 0
    assert [part.partition_index for part in parts(first)] == [0, 1, 2]
    second = fetch(rig, request(1, session=(session, 1)))
    assert (second.error_code, second.session_id, second.responses) == (0, session, [])
    send(rig, SMALL)
    third = fetch(rig, request(session=(session, 2)))
    assert [(p.partition_index, offsets(p.records)) for p in parts(third)] == [(0, [1])]
    rig.log().delete_before(1)
    fourth = fetch(rig, request(2, session=(session, 3)))
    assert [(p.partition_index, p.log_start_offset, p.records) for p in parts(fourth)] == [
        (0, 1, b"")
    ]


def test_partitions_are_added_and_forgotten(rig: KafkaRig) -> None:
    rig.create_topic(partitions=3)
    session = fetch(rig, request(0, session=(0, 0))).session_id
    added = fetch(rig, request(-1, 0, session=(session, 1)))
    assert [part.partition_index for part in parts(added)] == [1]
    send(rig, SMALL)
    forgot = fetch(rig, request(session=(session, 2), forgotten=(0,)))
    assert forgot.responses == []


def test_a_waiting_session_hears_of_what_came(rig: KafkaRig) -> None:
    rig.create_topic(partitions=2)
    session = fetch(rig, request(0, 0, session=(0, 0))).session_id
    number = rig.post(request(session=(session, 1), max_wait_ms=500), 12)
    rig.link = rig.connect()
    send(rig, SMALL)
    answer = rig.answer_to(number, FetchResponse)
    assert answer is not None
    assert [(p.partition_index, offsets(p.records)) for p in parts(answer)] == [(0, [0])]


def test_epochs_of_sessions(rig: KafkaRig) -> None:
    rig.create_topic()
    session = fetch(rig, request(0, session=(0, 0))).session_id
    for epoch in (2, 7):
        wrong = fetch(rig, request(session=(session, epoch)))
        assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert wrong.session_id == 0
    assert fetch(rig, request(session=(session, 1))).error_code == 0
    unknown = fetch(rig, request(session=(session + 1, 1)))
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    ids = fetch(rig, request(session=(session, 2)), 13)
    assert ids.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_second_fetch_of_a_waiting_session_outdates_the_first(rig: KafkaRig) -> None:
    rig.create_topic()
    session = fetch(rig, request(0, session=(0, 0))).session_id
    first = rig.post(request(session=(session, 1), max_wait_ms=500), 12)
    second = rig.post(request(session=(session, 2), max_wait_ms=500), 12)
    rig.advance(510)
    answers = [rig.answer_to(number, FetchResponse) for number in (first, second)]
    codes = [answer.error_code for answer in answers if answer]
    assert codes == [ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0]


def test_epoch_minus_1_ends_a_session(rig: KafkaRig) -> None:
    rig.create_topic()
    session = fetch(rig, request(0, session=(0, 0))).session_id
    last = fetch(rig, request(0, session=(session, -1)))
    assert (last.session_id, len(parts(last))) == (0, 1)
    gone = fetch(rig, request(session=(session, 1)))
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_served_partitions_go_to_the_end(rig: KafkaRig) -> None:
    rig.create_topic(partitions=2)
    for _ in range(2):
        rig.ask(produce_request(SMALL, SMALL), 9, ProduceResponse)
    first = fetch(rig, request(0, 0, session=(0, 0), max_bytes=SIZE))
    session = first.session_id
    served = []
    for epoch, position in ((1, (1,)), (2, (1,)), (3, (-1, 1)), (4, (-1, 1))):
        asked = request(*position, session=(session, epoch), max_bytes=SIZE)
        served += [p.partition_index for p in parts(fetch(rig, asked)) if p.records]
    assert served == [0, 1, 0, 1]


def test_slots_for_sessions() -> None:
    config = KafkaConfig(max_incremental_fetch_session_cache_slots=1)
    rig = KafkaRig(BrokerConfig(kafka=config))
    rig.create_topic(partitions=2)
    first = fetch(rig, request(0, session=(0, 0))).session_id
    assert first
    assert fetch(rig, request(0, 0, session=(0, 0))).session_id == 0, "the first is too young"
    rig.advance(EVICTION_MS)
    assert fetch(rig, request(session=(first, 1))).error_code == 0
    rig.advance(1)
    larger = fetch(rig, request(0, 0, session=(0, 0))).session_id
    assert larger, "it is old, and not larger"
    assert fetch(rig, request(session=(first, 2))).error_code == 70
    rig.advance(EVICTION_MS)
    assert fetch(rig, request(session=(larger, 1))).error_code == 0
    rig.advance(1)
    assert fetch(rig, request(0, session=(0, 0))).session_id == 0, "the old one is larger"
    rig.advance(EVICTION_MS + 1)
    assert fetch(rig, request(0, session=(0, 0))).session_id, "nobody used the other one"


def test_partitions_of_all_sessions_are_bounded(
    rig: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 3)
    rig.create_topic(partitions=4)
    session = fetch(rig, request(0, 0, session=(0, 0))).session_id
    assert fetch(rig, request(0, 0, session=(0, 0))).session_id == 0
    grown = fetch(rig, request(-1, -1, 0, 0, session=(session, 1)))
    assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_topic_that_goes_is_told_once_it_is_gone(rig: KafkaRig) -> None:
    rig.create_topic()
    session = fetch(rig, request(0, session=(0, 0))).session_id
    gone = rig.ask(DeleteTopicsRequest((), [TOPIC], 1000), 4, DeleteTopicsResponse)
    assert gone.responses[0].error_code == 0
    for epoch in (1, 2):
        (part,) = parts(fetch(rig, request(session=(session, epoch))))
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rig.create_topic()
    (part,) = parts(fetch(rig, request(session=(session, 3))))
    assert (part.error_code, part.high_watermark) == (0, 0)


def test_a_session_that_forgets_all_is_over(rig: KafkaRig) -> None:
    rig.create_topic(partitions=2)
    session = fetch(rig, request(0, 0, session=(0, 0))).session_id
    forgot = fetch(rig, request(session=(session, 1), forgotten=(0, 1)))
    assert (forgot.error_code, forgot.session_id) == (0, 0)
