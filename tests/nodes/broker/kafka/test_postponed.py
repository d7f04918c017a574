"""What a full disk did not take in is stored later: no restart brings back what was before."""

from __future__ import annotations

import pytest
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.requests import committing
from tests.nodes.broker.kafka.test_markers import side
from tests.nodes.broker.kafka.test_metadata import _create_queues
from tests.nodes.broker.kafka.test_produce import send

from steelyard.errors import DiskFullError
from steelyard.nodes.broker.kafka import KAFKA_TIMER
from steelyard.nodes.broker.kafka.cluster import postponed
from steelyard.nodes.broker.kafka.cluster.postponed import RETRY_MS, PostponedWrites
from steelyard.nodes.seam import Due
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.offsets import OffsetCommitResponse
from steelyard.wire.kafka.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


class FullDisk:
    """Takes what is written while it has room."""

    def __init__(self) -> None:
        self.room = 0
        self.taken: list[str] = []

    def write(self, text: str) -> None:
        if not self.room:
            raise DiskFullError("full")
        self.room -= 1
        self.taken.append(text)


def test_what_was_refused_is_repeated_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postponed, "WRITES_MAX", 3)
    disk, writes = FullDisk(), PostponedWrites()
    for about, text in (("a", "old"), ("b", "b"), ("c", "c"), ("a", "new"), ("d", "too many")):
        writes.do(about, lambda text=text: disk.write(text))  # type: ignore[misc]
    assert (writes.fault, len(writes)) == ("full", 3)
    writes.cancel("c")
    disk.room = 1
    writes.retry(0)
    assert (disk.taken, len(writes)) == (["b"], 1)
    disk.room = 2
    writes.retry(RETRY_MS - 1)
    assert len(writes) == 1
    writes.retry(RETRY_MS)
    assert (disk.taken, len(writes)) == (["b", "new"], 0)
    writes.do("a", lambda: disk.write("at once"))
    assert (disk.taken[-1], len(writes)) == ("at once", 0)


def test_a_topic_whose_creation_was_refused_does_not_come_with_a_restart() -> None:
    """The room may suffice for what the cluster knows of it, but not for its queues and the way back."""
    refused = 0
    for room in range(90, 200, 3):
        rig = KafkaRig()
        rig.disk.room_bytes = room
        request = CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)], 1000)
        code = rig.ask(request, 7, CreateTopicsResponse).topics[0].error_code
        refused += code != 0
        rig.disk.room_bytes = None
        rig.advance(2 * RETRY_MS)
        rig.restart()
        assert (side(rig).cluster.topic(TOPIC) is None) == (code != 0), room
    assert refused


def test_a_deleted_topic_leaves_no_offsets() -> None:
    """A topic of the same name would otherwise be read from where groups were in the deleted one."""
    for room in range(0, 120, 5):
        rig = KafkaRig()
        rig.create_topic()
        send(rig, batch(b"x"))
        rig.ask(committing("group", TOPIC, {0: 1}), 8, OffsetCommitResponse)
        rig.disk.room_bytes = room
        request = DeleteTopicsRequest(topics=[DeleteTopicState(TOPIC)])
        rig.ask(request, 6, DeleteTopicsResponse)
        rig.disk.room_bytes = None
        rig.advance(2 * RETRY_MS)
        offset = side(rig).groups.coordinator.offsets.get("group", TopicPartition(TOPIC, 0))
        assert (offset is None) == (side(rig).cluster.topic(TOPIC) is None), room


def test_queues_that_cannot_be_laid_out_are_tried_once_a_second() -> None:
    """1. The disk takes new queues of a topic, and not what the cluster is to know of them. 2. Nothing is tried again with
    each event. 3. With room the queues become partitions."""
    refused = 0
    for room in range(0, 400, 5):
        rig = KafkaRig()
        rig.create_topic()
        rig.disk.room_bytes = room
        _create_queues(rig, TOPIC, 8)
        config = rig.node._parts.topics.get(TOPIC)
        assert config is not None
        cluster = side(rig).cluster
        before = cluster.version
        for _ in range(20):
            rig.event(Due(KAFKA_TIMER))
        assert cluster.version - before <= 2, room
        rig.disk.room_bytes = None
        rig.advance(2 * RETRY_MS)
        topic = cluster.topic(TOPIC)
        assert topic is not None
        assert topic.layout.partitions == config.read_queue_nums, room
        refused += cluster.version != before
    assert refused
