"""Swarm testing: every seed draws its own cluster, workload and subset of faults.

Leaving kinds of faults out at random finds more than always having all of them: some bugs only show
when another kind is absent (Groce et al., Swarm Testing, 2012).
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from random import Random
from typing import Literal, cast

from msgspec.structs import replace

from steelyard.sim.network import Weather
from steelyard.sim.run import RunOutcome, run
from steelyard.sim.scenario import FAULT_KINDS, Fault, FaultKind, Scenario

FAULTS_MAX = 8
FIRST_FAULT_MS = 5_000

THEMES: dict[str, tuple[FaultKind, ...]] = {
    "churn": ("join", "leave", "kill_member", "lose_member", "stall", "partition", "deafen"),
    "disk": ("disk_full", "disk_full", "kill_broker"),
    "kills": ("kill_broker", "kill_broker", "restart_broker", "kill_nameserver"),
    "links": ("break_links", "slow", "drop_oneway", "partition", "deafen"),
    "power": ("power_broker", "power_broker", "kill_broker"),
}
"""Some seeds have many faults of few kinds: what hides behind one seldom shows behind two of the
same.
"""

RESTART_SHARE = 0.12
"""Of the seeds have a restart of the whole cluster, or two."""

DESCRIPTORS_SHARE = 0.12
"""Of the seeds have brokers without file descriptors for a while."""

FLAP_SHARE = 0.12
"""Of the seeds have members that stop and start again and again. In half of all seeds the brokers
damp that.
"""

ROT_SHARE = 0.12
"""Of the seeds have bits that flip in index files."""

ROT_LOG_SHARE = 0.12
"""Of the seeds without power cuts and rotten index files have bits that flip in logs, until an
operator repairs them.
"""

ROT_TABLE_SHARE = 0.05
"""Of the seeds without power cuts and other rot have bits that flip in tables of committed offsets.
"""

TABLE_SHARE = 0.2
"""Of the seeds have a topic that is compacted."""

SUSPEND_SHARE = 0.12
"""Of the seeds have nameservers and brokers whose processes are stopped for a while."""

KAFKA_SHARE = 0.3
"""Of the seeds have a Kafka group."""

CONSUMER_SHARES = (0.15, 0.4)
"""Of the seeds without a Kafka group get one of the consumer protocol (KIP-848), and of those with
one have it speak this protocol.
"""

PLANNED_SHARE = 0.15
"""Of the KIP-848 groups live where nothing fails: members join and leave, and topics grow."""

STREAMS_SHARE = 0.2
"""Of the seeds have a Kafka Streams group (KIP-1071)."""

PRODUCERS_SHARE = 0.25
"""Of the seeds with Kafka listeners, and without rotten tables, have Kafka producers."""

PRODUCERS_QUOTA = 50
"""By how much the quota of consumers is higher then: one of them reads all that is written."""

SHARE_GROUP_SHARES = (0.04, 0.25)
"""Of the seeds without other Kafka groups, and of those with some, have a share group (KIP-932)."""

ACCOUNTS_SHARE = 0.2
"""Of the seeds have accounts: all requests are signed."""

QUOTA_SHARE = 0.2
"""Of the seeds have a quota for what Kafka clients fetch."""

TIMERS_SHARE = 0.25
"""Of the seeds have messages that are delayed to the millisecond."""

DELAYED_SHARE = 0.4
"""Of the seeds have brokers that delay answers to members of groups; of those with a KIP-848 group
more, because there such answers steer what members do next.
"""

CHECK_EVERY = 16
"""Checking every node after each event takes half of a run.

