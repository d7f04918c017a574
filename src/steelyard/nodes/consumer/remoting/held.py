"""One held queue: what is known of it, in parts that one module each writes. Everybody reads.

    part          what it is                                              written by
    Held          which queue, and the parts                              holdings
    holding       its state: see groups.remoting.ownership                holdings
    process       the messages that are here: a new one for each start    holdings
    pull          the pull under way, and those before it                 pulling
    commits       what the broker was told                                commits
    application   what of it the application has                          concurrent, ordered or polled: a consumer has one
    wishes        what an application that polls wants                    polled
    handover      how far the application was told, and the last commit   handover

`holdings` makes the parts, anew for each holding. A test looks for other writers.
"""

from __future__ import annotations

import msgspec

from steelyard.consume.process_queue import ProcessQueue
from steelyard.groups.remoting.ownership import Holding, HoldingState
from steelyard.nodes.seam import Address
from steelyard.types import MessageQueue

UNKNOWN = -1
"""In place of an offset that no broker is known to have."""


class PullLoop(msgspec.Struct, eq=False):
    """The pull loop of a queue."""

    address: Address | None = None
    """Where it was last read from: a commit still goes there when the broker has left the routes."""
    under_way: bool = False
    """A pull is on its way or held by the broker."""
    sent_at: int = 0
    """When the last one was sent."""
    carried: int = UNKNOWN
    """The offset that it committed."""
    looked_at: int = 0
    """When pulling was last thought of, a pull sent or not."""
    in_vain: int = 0
    """Pulls in a row that were answered at once, with nothing."""


class CommitsSent(msgspec.Struct, eq=False):
    """What the broker was told of a queue, and may not have taken in yet."""

    committed: int = UNKNOWN
    """The offset last sent to the broker and not known to be lost."""
    wrote: int = UNKNOWN
    """The offset of the last commit that did not ride on a pull."""
    wrote_at: int = 0
    """When it was sent."""
    other_at: int = 0
    """When the last one with another offset was sent."""
    arrived: bool = True
    """A pull that was sent after both has been answered."""


class AtApplication(msgspec.Struct, eq=False):
    """What the application has of a queue."""

    queued: bool = False
    """In the delivery's line of queues with messages to hand."""
    handed: int = 0
    """Batches that the application has, or that are on their way back to their broker."""
    consumed_at: int = 0
    """When the listener got something of it or was done with it last."""


class Wishes(msgspec.Struct, eq=False):
    """What an application that polls says of a queue."""

    agreed: int | None = None
    """In place of what is finished here: how far the application says that it is; UNKNOWN before it has said anything."""
    paused: bool = False
    """It wants nothing of it for a while."""


class HandoverSteps(msgspec.Struct, eq=False):
    """How far a queue has come on its way to this member and away from it, besides its state."""

    announced: bool = False
    """The application was told that the queue is its own, and not yet that it is not (`config.hooks`)."""
    drain_by: int = 0
    """While DRAINING: when the time of the application is over."""
    repeat_at: int = 0
    """While RELEASING: when to say the last commit again."""
    repeated: bool = False
    """The last commit was said again."""


class Held(msgspec.Struct, eq=False):
    """One queue of this member."""

    queue: MessageQueue
    epoch: int
    holding: Holding
    process: ProcessQueue
    """Empty and at offset 0 until PULLING."""
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
        """The offset that may be committed; UNKNOWN: none yet."""
        agreed = self.wishes.agreed
        return self.process.committable if agreed is None else agreed
