"""20 DeleteTopics, versions 1-6: deletes topics by name or, from version 6, by id.

A topic is deleted on all live brokers, with its records, its committed offsets in both dialects,
and its settings. Internal topics are refused. `timeout_ms` is ignored.
Source: core/kafka/server/ControllerApis.scala deleteTopics.
"""

from __future__ import annotations

from collections import Counter

from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.cluster.changes import Changes, Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from steelyard.wire.kafka.schema import NO_ID, ApiMessage


class Deleting:
    """The handler of DeleteTopics."""

    def __init__(self, cluster: Cluster, changes: Changes, durability: Durability) -> None:
        self._durability = durability
        self._cluster = cluster
        self._changes = changes

    @serves(DeleteTopicsRequest)
    def delete_topics(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage | None:
        message = call.read(DeleteTopicsRequest)
        states = message.topics or [DeleteTopicState(name) for name in message.topic_names]
        times = Counter((state.name, state.topic_id) for state in states)
        named = Counter(self._name(state) for state in states)
        results: list[DeletableTopicResult] = []
        planned: list[str] = []
        for state in dict.fromkeys(states):
            try:
                if times[state.name, state.topic_id] > 1 or named[self._name(state)] > 1:
                    what = "name" if state.topic_id == NO_ID else "id"
                    raise RequestRefused(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
                planned.append(self._planned(state))
            except RequestRefused as error:
                results.append(
                    DeletableTopicResult(state.name, state.topic_id, error.code, error.text)
                )
        ids = {name: self._cluster.id_of(name) for name in planned}

        def then(faults: Faults, now: int, effects: list[Effect]) -> None:
            for name, topic_id in ids.items():
                code, text = faults.get(name, (ErrorCode.NONE, None))
                results.append(DeletableTopicResult(name, topic_id, code, text))
            self._durability.answer(call, DeleteTopicsResponse(responses=results), effects)

        self._changes.delete(planned, then, now, effects)
        return None

    def _name(self, state: DeleteTopicState) -> str | bytes:
        """Return a topic's name, to detect duplicates; an unknown id stands for itself."""
        if state.name is not None:
            return state.name
        return self._cluster.name_of(state.topic_id) or state.topic_id

    def _planned(self, state: DeleteTopicState) -> str:
        """Return the name of the topic to delete. Raises RequestRefused."""
        name = state.name
        if name is None:
            if state.topic_id == NO_ID:
                text = "Neither topic name nor id were specified."
                raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
            name = self._cluster.name_of(state.topic_id)
            if name is None:
                text = "This server does not host this topic ID."
                raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_ID, text)
        elif state.topic_id != NO_ID:
            text = "You may not specify both topic name and topic id."
            raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
        topic = self._cluster.topic(name)
        if topic is None:
            text = "This server does not host this topic-partition."
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        if topic.is_internal:
            raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is internal.")
        return name
