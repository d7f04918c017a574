"""The delivery of messages from held queues to the application, one class per kind of consumer.

`concurrent` delivers them to listeners as they come, `ordered` one batch per queue at a time, and
`polled` on request. Each counts in `AtApplication.handed` what the application has of a queue, so
that the node knows when a queue that is being given up is finished.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from steelyard.errors import RemotingError
from steelyard.nodes.consumer.remoting.held import Held
from steelyard.nodes.consumer.remoting.peers import SentBack
from steelyard.nodes.seam import Effect, Handled
from steelyard.wire.remoting.command import Command


class DeliveryTimer(msgspec.Struct, frozen=True):
    """Base class of the timer keys that a delivery sets; its `due` receives them."""


class Delivery(Protocol):
    """What a delivery must be able to do. Times are ms since the epoch."""

    def offer(self, held: Held, now: int, effects: list[Effect]) -> None:
        """Deliver the queue's new messages, or put it in line."""

    def handled(self, event: Handled, now: int, effects: list[Effect]) -> None:
        """Handle the application's verdict on something that this delivery delivered."""

    def sent_back(
        self, sent: SentBack, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> None:
        """Note whether a broker took a message back (36)."""

    def due(self, key: DeliveryTimer, now: int, effects: list[Effect]) -> None:
        """Act on a timer of this delivery."""

    def resize(self, handed_max: int, now: int, effects: list[Effect]) -> None:
        """Change how many batches may be with the application."""

    def check(self) -> None:
        """Assert every invariant."""