A broken invariant seldom mends itself, and each node is checked once more before it ends: what the
time finds in other seeds is more.
"""

_APART: tuple[FaultKind, ...] = (
    "freeze",
    "flap",
    "restart_cluster",
    "rot_index",
    "rot_log",
    "rot_table",
    "descriptors",
    "suspend",
)
"""Drawn by themselves, not among the others."""

_SHORT_MS = (500, 10_000)
_LONG_MS = (2_000, 60_000)
_SUSPENDED_MS = ((2_000, 30_000), (30_000, 180_000))


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = Random(f"swarm {seed}")
    theme = rng.choice(sorted(THEMES)) if rng.random() < 0.4 else ""
    flush: Literal["async", "sync"] = "sync" if rng.random() < 0.15 else "async"
    if "power_broker" in THEMES.get(theme, ()):
        flush = "sync"
    brokers = rng.choice((1, 1, 2, 2, 3))
    messages = rng.randrange(60, 220)
    interval_ms = rng.choice((30, 100, 250, 400))
    scenario = Scenario(
        name=f"seed {seed}",
        seed=seed,
        nameservers=rng.choice((1, 1, 1, 2)),
        brokers=brokers,
        topics=rng.choice((1, 1, 1, 2)),
        queues=rng.choice((1, 2, 3, 4, 5, 8)) if brokers == 1 else rng.choice((1, 2, 3, 4)),
        create_topics=rng.random() < 0.7,
        flush=flush,
        segment_bytes=rng.choice((2_000, 16_384, 1_000_000)),
        index_flush_rows=rng.choice((1, 16, 4096)),
        skew_ms_max=rng.choice((0, 50, 5_000)),
        drift_ppm_max=rng.choice((0, 100, 500)),
        binary_headers_of_100=rng.choice((0, 50)),
        weather=_weather(rng),
        producers=rng.choice((1, 1, 2)),
        members=rng.randrange(1, 6),
        strategy=rng.choice(("AVG", "AVG", "AVG_BY_CIRCLE", "EVEN")),
        clean_handover=rng.random() < 0.8,
        thread_ms_max=rng.choice((0, 0, 5, 30)),
        tags=rng.choice(("*", "*", "*", "a || b", "c")),
        messages=messages,
        interval_ms=interval_ms,
        batch_of_100=rng.choice((0, 0, 20)),
        oneway_of_100=rng.choice((0, 0, 10)),
        body_bytes_max=rng.choice((50, 200, 6_000)),
        consume_batch=rng.choice((1, 1, 4)),
        pull_batch=rng.choice((1, 32, 32, 32)),
        queue_messages_max=rng.choice((3, 1_000, 1_000)),
        pull_bytes_max=rng.choice((200, 1_000_000, 1_000_000)),
        hold_waiting_max=6 if rng.random() < 0.1 else 100_000,
        process_ms_max=rng.choice((0, 10, 200)),
        slow_of_100=rng.choice((0, 0, 3)),
        later_of_100=rng.choice((0, 0, 3, 20)),
    )
    apart = Random(f"swarm {seed}, kinds of clients")  # drawn apart: the seeds keep what they had
    scenario = replace(
        scenario,
        ordered=apart.random() < 0.2,
        transactions_of_100=apart.choice((0, 0, 0, 10, 50)),
        disk_watermark=apart.random() < 0.3,
    )
    until_ms = max(20_000, messages * interval_ms)
    faults = [*_faults(rng, theme, flush, until_ms), *_late_kinds(seed, until_ms)]
    faults += _rotten_logs(seed, until_ms, {fault.kind for fault in faults})
    faults += _rotten_tables(seed, until_ms, {fault.kind for fault in faults})
    faults.sort(key=lambda fault: fault.at_ms)
    answers = Random(f"swarm {seed}, answers")
    delayed = answers.random() < DELAYED_SHARE
    damped_ms = answers.choice((0, 0, 2_000, 20_000))
    accounts = Random(f"swarm {seed}, accounts").random() < ACCOUNTS_SHARE
    scenario = replace(
        scenario,
        faults=tuple(faults),
        delayed_answers=delayed,
        flapping_delay_max_ms=damped_ms,
        table_keys=_table_keys(seed),
        accounts=accounts,
        kafka_byte_rate=_byte_rate(scenario),
    )
    timers = Random(f"swarm {seed}, timers")
    if timers.random() < TIMERS_SHARE:
        scenario = replace(scenario, timers_of_100=timers.choice((5, 30, 100)))
    scenario = _with_streams(_with_kafka(scenario, until_ms), until_ms)
    return _with_kafka_producers(_with_shares(scenario, until_ms), until_ms)


def _table_keys(seed: int) -> int:
    rng = Random(f"swarm {seed}, compacted topic")
    return rng.choice((1, 3, 10)) if rng.random() < TABLE_SHARE else 0


def _byte_rate(scenario: Scenario) -> int:
    """Return a quota with which one client reads all messages within a minute, or 0 for none."""
    rng = Random(f"swarm {scenario.seed}, quotas")
    if rng.random() >= QUOTA_SHARE:
        return 0
    return rng.choice((1, 4)) * (1 + scenario.messages * scenario.body_bytes_max // 60)


def _late_kinds(seed: int, until_ms: int) -> list[Fault]:
    """Faults of kinds that came later, each drawn apart: seeds without them are what they were."""
    faults = []
    rng = Random(f"swarm {seed}, restarts of the cluster")
    if rng.random() < RESTART_SHARE:
        for _ in range(rng.choice((1, 1, 2))):
            at_ms, for_ms = rng.randrange(FIRST_FAULT_MS, until_ms), rng.randrange(1_000, 20_000)
            kind: FaultKind = "restart_cluster"
            faults.append(Fault(kind=kind, at_ms=at_ms, for_ms=for_ms, count=rng.randrange(2)))
    rng = Random(f"swarm {seed}, descriptors")
    if rng.random() < DESCRIPTORS_SHARE:
        for _ in range(rng.choice((1, 2, 3))):
            at_ms = rng.randrange(FIRST_FAULT_MS, until_ms)
            faults.append(Fault(kind="descriptors", at_ms=at_ms, for_ms=rng.randrange(*_SHORT_MS)))
    rng = Random(f"swarm {seed}, flapping")
    if rng.random() < FLAP_SHARE:
        for _ in range(rng.choice((1, 1, 2))):
            at_ms, for_ms = rng.randrange(FIRST_FAULT_MS, until_ms), rng.randrange(3_000, 60_000)
            times, killed = rng.choice((3, 4, 6, 10)), rng.randrange(2)
            faults.append(Fault(kind="flap", at_ms=at_ms, for_ms=for_ms, count=times, again=killed))
    rng = Random(f"swarm {seed}, suspended")
    if rng.random() < SUSPEND_SHARE:
        for _ in range(rng.choice((1, 1, 2, 3))):
            at_ms, span_ms = rng.randrange(FIRST_FAULT_MS, until_ms), rng.choice(_SUSPENDED_MS)
            faults.append(Fault(kind="suspend", at_ms=at_ms, for_ms=rng.randrange(*span_ms)))
    rng = Random(f"swarm {seed}, rot")
    if rng.random() < ROT_SHARE:
        for _ in range(rng.choice((1, 2, 4))):
            at_ms, count = rng.randrange(FIRST_FAULT_MS, until_ms), rng.choice((1, 5, 20))
            faults.append(Fault(kind="rot_index", at_ms=at_ms, count=count))
    return faults


def _rotten_logs(seed: int, until_ms: int, kinds: set[FaultKind]) -> list[Fault]:
    """Draw damage that loses messages, if it stays clear which ones: docs/LIMITS.md, Simulator."""
    rng = Random(f"swarm {seed}, rotten logs")
    if rng.random() >= ROT_LOG_SHARE or kinds & {"power_broker", "rot_index"}:
        return []
    return [
        Fault(
            kind="rot_log",
            at_ms=rng.randrange(FIRST_FAULT_MS, until_ms),
            for_ms=rng.choice((rng.randrange(*_SHORT_MS), rng.randrange(*_LONG_MS))),
            count=rng.choice((1, 1, 3, 10)),
        )
        for _ in range(rng.choice((1, 2, 4)))
    ]


def _rotten_tables(seed: int, until_ms: int, kinds: set[FaultKind]) -> list[Fault]:
    """Damage that costs committed offsets, where no other kind is to be told from it."""
    rng = Random(f"swarm {seed}, rotten tables")
    if rng.random() >= ROT_TABLE_SHARE or kinds & {"power_broker", "rot_index", "rot_log"}:
        return []
    return [
        Fault(
            kind="rot_table",
            at_ms=rng.randrange(FIRST_FAULT_MS, until_ms),
            for_ms=rng.randrange(*_SHORT_MS),
            count=rng.randrange(2),
        )
        for _ in range(rng.choice((1, 2, 4)))
    ]


def _with_kafka(scenario: Scenario, until_ms: int) -> Scenario:
    """Some scenarios with a Kafka group besides, and some faults of its own."""
    rng = Random(f"swarm {scenario.seed}, Kafka")
    has_group = rng.random() < KAFKA_SHARE
    protocol = Random(f"swarm {scenario.seed}, consumer protocol")
    is_consumer = protocol.random() < CONSUMER_SHARES[has_group]
    if not has_group and not is_consumer:
        return scenario
    members = rng.randrange(1, 5)
    own = [
        _kafka_fault(
            rng, f"kafka-{rng.randrange(members)}", rng.randrange(FIRST_FAULT_MS, until_ms)
        )
        for _ in range(rng.choice((0, 2, 4)))
    ]
    scenario = replace(
        scenario,
        create_topics=True,  # a nameserver may forget a topic that one broker has: docs/LIMITS.md
        kafka_members=members,
        kafka_assignor=rng.choice(("range", "range", "cooperative-sticky", "sticky")),
        kafka_static=rng.random() < 0.2,
        kafka_auto_commit=rng.random() < 0.4,
        kafka_session_timeout_ms=rng.choice((6_000, 10_000, 30_000)),
        kafka_max_poll_interval_ms=rng.choice((8_000, 20_000)),
        kafka_poll_records=rng.choice((1, 10, 500)),
        faults=tuple(sorted([*scenario.faults, *own], key=lambda fault: fault.at_ms)),
    )
    return _with_consumer_protocol(scenario, protocol, until_ms) if is_consumer else scenario


def _with_streams(scenario: Scenario, until_ms: int) -> Scenario:
    """Some scenarios with a Kafka Streams group besides, and some faults of its own."""
    rng = Random(f"swarm {scenario.seed}, Kafka Streams")
    if rng.random() >= STREAMS_SHARE:
        return scenario
    threads = rng.randrange(1, 6)
    own = [
        Fault(
            kind=rng.choice(("kill_member", "stall", "partition")),
            at_ms=rng.randrange(FIRST_FAULT_MS, until_ms),
            for_ms=rng.randrange(*rng.choice((_SHORT_MS, _LONG_MS))),
            target=f"streams-{rng.randrange(threads)}",
        )
        for _ in range(0 if scenario.is_planned else rng.choice((0, 2, 4)))
    ]
    return replace(
        scenario,
        create_topics=True,  # as for Kafka groups
        streams_threads=threads,
        streams_standbys=rng.choice((0, 1, 2)),
        faults=tuple(sorted([*scenario.faults, *own], key=lambda fault: fault.at_ms)),
    )


def _with_shares(scenario: Scenario, until_ms: int) -> Scenario:
    """Some scenarios with a share group besides, and some faults of its own."""
    rng = Random(f"swarm {scenario.seed}, share groups")
    if rng.random() >= SHARE_GROUP_SHARES[scenario.has_kafka]:
        return scenario
    members = rng.randrange(1, 5)
    own = [
        _share_fault(
            rng, f"share-{rng.randrange(members)}", rng.randrange(FIRST_FAULT_MS, until_ms)
        )
        for _ in range(0 if scenario.is_planned else rng.choice((0, 2, 4, 6)))
    ]
    lock_ms, records = rng.choice((1_000, 3_000, 10_000, 30_000)), rng.choice((1, 5, 20, 500))
    if scenario.kafka_byte_rate:
        # Who exceeds its quota is not read for a while, and must not lose its locks by that.
        lock_ms, records = 30_000, min(records, 20)
    return replace(
        scenario,
        create_topics=True,  # as for Kafka groups
        share_members=members,
        share_lock_ms=lock_ms,
        share_deliveries_max=rng.choice((2, 5, 5, 25)),
        share_fetch_records=records,
        kafka_byte_rate=4 * scenario.kafka_byte_rate,
        share_release_of_100=rng.choice((0, 3, 30)),
        share_slow_of_100=rng.choice((0, 3, 20)),
        share_renewals=rng.random() < 0.4,
        faults=tuple(sorted([*scenario.faults, *own], key=lambda fault: fault.at_ms)),
    )


def _share_fault(rng: Random, member: str, at_ms: int) -> Fault:
    """Draw a fault that strains a share group, mostly of one of its initial members."""
    kinds: tuple[FaultKind, ...] = (
        "join",
        "leave",
        "kill_member",
        "kill_member",
        "lose_member",
        "stall",
        "partition",
        "deafen",
    )
    kind = rng.choice(kinds)
    if kind == "join":
        return Fault(kind=kind, at_ms=at_ms, target="share")
    for_ms = 0 if kind == "leave" else rng.randrange(*rng.choice((_SHORT_MS, _LONG_MS)))
    return Fault(kind=kind, at_ms=at_ms, for_ms=for_ms, target=member)


def _with_kafka_producers(scenario: Scenario, until_ms: int) -> Scenario:
    """Some scenarios with Kafka producers besides, and some faults of their own."""
    rng = Random(f"swarm {scenario.seed}, Kafka producers")
    is_rotten = any(fault.kind == "rot_table" for fault in scenario.faults)
    if not scenario.has_kafka or is_rotten or rng.random() >= PRODUCERS_SHARE:
        return scenario
    transactional, idempotent = rng.randrange(0, 4), rng.randrange(0, 3)
    producers = max(1, transactional + idempotent)
    kinds: tuple[FaultKind, ...] = (
        "kill_member",
        "kill_member",
        "lose_member",
        "stall",
        "partition",
    )
    own = [
        Fault(
            kind=rng.choice(kinds),
            at_ms=rng.randrange(FIRST_FAULT_MS, until_ms),
            for_ms=rng.randrange(*rng.choice((_SHORT_MS, _LONG_MS))),
            target=f"kafka-producer-{rng.randrange(producers)}",
        )
        for _ in range(0 if scenario.is_planned else rng.choice((0, 2, 4)))
    ]
    return replace(
        scenario,
        kafka_byte_rate=PRODUCERS_QUOTA * scenario.kafka_byte_rate,
        kafka_producers=producers,
        kafka_transactional=transactional,
        kafka_transactional_ids=rng.choice((1, 2, 3)),
        kafka_transaction_version=rng.choice(("1", "2", "both")),
        kafka_transaction_timeout_ms=rng.choice((3_000, 10_000, 30_000)),
        kafka_producer_pause_ms_max=rng.choice((300, 1_000, 3_000)),
        faults=tuple(sorted([*scenario.faults, *own], key=lambda fault: fault.at_ms)),
    )


def _with_consumer_protocol(scenario: Scenario, rng: Random, until_ms: int) -> Scenario:
    """Let the Kafka group speak KIP-848, some where nothing fails."""
    scenario = replace(
        scenario,
        kafka_protocol="consumer",
        kafka_assignor=rng.choice(("uniform", "uniform", "range")),
        delayed_answers=scenario.delayed_answers or rng.random() < DELAYED_SHARE,
    )
    if rng.random() >= PLANNED_SHARE:
        return scenario
    kinds: tuple[FaultKind, ...] = ("join", "join", "leave", "grow_topics")
    faults = []
    for member in range(rng.randrange(1, 7)):
        kind, at_ms = rng.choice(kinds), rng.randrange(FIRST_FAULT_MS, until_ms)
        target = {"join": "kafka", "leave": f"kafka-{member}"}.get(kind, "")
        count = int(kind == "grow_topics")
        faults.append(Fault(kind=kind, at_ms=at_ms, target=target, count=count))
    return replace(
        scenario,
        members=1,
        slow_of_100=0,
        later_of_100=0,
        duplicates_max=0,
        kafka_members=len(faults),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ms)),
    )


def _kafka_fault(rng: Random, member: str, at_ms: int) -> Fault:
    """Draw a fault that strains a Kafka group, mostly of one of its initial members."""
    kinds: tuple[FaultKind, ...] = ("join", "leave", "kill_member", "freeze", "freeze", "stall")
    kind = rng.choice(kinds)
    if kind == "join":
        return Fault(kind=kind, at_ms=at_ms, target="kafka")
    for_ms = (
        0 if kind == "leave" else rng.choice((rng.randrange(*_SHORT_MS), rng.randrange(*_LONG_MS)))
    )
    return Fault(kind=kind, at_ms=at_ms, for_ms=for_ms, target=member)


def _weather(rng: Random) -> Weather:
    return rng.choice(
        (
            Weather(delay_ms_max=1, spike_every=0),
            Weather(),
            Weather(delay_ms_min=5, delay_ms_max=80, spike_every=50, spike_ms_max=1_500),
        )
    )


def _faults(rng: Random, theme: str, flush: str, until_ms: int) -> tuple[Fault, ...]:
    if theme:
        kinds, count = list(THEMES[theme]), rng.randrange(4, FAULTS_MAX + 1)
    else:
        kinds = [kind for kind in FAULT_KINDS if kind not in _APART and rng.random() < 0.4]
        count = rng.randrange(1, FAULTS_MAX + 1)
    if flush == "async":
        kinds = [kind for kind in kinds if kind != "power_broker"]
    if not kinds:
        return ()
    faults = [
        _fault(rng, rng.choice(kinds), rng.randrange(FIRST_FAULT_MS, until_ms))
        for _ in range(count)
    ]
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def _fault(rng: Random, kind: FaultKind, at_ms: int) -> Fault:
    """How long and how much, as fits the kind."""
    short, long = rng.randrange(*_SHORT_MS), rng.randrange(*_LONG_MS)
    for_ms, count = {
        "kill_broker": (rng.choice((short, long)), rng.choice((0, 1, 2, 5))),
        "restart_broker": (short, 0),
        "power_broker": (rng.choice((short, long)), 0),
        "kill_nameserver": (rng.choice((short, long)), 0),
        "kill_member": (rng.choice((0, short, long)), rng.randrange(2)),
        "lose_member": (rng.choice((0, long)), rng.randrange(2)),
        "leave": (0, 0),
        "join": (0, 0),
        "stall": (rng.choice((short, long)), 0),
        "partition": (rng.choice((short, long)), rng.choice((1, 1, 2, 3))),
        "deafen": (rng.choice((short, long)), rng.choice((1, 1, 2))),
        "grow_topics": (0, rng.randrange(1, 4)),
        "break_links": (0, rng.choice((1, 3, 10))),
        "drop_oneway": (rng.choice((short, long)), rng.choice((50, 100))),
        "slow": (short, rng.choice((200, 1_000, 4_000))),
        "disk_full": (short, rng.choice((0, 300, 3_000))),
    }[kind]
    again = rng.choice((0, 0, 1, 3, 12)) if kind == "kill_broker" else 0
    return Fault(kind=kind, at_ms=at_ms, for_ms=for_ms, count=count, again=again)


def run_seed(seed: int) -> RunOutcome:
    """One seed, without the ledger, which is large and of no use to the swarm."""
    return replace(run(draw(seed), check_every=CHECK_EVERY), ledger=())


def run_seeds(seeds: range, processes: int | None = None) -> Generator[RunOutcome, None, None]:
    """Outcomes in the order of the seeds; in several processes, as a run uses one core.

    Closing the generator ends the processes, whatever they are doing. Raises RuntimeError if one
    ends by itself.
    """
    processes = min(processes or os.cpu_count() or 1, len(seeds))
    if processes <= 1:
        yield from map(run_seed, seeds)
        return
    workers: dict[Connection, BaseProcess] = {}
    running: dict[Connection, int] = {}
    done: dict[int, RunOutcome] = {}
    rest = iter(seeds)

    def give(link: Connection) -> None:
        if (seed := next(rest, None)) is not None:
            running[link] = seed
            link.send(seed)

    try:
        for _ in range(processes):
            link, process = _start_worker()
            workers[link] = process
            give(link)
        for seed in seeds:
            while seed not in done:
                for ready in wait(workers):
                    link = cast("Connection", ready)
                    done[running[link]] = link.recv()
                    give(link)
            yield done.pop(seed)
    except (EOFError, ConnectionError):
        raise RuntimeError(f"the process of seed {running[link]} ended by itself") from None
    finally:
        for link, process in workers.items():
            process.kill()
            process.join()
            link.close()


def _start_worker() -> tuple[Connection, BaseProcess]:
    """Start a process that does not get Ctrl-C, which is for the swarm, nor SIGTERM while it loads.

    It inherits the mask of signals; locks and queues that a killed process may hold are not shared.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    resource_tracker.ensure_running()  # its start would unblock the signals
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    theirs.close()
    return ours, process


