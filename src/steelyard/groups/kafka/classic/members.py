"""One member of a classic group. Source: classic/ClassicGroupMember.java."""

from __future__ import annotations

import msgspec

from steelyard.errors import ProtocolError
from steelyard.groups.kafka.effects import Handle
from steelyard.wire.kafka.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    read_subscription,
)
from steelyard.wire.kafka.messages.groups import JoinGroupRequest

Protocols = dict[str, bytes]
"""Names of the protocols that a member has, the most wanted first, with its metadata for each."""


class ClassicGroupMember(msgspec.Struct):
    """See the module's text. `joining`, `syncing`: its parked requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    joining: Handle | None = None
    syncing: Handle | None = None
    is_new: bool = False
    """Until its first join phase is over."""

    @property
    def is_joining(self) -> bool:
        return self.joining is not None

    @property
    def is_waiting(self) -> bool:
        """It waits for us, so we cannot expect it to heartbeat. New members must wait no longer than 5 minutes."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    @property
    def name(self) -> str:
        """For people."""
        instance = f", static {self.instance_id}" if self.instance_id is not None else ""
        return f"{self.member_id} ({self.host}{instance})"

    @property
    def bytes(self) -> int:
        """What it keeps in memory, more or less."""
        ids = len(self.member_id) + len(self.instance_id or "") + len(self.client_id)
        return ids + bytes_of(self.protocols) + len(self.assignment)

    def vote(self, candidates: set[str]) -> str:
        """The protocol it wants most of those that everybody has."""
        return next(name for name in self.protocols if name in candidates)


def bytes_of(protocols: Protocols) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols.items())


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """The protocols of a request; of those of one name the first."""
    protocols: Protocols = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return protocols


def same_protocols(one: Protocols, other: Protocols) -> bool:
    """The same protocols in the same order with the same metadata."""
    return list(one.items()) == list(other.items())


def subscription_of(protocol_type: str, metadata: bytes) -> ConsumerProtocolSubscription | None:
    """What a member of a consumer group wants; None where that cannot be read."""
    if protocol_type != PROTOCOL_TYPE:
        return None
    try:
        return read_subscription(metadata)
    except ProtocolError:
        return None


def topics_of(protocol_type: str, protocols: Protocols) -> tuple[str, ...]:
    """The topics that a member wants, by any of its protocols, sorted."""
    topics: set[str] = set()
    for metadata in protocols.values():
        subscription = subscription_of(protocol_type, metadata)
        if subscription is not None:
            topics.update(subscription.topics)
    return tuple(sorted(topics))


class Room:
    """How many bytes all groups keep of their members."""

    def __init__(self) -> None:
        self.bytes = 0
