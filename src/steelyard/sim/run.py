"""One run of a scenario: start, publish, fail, heal, settle, check."""

from __future__ import annotations

import traceback
from functools import partial
from random import Random

import msgspec

from steelyard.config import BrokerConfig
from steelyard.groups.kafka.effects import EXPIRED
from steelyard.ledger import cost
from steelyard.ledger.events import MemberLeft, Record
from steelyard.sim.checkers import Witness
from steelyard.sim.clock import EPOCH
from steelyard.sim.cluster import NodeFactories, SimCluster
from steelyard.sim.configs import GROUP
from steelyard.sim.faults import Fates
from steelyard.sim.judge import Judge
from steelyard.sim.kafka.application import KAFKA_GROUP
from steelyard.sim.kafka.streams.member import STREAMS_GROUP
from steelyard.sim.scenario import Scenario
from steelyard.sim.seats import Seat
from steelyard.sim.silence import check_expelled
from steelyard.sim.trace import Trace
from steelyard.sim.workload import BATCH_MAX
from steelyard.sim.world import Violation, World
from steelyard.store.memory import Killed

START_MS_MAX = 3_000
"""Brokers, producers and members start within this time."""

FOUNDED_MS = 2_000
"""Brokers with Kafka listeners start before this time, topics and groups after it.

While brokers meet for the first time, two may each take themselves for the controller and number a
topic's partitions differently (docs/LIMITS.md).
"""

POLL_MS = 1_000
CALM_POLLS = 2
"""Number of consecutive successful checks required."""


