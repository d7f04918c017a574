"""Records of `__consumer_offsets` and `__transaction_state`: what coordinators write down.

A key is an int16 type followed by its fields, a value an int16 version followed by its fields; a
record without a value deletes its key. Only tagged fields are added to values now (KIP-915), which
readers skip. Left out: members of a KIP-848 group that use the classic protocol (a tagged field),
and the records of share groups, whose types are unknown here.
Source: group-coordinator/src/main/resources/common/message,
transaction-coordinator/src/main/resources/common/message, CoordinatorRecordSerde.java.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from steelyard.errors import ProtocolError
from steelyard.types import joined
from steelyard.wire.kafka.messages.streams_groups import Endpoint, KeyValue, Subtopology, TaskIds
from steelyard.wire.kafka.schema import (
    NO_ID,
    ApiMessage,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    Since,
    String,
    Tag,
    Uuid,
    Versions,
    read,
    read_prefix,
    write,
)

_INT16 = struct.Struct(">h")


# -- keys ------------------------------------------------------------------------------------------


class OffsetCommitKey(ApiMessage, frozen=True, gc=False):
    group: String = ""
    topic: String = ""
    partition: Int32 = 0


class GroupKey(ApiMessage, frozen=True, gc=False):
    """The key of records about a group."""

    group: String = ""


class MemberKey(ApiMessage, frozen=True, gc=False):
    """The key of records about a member of a KIP-848 or a streams group."""

    group: String = ""
    member_id: String = ""


class RegularExpressionKey(ApiMessage, frozen=True, gc=False):
    group: String = ""
    regular_expression: String = ""


class TransactionKey(ApiMessage, frozen=True, gc=False):
    transactional_id: String = ""


Key = OffsetCommitKey | GroupKey | MemberKey | RegularExpressionKey | TransactionKey


# -- values: offsets and classic groups ------------------------------------------------------------


class OffsetCommitValue(ApiMessage, frozen=True, gc=False):
    """A committed offset. `expire_timestamp`: -1 if the broker's retention applies."""

    offset: Int64 = 0
    leader_epoch: Annotated[Int32, Since(3)] = -1
    metadata: String = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Annotated[Int64, Versions(1, 1)] = -1
    topic_id: Annotated[Uuid, Since(4), Tag(0)] = NO_ID


class MemberMetadata(Part, frozen=True, gc=False):
    """A member of a classic group; `subscription` and `assignment` as members encode them."""

    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: Annotated[Int32, Since(1)] = -1
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadataValue(ApiMessage, frozen=True, gc=False):
    """A classic group with its generation."""

    protocol_type: String = ""
    generation: Int32 = 0
    protocol: NullableString = None
    leader: NullableString = None
    current_state_timestamp: Annotated[Int64, Since(2)] = -1
    members: Sequence[MemberMetadata] = ()


# -- values: KIP-848 groups ------------------------------------------------------------------------


class ConsumerGroupMetadataValue(ApiMessage, frozen=True, gc=False):
    """`metadata_hash`: of the topics that the group subscribes to, since Kafka 4.1."""

    epoch: Int32 = 0
    metadata_hash: Annotated[Int64, Tag(0)] = 0


class PartitionRacks(Part, frozen=True, gc=False):
    partition: Int32 = 0
    racks: Sequence[String] = ()


class TopicMetadata(Part, frozen=True, gc=False):
    topic_id: Uuid = NO_ID
    topic_name: String = ""
    num_partitions: Int32 = 0
    partition_metadata: Sequence[PartitionRacks] = ()


class ConsumerGroupPartitionMetadataValue(ApiMessage, frozen=True, gc=False):
    """The topics of a group, with their ids. Written by Kafka up to 4.0 only."""

    topics: Sequence[TopicMetadata] = ()


class ConsumerGroupMemberMetadataValue(ApiMessage, frozen=True, gc=False):
    instance_id: NullableString = None
    rack_id: NullableString = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Sequence[String] = ()
    subscribed_topic_regex: NullableString = None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: NullableString = None


class ConsumerGroupTargetAssignmentMetadataValue(ApiMessage, frozen=True, gc=False):
    """`assignment_timestamp`: when it was computed, in ms since the epoch; since Kafka 4.3."""

    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, Tag(0)] = 0


class TargetPartitions(Part, frozen=True, gc=False):
    topic_id: Uuid = NO_ID
    partitions: Sequence[Int32] = ()


class ConsumerGroupTargetAssignmentMemberValue(ApiMessage, frozen=True, gc=False):
    topic_partitions: Sequence[TargetPartitions] = ()


