"""Lock requests (41) that wait for the unlock (42) of the member that has the queue.

At a rebalance an orderly client locks its new queues one by one, while their old owners may still
be finishing what their listeners have. A refused client looks again after 20 s (Java 4.9, Go). So
it is notified (40) when the queue is unlocked, and rebalances at once.

Java 5.x looks again after a second by itself, and rebalances a second after a notification that was
for nothing. For it the refusal waits for the unlock, for WAIT_MS at most: the client's time-out is
1 s. It locks queue after queue, in the thread that also gives its own queues up: after a wait in
vain, or WAITS_MS in sum, nothing waits for a client until PERIOD_MS have passed since its first
wait. Other clients are not worth a wait, and Java 4.9 often unlocks 20 s late.

Only requests for one queue wait. Those for many are renewals, and Steelyard's: their answer tells
which queues were locked, and must not be late for those. Nothing waits for an owner that is no
member any more, such as one that was killed: its lock has to expire. A refused client that would
look again after 20 s is notified then. Whoever unregisters while its request waits gets no lock: it
would never unlock the queue.
Source: Java RebalanceImpl.lock, lockAll; RebalancePushImpl.unlockDelay (4.9); Go consumer.go.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from steelyard.groups.remoting.locks import QueueLocks
from steelyard.groups.remoting.registry import Registry
from steelyard.nodes.broker.parked import Parked
from steelyard.nodes.broker.remoting.notifications import LATER_MS, Notifications
from steelyard.nodes.broker.requests import RemotingRequest
from steelyard.nodes.seam import Effect, Link, Send
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import LockBatchBody, LockBatchResponseBody

WAIT_MS = 700
"""Longest wait of a request; the clients' time-out is 1 s."""
WAITS_MS = 2_000
"""Time after a client's first wait in which others may begin."""
PERIOD_MS = 15_000
"""Time after which a wait counts as the first one again."""
REFUSED_MS = 60_000
"""Time for which a refusal is remembered: a client looks again by itself within 20 s."""
REFUSED_MAX = 1_000
"""Most refusals that are remembered of one client."""
SLOT_MS = 50
WAITING_MAX = 10_000
"""Maximum of waiting requests; others are answered at once."""


_GroupQueue = tuple[str, MessageQueue]


class _Waiting(msgspec.Struct):
    request: RemotingRequest
    body: LockBatchBody


class WaitingLocks:
    """The lock requests that wait; see the module docstring."""

    def __init__(
        self,
        locks: QueueLocks,
        registry: Registry,
        notifications: Notifications,
        *,
        enabled: bool,
    ) -> None:
        self._locks = locks
        self._registry = registry
        self._notifications = notifications
        self._enabled = enabled
        self._parked: Parked[_Waiting] = Parked(WAITING_MAX, SLOT_MS)
        self._first_waits: dict[Link, int] = {}
        self._refused: dict[Link, dict[_GroupQueue, int]] = {}
        """When clients were refused which queues that another member had."""

    @property
    def next_at(self) -> int | None:
        """When to call `expire` next, None if nothing waits."""
        return self._parked.next_at

    def wait(self, request: RemotingRequest, body: LockBatchBody, now: int) -> bool:
        """Let a request wait that was refused its lock; return False if it is to be answered."""
        if not self._enabled or request.is_oneway or len(body.mq_set) != 1:
            return False
        group, (queue,) = body.consumer_group, body.mq_set
        owner = self._locks.owner(group, queue, now)
        link = request.peer.link
        member = self._registry.member(group, link)
        if owner is None or member is None:
            return False
        is_owner_gone = self._registry.find(group, owner) is None
        if not member.client.paces_rebalances:
            expires_at = self._locks.expires_at(group, queue, now)
            if is_owner_gone and expires_at is not None:
                self._notifications.later(group, (link,), expires_at)
            self._refuse(link, group, queue, now)
            return False
        if is_owner_gone or not self._begins(link, now):
            return False
        places = ((queue.topic, queue.queue_id),)
        return self._parked.add(_Waiting(request, body), places, link, now + WAIT_MS)

    def _begins(self, link: Link, now: int) -> bool:
        """Return whether another wait of a client may begin."""
        first = self._first_waits.get(link)
        if first is None or now - first >= PERIOD_MS:
            self._first_waits[link] = now
            return True
        return now - first < WAITS_MS

    def _refuse(self, link: Link, group: str, queue: MessageQueue, now: int) -> None:
        refused = self._refused.setdefault(link, {})
        refused.pop((group, queue), None)
        refused[group, queue] = now
        if len(refused) > REFUSED_MAX:
            del refused[next(iter(refused))]

    def unlocked(
        self, group: str, queues: Iterable[MessageQueue], now: int, effects: list[Effect]
    ) -> None:
        """Lock unlocked queues for those that wait, each for the first of them.

        Where nobody waits, those that were refused the queue are notified.
        """
        for queue in queues:
            if not self._lock_for_first(group, queue, now, effects):
                self._tell_refused(group, queue, now)

    def _lock_for_first(
        self, group: str, queue: MessageQueue, now: int, effects: list[Effect]
    ) -> bool:
        waiting = self._parked.of_queue((queue.topic, queue.queue_id)) or {}
        for serial, each in list(waiting.items()):
            body, link = each.body, each.request.peer.link
            if body.consumer_group != group or self._registry.member(group, link) is None:
                continue
            held = self._locks.lock(group, body.client_id, body.mq_set, now)
            if held:
                self._parked.remove(serial)
                _answer(each, held, effects)
                return True
        return False

    def _tell_refused(self, group: str, queue: MessageQueue, now: int) -> None:
        for link, refused in list(self._refused.items()):
            refused_at = refused.pop((group, queue), None)
            if not refused:
                del self._refused[link]
            if refused_at is not None and now - refused_at < REFUSED_MS:
                self._notifications.later(group, (link,), now + LATER_MS)

    def expire(self, now: int, effects: list[Effect]) -> None:
        """Answer those that have waited long enough: nothing was locked."""
        for each in self._parked.due(now):
            link = each.request.peer.link
            self._first_waits[link] = min(self._first_waits[link], now - WAITS_MS)
            _answer(each, [], effects)

    def closed(self, link: Link) -> None:
        self._parked.closed(link)
        self._first_waits.pop(link, None)
        self._refused.pop(link, None)

    def check(self) -> None:
        self._parked.check()
        assert self._enabled or not (self._first_waits or self._refused)
        assert all(0 < len(refused) <= REFUSED_MAX for refused in self._refused.values())


def _answer(each: _Waiting, held: list[MessageQueue], effects: list[Effect]) -> None:
    body = fastjson.write(LockBatchResponseBody(tuple(held)))
    effects.append(Send(each.request.peer.link, each.request.reply(body=body)))