SLOWED_MS = 60_000
"""Time in which clients that are slowed down, by a quota for example, must get further."""


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run. `failure` is None when every rule was kept."""

    scenario: Scenario
    digest: str
    failure: str | None
    counts: dict[str, int]
    ledger: tuple[Record, ...] = ()
    lines: tuple[str, ...] = ()


def run(
    scenario: Scenario,
    *,
    parts: NodeFactories | None = None,
    readable: bool = False,
    check_every: int = 1,
) -> RunOutcome:
    """Run the scenario. A rule that is broken and a node that raises both end up in `failure`."""
    trace = Trace(readable=readable)
    world = World(scenario.seed, trace, check_every=check_every)
    witness = Witness(
        [] if scenario.tags == "*" else [t.strip() for t in scenario.tags.split("||")]
    )
    show = _Show(scenario, world, witness, parts or NodeFactories())
    failure = None
    rebalances = 0
    records: tuple[Record, ...] = ()
    try:
        show.play()
        records = show.judge.ledger()
        show.check_sessions(records)
        rebalances = len(cost.rebalances(records))
    except Violation as violation:
        failure = str(violation)
    except (Exception, Killed):  # a kill that no process died of is a bug, too
        failure = "a node raised\n" + traceback.format_exc()
    counts = {**show.counts(), "rebalances": rebalances}
    return RunOutcome(
        scenario=scenario,
        digest=trace.digest(),
        failure=failure,
        counts=counts,
        ledger=records,
        lines=tuple(trace.lines()),
    )


class _Show:
    """The phases of a run."""

    def __init__(
        self, scenario: Scenario, world: World, witness: Witness, parts: NodeFactories
    ) -> None:
        self._scenario = scenario
        self._world = world
        self._witness = witness
        self._cluster = SimCluster(world, scenario, parts, witness)
        self._fates = Fates(self._cluster, scenario)
        self._rng = world.rng("show")
        self._last_publish_at = EPOCH
        self._settled_ms = 0
        self.judge = Judge(self._cluster, witness)

    def play(self) -> None:
        self._raise_curtain()
        self._schedule_messages()
        if self._scenario.table_keys:
            self._schedule_table()
        world = self._world
        while world.now < max(self._fates.healed_at, self._last_publish_at):
            world.run(max(self._fates.healed_at, self._last_publish_at))
        self._fates.heal()
        self._cluster.kafka_producing.witness.heal()
        self._settle()
        self.judge.read_logs()
        self._cluster.check_tables()
        self._check_duplicates()
        self.judge.stop_members()
        self._check_duplicates()
        self.judge.restart_brokers()
        if self._scenario.kafka_producers:
            self._read_again()
        for seat in self._cluster.seats:
            if seat.process.alive:
                seat.process.check()

    def _raise_curtain(self) -> None:
        cluster, world, rng = self._cluster, self._world, self._rng
        for seat in [*cluster.nameservers, cluster.admin]:
            cluster.start(seat)
        founded_ms = FOUNDED_MS if self._scenario.has_kafka else 0
        for seat in cluster.brokers:
            world.after(rng.randrange(founded_ms or START_MS_MAX), partial(cluster.start, seat))
        for seat in cluster.producers:
            world.after(rng.randrange(START_MS_MAX), partial(cluster.start, seat))
        for _ in range(self._scenario.members):
            world.after(rng.randrange(START_MS_MAX), cluster.add_member)
        for _ in range(self._scenario.kafka_members):
            world.after(rng.randrange(founded_ms, START_MS_MAX), cluster.add_kafka_member)
        for _ in range(self._scenario.streams_threads):
            world.after(rng.randrange(founded_ms, START_MS_MAX), cluster.streams_threads.add)
        producing = cluster.kafka_producing
        if self._scenario.kafka_producers:
            world.after(rng.randrange(founded_ms, START_MS_MAX), producing.create_topic)
            world.after(START_MS_MAX, producing.start_reader)
        for _ in range(self._scenario.kafka_producers):
            world.after(rng.randrange(founded_ms, START_MS_MAX), producing.add)
        for _ in range(self._scenario.share_members):
            world.after(rng.randrange(founded_ms, START_MS_MAX), cluster.share_members.add)
        if self._scenario.accounts:
            world.after(START_MS_MAX, cluster.add_strangers)
        if self._scenario.create_topics:
            world.after(rng.randrange(founded_ms, START_MS_MAX), cluster.create_topics)

    def _schedule_messages(self) -> None:
        scenario, rng = self._scenario, self._rng
        at, number = EPOCH + scenario.first_message_ms, 0
        while number < scenario.messages:
            size = 1
            if rng.randrange(100) < scenario.batch_of_100:
                size = min(2 + rng.randrange(BATCH_MAX - 1), scenario.messages - number)
            numbers = tuple(range(number, number + size))
            number += size
            seat = self._cluster.producers[rng.randrange(len(self._cluster.producers))]
            self._world.at(at, partial(self._publish, seat, numbers))
            at += size * rng.randrange(2 * scenario.interval_ms + 1)
        self._last_publish_at = at

    def _schedule_table(self) -> None:
        """Write to the compacted topic while the messages are published, twice as often."""
        cluster, world = self._cluster, self._world
        rng = world.rng("table")
        world.after(rng.randrange(self._scenario.first_message_ms), cluster.create_table)
        first = EPOCH + self._scenario.first_message_ms
        for _ in range(2 * self._scenario.messages):
            at = rng.randrange(first, max(first + 1, self._last_publish_at))
            seat = rng.choice(cluster.producers)
            world.at(at, partial(self._write_table, seat, rng))

    def _write_table(self, seat: Seat, rng: Random) -> None:
        assert self._cluster.table is not None
        self._cluster.table.write(seat.process, rng)

    def _publish(self, seat: Seat, numbers: tuple[int, ...]) -> None:
        self._cluster.publisher(seat).publish(seat.process, numbers, self._rng)

    def _settle(self) -> None:
        """Run until all is well: within `settle_ms`, or while a quota slows clients down.

        They must get further within `SLOWED_MS` then, and come to an end within ten `settle_ms`.
        """
        began = self._world.now
        before, deadline = None, began + self._scenario.settle_ms
        latest = began + 10 * self._scenario.settle_ms
        calm = 0
        while calm < CALM_POLLS:
            self._world.run(self._world.now + POLL_MS)
            complaint = self.judge.complaint()
            if self._scenario.kafka_byte_rate and complaint != before:  # it says how far they are
                slowed_until = min(self._world.now + SLOWED_MS, latest)
                before, deadline = complaint, max(deadline, slowed_until)
            calm = calm + 1 if complaint is None else 0
            self._settled_ms = self._world.now - began
            if complaint is not None and self._world.now > deadline:
                raise Violation(f"not well {self._settled_ms} ms after the faults: {complaint}")

    def _read_again(self) -> None:
        """Read what Kafka producers have written once more, from restarted brokers.

        A quota makes that slow, but something new must come within `SLOWED_MS`.
        """
        self._cluster.kafka_producing.start_reader()
        before, deadline = "", 0
        while (complaint := self._cluster.kafka_producing.incomplete()) is not None:
            if complaint != before:  # it says how far the reader is
                before, deadline = complaint, self._world.now + SLOWED_MS
            if self._world.now > deadline:
                raise Violation(f"not well after a restart of the brokers: {complaint}")
            self._world.run(self._world.now + POLL_MS)

    def _check_duplicates(self) -> None:
        allowed, found = self._scenario.duplicates_max, self._witness.duplicates
        if 0 <= allowed < found:
            raise Violation(f"{found} duplicates, first {self._witness.first_duplicate}")
        kafka = self._cluster.kafka_witness
        if 0 <= allowed < kafka.duplicates:
            raise Violation(f"{kafka.duplicates} Kafka duplicates, first {kafka.first_duplicate}")

    def check_sessions(self, records: tuple[Record, ...]) -> None:
        """Check that no member was expelled without a fault of its own.

        Where nothing fails, none is, except static members of Kafka groups, when a session has
        passed since they left.
        """
        sessions_ms = {
            GROUP: BrokerConfig().client_expiry_ms,
            KAFKA_GROUP: self._scenario.kafka_session_timeout_ms,
            STREAMS_GROUP: self._scenario.kafka_session_timeout_ms,
        }
        hosts = {seat.name: seat.host for seat in self._cluster.brokers}
        check_expelled(records, hosts, sessions_ms)
        if not self._scenario.is_planned or self._scenario.kafka_static:
            return
        for record in records:
            if isinstance(record, MemberLeft) and record.cause == EXPIRED:
                raise Violation(f"{record.client} of {record.group} is expelled: nothing failed")

    def counts(self) -> dict[str, int]:
        """Return exact figures for people."""
        witness, network = self._witness, self._cluster.network
        kafka, asking = self._cluster.kafka_witness, self._cluster.asking
        return {
            "messages": len(witness.messages),
            "acknowledged": len(witness.acknowledged),
            "failed": len(witness.failed),
            "committed": len(witness.promised),
            "delayed": len(witness.owed),
            "withheld": len(witness.withheld),
            "questions": self._cluster.decisions.asked,
            "deliveries": witness.deliveries,
            "duplicates": witness.duplicates,
            "commits": witness.commits,
            "kafka_deliveries": kafka.deliveries,
            "kafka_duplicates": kafka.duplicates,
            "kafka_commits": kafka.commits,
            **self._cluster.kafka_producing.witness.counts(),
            "streams_moves": self._cluster.streams_threads.witness.moves,
            **self._cluster.share_members.witness.counts(),
            "slowest_ms": witness.slowest_ms,
            "settled_ms": self._settled_ms,
            "faults": self._fates.happened.total(),
            "frames": network.frames,
            "steps": self._world.steps,
            "muted": self._world.muted,
            "virtual_ms": self._world.now - EPOCH,
            "compacted": 0 if self._cluster.table is None else self._cluster.table.removed,
            "damaged": len(witness.damage.entries),
            "never_delivered": witness.never_delivered(),
            "offsets_lost": len(witness.damage.offsets_lost | witness.damage.kafka_offsets_lost),
            "warnings": self._world.told.get("WARNING", 0) + self._world.told.get("ERROR", 0),
            "strangers_refused": 0 if asking is None else asking.refused,
            **{f"fault {kind}": n for kind, n in sorted(self._fates.happened.items())},
        }
