"""Is the ledger true? What it says of rebalances beside what every listener logged.

`./dev bench truth` plays the scenarios on Steelyard's brokers, with members of several makes. Each member's listener
writes down what it gets and when (`member`, `kafka_member`), the feeder what was acknowledged and when; from these
alone, without the ledger, come the figures called "listeners". The ledger's come from the records of the brokers
through `steelyard.ledger.cost`, as everybody's do.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from bench.costs import MS, Delivery, Move, Sent, moves, queue_number, repeated_within, stalls  # noqa: E402
from bench.run import machine  # noqa: E402
from bench.runs import MEMBERS, Run, Scenario, Size, Stage, Step, Watch, warm_up  # noqa: E402

from bench import clusters, members  # noqa: E402
from steelyard import MessageQueue, PullConsumer  # noqa: E402
from steelyard.ledger import cost, events  # noqa: E402
from steelyard.ledger.backlog import GroupBacklog, backlogs  # noqa: E402
from steelyard.ledger.events import LEDGER_TOPIC, Record  # noqa: E402
from steelyard.ledger.measures import BACKLOG_FLOOR  # noqa: E402
from steelyard.ledger.starts import MERGE_MS  # noqa: E402
from steelyard.ledger.tables import MOVED, STALLED, Costs  # noqa: E402

EARLY_MS = 10
"""By so much the clocks of a broker and of the bench may differ."""
IN_FLIGHT = 32
"""Messages of one pull: while they are on their way to a listener, they wait for it, but not for the broker."""
BEFORE_NS = 10_000 * MS
PAUSE_MS = 50
"""What a pause may be off, if that is more than `PAUSE_SHARE` of it."""
PAUSE_SHARE = 0.05
BEGAN_MS = 1_000
DRAIN_MS = 1_000

GROWS_AND_SHRINKS = Scenario(
    ("m0",), (Step("start", ("m1",)), Step("start", ("m2",)), Step("stop", ("m1",)))
)
KILLED = Scenario(("m0", "m1", "m2"), (Step("kill", ("m1",)),))
BROKER_RETURNS = Scenario(
    ("m0", "m1", "m2"), (Step("stop_broker", ("broker-b",)), Step("start_broker", ("broker-b",)))
)

SIZE = Size(
    rounds=1,
    queues=6,
    messages_per_s=500,
    batch=5,
    message_bytes=128,
    work_ms=1,
    before_s=12.0,
    quiet_s=4.0,
    deadline_s=90.0,
    warm_up_s=10.0,
)
TINY = replace(
    SIZE,
    queues=2,
    messages_per_s=200,
    before_s=1.0,
    quiet_s=2.5,
    deadline_s=60.0,
    warm_up_s=0.0,
)


class Case(NamedTuple):
    """A scenario and who plays it."""

    name: str
    client: Callable[[Path], members.Client]
    scenario: Scenario


def cases() -> list[Case]:
    return [
        Case("clean", members.Steelyard, GROWS_AND_SHRINKS),
        Case(
            "not clean",
            lambda folder: members.Steelyard(folder, clean_handover=False),
            GROWS_AND_SHRINKS,
        ),
        Case("Java", members.Java, GROWS_AND_SHRINKS),
        Case("range", lambda folder: members.Kafka(folder, "range"), GROWS_AND_SHRINKS),
        Case(
            "cooperative",
            lambda folder: members.Kafka(folder, "cooperative-sticky"),
            GROWS_AND_SHRINKS,
        ),
        Case("KIP-848", lambda folder: members.Kafka(folder, "consumer"), GROWS_AND_SHRINKS),
        Case("SIGKILL of a member", members.Steelyard, KILLED),
        Case("stop and return of a broker", members.Steelyard, BROKER_RETURNS),
    ]


# -- what listeners saw ----------------------------------------------------------------------------


class Figures(NamedTuple):
    """What one stage cost. Times in ms; `pauses` by the number of the queue that moved."""

    pauses: dict[int, float]
    stalls: dict[int, float]
    """The same of queues that stood still without moving."""
    near_stalls: dict[int, float]
    """These, and those that waited for nearly as long as a stall does."""
    began_ms: tuple[float, float] | None
    """From and to, after its cause; None if it is no rebalance.

    As listeners saw it: not before the cause, and at the latest when it was done, or the first queue
    that moved was delivered for the last time by its former owner.
    """
    reprocessed: tuple[int, int]
    """At least and at most."""
    peak: int
    """Of the group's backlog."""
    drain_ms: float | None
    usual: int = 0
    """Backlogs up to this are usual."""


