"""CONFIG: the lists, as far as their queues exist; everything else by another strategy."""

from __future__ import annotations

import pytest

from steelyard.allocate import circle
from steelyard.allocate.pinned import pinned
from steelyard.allocate.plan import Claim, Plan
from steelyard.errors import ConfigError
from steelyard.types import MessageQueue

Q0, Q1, Q2, Q3 = (MessageQueue("T", "b", number) for number in range(4))
RETRY = [MessageQueue("%RETRY%g", "b", number) for number in range(3)]
CLAIMS: list[Claim[MessageQueue]] = [Claim("c1"), Claim("c2")]


def test_everybody_gets_the_list_in_its_order() -> None:
    allocate = pinned({"c1": [Q3, Q0], "c2": [Q1]})
    assert allocate(CLAIMS, [Q0, Q1, Q2, Q3]) == Plan(("c1", "c2"), ((Q3, Q0), (Q1,)))


def test_queues_that_are_not_there_and_members_that_are_away_are_left_out() -> None:
    allocate = pinned({"c1": [Q0, Q3], "c2": [Q1], "c9": [Q2]})
    assert allocate(CLAIMS, [Q0, Q1, Q2]) == Plan(("c1", "c2"), ((Q0,), (Q1,)))


def test_topics_on_no_list_go_by_the_other_strategy() -> None:
    """In RocketMQ nobody would read the group's retry topic."""
    assert pinned({"c1": [Q0]})(CLAIMS, RETRY).shares == ((RETRY[0], RETRY[1]), (RETRY[2],))
    dealt = pinned({"c1": [Q0]}, others=circle.allocate)(CLAIMS, RETRY)
    assert dealt.shares == ((RETRY[0], RETRY[2]), (RETRY[1],))


def test_the_first_of_two_under_one_name_has_the_list() -> None:
    twins: list[Claim[MessageQueue]] = [Claim("c1"), Claim("c1")]
    assert pinned({"c1": [Q0]})(twins, [Q0]) == Plan(("c1", "c1"), ((Q0,), ()))


@pytest.mark.parametrize("lists", [{"c1": [Q0], "c2": [Q0]}, {"c1": [Q0, Q0]}])
def test_a_queue_listed_twice_is_refused(lists: dict[str, list[MessageQueue]]) -> None:
    with pytest.raises(ConfigError, match=r"queue_id=0\) is listed for 'c1' and for 'c[12]'"):
        pinned(lists)
