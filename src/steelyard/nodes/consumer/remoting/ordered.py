"""Delivery to an orderly listener: one batch of each queue at a time, in the order of offsets.

A queue with messages to deliver has a turn, which is in one of four steps:

- LINE: it waits for a free place at the listener. There it gets its next batch if the broker's lock
  of the queue is still valid. If not, the lock is requested and the turn rests, a little longer
  each time.
- LISTENER: the listener has its batch. After SUCCESS the messages are finished, and the queue keeps
  its place for the next batch; after a minute it goes to the end of the line. After
  SUSPEND_CURRENT_QUEUE_A_MOMENT the turn rests for `suspend_ms`; then the same messages are
  delivered again, with their numbers of tries increased by one.
- LEAVING: messages that were tried `retry_max` times are on their way to the group's retry topic,
  as copies. Those that arrive there are finished, the others are tried again.
- RESTING: a timer is running; after that the turn is in line.

If a queue is given up while its batch is with the listener, the node waits for it
(`AtApplication.handed`). A verdict that comes too late is ignored. If this member gets the queue
again before the listener has finished the old batch, the new holding waits for it: two batches of
one queue are never with the listener at once.
Source: client/impl/consumer/ConsumeMessageOrderlyService.java.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum

import msgspec

from steelyard.consume.process_queue import ConsumeRequest
from steelyard.consume.statistics import ConsumeStatistics
from steelyard.errors import RemotingError, RouteError
from steelyard.groups.remoting.ownership import READ, HoldingState
from steelyard.machine import Machine
from steelyard.nodes.consumer.remoting.concurrent import DROPPED
from steelyard.nodes.consumer.remoting.contract import ConsumeBatch
from steelyard.nodes.consumer.remoting.copies import is_stored, send_copy
from steelyard.nodes.consumer.remoting.delivery import DeliveryTimer
from steelyard.nodes.consumer.remoting.held import Held
from steelyard.nodes.consumer.remoting.locks import Locks
from steelyard.nodes.consumer.remoting.peers import Peers, SentBack
from steelyard.nodes.seam import Deliver, Effect, Handled, SetTimer
from steelyard.types import ConsumeOrderlyStatus, LogLine, MessageQueue
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import MessageView

CONTINUOUS_MS = 60_000
"""Time after which a queue goes behind those that wait.

Source: rocketmq.client.maxTimeConsumeContinuously.
"""

REST_MS_MIN = 10
REST_MS_MAX = 30_000
"""Limits of a rest, whatever `suspend_ms` says (submitConsumeRequestLater)."""

LOCK_REST_MS_MAX = 3_000
"""Longest rest of a turn without its lock (tryLockLaterAndReconsume)."""


class Rest(DeliveryTimer, frozen=True):
    """Timer key: a turn has rested long enough."""

    queue: MessageQueue
    epoch: int


class Step(StrEnum):
    LINE = "line"
    LISTENER = "listener"
    LEAVING = "leaving"
    RESTING = "resting"


class Move(StrEnum):
    OFFERED = "the queue has messages to hand"
    HANDED = "the listener gets a batch"
    UNLOCKED = "its lock is not believed in"
    FINISHED = "the batch is done"
    FAILED = "to be tried again"
    SPENT = "tried too often"
    RESTED = "the timer is due"


TURNS: Machine[Step, Move] = Machine(
    "Queue's turn at an orderly listener",
    {
        None: {Move.OFFERED: (Step.LINE,)},
        Step.LINE: {Move.HANDED: (Step.LISTENER,), Move.UNLOCKED: (Step.RESTING,)},
        Step.LISTENER: {
            Move.FINISHED: (Step.LINE,),
            Move.FAILED: (Step.RESTING,),
            Move.SPENT: (Step.LEAVING,),
        },
        Step.LEAVING: {Move.FINISHED: (Step.LINE,), Move.FAILED: (Step.RESTING,)},
        Step.RESTING: {Move.RESTED: (Step.LINE,)},
    },
)


class _Turn(msgspec.Struct, eq=False):
    """The turn of one queue that has something to consume."""

    held: Held
    began: int
    """When it was last put at the end of the line."""
    step: Step
    run: ConsumeRequest | None = None
    """What was taken from the queue and is not finished."""
    messages: tuple[MessageView, ...] = ()
    """Those messages of the run that are to be consumed, or to be consumed again."""
    handed_at: int = 0
    lock_rest_ms: int = REST_MS_MIN
    successor: Held | None = None
    """The same queue, given up and taken anew while this turn's batch was not finished."""

    def move(self, event: Move) -> None:
        self.step = TURNS.move(self.step, event)


