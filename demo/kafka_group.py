"""The fourth act: a group of unmodified Kafka consumers on the same topic, joined by a member.

The pause of a partition is measured twice: by what the members noted (`kafka_member`), and by the
brokers' ledger. Both have the definition of `steelyard.ledger.cost`, and so has the bench, whose
figures for the same client on Apache Kafka stand beside them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from bench.costs import MS, Delivery, Sent, moves

from bench import kept
from demo.cluster import Queue
from steelyard.ledger.measures import percentile
from steelyard.ledger.tables import MOVED, Costs
from steelyard.spark.charts import COLOURS, new_figure
from steelyard.spark.report import Section

GROUP = "kafka-board"
MEMBERS = ("kafka-1", "kafka-2")
NEWCOMER = "kafka-3"

BENCH_CLIENT = "librdkafka, cooperative-sticky"
BENCH_EVENT = "scale-out 1→2→4"
"""The client of the members, and the event most like this one, by their names in the bench."""


@dataclass
class Tally:
    """Counts the flights that members noted while they do; it reads only what is new."""

    flights: set[bytes] = field(default_factory=set)
    _read: dict[Path, int] = field(default_factory=dict)

    def look(self, files: Iterable[Path]) -> int:
        """How many different ones by now."""
        for path in files:
            with path.open("rb") as file:
                begin = file.seek(self._read.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = begin + len(whole)
            self.flights.update(line.partition(b" ")[0] for line in whole.splitlines())
        return len(self.flights)


@dataclass
class Notes:
    """What all members noted."""

    deliveries: dict[int, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    """Of each partition, in the order of time; in ns since the epoch."""
    sent: Sent = field(default_factory=lambda: Sent(1))
    flights: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, files: Mapping[str, Path]) -> Notes:
        """Read the files of the members, by their names."""
        notes = cls()
        times: dict[int, dict[int, int]] = defaultdict(dict)
        for member, file in files.items():
            for line in file.read_text().splitlines():
                row, partition, offset, stored_ms, at = map(int, line.split())
                notes.deliveries[partition].append(Delivery(at, member, offset))
                times[partition][offset] = stored_ms * MS
                notes.flights.add(row)
        for partition, of_partition in times.items():
            notes.deliveries[partition].sort()
            for offset, stored in sorted(of_partition.items()):
                notes.sent.add(stored, partition, offset)
        return notes

    @cached_property
    def messages(self) -> int:
        """How many different ones."""
        return sum(len({one.offset for one in of}) for of in self.deliveries.values())

    @property
    def repeated(self) -> int:
        """How often a member was given what one of them had been given before."""
        return sum(map(len, self.deliveries.values())) - self.messages

    def pauses_ms(self, begin: int, end: int) -> dict[int, float]:
        """Of each partition that moved from `begin` to `end`, in ns since the epoch."""
        moved = moves(self.deliveries, self.sent, begin, end)
        return {move.queue: move.pause_ns / MS for move in moved}


class Pauses(NamedTuple):
    """Of all queues that moved; in ms."""

    queues: int
    p50_ms: float
    longest_ms: float

    @classmethod
    def of(cls, pauses_ms: Collection[float]) -> Pauses:
        ns = [round(ms * MS) for ms in pauses_ms]
        return cls(len(ns), percentile(ns, 0.5) / MS, percentile(ns, 1) / MS)

    @property
    def longest(self) -> str:
        """For people."""
        return f"{self.longest_ms:,.0f} ms" if self.queues else "–"


class Benched(NamedTuple):
    """What the bench measured of the same client on one kind of brokers."""

    brokers: str
    run: str
    pauses: Pauses


def benched(folder: Path = kept.RESULTS) -> list[Benched]:
    """From the newest run of the bench that played it: Steelyard, then Apache Kafka."""
    runs = kept.runs(folder)
    rows = [
        row
        for row in kept.played(kept.newest(runs))
        if (row["client"], row["event"]) == (BENCH_CLIENT, BENCH_EVENT)
    ]
    found = []
    for kind in ("steelyard", "apache"):
        of_kind = [row for row in rows if row["brokers"] == kind]
        if of_kind:
            run = of_kind[0]["run"]
            kafka = f"Apache Kafka {runs[run]['apache']['Kafka']}"
            told = [move for row in of_kind for stage in row["stages"] for move in stage["moves"]]
            pauses = Pauses.of([move["pause_ns"] / MS for move in told])
            found.append(Benched(kafka if kind == "apache" else "Steelyard", run, pauses))
    return found


def ledger_pauses_ms(costs: Costs, begin: int, end: int) -> dict[Queue, int]:
    """Of each queue that the group's rebalances moved that began from `begin` to `end`, in ns."""
    names = {
        row.rebalance
        for row in costs.rebalances
        if row.group == GROUP and begin <= row.started_at * MS < end
    }
    return {
        (row.broker, row.queue): row.pause_ms
        for row in costs.handoffs
        if row.rebalance in names and row.kind == MOVED
    }


