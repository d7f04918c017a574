"""Ordered consumption: what the brokers' locks promise, and whether members and brokers keep it.

An **ownership** of a queue begins when a member asks where to start in it (14). The lock belongs to
whom the queue's broker granted it last (41), until it is let go (42, 35), is not renewed for
`LIFE_MS`, or the broker dies, which forgets its locks. A member believes in a lock for `TRUST_MS`
after it asked for the grant.

Promised at every moment, whatever fails:
- a broker grants a queue to nobody else while a lock lives that it knows of;
- a batch is handed only under a lock that its broker granted to this member within `TRUST_MS`;
- a member has one batch of a queue at its listener, also across ownerships;
- within one ownership offsets only grow: past what SUCCEEDED, nothing at or below it is handed;
  after SUSPEND_CURRENT_QUEUE_A_MOMENT the next batch is the same one;
- the lock is let go under a listener that is at work only after it had `DRAIN_MS` to finish.

Promised besides where nothing fails and listeners take less than `DRAIN_MS` (`planned`):
- two members' listeners are never at work on one queue at a time;
- offsets grow over the whole group: what SUCCEEDED is not handed to anybody again.

Not promised, for locks of RocketMQ cannot: a listener that was given its batch in time may still be
at work when its lock lapsed (its member was stalled or cut off from the broker), was forgotten (the
broker died) or was let go after `DRAIN_MS`; then the next owner begins with the same messages
beside it. And a member believes in a lock for up to `TRUST_MS` that a broker forgot and granted to
another.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from steelyard.nodes.seam import Closed, Effect, Event, Link, Node, Received, Send
from steelyard.sim.clock import DRIFT_PPM_MAX
from steelyard.sim.world import Violation
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import LockBatchBody, LockBatchResponseBody
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command, is_response

LIFE_MS = 60_000
"""Life of a lock without renewal (rocketmq.broker.rebalance.lockMaxLiveTime)."""

TRUST_MS = 30_000
"""Trust in a lock (rocketmq.client.rebalance.lockMaxLiveTime, `ConsumerConfig.lock_life_ms`)."""

DRAIN_MS = 5_000
"""`ConsumerConfig.drain_timeout_ms` and `stop_timeout_ms`."""


def _slack(duration_ms: int) -> int:
    """Return the error of a clock in measuring a duration, including rounding."""
    return duration_ms * DRIFT_PPM_MAX // 1_000_000 + 2


class _Grant(msgspec.Struct):
    at: int
    run: int
    """The broker's run: earlier runs' grants are forgotten there, but still trusted by their
    owners.
    """


class _Member(msgspec.Struct):
    client_id: str
    is_alive: Callable[[], bool]


class _Ownership(msgspec.Struct, eq=False):
    succeeded: int = -1
    """The highest offset that succeeded."""
    suspended: tuple[int, ...] = ()


class _Batch(msgspec.Struct):
    """The messages that a listener is processing."""

    offsets: tuple[int, ...]
    handed_at: int
    ownership: _Ownership


class OrderChecker:
    """Observes locks and deliveries; see the module docstring.

    Times are true ones; `who` names one run of a member. Raises Violation.
    """

    def __init__(self, *, planned: bool) -> None:
        self._planned = planned
        self._members: dict[str, _Member] = {}
        self._runs: dict[str, int] = {}
        self._grants: dict[MessageQueue, dict[str, _Grant]] = {}
        self._ownerships: dict[tuple[MessageQueue, str], _Ownership] = {}
        self._at_work: dict[MessageQueue, dict[str, _Batch]] = {}
        self._succeeded: dict[MessageQueue, int] = {}

    # -- what brokers do ---------------------------------------------------------------------------

    def broker_started(self, broker: str) -> None:
        """Note that it knows no locks."""
        self._runs[broker] = self._runs.get(broker, 0) + 1

    def granted(self, queue: MessageQueue, client_id: str, now: int) -> None:
        run = self._runs[queue.broker_name]
        grants = self._grants.setdefault(queue, {})
        for other in [o for o, grant in grants.items() if o != client_id and grant.run == run]:
            age_ms = now - grants[other].at
            if age_ms < LIFE_MS - _slack(LIFE_MS):
                raise Violation(
                    f"{queue} is locked for {client_id}, {age_ms} ms after it was for {other}"
                )
            del grants[other]
        grants[client_id] = _Grant(now, run)

    def let_go(self, queue: MessageQueue, client_id: str, now: int) -> None:
        if self._grants.get(queue, {}).pop(client_id, None) is None:
            return
        for who, batch in self._listeners(queue).items():
            age_ms = now - batch.handed_at
            mine = self._members[who].client_id == client_id
            if mine and age_ms < DRAIN_MS - _slack(DRAIN_MS):
                raise Violation(
                    f"{who} lets the lock of {queue} go, its listener has {batch.offsets} since"
                    f" {age_ms} ms"
                )

    def left(self, broker: str, client_id: str, now: int) -> None:
        """Note that a member unregistered: all its locks there are free."""
        for queue in self._grants:
            if queue.broker_name == broker:
                self.let_go(queue, client_id, now)

    # -- what members do ---------------------------------------------------------------------------

    def joined(self, who: str, client_id: str, is_alive: Callable[[], bool]) -> None:
        """Note that a member starts."""
        self._members[who] = _Member(client_id, is_alive)

    def acquired(self, queue: MessageQueue, who: str) -> None:
        """Note that the member requests the start offset of the queue."""
        self._ownerships[queue, who] = _Ownership()

    def handed(self, queue: MessageQueue, who: str, offsets: tuple[int, ...], now: int) -> None:
        listeners = self._listeners(queue)
        if who in listeners:
            raise Violation(
                f"{who} hands {offsets} of {queue}, its listener has {listeners[who].offsets}"
            )
        self._under_lock(queue, who, now)
        ownership = self._ownerships.setdefault((queue, who), _Ownership())
        if offsets[0] <= ownership.succeeded:
            raise Violation(
                f"{who} hands {offsets[0]} of {queue} again, {ownership.succeeded} succeeded"
            )
        if ownership.suspended and ownership.suspended != offsets:
            raise Violation(
                f"{who} hands {offsets} of {queue}, but {ownership.suspended} was suspended"
            )
        ownership.suspended = ()
        if self._planned:
            if listeners:
                raise Violation(
                    f"{who} hands {offsets} of {queue} while {sorted(listeners)} is at work on it"
                )
            if offsets[0] <= self._succeeded.get(queue, -1):
                raise Violation(
                    f"{who} hands {offsets[0]} of {queue}, {self._succeeded[queue]} succeeded"
                    " elsewhere"
                )
        self._at_work.setdefault(queue, {})[who] = _Batch(offsets, now, ownership)

    def _under_lock(self, queue: MessageQueue, who: str, now: int) -> None:
        client_id = self._members[who].client_id
        grants = self._grants.get(queue, {})
        if client_id not in grants:
            raise Violation(f"{who} hands messages of {queue} without its lock: {sorted(grants)}")
        age_ms = now - grants[client_id].at
        if age_ms > TRUST_MS + _slack(TRUST_MS):
            raise Violation(
                f"{who} hands messages of {queue}, its lock was granted {age_ms} ms ago"
            )

    def done(self, queue: MessageQueue, who: str, *, succeeded: bool) -> None:
        """Note the listener's result for its batch of the queue."""
        batch = self._at_work[queue].pop(who)
        if not succeeded:
            batch.ownership.suspended = batch.offsets
            return
        batch.ownership.succeeded = batch.offsets[-1]
        self._succeeded[queue] = max(batch.offsets[-1], self._succeeded.get(queue, -1))

    def _listeners(self, queue: MessageQueue) -> dict[str, _Batch]:
        """Return who is processing messages of the queue, except dead members."""
        at_work = self._at_work.get(queue, {})
        for who in [who for who in at_work if not self._members[who].is_alive()]:
            del at_work[who]
        return at_work


