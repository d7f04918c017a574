"""What the Kafka wing does after sends of RocketMQ's clients: a new topic is known at once, the rest is done within some milliseconds."""

from __future__ import annotations

import pytest
from tests.damage.both import BothRig
from tests.nodes.broker.driver import TOPIC

from steelyard.nodes.broker.kafka.service import FOLLOW_UP_MS
from steelyard.nodes.broker.kafka.topology import Topology
from steelyard.nodes.seam import Effect, Mute, Received
from steelyard.wire.kafka.frame import Request, RequestDecoder, encode
from steelyard.wire.kafka.messages.cluster import MetadataRequest, MetadataResponse
from steelyard.wire.kafka.messages.data import FETCH, FetchPartition, FetchRequest, FetchTopic


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


class QuotaRig(BothRig):
    """Notes which links are muted, and for how long."""

    def __init__(self) -> None:
        self.muted: list[tuple[int, int]] = []
        super().__init__()

    def _make_other_true(self, effect: Effect) -> None:
        assert isinstance(effect, Mute)
        self.muted.append((effect.link, effect.until - self.now))

    def post_fetch(self, message: FetchRequest) -> None:
        """Send a fetch that waits."""
        frame = encode(Request(FETCH, 11, 1_000, "client", message))
        (request,) = RequestDecoder().feed(frame)
        self.event(Received(self.kafka_link, request))


def test_a_client_over_its_quota_is_muted_with_the_send_that_wakes_its_fetch() -> None:
    """At once, however recent the last follow-up is, and from now on, not from the last Kafka event on."""
    rig = QuotaRig()
    rig.send(rig.remoting_link)
    quotas = rig.node._parts.quotas
    quotas.merge([quotas.changed((("client-id", None),), {"consumer_byte_rate": 100.0})])
    part = FetchPartition(0, fetch_offset=1, partition_max_bytes=100_000)
    topics = (FetchTopic(TOPIC, partitions=(part,)),)
    rig.post_fetch(FetchRequest(max_wait_ms=30_000, min_bytes=1, max_bytes=100_000, topics=topics))
    rig.advance(20_000)
    for _ in range(3):
        rig.send(rig.remoting_link, topic="Another")  # what it changes is followed up
    rig.send(rig.remoting_link, body=bytes(5_000))
    ((_, muted_ms),) = rig.muted
    assert 1 <= muted_ms <= 60_000
    rig.node.check()
