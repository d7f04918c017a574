"""The requests of a member to its coordinator, and its metadata for the group's leader.

Source: AbstractCoordinator.java (sendJoinGroupRequest, ...), ConsumerCoordinator.java (metadata),
ConsumerProtocol.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steelyard.groups.kafka.member.classic.share import Share
from steelyard.groups.kafka.member.classic.states import ClassicMemberSettings
from steelyard.types import TopicPartition, numbers_by_topic
from steelyard.wire.kafka.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    TopicPartitions,
    write_subscription,
)
from steelyard.wire.kafka.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

REASON_MAX = 255
"""Most characters of a reason that are sent (JoinGroupRequest.maybeTruncateReason)."""


def join_group(
    settings: ClassicMemberSettings,
    member_id: str,
    generation: int,
    topics: Sequence[str],
    share: Share,
    reason: str,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        settings.group,
        settings.session_timeout_ms,
        settings.rebalance_timeout_ms,
        member_id,
        settings.instance,
        PROTOCOL_TYPE,
        _protocols(settings, generation, topics, share),
        reason[:REASON_MAX],
    )


def _protocols(
    settings: ClassicMemberSettings, generation: int, topics: Sequence[str], share: Share
) -> tuple[JoinGroupRequestProtocol, ...]:
    """Return a member's metadata, once for each assignor that it supports.

    After a failed SyncGroup, its last assignment is older than `generation`.
    """
    owned = by_topic(share.owned)
    return tuple(
        JoinGroupRequestProtocol(
            assignor.name,
            write_subscription(
                ConsumerProtocolSubscription(
                    tuple(topics),
                    assignor.user_data(share.assigned, share.generation),
                    owned,
                    generation,
                    settings.rack,
                )
            ),
        )
        for assignor in settings.assignors
    )


def sync_group(
    settings: ClassicMemberSettings,
    member_id: str,
    generation: int,
    protocol: str,
    shares: Sequence[SyncGroupRequestAssignment],
) -> SyncGroupRequest:
    """Return a SyncGroup. `shares`: of all members, from their leader; empty from the others."""
    return SyncGroupRequest(
        settings.group, generation, member_id, settings.instance, PROTOCOL_TYPE, protocol, shares
    )


def heartbeat(settings: ClassicMemberSettings, member_id: str, generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(settings.group, generation, member_id, settings.instance)


def leave_group(settings: ClassicMemberSettings, member_id: str, reason: str) -> LeaveGroupRequest:
    identity = MemberIdentity(member_id, None, reason[:REASON_MAX])
    return LeaveGroupRequest(settings.group, member_id, (identity,))


def by_topic(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    """Return partitions as in messages: sorted, and grouped by topic."""
    grouped = numbers_by_topic(sorted(partitions))
    return tuple(TopicPartitions(topic, tuple(numbers)) for topic, numbers in grouped.items())
