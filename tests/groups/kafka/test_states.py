"""The states of a classic group at its coordinator."""

from __future__ import annotations

from tests.edges import assert_every_edge
from tests.groups.kafka.test_committing import (
    test_offsets_of_an_empty_group_expire_from_when_it_became_empty as becomes_empty,
)
from tests.groups.kafka.test_restart import (
    test_a_static_member_that_came_back_in_the_sync_phase_is_the_one_that_counts as comes_back,
)

from steelyard.groups.kafka.classic.state import GROUPS


def test_every_edge_of_a_group_is_taken() -> None:
    assert_every_edge(GROUPS, becomes_empty, comes_back)
