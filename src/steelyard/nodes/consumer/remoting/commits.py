"""The commits of the held queues, as far as their brokers have received them.

As in RocketMQ, commits are one-way, on their own (15) or carried by a pull (11), except the last
one of a holding. A broker with several threads may process two that arrive in succession in the
reverse order, and requests that were sent some time apart can arrive together. The last commit is
therefore delayed a moment for those before it (`settles_at`). Its reply proves that they have been
received. If one of them may still be unprocessed then (`doubtful`), the last commit is repeated
after another moment. Source: RemoteBrokerOffsetStore.java.
"""

from __future__ import annotations

from steelyard.groups.remoting.ownership import READ
from steelyard.nodes.consumer.remoting.held import UNKNOWN, Held
from steelyard.nodes.consumer.remoting.offsets import OffsetStore
from steelyard.nodes.consumer.remoting.peers import Handed, LastCommitSent
from steelyard.nodes.seam import Effect

SETTLE_MS = 50
"""Requests that arrive this far apart are processed in the order of their arrival."""

DOUBT_MS = 2_000
"""Commits that are sent this far apart arrive in that order, and not together."""


class Commits:
    """The commits of one consumer."""

    def __init__(self, offsets: OffsetStore) -> None:
        self._offsets = offsets

    def commit(
        self,
        held: Held,
        now: int,
        effects: list[Effect],
        *,
        news_only: bool = True,
        handed: Handed | None = None,
    ) -> None:
        """Commit the offset up to which the queue is finished, one-way, as RocketMQ does.

        `news_only`: unless the broker has it already. `handed`: with the last commit of a holding.
        """
        if held.state not in READ:
            return
        offset = held.committable
        address = held.pull.address
        if address is None or offset < 0 or (news_only and offset == held.commits.committed):
            return
        self.wrote(held, offset, now)
        self._offsets.write(held.queue, address, offset, effects, handed=handed)

    def commit_at_once(self, held: Held, now: int, effects: list[Effect]) -> None:
        """Send the last commit of a queue, one-way as RocketMQ does, without awaiting a reply."""
        self.commit(held, now, effects, news_only=False, handed=_handed(held, now))

    def wrote(self, held: Held, offset: int, now: int) -> None:
        """Note that a separate commit, not carried by a pull, is sent."""
        commits = held.commits
        if commits.wrote not in (UNKNOWN, offset):
            commits.other_at = commits.wrote_at
        commits.committed = commits.wrote = offset
        commits.wrote_at = now
        commits.arrived = False

    def rode(self, held: Held, offset: int) -> None:
        """Note that a pull carries a commit."""
        held.commits.committed = offset

    def pull_answered(self, held: Held) -> None:
        """Note that everything sent before the answered pull has arrived."""
        if held.pull.sent_at > held.commits.wrote_at:
            held.commits.arrived = True

    def lost(self, held: Held) -> None:
        """Note that the last commit may be lost: any committable offset must be sent again."""
        held.commits.committed = UNKNOWN

    def arrived(self, held: Held) -> None:
        """Note that the broker has answered a commit."""
        held.commits.arrived = True

    def go_on(self, fresh: Held, before: Held) -> None:
        """Start a new holding of a queue with what the broker knew of the previous one."""
        fresh.commits.committed = before.commits.committed

    # -- the last one ------------------------------------------------------------------------------

    def _lags(self, held: Held) -> bool:
        """Return whether a pull that carries another offset than the last commit is unanswered."""
        return held.pull.under_way and held.pull.carried not in (UNKNOWN, held.committable)

    def _other_at(self, held: Held) -> int:
        """Return when a separate commit of another offset than the last commit's was sent last."""
        commits = held.commits
        is_last = commits.wrote in (UNKNOWN, held.committable)
        return commits.other_at if is_last else commits.wrote_at

    def settles_at(self, held: Held) -> int:
        """Return when the earlier commits allow the last one to be sent."""
        pulled_at = held.pull.sent_at if self._lags(held) else 0
        return max(pulled_at, self._other_at(held)) + SETTLE_MS

    def doubtful(self, held: Held) -> bool:
        """Return whether an earlier commit may be processed after the last one.

        For a queue in RELEASING: the two may have arrived together.
        """
        since = held.holding.since - DOUBT_MS
        if self._lags(held) and held.pull.sent_at > since:
            return True
        return not held.commits.arrived and self._other_at(held) > since

    def commit_last(self, held: Held, now: int, effects: list[Effect]) -> bool:
        """Send the last commit of a holding; return whether a `LastCommitSent` outcome will follow.

        It is sent even if the broker should have the offset already: an earlier commit of the same
        offset may have been lost, or overwritten by a member that believed it owned the queue.
        """
        offset = held.committable
        address = held.pull.address
        if address is None or offset < 0:
            return False
        held.commits.committed = offset
        told = LastCommitSent(held.queue, held.epoch, _handed(held, now))
        return self._offsets.write_surely(told, address, offset, now, effects)

    def commit_again(self, held: Held, effects: list[Effect]) -> None:
        """Repeat the last commit, one-way, after it failed or was not answered."""
        address = held.pull.address
        if address is not None:
            self._offsets.write(held.queue, address, held.commits.committed, effects)


def _handed(held: Held, now: int) -> Handed:
    at = held.application.handed_at
    return Handed(held.process.handed, None if at is None else now - at)
