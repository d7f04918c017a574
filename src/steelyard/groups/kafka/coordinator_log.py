"""What the coordinators' tables say, as the records that Kafka keeps of it.

Kafka's coordinators write records to `__consumer_offsets` and `__transaction_state`, and compact
them; ours write tables. A row of a table, or its deletion, is one or several records in Kafka's
formats, in the versions that Kafka 4.x writes. Offsets of an open transaction have none: readers
see them once the transaction is committed, like Kafka's readers with `read_committed`.
Source: GroupCoordinatorRecordHelpers.java, TransactionLog.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from steelyard.decoding import prepared
from steelyard.groups.kafka.classic.saved import SavedGroup, SavedMember
from steelyard.groups.kafka.consumer.member import ConsumerGroupMemberState
from steelyard.groups.kafka.consumer.records import GroupRow, MemberRow, OwnedPartition
from steelyard.groups.kafka.group_rows import read_key
from steelyard.groups.kafka.offsets import PENDING, CommittedOffset
from steelyard.groups.kafka.transactional_ids import Transaction, TransactionalIdState
from steelyard.types import numbers_by_topic
from steelyard.wire.kafka.messages import coordinator_records as records
from steelyard.wire.kafka.messages.coordinator_records import (
    CONSUMER_GROUP_CURRENT,
    CONSUMER_GROUP_MEMBER_METADATA,
    CONSUMER_GROUP_METADATA,
    CONSUMER_GROUP_TARGET_MEMBER,
    CONSUMER_GROUP_TARGET_METADATA,
    GROUP_METADATA,
    OFFSET_COMMIT,
    TRANSACTION,
    Key,
    RecordType,
    Value,
    write_key,
    write_value,
)
from steelyard.wire.kafka.schema import NO_ID

OFFSET_VERSION, EXPIRING_OFFSET_VERSION = 3, 1
"""Versions of offsets; only the latter has a retention of its own."""
GROUP_VERSION = 3
FLEXIBLE_SINCE = 1
"""The level of transaction.version from which on values of transactions have tagged fields."""

MEMBER_STATES = {
    ConsumerGroupMemberState.STABLE: 0,
    ConsumerGroupMemberState.UNREVOKED_PARTITIONS: 1,
    ConsumerGroupMemberState.UNRELEASED_PARTITIONS: 2,
}
"""Source: MemberState.java."""

TRANSACTION_STATES = {
    TransactionalIdState.EMPTY: 0,
    TransactionalIdState.ONGOING: 1,
    TransactionalIdState.PREPARE_COMMIT: 2,
    TransactionalIdState.PREPARE_ABORT: 3,
    TransactionalIdState.COMPLETE_COMMIT: 4,
    TransactionalIdState.COMPLETE_ABORT: 5,
}
"""Source: TransactionState.java."""


class CoordinatorRecord(NamedTuple):
    """A record. `name`: the group or transactional id, which determines the partition.

    `value`: None if it deletes the key.
    """

    name: str
    key: bytes
    value: bytes | None


Records = Callable[[str, bytes | None], Iterable[CoordinatorRecord]]
"""The records of a row of one table: (key, value), None if it was deleted."""


def coordinator_record(
    name: str, kind: RecordType, key: Key, value: Value | None = None, version: int = 0
) -> CoordinatorRecord:
    """Return a record; without a value, it deletes the key."""
    data = None if value is None else write_value(kind, value, version)
    return CoordinatorRecord(name, write_key(kind, key), data)


_read_offset = msgspec.json.Decoder(prepared(CommittedOffset)).decode
_read_group = msgspec.json.Decoder(prepared(SavedGroup)).decode
_read_group_row = msgspec.json.Decoder(prepared(GroupRow)).decode
_read_member_row = msgspec.json.Decoder(prepared(MemberRow)).decode
_read_transaction = msgspec.json.Decoder(prepared(Transaction)).decode


def offset_records(key: str, row: bytes | None) -> Iterable[CoordinatorRecord]:
    """Return the records of a row of `kafka_offsets`."""
    if key.startswith(PENDING):
        return ()
    topic, partition, group = key.split("/", 2)
    name = records.OffsetCommitKey(group, topic, int(partition))
    if row is None:
        return (coordinator_record(group, OFFSET_COMMIT, name),)
    offset = _read_offset(row)
    value = records.OffsetCommitValue(
        offset.offset,
        offset.leader_epoch,
        offset.metadata,
        offset.committed_at,
        -1 if offset.expires_at is None else offset.expires_at,
    )
    version = OFFSET_VERSION if offset.expires_at is None else EXPIRING_OFFSET_VERSION
    return (coordinator_record(group, OFFSET_COMMIT, name, value, version),)


def group_records(key: str, row: bytes | None) -> Iterable[CoordinatorRecord]:
    """Return the records of a row of `kafka_groups`: a classic group."""
    name = records.GroupKey(key)
    if row is None:
        return (coordinator_record(key, GROUP_METADATA, name),)
    group = _read_group(row)
    value = records.GroupMetadataValue(
        group.protocol_type,
        group.generation,
        group.protocol,
        group.leader,
        group.since,
        tuple(_member(member, group.protocol) for member in group.members),
    )
    return (coordinator_record(key, GROUP_METADATA, name, value, GROUP_VERSION),)


def _member(member: SavedMember, protocol: str | None) -> records.MemberMetadata:
    return records.MemberMetadata(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        dict(member.protocols).get(protocol or "", b""),
        member.assignment,
    )


def consumer_group_records(key: str, row: bytes | None) -> Iterable[CoordinatorRecord]:
    """Return the records of a row of `kafka_consumer_groups`: a KIP-848 group, or a member."""
    group, *members = read_key(key)
    if members:
        return _member_records(group, members[0], row)
    return _group_records(group, row)


def _group_records(group: str, row: bytes | None) -> Iterable[CoordinatorRecord]:
    name = records.GroupKey(group)
    if row is None:
        yield coordinator_record(group, CONSUMER_GROUP_TARGET_METADATA, name)
        yield coordinator_record(group, CONSUMER_GROUP_METADATA, name)
        return
    found = _read_group_row(row)
    epoch = records.ConsumerGroupMetadataValue(found.epoch)
    yield coordinator_record(group, CONSUMER_GROUP_METADATA, name, epoch)
    for member_id, targets in found.targets.items():
        target = records.ConsumerGroupTargetAssignmentMemberValue(
            tuple(
                records.TargetPartitions(_topic_id(topic, found.topic_ids), tuple(numbers))
                for topic, numbers in targets.items()
            )
        )
        member = records.MemberKey(group, member_id)
        yield coordinator_record(group, CONSUMER_GROUP_TARGET_MEMBER, member, target)
    assigned = records.ConsumerGroupTargetAssignmentMetadataValue(
        found.assignment_epoch, found.assigned_at
    )
    yield coordinator_record(group, CONSUMER_GROUP_TARGET_METADATA, name, assigned)


def _member_records(group: str, member_id: str, row: bytes | None) -> Iterable[CoordinatorRecord]:
    name = records.MemberKey(group, member_id)
    if row is None:
        yield coordinator_record(group, CONSUMER_GROUP_CURRENT, name)
        yield coordinator_record(group, CONSUMER_GROUP_TARGET_MEMBER, name)
        yield coordinator_record(group, CONSUMER_GROUP_MEMBER_METADATA, name)
        return
    member = _read_member_row(row)
    subscribed = records.ConsumerGroupMemberMetadataValue(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.host,
        member.topics,
        member.regex,
        member.rebalance_timeout_ms,
        member.assignor,
    )
    yield coordinator_record(group, CONSUMER_GROUP_MEMBER_METADATA, name, subscribed)
    current = records.ConsumerGroupCurrentMemberAssignmentValue(
        member.epoch,
        member.previous_epoch,
        MEMBER_STATES[member.state],
        _current(member.assigned, member.topic_ids),
        _current(member.revoking, member.topic_ids),
    )
    yield coordinator_record(group, CONSUMER_GROUP_CURRENT, name, current)


def _current(
    held: Iterable[OwnedPartition], topic_ids: Mapping[str, str]
) -> tuple[records.CurrentPartitions, ...]:
    by_topic: dict[str, list[OwnedPartition]] = {}
    for each in held:
        by_topic.setdefault(each.topic, []).append(each)
    return tuple(
        records.CurrentPartitions(
            _topic_id(topic, topic_ids),
            tuple(each.partition for each in owned),
            tuple(each.epoch for each in owned),
        )
        for topic, owned in by_topic.items()
    )


def _topic_id(topic: str, topic_ids: Mapping[str, str]) -> bytes:
    return bytes.fromhex(topic_ids[topic]) if topic in topic_ids else NO_ID


def transaction_records(key: str, row: bytes | None, level: int) -> Iterable[CoordinatorRecord]:
    """Return the records of a row of `kafka_transactions`. `level`: of transaction.version."""
    name = records.TransactionKey(key)
    if row is None:
        return (coordinator_record(key, TRANSACTION, name),)
    found = _read_transaction(row)
    partitions = None
    if found.state is not TransactionalIdState.EMPTY:
        partitions = tuple(
            records.TransactionPartitions(topic, tuple(numbers))
            for topic, numbers in numbers_by_topic(sorted(found.partitions)).items()
        )
    value = records.TransactionLogValue(
        producer_id=found.producer_id,
        previous_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        producer_epoch=found.producer_epoch,
        transaction_timeout_ms=found.timeout_ms,
        transaction_status=TRANSACTION_STATES[found.state],
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=found.updated_at,
        transaction_start_timestamp_ms=found.started_at,
        client_transaction_version=found.client_version,
    )
    return (coordinator_record(key, TRANSACTION, name, value, int(level >= FLEXIBLE_SINCE)),)
