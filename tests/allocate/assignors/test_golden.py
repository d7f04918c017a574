"""Apache's own plans and user data, kept in a file: see `tests/peers/kafka/assignors.py`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.allocate.assignors.groups import check_as_good, check_shares, is_determined

from steelyard.allocate.assignors.holdings import claim_of_cooperative, claim_of_eager, settle
from steelyard.allocate.assignors.plan import Assignment, Subscriber
from steelyard.allocate.assignors.registry import assignor
from steelyard.allocate.assignors.user_data import read_generation, read_sticky
from steelyard.types import TopicPartition

LINES = (Path(__file__).parents[2] / "golden" / "kafka-assignors-4.4.0.jsonl").read_text()
CASES: list[dict[str, Any]] = [json.loads(line) for line in LINES.splitlines()]


def places(texts: list[str]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, int(number))
        for topic, _, number in (text.rpartition(":") for text in texts)
    ]


def group_of(case: dict[str, Any]) -> list[Subscriber]:
    """With the user data that Apache's own members sent."""
    return [
        Subscriber(
            member,
            topics,
            places(owned),
            generation,
            instance,
            user_data=bytes.fromhex(case["user_data"][member]) or None,
        )
        for member, instance, topics, generation, owned in case["members"]
    ]


def plan_of(case: dict[str, Any]) -> Assignment:
    return {member: places(texts) for member, texts in case["plan"].items()}


@pytest.mark.parametrize("number", range(len(CASES)))
def test_plan(number: int) -> None:
    case = CASES[number]
    subscribers, theirs = group_of(case), plan_of(case)
    plan = assignor(case["assignor"]).assign(subscribers, case["partitions"])
    ours = {member: sorted(share) for member, share in plan.items()}
    if case["assignor"] in ("range", "roundrobin"):
        assert ours == theirs
    elif case["assignor"] == "sticky":
        check_as_good(subscribers, case["partitions"], ours, theirs)
    elif is_determined(subscribers, case["partitions"]):
        assert ours == theirs
    else:
        check_shares(ours, subscribers)
        holders = settle(subscribers, case["partitions"], claim_of_cooperative).holders
        for member, share in ours.items():
            assert all(holders.get(partition, member) == member for partition in share)


def test_many_of_the_sticky_plans_are_determined() -> None:
    determined = Counter(
        is_determined(group_of(case), case["partitions"])
        for case in CASES
        if "sticky" in case["assignor"]
    )
    assert determined[True] > 30


def test_user_data_is_read() -> None:
    for case in CASES:
        for one in group_of(case):
            if case["assignor"] == "sticky":
                assert read_sticky(one.user_data or b"").generation == max(one.generation, -1)
                claim = claim_of_eager(one)
                assert sorted(claim.owned) == sorted(one.owned)
            elif case["assignor"] == "cooperative-sticky":
                assert read_generation(one.user_data) == one.generation
            else:
                assert one.user_data is None


def test_user_data_of_one_topic_is_written_byte_for_byte() -> None:
    """Of several topics Apache leaves the order to a hash map."""
    seen = 0
    for case in CASES:
        for one in group_of(case):
            if len({topic for topic, _ in one.owned}) <= 1:
                written = assignor(case["assignor"]).user_data(one.owned, one.generation)
                assert written == one.user_data
                seen += 1
    assert seen > 50
