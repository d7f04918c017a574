"""DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

from tests.groups.kafka.conftest import Rig, assignment, subscription

from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    ListedGroup,
    ListGroupsRequest,
)


def test_a_stable_group_is_described_with_its_assignments() -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    described = DescribedGroupMember(
        member, None, "client-0", "/10.0.0.1", subscription(), assignment([0])
    )
    expected = DescribedGroup(
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=(described,),
    )
    assert rig.coordinator.listing.describe("g", 5) == expected
    rig.join(version=3)
    rebalancing = rig.coordinator.listing.describe("g", 5)
    assert (rebalancing.group_state, rebalancing.protocol_data) == ("PreparingRebalance", "")
    assert [one.member_metadata for one in rebalancing.members] == [b"", b""]


def test_a_group_that_is_not_there_is_dead() -> None:
    rig = Rig()
    assert rig.coordinator.listing.describe("g", 5) == DescribedGroup(
        group_id="g", group_state="Dead"
    )
    newer = rig.coordinator.listing.describe("g", 6)
    assert (newer.error_code, newer.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g not found.",
    )


def test_groups_are_listed_by_state_and_kind() -> None:
    rig = Rig()
    rig.stable(1)
    rig.commit(group="simple")
    stable = ListedGroup("g", "consumer", "Stable", "classic")
    simple = ListedGroup("simple", "", "Empty", "classic")

    def listed(
        states: tuple[str, ...] = (), kinds: tuple[str, ...] = ()
    ) -> tuple[ListedGroup, ...]:
        return rig.coordinator.listing.all(ListGroupsRequest(states, kinds))

    assert listed() == (stable, simple)
    assert listed((" stable ", "dead")) == (stable,)
    assert listed(("Empty",), ("CLASSIC",)) == (simple,)
    assert listed((), ("consumer",)) == ()
    assert listed(("Nonsense",)) == ()


def test_groups_without_members_are_deleted() -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    rig.commit(5, member_id=member, generation=1)
    delete = rig.coordinator.listing.delete
    assert delete("nobody") is ErrorCode.GROUP_ID_NOT_FOUND
    assert delete("g") is ErrorCode.NON_EMPTY_GROUP
    rig.leave(member)
    rig.join()  # somebody has asked for an id
    assert delete("g") is ErrorCode.NONE
    rig.coordinator.check()
    rig.run(1_000_000)
    assert delete("g") is ErrorCode.GROUP_ID_NOT_FOUND
    assert rig.fetch() == (-1, ErrorCode.NONE)
    rig.restart()
    assert len(rig.groups) == 0
