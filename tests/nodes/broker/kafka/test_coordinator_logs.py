"""`__consumer_offsets` and `__transaction_state` say what the coordinators' tables say."""

from __future__ import annotations

import msgspec
import pytest
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig
from tests.nodes.broker.kafka.requests import committing, fetching
from tests.nodes.broker.kafka.test_consumer_groups import join
from tests.nodes.broker.kafka.test_groups import GROUP, Members

from steelyard.groups.kafka.coordinator_log import transaction_records
from steelyard.groups.kafka.transactional_ids import Transaction, TransactionalIdState
from steelyard.nodes.broker.kafka import coordinator_logs
from steelyard.nodes.broker.kafka.cluster.cluster import coordinator_partition
from steelyard.nodes.broker.kafka.cluster.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from steelyard.nodes.broker.kafka.coordinator_logs import WRITE_DELAY_MS
from steelyard.nodes.broker.node import Stop
from steelyard.nodes.seam import Answer, Asked
from steelyard.wire.kafka.messages import coordinator_records as records
from steelyard.wire.kafka.messages.cluster import FindCoordinatorRequest, FindCoordinatorResponse
from steelyard.wire.kafka.messages.coordinator_records import (
    GROUP_TYPES,
    TRANSACTION,
    TRANSACTION_TYPES,
    Key,
    Value,
    read_key,
    read_value,
    type_of,
)
from steelyard.wire.kafka.messages.data import FetchResponse
from steelyard.wire.kafka.messages.groups import DeleteGroupsRequest, DeleteGroupsResponse
from steelyard.wire.kafka.messages.offsets import OffsetCommitResponse
from steelyard.wire.kafka.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from steelyard.wire.kafka.records import read_headers, read_records

Found = tuple[int, int, Key, Value | None]
"""A record: its offset, its type, its key and its value."""

PARTITIONS = 50


@pytest.fixture
def rig(rig: KafkaRig) -> KafkaRig:
    rig.create_topic(partitions=2)
    for key_type, key in enumerate((GROUP, "id")):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,))
        rig.ask(request, 4, FindCoordinatorResponse)
    rig.advance(1000)
    return rig


def read(rig: KafkaRig, topic: str = OFFSETS_TOPIC, name: str = GROUP) -> list[Found]:
    """What a client reads of the partition of a group or a transactional id."""
    rig.advance(2 * WRITE_DELAY_MS)
    partition = coordinator_partition(name, PARTITIONS)
    log = rig.store.log(topic, partition)
    start = 0 if log is None else log.min_offset
    answer = rig.ask(fetching(topic, partition, start, 1_000_000), 12, FetchResponse)
    part = answer.responses[0].partitions[0]
    assert part.error_code == 0
    data = part.records
    assert isinstance(data, bytes)
    types = GROUP_TYPES if topic == OFFSETS_TOPIC else TRANSACTION_TYPES
    found: list[Found] = []
    for at, _ in read_headers(data):
        for record in read_records(data, at):
            assert record.key is not None
            kind = type_of(record.key, types)
            assert kind is not None
            value = None if record.value is None else read_value(kind, record.value)
            found.append((record.offset, kind.number, read_key(kind, record.key), value))
    return found


