"""The owners of partitions in a group of consumers, as its leader has assigned them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from steelyard.errors import ProtocolError
from steelyard.groups.kafka.classic.members import ClassicGroupMember
from steelyard.groups.kafka.groups import Reader
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.consumer_protocol import PROTOCOL_TYPE, read_assignment


class Owners:
    """The owners of partitions until the next assignment: members keep reading until then."""

    def __init__(self) -> None:
        self._owners: dict[TopicPartition, str] = {}

    def get(self, partition: TopicPartition) -> str | None:
        """Return a member's id; it may have left since."""
        return self._owners.get(partition)

    def end(self, topic: str) -> int:
        """Return one past the topic's highest assigned partition; 0 if there is none."""
        return max((p.partition + 1 for p in self._owners if p.topic == topic), default=0)

    def reader_at(
        self,
        client_id: str,
        host: str,
        partition: TopicPartition,
        members: Mapping[str, ClassicGroupMember],
    ) -> str | None:
        """Return the owner's id if it is a member with this client id and host."""
        member = members.get(self._owners.get(partition, ""))
        if member is None or (member.client_id, member.host) != (client_id, host):
            return None
        return member.member_id

    def readers(self, members: Mapping[str, ClassicGroupMember]) -> list[Reader]:
        """Return the members that have partitions."""
        shares: dict[str, list[TopicPartition]] = defaultdict(list)
        for partition, owner in self._owners.items():
            if owner in members:
                shares[owner].append(partition)
        return [
            Reader(owner, members[owner].client_id, members[owner].host, tuple(share))
            for owner, share in shares.items()
        ]

    def assigned(self, members: Iterable[ClassicGroupMember], protocol_type: str) -> None:
        """Take over the members' new assignments; only those of consumers can be read."""
        self._owners = {}
        if protocol_type != PROTOCOL_TYPE:
            return
        for member in members:
            try:
                assignment = read_assignment(member.assignment)
            except ProtocolError:
                continue  # its member will report the error
            for topic in assignment.assigned_partitions:
                for partition in topic.partitions:
                    self._owners[TopicPartition(topic.topic, partition)] = member.member_id

    def renamed(self, old: str, new: str) -> None:
        """Replace a static member's id."""
        for partition, owner in self._owners.items():
            if owner == old:
                self._owners[partition] = new