class _Departure(msgspec.Struct):
    """Messages on their way to the retry topic, by their positions in the turn's messages."""

    turn: _Turn
    open: set[int]
    gone: set[int]


class OrderedDelivery:
    """The delivery of an ordered consumer."""

    def __init__(self, peers: Peers, locks: Locks, statistics: ConsumeStatistics) -> None:
        config = peers.config
        self._peers = peers
        self._locks = locks
        self._statistics = statistics
        self._batch_max = config.consume_batch
        self._tries_max = config.retry_max
        self._suspend_ms = min(max(config.suspend_ms, REST_MS_MIN), REST_MS_MAX)
        self._handed_max = self._free = config.handed_max
        self._turns: dict[MessageQueue, _Turn] = {}
        self._line: deque[_Turn] = deque()
        self._with_listener: dict[int, _Turn] = {}
        self._departures: dict[int, _Departure] = {}

    # -- to the listener ---------------------------------------------------------------------------

    def offer(self, held: Held, now: int, effects: list[Effect]) -> None:
        turn = self._turns.get(held.queue)
        if turn is None:
            self._begin(held, now)
        elif turn.held is not held:
            if turn.step in (Step.LISTENER, Step.LEAVING):
                turn.successor = held
            else:
                if turn.step is Step.LINE:
                    self._line.remove(turn)
                self._begin(held, now)
        self._hand_more(now, effects)

    def _begin(self, held: Held, now: int) -> None:
        if held.process.waiting:
            self._turns[held.queue] = turn = _Turn(held, now, TURNS.move(None, Move.OFFERED))
            self._line.append(turn)

    def _end(self, turn: _Turn, now: int) -> None:
        """End a turn that has nothing more to do."""
        del self._turns[turn.held.queue]
        if turn.successor is not None and turn.successor.state is HoldingState.PULLING:
            self._begin(turn.successor, now)

    def _hand_more(self, now: int, effects: list[Effect]) -> None:
        """Deliver as many batches as there are places."""
        while self._free > 0 and self._line:
            turn = self._line.popleft()
            if turn.held.state is not HoldingState.PULLING or not self._filled(turn):
                self._end(turn, now)
            elif self._locks.holds(turn.held, now):
                effects.append(self._hand(turn, now))
            else:
                self._locks.renew(turn.held, now, effects)
                effects.append(self._rest(turn, Move.UNLOCKED, turn.lock_rest_ms, now))
                turn.lock_rest_ms = min(2 * turn.lock_rest_ms, LOCK_REST_MS_MAX)

    def _filled(self, turn: _Turn) -> bool:
        """Take the next messages unless some are to be consumed again; return whether any are."""
        if turn.run is None:
            turn.run = turn.held.process.take(self._batch_max)
            turn.messages = () if turn.run is None else turn.run.messages
        return turn.run is not None

    def _hand(self, turn: _Turn, now: int) -> Deliver:
        held = turn.held
        ticket = self._peers.ticket()
        self._free -= 1
        held.application.handed += 1
        held.application.received(now)
        turn.handed_at = now
        turn.move(Move.HANDED)
        turn.lock_rest_ms = REST_MS_MIN
        self._with_listener[ticket] = turn
        return Deliver(ticket, ConsumeBatch(held.queue, turn.messages))

    def _rest(self, turn: _Turn, event: Move, rest_ms: int, now: int) -> SetTimer:
        turn.move(event)
        return SetTimer(Rest(turn.held.queue, turn.held.epoch), now + rest_ms)

    def due(self, key: DeliveryTimer, now: int, effects: list[Effect]) -> None:
        assert isinstance(key, Rest)
        turn = self._turns.get(key.queue)
        if turn is None or turn.held.epoch != key.epoch or turn.step is not Step.RESTING:
            return
        turn.move(Move.RESTED)
        turn.began = now
        self._line.append(turn)
        self._hand_more(now, effects)

    # -- verdicts ----------------------------------------------------------------------------------

    def handled(self, event: Handled, now: int, effects: list[Effect]) -> None:
        turn = self._with_listener.pop(event.ticket)
        held = turn.held
        self._free += 1
        held.application.handed -= 1
        held.application.consumed_at = now
        ok = event.status is ConsumeOrderlyStatus.SUCCESS
        took_ms = now - turn.handed_at
        count = len(turn.messages)
        consumed, failed = (count, 0) if ok else (0, count)
        self._statistics.consumed(held.queue.topic, took_ms, consumed, failed, now)
        if ok and held.state in READ:
            self._finish(turn, now)
        elif held.state is HoldingState.PULLING:
            self._again(turn, now, effects)
        else:  # the next owner consumes it again
            self._end(turn, now)
        self._hand_more(now, effects)

    def _finish(self, turn: _Turn, now: int) -> None:
        """Finish a batch: continue with the queue, or with another one."""
        assert turn.run is not None
        turn.held.process.finish(turn.run)
        turn.run, turn.messages = None, ()
        if turn.held.state is not HoldingState.PULLING or not turn.held.process.waiting:
            self._end(turn, now)
            return
        turn.move(Move.FINISHED)
        if now - turn.began > CONTINUOUS_MS:
            turn.began = now
            self._line.append(turn)
        else:
            self._line.appendleft(turn)

    def _again(self, turn: _Turn, now: int, effects: list[Effect]) -> None:
        """Try a failed batch again; messages tried too often go to the retry topic instead."""
        tries_max = self._tries_max
        spent = {
            position
            for position, message in enumerate(turn.messages)
            if 0 <= tries_max <= message.reconsume_times
        }
        if not spent:
            self._try_again(turn, frozenset(), now, effects)
            return
        if not self._peers.retry_topic:
            self._drop(turn, spent, now, effects)
            return
        number = self._peers.ticket()
        turn.move(Move.SPENT)
        turn.held.application.handed += 1
        self._departures[number] = _Departure(turn, set(spent), set())
        for position in sorted(spent):
            purpose = SentBack(number, position)
            message = turn.messages[position]
            error = send_copy(self._peers, message, tries_max, purpose, now, effects)
            if error is not None:
                self.sent_back(purpose, error, now, effects)

    def _drop(self, turn: _Turn, spent: set[int], now: int, effects: list[Effect]) -> None:
        """Drop messages tried too often, because there is no retry topic."""
        dropped = [turn.messages[position].message_id for position in sorted(spent)]
        effects += [
            LogLine("WARNING", f"message {message_id} failed and is dropped: {DROPPED}")
            for message_id in dropped
        ]
        if len(spent) == len(turn.messages):
            self._finish(turn, now)
        else:
            self._try_again(turn, spent, now, effects)

    def sent_back(
        self,
        sent: SentBack,
        reply: Command | RemotingError | RouteError,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Note whether a copy was stored."""
        departure = self._departures[sent.number]
        turn = departure.turn
        departure.open.discard(sent.position)
        if is_stored(reply):
            departure.gone.add(sent.position)
        else:
            why = f"code {reply.code}: {reply.remark}" if isinstance(reply, Command) else reply
            message_id = turn.messages[sent.position].message_id
            effects.append(LogLine("WARNING", f"message {message_id} stays in its queue: {why}"))
        if departure.open:
            return
        del self._departures[sent.number]
        turn.held.application.handed -= 1
        if len(departure.gone) == len(turn.messages) and turn.held.state in READ:
            self._finish(turn, now)
        elif turn.held.state is HoldingState.PULLING:
            self._try_again(turn, departure.gone, now, effects)
        else:
            self._end(turn, now)
        self._hand_more(now, effects)

    def _try_again(
        self, turn: _Turn, without: set[int] | frozenset[int], now: int, effects: list[Effect]
    ) -> None:
        """Try the same messages again after a rest, except those at the positions of `without`."""
        turn.messages = tuple(
            msgspec.structs.replace(message, reconsume_times=message.reconsume_times + 1)
            for position, message in enumerate(turn.messages)
            if position not in without
        )
        effects.append(self._rest(turn, Move.FAILED, self._suspend_ms, now))

    def resize(self, handed_max: int, now: int, effects: list[Effect]) -> None:
        """Change the number of places at the listener; batches beyond it finish normally."""
        self._free += handed_max - self._handed_max
        self._handed_max = handed_max
        self._hand_more(now, effects)

    def check(self) -> None:
        """Assert that the places add up, and that every turn is where its step says."""
        assert self._free + len(self._with_listener) == self._handed_max
        assert self._free <= 0 or not self._line
        steps = {
            Step.LINE: list(self._line),
            Step.LISTENER: list(self._with_listener.values()),
            Step.LEAVING: [departure.turn for departure in self._departures.values()],
            Step.RESTING: [t for t in self._turns.values() if t.step is Step.RESTING],
        }
        placed = [turn for step, turns in steps.items() for turn in turns if turn.step is step]
        assert len(placed) == sum(len(turns) for turns in steps.values()) == len(self._turns)
        for queue, turn in self._turns.items():
            assert turn.held.queue == queue
            assert turn.run is not None or turn.step is Step.LINE
            assert turn.run is None or not turn.run.finished
            offsets = [message.queue_offset for message in turn.messages]
            assert offsets == sorted(set(offsets))
            assert turn.step in (Step.LISTENER, Step.LEAVING) or turn.successor is None
