"""Descriptions of groups of the kinds that have an API of their own: KIP-848, share, streams.

And the operations that are allowed on a group of any kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from msgspec.structs import replace

from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages import (
    consumer_groups,
    groups,
    share_groups,
    streams_groups,
)

ALLOWED_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""All operations on a group, as bits, because nobody is refused any.

Read, delete, describe, describe configs and alter configs. Source:
security/authorizer/AclEntry.java supportedOperations.
"""

Described = TypeVar(
    "Described",
    consumer_groups.DescribedGroup,
    share_groups.DescribedShareGroup,
    streams_groups.DescribedGroup,
)
DescribedOfAnyKind = TypeVar(
    "DescribedOfAnyKind",
    groups.DescribedGroup,
    consumer_groups.DescribedGroup,
    share_groups.DescribedShareGroup,
    streams_groups.DescribedGroup,
)


class DescribeRequest(Protocol):
    """What the requests have in common."""

    @property
    def group_ids(self) -> Sequence[str]: ...

    @property
    def include_authorized_operations(self) -> bool: ...


def descriptions(
    request: DescribeRequest,
    kind: type[Described],
    fault: Callable[[str], ErrorCode],
    describe: Callable[[str], Described],
) -> list[Described]:
    """Return the descriptions of the groups that a request names.

    `fault`: why this broker does not answer for a group, NONE if it does.
    """

    def described(group_id: str) -> Described:
        error = fault(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if error is not ErrorCode.NONE:
            return kind(error_code=error, group_id=group_id)
        group = describe(group_id)
        return with_operations(group) if request.include_authorized_operations else group

    return [described(group_id) for group_id in request.group_ids]


def with_operations(group: DescribedOfAnyKind) -> DescribedOfAnyKind:
    """Return a description with what its reader may do with the group; an error has none."""
    return group if group.error_code else replace(group, authorized_operations=ALLOWED_OPERATIONS)
