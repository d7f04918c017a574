"""Online migration of groups between the classic and the consumer protocol (KIP-848).

Upgrade: when a client of the consumer protocol joins a classic group of consumers, it becomes a
consumer group with the same members. They keep their partitions, and the classic protocol, which
`classic_members` serves. Members that are replaced one by one bring a whole deployment to the new
protocol, without a stop.

Downgrade: when the last member of the consumer protocol goes, and others are left, the group
becomes a classic one with their partitions, and they rebalance.

A group that migrates has two rows on the disk for a moment; the consumer group's takes precedence.
Source: GroupMetadataManager.convertToConsumerGroup, convertToClassicGroup; setting
group.consumer.migration.policy (ConsumerGroupMigrationPolicy.java).
"""

from __future__ import annotations

from steelyard.config import KafkaConfig
from steelyard.errors import ProtocolError, StorageError
from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.classic.members import ClassicGroupMember
from steelyard.groups.kafka.classic.saved import SavedGroup, SavedMember
from steelyard.groups.kafka.consumer.description import encoded_assignment
from steelyard.groups.kafka.consumer.group import ConsumerGroup
from steelyard.groups.kafka.consumer.member import (
    RECONCILIATION,
    ClassicMemberMetadata,
    ConsumerGroupMember,
    ConsumerGroupMemberState,
    Move,
)
from steelyard.groups.kafka.consumer.records import GroupRow, Stored
from steelyard.groups.kafka.consumer.requests import HeartbeatRefusal
from steelyard.groups.kafka.coordinator import Coordinator
from steelyard.groups.kafka.effects import Cause, Effects
from steelyard.groups.kafka.groups import TopicsView
from steelyard.types import LogLine, TopicPartition, numbers_by_topic
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
)
from steelyard.wire.kafka.schema import NO_ID
from steelyard.wording import counted

UPGRADES = ("bidirectional", "upgrade")
DOWNGRADES = ("bidirectional", "downgrade")
"""Values of group.consumer.migration.policy that allow it."""


