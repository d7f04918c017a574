"""61 DescribeProducers, version 0: a partition's idempotent producers and their transactions.

Source: core/kafka/server/KafkaApis.handleDescribeProducersRequest, UnifiedLog.activeProducers.
"""

from __future__ import annotations

from steelyard.errors import StorageError
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.data.partitions import Partitions
from steelyard.nodes.broker.kafka.data.producer_states import ProducerStateEntry
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.logs import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from steelyard.wire.kafka.schema import ApiMessage


class DescribeProducers:
    """The handler of DescribeProducers."""

    def __init__(self, partitions: Partitions, producers: Producers, faults: Faults) -> None:
        self._partitions = partitions
        self._producers = producers
        self._faults = faults

    @serves(DescribeProducersRequest)
    def describe(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(DescribeProducersRequest)
        topics = [
            TopicResponse(
                topic.name,
                [self._one(topic.name, index, now, effects) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
        return DescribeProducersResponse(0, topics)

    def _one(self, topic: str, index: int, now: int, effects: list[Effect]) -> PartitionResponse:
        place = self._partitions.find(topic, index)
        if place.read_fault:
            return PartitionResponse(index, place.read_fault, place.read_fault.name)
        if place.log is None:
            return PartitionResponse(index)
        try:
            active = self._producers.active(place.log, now)
        except StorageError as error:
            self._faults.tell(f"{topic}-{index} was not read: {error}", now, effects)
            return PartitionResponse(index, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return PartitionResponse(index, 0, None, [_state(producer) for producer in active])


def _state(producer: ProducerStateEntry) -> ProducerState:
    return ProducerState(
        producer.producer_id,
        producer.epoch,
        producer.last_sequence,
        producer.timestamp,
        producer.coordinator_epoch,
        -1 if producer.open_from is None else producer.open_from,
    )
