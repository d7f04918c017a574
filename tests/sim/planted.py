"""Runs of planted defects: invariants are looked at as seldom as in the swarm, for every event would take twice as long."""

from __future__ import annotations

from steelyard.sim import run as sim
from steelyard.sim.cluster import NodeFactories
from steelyard.sim.run import RunOutcome
from steelyard.sim.scenario import Scenario
from steelyard.sim.swarm import CHECK_EVERY


def run(scenario: Scenario, *, parts: NodeFactories | None = None) -> RunOutcome:
    return sim.run(scenario, parts=parts, check_every=CHECK_EVERY)
