"""One held queue: its state, in parts of which each has one module that writes it.

    part          what it is                                        written by
    Held          which queue, and the parts                        holdings
    holding       its state: see groups.remoting.ownership          holdings
    process       the prefetched messages, anew for each start      holdings
    pull          the pull in flight, and those before it           pulling
    commits       what was committed to the broker                  commits
    application   what the application has of it                    concurrent, ordered or polled
    wishes        what an application that polls wants              polled
    handover      how far the application was told of its coming    handover
                  and going, and the last commit

Every module may read them. `holdings` makes the parts, anew for each holding. A consumer has one of
`concurrent`, `ordered` and `polled`. A test looks for other writers.
"""

from __future__ import annotations

import msgspec

from steelyard.consume.process_queue import ProcessQueue
from steelyard.groups.remoting.ownership import Holding, HoldingState
from steelyard.nodes.seam import Address
from steelyard.types import MessageQueue

UNKNOWN = -1
"""Placeholder for an offset while no broker is known to have one."""


class PullLoop(msgspec.Struct, eq=False):
    """The pull loop of a queue."""

    address: Address | None = None
    """Broker that it was last read from: commits still go there once it has left the routes."""
    under_way: bool = False
    """A pull is in flight, or held by the broker."""
    sent_at: int = 0
    """When the last pull was sent."""
    carried: int = UNKNOWN
    """The offset that the last pull committed."""
    looked_at: int = 0
    """When `PullService` last considered a pull, sent or not."""
    in_vain: int = 0
    """Consecutive pulls that were answered at once, and with nothing."""


class CommitsSent(msgspec.Struct, eq=False):
    """The commits of a queue that were sent, and perhaps not processed by the broker yet."""

    committed: int = UNKNOWN
    """The offset last sent to the broker and not known to be lost."""
    wrote: int = UNKNOWN
    """The offset of the last commit that was not carried by a pull."""
    wrote_at: int = 0
    """When that commit was sent."""
    other_at: int = 0
    """When the last such commit with another offset was sent."""
    arrived: bool = True
    """A pull sent after both has been answered, or the broker has answered a commit."""


class AtApplication(msgspec.Struct, eq=False):
    """What the application has of a queue."""

    queued: bool = False
    """It is in the delivery's line of queues with messages to deliver."""
    handed: int = 0
    """Batches with the application, or on their way back to their broker."""
    consumed_at: int = 0
    """When the listener last received or finished something of it."""
    handed_at: int | None = None
    """When it last received something."""
    untold_at: int | None = None
    """When it first received something, until the broker has been told."""

    def received(self, now: int) -> None:
        """Note that the listener receives messages."""
        if self.handed_at is None:
            self.untold_at = now
        self.handed_at = self.consumed_at = now

    def tell(self, now: int) -> int | None:
        """Return how long ago it first received something, None if the broker has been told."""
        at, self.untold_at = self.untold_at, None
        return None if at is None else now - at


class Wishes(msgspec.Struct, eq=False):
    """The requests of an application that polls, about one queue."""

    agreed: int | None = None
    """The application's own position, in place of what is finished here.

    None: what is finished counts. UNKNOWN: the application has not given a position yet.
    """
    paused: bool = False
    """It wants no messages of the queue for now."""


class HandoverSteps(msgspec.Struct, eq=False):
    """The progress of a queue on its way to this member and away from it, beside its state."""

    announced: bool = False
    """The application was told of its assignment, and not yet of its end (`config.hooks`)."""
    drain_by: int = 0
    """In DRAINING: when the application's time is over."""
    repeat_at: int = 0
    """In RELEASING: when to repeat the last commit."""
    repeated: bool = False
    """The last commit was repeated."""


class Held(msgspec.Struct, eq=False):
    """One queue of this member."""

    queue: MessageQueue
    epoch: int
    holding: Holding
    process: ProcessQueue
    """Empty and at offset 0 until the start offset is known."""
    pull: PullLoop
    commits: CommitsSent
    application: AtApplication
    wishes: Wishes
    handover: HandoverSteps

    @property
    def state(self) -> HoldingState:
        return self.holding.state

    @property
    def committable(self) -> int:
        """Return the offset that may be committed, UNKNOWN if there is none yet."""
        agreed = self.wishes.agreed
        return self.process.committable if agreed is None else agreed