class Series(NamedTuple):
    """The group's backlog whenever it changed."""

    times: list[int]
    totals: list[int]

    def at(self, when: int) -> int:
        position = bisect_right(self.times, when) - 1
        return self.totals[position] if position >= 0 else 0

    def between(self, begin: int, end: int) -> list[int]:
        """Every total from `begin` to `end`."""
        low, high = bisect_left(self.times, begin), bisect_left(self.times, end)
        return [self.at(begin), *self.totals[low:high]]


def backlog(deliveries: dict[int, list[Delivery]], sent: Sent) -> Series:
    """Messages that were acknowledged and had come to no listener yet."""
    first: dict[tuple[int, int], int] = {}
    for queue, all_of_queue in deliveries.items():
        for one in all_of_queue:
            key = queue, one.offset
            first[key] = min(first.get(key, one.at), one.at)
    steps: list[tuple[int, int]] = []
    for queue, offset in sent.offsets():
        at = sent.at(queue, offset)
        steps.append((at, 1))
        if (queue, offset) in first:
            # A message may come before its acknowledgement.
            steps.append((max(first[queue, offset], at), -1))
    series = Series([], [])
    total = 0
    for at, step in sorted(steps):
        total += step
        series.times.append(at)
        series.totals.append(total)
    return series


def moves_of(watch: Watch, stages: Sequence[Stage], ends: Sequence[int]) -> list[list[Move]]:
    """The moves of each stage: a queue that stood still since a stage before moved in that one."""
    found: list[list[Move]] = []
    for stage, end in zip(stages, ends, strict=True):
        found.append([])
        for move in moves(watch.deliveries, watch.sent, stage.caused, end):
            paused_at = stage.caused + move.after_ns - move.pause_ns
            if len(found) > 1 and paused_at < stage.caused - MERGE_MS * MS:
                late_ns = stage.caused - stages[len(found) - 2].caused
                found[-2].append(move._replace(after_ns=move.after_ns + late_ns))
            else:
                found[-1].append(move)
    return found


def listeners(
    watch: Watch, stage: Stage, end: int, moved: Sequence[Move], waiting: Series
) -> Figures:
    """From the logs of the listeners and the feeder alone."""
    begin = stage.caused
    # A coordinator may let a newcomer wait until all members can be told at once.
    paused_ns = min((move.after_ns - move.pause_ns for move in moved), default=0)
    twice = sum(repeated_within(of_queue, begin, end) for of_queue in watch.deliveries.values())
    before = waiting.between(begin - BEFORE_NS, begin)
    highest, lowest = max(before), min(before)
    usual = max(BACKLOG_FLOOR, 2 * highest - lowest)
    pauses = {move.queue: move.pause_ns / MS for move in moved}
    settled = begin + max((move.after_ns for move in moved), default=0)
    stood, nearly = (
        stalls(watch.deliveries, watch.sent, begin, settled + MERGE_MS * MS, BEFORE_NS, by_ns)
        for by_ns in (PAUSE_MS * MS, -PAUSE_MS * MS)
    )
    return Figures(
        pauses,
        {queue: wait / MS for queue, wait in stood.items() if queue not in pauses},
        {queue: wait / MS for queue, wait in nearly.items() if queue not in pauses},
        (0, max(stage.done - begin, paused_ns) / MS),
        (twice, twice),
        max(waiting.between(begin, end)),
        drain_ms(waiting, begin, end, usual),
        usual,
    )


def drain_ms(waiting: Series, begin: int, end: int, usual: int) -> float | None:
    """After how long the backlog was back at `usual` after its peak; 0 if it stayed there, None if it was not."""
    low, high = bisect_left(waiting.times, begin), bisect_left(waiting.times, end)
    totals = waiting.totals[low:high]
    peak = max(totals, default=0)
    if peak <= usual:
        return 0
    since = low + totals.index(peak)
    back = (n for n in range(since, high) if waiting.totals[n] <= usual)
    return next(((waiting.times[n] - begin) / MS for n in back), None)


# -- what the ledger says --------------------------------------------------------------------------


def read_ledger(nameserver: str) -> list[Record]:
    """All records of all brokers."""
    records: list[Record] = []
    with PullConsumer("truth", nameserver) as consumer:
        for queue in consumer.queues(LEDGER_TOPIC):
            records += _read(consumer, queue)
    return records


def _read(consumer: PullConsumer, queue: MessageQueue) -> list[Record]:
    records: list[Record] = []
    offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
    while offset < end:
        found = consumer.pull(queue, offset)
        for message in found.messages:
            records += events.decode(message.body)
        offset = found.next_begin_offset
    return records


