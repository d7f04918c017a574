"""The steps of a change of what a Kafka consumer holds."""

from __future__ import annotations

from tests.edges import assert_every_edge
from tests.nodes.consumer.kafka.rig import T0, T1, Rig

from steelyard.nodes.consumer.kafka import contract
from steelyard.nodes.consumer.kafka.changes import CHANGES


def join_and_leave() -> None:
    rig = Rig()
    assert rig.result(contract.Subscribe(("t",))) is None
    rig.run()
    assert rig.result(contract.Assignment()) == (T0, T1)
    assert rig.result(contract.Stop()) is None
    assert rig.links == {}


def test_every_edge_of_a_change_is_taken() -> None:
    assert_every_edge(CHANGES, join_and_leave)
