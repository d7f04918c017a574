"""How messages of held queues reach the application; one implementation per kind of consumer.

`concurrent` gives them to listeners as they come, `ordered` one batch per queue at a time, `polled` to
whoever asks. Each counts in `Held.handed` what the application has of a queue, so that the node knows
when a queue that is given up is done.
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
    """Root of the timer keys that a delivery sets; they come back to its `due`."""


class Delivery(Protocol):
    """See the module's text. Times are ms since the epoch."""

    def offer(self, held: Held, now: int, effects: list[Effect]) -> None:
        """The queue has messages that were not handed yet."""

    def handled(self, event: Handled, now: int, effects: list[Effect]) -> None:
        """The application's verdict on something that this delivery handed."""

    def sent_back(
        self, sent: SentBack, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> None:
        """A broker took a message back (36), or did not."""

    def due(self, key: DeliveryTimer, now: int, effects: list[Effect]) -> None:
        """A timer of this delivery."""

    def resize(self, handed_max: int, now: int, effects: list[Effect]) -> None:
        """So many batches may be with the application from now on."""

    def check(self) -> None:
        """Assert every invariant."""