class Told(NamedTuple):
    """What the ledger says of a run: its group's costs and its backlog over time."""

    costs: Costs
    backlog: GroupBacklog

    def figures(self, begin: int, end: int) -> Figures:
        """Of a stage; `begin` and `end` in ms since the epoch."""
        rows = [r for r in self.costs.rebalances if begin <= r.started_at + EARLY_MS < end]
        names = {row.rebalance for row in rows}
        pauses: dict[str, dict[int, float]] = {MOVED: {}, STALLED: {}}
        for row in self.costs.handoffs:
            if row.rebalance in names:
                seen = row.pause_ms if row.listener_pause_ms is None else row.listener_pause_ms
                pauses[row.kind][queue_number(row.broker, row.queue)] = seen
        drains = [row.started_at + row.drain_ms - begin for row in rows if row.drain_ms is not None]
        began = min((row.started_at - begin for row in rows), default=None)
        return Figures(
            pauses[MOVED],
            pauses[STALLED],
            pauses[STALLED],
            None if began is None else (began, began),
            (sum(row.reprocessed_min for row in rows), sum(row.reprocessed_max for row in rows)),
            round(max(self.backlog.over(begin, end).totals, default=0)),
            max(drains, default=None),
        )


def ledger(records: Sequence[Record], group: str) -> Told:
    costs = cost.costs(records)
    return Told(
        Costs(
            [row for row in costs.handoffs if row.group == group],
            [row for row in costs.rebalances if row.group == group],
        ),
        backlogs(records, group),
    )


# -- side by side ----------------------------------------------------------------------------------

FIGURES = (
    "queues moved",
    "longest pause, ms",
    "largest error of a pause, ms",
    "queues stalled",
    "longest stall, ms",
    "began, ms after it",
    "reprocessed",
    "peak backlog",
    "drain, ms",
)
COLUMNS = ("scenario", "event", "figure", "listeners", "ledger", "true")


def rows(case: str, event: str, seen: Figures, told: Figures) -> list[tuple[str, ...]]:
    """A row for each figure, with what was asked of it."""
    worst = _error(seen.pauses, told.pauses)
    longest, told_longest = _longest(seen.pauses), _longest(told.pauses)
    stalled = {q: seen.near_stalls[q] for q in seen.near_stalls.keys() & told.stalls.keys()}
    stall, told_stall = _longest(seen.stalls | stalled), _longest(told.stalls)
    near = worst <= _tolerance(longest)
    figures = (
        (f"{len(seen.pauses)}", f"{len(told.pauses)}", seen.pauses.keys() == told.pauses.keys()),
        (f"{longest:,.0f}", f"{told_longest:,.0f}", near),
        ("", f"{worst:,.0f}", near),
        (
            _range((len(seen.stalls), len(seen.near_stalls))),
            f"{len(told.stalls)}",
            seen.stalls.keys() <= told.stalls.keys() <= seen.near_stalls.keys(),
        ),
        (
            f"{stall:,.0f}",
            f"{told_stall:,.0f}",
            _error(seen.stalls | stalled, told.stalls) <= _tolerance(stall),
        ),
        (_range(seen.began_ms), _range(told.began_ms), _has_begun(seen.began_ms, told.began_ms)),
        (
            _range(seen.reprocessed),
            _range(told.reprocessed),
            told.reprocessed[0] <= seen.reprocessed[0] <= told.reprocessed[1],
        ),
        (f"{seen.peak:,}", f"{told.peak:,}", _is_peak(seen, told.peak)),
        (_ms(seen.drain_ms), _ms(told.drain_ms), _has_drained(seen, told)),
    )
    return [
        (case, event, name, *shown, "yes" if is_true else "**no**")
        for name, (*shown, is_true) in zip(FIGURES, figures, strict=True)
    ]


def _longest(waits: dict[int, float]) -> float:
    return max(waits.values(), default=0)


def _error(seen: dict[int, float], told: dict[int, float]) -> float:
    """The largest difference at any queue."""
    return max((abs(seen.get(q, 0) - told.get(q, 0)) for q in {*seen, *told}), default=0)


def _tolerance(longest: float) -> float:
    return max(PAUSE_MS, PAUSE_SHARE * longest)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _range(ends: tuple[float, float] | None) -> str:
    low, high = (None, None) if ends is None else ends
    return _ms(low) if low == high else f"{_ms(low)} to {_ms(high)}"


def _is_peak(seen: Figures, told: int) -> bool:
    """Whether a peak is near; what comes to listeners twice may wait twice."""
    by = max(0.1 * seen.peak, IN_FLIGHT)
    return seen.peak - by <= told <= seen.peak + by + seen.reprocessed[0]


def _has_begun(seen: tuple[float, float] | None, told: tuple[float, float] | None) -> bool:
    """Between its cause and what was seen of it, or a little later."""
    if seen is None or told is None:
        return seen is told
    return seen[0] - EARLY_MS <= told[0] <= seen[1] + BEGAN_MS


