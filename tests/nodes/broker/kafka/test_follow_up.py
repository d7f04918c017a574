"""What the Kafka wing does after sends of RocketMQ's clients: a new topic is known at once, the rest is done within some milliseconds."""

from __future__ import annotations

import pytest
from tests.damage.both import BothRig

from steelyard.nodes.broker.kafka.service import FOLLOW_UP_MS
from steelyard.nodes.broker.kafka.topology import Topology
from steelyard.wire.kafka.messages.cluster import MetadataRequest, MetadataResponse


def test_a_topic_that_a_send_creates_is_known_at_once() -> None:
    rig = BothRig()
    rig.send(rig.remoting_link, topic="First")
    rig.send(rig.remoting_link, topic="Second")
    found = rig.kafka(MetadataRequest(topics=None), 9, MetadataResponse)
    assert {"First", "Second"} <= {topic.name for topic in found.topics}


def test_many_sends_are_followed_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = BothRig()
    rig.send(rig.remoting_link)
    rig.advance(1_000)
    times: list[int] = []
    follow = Topology.follow

    def noted(self: Topology, now: int, effects: list[object]) -> None:
        times.append(now)
        follow(self, now, effects)  # type: ignore[arg-type]

    monkeypatch.setattr(Topology, "follow", noted)
    begun = rig.now
    for _ in range(100):
        rig.send(rig.remoting_link)
    assert len(times) <= 1
    rig.advance(FOLLOW_UP_MS)
    assert times[-1] > begun or times == [begun]
    assert begun <= times[-1] <= begun + FOLLOW_UP_MS
    assert len(times) <= 3


def test_what_a_send_brings_to_light_is_told_although_nothing_else_happens() -> None:
    rig = BothRig()
    rig.send(rig.remoting_link)
    rig.advance(1_000)
    rig.send(rig.remoting_link)
    assert rig.node._kafka is not None
    rig.node._kafka.faults.noted = "something is wrong"
    rig.send(rig.remoting_link)
    assert rig.told == []
    rig.advance(FOLLOW_UP_MS)
    assert [line.text for line in rig.told] == ["something is wrong"]
