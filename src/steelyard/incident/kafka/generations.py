"""The generations of a group: who was in it and had which partitions, from when on.

A classic group has one record for each generation, written when its leader has assigned. A KIP-848
group has records for each member as it gives up and gets partitions; a generation is a group epoch
there. Topic ids become names with the help of `OffsetsTopic.topics`, or of the only topic that the
member subscribes to; else the id stands for the name, in hex.
Source: GroupMetadataValue.json, GroupCoordinatorRecordHelpers.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from steelyard.errors import ProtocolError
from steelyard.incident.kafka.offsets_topic import GroupHistory, GroupRecord
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.consumer_protocol import read_assignment
from steelyard.wire.kafka.messages.coordinator_records import (
    CONSUMER_GROUP_CURRENT,
    CONSUMER_GROUP_MEMBER_METADATA,
    CONSUMER_GROUP_METADATA,
    GROUP_METADATA,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    CurrentPartitions,
    GroupMetadataValue,
    MemberKey,
    MemberMetadata,
)

Partitions = frozenset[TopicPartition]


class GenerationMember(msgspec.Struct, frozen=True):
    """A member in a generation.

    `session_ms`: after how long without a heartbeat it is out, None if the records do not say;
    `poll_ms`: how long its application may take between two polls (max.poll.interval.ms).
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    session_ms: int | None
    poll_ms: int
    partitions: Partitions


class Generation(msgspec.Struct, frozen=True):
    """A generation. Times in ms since the epoch.

    `began`: when the rebalance that led to it began, None if the records do not say; `at`: when it
    was recorded; `ended`: when the last member got its share; `got`: when partitions came to their
    owners, if not all at `at`; `has_new_coordinator`: it is no new one, but goes on from `at` on
    under another coordinator, or the same one restarted.
    """

    number: int
    began: int | None
    at: int
    ended: int
    members: Mapping[str, GenerationMember]
    got: Mapping[TopicPartition, int] = {}
    has_new_coordinator: bool = False

    @property
    def is_first(self) -> bool:
        """Return whether the group began with it. KIP-848 groups begin with epoch 1 or 2."""
        return self.number == 1 or (self.number == 2 and self.began is not None)

    @property
    def owners(self) -> dict[TopicPartition, str]:
        """Return the member id of the owner of each partition."""
        return {place: one.member_id for one in self.members.values() for place in one.partitions}

    def since(self, place: TopicPartition) -> int:
        """Return when the partition came to its owner."""
        return self.got.get(place, self.at)


def generations(history: GroupHistory, topics: Mapping[bytes, str]) -> list[Generation]:
    """Return the generations of a group, in order. `topics`: names of topics by id."""
    records = history.records
    classic = [_classic(one) for one in records if one.type == GROUP_METADATA.number]
    modern = _Modern(topics).read(
        [one for one in records if one.type in _MODERN_TYPES] if records else []
    )
    found = [*classic, *modern]
    found.sort(key=lambda one: one.at)
    return [one for number, one in enumerate(found) if not _is_repeated(found, number)]


_MODERN_TYPES = {
    kind.number
    for kind in (CONSUMER_GROUP_METADATA, CONSUMER_GROUP_MEMBER_METADATA, CONSUMER_GROUP_CURRENT)
}


def _is_repeated(found: Sequence[Generation], number: int) -> bool:
    """Return whether a generation says what the one before it says, as after a compaction."""
    if not number:
        return False
    one, before = found[number], found[number - 1]
    return one.number == before.number and one.members == before.members


# -- classic groups --------------------------------------------------------------------------------


def _classic(record: GroupRecord) -> Generation:
    value = record.value
    if not isinstance(value, GroupMetadataValue):
        return Generation(-1, None, record.at, record.at, {})
    members = {one.member_id: _classic_member(one) for one in value.members}
    return Generation(value.generation, None, record.at, record.at, members)


def _classic_member(member: MemberMetadata) -> GenerationMember:
    try:
        assigned = read_assignment(member.assignment).assigned_partitions
    except ProtocolError:
        assigned = ()  # a group of another protocol, e.g. of Kafka Connect
    partitions = frozenset(
        TopicPartition(one.topic, number) for one in assigned for number in one.partitions
    )
    return GenerationMember(
        member.member_id,
        member.client_id,
        member.client_host,
        member.group_instance_id,
        member.session_timeout,
        member.rebalance_timeout if member.rebalance_timeout >= 0 else member.session_timeout,
        partitions,
    )