class CurrentPartitions(Part, frozen=True, gc=False):
    topic_id: Uuid = NO_ID
    partitions: Sequence[Int32] = ()
    assignment_epochs: Annotated[Sequence[Int32] | None, Tag(0)] = None


class ConsumerGroupCurrentMemberAssignmentValue(ApiMessage, frozen=True, gc=False):
    """What a member has. `state`: 0 stable, 1 has to revoke, 2 waits for others to revoke."""

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: Sequence[CurrentPartitions] = ()
    partitions_pending_revocation: Sequence[CurrentPartitions] = ()


class ConsumerGroupRegularExpressionValue(ApiMessage, frozen=True, gc=False):
    """The topics that a pattern stood for."""

    topics: Sequence[String] = ()
    version: Int64 = 0
    timestamp: Int64 = 0


# -- values: streams groups (KIP-1071) -------------------------------------------------------------


class StreamsGroupMetadataValue(ApiMessage, frozen=True, gc=False):
    """`validated_topology_epoch`: that of the topology whose topics are all there, -1 for none.

    `last_assignment_configs`: the settings for which there has been a rebalance.
    """

    epoch: Int32 = 0
    metadata_hash: Int64 = 0
    validated_topology_epoch: Annotated[Int32, Tag(0)] = -1
    last_assignment_configs: Annotated[Sequence[KeyValue] | None, Tag(1)] = None


class StreamsGroupMemberMetadataValue(ApiMessage, frozen=True, gc=False):
    instance_id: NullableString = None
    rack_id: NullableString = None
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32 = 0
    process_id: String = ""
    user_endpoint: Endpoint | None = None
    client_tags: Sequence[KeyValue] = ()


class StreamsGroupTargetAssignmentMetadataValue(ApiMessage, frozen=True, gc=False):
    """`assignment_timestamp`: when it was computed, in ms since the epoch."""

    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, Tag(0)] = 0


class StreamsGroupTargetAssignmentMemberValue(ApiMessage, frozen=True, gc=False):
    active_tasks: Sequence[TaskIds] = ()
    standby_tasks: Sequence[TaskIds] = ()
    warmup_tasks: Sequence[TaskIds] = ()


class CurrentTaskIds(Part, frozen=True, gc=False):
    """`assignment_epochs`: of active tasks, the epochs in which the member got them."""

    subtopology_id: String = ""
    partitions: Sequence[Int32] = ()
    assignment_epochs: Annotated[Sequence[Int32] | None, Tag(0)] = None


class StreamsGroupCurrentMemberAssignmentValue(ApiMessage, frozen=True, gc=False):
    """What a member has. `state`: 1 stable, 2 has to revoke, 3 waits for others to revoke."""

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    active_tasks: Sequence[CurrentTaskIds] = ()
    standby_tasks: Sequence[CurrentTaskIds] = ()
    warmup_tasks: Sequence[CurrentTaskIds] = ()
    active_tasks_pending_revocation: Sequence[CurrentTaskIds] = ()
    standby_tasks_pending_revocation: Sequence[CurrentTaskIds] = ()
    warmup_tasks_pending_revocation: Sequence[CurrentTaskIds] = ()


class StreamsGroupTopologyValue(ApiMessage, frozen=True, gc=False):
    epoch: Int32 = 0
    subtopologies: Sequence[Subtopology] = ()


# -- values: transactions --------------------------------------------------------------------------


class TransactionPartitions(Part, frozen=True, gc=False):
    topic: String = ""
    partition_ids: Sequence[Int32] = ()


class TransactionLogValue(ApiMessage, frozen=True, gc=False):
    """A transactional id. `transaction_status`: see TransactionState.java; times in ms."""

    producer_id: Int64 = 0
    previous_producer_id: Annotated[Int64, Since(1), Tag(0, 1)] = -1
    next_producer_id: Annotated[Int64, Since(1), Tag(1, 1)] = -1
    producer_epoch: Int16 = 0
    next_producer_epoch: Annotated[Int16, Since(1), Tag(3, 1)] = -1
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: Sequence[TransactionPartitions] | None = None
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Annotated[Int16, Since(1), Tag(2, 1)] = 0


Value = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
    | StreamsGroupMetadataValue
    | StreamsGroupMemberMetadataValue
    | StreamsGroupTargetAssignmentMetadataValue
    | StreamsGroupTargetAssignmentMemberValue
    | StreamsGroupCurrentMemberAssignmentValue
    | StreamsGroupTopologyValue
    | TransactionLogValue
)


