"""Groups of the two kinds under one name: what a JoinGroup finds, and what becomes of the offsets."""

from __future__ import annotations

from tests.groups.kafka.conftest import GROUP, Rig

from steelyard.errors import StorageError
from steelyard.groups.kafka.groups import Reader
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode


class Other:
    """A group of the other kind."""

    kind = "consumer"
    state = "Stable"
    protocol_type = "consumer"
    group_id = GROUP

    def __init__(self, *, is_empty: bool) -> None:
        self.is_empty = is_empty
        self.forgotten = 0
        self.broken = False

    def member_ids(self) -> tuple[str, ...]:
        return ()

    def subscribes_to(self, topic: str) -> bool:
        return False

    def expires_from(self, committed_at: int) -> int | None:
        return None

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        version: int,
        transactional: bool,
        now: int,
    ) -> ErrorCode:
        known = member_id == "m"
        return ErrorCode.NONE if known else ErrorCode.STALE_MEMBER_EPOCH

    def check_commit_partition(
        self, member_id: str, generation: int, partition: TopicPartition
    ) -> ErrorCode:
        fenced = partition.partition == 1
        return ErrorCode.STALE_MEMBER_EPOCH if fenced else ErrorCode.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def owner_of(self, partition: TopicPartition) -> str | None:
        return None

    def member_at(self, client_id: str, host: str, partition: TopicPartition) -> str | None:
        return None

    def readers(self) -> list[Reader]:
        return []

    def forget(self) -> None:
        if self.broken:
            raise StorageError("no")
        self.forgotten += 1

    def check(self) -> None:
        pass


def test_a_group_of_the_other_kind_with_members_stays_one() -> None:
    rig = Rig()
    other = Other(is_empty=False)
    rig.groups.add(other)
    assert rig.join_error(rig.join()) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.sync_error(rig.sync("m", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.beat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.leave("m").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.seen() is None
    assert rig.coordinator.listing.describe(GROUP, 5).group_state == "Dead"
    newer = rig.coordinator.listing.describe(GROUP, 6)
    assert newer.error_message == f"Group {GROUP} is not a classic group."
    assert rig.coordinator.listing.delete(GROUP) is ErrorCode.NON_EMPTY_GROUP
    assert other.forgotten == 0


def test_an_empty_one_becomes_classic_and_keeps_its_offsets() -> None:
    rig = Rig()
    other = Other(is_empty=True)
    rig.groups.add(other)
    assert rig.commit(5, member_id="m", generation=3) is ErrorCode.NONE
    assert rig.join_error(rig.join("m")) is ErrorCode.UNKNOWN_MEMBER_ID
    other.broken = True
    assert rig.join_error(rig.join()) is ErrorCode.NOT_COORDINATOR
    other.broken = False
    assert rig.join_error(rig.join()) is ErrorCode.MEMBER_ID_REQUIRED
    assert other.forgotten == 1
    assert rig.state().state == "Empty"
    assert rig.fetch() == (5, ErrorCode.NONE)


def test_the_group_itself_says_who_may_commit() -> None:
    rig = Rig()
    rig.groups.add(Other(is_empty=False))
    assert rig.commit(5, member_id="n", generation=3) is ErrorCode.STALE_MEMBER_EPOCH
    assert rig.commit(5, member_id="m", generation=3, partition=1) is ErrorCode.STALE_MEMBER_EPOCH
    assert rig.commit(5, member_id="m", generation=3) is ErrorCode.NONE
    assert rig.fetch(1) == (-1, ErrorCode.NONE)
