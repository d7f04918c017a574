"""What requests for the records and offsets of share groups need.

Source: core/kafka/server/KafkaApis.scala.
"""

from __future__ import annotations

from msgspec.structs import replace

from steelyard.acl.bindings import AclOperation
from steelyard.nodes.broker.kafka.access.guard import AccessVerdict, Check
from steelyard.nodes.broker.kafka.access.verdicts import (
    GROUP,
    GROUP_DENIED,
    TEXT,
    TOPIC,
    TOPIC_DENIED,
    failed,
    serve_some,
)
from steelyard.wire.kafka.messages import share_data, share_groups
from steelyard.wire.kafka.schema import ApiMessage


def of_share_group(check: Check) -> AccessVerdict:
    """The group needs READ; without one, the handler refuses the request."""
    message = check.message
    assert isinstance(message, share_data.ShareFetchRequest | share_data.ShareAcknowledgeRequest)
    group = message.group_id
    if group is None or check.needs(AclOperation.READ, GROUP, group):
        return AccessVerdict(message)
    return failed(check, GROUP_DENIED)


def describe_share_offsets(check: Check) -> AccessVerdict:
    """Each group needs DESCRIBE, and so do its topics, which are hidden otherwise."""
    message = check.message
    assert isinstance(message, share_groups.DescribeShareGroupOffsetsRequest)
    kept: list[share_groups.DescribeShareGroupOffsetsRequestGroup] = []
    denied: list[share_groups.DescribeShareGroupOffsetsResponseGroup] = []
    hidden: dict[str, list[share_groups.DescribeShareGroupOffsetsResponseTopic]] = {}
    for group in message.groups:
        if not check.needs(AclOperation.DESCRIBE, GROUP, group.group_id):
            denied.append(
                share_groups.DescribeShareGroupOffsetsResponseGroup(
                    group.group_id, (), GROUP_DENIED, TEXT
                )
            )
            continue
        allowed = []
        for topic in group.topics or ():
            if check.needs(AclOperation.DESCRIBE, TOPIC, topic.topic_name):
                allowed.append(topic)
            else:
                hidden.setdefault(group.group_id, []).append(_undescribed(topic))
        kept.append(group if group.topics is None else replace(group, topics=allowed))

    def complete(answer: ApiMessage) -> ApiMessage:
        assert isinstance(answer, share_groups.DescribeShareGroupOffsetsResponse)
        found = [
            replace(
                group,
                topics=[
                    *(
                        topic
                        for topic in group.topics
                        if check.may(AclOperation.DESCRIBE, TOPIC, topic.topic_name)
                    ),
                    *(() if group.error_code else hidden.get(group.group_id, ())),
                ],
            )
            for group in answer.groups
        ]
        return replace(answer, groups=[*found, *denied])

    return AccessVerdict(replace(message, groups=kept) if kept else None, complete)


def _undescribed(
    topic: share_groups.DescribeShareGroupOffsetsRequestTopic,
) -> share_groups.DescribeShareGroupOffsetsResponseTopic:
    parts = [
        share_groups.DescribeShareGroupOffsetsResponsePartition(
            index, error_code=TOPIC_DENIED, error_message=TEXT
        )
        for index in topic.partitions
    ]
    return share_groups.DescribeShareGroupOffsetsResponseTopic(topic.topic_name, partitions=parts)


def alter_share_offsets(check: Check) -> AccessVerdict:
    """The group needs READ, and so does each topic."""
    message = check.message
    assert isinstance(message, share_groups.AlterShareGroupOffsetsRequest)
    if not check.needs(AclOperation.READ, GROUP, message.group_id):
        return failed(check, GROUP_DENIED)
    return serve_some(
        check,
        "topics",
        lambda item: check.needs(AclOperation.READ, TOPIC, item.topic_name),
        "responses",
        lambda item: share_groups.AlterShareGroupOffsetsResponseTopic(
            item.topic_name,
            partitions=[
                share_groups.AlterShareGroupOffsetsResponsePartition(
                    each.partition_index, TOPIC_DENIED, TEXT
                )
                for each in item.partitions
            ],
        ),
    )


def delete_share_offsets(check: Check) -> AccessVerdict:
    """The group needs DELETE, and each topic READ."""
    message = check.message
    assert isinstance(message, share_groups.DeleteShareGroupOffsetsRequest)
    if not check.needs(AclOperation.DELETE, GROUP, message.group_id):
        return failed(check, GROUP_DENIED)
    return serve_some(
        check,
        "topics",
        lambda item: check.needs(AclOperation.READ, TOPIC, item.topic_name),
        "responses",
        lambda item: share_groups.DeleteShareGroupOffsetsResponseTopic(
            item.topic_name, error_code=TOPIC_DENIED, error_message=TEXT
        ),
    )
