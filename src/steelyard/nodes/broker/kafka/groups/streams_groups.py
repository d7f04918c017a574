"""88 StreamsGroupHeartbeat (version 0) and 89 StreamsGroupDescribe (0), of KIP-1071.

`groups.kafka.streams` decides what a heartbeat does. This module adds whether the broker
coordinates the group, whether topics may have the names that the topology gives them, the creation
of internal topics (`internal_topics`), what happens if storage fails (COORDINATOR_NOT_AVAILABLE,
and clients retry), and the timer.
Source: core/kafka/server/KafkaApis.scala handleStreamsGroupHeartbeat, handleStreamsGroupDescribe.
"""

from __future__ import annotations

from steelyard.errors import StorageError
from steelyard.groups.kafka import effects as done
from steelyard.groups.kafka.streams.groups import StreamsGroups, StreamsHeartbeat
from steelyard.groups.kafka.streams.topology import topics_of
from steelyard.groups.kafka.times import GroupTimes
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.topic import FIXED
from steelyard.nodes.broker.kafka.cluster.topic_names import form_fault
from steelyard.nodes.broker.kafka.groups.descriptions import descriptions
from steelyard.nodes.broker.kafka.groups.internal_topics import InternalTopics
from steelyard.nodes.broker.kafka.groups.late import LateGroupCalls, Report
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.streams_groups import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

CHARACTERS_MAX = 1_000
"""Most characters of topics' names in an error message."""


class StreamsGroupCalls(LateGroupCalls):
    """Handlers of StreamsGroupHeartbeat and StreamsGroupDescribe."""

    def __init__(
        self,
        groups: StreamsGroups,
        internal_topics: InternalTopics,
        times: GroupTimes,
        cluster: Cluster,
        durability: Durability,
        report: Report,
        faults: Faults,
    ) -> None:
        super().__init__(groups, cluster, report, faults)
        self._groups = groups
        self._internal_topics = internal_topics
        self._times = times
        self._durability = durability

    @serves(StreamsGroupHeartbeatRequest)
    def heartbeat(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(StreamsGroupHeartbeatRequest)
        fault = self._fault(request.group_id)
        if fault is not ErrorCode.NONE:
            return StreamsGroupHeartbeatResponse(error_code=fault)
        text = self._topics_fault(request)
        if text is not None:
            code = ErrorCode.STREAMS_INVALID_TOPOLOGY
            return StreamsGroupHeartbeatResponse(error_code=code, error_message=text)
        happened: done.Effects = []
        result: StreamsHeartbeat | None
        try:
            result = self._groups.heartbeat(request, call.asker, now, happened, call)
        except StorageError as error:
            self._faults.tell(f"group {request.group_id} cannot be stored: {error}", now, effects)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            result = StreamsHeartbeat(StreamsGroupHeartbeatResponse(error_code=code))
        self._groups.wake(now, happened)
        self._report(happened, now, effects)
        if result is None:
            return None
        usual_ms = self._times.heartbeat_interval_ms(request.group_id)
        response = self._internal_topics.create(
            call, result.missing, result.response, usual_ms, now, effects
        )
        return self._durability.acknowledge_call(call, response, effects)

    def _topics_fault(self, request: StreamsGroupHeartbeatRequest) -> str | None:
        """Return why the topics of a topology cannot be used; None if they can."""
        if request.topology is None:
            return None
        topics = dict.fromkeys(
            topic for each in request.topology.subtopologies for topic in topics_of(each)
        )
        prohibited = [
            topic for topic in topics if topic in FIXED or self._cluster.is_reserved(topic)
        ]
        if prohibited:
            return (
                f"Use of Kafka internal topics {_listed(prohibited)} in a Kafka Streams topology is"
                " prohibited."
            )
        invalid = [topic for topic in topics if form_fault(topic) is not None]
        if invalid:
            return f"Topic names {_listed(invalid)} are not valid topic names."
        return None

    @serves(StreamsGroupDescribeRequest)
    def describe(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        request = call.read(StreamsGroupDescribeRequest)
        fault, describe = self._fault, self._groups.describe
        groups = descriptions(request, DescribedGroup, fault, describe)
        return StreamsGroupDescribeResponse(groups=groups)

    def check(self) -> None:
        self._groups.check()


def _listed(topics: list[str]) -> str:
    return ",".join(topics)[:CHARACTERS_MAX]
