"""When written data reaches the disk, and who waits for it.

With flush=async, the store is flushed once a second and nobody waits. With flush=sync, a reply
waits for a flush that began after its write; one flush is under way at a time, and the replies that
come meanwhile share the next (group commit). Readers wait as well: a group that read what is not on
the disk yet would skip the message that gets the same offset after a power failure. (RocketMQ lets
groups read it.)

So does the record that something is done, if it lies in another file than what was done (a table
that says how far a log was processed): after a power failure the disk may have the one without the
other. `mark` and `has` tell when it may be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from steelyard.nodes.broker.requests import RemotingRequest
from steelyard.nodes.seam import Effect, Flush, Link, Send, SetTimer
from steelyard.store.log import Log
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command

if TYPE_CHECKING:
    from steelyard.wire.kafka.schema import ApiMessage

    _Waiting = tuple[Link, Command] | tuple["Answerable", ApiMessage]
    """A waiting reply: to a RocketMQ client, or to a Kafka client's call."""

FLUSH_TIMER = "flush"

FLUSH_INTERVAL_MS = 1_000
"""RocketMQ: flushIntervalCommitLog 500 ms."""

WAITING_MAX = 100_000
"""Maximum of replies to RocketMQ clients that wait for the disk.

Further ones say FLUSH_DISK_TIMEOUT: stored, but not yet on the disk.
"""


class Answerable(Protocol):
    """A Kafka client's call, to be answered once; without effect if its link is closed."""

    def answer(self, message: ApiMessage, effects: list[Effect]) -> None: ...


class Durability:
    """Flushes the store and holds back replies; see the module docstring."""

    def __init__(self, *, sync: bool) -> None:
        self._sync = sync
        self._ticket = 0
        self._reached = 0
        """The ticket of the last flush that has ended."""
        self._awaited = 0
        """The highest ticket of a flush that a mark waits for."""
        self._under_way: int | None = None
        self._covered: list[_Waiting] = []
        self._waiting: list[_Waiting] = []
        self._written: dict[int, tuple[Log, int]] = {}
        """By log id: logs appended to since the last flush began, and their ends before that."""
        self._syncing: dict[int, tuple[Log, int]] = {}
        """The same for the flush that is under way."""

    def start(self, now: int, effects: list[Effect]) -> None:
        effects.append(SetTimer(FLUSH_TIMER, now + FLUSH_INTERVAL_MS))

    def acknowledge(
        self, request: RemotingRequest, answer: Command, effects: list[Effect]
    ) -> Command | None:
        """Return the reply if it can be sent now, or None if it waits for the disk."""
        if not self._sync or request.is_oneway:
            return answer
        return self._prompt(request.peer.link, answer, effects)

    def _prompt(self, link: Link, answer: Command, effects: list[Effect]) -> Command | None:
        if not self._sync:
            return answer
        if len(self._waiting) >= WAITING_MAX:
            return replace(answer, code=int(ResponseCode.FLUSH_DISK_TIMEOUT))
        self._waiting.append((link, answer))
        self._begin(effects)
        return None

    def acknowledge_call(
        self, call: Answerable, answer: ApiMessage, effects: list[Effect]
    ) -> ApiMessage | None:
        """Return the answer if it can be sent to a Kafka client now, or None if it must wait.

        The listener limits how many answers a client can wait for.
        """
        if not self._sync:
            return answer
        self._waiting.append((call, answer))
        self._begin(effects)
        return None

    def answer(self, call: Answerable, answer: ApiMessage, effects: list[Effect]) -> None:
        """Answer a Kafka client's call, now or when the disk has what was written."""
        prompt = self.acknowledge_call(call, answer, effects)
        if prompt is not None:
            call.answer(prompt, effects)

    def send(self, link: Link, answer: Command, effects: list[Effect]) -> None:
        """Send a reply, now or when the disk has what was written."""
        prompt = self._prompt(link, answer, effects)
        if prompt is not None:
            effects.append(Send(link, prompt))

    def wrote(self, log: Log, offset: int) -> bool:
        """Note that a log was appended to from `offset` on; return whether that may be read now."""
        if self._sync:
            self._written.setdefault(log.log_id, (log, offset))
        return not self._sync

    def readable_end(self, log: Log) -> int:
        """Return the offset after the last that may be read."""
        if not self._sync:
            return log.max_offset
        waiting = self._syncing.get(log.log_id) or self._written.get(log.log_id)
        return log.max_offset if waiting is None else waiting[1]

    def mark(self) -> int:
        """Return a mark of what was written until now, for `has`."""
        return self._ticket + 1 if self._sync else 0

    def mark_of_disk(self) -> int:
        """Return a mark as `mark` does, for which `has` waits for the disk with flush=async, too.

        For a record that would do harm if a power failure spared it alone. The flush that the mark
        needs comes within a second.
        """
        return self._ticket + 1

    def has(self, mark: int) -> bool:
        """Return whether the disk has what was written before this mark was made.

        With flush=async nobody waits: the answer is always True, except for `mark_of_disk`.
        """
        return mark <= self._reached

    def hasten(self, mark: int, effects: list[Effect]) -> None:
        """Begin the flush that this mark waits for, at once or after the one under way."""
        if not self.has(mark):
            self._awaited = max(self._awaited, mark)
            self.follow_up(effects)

    def follow_up(self, effects: list[Effect]) -> None:
        """Begin a flush, after an event, if readers or a mark wait for what was written."""
        if self._written or self._awaited > self._ticket:
            self._begin(effects)

    def _begin(self, effects: list[Effect]) -> None:
        if self._under_way is None:
            self._ticket += 1
            self._under_way = self._ticket
            self._covered, self._waiting = self._waiting, []
            self._syncing, self._written = self._written, {}
            effects.append(Flush(self._ticket))

    def due(self, now: int, effects: list[Effect], *, dirty: bool) -> None:
        """Handle the timer: flush what is `dirty`, even if nobody waits for it."""
        effects.append(SetTimer(FLUSH_TIMER, now + FLUSH_INTERVAL_MS))
        if dirty:
            self._begin(effects)

    def flushed(self, ticket: int, effects: list[Effect]) -> list[Log]:
        """Handle the end of a flush; return the logs whose readers are to be woken.

        The disk has what was written before the flush with this ticket began.
        """
        if ticket != self._under_way:
            return []
        self._under_way = None
        self._reached = ticket
        _release(self._covered, effects)
        logs = [log for log, _ in self._syncing.values()]
        self._covered, self._syncing = [], {}
        if self._waiting:
            self._begin(effects)
        return logs

    def flushed_all(self, effects: list[Effect]) -> None:
        """Release all replies: the store was flushed before it is closed."""
        self._reached = self.mark_of_disk()
        _release([*self._covered, *self._waiting], effects)
        self._covered, self._waiting, self._under_way = [], [], None
        self._syncing, self._written = {}, {}

    def check(self) -> None:
        if self._under_way is None:
            assert not self._covered
            assert not self._waiting
            assert not self._syncing
            assert not self._written
        for log, end in (*self._syncing.values(), *self._written.values()):
            assert end < log.max_offset


def _release(waiting: list[_Waiting], effects: list[Effect]) -> None:
    for to, answer in waiting:
        if isinstance(answer, Command):
            assert isinstance(to, Link)
            effects.append(Send(to, answer))
        else:
            assert not isinstance(to, Link)
            to.answer(answer, effects)