# -- reading and writing ---------------------------------------------------------------------------


class RecordType(NamedTuple):
    """A type of record. `versions`: the highest one of its value; `flexible`: the first such."""

    number: int
    key: type[Key]
    value: type[Value]
    versions: int = 0
    flexible: int = 0


OFFSET_COMMIT = RecordType(1, OffsetCommitKey, OffsetCommitValue, 4, 4)
GROUP_METADATA = RecordType(2, GroupKey, GroupMetadataValue, 4, 4)
CONSUMER_GROUP_METADATA = RecordType(3, GroupKey, ConsumerGroupMetadataValue)
CONSUMER_GROUP_PARTITION_METADATA = RecordType(4, GroupKey, ConsumerGroupPartitionMetadataValue)
CONSUMER_GROUP_MEMBER_METADATA = RecordType(5, MemberKey, ConsumerGroupMemberMetadataValue)
CONSUMER_GROUP_TARGET_METADATA = RecordType(6, GroupKey, ConsumerGroupTargetAssignmentMetadataValue)
CONSUMER_GROUP_TARGET_MEMBER = RecordType(7, MemberKey, ConsumerGroupTargetAssignmentMemberValue)
CONSUMER_GROUP_CURRENT = RecordType(8, MemberKey, ConsumerGroupCurrentMemberAssignmentValue)
CONSUMER_GROUP_REGULAR_EXPRESSION = RecordType(
    16, RegularExpressionKey, ConsumerGroupRegularExpressionValue
)
STREAMS_GROUP_METADATA = RecordType(17, GroupKey, StreamsGroupMetadataValue)
STREAMS_GROUP_MEMBER_METADATA = RecordType(19, MemberKey, StreamsGroupMemberMetadataValue)
STREAMS_GROUP_TARGET_METADATA = RecordType(20, GroupKey, StreamsGroupTargetAssignmentMetadataValue)
STREAMS_GROUP_TARGET_MEMBER = RecordType(21, MemberKey, StreamsGroupTargetAssignmentMemberValue)
STREAMS_GROUP_CURRENT = RecordType(22, MemberKey, StreamsGroupCurrentMemberAssignmentValue)
STREAMS_GROUP_TOPOLOGY = RecordType(23, GroupKey, StreamsGroupTopologyValue)
TRANSACTION = RecordType(0, TransactionKey, TransactionLogValue, 1, 1)

GROUP_TYPES = {
    0: OFFSET_COMMIT._replace(number=0),  # as Kafka wrote it before 0.9
    **{
        each.number: each
        for each in (
            OFFSET_COMMIT,
            GROUP_METADATA,
            CONSUMER_GROUP_METADATA,
            CONSUMER_GROUP_PARTITION_METADATA,
            CONSUMER_GROUP_MEMBER_METADATA,
            CONSUMER_GROUP_TARGET_METADATA,
            CONSUMER_GROUP_TARGET_MEMBER,
            CONSUMER_GROUP_CURRENT,
            CONSUMER_GROUP_REGULAR_EXPRESSION,
        )
    },
}
"""The types of records in `__consumer_offsets` that are read, by number.

Those of streams groups are only written.
"""

TRANSACTION_TYPES = {TRANSACTION.number: TRANSACTION}
"""The types of records in `__transaction_state`, by number."""


def write_key(kind: RecordType, key: Key) -> bytes:
    return joined([_INT16.pack(kind.number), *write(key, 0, flexible=False)])


def write_value(kind: RecordType, value: Value, version: int = 0) -> bytes:
    flexible = version >= kind.flexible
    return joined([_INT16.pack(version), *write(value, version, flexible=flexible)])


def type_of(key: bytes, types: dict[int, RecordType]) -> RecordType | None:
    """Return the type of the record with this key; None if it is unknown."""
    return types.get(_number(key))


def read_key(kind: RecordType, data: bytes) -> Key:
    """Read a key, of which the type is known. Raises ProtocolError."""
    return read_prefix(kind.key, data, 0, at=2)


def read_value(kind: RecordType, data: bytes) -> Value | None:
    """Read a value; None for a version later than those known. Raises ProtocolError."""
    version = _number(data)
    if not 0 <= version <= kind.versions:
        return None
    flexible = version >= kind.flexible
    return read(kind.value, data, version, flexible=flexible, at=2, more_allowed=True)


def _number(data: bytes) -> int:
    if len(data) < 2:
        raise ProtocolError(f"{len(data)} bytes are not a coordinator's record")
    return int(_INT16.unpack_from(data)[0])
