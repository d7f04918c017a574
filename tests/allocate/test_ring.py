"""CONSISTENT_HASH: the golden plan of the Java client, its ring written again, and its law of few moves."""

from __future__ import annotations

import struct
from collections import Counter
from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.allocate import measure

from steelyard.allocate import ring
from steelyard.allocate.plan import Claim
from steelyard.errors import ConfigError
from steelyard.types import MessageQueue

members_of = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=8).map(sorted)


def claims_of(members: list[str]) -> list[Claim[MessageQueue]]:
    return [Claim(member) for member in members]


def numbered(count: int, topic: str = "TopicA", broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for number in range(count)]


def test_the_golden_plan_of_java() -> None:
    """Printed by AllocateMessageQueueConsistentHash of 5.3.3."""
    plan = ring.allocate(claims_of(["c0", "c1", "c2"]), numbered(8))
    assert [[queue.queue_id for queue in share] for share in plan.shares] == [
        [1, 2],
        [0, 7],
        [3, 4, 5, 6],
    ]


def unsigned(text: str) -> int:
    (number,) = struct.unpack(">I", md5(text.encode("utf-8", "replace")).digest()[:4])
    assert isinstance(number, int)
    return number


def java_ring(members: list[str], current: str, queues: list[MessageQueue]) -> list[MessageQueue]:
    """ConsistentHashRouter as it is written: a map of places, walked through."""
    tree: dict[int, tuple[str, int]] = {}
    for member in members:
        existing = sum(1 for name, _ in tree.values() if name == member)
        for number in range(10):
            tree[unsigned(f"{member}-{number + existing}")] = (member, number + existing)
    mine = []
    for queue in queues:
        text = f"MessageQueue [topic={queue[0]}, brokerName={queue[1]}, queueId={queue[2]}]"
        tail = [place for place in sorted(tree) if place >= unsigned(text)]
        place = tail[0] if tail else min(tree)
        if tree[place][0] == current:
            mine.append(queue)
    return mine


@given(members=members_of, count=st.integers(0, 24))
def test_plans_are_the_originals(members: list[str], count: int) -> None:
    queues = numbered(count)
    plan = ring.allocate(claims_of(members), queues)
    for member in members:
        assert list(plan.share(member)) == java_ring(members, member, queues)


def test_a_queue_at_a_members_place_is_that_members() -> None:
    """`tailMap` includes the place itself; and after the last place the first one follows."""

    def place(text: str) -> int:
        return {"a-0": 10, "b-0": 20}.get(text) or 10 * int(text[-2])

    queues = [MessageQueue("T", "b", number) for number in (0, 1, 2, 3)]
    plan = ring.consistent_hash(1, place)(claims_of(["a", "b"]), queues)
    assert [[queue.queue_id for queue in share] for share in plan.shares] == [[0, 1, 3], [2]]


def test_a_second_process_of_one_name_goes_on_counting_its_places() -> None:
    queues = numbered(64)
    twins = ring.allocate(claims_of(["c0", "c0", "c1"]), queues)
    assert twins.shares[1] == ()
    assert list(twins.share("c0")) == java_ring(["c0", "c0", "c1"], "c0", queues)
    assert twins.share("c0") != ring.allocate(claims_of(["c0", "c1"]), queues).share("c0")


@given(
    members=st.lists(st.text("abc1", min_size=1, max_size=4), min_size=1, max_size=8, unique=True)
)
def test_a_newcomer_takes_queues_and_moves_no_others(members: list[str]) -> None:
    queues = numbered(48)
    before = ring.allocate(claims_of(members), queues)
    after = ring.allocate(claims_of([*members, "newcomer"]), queues)
    assert measure.moves(before, after) == len(after.share("newcomer"))


def test_more_places_make_it_fairer_and_none_are_refused() -> None:
    queues = numbered(512)
    members = [f"c{number}" for number in range(8)]
    few = ring.consistent_hash(1)(claims_of(members), queues)
    many = ring.consistent_hash(200)(claims_of(members), queues)
    assert measure.spread(many) < measure.spread(few)
    with pytest.raises(ConfigError, match="virtual_nodes is 0; it must be 1 or more"):
        ring.consistent_hash(0)


def test_members_lose_places_that_others_take_over() -> None:
    """b takes a's place; the second a finds none of its name standing and begins at 0 again."""
    asked: Counter[str] = Counter()

    def place(text: str) -> int:
        asked[text] += 1
        return 7

    queue = MessageQueue("T", "b", 0)
    plan = ring.consistent_hash(1, place)(claims_of(["a", "b", "a"]), [queue])
    assert plan.shares == ((queue,), (), ())
    assert asked["a-0"] == 2