# -- KIP-848 groups --------------------------------------------------------------------------------


class _Modern:
    """Follows the records of a KIP-848 group."""

    def __init__(self, topics: Mapping[bytes, str]) -> None:
        self._topics = topics
        self._members: dict[str, ConsumerGroupMemberMetadataValue] = {}
        self._held: dict[str, Partitions] = {}

    def read(self, records: Sequence[GroupRecord]) -> Iterator[Generation]:
        """Yield a generation for each epoch, and for each static member that came back.

        The records of one request have the same time; that of the epoch is not the first of them.
        """
        epoch: tuple[int, int] | None = None
        got: dict[TopicPartition, int] = {}
        ended = 0
        for at, together in groupby(records, key=lambda one: one.at):
            step = sorted(together, key=lambda one: one.type != CONSUMER_GROUP_METADATA.number)
            if epoch is not None and self._is_replaced(step):
                yield self._generation(epoch, ended, got)
                epoch, got, ended = (epoch[0], at), {}, at
            for record in step:
                if record.type == CONSUMER_GROUP_METADATA.number:
                    value = record.value
                    number = value.epoch if isinstance(value, ConsumerGroupMetadataValue) else -1
                    if epoch is not None and epoch[0] == number:
                        continue  # Steelyard repeats it with the target, if that comes later
                    if epoch is not None:
                        yield self._generation(epoch, ended, got)
                    epoch, got, ended = (number, at), {}, at
                elif isinstance(record.key, MemberKey):
                    before = self._held.get(record.key.member_id, frozenset())
                    self._take(record.key.member_id, record)
                    now = self._held.get(record.key.member_id, frozenset())
                    got.update(dict.fromkeys(now - before, at))
                    if now != before:
                        ended = at
        if epoch is not None:
            yield self._generation(epoch, ended, got)

    def _is_replaced(self, step: Sequence[GroupRecord]) -> bool:
        """Return whether a static member came back with another id: there is no new epoch then."""
        gone, new = set(), set()
        for record in step:
            if record.type == CONSUMER_GROUP_METADATA.number:
                return False
            if isinstance(record.key, MemberKey):
                known = self._members.get(record.key.member_id)
                if isinstance(record.value, ConsumerGroupMemberMetadataValue) and known is None:
                    new.add(record.value.instance_id)
                elif record.value is None and known is not None:
                    gone.add(known.instance_id)
        return bool((gone & new) - {None})

    def _take(self, member_id: str, record: GroupRecord) -> None:
        match record.value:
            case ConsumerGroupMemberMetadataValue() as subscribed:
                self._members[member_id] = subscribed
            case ConsumerGroupCurrentMemberAssignmentValue() as current:
                self._held[member_id] = frozenset(
                    self._names(member_id, current.assigned_partitions)
                )
            case None if record.type == CONSUMER_GROUP_CURRENT.number:
                self._held.pop(member_id, None)
            case None:
                self._members.pop(member_id, None)

    def _names(self, member_id: str, held: Iterable[CurrentPartitions]) -> Iterator[TopicPartition]:
        subscribed = self._members.get(member_id)
        only = () if subscribed is None else subscribed.subscribed_topic_names
        for each in held:
            name = self._topics.get(each.topic_id)
            if name is None:
                name = only[0] if len(only) == 1 else each.topic_id.hex()
            for number in each.partitions:
                yield TopicPartition(name, number)

    def _generation(
        self, epoch: tuple[int, int], ended: int, got: Mapping[TopicPartition, int]
    ) -> Generation:
        number, at = epoch
        members = {
            member_id: GenerationMember(
                member_id,
                one.client_id,
                one.client_host,
                one.instance_id,
                None,
                one.rebalance_timeout_ms,
                self._held.get(member_id, frozenset()),
            )
            for member_id, one in self._members.items()
        }
        return Generation(number, at, at, ended, members, dict(got))
