"""What requests about topics, their settings and the cluster need, and what their answers hide.

Source: core/kafka/server/KafkaApis.scala, ControllerApis.scala.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from steelyard.acl.bindings import CLUSTER_NAME, AclOperation, ResourceType
from steelyard.nodes.broker.kafka.access.guard import AccessVerdict, Check, Need
from steelyard.nodes.broker.kafka.access.verdicts import (
    CLUSTER_DENIED,
    GROUP,
    GROUP_DENIED,
    TEXT,
    TOPIC,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    TRANSACTIONAL_ID,
    Items,
    before_refusals,
    may_topic,
    serve_some,
)
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages import cluster, topics
from steelyard.wire.kafka.schema import NO_ID, ApiMessage

NOT_ASKED = -(2**31)
"""The value of authorized operations that the client did not request."""

_CODES = {TOPIC: TOPIC_DENIED, GROUP: GROUP_DENIED, TRANSACTIONAL_ID: TRANSACTION_DENIED}


def metadata(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, cluster.MetadataRequest)
    wanted = message.topics
    is_all = wanted is None or (check.version == 0 and not wanted)
    refused: list[cluster.MetadataResponseTopic] = []
    uncreatable: frozenset[str] = frozenset()
    served = message
    if not is_all:
        kept = []
        for item in wanted or ():
            if may_topic(check, AclOperation.DESCRIBE, item):
                kept.append(item)
            elif item.topic_id != NO_ID:
                code = ErrorCode.UNKNOWN_TOPIC_ID
                refused.append(cluster.MetadataResponseTopic(code, None, item.topic_id))
            else:
                refused.append(cluster.MetadataResponseTopic(TOPIC_DENIED, item.name))
        if refused:
            served = replace(message, topics=kept)
        if message.allow_auto_topic_creation and check.creates_topics:
            served, uncreatable, more = _without_creation(check, served, kept)
            refused += more

    def complete(answer: ApiMessage) -> ApiMessage:
        assert isinstance(answer, cluster.MetadataResponse)
        found = []
        for topic in answer.topics:
            name = topic.name
            if is_all and not check.may(AclOperation.DESCRIBE, TOPIC, name or ""):
                continue
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name in uncreatable:
                topic = cluster.MetadataResponseTopic(TOPIC_DENIED, name)
            if message.include_topic_authorized_operations and name and not topic.error_code:
                operations = check.operations(TOPIC, name)
                topic = replace(topic, topic_authorized_operations=operations)
            found.append(topic)
        if not is_all and not served.topics:
            found = []  # version 0 means all topics then
        return replace(
            answer,
            topics=found + refused,
            cluster_authorized_operations=_cluster_operations(
                check, is_asked=message.include_cluster_authorized_operations
            ),
        )

    return AccessVerdict(served, complete)


def _without_creation(
    check: Check, message: cluster.MetadataRequest, wanted: Items
) -> tuple[cluster.MetadataRequest, frozenset[str], list[cluster.MetadataResponseTopic]]:
    """Keep a question for topics from creating what the client may not create.

    This broker may not know yet what the controller knows. So such topics are asked for without
    creating any, which the answer of those that do not exist says; only if others may be created
    are they refused at once.
    """
    unknown = [
        item.name
        for item in wanted
        if item.topic_id == NO_ID and item.name and check.cluster.topic(item.name) is None
    ]
    if not unknown or check.may_cluster(AclOperation.CREATE):
        return message, frozenset(), []
    denied = frozenset(name for name in unknown if not check.may(AclOperation.CREATE, TOPIC, name))
    if not denied:
        return message, denied, []
    if len(denied) == len(set(unknown)):
        return replace(message, allow_auto_topic_creation=False), denied, []
    kept = [item for item in wanted if item.topic_id != NO_ID or item.name not in denied]
    refused = [cluster.MetadataResponseTopic(TOPIC_DENIED, name) for name in sorted(denied)]
    return replace(message, topics=kept), denied, refused


def describe_topic_partitions(check: Check) -> AccessVerdict:
    """Without names, the page is one of the topics that may be described."""
    message = check.message
    assert isinstance(message, cluster.DescribeTopicPartitionsRequest)
    if message.topics:
        verdict = serve_some(
            check,
            "topics",
            lambda item: check.needs(AclOperation.DESCRIBE, TOPIC, item.name),
            "topics",
            lambda item: cluster.DescribeTopicPartitionsResponseTopic(TOPIC_DENIED, item.name),
        )
        return before_refusals(verdict, lambda answer: _with_operations(check, answer))
    cursor = message.cursor or cluster.PartitionCursor()
    names = [
        name
        for name in check.cluster.names()
        if name >= cursor.topic_name and check.may(AclOperation.DESCRIBE, TOPIC, name)
    ]
    if not names:
        return AccessVerdict(None)
    if cursor.topic_name not in names:
        message = replace(message, cursor=None)  # it has been deleted, or hidden
    wanted = [cluster.DescribedTopicName(name) for name in names]
    return AccessVerdict(
        replace(message, topics=wanted), lambda answer: _with_operations(check, answer)
    )


def _with_operations(check: Check, answer: Any) -> Any:
    found = [
        each
        if each.error_code == ErrorCode.INVALID_REQUEST
        else replace(each, topic_authorized_operations=check.operations(TOPIC, each.name))
        for each in answer.topics
    ]
    return replace(answer, topics=found)


def _cluster_operations(check: Check, *, is_asked: bool) -> int:
    if not is_asked:
        return NOT_ASKED
    if not check.may_cluster(AclOperation.DESCRIBE):
        return 0
    return check.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def describe_cluster(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, cluster.DescribeClusterRequest)
    if not message.include_cluster_authorized_operations:
        return AccessVerdict(message)
    operations = _cluster_operations(check, is_asked=True)
    return AccessVerdict(
        message,
        lambda answer: (
            answer
            if answer.error_code  # type: ignore[attr-defined]
            else replace(answer, cluster_authorized_operations=operations)
        ),
    )


def create_topics(check: Check) -> AccessVerdict:
    def allowed(item: topics.CreatableTopic) -> bool:
        return check.may_cluster(AclOperation.CREATE) or check.needs(
            AclOperation.CREATE, TOPIC, item.name
        )

    verdict = serve_some(
        check,
        "topics",
        allowed,
        "topics",
        lambda item: topics.CreatableTopicResult(item.name, NO_ID, TOPIC_DENIED, TEXT),
    )

    def complete(answer: ApiMessage) -> ApiMessage:
        """Hide the settings of topics whose settings may not be described."""
        assert isinstance(answer, topics.CreateTopicsResponse)
        found = [
            each
            if each.error_code or check.may(AclOperation.DESCRIBE_CONFIGS, TOPIC, each.name)
            else replace(
                each,
                topic_config_error_code=TOPIC_DENIED,
                num_partitions=-1,
                replication_factor=-1,
                configs=(),
            )
            for each in answer.topics
        ]
        return replace(answer, topics=found)

    return before_refusals(verdict, complete)


def delete_topics(check: Check) -> AccessVerdict:
    def by_id(item: topics.DeleteTopicState) -> topics.DeletableTopicResult:
        name = check.topic_name(item.name, item.topic_id)
        if item.topic_id != NO_ID and not check.may(AclOperation.DESCRIBE, TOPIC, name or ""):
            name = None
        return topics.DeletableTopicResult(name, item.topic_id, TOPIC_DENIED, TEXT)

    if check.version >= 6:
        return serve_some(
            check,
            "topics",
            lambda item: may_topic(check, AclOperation.DELETE, item),
            "responses",
            by_id,
        )
    return serve_some(
        check,
        "topic_names",
        lambda name: check.needs(AclOperation.DELETE, TOPIC, name),
        "responses",
        lambda name: topics.DeletableTopicResult(name, NO_ID, TOPIC_DENIED, TEXT),
    )


_KINDS = {2: TOPIC, 4: ResourceType.CLUSTER, 8: ResourceType.CLUSTER, 32: GROUP}
"""Types of resources with settings: topics, brokers, loggers of brokers, groups.

Source: ConfigResource.Type.
"""


def needs_configs(
    operation: AclOperation, answers: str, refuse: Callable[[int, str, int, str], Any]
) -> Need:
    """Each resource with settings needs this; of brokers, the cluster."""

    def allowed(check: Check, item: Any) -> bool:
        kind = _KINDS.get(item.resource_type, ResourceType.CLUSTER)
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else item.resource_name
        return check.needs(operation, kind, name)

    def refused(item: Any) -> Any:
        kind = _KINDS.get(item.resource_type, ResourceType.CLUSTER)
        code = _CODES.get(kind, CLUSTER_DENIED)
        return refuse(code, TEXT, item.resource_type, item.resource_name)

    def need(check: Check) -> AccessVerdict:
        return serve_some(check, "resources", lambda item: allowed(check, item), answers, refused)

    return need
