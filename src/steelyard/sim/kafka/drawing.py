"""What a seed draws of Kafka's clients: groups, producers, and faults of their own.

Each kind has a Random of its own, so that a seed without it stays what it was before there was it.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from steelyard.sim.scenario import FIRST_FAULT_MS, LONG_MS, SHORT_MS, Fault, FaultKind, Scenario

KAFKA_SHARE = 0.3
"""Of the seeds have a Kafka group."""

CONSUMER_SHARES = (0.15, 0.4)
"""Of the seeds without a Kafka group get one of the consumer protocol (KIP-848), and of those with
one have it speak this protocol.
"""

PLANNED_SHARE = 0.15
"""Of the KIP-848 groups live where nothing fails: members join and leave, and topics grow."""

MIGRATING_SHARE = 0.25
"""Of the KIP-848 groups have members of the classic protocol, too: they migrate online."""

DELAYED_SHARE = 0.4
"""Of the seeds have brokers that delay answers to members of groups; of those with a KIP-848 group
more, because there such answers steer what members do next.
"""

STREAMS_SHARE = 0.2
"""Of the seeds have a Kafka Streams group (KIP-1071)."""

PRODUCERS_SHARE = 0.25
"""Of the seeds with Kafka listeners, and without rotten tables, have Kafka producers."""

PRODUCERS_QUOTA = 50
"""By how much the quota of consumers is higher then: one of them reads all that is written."""

SHARE_GROUP_SHARES = (0.04, 0.25)
"""Of the seeds without other Kafka groups, and of those with some, have a share group (KIP-932)."""


def with_kafka_clients(scenario: Scenario, until_ms: int) -> Scenario:
    """Add the clients that the scenario's seed draws. `until_ms`: when faults end."""
    for add in (_with_kafka, _with_streams, _with_shares, _with_kafka_producers):
        scenario = add(scenario, until_ms)
    return scenario


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
            for_ms=rng.randrange(*rng.choice((SHORT_MS, LONG_MS))),
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
    for_ms = 0 if kind == "leave" else rng.randrange(*rng.choice((SHORT_MS, LONG_MS)))
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
            for_ms=rng.randrange(*rng.choice((SHORT_MS, LONG_MS))),
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
    migration = Random(f"swarm {scenario.seed}, migration")
    scenario = replace(
        scenario,
        kafka_protocol="both" if migration.random() < MIGRATING_SHARE else "consumer",
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
        0 if kind == "leave" else rng.choice((rng.randrange(*SHORT_MS), rng.randrange(*LONG_MS)))
    )
    return Fault(kind=kind, at_ms=at_ms, for_ms=for_ms, target=member)
