"""What a seed draws: its own cluster, workload and subset of faults (swarm testing).

Leaving kinds of faults out at random finds more than always having all of them: some bugs only show
when another kind is absent (Groce et al., Swarm Testing, 2012). `kafka.drawing` adds Kafka's
clients.
"""

from __future__ import annotations

from random import Random
from typing import Literal

from msgspec.structs import replace

from steelyard.sim.kafka.drawing import DELAYED_SHARE, with_kafka_clients
from steelyard.sim.network import Weather
from steelyard.sim.scenario import (
    FAULT_KINDS,
    FIRST_FAULT_MS,
    LONG_MS,
    SHORT_MS,
    Fault,
    FaultKind,
    Scenario,
)

FAULTS_MAX = 8


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

ACCOUNTS_SHARE = 0.2
"""Of the seeds have accounts: all requests are signed."""

QUOTA_SHARE = 0.2
"""Of the seeds have a quota for what Kafka clients fetch."""

TIMERS_SHARE = 0.25
"""Of the seeds have messages that are delayed to the millisecond."""

CLOCK_SHARE = 0.12
"""Of the other seeds have brokers that find their clocks set back."""

_APART: tuple[FaultKind, ...] = (
    "freeze",
    "flap",
    "restart_cluster",
    "rot_index",
    "rot_log",
    "rot_table",
    "descriptors",
    "suspend",
    "set_clock_back",
)
"""Drawn by themselves, not among the others."""


_SET_BACK_MS = (1, 50, 3_000, 60_000, 3_600_000, 7_200_000)
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
    else:  # those messages would wait for their time by the clock, hours perhaps
        faults += _clocks_set_back(seed, until_ms)
        faults.sort(key=lambda fault: fault.at_ms)
        scenario = replace(scenario, faults=tuple(faults))
    return with_kafka_clients(scenario, until_ms)


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
            faults.append(Fault(kind="descriptors", at_ms=at_ms, for_ms=rng.randrange(*SHORT_MS)))
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


def _clocks_set_back(seed: int, until_ms: int) -> list[Fault]:
    rng = Random(f"swarm {seed}, clocks")
    if rng.random() >= CLOCK_SHARE:
        return []
    return [
        Fault(
            kind="set_clock_back",
            at_ms=rng.randrange(FIRST_FAULT_MS, until_ms),
            for_ms=rng.randrange(*SHORT_MS),
            count=rng.choice(_SET_BACK_MS),
        )
        for _ in range(rng.choice((1, 1, 2)))
    ]


def _rotten_logs(seed: int, until_ms: int, kinds: set[FaultKind]) -> list[Fault]:
    """Draw damage that loses messages, if it stays clear which ones: docs/LIMITS.md, Simulator."""
    rng = Random(f"swarm {seed}, rotten logs")
    if rng.random() >= ROT_LOG_SHARE or kinds & {"power_broker", "rot_index"}:
        return []
    return [
        Fault(
            kind="rot_log",
            at_ms=rng.randrange(FIRST_FAULT_MS, until_ms),
            for_ms=rng.choice((rng.randrange(*SHORT_MS), rng.randrange(*LONG_MS))),
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
            for_ms=rng.randrange(*SHORT_MS),
            count=rng.randrange(2),
        )
        for _ in range(rng.choice((1, 2, 4)))
    ]


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
    short, long = rng.randrange(*SHORT_MS), rng.randrange(*LONG_MS)
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
