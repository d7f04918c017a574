"""Creates the internal topics of Kafka Streams groups, which their applications do not create.

The controller creates them, as for CreateTopics. What failed is told in the status of heartbeats
for two heartbeat intervals; until then nobody tries again. Whoever sent the heartbeat needs the
right to create the topics.
Source: core/kafka/server/KafkaApis.scala handleStreamsGroupHeartbeat,
AutoTopicCreationManager.scala createStreamsInternalTopics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from steelyard.groups.kafka.streams.configuration import InternalTopic, StreamsStatus
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.forwarding import Forwarding
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest
from steelyard.nodes.broker.kafka.topics.creating import Creating
from steelyard.nodes.seam import Effect
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode, code_name
from steelyard.wire.kafka.messages.streams_groups import Status, StreamsGroupHeartbeatResponse
from steelyard.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

FAILURES_MAX = 1_000
"""Most topics of which it is remembered why they could not be created."""

TOLD_MAX = 3
"""Most of them in one status."""

CREATING_MS = 500
"""The interval that members are told while their topics are being created."""

CREATED_MAX = 100
"""Most topics that are created at a time; others follow with later heartbeats."""

CHARACTERS_MAX = 1_000
"""Most characters of topics' names in one status."""

TIMEOUT_MS = 30_000

_FINE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

MayCreate = Callable[[OpenRequest, str], bool]
"""Whether the sender of a request may create a topic of this name."""


class InternalTopics:
    """The creation of internal topics; see the module docstring."""

    def __init__(
        self,
        cluster: Cluster,
        creating: Creating,
        forwarding: Forwarding,
        may_create: MayCreate | None,
    ) -> None:
        """`may_create`: None if everybody may."""
        self._cluster = cluster
        self._creating = creating
        self._forwarding = forwarding
        self._may_create = may_create
        self._under_way: set[str] = set()
        self._failures: dict[str, tuple[int, str]] = {}
        """By topic: until when it is not tried again, in ms, and why it failed."""

    def create(
        self,
        call: OpenRequest,
        missing: Mapping[str, InternalTopic],
        response: StreamsGroupHeartbeatResponse,
        usual_ms: int,
        now: int,
        effects: list[Effect],
    ) -> StreamsGroupHeartbeatResponse:
        """Have the missing topics of a group created; return the response that says what failed.

        `usual_ms`: the heartbeat interval of the group.
        """
        if not missing:
            return response
        denied = [name for name in missing if self._may_create and not self._may_create(call, name)]
        if denied:
            names = ", ".join(denied)[:CHARACTERS_MAX]
            return _told(response, f"Unauthorized to CREATE on topics {names}.")
        self._forget(now)
        wanted = [
            topic
            for name, topic in missing.items()
            if name not in self._under_way and name not in self._failures
        ]
        if wanted:
            self._send(wanted[:CREATED_MAX], 2 * usual_ms, now, effects)
        failed = [name for name in missing if name in self._failures]
        if failed:
            return _told(response, self._failure_text(failed))
        return replace(
            response, heartbeat_interval_ms=min(CREATING_MS, response.heartbeat_interval_ms)
        )

    def _forget(self, now: int) -> None:
        for name, (until, _) in list(self._failures.items()):
            if until <= now:
                del self._failures[name]

    def _failure_text(self, failed: Sequence[str]) -> str:
        told = ", ".join(f"{name} ({self._failures[name][1]})" for name in failed[:TOLD_MAX])
        more = len(failed) - TOLD_MAX
        return f"Creation failed: {told}{f' and {more} more' if more > 0 else ''}."

    # -- creation --------------------------------------------------------------------------------

    def _send(
        self, topics: Sequence[InternalTopic], keep_ms: int, now: int, effects: list[Effect]
    ) -> None:
        """Have topics created by the controller. `keep_ms`: how long a failure is remembered."""
        names = [topic.name for topic in topics]
        self._under_way.update(names)
        message = CreateTopicsRequest([_creatable(topic) for topic in topics], TIMEOUT_MS)
        if self._cluster.is_controller:
            then = partial(self._ended, names, keep_ms)
            self._creating.create(message, then, now, effects)
        elif not self._forwarding.send(
            self._cluster.controller,
            message,
            partial(self._answered, names, keep_ms),
            now,
            effects,
        ):
            self._answered(names, keep_ms, None, now, effects)

    def _answered(
        self,
        names: Collection[str],
        keep_ms: int,
        answer: ApiMessage | None,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Take the controller's answer; None without one."""
        if isinstance(answer, CreateTopicsResponse):
            results = answer.topics
        else:
            text = "the controller did not answer"
            results = [
                CreatableTopicResult(name, error_code=ErrorCode.NOT_CONTROLLER, error_message=text)
                for name in names
            ]
        self._ended(names, keep_ms, results, now, effects)

    def _ended(
        self,
        names: Collection[str],
        keep_ms: int,
        results: Sequence[CreatableTopicResult],
        now: int,
        effects: list[Effect],
    ) -> None:
        self._under_way.difference_update(names)
        failed = [result.name for result in results if result.error_code not in _FINE]
        for result in results:
            if result.name in failed:
                text = result.error_message or code_name(result.error_code)
                self._failures.pop(result.name, None)
                self._failures[result.name] = now + keep_ms, text
        if failed:
            line = f"internal topics of a streams group: {self._failure_text(failed)}"
            effects.append(LogLine("WARNING", line))
        for name in list(self._failures)[:-FAILURES_MAX]:
            del self._failures[name]


def _creatable(topic: InternalTopic) -> CreatableTopic:
    configs = [CreatableTopicConfig(key, value) for key, value in topic.settings.items()]
    return CreatableTopic(topic.name, topic.partitions, topic.replication_factor, (), configs)


def _told(response: StreamsGroupHeartbeatResponse, text: str) -> StreamsGroupHeartbeatResponse:
    """Add what went wrong to the status that says which topics are missing."""
    return replace(
        response,
        status=[
            Status(each.status_code, f"{each.status_detail}; {text}")
            if each.status_code == StreamsStatus.MISSING_INTERNAL_TOPICS
            else each
            for each in response.status or ()
        ],
    )
