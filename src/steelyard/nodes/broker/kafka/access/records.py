"""What requests for records need: Produce, ListOffsets, DeleteRecords and their like.

Source: core/kafka/server/KafkaApis.scala.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from steelyard.acl.bindings import AclOperation
from steelyard.nodes.broker.kafka.access.guard import AccessVerdict, Check
from steelyard.nodes.broker.kafka.access.verdicts import (
    TEXT,
    TOPIC,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    TRANSACTIONAL_ID,
    may_topic,
    refuse_all,
    serve_some,
)
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages import data, logs


def produce(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, data.ProduceRequest)

    def refuse(code: ErrorCode) -> Callable[[Any], data.TopicProduceResponse]:
        return lambda item: data.TopicProduceResponse(
            item.name,
            item.topic_id,
            [data.PartitionProduceResponse(each.index, code, -1) for each in item.partition_data],
        )

    transaction = message.transactional_id
    if transaction is not None and not check.needs(
        AclOperation.WRITE, TRANSACTIONAL_ID, transaction
    ):
        if message.acks == 0:
            return AccessVerdict(None, broken="acks=0 without the right to write")
        return refuse_all(check, "topic_data", "responses", refuse(TRANSACTION_DENIED))
    verdict = serve_some(
        check,
        "topic_data",
        lambda item: may_topic(check, AclOperation.WRITE, item),
        "responses",
        refuse(TOPIC_DENIED),
    )
    if verdict.complete is not None and message.acks == 0:
        return replace(verdict, complete=None, broken="acks=0 without the right to write")
    return verdict


def list_offsets(item: logs.ListOffsetsTopic) -> logs.ListOffsetsTopicResponse:
    return logs.ListOffsetsTopicResponse(
        item.name,
        [
            logs.ListOffsetsPartitionResponse(each.partition_index, TOPIC_DENIED)
            for each in item.partitions
        ],
    )


def delete_records(item: logs.DeleteRecordsTopic) -> logs.DeleteRecordsTopicResult:
    return logs.DeleteRecordsTopicResult(
        item.name,
        [
            logs.DeleteRecordsPartitionResult(each.partition_index, -1, TOPIC_DENIED)
            for each in item.partitions
        ],
    )


def leader_epochs(check: Check) -> AccessVerdict:
    if check.may_cluster(AclOperation.CLUSTER_ACTION):
        return AccessVerdict(check.message)
    return serve_some(
        check,
        "topics",
        lambda item: check.needs(AclOperation.DESCRIBE, TOPIC, item.topic),
        "topics",
        lambda item: logs.OffsetForLeaderTopicResult(
            item.topic,
            [logs.EpochEndOffset(TOPIC_DENIED, each.partition) for each in item.partitions],
        ),
    )


def describe_producers(item: logs.TopicRequest) -> logs.TopicResponse:
    return logs.TopicResponse(
        item.name,
        [logs.PartitionResponse(each, TOPIC_DENIED, TEXT) for each in item.partition_indexes],
    )
