"""The rows of streams groups as the records that Kafka keeps of them; Kafka's own reader takes them in tests/peers/kafka."""

from __future__ import annotations

from tests.groups.kafka.streams.conftest import GROUP, WORD_COUNT, Rig

from steelyard.groups.kafka.group_rows import key_of
from steelyard.groups.kafka.streams.coordinator_records import streams_group_records
from steelyard.wire.kafka.messages import coordinator_records as records
from steelyard.wire.kafka.messages.coordinator_records import (
    STREAMS_GROUP_CURRENT,
    STREAMS_GROUP_MEMBER_METADATA,
    STREAMS_GROUP_METADATA,
    STREAMS_GROUP_TARGET_MEMBER,
    STREAMS_GROUP_TARGET_METADATA,
    STREAMS_GROUP_TOPOLOGY,
    CurrentTaskIds,
    Key,
    Value,
)
from steelyard.wire.kafka.messages.streams_groups import Endpoint, KeyValue, TaskIds

TYPES = {
    each.number: each
    for each in (
        STREAMS_GROUP_METADATA,
        STREAMS_GROUP_MEMBER_METADATA,
        STREAMS_GROUP_TARGET_METADATA,
        STREAMS_GROUP_TARGET_MEMBER,
        STREAMS_GROUP_CURRENT,
        STREAMS_GROUP_TOPOLOGY,
    )
}


def read(key: str, row: bytes | None) -> list[tuple[int, Key, Value | None]]:
    """The records of a row: type, key, value."""
    found = []
    for record in streams_group_records(key, row):
        assert record.name == GROUP
        kind = TYPES[int.from_bytes(record.key[:2], "big")]
        value = None if record.value is None else records.read_value(kind, record.value)
        found.append((kind.number, records.read_key(kind, record.key), value))
    return found


def test_a_group() -> None:
    rig = Rig(group_streams_num_standby_replicas=1)
    rig.join("a.1")
    told = read(key_of(GROUP), rig.table.get(key_of(GROUP)))
    group = records.GroupKey(GROUP)
    topology = records.StreamsGroupTopologyValue(0, WORD_COUNT.subtopologies)
    assert [(number, key) for number, key, _ in told] == [
        (23, group),
        (17, group),
        (21, records.MemberKey(GROUP, "a.1")),
        (20, group),
    ]
    values = [value for _, _, value in told]
    assert repr(values[0]).replace("(0,)", "[0]").replace("()", "[]") == repr(topology).replace(
        "()", "[]"
    )
    config = KeyValue("num.standby.replicas", "1")
    assert values[1] == records.StreamsGroupMetadataValue(2, 0, 0, [config])
    both = [TaskIds("0", (0, 1)), TaskIds("1", (0, 1))]
    assert values[2] == records.StreamsGroupTargetAssignmentMemberValue(both, [], [])
    assert values[3] == records.StreamsGroupTargetAssignmentMetadataValue(2, rig.now)
    assert read(key_of(GROUP), None) == [(20, group, None), (17, group, None), (23, group, None)]


def test_a_member() -> None:
    rig = Rig()
    thread = rig.join("a.1", Endpoint("host", 9))
    rig.join("b.1")
    thread.beat(rack_id="r", client_tags=[KeyValue("k", "v")])
    key, name = key_of(GROUP, "a.1"), records.MemberKey(GROUP, "a.1")
    (first, _, said), (second, _, current) = read(key, rig.table.get(key))
    assert (first, second) == (19, 22)
    assert said == records.StreamsGroupMemberMetadataValue(
        None, "r", "client", "/10.0.0.1", 10_000, 0, "a", Endpoint("host", 9), [KeyValue("k", "v")]
    )
    assert isinstance(current, records.StreamsGroupCurrentMemberAssignmentValue)
    kept = [(each.subtopology_id, *each.partitions) for each in current.active_tasks]
    assert kept == [(each.subtopology_id, each.partition) for each in sorted(thread.active)]
    released = current.active_tasks_pending_revocation
    assert all(each.assignment_epochs == (2,) for each in (*current.active_tasks, *released))
    assert (current.member_epoch, current.state, len(released)) == (2, 2, 2)
    assert released[0] == CurrentTaskIds("0", (1,), (2,))
    assert read(key, None) == [(22, name, None), (21, name, None), (19, name, None)]
