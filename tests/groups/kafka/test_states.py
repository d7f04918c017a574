"""The states of a classic group at its coordinator."""

from __future__ import annotations

from tests.edges import assert_every_edge
from tests.groups.kafka.consumer.test_migration import (
    test_members_keep_their_partitions_and_generation as is_upgraded,
)
from tests.groups.kafka.consumer.test_migration import (
    test_who_waits_for_a_generation_joins_again as is_upgraded_while_members_join,
)
from tests.groups.kafka.consumer.test_migration import (
    test_who_waits_for_the_leader_joins_again as is_upgraded_while_members_sync,
)
from tests.groups.kafka.test_committing import (
    test_offsets_of_an_empty_group_expire_from_when_it_became_empty as becomes_empty,
)
from tests.groups.kafka.test_restart import (
    test_a_static_member_that_came_back_in_the_sync_phase_is_the_one_that_counts as comes_back,
)

from steelyard.groups.kafka.classic.state import GROUPS


def test_every_edge_of_a_group_is_taken() -> None:
    upgrades = (is_upgraded, is_upgraded_while_members_join, is_upgraded_while_members_sync)
    assert_every_edge(GROUPS, becomes_empty, comes_back, *upgrades)
