"""What a rebalance costs: Steelyard's and Apache's push consumers on Steelyard's and Apache's brokers.

`./dev bench rebalance` runs the grid, `--tiny` one scenario of seconds without Apache for the tests. Each
scenario runs with each client on each cluster in turn, in one run on one machine: members are processes, a
feeder sends at a steady rate, events happen (members start, stop, die; a broker stops and returns), and what
every member's listener got is written down with its time. See `costs` for the measures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from bench.costs import (  # noqa: E402
    QUEUES_PER_BROKER_MAX,
    Delivery,
    Sent,
    Tail,
    moves,
    queue_number,
    repeated,
    repeated_within,
    share_ms,
)
from bench.feed import Feed  # noqa: E402
from bench.load import create_topic  # noqa: E402
from bench.run import machine  # noqa: E402
from tests.peers import apache  # noqa: E402
from tests.waiting import until  # noqa: E402

from bench import clusters, members  # noqa: E402

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


def scenarios() -> dict[str, Scenario]:
    return {
        "scale-out 1→2→4": Scenario(("m0",), (Step("start", ("m1",)), Step("start", ("m2", "m3")))),
        "scale-in 4→2→1": Scenario(MEMBERS, (Step("stop", ("m2", "m3")), Step("stop", ("m1",)))),
        "rolling restart of 4": Scenario(
            MEMBERS, tuple(Step(what, (name,)) for name in MEMBERS for what in ("stop", "start"))
        ),
        "broker stops, returns": Scenario(
            MEMBERS, (Step("stop_broker", ("broker-b",)), Step("start_broker", ("broker-b",)))
        ),
        "SIGKILL of 1 of 4": Scenario(MEMBERS, (Step("kill", ("m1",)),)),
    }


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


WHOLE = Size(
    rounds=1,
    queues=8,
    messages_per_s=5_000,
    batch=5,
    message_bytes=128,
    work_ms=1,
    before_s=4.0,
    quiet_s=3.0,
    deadline_s=90.0,
    warm_up_s=6.0,
)
TINY = Size(
    rounds=1,
    queues=2,
    messages_per_s=400,
    batch=2,
    message_bytes=128,
    work_ms=1,
    before_s=0.2,
    quiet_s=0.5,
    deadline_s=30.0,
    warm_up_s=0.0,
)


# -- one run ---------------------------------------------------------------------------------------


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
            for at, queue, offset in tail.read():
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
        for address in cluster.brokers.values():
            create_topic(address, self.topic, size.queues)
        self._wait_route(self.brokers)

    def _wait_route(self, names: set[str]) -> None:
        until(
            lambda: apache.brokers_of(self.cluster.nameserver, self.topic) == names,
            f"route of {self.topic} to {sorted(names)}",
        )

    @contextmanager
    def feeding(self) -> Iterator[None]:
        size = self.size
        feed = Feed(
            self.cluster.brokers,
            self.topic,
            size.queues,
            size.messages_per_s,
            size.batch,
            size.message_bytes,
            str(self.watch.folder / "sent"),
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
        """Wait until each queue is read by one member alone and their shares are even; False when that takes longer than the
        deadline."""
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
        return read_alone and max(shares) - min(shares) <= 1

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

    def play(self, scenario: Scenario) -> Result:
        """All of it, as a row of the table."""
        stages = self.stages(scenario)
        all_deliveries = self.watch.deliveries.values()
        return {
            "stages": [self._told(stage) for stage in stages],
            "messages": len(self.watch.sent.offsets()),
            "deliveries": sum(map(len, all_deliveries)),
            "duplicates": repeated(all_deliveries),
            "lost": self.watch.missing(),
        }

    def stages(self, scenario: Scenario) -> list[Stage]:
        """Let everything happen."""
        played: list[tuple[Step, int, int, int, bool]] = []
        with self.feeding():
            begun = self.start(scenario.begin)
            if not self.settle(begun):
                raise RuntimeError(f"{self.group} did not come to read {self.topic}")
            time.sleep(self.size.before_s)
            for step in scenario.steps:
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
        moved = moves(self.watch.deliveries, self.watch.sent, stage.begin, stage.end)
        twice = {
            queue: repeated_within(deliveries, stage.begin, stage.end)
            for queue, deliveries in sorted(self.watch.deliveries.items())
        }
        return {
            "event": stage.event,
            "settled": stage.settled,
            "duplicates": {queue: count for queue, count in twice.items() if count},
            "moves": [move._asdict() for move in moved],
            "converged_s": max((move.after_ns for move in moved), default=0) / 1e9,
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


# -- the grid --------------------------------------------------------------------------------------


def play_all(size: Size, names: Sequence[str], *, with_apache: bool, with_unclean: bool) -> Result:
    """Every scenario with every client on every cluster in turn; prints a line for each."""
    if with_apache:
        apache.prepare(apache.NEW)
        apache.prepare_servers(apache.NEW_SERVER)
    rows: list[Result] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="steelyard-bench-")))
        running: list[clusters.Cluster] = [clusters.Steelyard(folder / "steelyard")]
        stack.callback(running[0].close)
        pools = [members.Pool(members.Steelyard(folder))]
        if with_unclean:
            pools.append(members.Pool(members.Steelyard(folder, clean_handover=False)))
        if with_apache:
            running.append(clusters.Apache(folder / "apache"))
            stack.callback(running[1].close)
            pools.append(members.Pool(members.Java(folder)))
        for pool in pools:
            stack.callback(pool.close)
        serial = 0
        for number in range(size.rounds):
            for pool in pools:
                if size.warm_up_s:
                    warm_up(running[-1], pool, size, folder / f"warm{number}-{pools.index(pool)}")
            for name in names:
                for cluster in running:
                    for pool in pools:
                        serial += 1
                        run = Run(cluster, pool, size, folder / f"run{serial}", str(serial))
                        result = run.play(scenarios()[name])
                        row = {"scenario": name, "client": pool.kind, "brokers": cluster.kind}
                        rows.append({**row, "round": number, **result})
                        print(line(rows[-1:]), flush=True)
    return {"machine": machine(), "size": asdict(size), "rows": rows}


# -- the table -------------------------------------------------------------------------------------

COLUMNS = (
    "scenario",
    "client",
    "brokers",
    "moved",
    "pause p50 ms",
    "pause p99 ms",
    "duplicates",
    "lost",
    "converged in s",
)


def line(rows: Sequence[Result]) -> str:
    """The rounds of one cell as a row of the table."""
    stages = [stage for row in rows for stage in row["stages"]]
    pauses = [move["pause_ns"] for stage in stages for move in stage["moves"]]
    slowest = max(stage["converged_s"] for stage in stages)
    unsettled = sum(not stage["settled"] for stage in stages)
    cells = [
        rows[0]["scenario"],
        rows[0]["client"],
        rows[0]["brokers"],
        f"{len(pauses):,}",
        f"{share_ms(pauses, 0.5):,.0f}",
        f"{share_ms(pauses, 0.99):,.0f}",
        f"{sum(row['duplicates'] for row in rows):,}",
        f"{sum(row['lost'] for row in rows):,}",
        f"{slowest:,.2f}" + (f" ({unsettled} never)" if unsettled else ""),
    ]
    return f"| {' | '.join(cells)} |"


def table(result: Result) -> str:
    by_cell: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for row in result["rows"]:
        by_cell[row["scenario"], row["client"], row["brokers"]].append(row)
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|---|---|" + "--:|" * (len(COLUMNS) - 3)]
    return "\n".join([*lines, *map(line, by_cell.values())]) + "\n"


REPORT = """# What a rebalance costs

