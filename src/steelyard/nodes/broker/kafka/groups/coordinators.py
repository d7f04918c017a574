"""10 FindCoordinator, versions 0-6: which broker coordinates a group or a transactional id.

It is the leader of the partition of __consumer_offsets or __transaction_state that the name maps
to. These topics are laid out over all brokers of the cluster, once and for all, when a client asks
and all brokers are up (`membership`). Until then, and while the coordinator is down, the answer is
COORDINATOR_NOT_AVAILABLE, and clients ask again. Share groups are not supported.
Source: core/kafka/server/KafkaApis.scala getCoordinator.
"""

from __future__ import annotations

from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.cluster.changes import Changes, Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Broker, Cluster
from steelyard.nodes.broker.kafka.cluster.forwarding import Forwarding
from steelyard.nodes.broker.kafka.cluster.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

BATCH_VERSION = 4
"""First version whose requests name several groups or ids."""

_DOWN = "The coordinator is down."

TELL_INTERVAL_MS = 60_000
"""Pause between two warnings that there are no coordinators yet."""

_TOPICS = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
"""By type of key."""


class Coordinators:
    """The handler of FindCoordinator."""

    def __init__(
        self, cluster: Cluster, changes: Changes, durability: Durability, forwarding: Forwarding
    ) -> None:
        self._durability = durability
        self._cluster = cluster
        self._changes = changes
        self._forwarding = forwarding
        self._tell_from: dict[str, int] = {}
        """By topic: from when on to warn again that it is not laid out."""
        forwarding.serve(FIND_COORDINATOR.key, self.find)

    @serves(FindCoordinatorRequest)
    def find(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        message = call.read(FindCoordinatorRequest)
        topic = _TOPICS.get(message.key_type)
        if topic is None or self._cluster.topic(topic) is not None:
            return self._answer(message, call.version)
        if self._forwarding.forward(call, self._as_known, now, effects):
            return None

        def then(faults: Faults, now: int, effects: list[Effect]) -> None:
            reason = _DOWN
            if topic in faults:
                reason = faults[topic][1]
                self._tell(topic, reason, now, effects)
            self._durability.answer(call, self._answer(message, call.version, reason), effects)

        self._changes.put([self._changes.plans.new_topic(topic)], then, now, effects)
        return None

    def _tell(self, topic: str, reason: str, now: int, effects: list[Effect]) -> None:
        if now < self._tell_from.get(topic, now):
            return
        self._tell_from[topic] = now + TELL_INTERVAL_MS
        what = "groups" if topic == OFFSETS_TOPIC else "transactions"
        text = (
            f"{what} have no coordinator yet: {reason.removesuffix('.')}. Their clients wait. Start"
            " the missing brokers; if some are gone for good, start the others with"
            " --kafka-brokers and the names of those that remain"
        )
        effects.append(LogLine("WARNING", text))

    def _as_known(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        """Answer with what this broker knows."""
        message = call.read(FindCoordinatorRequest)
        return self._answer(message, call.version)

    def _answer(
        self, message: FindCoordinatorRequest, version: int, reason: str = _DOWN
    ) -> FindCoordinatorResponse:
        """Return the answer. `reason`: why there is no coordinator, if there is none."""
        if version >= BATCH_VERSION:
            found = [self._find(message.key_type, key, reason) for key in message.coordinator_keys]
            return FindCoordinatorResponse(coordinators=found)
        one = self._find(message.key_type, message.key, reason)
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )

    def _find(self, key_type: int, key: str, reason: str) -> Coordinator:
        topic = _TOPICS.get(key_type)
        if topic is None:
            return _nobody(key, ErrorCode.INVALID_REQUEST, f"no coordinators of type {key_type}")
        broker = self._broker(key, topic)
        if broker is None:
            return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
        return Coordinator(key, broker.node_id, broker.host, broker.port, 0, None)

    def _broker(self, key: str, topic: str) -> Broker | None:
        node_id = self._cluster.coordinator_of(key, topic)
        return None if node_id is None else self._cluster.live(node_id)


def _nobody(key: str, error: ErrorCode, text: str) -> Coordinator:
    return Coordinator(key, -1, "", -1, error, text)
