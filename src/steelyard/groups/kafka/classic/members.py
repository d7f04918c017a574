"""A member of a classic group. Source: classic/ClassicGroupMember.java."""

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
"""A member's protocols in order of preference, with its metadata for each."""


class ClassicGroupMember(msgspec.Struct):
    """A member. `joining`, `syncing`: its parked requests."""

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
    software: str = ""
    """How its client has named itself, "" if it has not or was restored."""
    waits: bool = False
    """Whether answers to its heartbeats may wait, as far as its last SyncGroup tells."""
    syncing_link: int | None = None
    """The connection of its last SyncGroup, if the answer may wait for the next round."""
    is_new: bool = False
    """True until its first join phase is over."""
    heard_at: int | None = None
    """When it sent its last request; None if it was restored and has sent none since."""
    epoch: int | None = None
    """Its epoch in the consumer group that this one was, until it joins; otherwise None."""

    @property
    def is_joining(self) -> bool:
        return self.joining is not None

    @property
    def is_waiting(self) -> bool:
        """Return whether it waits for a response, so that no heartbeat is due.

        False for new members, which may wait for 5 minutes only.
        """
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    @property
    def name(self) -> str:
        """Return the member's name for people."""
        instance = f", static {self.instance_id}" if self.instance_id is not None else ""
        return f"{self.member_id} ({self.host}{instance})"

    @property
    def bytes(self) -> int:
        """Return its approximate size in memory."""
        ids = len(self.member_id) + len(self.instance_id or "") + len(self.client_id)
        return ids + bytes_of(self.protocols) + len(self.assignment)

    def vote(self, candidates: set[str]) -> str:
        """Return its preferred protocol among those that all members support."""
        return next(name for name in self.protocols if name in candidates)


def bytes_of(protocols: Protocols) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols.items())


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """Return the protocols of a request; if several have the same name, the first."""
    protocols: Protocols = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return protocols


def same_protocols(one: Protocols, other: Protocols) -> bool:
    """Return whether protocols, order and metadata are equal."""
    return list(one.items()) == list(other.items())


def subscription_of(protocol_type: str, metadata: bytes) -> ConsumerProtocolSubscription | None:
    """Return a consumer's subscription; None if it cannot be read, or is not a consumer's."""
    if protocol_type != PROTOCOL_TYPE:
        return None
    try:
        return read_subscription(metadata)
    except ProtocolError:
        return None


def topics_of(protocol_type: str, protocols: Protocols) -> tuple[str, ...]:
    """Return the topics of all of a member's protocols, sorted."""
    topics: set[str] = set()
    for metadata in protocols.values():
        subscription = subscription_of(protocol_type, metadata)
        if subscription is not None:
            topics.update(subscription.topics)
    return tuple(sorted(topics))


class Room:
    """The bytes that all groups keep of their members."""

    def __init__(self) -> None:
        self.bytes = 0