def _work(link: Connection) -> None:
    """Run the seeds that come over the link, until it is closed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _loaded()
    with suppress(EOFError, ConnectionError):  # the swarm was killed
        while True:
            link.send(run_seed(link.recv()))


def _loaded() -> None:
    """Keep the garbage collector from the modules, which stay, and from most of a run's messages.

    A run has some 60 MiB, of which little is garbage in cycles: collecting at the interpreter's
    own threshold of 700 objects costs an eighth of a run.
    """
    gc.freeze()
    gc.set_threshold(20_000)


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool], runs_max: int = 80) -> Scenario:
    """Return a smaller scenario that still `fails`: fewer faults, messages, members, brokers."""
    runs = 0
    smaller = True
    while smaller and runs < runs_max:
        smaller = False
        for candidate in _smaller(scenario):
            runs += 1
            if fails(candidate):
                scenario, smaller = candidate, True
                break
            if runs >= runs_max:
                break
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    faults = scenario.faults
    for index in range(len(faults)):
        yield replace(scenario, faults=faults[:index] + faults[index + 1 :])
    for messages in (scenario.messages // 4, scenario.messages * 3 // 4):
        if 0 < messages < scenario.messages:
            yield replace(scenario, messages=messages)
    if scenario.members > 1:
        yield replace(scenario, members=scenario.members - 1)
    if scenario.kafka_members > 0:
        yield replace(scenario, kafka_members=scenario.kafka_members - 1)
    if scenario.streams_threads > 0:
        yield replace(scenario, streams_threads=scenario.streams_threads - 1)
    if scenario.share_members > 0:
        yield replace(scenario, share_members=scenario.share_members - 1)
    if scenario.kafka_producers > 0:
        yield replace(scenario, kafka_producers=scenario.kafka_producers - 1)
    if scenario.kafka_transactional > 0:
        yield replace(scenario, kafka_transactional=scenario.kafka_transactional - 1)
    if scenario.brokers > 1:
        yield replace(scenario, brokers=scenario.brokers - 1)
    if scenario.queues > 1:
        yield replace(scenario, queues=scenario.queues // 2)
    plain = Scenario()
    for field in (
        "delayed_answers",
        "topics",
        "producers",
        "nameservers",
        "tags",
        "weather",
        "skew_ms_max",
    ):
        if getattr(scenario, field) != getattr(plain, field):
            yield replace(scenario, **{field: getattr(plain, field)})
    for field in (
        "thread_ms_max",
        "drift_ppm_max",
        "later_of_100",
        "slow_of_100",
        "batch_of_100",
        "oneway_of_100",
        "transactions_of_100",
        "timers_of_100",
        "kafka_static",
        "kafka_auto_commit",
        "table_keys",
        "kafka_byte_rate",
        "share_release_of_100",
        "share_slow_of_100",
        "share_renewals",
    ):
        if getattr(scenario, field):
            yield replace(scenario, **{field: 0})
    if scenario.accounts:
        yield replace(scenario, accounts=False)
    if scenario.ordered:
        yield replace(scenario, ordered=False)
    for field in ("binary_headers_of_100", "consume_batch", "segment_bytes", "index_flush_rows"):
        if getattr(scenario, field) != getattr(plain, field):
            yield replace(scenario, **{field: getattr(plain, field)})
