"""How long an assignment takes: Steelyard's assignors beside Java's and kafka-python's, in one run.

`.venv/bin/python bench/assignors.py` writes its section of bench/ASSIGNORS.md; `--tiny` is a grid of a second,
without Java. One group is taken through three assignments: it is new, one member leaves, one joins. Each is timed by
itself, without wire formats; rounds alternate between the programs, and the median over the rounds counts.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import median
from types import SimpleNamespace
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
# Run as a script: `tests` is beside us, and our own folder has a `kafka` that is not kafka-python's.
sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if Path(entry).resolve() != HERE)]

from kafka.coordinator.assignors.range import RangePartitionAssignor  # noqa: E402
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor  # noqa: E402
from kafka.coordinator.assignors.sticky.sticky_assignor import (  # noqa: E402
    StickyPartitionAssignor,
)
from tests.peers import apache  # noqa: E402
from tests.peers.kafka import builds  # noqa: E402
from tests.peers.kafka.assignors import Assignors  # noqa: E402

from steelyard.allocate.assignors.plan import Assignment, Subscriber  # noqa: E402
from steelyard.allocate.assignors.registry import ASSIGNORS  # noqa: E402
from steelyard.types import TopicPartition  # noqa: E402

Timed = Callable[[str, Sequence[Subscriber], Mapping[str, int]], tuple[float, Assignment]]
"""(assignor, members, partitions) -> milliseconds, plan."""

HEADING = "## Client-side assignors"


class Size(NamedTuple):
    topics: int
    partitions: int
    members: int
    alike: bool = True

    def __str__(self) -> str:
        return f"{self.topics}×{self.partitions}, {self.members}"


GRID = (
    Size(10, 10, 10),
    Size(10, 100, 100),
    Size(100, 100, 100),
    Size(100, 100, 1000),
    Size(1, 10_000, 2000),
    Size(10, 10, 10, alike=False),
    Size(10, 100, 100, alike=False),
    Size(100, 100, 100, alike=False),
    Size(100, 100, 1000, alike=False),
)
TINY = (Size(3, 4, 3), Size(3, 4, 3, alike=False))
KAFKA_PYTHON_PARTITIONS_MAX = 1000
"""Its sticky takes 20 s for ten times as many, and 50 s for 1,000 members."""
JAVA_DIFFERING_PARTITIONS_MAX = 1000
"""Its sticky assignors take 20 s and more for ten times as many and 1,000 members with differing subscriptions."""
KAFKA_PYTHON = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Row(NamedTuple):
    assignor: str
    size: Size
    whose: str
    new_ms: float
    leave_ms: float
    join_ms: float
    leave_moves: int
    join_moves: int
    spread: int


def steelyard(
    name: str, members: Sequence[Subscriber], partitions: Mapping[str, int]
) -> tuple[float, Assignment]:
    begin = time.perf_counter()
    plan = ASSIGNORS[name].assign(members, partitions)
    return (time.perf_counter() - begin) * 1e3, plan


def kafka_python(
    name: str, members: Sequence[Subscriber], partitions: Mapping[str, int]
) -> tuple[float, Assignment]:
    numbers = {topic: set(range(count)) for topic, count in partitions.items()}
    cluster = SimpleNamespace(partitions_for_topic=numbers.get, topics=lambda: set(numbers))
    joined = [
        SimpleNamespace(
            member_id=one.member,
            group_instance_id=None,
            metadata=SimpleNamespace(
                topics=list(one.topics),
                # kafka-python reads a version before it
                user_data=b"\0\1" + one.user_data if one.user_data else b"",
            ),
        )
        for one in members
    ]
    assignor = KAFKA_PYTHON[name]()
    begin = time.perf_counter()
    found = assignor.assign(cluster, joined)
    elapsed = (time.perf_counter() - begin) * 1e3
    return elapsed, {
        member: [TopicPartition(*one) for one in assignment.partitions()]
        for member, assignment in found.items()
    }


def group(size: Size) -> tuple[list[Subscriber], dict[str, int]]:
    """Where subscriptions differ everybody reads half of the topics by chance."""
    rng = Random(str(size))
    partitions = {f"topic-{number:03}": size.partitions for number in range(size.topics)}
    topics = sorted(partitions)
    return [
        Subscriber(
            f"consumer-{number:04}-{rng.getrandbits(64):016x}",
            topics if size.alike else rng.sample(topics, (size.topics + 1) // 2),
        )
        for number in range(size.members)
    ], partitions


def holding(name: str, members: Sequence[Subscriber], plan: Assignment) -> list[Subscriber]:
    user_data = ASSIGNORS[name].user_data
    return [
        Subscriber(one.member, one.topics, share, 1, user_data=user_data(share, 1))
        for one in members
        for share in (plan[one.member],)
    ]


def moves(before: Assignment, after: Assignment) -> int:
    """Partitions that another member has, or shall have: a cooperative plan leaves those out."""
    kept = sum(
        len(set(before[member]) & set(share)) for member, share in after.items() if member in before
    )
    return sum(map(len, before.values())) - kept


def measure(name: str, size: Size, whose: str, assign: Timed) -> Row:
    members, partitions = group(size)
    new_ms, plan = assign(name, members, partitions)
    joined = holding(name, members, plan)
    leave_ms, left = assign(name, joined[1:], partitions)
    newcomer = Subscriber("newcomer", members[0].topics)
    join_ms, grown = assign(name, [*joined, newcomer], partitions)
    sizes = [len(share) for share in plan.values()]
    return Row(
        *(name, size, whose, new_ms, leave_ms, join_ms),
        *(moves(plan, left), moves(plan, grown), max(sizes) - min(sizes)),
    )


def programs(name: str, size: Size, java: Assignors | None) -> dict[str, Timed]:
    found: dict[str, Timed] = {"Steelyard": steelyard}
    count = size.topics * size.partitions
    too_large = "sticky" in name and not size.alike and count > JAVA_DIFFERING_PARTITIONS_MAX
    if java is not None and name != "even" and not too_large:

        def of_java(
            name: str, members: Sequence[Subscriber], partitions: Mapping[str, int]
        ) -> tuple[float, Assignment]:
            answer = java.assign(name, members, partitions)
            return answer.nanos / 1e6, answer.plan

        found[f"Java {builds.NEW}"] = of_java
    # Its roundrobin ends in a KeyError where a member does not read what its turn has.
    is_asked = name in KAFKA_PYTHON and (size.alike or name != "roundrobin")
    if is_asked and count <= KAFKA_PYTHON_PARTITIONS_MAX:
        found["kafka-python"] = kafka_python
    return found


def run(grid: Sequence[Size], rounds: int, java: Assignors | None) -> list[Row]:
    rows = []
    for size in grid:
        for name in ASSIGNORS:
            timed = programs(name, size, java)
            done = [
                {whose: measure(name, size, whose, assign) for whose, assign in timed.items()}
                for _ in range(rounds)
            ]
            for whose in timed:
                of_rounds = [one[whose] for one in done]
                rows.append(
                    of_rounds[-1]._replace(
                        new_ms=median(row.new_ms for row in of_rounds),
                        leave_ms=median(row.leave_ms for row in of_rounds),
                        join_ms=median(row.join_ms for row in of_rounds),
                    )
                )
                print(rows[-1], flush=True)
    return rows


def report(rows: Sequence[Row], rounds: int) -> str:
    lines = [
        HEADING,
        "",
        f"Written by `bench/assignors.py`: the median of {rounds} rounds, on {platform.machine()}, "
        f"Python {platform.python_version()}, the machine shared with other work.",
        "",
        "| topics × partitions, members | subscriptions | assignor | whose | new ms | one leaves ms "
        "| one joins ms | moved by the leave | by the join | spread |",
        "|---|---|---|---|--:|--:|--:|--:|--:|--:|",
        *(
            f"| {row.size} | {'equal' if row.size.alike else 'half of the topics'} | {row.assignor} "
            f"| {row.whose} | {row.new_ms:,.1f} | {row.leave_ms:,.1f} | {row.join_ms:,.1f} "
            f"| {row.leave_moves:,} | {row.join_moves:,} | {row.spread} |"
            for row in rows
        ),
        "",
        "- **ms**: of the assignor alone, without wire formats. Java's first rounds run before its compiler is warm,",
        "  as they do in a member that leads its first rebalance.",
        "- **moved**: partitions that do not stay where they were, those of the member that left included.",
        "- **spread**: the largest share of the new group less the smallest one.",
        f"- kafka-python is asked for up to {KAFKA_PYTHON_PARTITIONS_MAX:,} partitions: its sticky takes 20 s for ten times as many.",
        f"- Java's sticky assignors are asked for up to {JAVA_DIFFERING_PARTITIONS_MAX:,} partitions where subscriptions differ: a new group of",
        "  1,000 members and 100×100 partitions took them 21 s, measured once.",
        "",
    ]
    return "\n".join(lines)


def write_section(path: Path, section: str) -> None:
    """Replace our section of the file, and leave the others."""
    text = path.read_text() if path.exists() else "# Assignors\n\n"
    before, found, after = text.partition(HEADING)
    rest = after.partition("\n## ") if found else ("", "", "")
    path.write_text(before + section + (f"\n## {rest[2]}" if rest[1] else ""))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="a grid of a second, without Java")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE, help="the folder of ASSIGNORS.md")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        java = None
        if not options.tiny:
            try:
                java = stack.enter_context(Assignors(builds.NEW))
            except apache.Missing as reason:
                print(f"assignors: without Java: {reason}", file=sys.stderr)
        rows = run(TINY if options.tiny else GRID, options.rounds, java)
    write_section(options.out / "ASSIGNORS.md", report(rows, options.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
