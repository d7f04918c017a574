"""Delivery to a concurrent listener, and the handling of its verdicts.

At most `handed_max` batches are with the listener, or on their way back to the broker, at once.
They are taken from the held queues in turn. The other messages stay in their queues, from which a
queue that is given up can discard them.

A batch to be consumed later is sent back to its broker message by message (36), and the broker
delivers it again after a delay. A message that the broker does not take is sent as a copy instead;
if that fails too, it is delivered to the listener again after five seconds. Until then its offset
is not committed. Verdicts on queues that are no longer held are ignored: their next owner reads the
messages again.

A batch that its listener has had for `consume_timeout_ms`, and that blocks its queue, is sent back
as well. Its verdict, should it ever come, only frees the place at the listener.
Source: client/impl/consumer/ConsumeMessageConcurrentlyService.java, ProcessQueue.java
`cleanExpiredMsg`.
"""

from __future__ import annotations

from collections import deque

import msgspec

from steelyard.consume.process_queue import ConsumeRequest
from steelyard.consume.statistics import ConsumeStatistics
from steelyard.errors import ConnectError, RemotingError
from steelyard.groups.remoting.ownership import READ, HoldingState
from steelyard.nodes.consumer.remoting.contract import ConsumeBatch
from steelyard.nodes.consumer.remoting.copies import is_stored, send_copy
from steelyard.nodes.consumer.remoting.delivery import DeliveryTimer
from steelyard.nodes.consumer.remoting.held import Held
from steelyard.nodes.consumer.remoting.peers import Peers, SentBack
from steelyard.nodes.seam import Deliver, Effect, Handled, SetTimer, Verdict
from steelyard.types import ConsumeStatus, LogLine
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import MessageView

RETRY_MAX = 16
"""DefaultMQPushConsumerImpl.getMaxReconsumeTimes."""

HAND_AGAIN_MS = 5_000
"""ConsumeMessageConcurrentlyService.submitConsumeRequestLater."""

OVERDUE_LEVEL = 3
"""Delay level of a message that its listener has had for too long."""

DROPPED = "a broadcasting group has no retry topic"

OVERDUE_LOOK_MS = 1_000
"""Shortest interval between two searches for overdue batches."""


class HandAgain(DeliveryTimer, frozen=True):
    """Timer key: messages that could not be sent back are to be delivered again."""

    number: int


class LookForOverdue(DeliveryTimer, frozen=True):
    """Timer key: the listener may have had a batch for too long."""


class _Batch(msgspec.Struct, gc=False):
    """Messages of one run, all or those that failed, waiting for the listener or with it."""

    held: Held
    run: ConsumeRequest
    messages: tuple[MessageView, ...]
    handed_at: int = 0
    overdue: bool = False
    """Sent back without waiting for the verdict."""


class _Return(msgspec.Struct):
    """Messages on their way back to their broker, identified by their positions in the batch."""

    batch: _Batch
    open: int
    ticket: int | None
    """For an overdue batch, that of its delivery.

    None: the listener has finished, and its place is still taken.
    """
    copied: set[int]
    """Positions sent as a copy after the broker did not take the message."""
    failed: set[int]


def _later(messages: tuple[MessageView, ...], status: Verdict) -> tuple[MessageView, ...]:
    """Return the messages that are to be consumed later, by one status for all or one for each."""
    if isinstance(status, tuple):
        return tuple(
            message
            for message, own in zip(messages, status, strict=True)
            if own is ConsumeStatus.RECONSUME_LATER
        )
    return messages if status is ConsumeStatus.RECONSUME_LATER else ()


