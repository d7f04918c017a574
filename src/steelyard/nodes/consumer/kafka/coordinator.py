"""Finds the broker that coordinates the group.

Source: AbstractCoordinator.java (FindCoordinator), KIP-699.
"""

from __future__ import annotations

import msgspec

from steelyard.config import KafkaConsumerConfig
from steelyard.errors import KafkaError, SteelyardError
from steelyard.nodes.calls.kafka import KafkaCalls, Lane
from steelyard.nodes.consumer.kafka.backoff import Backoff
from steelyard.nodes.consumer.kafka.metadata import Metadata
from steelyard.nodes.seam import Address, Effect
from steelyard.types import Random
from steelyard.wire.kafka.errors import ErrorCode, code_name
from steelyard.wire.kafka.messages.cluster import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP = "group"
"""The lane for requests to the group's coordinator."""


class CoordinatorAsked(msgspec.Struct, frozen=True):
    """Purpose of a FindCoordinator request."""


class CoordinatorSearch:
    """Finds the coordinator while none is known, once `wanted`."""

    def __init__(
        self,
        config: KafkaConsumerConfig,
        calls: KafkaCalls[object],
        metadata: Metadata,
        random: Random,
    ) -> None:
        self.address: Address | None = None
        self.wanted = False
        self.refused: KafkaError | None = None
        """The brokers' reason why there is none; no search until `search_again`."""
        self._config = config
        self._calls = calls
        self._metadata = metadata
        self._asking = False
        self._retry_at = 0
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)

    @property
    def lane(self) -> Lane | None:
        return None if self.address is None else Lane(self.address, GROUP)

    @property
    def due(self) -> int | None:
        """Return when to call `act` again."""
        searches = self.wanted and self.address is None and not self._asking
        return self._retry_at if searches and self.refused is None else None

    def lost(self, now: int) -> None:
        """Search again: it is not the coordinator, or cannot be reached."""
        if self.address is not None:
            self.address = None
            self._retry_at = now + self._backoff.next_ms()

    def search_again(self, now: int) -> None:
        """Search again after a delay: the application was told why there is no coordinator.

        The error is raised once (AbstractCoordinator: fatalFindCoordinatorException).
        """
        self.refused = None
        self._retry_at = now + self._backoff.next_ms()

    def act(self, now: int, effects: list[Effect]) -> None:
        due = self.due
        if due is None or now < due:
            return
        self._asking = True
        group = self._config.group_id
        request = FindCoordinatorRequest(group, 0, (group,))
        self._calls.call(
            self._metadata.any_broker(),
            FIND_COORDINATOR,
            request,
            CoordinatorAsked(),
            now,
            self._config.request_timeout_ms,
            effects,
        )

    def answered(self, reply: FindCoordinatorResponse | SteelyardError, now: int) -> None:
        self._asking = False
        if isinstance(reply, KafkaError):
            self.refused = reply
            return
        if isinstance(reply, SteelyardError):
            self._retry_at = now + self._backoff.next_ms()
            return
        found = reply.coordinators[0] if reply.coordinators else _alone(reply)
        if found.error_code == ErrorCode.NONE:
            self.address = f"{found.host}:{found.port}"
            self._backoff.reset()
        elif found.error_code in (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ):
            self._retry_at = now + self._backoff.next_ms()
        else:
            text = f"no coordinator for group {self._config.group_id}"
            name = found.error_message or code_name(found.error_code)
            self.refused = KafkaError(found.error_code, f"{text}: {name}")


def _alone(reply: FindCoordinatorResponse) -> Coordinator:
    """Return the only coordinator of a response before version 4."""
    return Coordinator(
        "", reply.node_id, reply.host, reply.port, reply.error_code, reply.error_message
    )
