"""Runs in which nothing goes wrong: there the nodes owe more than not to lose anything."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from steelyard.nodes.nameserver import NameserverNode
from steelyard.nodes.seam import Effect
from steelyard.sim.cluster import NodeFactories
from steelyard.sim.network import Weather
from steelyard.sim.run import run
from steelyard.sim.scenario import Scenario
from steelyard.store.memory import Killed

CALM = Scenario(
    messages=150,
    brokers=2,
    members=1,
    interval_ms=100,
    batch_of_100=20,
    weather=Weather(spike_every=0),
)


@pytest.mark.parametrize(
    "scenario",
    [
        CALM,
        replace(CALM, flush="sync"),
        replace(CALM, consume_batch=4, pull_batch=2, queue_messages_max=3),
        replace(CALM, pull_bytes_max=1, body_bytes_max=6_000),
        replace(CALM, strategy="AVG_BY_CIRCLE", topics=2, queues=1, nameservers=2),
        replace(CALM, ordered=True, duplicates_max=0, consume_batch=4),
        replace(CALM, skew_ms_max=60_000, drift_ppm_max=500, binary_headers_of_100=100),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_in_calm_every_message_is_delivered_once_and_soon(scenario: Scenario, seed: int) -> None:
    outcome = run(replace(scenario, seed=seed))
    counts = outcome.counts
    assert outcome.failure is None
    assert (counts["acknowledged"], counts["failed"], counts["duplicates"]) == (150, 0, 0)
    assert counts["deliveries"] == 150
    assert counts["slowest_ms"] < 5_000  # while the group forms
    # A member asks for routes every 30 s: a broker that came late, then its retry topic.
    assert counts["settled_ms"] < 75_000


@pytest.mark.parametrize("seed", range(5))
def test_a_member_that_waits_hears_of_a_message_at_once(seed: int) -> None:
    """The long poll is answered by the message, not by its deadline: within two ways and a margin."""
    quiet = replace(CALM, seed=seed, interval_ms=1_000, messages=60, batch_of_100=0, brokers=1)
    outcome = run(replace(quiet, first_message_ms=40_000))
    assert outcome.failure is None
    assert outcome.counts["slowest_ms"] < 50


@pytest.mark.parametrize("seed", range(3))
def test_one_way_messages_arrive_when_nothing_is_wrong(seed: int) -> None:
    outcome = run(replace(CALM, seed=seed, oneway_of_100=100, batch_of_100=0))
    assert outcome.failure is None
    assert outcome.counts["acknowledged"] == 0
    assert outcome.counts["deliveries"] == 150


@pytest.mark.parametrize("seed", range(3))
def test_failed_messages_come_back(seed: int) -> None:
    outcome = run(replace(CALM, seed=seed, later_of_100=20))
    assert outcome.failure is None
    assert 160 < outcome.counts["deliveries"] < 230


@pytest.mark.parametrize("seed", range(3))
def test_transactions_end_as_the_program_decides(seed: int) -> None:
    outcome = run(replace(CALM, seed=seed, transactions_of_100=100, batch_of_100=0))
    assert outcome.failure is None
    counts = outcome.counts
    assert counts["committed"] + counts["withheld"] == counts["messages"] == 150
    assert counts["deliveries"] == counts["committed"] > counts["withheld"] > 0
    assert (counts["failed"], counts["duplicates"]) == (0, 0)
    assert counts["questions"] > 0


class _DiesLate(list[Effect]):
    """Effects that kill whoever makes them true: nobody's process."""

    def __iter__(self) -> Iterator[Effect]:
        raise Killed("by whom?")


class _DeadlyNameserver(NameserverNode):
    def start(self, now: int) -> list[Effect]:
        return _DiesLate(super().start(now))


def test_a_kill_that_no_process_dies_of_fails_the_run() -> None:
    """It would end a worker of the swarm without a word, and the swarm would wait for ever."""
    outcome = run(CALM, parts=NodeFactories(nameserver=_DeadlyNameserver))
    assert outcome.failure is not None
    assert "by whom?" in outcome.failure