@dataclass(frozen=True)
class Joined:
    """What it cost that the newcomer joined: by the members' notes, by the ledger, in the bench."""

    noted: Pauses
    by_ledger: Pauses
    moved_alike: bool
    """The same queues moved by both."""
    benched: list[Benched]

    def rows(self) -> list[tuple[str, str, str]]:
        """For the table of figures: name, longest pause, by whom."""
        _, _, counts = BENCH_EVENT.partition(" ")
        queues = self.noted.queues
        own = [
            (
                f"longest pause, {NEWCOMER} joins",
                self.noted.longest,
                f"of {queues} partitions that moved, noted by the Kafka group's members"
                if queues
                else "no partition moved while messages came: that takes more flights",
            ),
            ("  by the ledger", self.by_ledger.longest, "of the same, from the brokers' records"),
        ]
        return own + [
            (
                f"  {one.brokers}",
                one.pauses.longest,
                f"the same client in the bench of {one.run}, {counts}",
            )
            for one in self.benched
        ]

    def section(self) -> Section:
        """For the report."""
        shown = [
            ("this group, as its members noted it", self.noted, COLOURS[2]),
            ("this group, by the ledger", self.by_ledger, COLOURS[2]),
            *((f"bench: {one.brokers}", one.pauses, COLOURS[0 if one.brokers == "Steelyard" else 1])
              for one in self.benched),
        ]  # fmt: skip
        figure = new_figure(90 + 48 * len(shown))
        figure.add_bar(
            orientation="h",
            y=[name.replace(", ", ",<br>") for name, _, _ in shown],
            x=[pauses.longest_ms for _, pauses, _ in shown],
            text=[pauses.longest for _, pauses, _ in shown],
            textposition="outside",
            cliponaxis=False,
            marker_color=[colour for _, _, colour in shown],
            showlegend=False,
        )
        figure.update_yaxes(autorange="reversed", automargin=True)
        longest = max(pauses.longest_ms for _, pauses, _ in shown)
        figure.update_xaxes(title_text="longest pause, ms", range=[0, 1.3 * longest or 1])
        return Section(f"{NEWCOMER} joins a Kafka group", self._note(), figure)

    def _note(self) -> str:
        note = (
            "Two unmodified confluent-kafka consumers (cooperative-sticky) read the topic as the"
            f" group {GROUP}, and a third joined: {self.noted.queues} partitions moved."
            " A pause is the time in which messages of a partition waited, from the last one at its"
            " old owner to the first at its new one."
        )
        _, _, counts = BENCH_EVENT.partition(" ")
        for one in self.benched[-1:]:
            note += (
                f" In the bench ({one.run}) the same client's group grew {counts} on two brokers."
            )
        return note


def joined(notes: Notes, queues: Mapping[int, Queue], costs: Costs, begin: int, end: int) -> Joined:
    """Compare; the newcomer was started at `begin`, the members stopped at `end`; both in ns."""
    noted = {queues[partition]: ms for partition, ms in notes.pauses_ms(begin, end).items()}
    told = ledger_pauses_ms(costs, begin, end)
    return Joined(
        Pauses.of(noted.values()), Pauses.of(told.values()), noted.keys() == told.keys(), benched()
    )
