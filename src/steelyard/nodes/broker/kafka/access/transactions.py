"""What requests of transactional producers, and about transactions, need.

Source: core/kafka/server/KafkaApis.scala.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from steelyard.acl.bindings import AclOperation
from steelyard.nodes.broker.kafka.access.guard import AccessVerdict, Check
from steelyard.nodes.broker.kafka.access.verdicts import (
    CLUSTER_DENIED,
    GROUP,
    GROUP_DENIED,
    TOPIC,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    TRANSACTIONAL_ID,
    before_refusals,
    failed,
    refuse_all,
    serve_some,
)
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages import transactions
from steelyard.wire.kafka.schema import ApiMessage


def init_producer_id(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, transactions.InitProducerIdRequest)
    name = message.transactional_id
    if name is not None:
        if check.needs(AclOperation.WRITE, TRANSACTIONAL_ID, name):
            return AccessVerdict(message)
        return failed(check, TRANSACTION_DENIED)
    if check.may_some(AclOperation.WRITE, TOPIC) or check.needs_cluster(
        AclOperation.IDEMPOTENT_WRITE
    ):
        return AccessVerdict(message)
    return failed(check, CLUSTER_DENIED)


def add_partitions(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, transactions.AddPartitionsToTxnRequest)
    if check.version >= transactions.ADDED_BY_BROKERS_SINCE:
        if check.needs_cluster(AclOperation.CLUSTER_ACTION):
            return AccessVerdict(message)
        return failed(check, CLUSTER_DENIED)

    def refuse(code_of: Callable[[str], ErrorCode]) -> AccessVerdict:
        return refuse_all(
            check,
            "topics",
            "results_by_topic",
            lambda item: transactions.AddPartitionsToTxnTopicResult(
                item.name,
                [
                    transactions.AddPartitionsToTxnPartitionResult(each, code_of(item.name))
                    for each in item.partitions
                ],
            ),
        )

    if not check.needs(AclOperation.WRITE, TRANSACTIONAL_ID, message.transactional_id):
        return refuse(lambda name: TRANSACTION_DENIED)
    denied = {
        item.name
        for item in message.topics
        if not check.needs(AclOperation.WRITE, TOPIC, item.name)
    }
    if not denied:
        return AccessVerdict(message)
    untried = ErrorCode.OPERATION_NOT_ATTEMPTED
    return refuse(lambda name: TOPIC_DENIED if name in denied else untried)


def add_offsets(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, transactions.AddOffsetsToTxnRequest)
    if not check.needs(AclOperation.WRITE, TRANSACTIONAL_ID, message.transactional_id):
        return failed(check, TRANSACTION_DENIED)
    if not check.needs(AclOperation.READ, GROUP, message.group_id):
        return failed(check, GROUP_DENIED)
    return AccessVerdict(message)


def end_txn(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, transactions.EndTxnRequest)
    if check.needs(AclOperation.WRITE, TRANSACTIONAL_ID, message.transactional_id):
        return AccessVerdict(message)
    return failed(check, TRANSACTION_DENIED)


def write_markers(check: Check) -> AccessVerdict:
    if check.may_cluster(AclOperation.ALTER) or check.needs_cluster(AclOperation.CLUSTER_ACTION):
        return AccessVerdict(check.message)
    return refuse_all(
        check,
        "markers",
        "markers",
        lambda marker: transactions.WritableTxnMarkerResult(
            marker.producer_id,
            [
                transactions.WritableTxnMarkerTopicResult(
                    topic.name,
                    [
                        transactions.WritableTxnMarkerPartitionResult(each, CLUSTER_DENIED)
                        for each in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ],
        ),
    )


def describe_transactions(check: Check) -> AccessVerdict:
    verdict = serve_some(
        check,
        "transactional_ids",
        lambda name: check.needs(AclOperation.DESCRIBE, TRANSACTIONAL_ID, name),
        "transaction_states",
        lambda name: transactions.DescribedTransaction(TRANSACTION_DENIED, name),
    )

    def complete(answer: ApiMessage) -> ApiMessage:
        """Leave out topics that may not be described."""
        assert isinstance(answer, transactions.DescribeTransactionsResponse)
        found = [
            replace(
                each,
                topics=[
                    part
                    for part in each.topics
                    if check.may(AclOperation.DESCRIBE, TOPIC, part.topic)
                ],
            )
            for each in answer.transaction_states
        ]
        return replace(answer, transaction_states=found)

    return before_refusals(verdict, complete)