def _has_drained(seen: Figures, told: Figures) -> bool:
    if seen.drain_ms is None or told.drain_ms is None:
        return seen.drain_ms is told.drain_ms
    is_usual = max(seen.peak, told.peak) <= seen.usual + IN_FLIGHT
    return is_usual or abs(seen.drain_ms - told.drain_ms) <= DRAIN_MS


def play(case: Case, size: Size, folder: Path) -> list[tuple[str, ...]]:
    """One case on brokers of its own."""
    folder.mkdir()
    with ExitStack() as stack:
        cluster = clusters.Steelyard(folder / "cluster")
        stack.callback(cluster.close)
        pool = members.Pool(case.client(folder))
        stack.callback(pool.close)
        if size.warm_up_s:
            warm_up(cluster, pool, size, folder / "warm", MEMBERS[:3])
        run = Run(cluster, pool, size, folder / "run", "Truth")
        stages = run.stages(case.scenario)
        time.sleep(2)  # the ledger is written once a second
        told = ledger(read_ledger(cluster.nameserver), run.group)
    wall = time.time_ns() - time.monotonic_ns()
    waiting = backlog(run.watch.deliveries, run.watch.sent)
    found = []
    ends = [following.caused for following in stages[1:]] + [stages[-1].end]
    moved = moves_of(run.watch, stages, ends)
    for stage, end, of_stage in zip(stages, ends, moved, strict=True):
        seen = listeners(run.watch, stage, end, of_stage, waiting)
        said = told.figures((stage.caused + wall) // MS, (end + wall) // MS)
        found += rows(case.name, stage.event, seen, said)
    return found


def table(found: Sequence[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|---|---|--:|--:|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in found)]) + "\n"


REPORT = """# Is the ledger true?

Written by `./dev bench truth` ({date}). Machine: {processor}, {memory}, {system}, Python {python}, {java}.
Two Steelyard brokers with {queues} queues each, {messages_per_s:,} messages/s of {message_bytes} B; a listener takes {work_ms} ms for each. The
brokers are new for each scenario; members are Steelyard's push consumers but where the scenario names others, and have read for
{warm_up_s} s before. When the scenarios began, the machine's load average was {load}. {true} of {figures} figures are true.

{table}
- **listeners**: from the log of every call of a listener, and the feeder's log of what was acknowledged; nothing of the ledger.
  **ledger**: by `steelyard.ledger.cost` from the brokers' records.
- **true**: the same queues moved, and the same stood still (a queue that waited nearly as long as a stall, or hardly longer, within
  50 ms, may be either); each pause within 50 ms or 5 % of the longest; the beginning between its cause and 1 s after the members
  said that it had happened, or after a queue that moved was delivered for the last time by its former owner; what was reprocessed lies within the bounds that the ledger gives; peak backlog within 10 % or
  {in_flight} messages, which may be on their way to a listener, and what listeners got twice may have waited twice; drain within
  1 s, where a peak exceeds the usual backlog by more than these messages.
- Where members report when they pass messages to their listeners (Steelyard's), the ledger's pause is that between listeners. For
  others it is that between deliveries. Kafka's members here have a thread for each partition; an application with one thread gets
  the messages of a queue after it has worked on those of others, which no broker sees.
- A process that gets no processor for a moment shows in the log of its listener, but not at the brokers, which have delivered
  already: on a busy machine, backlogs and stalls of listeners can be larger than the ledger's.
- The events of a scenario follow each other after {quiet_s:.0f} s of quiet: where the rebalance before had a higher backlog, a drain of 0 says little.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench truth", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--case", action="append", help="part of a name; all without it")
    parser.add_argument("--tiny", action="store_true", help="little load, for seconds")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for TRUTH.md")
    options = parser.parse_args()
    size = TINY if options.tiny else SIZE
    wanted = options.case or [""]
    chosen = [case for case in cases() if any(part in case.name for part in wanted)]
    found: list[tuple[str, ...]] = []
    loads: list[float] = []
    with tempfile.TemporaryDirectory(prefix="steelyard-truth-") as folder:
        for number, case in enumerate(chosen):
            loads.append(os.getloadavg()[0])
            found += play(case, size, Path(folder) / str(number))
            print(table(found[-len(FIGURES) * len(case.scenario.steps) :]), flush=True)
    report = REPORT.format(
        **machine(),
        **vars(size),
        load=f"{min(loads):.1f} to {max(loads):.1f}",
        true=sum(row[-1] == "yes" for row in found),
        figures=len(found),
        in_flight=IN_FLIGHT,
        table=table(found),
    )
    (options.out / "TRUTH.md").write_text(report)


if __name__ == "__main__":
    main()
