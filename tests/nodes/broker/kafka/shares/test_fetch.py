"""ShareFetch and ShareAcknowledge: sessions, acquisitions, waiting, time-outs, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.requests import producing
from tests.nodes.broker.kafka.shares.members import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    TOPIC,
    ShareMember,
    ShareRig,
    acquired,
    configure,
    produce,
)
from tests.nodes.broker.kafka.test_fetch_converted import put

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.errors import CorruptError, StorageError
from steelyard.nodes.broker.durability import FLUSH_INTERVAL_MS
from steelyard.nodes.broker.kafka.shares.reads import ShareRead, ShareReads
from steelyard.nodes.broker.node import Stop
from steelyard.nodes.seam import Answer, Asked, Closed
from steelyard.store.log import Log
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import ProduceResponse
from steelyard.wire.kafka.messages.logs import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from steelyard.wire.kafka.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuota,
    QuotaEntity,
    QuotaOperation,
)
from steelyard.wire.kafka.messages.share_data import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    SharePartitionData,
)
from steelyard.wire.kafka.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from steelyard.wire.kafka.messages.topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from steelyard.wire.kafka.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from steelyard.wire.kafka.records import TRANSACTIONAL, read_headers, read_records

E = ErrorCode


@pytest.fixture
def shared() -> Iterator[ShareRig]:
    """A broker with a topic of two partitions, and a group that begins at their start.

    Transactional batches are stored as they come: no coordinator knows their producers.
    """
    kafka = KafkaConfig(transaction_partition_verification_enable=False)
    rig = ShareRig(BrokerConfig(kafka=kafka))
    rig.topic_id = rig.create_topic(TOPIC, 2)
    configure(rig, "g", share_auto_offset_reset="earliest")
    yield rig
    rig.node.check()


def member(rig: ShareRig, name: str = "m", group: str = "g") -> ShareMember:
    return ShareMember(rig, rig.topic_id, name, group)


def values(part: SharePartitionData) -> list[bytes | None]:
    data = part.records
    assert isinstance(data, bytes)
    return [
        record.value
        for position, _ in read_headers(data)
        for record in read_records(data, position)
    ]


# -- records ---------------------------------------------------------------------------------------


def test_members_get_different_records_and_accept_them(shared: ShareRig) -> None:
    for number in range(3):
        produce(shared, b"%d" % number, b"x")
    one, two = member(shared, "one"), member(shared, "two")
    first = one.fetch(max_records=2)[0]
    assert acquired(first) == [(0, 1, 1)]
    assert values(first) == [b"0", b"x"]
    second = two.fetch(max_records=100)[0]
    assert acquired(second) == [(2, 5, 1)]
    assert values(second) == [b"1", b"x", b"2", b"x"]
    assert two.acknowledge({0: [(2, 3, ACCEPT), (4, 5, REJECT)]}) == {0: 0}
    assert one.fetch({0: [(0, 1, ACCEPT)]})[0].acknowledge_error_code == 0
    assert one.fetch() == {}
    produce(shared, b"new")
    assert acquired(one.fetch()[0]) == [(6, 6, 1)]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (CorruptError("log", 0, TOPIC, 0, 0, 1), E.CORRUPT_MESSAGE),
        (StorageError("the disk is gone"), E.KAFKA_STORAGE_ERROR),
    ],
)
def test_what_cannot_be_read_costs_no_other_partition(
    shared: ShareRig, monkeypatch: pytest.MonkeyPatch, fault: StorageError, error: ErrorCode
) -> None:
    read = ShareReads.read

    def failing(self: ShareReads, log: Log, *args: Any, **kwargs: Any) -> ShareRead | None:
        if log.queue_id == 0:
            raise fault
        return read(self, log, *args, **kwargs)

    one = ShareMember(shared, shared.topic_id, "m", "g", partitions=(0, 1))
    produce(shared, b"a")
    produce(shared, b"b", partition=1)
    with monkeypatch.context() as patches:
        patches.setattr(ShareReads, "read", failing)
        found = one.fetch()
    assert (found[0].error_code, acquired(found[0])) == (error, [])
    assert (found[1].error_code, values(found[1])) == (0, [b"b"])
    assert values(one.fetch()[0]) == [b"a"]


def test_what_is_released_goes_to_who_waits(shared: ShareRig) -> None:
    produce(shared, b"a", b"b", b"c")
    one, two, other = member(shared, "one"), member(shared, "two"), member(shared, "x", "h")
    configure(shared, "h", share_auto_offset_reset="latest")
    one.fetch()
    waiting, foreign = two.waits(), other.waits()
    assert two.got(waiting) is None
    assert one.acknowledge({0: [(0, 0, ACCEPT), (1, 2, RELEASE)]}) == {0: 0}
    assert two.got(waiting) == [(1, 2, 2)]
    assert other.got(foreign) is None, "another group has its own share of the records"


def test_new_records_wake_one_after_the_other(shared: ShareRig) -> None:
    one, two = member(shared, "one"), member(shared, "two")
    first, second = one.waits(), two.waits()
    produce(shared, b"a")
    assert (one.got(first), two.got(second)) == ([(0, 0, 1)], None)
    produce(shared, b"b")
    assert two.got(second) == [(1, 1, 1)]


def test_a_fetch_waits_for_its_bytes_or_its_time(shared: ShareRig) -> None:
    one = member(shared, "one")
    few = one.waits(min_bytes=200, max_wait_ms=500)
    produce(shared, b"a")
    assert one.got(few) is None
    shared.advance(510)
    assert one.got(few) == [(0, 0, 1)]
    many = one.waits(min_bytes=200)
    produce(shared, b"x" * 100)
    assert one.got(many) is None
    produce(shared, b"x" * 100)
    assert one.got(many) == [(1, 2, 1)]


def test_partitions_are_read_in_turn_within_the_limits(shared: ShareRig) -> None:
    for partition in (0, 1):
        produce(shared, *[b"x"] * 10, partition=partition)
    one = ShareMember(shared, shared.topic_id, "one", partitions=(0, 1))
    assert set(one.fetch(max_records=10)) == {0}
    assert set(one.fetch(max_records=10)) == {1}
    assert one.fetch(max_records=10) == {}


def test_a_byte_limit_leaves_one_batch(shared: ShareRig) -> None:
    for _ in range(3):
        produce(shared, b"x" * 100)
    one = member(shared)
    assert acquired(one.fetch(max_bytes=1)[0]) == [(0, 0, 1)]
    assert acquired(one.fetch(max_bytes=400)[0]) == [(1, 2, 1)]


def test_a_record_limit_is_kept(shared: ShareRig) -> None:
    produce(shared, *[b"x"] * 10)
    one = member(shared)
    assert acquired(one.fetch(max_records=3, share_acquire_mode=1)[0]) == [(0, 2, 1)]
    assert acquired(one.fetch(max_records=3)[0]) == [(3, 9, 1)]


def test_quotas_of_consumers_apply(shared: ShareRig) -> None:
    produce(shared, *[b"x" * 1_000] * 20)
    entity = AlteredQuota(
        [QuotaEntity("client-id", None)], [QuotaOperation("consumer_byte_rate", 1_000.0)]
    )
    shared.ask(AlterClientQuotasRequest([entity]), 1, AlterClientQuotasResponse)
    one = member(shared)
    sent = shared.post(one.request(), 2, link=one.link)
    answer = shared.answer_to(sent, ShareFetchResponse)
    assert answer is not None
    assert answer.throttle_time_ms > 0
    assert shared.muted == {one.link}


# -- locks -----------------------------------------------------------------------------------------


def test_a_lock_times_out_and_its_records_go_to_others(shared: ShareRig) -> None:
    configure(shared, "g", share_record_lock_duration_ms=2_000)
    produce(shared, b"a", b"b")
    one, two = member(shared, "one"), member(shared, "two")
    one.fetch()
    waiting = two.waits()
    shared.advance(1_000)
    renewed = one.acknowledge({0: [(1, 1, RENEW)]}, renews=True)
    assert renewed == {0: 0}
    shared.advance(999)
    assert two.got(waiting) is None
    shared.advance(20)
    assert two.got(waiting) == [(0, 0, 2)]
    assert one.acknowledge({0: [(0, 0, ACCEPT)]}) == {0: E.INVALID_RECORD_STATE}
    assert one.acknowledge({0: [(1, 1, ACCEPT)]}) == {0: 0}


def test_time_in_which_the_broker_stood_still_does_not_count(shared: ShareRig) -> None:
    configure(shared, "g", share_record_lock_duration_ms=5_000)
    produce(shared, b"a")
    one = member(shared)
    one.fetch()
    shared.advance(1_000)
    shared.now += 60_000
    shared.advance(3_000)
    assert one.acknowledge({0: [(0, 0, ACCEPT)]}) == {0: 0}


def test_a_closed_connection_releases_what_its_member_had(shared: ShareRig) -> None:
    produce(shared, b"a")
    one, two = member(shared, "one"), member(shared, "two")
    one.fetch()
    waiting = two.waits()
    shared.event(Closed(one.link, "gone"))
    assert two.got(waiting) == [(0, 0, 2)]


def test_the_last_request_ends_the_session_and_releases_the_rest(shared: ShareRig) -> None:
    produce(shared, b"a", b"b")
    one, two = member(shared, "one"), member(shared, "two")
    one.fetch()
    assert one.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=-1) == {0: 0}
    assert acquired(two.fetch()[0]) == [(1, 1, 2)]
    request = ShareFetchRequest("g", "two", -1)
    answer = shared.ask(request, 2, ShareFetchResponse, link=two.link)
    assert (answer.error_code, answer.responses) == (0, [])
    assert acquired(member(shared, "three").fetch()[0]) == [(1, 1, 3)]


def test_a_member_that_ends_its_session_while_it_waits_gets_nothing_more(shared: ShareRig) -> None:
    """What it has released would be locked for a member that is gone."""
    produce(shared, b"a")
    one, two = member(shared, "one"), member(shared, "two")
    one.fetch()
    waiting = one.waits()
    last = shared.post(ShareAcknowledgeRequest("g", "one", -1), 2, link=one.link)
    assert one.got(waiting) == []
    assert shared.answer_to(last, ShareAcknowledgeResponse) is not None
    assert acquired(two.fetch()[0]) == [(0, 0, 2)]


def test_a_member_that_begins_anew_gets_nothing_on_its_old_connection(shared: ShareRig) -> None:
    old = member(shared)
    waiting = old.waits()
    new = member(shared)
    new.fetch()
    produce(shared, b"a")
    assert old.got(waiting) == []
    assert acquired(new.fetch()[0]) == [(0, 0, 1)]


# -- sessions --------------------------------------------------------------------------------------


def codes(rig: KafkaRig, *requests: ShareFetchRequest | ShareAcknowledgeRequest) -> list[int]:
    return [
        rig.ask(each, 2, ShareFetchResponse).error_code
        if isinstance(each, ShareFetchRequest)
        else rig.ask(each, 2, ShareAcknowledgeResponse).error_code
        for each in requests
    ]


def test_what_a_session_refuses(shared: ShareRig) -> None:
    one = member(shared)
    one.fetch()
    assert codes(
        shared,
        ShareFetchRequest("g", "nobody", 1),
        ShareFetchRequest("g", "nobody", -1),
        ShareFetchRequest("g", "m", 7),
        ShareAcknowledgeRequest("g", "m", 0),
        ShareAcknowledgeRequest("g", "nobody", 1),
        ShareAcknowledgeRequest("g", "m", 9),
        ShareFetchRequest(None, "m", 0),
        ShareFetchRequest("g", "", 0),
        ShareFetchRequest("g", "x" * 37, 0),
        ShareAcknowledgeRequest("g", None, 0),
        ShareFetchRequest("g", "m", 1, is_renew_ack=True),
    ) == [
        *(E.SHARE_SESSION_NOT_FOUND, E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH),
        *(E.INVALID_SHARE_SESSION_EPOCH, E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH),
        *[E.INVALID_REQUEST] * 5,
    ]
    fresh = member(shared, "fresh")
    request = fresh.request({0: [(0, 0, ACCEPT)]})
    assert codes(shared, request) == [E.INVALID_REQUEST]


def test_forgotten_partitions_are_not_read(shared: ShareRig) -> None:
    one = ShareMember(shared, shared.topic_id, "one", partitions=(0, 1))
    one.fetch()
    produce(shared, b"a", partition=0)
    produce(shared, b"b", partition=1)
    assert set(one.fetch(forget=(0,))) == {1}


def test_sessions_are_limited_and_who_has_none_waits() -> None:
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(group_share_max_share_sessions=1)))
    topic_id = rig.create_topic(TOPIC)
    ShareMember(rig, topic_id, "one").fetch()
    two = ShareMember(rig, topic_id, "two")
    refused = two.waits(max_wait_ms=500)
    assert rig.answer_to(refused, ShareFetchResponse) is None
    rig.advance(510)
    answer = rig.answer_to(refused, ShareFetchResponse)
    assert answer is not None
    assert answer.error_code == E.SHARE_SESSION_LIMIT_REACHED


def test_errors_of_partitions(shared: ShareRig) -> None:
    one = ShareMember(shared, shared.topic_id, partitions=(7,))
    assert one.fetch()[7].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    lost = ShareMember(shared, b"?" * 16, "two")
    assert lost.fetch()[0].error_code == E.UNKNOWN_TOPIC_ID
    assert lost.acknowledge({0: [(0, 0, ACCEPT)]}) == {0: E.UNKNOWN_TOPIC_ID}
    three = member(shared, "three")
    three.fetch()
    assert three.acknowledge({0: [(0, 0, ACCEPT)]}) == {0: E.INVALID_REQUEST}
    assert three.acknowledge({1: [(0, 0, ACCEPT)]}) == {1: E.UNKNOWN_TOPIC_OR_PARTITION}
    assert three.acknowledge({0: [(0, 0, RENEW)]}) == {0: E.INVALID_REQUEST}
    assert three.acknowledge({0: [(0, 0, RENEW)]}, version=1) == {0: E.INVALID_REQUEST}


# -- where a group begins, and where the log does ----------------------------------------------------


@pytest.mark.parametrize(
    ("reset", "start"),
    [("earliest", 0), ("latest", 2), ("by_duration:PT1M", 1), ("by_duration:PT0.1S", 2)],
)
def test_where_a_group_begins(shared: ShareRig, reset: str, start: int) -> None:
    for value, age_ms in ((b"old", 3_600_000), (b"young", 1_000)):
        data = batch(value, timestamps=[shared.now - age_ms])
        shared.ask(producing(TOPIC, 0, data), 9, ProduceResponse)
    configure(shared, "h", share_auto_offset_reset=reset)
    one = member(shared, "m", "h")
    assert [first for first, _, _ in acquired_in(one.fetch())] == ([start] if start < 2 else [])
    produce(shared, b"new")
    assert [last for _, last, _ in acquired_in(one.fetch())] == [2]


def acquired_in(parts: dict[int, SharePartitionData]) -> list[tuple[int, int, int]]:
    return acquired(parts[0]) if 0 in parts else []


def test_the_default_is_the_end_and_holds_over_a_restart(shared: ShareRig) -> None:
    produce(shared, b"before")
    member(shared, "m", "late").fetch()
    produce(shared, b"after")
    shared.restart()
    assert acquired(member(shared, "m", "late").fetch()[0]) == [(1, 1, 1)]


def test_deleted_records_are_passed_over(shared: ShareRig) -> None:
    produce(shared, *[b"x"] * 10)
    produce(shared, *[b"y"] * 10)
    one = member(shared)
    assert acquired(one.fetch(max_records=10)[0]) == [(0, 9, 1)]
    request = DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 15)])])
    shared.ask(request, 2, DeleteRecordsResponse)
    assert one.acknowledge({0: [(0, 9, ACCEPT)]}) == {0: 0}
    assert acquired(one.fetch()[0]) == [(15, 19, 1)]


def test_a_deleted_topic_is_forgotten(shared: ShareRig) -> None:
    produce(shared, b"a")
    one = member(shared)
    one.fetch()
    waiting = one.waits()
    shared.ask(
        DeleteTopicsRequest([DeleteTopicState(TOPIC)], timeout_ms=1_000), 6, DeleteTopicsResponse
    )
    assert not len(shared.store.table("kafka_share_partitions"))
    shared.advance(60_010)
    answer = shared.answer_to(waiting, ShareFetchResponse)
    assert answer is not None
    assert answer.responses[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    shared.topic_id = shared.create_topic(TOPIC, 2)
    produce(shared, b"b")
    assert acquired(member(shared, "two").fetch()[0]) == [(0, 0, 1)]


# -- transactions ----------------------------------------------------------------------------------


def transaction(rig: KafkaRig, producer_id: int, *, committed: bool, records: int = 2) -> None:
    """A transaction of one batch, as the log has it."""
    data = batch(
        *[b"t"] * records, producer_id=producer_id, epoch=0, sequence=0, attributes=TRANSACTIONAL
    )
    rig.ask(producing(TOPIC, 0, data, "txn"), 9, ProduceResponse)
    end_transaction(rig, producer_id, committed=committed)


def end_transaction(rig: KafkaRig, producer_id: int, *, committed: bool) -> None:
    marker = WritableTxnMarker(producer_id, 0, committed, [WritableTxnMarkerTopic(TOPIC, [0])], 0)
    rig.ask(WriteTxnMarkersRequest([marker]), 1, WriteTxnMarkersResponse)


def test_markers_are_never_delivered_and_aborted_records_only_to_who_wants_them(
    shared: ShareRig,
) -> None:
    transaction(shared, 7, committed=False)
    transaction(shared, 8, committed=True)
    assert acquired(member(shared).fetch()[0]) == [(0, 1, 1), (3, 4, 1)]
    configure(
        shared, "c", share_auto_offset_reset="earliest", share_isolation_level="read_committed"
    )
    one = member(shared, "m", "c")
    assert acquired(one.fetch()[0]) == [(3, 4, 1)]
    waiting = one.waits()
    transaction(shared, 9, committed=False)
    assert one.got(waiting) is None, "there is nothing to deliver in it"
    data = batch(b"o", producer_id=10, epoch=0, sequence=0, attributes=TRANSACTIONAL)
    shared.ask(producing(TOPIC, 0, data, "txn"), 9, ProduceResponse)
    assert one.got(waiting) is None, "the transaction is open"
    end_transaction(shared, 10, committed=True)
    assert one.got(waiting) == [(9, 9, 1)]


# -- messages of RocketMQ --------------------------------------------------------------------------


def test_entries_of_both_dialects_are_shared(shared: ShareRig) -> None:
    log = shared.store.create_log(TOPIC, 0)
    put(log, b"one")
    put(log, b"two")
    produce(shared, b"three")
    one = member(shared)
    first, second = one.fetch()[0], one.fetch()[0]
    assert (acquired(first), acquired(second)) == ([(0, 1, 1)], [(2, 2, 1)])
    found = [values(part) for part in (first, second)]
    assert found == [[b"one", b"two"], [b"three"]]


def test_many_messages_to_convert_are_given_one_after_the_other(shared: ShareRig) -> None:
    log = shared.store.create_log(TOPIC, 0)
    for _ in range(3_000):
        put(log, b"x")
    one = member(shared)
    got = 0
    while got < 3_000:
        part = one.fetch(max_records=2_000)[0]
        assert part.acquired_records[0].first_offset == got
        got = part.acquired_records[-1].last_offset + 1
        one.acknowledge({0: [(part.acquired_records[0].first_offset, got - 1, ACCEPT)]})


# -- what is kept ----------------------------------------------------------------------------------


def test_a_restart_keeps_what_was_acknowledged(shared: ShareRig) -> None:
    produce(shared, *[b"x"] * 10)
    one = member(shared)
    one.fetch()
    one.acknowledge({0: [(0, 3, ACCEPT), (5, 5, RELEASE), (6, 6, REJECT)]})
    shared.restart()
    assert acquired(member(shared).fetch()[0]) == [(4, 4, 1), (5, 5, 2), (7, 9, 1)]


def test_records_at_offsets_that_a_power_cut_took_are_delivered(shared: ShareRig) -> None:
    """The disk has that the lost ones were accepted, and the new ones come before the group fetches."""
    shared.advance(FLUSH_INTERVAL_MS)
    produce(shared, *[b"lost"] * 5)
    one = member(shared)
    one.fetch()
    assert one.acknowledge({0: [(0, 4, ACCEPT)]}) == {0: 0}
    shared.lose_power("tables/")
    shared.link = shared.connect()
    produce(shared, *[b"new"] * 3)
    shared.restart()
    produce(shared, *[b"new"] * 4)
    got = member(shared).fetch()[0]
    assert acquired(got) == [(0, 6, 1)]
    assert values(got) == [b"new"] * 7


def test_a_connection_that_closes_after_the_stop_changes_no_file(shared: ShareRig) -> None:
    """The next start would take the change for damage: the stop noted the ends of all files."""
    produce(shared, b"a", b"b")
    one = member(shared)
    one.fetch()
    one.acknowledge({0: [(0, 0, ACCEPT)]})
    assert Answer(1, None) in shared.node.handle(Asked(1, Stop()), shared.now)
    assert shared.node.handle(Closed(one.link, "gone"), shared.now) == []
    shared.restart()
    assert acquired(member(shared).fetch()[0]) == [(1, 1, 1)]


def test_a_disk_that_refuses_an_acknowledgement_leaves_all_as_it_was(shared: ShareRig) -> None:
    produce(shared, b"a")
    one, two = member(shared, "one"), member(shared, "two")
    one.fetch()
    shared.disk.room_bytes = 0
    assert one.acknowledge({0: [(0, 0, ACCEPT)]}) == {0: E.KAFKA_STORAGE_ERROR}
    assert two.fetch() == {}
    shared.disk.room_bytes = None
    assert one.acknowledge({0: [(0, 0, ACCEPT)]}) == {0: 0}


def test_an_acknowledgement_is_answered_when_it_is_on_the_disk() -> None:
    rig = ShareRig(BrokerConfig(kafka=KafkaConfig(), flush="sync"))
    rig.topic_id = rig.create_topic(TOPIC)
    configure(rig, "g", share_auto_offset_reset="earliest")
    produce(rig, b"a")
    one = member(rig)
    one.fetch()
    rig.disk_answers = False
    request = ShareAcknowledgeRequest("g", "m", 1, topics=one.naming({0: [(0, 0, ACCEPT)]}))
    told = rig.post(request, 2, link=one.link)
    assert rig.answer_to(told, ShareAcknowledgeResponse) is None
    rig.disk_answers = True
    rig.answer_flushes()
    assert rig.answer_to(told, ShareAcknowledgeResponse) is not None
    rig.lose_power()
    rig.link = rig.connect()
    assert member(rig, "two").fetch() == {}


def test_a_fetch_that_waits_for_bytes_hears_of_a_deleted_topic(shared: ShareRig) -> None:
    """A write to another one of its topics ends the wait, and the writer does not notice."""
    other = shared.create_topic("Other")
    one = member(shared)
    named = [AcknowledgeTopic(each, [AcknowledgePartition(0)]) for each in (shared.topic_id, other)]
    one.fetch(topics=named)
    waiting = one.waits(min_bytes=1_000_000)
    delete = DeleteTopicsRequest([DeleteTopicState("Other")], timeout_ms=1_000)
    shared.ask(delete, 6, DeleteTopicsResponse)
    produce(shared, b"a")
    answer = shared.answer_to(waiting, ShareFetchResponse)
    assert answer is not None
    found = {each.topic_id: each.partitions[0] for each in answer.responses}
    assert acquired(found[shared.topic_id]) == [(0, 0, 1)]
    assert found[other].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_description_after_deleted_records_keeps_the_timers(shared: ShareRig) -> None:
    produce(shared, *[b"x"] * 10)
    member(shared).fetch()
    request = DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 10)])])
    shared.ask(request, 2, DeleteRecordsResponse)
    group = DescribeShareGroupOffsetsRequestGroup("g", None)
    described = shared.ask(
        DescribeShareGroupOffsetsRequest([group]), 0, DescribeShareGroupOffsetsResponse
    )
    assert described.groups[0].topics[0].partitions[0].start_offset == 10
    shared.node.check()
