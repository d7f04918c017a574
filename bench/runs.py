"""One scenario with one client on one cluster: members come and go while a feeder sends, and what it costs.

Members are processes (`members`), a feeder sends at a steady rate (`feed`), events happen (members start, stop, die; a broker stops
and returns), and what every member's listener got is written down with its time. See `costs` for the measures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.costs import (
    QUEUES_PER_BROKER_MAX,
    Delivery,
    Sent,
    Tail,
    moves,
    queue_number,
    repeated,
    repeated_within,
    shared,
)
from bench.feed import Feed
from tests.waiting import until

from bench import clusters, kafka_clusters, members

HERE = Path(__file__).resolve().parent
Result = dict[str, Any]

MEMBERS = ("m0", "m1", "m2", "m3")


@dataclass(frozen=True)
class Step:
    """One event: `what` happens to the members or brokers of `names`, all at once."""

    what: str
    """start, stop, kill, stop_broker or start_broker."""
    names: tuple[str, ...]


@dataclass(frozen=True)
class Scenario:
    begin: tuple[str, ...]
    """The members before the first event."""
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Size:
    """How large a run is."""

    rounds: int
    queues: int
    """On each of the two brokers."""
    messages_per_s: int
    batch: int
    message_bytes: int
    work_ms: int
    """What a listener does with a message: sleep."""
    before_s: float
    """Consumption before the first event."""
    quiet_s: float
    """A stage ends when every queue has been read by one member alone for so long."""
    deadline_s: float
    """The longest stage."""
    warm_up_s: float
    """Consumption by fresh member processes before they are measured."""
    drawn_s: float = 0.0
    """Longest further time before each event, which is drawn. Clients have timers, such as the 5 s between automatic commits: without
    this, events would always come at the same point of their periods.
    """


class Stage(NamedTuple):
    """From its event to the next one. `settled`: every queue came to be read by one member alone.

    `caused`: when what brings the event about began, such as the start of a broker; `done`: when the members that it is about
    said that it had happened.
    """

    step: Step
    caused: int
    begin: int
    done: int
    end: int
    settled: bool

    @property
    def event(self) -> str:
        return f"{self.step.what} {' '.join(self.step.names)}"


@dataclass
class Watch:
    """What members and brokers have written down so far."""

    folder: Path
    batch: int
    deliveries: dict[int, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    newest: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    """Of each queue, the time of each member's last delivery."""
    tails: dict[str, Tail] = field(default_factory=dict)
    numbers: Mapping[int, int] = field(default_factory=dict)
    """The number of the queue that a partition is to Kafka's clients, which write down the partition."""

    def __post_init__(self) -> None:
        self.sent = Sent(self.batch)
        self.acknowledged = Tail(self.folder / "sent")

    def file(self, member: str) -> Path:
        path = self.folder / member
        if member not in self.tails:
            self.tails[member] = Tail(path)
        return path

    def look(self) -> list[tuple[int, int, int]]:
        """Take in what is new; the batches that were acknowledged."""
        for member, tail in self.tails.items():
            for at, number, offset in tail.read():
                queue = self.numbers.get(number, number)
                self.deliveries[queue].append(Delivery(at, member, offset))
                self.newest[queue][member] = at
        batches = self.acknowledged.read()
        for record in batches:
            self.sent.add(*record)
        return batches

    def missing(self) -> int:
        """Acknowledged messages that no listener got."""
        delivered = {(queue, one.offset) for queue, all_ in self.deliveries.items() for one in all_}
        return len(self.sent.offsets() - delivered)

    def close(self) -> None:
        for tail in (*self.tails.values(), self.acknowledged):
            tail.close()


