"""Lock requests (41) that wait for the unlock (42) of the member that has the queue.

At a rebalance an orderly client locks its new queues one by one, while their old owners may still
be finishing what their listeners have. A refused client looks again after 20 s (Java 4.9, Go) or
with its next rebalance. So the refusal waits for the unlock, for WAIT_MS at most: the clients'
time-out is 1 s. They lock queue after queue, in the thread that also gives their own queues up:
after WAITS_MS in sum, nothing waits for a client until PERIOD_MS have passed since its first wait.

Only requests for one queue wait. Those for many are renewals, and Steelyard's: their answer tells
which queues were locked, and must not be late for those. Nothing waits for an owner that is no
member any more: its lock has to expire. Whoever unregisters while its request waits gets no lock:
it would never unlock the queue.
Source: Java RebalanceImpl.lock, lockAll; Go consumer.go.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from steelyard.groups.remoting.locks import QueueLocks
from steelyard.groups.remoting.registry import Registry
from steelyard.nodes.broker.parked import Parked
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
SLOT_MS = 50
WAITING_MAX = 10_000
"""Maximum of waiting requests; others are answered at once."""


class _Waiting(msgspec.Struct):
    request: RemotingRequest
    body: LockBatchBody


class WaitingLocks:
    """The lock requests that wait; see the module docstring."""

    def __init__(self, locks: QueueLocks, registry: Registry, *, enabled: bool) -> None:
        self._locks = locks
        self._registry = registry
        self._enabled = enabled
        self._parked: Parked[_Waiting] = Parked(WAITING_MAX, SLOT_MS)
        self._first_waits: dict[Link, int] = {}

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
        if owner is None or self._registry.find(group, owner) is None:
            return False
        link = request.peer.link
        if self._registry.member(group, link) is None:
            return False
        first = self._first_waits.get(link)
        if first is None or now - first >= PERIOD_MS:
            self._first_waits[link] = now
        elif now - first >= WAITS_MS:
            return False
        places = ((queue.topic, queue.queue_id),)
        return self._parked.add(_Waiting(request, body), places, link, now + WAIT_MS)

    def unlocked(
        self, group: str, queues: Iterable[MessageQueue], now: int, effects: list[Effect]
    ) -> None:
        """Lock unlocked queues for those that wait, each for the first of them."""
        for queue in queues:
            waiting = self._parked.of_queue((queue.topic, queue.queue_id)) or {}
            for serial, each in list(waiting.items()):
                body, link = each.body, each.request.peer.link
                if body.consumer_group != group or self._registry.member(group, link) is None:
                    continue
                held = self._locks.lock(group, body.client_id, body.mq_set, now)
                if held:
                    self._parked.remove(serial)
                    _answer(each, held, effects)

    def expire(self, now: int, effects: list[Effect]) -> None:
        """Answer those that have waited long enough: nothing was locked."""
        for each in self._parked.due(now):
            _answer(each, [], effects)

    def closed(self, link: Link) -> None:
        self._parked.closed(link)
        self._first_waits.pop(link, None)

    def check(self) -> None:
        self._parked.check()
        assert self._enabled or not self._first_waits


def _answer(each: _Waiting, held: list[MessageQueue], effects: list[Effect]) -> None:
    body = fastjson.write(LockBatchResponseBody(tuple(held)))
    effects.append(Send(each.request.peer.link, each.request.reply(body=body)))
