"""Who reads partitions of this broker in groups that other brokers coordinate (9004).

The coordinators report it (`announcing`). What they reported is forgotten when a group has no
readers here any more, when its coordinator reports all groups anew, and when that broker is gone.
The committed offsets of these groups are unknown: the position of a group is where the last
delivery to it ended, and 0 before the first, as it is for a group without commits.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from steelyard.errors import ProtocolError
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.peers.requests import READERS, GroupReaders, ReaderNews, read_body
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.types import TopicPartition
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command

KEPT_MAX = 200_000
"""Most partitions to keep, counted once per group that reads them; others are unknown."""


class PartitionReader(msgspec.Struct):
    """The reader of a partition in one group, and the offset up to which it got messages here."""

    member_id: str
    client_id: str
    host: str
    position: int = 0


class _Group(msgspec.Struct, frozen=True):
    """A group with readers here. `broker`: its coordinator."""

    broker: str
    partitions: tuple[TopicPartition, ...]


class Readers:
    """Readers that other brokers reported. `version`: incremented when they may have changed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups: dict[str, _Group] = {}
        self._readings: dict[TopicPartition, dict[str, PartitionReader]] = {}
        """By partition and group id."""
        self._told: set[str] = set()
        """Brokers that have reported all their groups."""
        self._count = 0
        self._brokers_version = cluster.brokers_version
        self.version = 0

    # -- asked by `notes` ------------------------------------------------------------------------

    def of(self, partition: TopicPartition) -> Iterable[tuple[str, PartitionReader]]:
        """Return the groups that read a partition, each with its reader."""
        return self._readings.get(partition, {}).items()

    def delivered(self, group_id: str, partition: TopicPartition, position: int) -> None:
        """Note that a group got all before `position`; nothing happens for an unknown group."""
        reading = self._readings.get(partition, {}).get(group_id)
        if reading is not None:
            reading.position = position

    # -- told by others --------------------------------------------------------------------------

    @serves(READERS)
    def take(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        """Answer 9004. Raises ProtocolError."""
        news = read_body(request.body, ReaderNews)
        if news.broker == self._cluster.me.name:
            raise ProtocolError("this broker does not coordinate groups for itself")
        sender = self._cluster.brokers.get(news.broker)
        if sender is None or not sender.live or not (news.complete or news.broker in self._told):
            remark = f"nothing is known about the groups of {news.broker[:100]}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)
        self._told.add(news.broker)
        if news.complete:
            self._forget(news.broker, but={group.group for group in news.groups})
        for group in news.groups:
            self._put(news.broker, group)
        self.version += 1
        return request.reply()

    def _put(self, broker: str, told: GroupReaders) -> None:
        positions = self._remove(told.group)
        readings: dict[TopicPartition, PartitionReader] = {}
        for one in told.readers:
            for topic, numbers in one.partitions.items():
                for number in numbers[: KEPT_MAX - self._count - len(readings)]:
                    partition = TopicPartition(topic, number)
                    position = positions.get(partition, 0)
                    readings[partition] = PartitionReader(
                        one.member, one.client, one.host, position
                    )
        if readings:
            self._groups[told.group] = _Group(broker, tuple(readings))
            self._count += len(readings)
            for partition, reading in readings.items():
                self._readings.setdefault(partition, {})[told.group] = reading

    def _remove(self, group_id: str) -> dict[TopicPartition, int]:
        """Forget a group; return its positions."""
        positions: dict[TopicPartition, int] = {}
        group = self._groups.pop(group_id, None)
        if group is None:
            return positions
        for partition in group.partitions:
            readings = self._readings[partition]
            positions[partition] = readings.pop(group_id).position
            if not readings:
                del self._readings[partition]
        self._count -= len(positions)
        return positions

    def _forget(self, broker: str, *, but: set[str]) -> None:
        """Forget the groups of a coordinator, except some."""
        for group_id, group in list(self._groups.items()):
            if group.broker == broker and group_id not in but:
                self._remove(group_id)

    def follow(self) -> None:
        """Forget what brokers that are gone had reported; called after each event."""
        if self._cluster.brokers_version == self._brokers_version:
            return
        self._brokers_version = self._cluster.brokers_version
        gone = self._told - {broker.name for broker in self._cluster.live_brokers()}
        for broker in gone:
            self._forget(broker, but=set())
            self._told.discard(broker)
            self.version += 1

    def check(self) -> None:
        assert self._count == sum(len(group.partitions) for group in self._groups.values())
        assert self._count == sum(map(len, self._readings.values()))
        assert self._count <= KEPT_MAX
        assert {group.broker for group in self._groups.values()} <= self._told
