"""How far the queues are committed, as far as their brokers know.

Commits are one-way as in RocketMQ, by themselves (15) or riding on a pull (11), but for the last one of a
holding. A broker with several threads may take in two that arrive one after the other the wrong way round,
and what was sent some time apart can arrive together. So the last one waits a moment for those before it
(`settles_at`); and if by its answer, which proves that they have arrived, one is still not known to be
taken in (`doubtful`), it is said again after another moment.
Source: RemoteBrokerOffsetStore.java.
"""

from __future__ import annotations

from steelyard.groups.remoting.ownership import READ
from steelyard.nodes.consumer.remoting.held import UNKNOWN, Held
from steelyard.nodes.consumer.remoting.offsets import OffsetStore
from steelyard.nodes.consumer.remoting.peers import LastCommitSent
from steelyard.nodes.seam import Effect

SETTLE_MS = 50
"""Two requests that arrive so far apart are taken in in that order."""

DOUBT_MS = 2_000
"""Two commits that are sent so far apart arrive apart."""


class Commits:
    """See the module's text."""

    def __init__(self, offsets: OffsetStore) -> None:
        self._offsets = offsets

    def commit(
        self,
        held: Held,
        now: int,
        effects: list[Effect],
        *,
        news_only: bool = True,
        handed: int | None = None,
    ) -> None:
        """Tell the broker how far the queue is finished, if it does not know. One-way, as RocketMQ does.

        `handed`: see `LastCommitSent`.
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
        """The last commit of a queue that nobody waits for. One-way, as RocketMQ does."""
        self.commit(held, now, effects, news_only=False, handed=held.process.handed)

    def wrote(self, held: Held, offset: int, now: int) -> None:
        """A commit goes out that does not ride on a pull."""
        commits = held.commits
        if commits.wrote not in (UNKNOWN, offset):
            commits.other_at = commits.wrote_at
        commits.committed = commits.wrote = offset
        commits.wrote_at = now
        commits.arrived = False

    def rode(self, held: Held, offset: int) -> None:
        """A commit goes out on a pull."""
        held.commits.committed = offset

    def pull_answered(self, held: Held) -> None:
        """What was sent before the pull has arrived."""
        if held.pull.sent_at > held.commits.wrote_at:
            held.commits.arrived = True

    def lost(self, held: Held) -> None:
        """What was sent last may be lost: whatever is committable is news."""
        held.commits.committed = UNKNOWN

    def arrived(self, held: Held) -> None:
        """The broker has answered to a commit."""
        held.commits.arrived = True

    def go_on(self, fresh: Held, before: Held) -> None:
        """A new holding of a queue begins with what the broker knew of the one before."""
        fresh.commits.committed = before.commits.committed

    # -- the last one ------------------------------------------------------------------------------

    def _lags(self, held: Held) -> bool:
        """A pull with another commit than the last one is not answered: it is held, or under way."""
        return held.pull.under_way and held.pull.carried not in (UNKNOWN, held.committable)

    def _other_at(self, held: Held) -> int:
        """When a commit that did not ride on a pull was sent with another offset than the last of all."""
        commits = held.commits
        is_last = commits.wrote in (UNKNOWN, held.committable)
        return commits.other_at if is_last else commits.wrote_at

    def settles_at(self, held: Held) -> int:
        """When to send the last commit, as far as those before it are concerned."""
        pulled_at = held.pull.sent_at if self._lags(held) else 0
        return max(pulled_at, self._other_at(held)) + SETTLE_MS

    def doubtful(self, held: Held) -> bool:
        """While RELEASING: an earlier commit may have arrived with the last one, and be taken in after it."""
        since = held.holding.since - DOUBT_MS
        if self._lags(held) and held.pull.sent_at > since:
            return True
        return not held.commits.arrived and self._other_at(held) > since

    def commit_last(self, held: Held, now: int, effects: list[Effect]) -> bool:
        """Tell the broker for good. True: the outcome will come as `LastCommitSent`.

        It goes out even if it is no news: an earlier one of the same offset may be lost, or overwritten
        by a member that believed to own the queue.
        """
        offset = held.committable
        address = held.pull.address
        if address is None or offset < 0:
            return False
        held.commits.committed = offset
        told = LastCommitSent(held.queue, held.epoch, held.process.handed)
        return self._offsets.write_surely(told, address, offset, now, effects)

    def commit_again(self, held: Held, effects: list[Effect]) -> None:
        """The last commit was not answered, or not well: once more, one-way."""
        address = held.pull.address
        if address is not None:
            self._offsets.write(held.queue, address, held.commits.committed, effects)