Written by `./dev bench rebalance` ({date}). Machine: {processor}, {memory}, {system}, Python {python}, {java}.
Clients: Steelyard's push consumer with its default settings ("not clean": with `clean_handover=False`), and Apache's
Java client 5.3.3 with its own. Brokers: Steelyard, and Apache RocketMQ 5.3.3. Two brokers, {queues_in_all} queues, {messages_per_s:,} messages/s of {message_bytes} B.

{table}
- **moved**: queues that went from one member to another, over all events of the scenario; pauses are theirs. **pause**:
  from the last delivery to the old owner to the first one to the new owner, while messages waited (the definition of
  `steelyard.ledger.cost`). Where old and new owner read at the same time there is no pause, but there are duplicates.
- **duplicates**: deliveries less distinct messages, over the whole scenario. **lost**: messages that a broker
  acknowledged and no listener got. Their number is of {rounds} run(s) of the scenario.
- **converged**: from the event to the first delivery of the last moved queue at its new owner, at the slowest event.
  Events: the call of start or shutdown, SIGKILL, SIGTERM to a broker; for a broker that returns, the
  first send that it acknowledged.

What was done
- Members are processes, each with 20 listener threads that sleep {work_ms} ms a message. They had consumed for
  {warm_up_s} s before the first event that counts; one that starts in a scenario was loaded and waited.
- A feeder sends batches of {batch} in turn to all queues, at a steady rate. A stage ends {quiet_s} s after every queue is
  read by one member alone and their shares are even, or after {deadline_s} s ("never").
- Both clusters ran all the time, side by side on the same cores; the scenarios alternated between the cells of
  the table. Everything in one row happened while the other cluster and the other members were idle.
"""


def report(result: Result) -> str:
    size = result["size"]
    return REPORT.format(
        **result["machine"], **size, queues_in_all=2 * size["queues"], table=table(result)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench rebalance", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--tiny", action="store_true", help="seconds, Steelyard alone")
    parser.add_argument("--scenario", action="append", help="part of a name; all without it")
    parser.add_argument(
        "--unclean", action="store_true", help="Steelyard's client without clean hand-over, too"
    )
    parser.add_argument("--rounds", type=int, help="run everything so often")
    parser.add_argument(
        "--out", type=Path, default=HERE, help="folder for REBALANCE.md and results/"
    )
    options = parser.parse_args()
    size = TINY if options.tiny else WHOLE
    if options.rounds:
        size = Size(**{**asdict(size), "rounds": options.rounds})
    wanted = options.scenario or (["scale-out"] if options.tiny else [""])
    names = [name for name in scenarios() if any(part in name for part in wanted)]
    try:
        result = play_all(size, names, with_apache=not options.tiny, with_unclean=options.unclean)
    except apache.Missing as reason:
        raise SystemExit(f"no Apache RocketMQ to compare with: {reason}") from None
    print(table(result))
    results: Path = options.out / "results"
    results.mkdir(parents=True, exist_ok=True)
    date = result["machine"]["date"]
    (results / f"rebalance-{date}.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "REBALANCE.md").write_text(report(result))


if __name__ == "__main__":
    main()