class Notary:
    """Wraps a broker and records what it does with locks."""

    def __init__(
        self, broker: Node, name: str, order: OrderChecker, true_time: Callable[[], int]
    ) -> None:
        self._broker = broker
        self._name = name
        self._order = order
        self._true_time = true_time
        self._asking: dict[tuple[Link, int], str] = {}
        """Client ids of requests for locks without an answer yet, by link and opaque."""

    def start(self, now: int) -> list[Effect]:
        self._asking.clear()
        self._order.broker_started(self._name)
        return self._broker.start(now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects = self._broker.handle(event, now)
        match event:
            case Received(link, Command() as command) if not is_response(command):
                self._asked(link, command)
            case Closed(link):
                for key in [key for key in self._asking if key[0] == link]:
                    del self._asking[key]
        if self._asking:
            self._answered(effects)
        return effects

    def _asked(self, link: Link, command: Command) -> None:
        """Record what a request lets go, and who asks for locks."""
        now = self._true_time()
        match command.code:
            case RequestCode.LOCK_BATCH_MQ:
                body = fastjson.read(LockBatchBody, command.body)
                self._asking[link, command.opaque] = body.client_id
            case RequestCode.UNLOCK_BATCH_MQ:
                body = fastjson.read(LockBatchBody, command.body)
                for queue in body.mq_set:
                    self._order.let_go(queue, body.client_id, now)
            case RequestCode.UNREGISTER_CLIENT:
                header = headers.read(headers.UnregisterClientRequestHeader, command.ext)
                if header.consumer_group:
                    self._order.left(self._name, header.client_id, now)

    def _answered(self, effects: list[Effect]) -> None:
        """Record the queues that replies report as locked; a reply may come with a later event."""
        now = self._true_time()
        for effect in effects:
            match effect:
                case Send(link, Command() as reply) if is_response(reply):
                    client_id = self._asking.pop((link, reply.opaque), None)
                    if client_id is None or reply.code != ResponseCode.SUCCESS:
                        continue
                    for queue in fastjson.read(LockBatchResponseBody, reply.body).lock_ok_mq_set:
                        self._order.granted(queue, client_id, now)

    def check(self) -> None:
        self._broker.check()