class Run:
    """One scenario with one client on one cluster."""

    def __init__(
        self, cluster: clusters.Cluster, pool: members.Pool, size: Size, folder: Path, name: str
    ) -> None:
        self.cluster = cluster
        self.pool = pool
        self.size = size
        self.topic, self.group = f"Topic{name}", f"Group{name}"
        self.present: set[str] = set()
        self.brokers = set(cluster.brokers)
        folder.mkdir()
        self.watch = Watch(folder, size.batch)
        self._led: dict[str, list[int]] = {}
        cluster.create_topic(self.topic, size.queues)
        if pool.speaks_kafka:
            client = kafka_clusters.admin(cluster)
            self._led = kafka_clusters.partitions(client, self.topic, size.queues)
            self.group = kafka_clusters.group_at(client, self.group, clusters.NAMES[0])
            self.watch.numbers = kafka_clusters.queue_numbers(self._led)

    @contextmanager
    def feeding(self) -> Iterator[None]:
        size = self.size
        feed = Feed(
            self.cluster.kafka if self._led else self.cluster.brokers,
            self.topic,
            size.queues,
            size.messages_per_s,
            size.batch,
            size.message_bytes,
            str(self.watch.folder / "sent"),
            self._led,
        )
        process = subprocess.Popen(
            [sys.executable, str(HERE / "feed.py"), json.dumps(asdict(feed))],
            stdin=subprocess.PIPE,
        )
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, names: Sequence[str]) -> int:
        """Members join, all at once; when."""
        processes = {name: self.pool[name] for name in names}
        begun = [
            process.say(
                *("start", self.pool.servers(self.cluster), self.group, self.topic, name),
                *(self.watch.file(name), self.size.work_ms),
            )
            for name, process in processes.items()
        ]
        self.present.update(names)
        return min(begun)

    def do(self, step: Step) -> int:
        """Make the event happen; when it did."""
        match step.what:
            case "start":
                begun = self.start(step.names)
                self._answered(step.names)
                return begun
            case "stop":
                self.present.difference_update(step.names)
                begun = min([self.pool[name].say("stop") for name in step.names])
                self._answered(step.names)
                return begun
            case "kill":
                self.present.difference_update(step.names)
                return min([self.pool.kill(name) for name in step.names])
            case "stop_broker":
                self.brokers.difference_update(step.names)
                now = time.monotonic_ns()
                for name in step.names:
                    self.cluster.stop_broker(name)
                return now
            case "start_broker":
                return self._return(step.names)
        raise ValueError(step.what)

    def _answered(self, names: Sequence[str]) -> None:
        for name in names:
            self.pool[name].expect()

    def _return(self, names: Sequence[str]) -> int:
        """A broker comes back; the event is its first acknowledged batch."""
        for name in names:
            self.cluster.start_broker(name)
        begun = time.monotonic_ns()
        self.brokers.update(names)
        places = {(ord(name[-1]) - ord("a")) for name in names}

        def back() -> int:
            return next(
                (
                    at
                    for at, queue, _ in self.watch.look()
                    if queue // QUEUES_PER_BROKER_MAX in places and at > begun
                ),
                0,
            )

        return until(back, f"a send to {sorted(names)}")

    def settle(self, since: int) -> bool:
        """Wait until each queue is read by one member alone and their shares are even, for `quiet_s`.

        False when that takes longer than the deadline.
        """
        end = since + int(self.size.deadline_s * 1e9)
        quiet_ns = int(self.size.quiet_s * 1e9)
        while time.monotonic_ns() < end:
            time.sleep(0.1)
            self.watch.look()
            now = time.monotonic_ns()
            if now - since > quiet_ns and self._is_even(now - quiet_ns):
                return True
        return False

    def _is_even(self, since: int) -> bool:
        queues = [
            queue_number(name, number)
            for name in self.brokers
            for number in range(self.size.queues)
        ]
        read = [
            (queue, member)
            for queue in queues
            for member, at in self.watch.newest[queue].items()
            if at > since
        ]
        shares = [sum(member == name for _, member in read) for name in self.present]
        read_alone = len(read) == len({queue for queue, _ in read}) == len(queues) == sum(shares)
        # Kafka's groups keep the partitions of brokers that are down.
        complete = not self._led or self.brokers == set(self.cluster.brokers)
        return read_alone and (not complete or max(shares) - min(shares) <= 1)

    def _readers(self) -> str:
        """How long ago each member read each queue, in words."""
        now = time.monotonic_ns()
        told = [
            f"queue {queue} by {member} {(now - at) / 1e9:.1f} s ago"
            for queue, readers in sorted(self.watch.newest.items())
            for member, at in readers.items()
        ]
        return ", ".join(told) or "nothing was read"

    def drain(self) -> None:
        """Wait until everything acknowledged was delivered, or nothing new has come for 5 s."""
        last, since = -1, time.monotonic()
        while time.monotonic() - since < 5:
            self.watch.look()
            missing = self.watch.missing()
            if not missing:
                return
            if missing != last:
                last, since = missing, time.monotonic()
            time.sleep(0.2)

    def play(self, scenario: Scenario, seed: str = "") -> Result:
        """All of it, as a row of the table. `seed`: of the times that are drawn."""
        stages = self.stages(scenario, seed)
        all_deliveries = self.watch.deliveries.values()
        return {
            "stages": [self._told(stage) for stage in stages],
            "messages": len(self.watch.sent.offsets()),
            "deliveries": sum(map(len, all_deliveries)),
            "duplicates": repeated(all_deliveries),
            "lost": self.watch.missing(),
        }

    def stages(self, scenario: Scenario, seed: str = "") -> list[Stage]:
        """Let everything happen."""
        rng = Random(seed)
        played: list[tuple[Step, int, int, int, bool]] = []
        with self.feeding():
            begun = self.start(scenario.begin)
            if not self.settle(begun):
                raise RuntimeError(
                    f"{self.group} did not come to read {self.topic}: {self._readers()}"
                )
            time.sleep(self.size.before_s)
            for step in scenario.steps:
                time.sleep(rng.uniform(0, self.size.drawn_s))
                caused = time.monotonic_ns()
                at = self.do(step)
                done = time.monotonic_ns()
                played.append((step, caused, at, done, self.settle(at)))
        self.drain()
        ended = time.monotonic_ns()
        for name in sorted(self.present):
            self.pool[name].say("stop")
        self._answered(sorted(self.present))
        self.watch.look()
        for deliveries in self.watch.deliveries.values():
            deliveries.sort()  # they came member by member
        self.watch.close()
        ends = [at for _, _, at, _, _ in played[1:]] + [ended]
        return [
            Stage(step, caused, at, done, end, settled)
            for (step, caused, at, done, settled), end in zip(played, ends, strict=True)
        ]

    def _told(self, stage: Stage) -> Result:
        deliveries, sent = self.watch.deliveries, self.watch.sent
        moved = moves(deliveries, sent, stage.begin, stage.end)
        cost = shared(deliveries, sent, moved, stage.begin, stage.end)
        twice = {
            queue: repeated_within(of_queue, stage.begin, stage.end)
            for queue, of_queue in sorted(deliveries.items())
        }
        return {
            "event": stage.event,
            "settled": stage.settled,
            "duplicates": {queue: count for queue, count in twice.items() if count},
            "moves": [move._asdict() for move in moved],
            "moved_ns": list(cost.moved.values()),
            "stayed_ns": list(cost.stayed.values()),
            "shared_s": cost.after_ns / 1e9,
        }


def warm_up(
    cluster: clusters.Cluster,
    pool: members.Pool,
    size: Size,
    folder: Path,
    names: Sequence[str] = MEMBERS,
) -> None:
    """Let these members read for a while: Java compiles what runs often."""
    run = Run(cluster, pool, size, folder, f"Warm{folder.name}")
    with run.feeding():
        begun = run.start(names)
        run.settle(begun)
        time.sleep(size.warm_up_s)
    for name in names:
        pool[name].say("stop")
    for name in names:
        pool[name].expect()
    run.watch.close()
