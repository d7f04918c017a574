"""The facts about a share group (KIP-932), from ShareGroupDescribe (77).

How far it is in each partition is known to DescribeShareGroupOffsets (90), whose lag is there since
version 1 (KIP-1226).
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.types import TopicPartition
from steelyard.web.console.kafka.facts import (
    SHARE,
    KafkaGroupFacts,
    MemberFacts,
    ShareProgress,
    partitions_of,
)
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.share_groups import (
    DescribedShareGroup,
    DescribeShareGroupOffsetsResponseGroup,
)


def of_share(group: DescribedShareGroup) -> KafkaGroupFacts:
    """Return the facts about a group without its progress."""
    return KafkaGroupFacts(
        group.group_id,
        SHARE,
        group.group_state,
        group.assignor_name,
        group.group_epoch,
        tuple(
            MemberFacts(
                member.member_id,
                member.client_id,
                member.client_host,
                None,
                tuple(sorted(member.subscribed_topic_names)),
                partitions_of(member.assignment),
            )
            for member in sorted(group.members, key=lambda member: member.member_id)
        ),
        {},
        assignment_epoch=group.assignment_epoch,
    )


def progress_of(
    group: DescribeShareGroupOffsetsResponseGroup,
) -> Mapping[TopicPartition, ShareProgress]:
    """Return the progress in each partition that the group has begun."""
    return {
        TopicPartition(topic.topic_name, row.partition_index): ShareProgress(
            row.start_offset, row.lag if row.lag >= 0 else None
        )
        for topic in group.topics
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE and row.start_offset >= 0
    }