def commit(rig: KafkaRig, offset: int, partition: int = 0) -> None:
    answer = rig.ask(committing(GROUP, TOPIC, {partition: offset}), 9, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == 0


def offsets(found: list[Found]) -> list[tuple[int, int, int | None]]:
    """(offset in the log, partition, committed offset) of each record about an offset."""
    return [
        (at, key.partition, value.offset if isinstance(value, records.OffsetCommitValue) else None)
        for at, _, key, value in found
        if isinstance(key, records.OffsetCommitKey)
    ]


def test_each_commit_is_a_record(rig: KafkaRig) -> None:
    assert read(rig) == []
    commit(rig, 3)
    assert offsets(read(rig)) == [(0, 0, 3)]
    commit(rig, 4)
    commit(rig, 5)
    commit(rig, 6, partition=1)
    assert offsets(read(rig)) == [(0, 0, 3), (1, 0, 5), (2, 1, 6)]


def test_a_classic_group(rig: KafkaRig) -> None:
    member_id, generation = Members(rig).lead()
    ((at, kind, key, value),) = read(rig)
    assert (at, kind, key) == (0, 2, records.GroupKey(GROUP))
    assert isinstance(value, records.GroupMetadataValue)
    assert (value.generation, value.protocol, value.leader) == (generation, "range", member_id)
    (member,) = value.members
    assert member.member_id == member_id
    assert member.assignment
    assert member.subscription


def test_what_is_deleted_has_a_record_without_a_value(rig: KafkaRig) -> None:
    commit(rig, 3)
    read(rig)
    answer = rig.ask(DeleteGroupsRequest((GROUP,)), 2, DeleteGroupsResponse)
    assert answer.results[0].error_code == 0
    assert offsets(read(rig)) == [(0, 0, 3), (1, 0, None)]


def test_a_consumer_group(rig: KafkaRig) -> None:
    join(rig)
    found = {kind: (key, value) for _, kind, key, value in read(rig)}
    assert set(found) == {3, 5, 6, 7, 8}
    key, value = found[8]
    assert key == records.MemberKey(GROUP, "m1")
    assert isinstance(value, records.ConsumerGroupCurrentMemberAssignmentValue)
    (held,) = value.assigned_partitions
    assert held.topic_id == Members(rig).topic_id
    assert (tuple(held.partitions), tuple(held.assignment_epochs or ())) == ((0, 1), (1, 1))
    _, target = found[7]
    assert isinstance(target, records.ConsumerGroupTargetAssignmentMemberValue)
    assert tuple(target.topic_partitions[0].partitions) == (0, 1)


def test_a_transactional_id(rig: KafkaRig) -> None:
    request = InitProducerIdRequest("id", 60_000)
    assert rig.ask(request, 4, InitProducerIdResponse).error_code == 0
    ((_, _, key, value),) = read(rig, TRANSACTIONS_TOPIC, "id")
    assert key == records.TransactionKey("id")
    assert isinstance(value, records.TransactionLogValue)
    assert (value.transaction_status, value.transaction_timeout_ms) == (0, 60_000)


@pytest.mark.parametrize(
    ("level", "version"),
    [(0, 0), (1, 1), (2, 1)],
)
def test_transactions_are_written_as_the_feature_level_says(level: int, version: int) -> None:
    """Later fields are tagged, which readers of version 0 would not expect."""
    transaction = Transaction(
        *("id", 7, TransactionalIdState.PREPARE_COMMIT),
        producer_epoch=3,
        previous_producer_id=6,
        next_producer_id=8,
        client_version=2,
        partitions={("t", 1)},
    )
    ((name, key, data),) = transaction_records("id", msgspec.json.encode(transaction), level)
    assert (name, type_of(key, TRANSACTION_TYPES)) == ("id", TRANSACTION)
    assert data is not None
    assert int.from_bytes(data[:2], "big") == version
    value = read_value(TRANSACTION, data)
    assert isinstance(value, records.TransactionLogValue)
    later = (value.previous_producer_id, value.next_producer_id, value.client_transaction_version)
    assert later == ((6, 8, 2) if version else (-1, -1, 0))
    assert (value.producer_id, value.producer_epoch, value.transaction_status) == (7, 3, 2)


# -- restarts and compaction -----------------------------------------------------------------------


def test_a_clean_restart_writes_nothing_again(rig: KafkaRig) -> None:
    commit(rig, 3)
    effects = rig.node.handle(Asked(1, Stop()), rig.now)
    assert any(isinstance(effect, Answer) for effect in effects)
    rig.restart()
    rig.advance(1000)
    assert offsets(read(rig)) == [(0, 0, 3)]


def test_a_kill_before_the_record_leaves_no_gap(rig: KafkaRig) -> None:
    commit(rig, 3)
    assert offsets(read(rig)) == [(0, 0, 3)]
    commit(rig, 4)
    rig.restart()
    rig.advance(1000)
    assert offsets(read(rig)) == [(1, 0, 4)]
    commit(rig, 5)
    assert offsets(read(rig)) == [(1, 0, 4), (2, 0, 5)]


def test_groups_from_before_there_was_a_layout(rig: KafkaRig) -> None:
    """A data directory of an earlier version, or a broker that is alone: the tables come first."""
    fresh = KafkaRig()
    fresh.create_topic(partitions=2)
    commit(fresh, 3)
    fresh.advance(1000)
    fresh.ask(
        FindCoordinatorRequest(key_type=0, coordinator_keys=(GROUP,)), 4, FindCoordinatorResponse
    )
    fresh.advance(1000)
    assert offsets(read(fresh)) == [(0, 0, 3)]


def test_a_log_that_has_grown_is_compacted(rig: KafkaRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_logs, "GROWTH_BYTES_MIN", 1000)
    monkeypatch.setattr(coordinator_logs, "ROWS_MAX", 2)
    commit(rig, 1, partition=1)
    for offset in range(40):
        commit(rig, offset)
        rig.advance(WRITE_DELAY_MS)
    rig.advance(1000)
    found = offsets(read(rig))
    assert len(found) < 20
    assert {partition: offset for _, partition, offset in found} == {0: 39, 1: 1}
    assert [at for at, _, _ in found] == sorted({at for at, _, _ in found})


def test_a_full_disk_delays_the_records(rig: KafkaRig) -> None:
    commit(rig, 3)
    rig.disk.room_bytes = 0
    rig.advance(WRITE_DELAY_MS)
    assert any("not readable" in line.text for line in rig.told)
    rig.disk.room_bytes = None
    rig.advance(2000)
    assert offsets(read(rig)) == [(0, 0, 3)]
