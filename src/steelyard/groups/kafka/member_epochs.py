"""Whether members with epochs may commit and fetch offsets: those of KIP-848 and streams groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from steelyard.wire.kafka.errors import ErrorCode

COMMIT_VERSION_MIN = 9
"""The first version of OffsetCommit for such members."""


class EpochMember(Protocol):
    """A member of a group whose coordinator assigns."""

    @property
    def epoch(self) -> int: ...


def commit_fault(
    members: Mapping[str, EpochMember],
    member_id: str,
    instance_id: str | None,
    epoch: int,
    *,
    version: int,
    transactional: bool,
) -> ErrorCode:
    """Return NONE if this member may commit in this epoch, or nobody in a group without members.

    An older epoch passes: that is judged by partition. Source: ConsumerGroup.validateOffsetCommit,
    StreamsGroup.validateOffsetCommit.
    """
    if epoch < 0 and not members:
        return ErrorCode.NONE
    if transactional and (epoch, member_id, instance_id) == (-1, "", None):
        return ErrorCode.NONE
    member = members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not transactional and version < COMMIT_VERSION_MIN:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.STALE_MEMBER_EPOCH if epoch > member.epoch else ErrorCode.NONE


def fetch_fault(members: Mapping[str, EpochMember], member_id: str | None, epoch: int) -> ErrorCode:
    """Return NONE if this member, or somebody who claims no membership, may fetch offsets.

    Source: ConsumerGroup.validateOffsetFetch, StreamsGroup.validateOffsetFetch.
    """
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH
