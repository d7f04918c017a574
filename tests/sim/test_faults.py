"""What faults do to the servers of a cluster, as the trace tells it."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from steelyard.sim.run import RunOutcome, run
from steelyard.sim.scenario import Fault, Scenario

SERVERS = ("nameserver-0", "nameserver-1", "broker-a", "broker-b")
CLUSTER = Scenario(nameservers=2, brokers=2, messages=60, settle_ms=120_000)


def life(outcome: RunOutcome, name: str) -> list[tuple[float, str]]:
    """When a server started and died (s), and how."""
    words = [line.split(None, 2) for line in outcome.lines]
    return [
        (float(at), what.partition(" at ")[0])
        for at, who, what in words
        if who == name and what.startswith(("starts", "dies"))
    ]


@pytest.mark.parametrize("seed", range(4))
def test_a_restart_of_the_cluster_leaves_nobody_who_remembers(seed: int) -> None:
    fault = Fault(kind="restart_cluster", at_ms=12_000, for_ms=6_000)
    outcome = run(replace(CLUSTER, seed=seed, faults=(fault,)), readable=True)
    assert outcome.failure is None
    assert outcome.counts["fault restart_cluster"] == 1
    downs, ups = [], []
    for server in SERVERS:
        _, (down, how), (up, again), *_ = life(outcome, server)
        assert (how, again) == ("dies: killed", "starts")
        downs.append(down)
        ups.append(up)
    assert 12 <= min(downs) <= max(downs) <= 14
    assert 16 <= min(ups) <= max(ups) <= 18


def test_with_a_count_brokers_are_stopped_cleanly() -> None:
    fault = Fault(kind="restart_cluster", at_ms=12_000, for_ms=6_000, count=1)
    outcome = run(replace(CLUSTER, faults=(fault,)), readable=True)
    assert outcome.failure is None
    for broker in ("broker-a", "broker-b"):
        assert [how for _, how in life(outcome, broker)][1] == "dies: stopped"


def test_without_descriptors_a_broker_goes_on_with_what_it_has() -> None:
    faults = (
        Fault(kind="descriptors", at_ms=8_000, for_ms=6_000, target="broker-a"),
        Fault(kind="break_links", at_ms=9_000, count=20),
    )
    scenario = replace(CLUSTER, seed=1, segment_bytes=2_000, body_bytes_max=1_000, faults=faults)
    outcome = run(scenario, readable=True)
    assert outcome.failure is None
    assert [how for _, how in life(outcome, "broker-a")][:2] == ["starts", "dies: stopped"]
    text = "\n".join(outcome.lines)
    assert "Too many open files" in text
    assert "Refused(address='10.0.0.11:10911', reason='connection refused')" in text


def test_a_broker_finds_its_clock_set_back() -> None:
    fault = Fault(kind="set_clock_back", at_ms=9_000, for_ms=1_000, count=60_000, target="broker-a")
    outcome = run(replace(CLUSTER, seed=1, faults=(fault,)), readable=True)
    assert outcome.failure is None
    assert [how for _, how in life(outcome, "broker-a")][:3] == ["starts", "dies: killed", "starts"]


def test_a_broker_that_finds_no_descriptor_at_its_start_is_started_again() -> None:
    faults = (
        Fault(kind="descriptors", at_ms=8_000, for_ms=6_000, target="broker-a"),
        Fault(kind="kill_broker", at_ms=9_000, for_ms=1_000, target="broker-a"),
    )
    outcome = run(replace(CLUSTER, seed=1, faults=faults), readable=True)
    assert outcome.failure is None
    assert [how for _, how in life(outcome, "broker-a")][2:5:2] == ["starts", "starts"]
    assert any("could not start: " in line for line in outcome.lines)


def flapping(damped_ms: int) -> RunOutcome:
    """A member of a Kafka group of three is killed eight times in 24 s; its brokers damp that, or not."""
    fault = Fault(kind="flap", target="kafka-1", at_ms=12_000, for_ms=24_000, count=8, again=1)
    scenario = replace(
        CLUSTER, kafka_members=3, kafka_session_timeout_ms=6_000, flapping_delay_max_ms=damped_ms
    )
    outcome = run(replace(scenario, faults=(fault,)), readable=True)
    assert outcome.failure is None
    assert outcome.counts["fault flap"] == 1
    return outcome


def test_a_member_that_flaps_is_killed_and_started_again_and_again() -> None:
    lived = [how for _, how in life(flapping(0), "kafka-1")]
    assert lived.count("dies: killed") == 8
    assert lived.count("starts") == 9


def test_damping_spares_the_others_rebalances() -> None:
    free, damped = (outcome.counts["rebalances"] for outcome in (flapping(0), flapping(20_000)))
    assert damped < free


def test_what_rotted_is_refused_until_an_operator_has_repaired_it() -> None:
    rot = Fault(kind="rot_log", at_ms=9_000, for_ms=5_000, count=4, target="broker-a")
    down = Fault(kind="kill_broker", at_ms=8_000, for_ms=2_000, target="broker-a")
    scenario = replace(CLUSTER, seed=1, index_flush_rows=1, kafka_members=1, faults=(down, rot))
    outcome = run(scenario, readable=True)
    assert outcome.failure is None
    assert outcome.counts["damaged"] == 4
    starts, killed, again, stopped, repaired, *_ = life(outcome, "broker-a")
    assert (killed[1], again[1], stopped[1]) == ("dies: killed", "starts", "dies: stopped")
    assert (starts[1], repaired[1]) == ("starts", "starts")
    assert 14 <= stopped[0] <= repaired[0] < 15


@pytest.mark.parametrize(("count", "how"), [(0, "dies: killed"), (1, "dies: stopped")])
def test_a_broker_does_not_start_on_a_rotten_table_until_an_operator_has_repaired_it(
    count: int, how: str
) -> None:
    rot = Fault(kind="rot_table", at_ms=9_000, for_ms=3_000, count=count, target="broker-a")
    outcome = run(replace(CLUSTER, seed=1, kafka_members=1, faults=(rot,)), readable=True)
    assert outcome.failure is None
    starts, dies, again, refuses, repaired, *_ = life(outcome, "broker-a")
    assert (starts[1], dies[1], again[1], repaired[1]) == ("starts", how, "starts", "starts")
    assert re.match(r"dies: refuses to start: tables/\w+\.table is damaged: bytes", refuses[1])
    assert 12 <= again[0] == refuses[0] < 13
    assert 14 <= repaired[0] < 15


def test_a_broker_that_is_down_already_finds_its_table_rotten_when_it_comes_back() -> None:
    faults = (
        Fault(kind="kill_broker", at_ms=8_000, for_ms=6_000, target="broker-a"),
        Fault(kind="rot_table", at_ms=9_000, for_ms=1_000, target="broker-a"),
    )
    outcome = run(replace(CLUSTER, seed=1, faults=faults), readable=True)
    assert outcome.failure is None
    deeds = [what for _, what in life(outcome, "broker-a")]
    assert deeds[:3] == ["starts", "dies: killed", "starts"]
    assert deeds[3].startswith("dies: refuses to start: tables/offsets.table")
    assert deeds[4:6] == ["starts", "dies: stopped"]
