"""90 DescribeShareGroupOffsets (versions 0-1), 91 AlterShareGroupOffsets (0), and 92 (0).

92 is DeleteShareGroupOffsets (KIP-932); DeleteGroups uses its means (`group_deletion`).

The coordinator of the group is asked, and asks the brokers that lead the partitions
(`other_leaders`). Requests that come from it are answered with what this broker leads. Offsets are
altered and deleted while the group has no members. A group is deleted only while all brokers of the
cluster are up: otherwise one of them would keep its offsets for the next group of this name.
Source: core/kafka/server/KafkaApis.scala, GroupCoordinatorService.java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from steelyard.errors import StorageError
from steelyard.groups.kafka.share.groups import ShareGroups, ShareRefused
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.forwarding import ForwardedCall
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.shares.local_offsets import UNINITIALIZED, LocalShareOffsets
from steelyard.nodes.broker.kafka.shares.other_leaders import OtherLeaders
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from steelyard.wire.kafka.schema import ApiMessage

Deleted = Callable[[ErrorCode, int, list[Effect]], None]
"""(what is wrong, now, effects to add to)."""

_NOT_EMPTY = "The group is not empty."


class ShareOffsets:
    """The handlers of these requests; see the module docstring."""

    def __init__(
        self,
        groups: ShareGroups,
        local: LocalShareOffsets,
        others: OtherLeaders,
        cluster: Cluster,
        durability: Durability,
        faults: Faults,
    ) -> None:
        self._groups = groups
        self._local = local
        self._others = others
        self._cluster = cluster
        self._durability = durability
        self._faults = faults

    # -- describing ------------------------------------------------------------------------------

    @serves(DescribeShareGroupOffsetsRequest)
    def describe(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(DescribeShareGroupOffsetsRequest)
        if isinstance(call, ForwardedCall):
            found = [
                DescribeShareGroupOffsetsResponseGroup(asked.group_id, self._local.describe(asked))
                for asked in request.groups
            ]
            return DescribeShareGroupOffsetsResponse(groups=found)
        refused: dict[str, ErrorCode] = {}
        for asked in request.groups:
            error = self._cluster.coordinator_fault(asked.group_id)
            if error is not ErrorCode.NONE:
                refused[asked.group_id] = error
        asked_of_all = [asked for asked in request.groups if asked.group_id not in refused]

        def answer(answers: list[ApiMessage | None], now: int, effects: list[Effect]) -> None:
            told: dict[str, list[DescribeShareGroupOffsetsResponseTopic]] = {}
            for each in answers:
                if isinstance(each, DescribeShareGroupOffsetsResponse):
                    for group in each.groups:
                        told.setdefault(group.group_id, []).extend(group.topics)
            if None in answers:
                for asked in asked_of_all:
                    refused[asked.group_id] = ErrorCode.COORDINATOR_NOT_AVAILABLE
            groups = [
                self._described(asked, refused, told.get(asked.group_id, []))
                for asked in request.groups
            ]
            call.answer(DescribeShareGroupOffsetsResponse(groups=groups), effects)

        message = DescribeShareGroupOffsetsRequest(asked_of_all)
        if asked_of_all:
            self._others.ask(message, answer, now, effects)
        else:
            answer([], now, effects)
        return None

    def _described(
        self,
        asked: DescribeShareGroupOffsetsRequestGroup,
        refused: dict[str, ErrorCode],
        told: Sequence[DescribeShareGroupOffsetsResponseTopic],
    ) -> DescribeShareGroupOffsetsResponseGroup:
        """Return one group: what is here, what others told, and what the group has not begun."""
        error = refused.get(asked.group_id, ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            return DescribeShareGroupOffsetsResponseGroup(asked.group_id, error_code=error)
        found: dict[str, dict[int, DescribeShareGroupOffsetsResponsePartition]] = {}
        for topic in (*self._local.describe(asked), *told):
            parts = found.setdefault(topic.topic_name, {})
            parts.update((part.partition_index, part) for part in topic.partitions)
        for wanted in asked.topics or ():
            parts = found.setdefault(wanted.topic_name, {})
            for index in wanted.partitions:
                nothing = DescribeShareGroupOffsetsResponsePartition(index, UNINITIALIZED)
                parts.setdefault(index, nothing)
        topics = [
            DescribeShareGroupOffsetsResponseTopic(
                topic, self._cluster.id_of(topic), [parts[index] for index in sorted(parts)]
            )
            for topic, parts in sorted(found.items())
        ]
        return DescribeShareGroupOffsetsResponseGroup(asked.group_id, topics)

    # -- altering --------------------------------------------------------------------------------

    @serves(AlterShareGroupOffsetsRequest)
    def alter(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(AlterShareGroupOffsetsRequest)
        if isinstance(call, ForwardedCall):
            message = AlterShareGroupOffsetsResponse(responses=self._local.alter(request))
            return self._durability.acknowledge_call(call, message, effects)
        error, text = self._fault(request.group_id, creates=True)
        if error is not ErrorCode.NONE:
            return AlterShareGroupOffsetsResponse(0, error, text)

        def answer(answers: list[ApiMessage | None], now: int, effects: list[Effect]) -> None:
            told = [*self._local.alter(request)]
            for each in answers:
                if isinstance(each, AlterShareGroupOffsetsResponse):
                    told += each.responses
            responses = self._altered(request, told)
            message = AlterShareGroupOffsetsResponse(responses=responses)
            self._durability.answer(call, message, effects)

        self._others.ask(request, answer, now, effects)
        return None

    def _altered(
        self,
        request: AlterShareGroupOffsetsRequest,
        told: Sequence[AlterShareGroupOffsetsResponseTopic],
    ) -> list[AlterShareGroupOffsetsResponseTopic]:
        """Return the outcome for every partition; those that nobody leads now have an error."""
        found = {
            (topic.topic_name, part.partition_index): part
            for topic in told
            for part in topic.partitions
        }
        responses = []
        for topic in request.topics:
            name = topic.topic_name
            parts = []
            for asked in topic.partitions:
                index = asked.partition_index
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
                if not 0 <= index < self._cluster.partitions(name):
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                outcome = AlterShareGroupOffsetsResponsePartition(index, error)
                parts.append(found.get((name, index), outcome))
            topic_id = self._cluster.id_of(name)
            responses.append(AlterShareGroupOffsetsResponseTopic(name, topic_id, parts))
        return responses

    # -- deleting --------------------------------------------------------------------------------

    @serves(DeleteShareGroupOffsetsRequest)
    def delete(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(DeleteShareGroupOffsetsRequest)
        names = [topic.topic_name for topic in request.topics]
        if isinstance(call, ForwardedCall):  # without topics: of the whole group
            topics = self._local.delete(request.group_id, names or None)
            message = DeleteShareGroupOffsetsResponse(responses=topics)
            return self._durability.acknowledge_call(call, message, effects)
        error, text = self._fault(request.group_id)
        if error is not ErrorCode.NONE or not names:
            return DeleteShareGroupOffsetsResponse(0, error, text)
        if not self._others.is_whole:
            return DeleteShareGroupOffsetsResponse(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)

        def answer(answers: list[ApiMessage | None], now: int, effects: list[Effect]) -> None:
            told = self._local.delete(request.group_id, names)
            error = self._gathered(answers, told)
            message = DeleteShareGroupOffsetsResponse(0, error)
            if error is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                responses = [self._deleted(name, told) for name in names]
                message = DeleteShareGroupOffsetsResponse(responses=responses)
            self._durability.answer(call, message, effects)

        self._others.ask(request, answer, now, effects)
        return None

    def _deleted(
        self, name: str, told: Sequence[DeleteShareGroupOffsetsResponseTopic]
    ) -> DeleteShareGroupOffsetsResponseTopic:
        """Return the outcome for one topic."""
        found = [topic for topic in told if topic.topic_name == name]
        faulty = next((topic for topic in found if topic.error_code), None)
        if found:
            return faulty or found[0]
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        text = "This server does not host this topic-partition."
        if self._cluster.partitions(name):
            text = "There is no offset information to delete."
        return DeleteShareGroupOffsetsResponseTopic(name, self._cluster.id_of(name), code, text)

    def delete_group(self, group_id: str, then: Deleted, now: int, effects: list[Effect]) -> None:
        """Delete what all brokers know of a group's partitions, before the group is deleted."""
        error, _ = self._fault(group_id)
        if error is ErrorCode.NONE and not self._others.is_whole:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error is not ErrorCode.NONE:
            then(error, now, effects)
            return

        def deleted(answers: list[ApiMessage | None], now: int, effects: list[Effect]) -> None:
            told = self._local.delete(group_id, None)
            then(self._gathered(answers, told), now, effects)

        self._others.ask(DeleteShareGroupOffsetsRequest(group_id), deleted, now, effects)

    def _gathered(
        self,
        answers: list[ApiMessage | None],
        told: list[DeleteShareGroupOffsetsResponseTopic],
    ) -> ErrorCode:
        """Add what others told to `told`; return the first error."""
        for each in answers:
            if not isinstance(each, DeleteShareGroupOffsetsResponse):
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            told += each.responses
        errors = (ErrorCode(topic.error_code) for topic in told if topic.error_code)
        return next(errors, ErrorCode.NONE)

    # -- groups ----------------------------------------------------------------------------------

    def _fault(self, group_id: str, *, creates: bool = False) -> tuple[ErrorCode, str | None]:
        """Return why a group's offsets cannot be changed. `creates`: it need not exist."""
        error = self._cluster.coordinator_fault(group_id)
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, None
        if error is not ErrorCode.NONE:
            return error, None
        try:
            group = self._groups.get_or_new(group_id) if creates else self._groups.get(group_id)
        except ShareRefused as refusal:
            return refusal.code, refusal.text
        except StorageError as fault:
            self._faults.note(f"share group {group_id} is not stored: {fault}")
            return ErrorCode.KAFKA_STORAGE_ERROR, None
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP, _NOT_EMPTY
        return ErrorCode.NONE, None
