"""A pull request that was checked, as `pull` answers it and `handovers` lets it wait."""

from __future__ import annotations

import msgspec

from steelyard.groups.remoting.subscriptions import Filter
from steelyard.nodes.broker.requests import RemotingRequest
from steelyard.nodes.seam import Link

QueueKey = tuple[str, str, int]
"""Group, topic, queue id."""


class CheckedPull(msgspec.Struct):
    """A pull request that was checked.

    `asked`: the offset in it, from which `offset` moves past messages that the filter rejects.
    `hold_ms`: how long it may wait from its arrival, so until `answer_at`. `has_own_filter`: it has
    brought the filter, which otherwise is the one of its member's heartbeats.
    """

    request: RemotingRequest
    group: str
    topic: str
    queue_id: int
    asked: int
    offset: int
    count_max: int
    bytes_max: int
    filter: Filter
    hold_ms: int
    answer_at: int
    takes_batches: bool
    has_own_filter: bool

    @property
    def key(self) -> QueueKey:
        return self.group, self.topic, self.queue_id

    @property
    def link(self) -> Link:
        return self.request.peer.link
