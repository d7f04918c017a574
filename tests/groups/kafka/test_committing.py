"""OffsetCommit, transactions' offsets, OffsetDelete: who may, every check, and what is stored."""

from __future__ import annotations

import pytest
from tests.groups.kafka.conftest import GROUP, REBALANCE_MS, SESSION_MS, TOPIC, Rig

from steelyard.errors import StorageError
from steelyard.groups.kafka import effects as news
from steelyard.groups.kafka import offsets as offsets_module
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

# -- who may ------------------------------------------------------------------------------------


def test_a_client_without_a_group_protocol_may() -> None:
    rig = Rig()
    assert rig.commit(7) is ErrorCode.NONE
    assert rig.fetch() == (7, ErrorCode.NONE)
    assert rig.state().state == "Empty"
    assert rig.groups.get(GROUP).protocol_type == ""  # type: ignore[union-attr]


def test_a_generation_of_a_group_that_is_not_there() -> None:
    rig = Rig()
    assert rig.commit(generation=1, version=8) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(generation=1, version=9) is ErrorCode.GROUP_ID_NOT_FOUND
    assert len(rig.groups) == 0


def test_members_may_in_their_generation() -> None:
    rig = Rig()
    member, _ = rig.stable(2)
    assert rig.commit(7, member_id=member, generation=1) is ErrorCode.NONE
    assert rig.commit(member_id=member, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(member_id="me", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(member_id=member, generation=1, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(generation=-1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.fetch() == (7, ErrorCode.NONE)


def test_the_old_generation_may_until_the_new_one_stands() -> None:
    """Members commit what they finished when they are told to rejoin; Kafka lets them in the join phase only."""
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.join(leader)
    assert rig.commit(7, member_id=follower, generation=1) is ErrorCode.NONE
    rig.join(follower)
    wait = ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.commit(member_id=follower, generation=2) is wait
    assert rig.commit(member_id=follower, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert rig.fetch() == (7, ErrorCode.NONE)


def test_a_commit_keeps_a_session_alive() -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    for _ in range(3):
        rig.run(SESSION_MS - 1)
        assert rig.commit(member_id=member, generation=1) is ErrorCode.NONE
    assert rig.state().state == "Stable"


def test_a_fenced_static_member_may_not() -> None:
    rig = Rig()
    handle = rig.join(instance="i0")
    rig.run(0)
    old = rig.joined(handle).member_id
    rig.settle([old])
    rig.join(instance="i0")
    assert rig.commit(member_id=old, generation=1, instance="i0") is ErrorCode.FENCED_INSTANCE_ID


# -- what ---------------------------------------------------------------------------------------


def test_unknown_partitions_and_long_metadata() -> None:
    rig = Rig(offset_metadata_max_bytes=3)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.commit(topic="nothing") is unknown
    assert rig.commit(partition=4) is unknown
    assert rig.commit(partition=-1) is unknown
    assert rig.commit(topic="nothing", version=10) is ErrorCode.UNKNOWN_TOPIC_ID
    assert rig.commit(metadata="1234") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert len(rig.groups) == 0
    assert rig.commit(metadata=None) is rig.commit(metadata="123") is ErrorCode.NONE
    assert rig.commit(8, version=10) is ErrorCode.NONE
    assert rig.fetch() == (8, ErrorCode.NONE)


def test_each_partition_has_its_own_error() -> None:
    rig = Rig()
    partitions = tuple(OffsetCommitRequestPartition(number, 9) for number in (3, 4))
    topics = (
        OffsetCommitRequestTopic("nothing", partitions=partitions),
        OffsetCommitRequestTopic(TOPIC, partitions=partitions),
    )
    effects: news.Effects = []
    request = OffsetCommitRequest(GROUP, topics=topics)
    answer = rig.coordinator.commits.commit(request, 9, rig.now, effects)
    assert [[p.error_code for p in topic.partitions] for topic in answer.topics] == [[3, 3], [0, 3]]
    assert effects == [news.Moved(GROUP, "", ((TOPIC, 3, 9),))]


def test_a_commit_is_one_write() -> None:
    rig = Rig()
    rig.commit()
    rig.disk.kill_after_bytes = None
    partitions = tuple(OffsetCommitRequestPartition(number, 9) for number in range(4))
    request = OffsetCommitRequest(
        GROUP, topics=(OffsetCommitRequestTopic(TOPIC, partitions=partitions),)
    )
    writes = 0
    table = rig.coordinator.offsets._table
    put_many = table.put_many

    def counted(pairs: object) -> None:
        nonlocal writes
        writes += 1
        put_many(pairs)  # type: ignore[arg-type]

    table.put_many = counted  # type: ignore[method-assign]
    rig.coordinator.commits.commit(request, 9, rig.now, [])
    assert writes == 1


def test_a_full_disk_changes_nothing() -> None:
    rig = Rig()
    rig.commit(7)
    rig.disk.room_bytes = 0
    with pytest.raises(StorageError):
        rig.commit(8)
    assert rig.fetch() == (7, ErrorCode.NONE)
    rig.coordinator.check()


def test_offsets_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "OFFSETS_MAX", 1)
    rig = Rig()
    assert rig.commit() is ErrorCode.NONE
    assert rig.commit(partition=1) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert txn(rig, 1, 8) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert rig.commit(9) is ErrorCode.NONE, "groups go on whose offsets are there"
    assert rig.fetch() == (9, ErrorCode.NONE)


@pytest.mark.parametrize("group", ["", "a/b", "~1/orders/0/x", "é😀", "a\0b", "x" * 1000])
def test_a_group_may_have_any_name(group: str) -> None:
    rig = Rig()
    assert rig.commit(7, group=group) is ErrorCode.NONE
    assert txn(rig, 1, 8, partition=1, group=group) is ErrorCode.NONE
    rig.restart()
    assert rig.fetch(group=group) == (7, ErrorCode.NONE)
    assert rig.fetch(1, group=group, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert rig.coordinator.listing.delete(group) is ErrorCode.NONE
    assert rig.coordinator.offsets.has_any(group) is False


# -- transactions -------------------------------------------------------------------------------


def txn(
    rig: Rig,
    producer_id: int,
    offset: int,
    *,
    partition: int = 0,
    group: str = GROUP,
    member_id: str = "",
    generation: int = -1,
    version: int = 4,
    metadata: str = "",
) -> ErrorCode:
    one = TxnOffsetCommitRequestPartition(partition, offset, -1, metadata)
    topics = (TxnOffsetCommitRequestTopic(TOPIC, (one,)),)
    request = TxnOffsetCommitRequest(
        "tx", group, producer_id, 0, generation, member_id, None, topics
    )
    answer = rig.coordinator.commits.txn_commit(request, version, rig.now)
    rig.coordinator.check()
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def end(rig: Rig, producer_id: int, *, committed: bool, only: str | None = None) -> None:
    effects: news.Effects = []
    rig.coordinator.commits.end_transaction(
        producer_id, lambda group: only in (None, group), committed=committed, effects=effects
    )
    rig.took(effects)


def test_offsets_of_a_transaction_count_when_it_is_committed() -> None:
    rig = Rig()
    rig.commit(5)
    assert txn(rig, 1, 9) is ErrorCode.NONE
    assert rig.fetch() == (5, ErrorCode.NONE)
    assert rig.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    rig.events.clear()
    end(rig, 1, committed=True)
    assert rig.fetch(stable=True) == (9, ErrorCode.NONE)
    assert rig.events == [news.Moved(GROUP, "", ((TOPIC, 0, 9),))]
    end(rig, 1, committed=True)  # the marker comes again
    rig.restart()
    assert rig.fetch(stable=True) == (9, ErrorCode.NONE)


def test_offsets_of_an_aborted_transaction_are_gone() -> None:
    rig = Rig()
    rig.commit(5)
    txn(rig, 1, 9)
    rig.restart()
    end(rig, 1, committed=False)
    assert rig.fetch(stable=True) == (5, ErrorCode.NONE)


def test_a_later_commit_stays() -> None:
    rig = Rig()
    txn(rig, 1, 9)
    rig.commit(11)
    rig.restart()
    end(rig, 1, committed=True)
    assert rig.fetch() == (11, ErrorCode.NONE)


def test_a_marker_ends_the_transaction_for_the_groups_that_it_is_for() -> None:
    rig = Rig()
    txn(rig, 1, 9)
    txn(rig, 1, 9, group="other")
    txn(rig, 2, 7, partition=1)
    end(rig, 1, committed=True, only=GROUP)
    assert rig.fetch(stable=True) == (9, ErrorCode.NONE)
    assert rig.fetch(group="other", stable=True)[1] is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert rig.fetch(1, stable=True)[1] is ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_a_kill_between_the_writes_of_an_end_is_made_good() -> None:
    rig = Rig()
    txn(rig, 1, 9)
    writes = rig.disk.copy()
    for size in range(0, 400, 7):
        rig.disk = writes.copy()
        rig.restart()
        rig.disk.kill_after_bytes = size
        try:
            end(rig, 1, committed=True)
        except BaseException:  # a kill is none of our errors
            rig.disk.kill_after_bytes = None
            rig.disk = rig.disk.copy()
            rig.restart()
            end(rig, 1, committed=True)
        assert rig.fetch(stable=True) == (9, ErrorCode.NONE)


def test_members_are_checked_where_a_transaction_names_them() -> None:
    """KIP-447."""
    rig = Rig()
    leader, follower = rig.stable(2)
    assert txn(rig, 1, 9, member_id=leader, generation=1) is ErrorCode.NONE
    assert txn(rig, 1, 9, member_id="me", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert txn(rig, 1, 9, member_id=leader, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert txn(rig, 1, 9) is ErrorCode.NONE  # version 2 and before name nobody
    rig.join(leader)
    rig.join(follower)
    assert txn(rig, 1, 9, member_id=leader, generation=2) is ErrorCode.NONE
    assert txn(rig, 1, 9, group="none", generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert txn(rig, 1, 9, metadata="x" * 5_000) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert txn(rig, 1, 9, partition=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- deleting -----------------------------------------------------------------------------------


def delete(rig: Rig, topic: str = TOPIC, partition: int = 0) -> tuple[ErrorCode, list[int]]:
    asked = (OffsetDeleteRequestTopic(topic, (OffsetDeleteRequestPartition(partition),)),)
    answer = rig.coordinator.commits.delete(OffsetDeleteRequest(GROUP, asked))
    rig.coordinator.check()
    codes = [p.error_code for one in answer.topics for p in one.partitions]
    return ErrorCode(answer.error_code), codes


def test_offsets_are_deleted() -> None:
    rig = Rig()
    assert delete(rig) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    rig.commit(5)
    txn(rig, 1, 9)
    assert delete(rig, "nothing") == (ErrorCode.NONE, [3])
    assert delete(rig, partition=7) == (ErrorCode.NONE, [3])
    assert delete(rig) == delete(rig) == (ErrorCode.NONE, [0])
    assert rig.fetch(stable=True) == (-1, ErrorCode.NONE)
    end(rig, 1, committed=True)
    assert rig.fetch() == (-1, ErrorCode.NONE)


def test_offsets_that_are_read_stay() -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    rig.commit(5, member_id=member, generation=1)
    rig.commit(5, member_id=member, generation=1, topic="invoices")
    assert delete(rig) == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    assert delete(rig, "invoices") == (ErrorCode.NONE, [0])
    assert rig.fetch() == (5, ErrorCode.NONE)


def test_offsets_of_members_that_are_no_consumers_stay() -> None:
    rig = Rig()
    handle = rig.join(version=3, protocol_type="connect", protocols={"sessioned": b""})
    rig.run(0)
    rig.settle([rig.joined(handle).member_id])
    assert delete(rig) == (ErrorCode.NON_EMPTY_GROUP, [])


def test_offsets_go_with_their_topic() -> None:
    rig = Rig()
    rig.commit(5)
    rig.commit(5, topic="invoices", group="other")
    txn(rig, 1, 9, group="third")
    rig.coordinator.topic_deleted(TOPIC)
    rig.coordinator.check()
    rig.restart()
    assert rig.fetch() == (-1, ErrorCode.NONE)
    assert rig.fetch(topic="invoices", group="other") == (5, ErrorCode.NONE)
    assert not rig.coordinator.offsets.has_any("third")


# -- expiry -------------------------------------------------------------------------------------

MINUTE_MS = 60_000


def expiring(retention: int = 60) -> Rig:
    return Rig(offsets_retention_minutes=retention, offsets_retention_check_interval_ms=MINUTE_MS)


def test_offsets_of_an_empty_group_expire_from_when_it_became_empty() -> None:
    rig = expiring()
    (member,) = rig.stable(1)
    rig.commit(5, member_id=member, generation=1)
    for _ in range(30 * 10):
        rig.run(MINUTE_MS // 10)
        rig.beat(member, 1)
    rig.leave(member)
    rig.run(59 * MINUTE_MS)
    rig.restart()
    assert rig.fetch() == (5, ErrorCode.NONE)
    rig.run(2 * MINUTE_MS)
    assert rig.fetch() == (-1, ErrorCode.NONE)
    assert rig.groups.get(GROUP) is None
    rig.restart()
    assert rig.groups.get(GROUP) is None


def test_offsets_of_a_group_without_members_expire_from_their_commit() -> None:
    rig = expiring()
    rig.commit(5)
    rig.run(30 * MINUTE_MS)
    rig.commit(5, partition=1)
    rig.run(30 * MINUTE_MS)
    assert rig.fetch() == (-1, ErrorCode.NONE)
    assert rig.fetch(1) == (5, ErrorCode.NONE)


def test_of_a_group_that_reads_only_offsets_of_other_topics_expire() -> None:
    rig = expiring(1)
    (member,) = rig.stable(1)
    rig.commit(5, member_id=member, generation=1)
    rig.commit(5, member_id=member, generation=1, topic="invoices")
    for _ in range(20):
        rig.run(MINUTE_MS // 10)
        rig.beat(member, 1)
    assert rig.fetch() == (5, ErrorCode.NONE)
    assert rig.fetch(topic="invoices") == (-1, ErrorCode.NONE)


def test_old_commits_say_how_long_they_stay() -> None:
    rig = expiring()
    rig.commit(5, version=4, retention=3 * MINUTE_MS)
    rig.run(2 * MINUTE_MS)
    assert rig.fetch() == (5, ErrorCode.NONE)
    rig.run(2 * MINUTE_MS)
    assert rig.fetch() == (-1, ErrorCode.NONE)


def test_offsets_in_an_open_transaction_do_not_expire() -> None:
    rig = expiring(1)
    rig.commit(5)
    txn(rig, 1, 9)
    rig.run(5 * MINUTE_MS)
    assert rig.fetch() == (5, ErrorCode.NONE)
    assert rig.groups.get(GROUP) is not None
    end(rig, 1, committed=False)
    rig.run(2 * MINUTE_MS)
    assert rig.groups.get(GROUP) is None


def test_a_disk_that_refuses_does_not_stop_the_clock() -> None:
    rig = expiring(1)
    rig.commit(5)
    rig.disk.room_bytes = 0
    rig.run(2 * MINUTE_MS)
    assert rig.told[-1].level == "ERROR"
    rig.disk.room_bytes = None
    rig.run(MINUTE_MS)
    assert rig.fetch() == (-1, ErrorCode.NONE)


def test_a_group_that_somebody_is_about_to_join_stays() -> None:
    rig = expiring(1)
    pending = rig.joined(rig.join(session=REBALANCE_MS * 2)).member_id
    rig.run(MINUTE_MS)
    handle = rig.join(pending)
    rig.run(0)
    assert rig.joined(handle).generation_id == 1


def test_names_with_a_slash_are_those_of_groups_only() -> None:
    key = offsets_module._key("a/b", TopicPartition("t", 1), 7)
    assert key == "~7/t/1/a/b"
