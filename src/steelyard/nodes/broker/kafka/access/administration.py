"""What requests about placement, users and quotas need.

Source: core/kafka/server/KafkaApis.scala, ControllerApis.scala.
"""

from __future__ import annotations

from steelyard.acl.bindings import AclOperation
from steelyard.nodes.broker.kafka.access.guard import AccessVerdict, Check
from steelyard.nodes.broker.kafka.access.verdicts import CLUSTER_DENIED, TEXT, refuse_all, refused
from steelyard.wire.kafka.messages import logins, logs, placement, quotas


def elect_leaders(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, placement.ElectLeadersRequest)
    if check.needs_cluster(AclOperation.ALTER):
        return AccessVerdict(message)
    results = [
        placement.ReplicaElectionResult(
            item.topic,
            [placement.PartitionResult(each, CLUSTER_DENIED, TEXT) for each in item.partitions],
        )
        for item in message.topic_partitions or ()
    ]
    return refused(placement.ElectLeadersResponse(0, CLUSTER_DENIED, results))


def reassign(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, placement.AlterPartitionReassignmentsRequest)
    if check.needs_cluster(AclOperation.ALTER):
        return AccessVerdict(message)
    responses = [
        placement.ReassignableTopicResponse(
            item.name,
            [
                placement.ReassignablePartitionResponse(each.partition_index, CLUSTER_DENIED, TEXT)
                for each in item.partitions
            ],
        )
        for item in message.topics
    ]
    return refused(
        placement.AlterPartitionReassignmentsResponse(
            error_code=CLUSTER_DENIED, error_message=TEXT, responses=responses
        )
    )


def move_log_dirs(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, placement.AlterReplicaLogDirsRequest)
    if check.needs_cluster(AclOperation.ALTER):
        return AccessVerdict(message)
    return refused(
        placement.AlterReplicaLogDirsResponse(
            results=[
                placement.AlterReplicaLogDirTopicResult(
                    topic.name,
                    [
                        placement.AlterReplicaLogDirPartitionResult(each, CLUSTER_DENIED)
                        for each in topic.partitions
                    ],
                )
                for item in message.dirs
                for topic in item.topics
            ]
        )
    )


def alter_users(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, logins.AlterUserScramCredentialsRequest)
    if check.needs_cluster(AclOperation.ALTER):
        return AccessVerdict(message)
    names = dict.fromkeys(
        [each.name for each in message.deletions] + [each.name for each in message.upsertions]
    )
    return refused(
        logins.AlterUserScramCredentialsResponse(
            results=[
                logins.AlterUserScramCredentialsResult(name, CLUSTER_DENIED, TEXT) for name in names
            ]
        )
    )


def describe_quotas(check: Check) -> AccessVerdict:
    if check.needs_cluster(AclOperation.DESCRIBE_CONFIGS):
        return AccessVerdict(check.message)
    return refused(quotas.DescribeClientQuotasResponse(0, CLUSTER_DENIED, TEXT, None))


def alter_quotas(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, quotas.AlterClientQuotasRequest)
    if check.needs_cluster(AclOperation.ALTER_CONFIGS):
        return AccessVerdict(message)
    return refuse_all(
        check,
        "entries",
        "entries",
        lambda item: quotas.AlteredQuotaResult(CLUSTER_DENIED, TEXT, item.entity),
    )


def log_dirs(check: Check) -> AccessVerdict:
    if check.needs_cluster(AclOperation.DESCRIBE):
        return AccessVerdict(check.message)
    return refused(logs.DescribeLogDirsResponse(0, CLUSTER_DENIED if check.version >= 3 else 0))
