"""Messages for a concurrent listener, and what becomes of its verdicts.

At most `handed_max` batches are with the listener, or on their way back, at once. They are taken
from the held queues in turn; the others wait here, where a queue that is given up can take them back. A batch that is to be
consumed later goes back to its broker message by message (36), which sends it again after a while;
what the broker does not take is handed again after five seconds. Until then its offset is not
committed. Verdicts on queues that are gone count for nothing: their next owner reads them again.
Source: client/impl/consumer/ConsumeMessageConcurrentlyService.java.
"""

from __future__ import annotations

from collections import deque

import msgspec

from steelyard.consume.process_queue import Run
from steelyard.errors import ConnectError, RemotingError
from steelyard.groups.ownership import State
from steelyard.nodes.consumer.contract import ConsumeBatch
from steelyard.nodes.consumer.delivery import DeliveryTimer
from steelyard.nodes.consumer.holdings import Held
from steelyard.nodes.consumer.peers import Peers, SentBack
from steelyard.nodes.seam import Effect, Hand, Handled, SetTimer, Tell
from steelyard.types import ConsumeStatus
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import MessageView

RETRY_MAX = 16
"""DefaultMQPushConsumerImpl.getMaxReconsumeTimes."""

HAND_AGAIN_MS = 5_000
"""ConsumeMessageConcurrentlyService.submitConsumeRequestLater."""


class HandAgain(DeliveryTimer, frozen=True):
    """Timer key: messages that could not be sent back are due."""

    number: int


class _Batch(msgspec.Struct, gc=False, frozen=True):
    """Messages of one run, all of them or those that failed, on the way to the listener or with it."""

    held: Held
    run: Run
    messages: tuple[MessageView, ...]


class _Return(msgspec.Struct):
    """Messages on the way back to their broker."""

    batch: _Batch
    open: int
    failed: list[MessageView]


class ConcurrentDelivery:
    """See the module's text."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._batch_max = peers.config.consume_batch
        self._free = peers.config.handed_max
        self._line: deque[Held] = deque()
        self._again: deque[_Batch] = deque()
        self._with_listener: dict[int, _Batch] = {}
        self._returns: dict[int, _Return] = {}
        self._number = 0

    def offer(self, held: Held, now: int) -> list[Effect]:
        if not held.queued and held.process.waiting:
            held.queued = True
            self._line.append(held)
        return self._hand_more()

    def _hand_more(self) -> list[Effect]:
        """As many batches as the listener can take."""
        effects: list[Effect] = []
        while self._free and self._again:
            batch = self._again.popleft()
            if batch.held.state is State.PULLING:
                effects.append(self._hand(batch))
        line = self._line
        while self._free and line:
            held = line.popleft()
            process = held.process
            run = process.take(self._batch_max) if held.state is State.PULLING else None
            if run is None:
                held.queued = False
                continue
            effects.append(self._hand(_Batch(held, run, run.messages)))
            if process.waiting:
                line.append(held)
            else:
                held.queued = False
        return effects

    def _hand(self, batch: _Batch) -> Hand:
        self._number += 1
        self._free -= 1
        batch.held.handed += 1
        self._with_listener[self._number] = batch
        return Hand(self._number, ConsumeBatch(batch.held.queue, batch.messages))

    def handled(self, event: Handled, now: int) -> list[Effect]:
        """The listener's verdict."""
        batch = self._with_listener.pop(event.ticket)
        if event.status is ConsumeStatus.RECONSUME_LATER and batch.held.state is not State.GONE:
            return self._send_back(batch, now)
        self._free += 1
        batch.held.handed -= 1
        if batch.held.state is not State.GONE:
            batch.held.process.finish(batch.run)
        return self._hand_more()

    # -- later -------------------------------------------------------------------------------------

    def _send_back(self, batch: _Batch, now: int) -> list[Effect]:
        self._number += 1
        number = self._number
        self._returns[number] = _Return(batch, len(batch.messages), [])
        address = self._peers.address(batch.held.queue)
        if address is None:
            error = ConnectError(f"broker {batch.held.queue.broker_name} is not in the routes")
            effects: list[Effect] = []
            for position in range(len(batch.messages)):
                effects += self.sent_back(SentBack(number, position), error, now)
            return effects
        config = self._peers.config
        effects = []
        for position, message in enumerate(batch.messages):
            header = headers.ConsumerSendMsgBackRequestHeader(
                offset=message.physical_offset,
                group=config.group,
                delay_level=0,
                origin_msg_id=message.message_id,
                origin_topic=message.topic,
                max_reconsume_times=config.retry_max if config.retry_max >= 0 else RETRY_MAX,
            )
            code = RequestCode.CONSUMER_SEND_MSG_BACK
            effects += self._peers.ask(address, code, header, SentBack(number, position), now)
        return effects

    def sent_back(self, sent: SentBack, reply: Command | RemotingError, now: int) -> list[Effect]:
        back = self._returns[sent.number]
        back.open -= 1
        effects: list[Effect] = []
        if isinstance(reply, RemotingError) or reply.code != ResponseCode.SUCCESS:
            message = back.batch.messages[sent.position]
            back.failed.append(message)
            why = (
                reply if isinstance(reply, RemotingError) else f"code {reply.code}: {reply.remark}"
            )
            effects.append(Tell("WARNING", f"message {message.message_id} not sent back: {why}"))
        if back.open:
            return effects
        self._free += 1
        back.batch.held.handed -= 1
        if back.failed and back.batch.held.state is State.PULLING:
            effects.append(SetTimer(HandAgain(sent.number), now + HAND_AGAIN_MS))
        else:
            del self._returns[sent.number]
            if not back.failed and back.batch.held.state is not State.GONE:
                back.batch.held.process.finish(back.batch.run)
        return effects + self._hand_more()

    def due(self, key: DeliveryTimer, now: int) -> list[Effect]:
        assert isinstance(key, HandAgain)
        back = self._returns.pop(key.number)
        failed = sorted(back.failed, key=lambda message: message.queue_offset)
        self._again.append(_Batch(back.batch.held, back.batch.run, tuple(failed)))
        return self._hand_more()

    def check(self) -> None:
        """Assert that the slots add up and that every waiting queue is in line."""
        returning = sum(1 for back in self._returns.values() if back.open)
        taken = len(self._with_listener) + returning
        assert self._free + taken == self._peers.config.handed_max
        assert not (self._free and (self._again or self._line))
        assert all(held.queued for held in self._line)
        assert len({held.epoch for held in self._line}) == len(self._line)
        for batch in self._with_listener.values():
            assert not batch.run.finished
