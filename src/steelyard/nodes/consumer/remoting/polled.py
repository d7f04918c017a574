"""Delivery to an application that polls: messages wait in their queues until it asks for them.

`Poll` returns available messages of the queues in turn, or waits for some. They count as consumed

- with `auto_commit`: when the next poll begins; every `commit_interval_ms` that is committed;
- without: when the application commits, either all that was returned or offsets of its own.

Until then their offsets are not committed, so that they are delivered again if this member dies.
`Wishes.agreed` is the offset up to which a queue counts as consumed, if that is not simply all that
was taken from it. A queue that is given up waits (`AtApplication.handed`) until what was returned
of it is consumed. With hooks the next poll is enough, because the application is then told and can
commit.

A stop does not consume the messages of the last poll; an application that wants that commits
before.
Source: client/impl/consumer/DefaultLitePullConsumerImpl.java, AssignedMessageQueue.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from steelyard.config import LitePullConfig
from steelyard.consume.process_queue import ConsumeRequest
from steelyard.errors import (
    BrokerError,
    ClosedError,
    ConfigError,
    ConnectError,
    RemotingError,
    SteelyardError,
)
from steelyard.groups.remoting.ownership import COMING, READ, HoldingState
from steelyard.nodes.consumer.remoting.contract import (
    Commit,
    GiveBack,
    PauseQueues,
    Poll,
    ResumeQueues,
)
from steelyard.nodes.consumer.remoting.delivery import DeliveryTimer
from steelyard.nodes.consumer.remoting.held import Held
from steelyard.nodes.consumer.remoting.holdings import Holdings
from steelyard.nodes.consumer.remoting.offsets import OffsetStore
from steelyard.nodes.consumer.remoting.peers import OffsetTold, Peers, SentBack
from steelyard.nodes.consumer.remoting.pulling import PullService
from steelyard.nodes.seam import Address, Answer, DropTimer, Effect, Handled, SetTimer
from steelyard.types import MessageQueue
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import MessageView
from steelyard.wording import counted


class PollTimer(DeliveryTimer, frozen=True):
    """Timer key: a poll has waited long enough."""

    call_id: int


class _Parked(msgspec.Struct, frozen=True):
    """A poll that waits for messages."""

    call_id: int
    call: Poll


class _Returned(msgspec.Struct, frozen=True):
    """What the last poll returned of one queue.

    `was_out`: earlier messages of it were not consumed yet.
    """

    held: Held
    run: ConsumeRequest
    was_out: bool


class _Committing(msgspec.Struct):
    """A commit that some brokers have not answered yet. `error`: the first one."""

    open: int = 0
    error: SteelyardError | None = None


class PolledDelivery:
    """The delivery of a consumer that polls."""

    def __init__(
        self,
        peers: Peers,
        config: LitePullConfig,
        holdings: Holdings,
        offsets: OffsetStore,
        pulling: PullService,
    ) -> None:
        self._peers = peers
        self._config = config
        self._holdings = holdings
        self._offsets = offsets
        self._pulling = pulling
        self._line: deque[Held] = deque()
        """Queues with messages, in the order of their turns."""
        self._out: dict[int, Held] = {}
        """Queues, by epoch, with returned messages not consumed, or an offset from the application.
        """
        self._parked: _Parked | None = None
        self._last: tuple[int, list[_Returned]] = (0, [])
        """The number of the latest poll, and what it has returned so far."""
        self._committing: dict[int, _Committing] = {}

    # -- polls -------------------------------------------------------------------------------------

    def poll(self, call_id: int, call: Poll, now: int, effects: list[Effect]) -> None:
        if call.messages_max < 1 or call.timeout_ms < 0:
            text = f"a poll for {call.messages_max} messages within {call.timeout_ms} ms"
            effects.append(
                Answer(call_id, ConfigError(f"{text}; give 1 message or more, and 0 ms or more"))
            )
            return
        if self._parked is not None:
            text = "another poll is in progress: one thread or task polls at a time"
            effects.append(Answer(call_id, ConfigError(text)))
            return
        self._poll_begins()
        messages = self._take(call, now)
        if messages or not call.timeout_ms:
            effects.append(Answer(call_id, messages))
        else:
            self._parked = _Parked(call_id, call)
            effects.append(SetTimer(PollTimer(call_id), now + call.timeout_ms))

    def _poll_begins(self) -> None:
        """Count what earlier polls returned as consumed."""
        if self._config.auto_commit:
            for held in self._out.values():
                held.wishes.agreed = None
        elif not self._config.hooks:
            gone = [epoch for epoch, held in self._out.items() if held.state is HoldingState.GONE]
            for epoch in gone:  # no commit can end what was returned of them
                del self._out[epoch]
            return
        for held in self._out.values():
            held.application.handed = 0
        self._out.clear()

    def _take(self, call: Poll, now: int) -> tuple[MessageView, ...]:
        """Take messages of the queues in turn, each until it has no more or there are enough."""
        found: list[MessageView] = []
        returned: list[_Returned] = []
        line = self._line
        while line and len(found) < call.messages_max:
            held = line.popleft()
            held.application.queued = False
            if held.state is not HoldingState.PULLING or held.wishes.paused:
                continue
            process = held.process
            before = process.committable
            run = process.take(call.messages_max - len(found))
            if run is None:
                continue
            process.finish(run)  # only waiting messages count against the limits
            found += run.messages
            returned.append(_Returned(held, run, held.epoch in self._out))
            if held.wishes.agreed is None:
                held.wishes.agreed = before
            held.application.handed = 1
            held.application.received(now)
            self._out[held.epoch] = held
            self._queue_up(held)
        self._last = call.number, returned
        return tuple(found)

    def give_back(self, call_id: int, call: GiveBack, now: int, effects: list[Effect]) -> None:
        effects.append(Answer(call_id, None))
        parked = self._parked
        number, returned = self._last
        if parked is not None and parked.call.number == call.number:
            self._parked = None
            effects += [Answer(parked.call_id, ()), DropTimer(PollTimer(parked.call_id))]
            return
        if number != call.number:
            return
        self._last = 0, []
        seen = call.seen
        for item in returned:
            held = item.held
            count = len(item.run.messages)
            seen, of_this = max(0, seen - count), min(seen, count)
            if held.state not in READ or of_this == count:
                continue
            held.process.put_back(item.run, of_this)
            if not of_this and not item.was_out:
                self._out.pop(held.epoch, None)
                held.application.handed = 0
                held.wishes.agreed = None if self._config.auto_commit else held.wishes.agreed
            if held.state is HoldingState.PULLING:
                self.offer(held, now, effects)
            else:
                held.process.discard_waiting()

    def offer(self, held: Held, now: int, effects: list[Effect]) -> None:
        self._queue_up(held)
        parked = self._parked
        messages = () if parked is None else self._take(parked.call, now)
        if parked is not None and messages:
            self._parked = None
            effects += [Answer(parked.call_id, messages), DropTimer(PollTimer(parked.call_id))]

    def _queue_up(self, held: Held) -> None:
        if not held.application.queued and held.process.waiting and not held.wishes.paused:
            held.application.queued = True
            self._line.append(held)

    def due(self, key: DeliveryTimer, now: int, effects: list[Effect]) -> None:
        assert isinstance(key, PollTimer)
        if self._parked is None or self._parked.call_id != key.call_id:
            return
        self._parked = None
        effects.append(Answer(key.call_id, ()))

    # -- commits -----------------------------------------------------------------------------------

    def commit(self, call_id: int, call: Commit, now: int, effects: list[Effect]) -> None:
        read = {held.queue: held for held in self._holdings.all() if held.state in READ}
        if call.offsets is not None:
            wrong = _wrong_offsets(call.offsets, read)
            if wrong is not None:
                effects.append(Answer(call_id, wrong))
                return
            said = [(read[queue], offset) for queue, offset in sorted(call.offsets.items())]
        else:
            said = [(held, held.process.committable) for held in read.values()]
        committing = self._committing[call_id] = _Committing()
        for held, offset in said:
            self._agree(held, offset)
            sent = held.commits
            if call.offsets is not None or offset != sent.committed or not sent.arrived:
                self._tell(call_id, committing, held, offset, now, effects)
        if not committing.open:
            self._committed(call_id, committing, effects)

    def _agree(self, held: Held, offset: int) -> None:
        """Set the offset up to which the application says that it has consumed a queue."""
        held.wishes.agreed = offset
        if self._config.auto_commit:
            self._out[held.epoch] = held  # until the next poll
        if offset >= held.process.committable:
            held.application.handed = 0
            if not self._config.auto_commit:
                self._out.pop(held.epoch, None)

    def _tell(
        self,
        call_id: int,
        committing: _Committing,
        held: Held,
        offset: int,
        now: int,
        effects: list[Effect],
    ) -> None:
        address = self._peers.address(held.queue) or held.pull.address
        if address is None:
            name = held.queue.broker_name
            committing.error = ConnectError(f"broker {name} is not in the routes")
            return
        self._holdings.commits.wrote(held, offset, now)
        told = OffsetTold(held.queue, held.epoch, call_id)
        committing.open += self._offsets.write_surely(told, address, offset, now, effects)

    def told(
        self,
        told: OffsetTold,
        address: Address,
        reply: Command | RemotingError,
        effects: list[Effect],
    ) -> None:
        """Handle the outcome of a commit."""
        committing = self._committing[told.call_id]
        committing.open -= 1
        error: SteelyardError | None = None
        if isinstance(reply, RemotingError):
            error = reply
        elif reply.code != ResponseCode.SUCCESS:
            error = BrokerError(reply.code, reply.remark, address)
        held = self._holdings.find(told.queue, told.epoch)
        if error is not None:
            committing.error = committing.error or error
            if held is not None:
                self._holdings.commits.lost(held)
        elif held is not None:
            self._holdings.commits.arrived(held)
        if not committing.open:
            self._committed(told.call_id, committing, effects)

    def _committed(self, call_id: int, committing: _Committing, effects: list[Effect]) -> None:
        del self._committing[call_id]
        self._offsets.keep(effects)
        effects.append(Answer(call_id, committing.error))

    # -- single queues -----------------------------------------------------------------------------

    def pause(self, call_id: int, call: PauseQueues, effects: list[Effect]) -> None:
        found = self.held(call.queues)
        if isinstance(found, ConfigError):
            effects.append(Answer(call_id, found))
            return
        for held in found:
            held.wishes.paused = True
        effects.append(Answer(call_id, None))

    def resume(self, call_id: int, call: ResumeQueues, now: int, effects: list[Effect]) -> None:
        found = self.held(call.queues)
        if isinstance(found, ConfigError):
            effects.append(Answer(call_id, found))
            return
        effects.append(Answer(call_id, None))
        for held in found:
            held.wishes.paused = False
            self._pulling.look(held, now, effects)
            self.offer(held, now, effects)

    def move(self, held: Held, offset: int, now: int, effects: list[Effect]) -> None:
        """Continue at another offset for the application, and discard what was prefetched."""
        held.application.handed = 0  # nobody waits for what was returned before
        self._out.pop(held.epoch, None)
        fresh = self._holdings.restart(held, offset, now)
        if self._config.auto_commit:
            fresh.wishes.agreed = None
        else:  # that is not a commit yet
            fresh.wishes.agreed = held.wishes.agreed
            self._holdings.commits.go_on(fresh, held)
        self._pulling.look(fresh, now, effects)

    def assignment(self) -> tuple[MessageQueue, ...]:
        here = (HoldingState.ACQUIRING, HoldingState.PULLING)
        return tuple(sorted(held.queue for held in self._holdings.all() if held.state in here))

    def held(self, queues: Iterable[MessageQueue]) -> list[Held] | ConfigError:
        """Return the holdings of these queues, or a ConfigError if one is not held."""
        found: list[Held] = []
        for queue in queues:
            held = self._holdings.get(queue)
            if held is None or held.state not in COMING | {HoldingState.PULLING}:
                return _not_held(queue, self.assignment())
            found.append(held)
        return found

    # -- the rest of a delivery --------------------------------------------------------------------

    def stop(self, effects: list[Effect]) -> None:
        """End the poll that waits, and count all messages as no longer with the application."""
        for held in self._out.values():
            held.application.handed = 0
        self._out.clear()
        parked, self._parked = self._parked, None
        if parked is not None:
            error = ClosedError("the consumer was closed during the poll")
            effects.append(Answer(parked.call_id, error))

    def resize(self, handed_max: int, now: int, effects: list[Effect]) -> None:
        raise AssertionError("an application that polls has no listeners")

    def handled(self, event: Handled, now: int, effects: list[Effect]) -> None:
        """Ignore the end of a notification, which needs no decision."""

    def sent_back(
        self, sent: SentBack, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> None:
        raise AssertionError("nothing of a polled queue is sent back")

    def check(self) -> None:
        """Assert that no message waits while a poll does, and that queues in line are marked."""
        assert all(held.application.queued for held in self._line)
        assert len({held.epoch for held in self._line}) == len(self._line)
        for held in self._holdings.all():
            assert not held.application.handed or held.epoch in self._out
            if (
                held.state is HoldingState.PULLING
                and held.process.waiting
                and not held.wishes.paused
            ):
                assert held.application.queued
                assert self._parked is None
        assert all(committing.open > 0 for committing in self._committing.values())


def _not_held(queue: MessageQueue, assignment: tuple[MessageQueue, ...]) -> ConfigError:
    return ConfigError(
        f"{queue} is not held, or not any more; this consumer holds"
        f" {counted(len(assignment), 'queue')},"
        f" see assignment(): {', '.join(str(tuple(held)) for held in assignment[:8])}"
    )


def _wrong_offsets(
    offsets: Mapping[MessageQueue, int], read: Mapping[MessageQueue, Held]
) -> ConfigError | None:
    for queue, offset in sorted(offsets.items()):
        if queue not in read:
            return _not_held(queue, tuple(sorted(read)))
        if offset < 0:
            return ConfigError(f"the offset of {queue} is {offset}; it must be 0 or more")
    return None
