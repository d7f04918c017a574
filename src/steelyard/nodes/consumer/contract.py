"""What a push consumer's driver and application say to it and get from it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from steelyard.types import MessageQueue
from steelyard.wire.remoting.message import MessageView


class ConsumeBatch(msgspec.Struct, frozen=True, gc=False):
    """What `Hand` gives to the listener: messages of one queue, oldest first, at most `consume_batch`.

    `queue` is where they were read: a message of the group's retry topic has its own topic back.
    """

    queue: MessageQueue
    messages: tuple[MessageView, ...]


class Stop(msgspec.Struct, frozen=True):
    """Call: let the listener finish what it has (bounded), commit, leave the group. Answer: None."""


class Describe(msgspec.Struct, frozen=True):
    """Call. Answer: ConsumerState."""


class ConsumerState(msgspec.Struct, frozen=True):
    """A member's view of its group. `offsets`: what would be committed now, per queue that is being read."""

    client_id: str
    members: Mapping[str, tuple[str, ...]]
    """By topic, as the last rebalance saw them."""
    held: tuple[MessageQueue, ...]
    offsets: Mapping[MessageQueue, int]