class ConcurrentDelivery:
    """The delivery of a concurrent consumer."""

    def __init__(self, peers: Peers, statistics: ConsumeStatistics) -> None:
        config = peers.config
        self._peers = peers
        self._statistics = statistics
        self._batch_max = config.consume_batch
        self._tries_max = config.retry_max if config.retry_max >= 0 else RETRY_MAX
        self._timeout_ms = config.consume_timeout_ms if peers.retry_topic else 0
        self._handed_max = self._free = config.handed_max
        self._line: deque[Held] = deque()
        self._again: deque[_Batch] = deque()
        self._with_listener: dict[int, _Batch] = {}
        self._returns: dict[int, _Return] = {}
        self._looking = False

    # -- to the listener ---------------------------------------------------------------------------

    def offer(self, held: Held, now: int, effects: list[Effect]) -> None:
        if not held.application.queued and held.process.waiting:
            held.application.queued = True
            self._line.append(held)
        self._hand_more(now, effects)

    def _hand_more(self, now: int, effects: list[Effect]) -> None:
        """Deliver as many batches as the listener can take."""
        free = self._free
        while self._free > 0 and self._again:
            batch = self._again.popleft()
            if batch.held.state is HoldingState.PULLING:
                effects.append(self._hand(batch, now))
        line = self._line
        while self._free > 0 and line:
            held = line.popleft()
            process = held.process
            run = process.take(self._batch_max) if held.state is HoldingState.PULLING else None
            if run is None:
                held.application.queued = False
                continue
            effects.append(self._hand(_Batch(held, run, run.messages), now))
            if process.waiting:
                line.append(held)
            else:
                held.application.queued = False
        if self._free < free and not self._looking and self._timeout_ms:
            self._looking = True
            effects.append(SetTimer(LookForOverdue(), now + self._timeout_ms))

    def _hand(self, batch: _Batch, now: int) -> Deliver:
        ticket = self._peers.ticket()
        held = batch.held
        self._free -= 1
        held.application.handed += 1
        held.application.received(now)
        batch.handed_at = now
        self._with_listener[ticket] = batch
        return Deliver(ticket, ConsumeBatch(held.queue, batch.messages))

    def handled(self, event: Handled, now: int, effects: list[Effect]) -> None:
        """Handle the listener's verdict."""
        batch = self._with_listener.pop(event.ticket)
        held = batch.held
        held.application.consumed_at = now
        later = _later(batch.messages, event.status)
        took_ms = now - batch.handed_at
        consumed = len(batch.messages) - len(later)
        self._statistics.consumed(held.queue.topic, took_ms, consumed, len(later), now)
        if batch.overdue:
            self._free += 1
            self._hand_more(now, effects)
            return
        if later and held.state in READ:
            batch.messages = later
            if self._peers.retry_topic:
                self._send_back(batch, None, 0, now, effects)
                return
            effects += [
                LogLine("WARNING", f"message {message.message_id} failed and is dropped: {DROPPED}")
                for message in batch.messages
            ]
        self._free += 1
        held.application.handed -= 1
        if held.state in READ:
            held.process.finish(batch.run)
        self._hand_more(now, effects)

    def resize(self, handed_max: int, now: int, effects: list[Effect]) -> None:
        """Change the number of places at the listener; batches beyond it finish normally."""
        self._free += handed_max - self._handed_max
        self._handed_max = handed_max
        self._hand_more(now, effects)

    # -- later -------------------------------------------------------------------------------------

    def _send_back(
        self, batch: _Batch, ticket: int | None, level: int, now: int, effects: list[Effect]
    ) -> None:
        number = self._peers.ticket()
        self._returns[number] = _Return(batch, len(batch.messages), ticket, set(), set())
        address = self._peers.address(batch.held.queue)
        for position, message in enumerate(batch.messages):
            purpose = SentBack(number, position)
            if address is None:
                name = batch.held.queue.broker_name
                error = ConnectError(f"broker {name} is not in the routes")
                self.sent_back(purpose, error, now, effects)
                continue
            header = headers.ConsumerSendMsgBackRequestHeader(
                offset=message.physical_offset,
                group=self._peers.config.group,
                delay_level=level,
                origin_msg_id=message.message_id,
                origin_topic=message.topic,
                max_reconsume_times=self._tries_max,
            )
            code = RequestCode.CONSUMER_SEND_MSG_BACK
            self._peers.ask(address, code, header, purpose, now, effects)

    def sent_back(
        self, sent: SentBack, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> None:
        back = self._returns[sent.number]
        if sent.position in back.copied:
            done = is_stored(reply)
        else:
            done = isinstance(reply, Command) and reply.code == ResponseCode.SUCCESS
        if not done:
            message = back.batch.messages[sent.position]
            why: object = reply
            if isinstance(reply, Command):
                why = f"code {reply.code}: {reply.remark}"
            if sent.position not in back.copied:
                back.copied.add(sent.position)
                error = send_copy(self._peers, message, self._tries_max, sent, now, effects)
                if error is None:
                    return
                why = f"{why}; sending a copy failed, too: {error}"
            back.failed.add(sent.position)
            effects.append(LogLine("WARNING", f"message {message.message_id} not sent back: {why}"))
        back.open -= 1
        if not back.open:
            self._returned(sent.number, back, now, effects)

    def _returned(self, number: int, back: _Return, now: int, effects: list[Effect]) -> None:
        """Finish the return of a batch once the fate of all its messages is known."""
        batch = back.batch
        held = batch.held
        if back.failed:
            batch.messages = tuple(batch.messages[p] for p in sorted(back.failed))
        if back.ticket is None:
            self._free += 1
        elif back.failed and back.ticket in self._with_listener:
            del self._returns[number]
            # Its verdict counts after all, if it comes before the next search.
            batch.overdue = False
            return
        held.application.handed -= 1
        if back.failed and held.state is HoldingState.PULLING:
            effects.append(SetTimer(HandAgain(number), now + HAND_AGAIN_MS))
        else:
            del self._returns[number]
            if not back.failed and held.state in READ:
                held.process.finish(batch.run)
        if back.ticket is not None:
            self._send_back_overdue(now, effects)
        self._hand_more(now, effects)

    def due(self, key: DeliveryTimer, now: int, effects: list[Effect]) -> None:
        if isinstance(key, LookForOverdue):
            self._look_for_overdue(now, effects)
            return
        assert isinstance(key, HandAgain)
        back = self._returns.pop(key.number)
        back.batch.overdue = False
        self._again.append(back.batch)
        self._hand_more(now, effects)

    # -- overdue -----------------------------------------------------------------------------------

    def _look_for_overdue(self, now: int, effects: list[Effect]) -> None:
        waiting = [b.handed_at for b in self._with_listener.values() if not b.overdue]
        self._looking = bool(waiting)
        if not waiting:
            return
        self._send_back_overdue(now, effects)
        at = max(min(waiting) + self._timeout_ms, now + OVERDUE_LOOK_MS)
        effects.append(SetTimer(LookForOverdue(), at))

    def _send_back_overdue(self, now: int, effects: list[Effect]) -> None:
        """Send back overdue batches that block their queues."""
        oldest = now - self._timeout_ms
        found = [
            (ticket, batch)
            for ticket, batch in self._with_listener.items()
            if batch.handed_at <= oldest
            and not batch.overdue
            and batch.held.state is HoldingState.PULLING
            and batch.held.process.head is batch.run
        ]
        for ticket, batch in found:
            batch.overdue = True
            text = (
                f"messages of {batch.held.queue} take their listener too long; they are sent back"
            )
            effects.append(LogLine("WARNING", text))
            self._send_back(batch, ticket, OVERDUE_LEVEL, now, effects)

    def check(self) -> None:
        """Assert that the places add up and that every waiting queue is in line."""
        returning = sum(1 for back in self._returns.values() if back.open and back.ticket is None)
        taken = len(self._with_listener) + returning
        assert self._free + taken == self._handed_max
        assert self._free <= 0 or not (self._again or self._line)
        assert all(held.application.queued for held in self._line)
        assert len({held.epoch for held in self._line}) == len(self._line)
        for batch in self._with_listener.values():
            assert batch.overdue or not batch.run.finished