class Migration:
    """Decides about migrations, and converts groups. `coordinator`: has the classic groups."""

    def __init__(self, config: KafkaConfig, topics: TopicsView, coordinator: Coordinator) -> None:
        self._config = config
        self._topics = topics
        self._coordinator = coordinator

    # -- to the consumer protocol ----------------------------------------------------------------

    def upgrade(self, old: ClassicGroup, new: ConsumerGroup) -> HeartbeatRefusal | None:
        """Fill a new consumer group with the members of a classic one, or return why not.

        The classic group stays as it is until `upgraded`.
        """
        text = self._fault(old)
        if text is None:
            try:
                new.migrate(self._stored(old))
            except ProtocolError as error:
                text = f"the metadata of its members cannot be read: {error}"
            else:
                return None
        return HeartbeatRefusal(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {old.group_id} to consumer group because {text}.",
        )

    def _fault(self, old: ClassicGroup) -> str | None:
        if self._config.group_consumer_migration_policy not in UPGRADES:
            return "online upgrades are disabled"
        if old.protocol_type != PROTOCOL_TYPE:
            return "its members are not consumers"
        if len(old.members) > self._config.group_consumer_max_size:
            return "it has too many members"
        return None

    def _stored(self, old: ClassicGroup) -> Stored:
        """Return the group as a consumer group would be stored. Raises ProtocolError.

        Source: ConsumerGroup.fromClassicGroup.
        """
        epoch = old.last_generation
        members = {
            member.member_id: self._converted(old, member, epoch) for member in old.members.values()
        }
        held = {one: numbers_by_topic(sorted(member.assigned)) for one, member in members.items()}
        topic_ids = {
            topic: self._topics.id_of(topic).hex() for topics in held.values() for topic in topics
        }
        return Stored(GroupRow(epoch, epoch, targets=held, topic_ids=topic_ids), members)

    def _converted(
        self, group: ClassicGroup, member: ClassicGroupMember, epoch: int
    ) -> ConsumerGroupMember:
        epoch = epoch if member.epoch is None else member.epoch
        # While the group rebalances, it may lack the protocol of the generation that ends. All its
        # protocols have the same subscription.
        metadata = member.protocols.get(group.protocol or "", next(iter(member.protocols.values())))
        subscription = read_subscription(metadata)
        assigned = {
            TopicPartition(topic.topic, number): epoch
            for topic in read_assignment(member.assignment).assigned_partitions
            if self._topics.id_of(topic.topic) != NO_ID
            for number in topic.partitions
        }
        return ConsumerGroupMember(
            member.member_id,
            member.instance_id,
            subscription.rack_id,
            member.client_id,
            member.host,
            member.rebalance_timeout_ms,
            tuple(sorted(set(subscription.topics))),
            epoch=epoch,
            previous_epoch=epoch,
            state=RECONCILIATION.move(None, Move.RESTORED, ConsumerGroupMemberState.STABLE),
            assigned=assigned,
            classic=ClassicMemberMetadata(
                member.session_timeout_ms, tuple(member.protocols.items())
            ),
        )

    def upgraded(self, old: ClassicGroup, effects: Effects) -> None:
        """Drop the classic group; the consumer group has been stored."""
        members = counted(len(old.members), "member")
        text = f"group {old.group_id}: upgraded from the classic protocol, with {members}"
        effects.append(LogLine("INFO", text))
        try:
            self._coordinator.hand_over(old, effects)
        except StorageError as error:
            text = f"group {old.group_id}: the classic group could not be deleted: {error}"
            effects.append(LogLine("WARNING", text))

    # -- to the classic protocol -----------------------------------------------------------------

    def downgrade(
        self, group: ConsumerGroup, leaver: str, cause: Cause, now: int, effects: Effects
    ) -> bool:
        """Make a group a classic one without `leaver`, if only members of that protocol remain.

        Return False if it remains a consumer group. Source: validateOnlineDowngradeWith...,
        ClassicGroup.fromConsumerGroup.
        """
        staying = [one for one in group.each() if one.member_id != leaver]
        leaving = group.member(leaver)
        if (
            not staying
            or leaving is None
            or leaving.classic is not None
            or any(one.classic is None for one in staying)
            or self._config.group_consumer_migration_policy not in DOWNGRADES
            or len(staying) > self._config.group_max_size
        ):
            return False
        members = tuple(_saved(group, one) for one in staying)
        common = set.intersection(*({name for name, _ in one.protocols} for one in members))
        protocol = next(name for name, _ in members[0].protocols if name in common)
        saved = SavedGroup(
            group.group_id,
            group.epoch,
            PROTOCOL_TYPE,
            now,
            protocol,
            members[0].member_id,
            members,
        )
        try:
            self._coordinator.take_over(saved, cause, now, effects)
        except StorageError as error:
            text = f"group {group.group_id}: the downgrade could not be stored: {error}"
            effects.append(LogLine("WARNING", text))
            return False
        text = f"group {group.group_id}: downgraded to the classic protocol"
        effects.append(LogLine("INFO", f"{text}, with {counted(len(members), 'member')}"))
        try:
            group.forget()
        except StorageError as error:
            text = f"group {group.group_id}: the consumer group could not be deleted: {error}"
            effects.append(LogLine("WARNING", text))
        return True


def _saved(group: ConsumerGroup, member: ConsumerGroupMember) -> SavedMember:
    """Return a member with what it may still be reading.

    Kafka gives it its part of the target assignment instead. If a member of the consumer protocol
    joins before this one has rejoined, the rest of its partitions would then have two readers.
    """
    assert member.classic is not None
    return SavedMember(
        member.member_id,
        member.client_id,
        member.host,
        member.classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.classic.protocols,
        encoded_assignment(group, member.reader.partitions, member.classic),
        member.instance_id,
        member.epoch,
    )
