"""Apache's own assignors in a JVM (`java/Assignors.java`), and groups by chance to put to them and to ours.

`python -m tests.peers.kafka.assignors` prints the golden file `kafka-assignors-4.4.0.jsonl`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from tests.allocate.assignors.groups import again
from tests.peers.apache import java_environment
from tests.peers.kafka import builds

from steelyard.allocate.assignors.plan import Assignment, Subscriber
from steelyard.allocate.assignors.registry import assignor
from steelyard.types import TopicPartition

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")


class Answer(NamedTuple):
    """Apache's plan, how long it took, and what each member told in its user data (empty if nothing)."""

    plan: Assignment
    nanos: int
    user_data: dict[str, bytes]


class Assignors:
    """One JVM that answers group by group. Raises `tests.peers.apache.Missing` where there is none."""

    def __init__(self, version: str) -> None:
        options = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-Xmx1g")
        self._process = subprocess.Popen(
            ["java", *options, "-cp", builds.java_classes(version), "Assignors"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=java_environment(),
        )

    def assign(
        self, name: str, subscribers: Sequence[Subscriber], partitions: Mapping[str, int]
    ) -> Answer:
        """`Subscriber.user_data` is not sent: Apache's assignor makes it of what is owned, and when."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line_of(name, subscribers, partitions) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        plan = {
            member: sorted(place(text) for text in share)
            for member, share in answer["plan"].items()
        }
        user_data = {member: bytes.fromhex(text) for member, text in answer["user_data"].items()}
        return Answer(plan, answer["nanos"], user_data)

    def __enter__(self) -> Assignors:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)


def place(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition(":")
    return TopicPartition(topic, int(partition))


def line_of(name: str, subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> str:
    """A group as Assignors.java reads it."""
    counts = ",".join(f"{topic}:{count}" for topic, count in partitions.items())
    members = [
        "|".join(
            [
                *(one.member, one.instance or "", ",".join(one.topics), str(one.generation)),
                ",".join(f"{topic}:{number}" for topic, number in one.owned),
            ]
        )
        for one in subscribers
    ]
    return "\t".join([name, counts, *members])


def new_group(rng: Random, members_max: int = 8) -> tuple[list[Subscriber], dict[str, int]]:
    """Members that hold nothing. Half of the groups subscribe alike."""
    partitions = {f"t{number}": rng.randint(1, 9) for number in range(rng.randint(1, 6))}
    alike = rng.random() < 0.5
    return [
        _joining(rng, f"m{number}", partitions, alike)
        for number in range(rng.randint(1, members_max))
    ], partitions


def _joining(rng: Random, member: str, partitions: Mapping[str, int], alike: bool) -> Subscriber:
    topics = sorted(partitions)
    return Subscriber(
        member,
        topics if alike else rng.sample(topics, rng.randint(1, len(topics))),
        instance=f"i{rng.randrange(100)}-{member}" if rng.random() < 0.2 else None,
    )


def changed_group(
    rng: Random, group: Sequence[Subscriber], partitions: Mapping[str, int]
) -> tuple[list[Subscriber], dict[str, int]]:
    """Members leave, join or change their minds, or a topic grows."""
    members, counts = list(group), dict(partitions)
    alike = all(one.topics == sorted(partitions) for one in members)
    change = rng.choice(("leave", "join", "both", "grow", "subscribe"))
    if change in ("leave", "both") and len(members) > 1:
        del members[rng.randrange(len(members))]
    if change in ("join", "both"):
        newcomer = f"{rng.choice('az')}-{rng.randrange(10**6)}"
        members.append(_joining(rng, newcomer, partitions, alike))
    if change == "grow":
        counts[rng.choice(sorted(counts))] += rng.randint(1, 6)
    if change == "subscribe":
        place = rng.randrange(len(members))
        members[place] = _joining(rng, members[place].member, partitions, False)
    return members, counts


def cases(
    java: Assignors, rng: Random, name: str
) -> Iterator[tuple[list[Subscriber], dict[str, int], Answer]]:
    """A new group and what comes of it by two changes, each from Apache's plan for the one before."""
    members, partitions = new_group(rng)
    held: Assignment = {}
    for generation in range(3):
        subscribers = again(assignor(name), members, held, 10 * generation)
        answer = java.assign(name, subscribers, partitions)
        yield subscribers, partitions, answer
        held = answer.plan
        members, partitions = changed_group(rng, members, partitions)


def golden_lines(version: str = builds.NEW, groups: int = 16) -> Iterator[str]:
    with Assignors(version) as java:
        for name in NAMES:
            for number in range(groups):
                rng = Random(f"{name} {number}")
                for subscribers, partitions, answer in cases(java, rng, name):
                    yield json.dumps(
                        {
                            "assignor": name,
                            "partitions": partitions,
                            "members": [
                                [
                                    *(one.member, one.instance, one.topics, one.generation),
                                    [f"{topic}:{number}" for topic, number in one.owned],
                                ]
                                for one in subscribers
                            ],
                            "plan": {
                                member: [f"{topic}:{number}" for topic, number in share]
                                for member, share in answer.plan.items()
                            },
                            "user_data": {
                                member: data.hex() for member, data in answer.user_data.items()
                            },
                        },
                        separators=(",", ":"),
                    )


if __name__ == "__main__":
    for line in golden_lines():
        print(line)
