"""Subscriptions and assignments, which group members exchange through the coordinator.

Each follows an int16 version and has no flexible form. Readers treat higher versions as the latest
they know, because fields are only ever appended. Source: ConsumerProtocolSubscription.json,
ConsumerProtocolAssignment.json, ConsumerProtocol.java.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated

from steelyard.errors import ProtocolError
from steelyard.types import joined
from steelyard.wire.kafka.schema import (
    ApiMessage,
    Int32,
    NullableBytes,
    NullableString,
    Part,
    Since,
    String,
    read_prefix,
    write,
)

PROTOCOL_TYPE = "consumer"

SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 3

_INT16 = struct.Struct(">h")


class TopicPartitions(Part, frozen=True, gc=False):
    topic: String = ""
    partitions: Sequence[Int32] = ()


class ConsumerProtocolSubscription(ApiMessage, frozen=True, gc=False):
    """What a member wants and holds.

    `generation_id`: of the assignment in which it got `owned_partitions`.
    """

    topics: Sequence[String] = ()
    user_data: NullableBytes = None
    owned_partitions: Annotated[Sequence[TopicPartitions], Since(1)] = ()
    generation_id: Annotated[Int32, Since(2)] = -1
    rack_id: Annotated[NullableString, Since(3)] = None


class ConsumerProtocolAssignment(ApiMessage, frozen=True, gc=False):
    """What a member is to read."""

    assigned_partitions: Sequence[TopicPartitions] = ()
    user_data: NullableBytes = None


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """A member's metadata. Raises ProtocolError."""
    return read_prefix(
        ConsumerProtocolSubscription, data, min(version_of(data), SUBSCRIPTION_VERSION), at=2
    )


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """A member's assignment; no bytes at all are an empty one. Raises ProtocolError."""
    if not data:
        return ConsumerProtocolAssignment()
    return read_prefix(
        ConsumerProtocolAssignment, data, min(version_of(data), ASSIGNMENT_VERSION), at=2
    )


def write_subscription(
    subscription: ConsumerProtocolSubscription, version: int = SUBSCRIPTION_VERSION
) -> bytes:
    return joined([_INT16.pack(version), *write(subscription, version, flexible=False)])


def write_assignment(
    assignment: ConsumerProtocolAssignment, version: int = ASSIGNMENT_VERSION
) -> bytes:
    return joined([_INT16.pack(version), *write(assignment, version, flexible=False)])


def version_of(data: bytes) -> int:
    """Return the version of metadata or of an assignment. Raises ProtocolError."""
    if len(data) < 2:
        raise ProtocolError(f"{len(data)} bytes are not metadata of a group member")
    (version,) = _INT16.unpack_from(data)
    if version < 0:
        raise ProtocolError(f"group metadata of version {version}")
    return int(version)
