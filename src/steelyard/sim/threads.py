"""A broker with a thread pool per kind of request, like Apache's, which may reorder requests.

Requests sent one after the other on a link may then be processed in reverse order. Our broker
processes them in order. This node delays each request of a consumer around it by a time of its own,
so that consumers are tested against both.
"""

from __future__ import annotations

from random import Random

import msgspec

from steelyard.nodes.seam import Closed, Due, Effect, Event, Node, Received, SetTimer
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command, is_response

POOLED = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
    }
)
"""BrokerController.registerProcessor: pull, consumer management, heartbeat and admin pools."""


class _ThreadTimer(msgspec.Struct, frozen=True):
    number: int


class Threaded:
    """The wrapper. `delay_ms_max`: the longest wait of a request for its thread."""

    def __init__(self, broker: Node, delay_ms_max: int, rng: Random) -> None:
        self._broker = broker
        self._delay_ms_max = delay_ms_max
        self._rng = rng
        self._number = 0
        self._waiting: dict[int, Received] = {}

    def start(self, now: int) -> list[Effect]:
        return self._broker.start(now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        match event:
            case Received(message=Command() as command) if not is_response(command):
                delay_ms = self._rng.randrange(self._delay_ms_max + 1)
                if command.code in POOLED and delay_ms:
                    self._number += 1
                    self._waiting[self._number] = event
                    return [SetTimer(_ThreadTimer(self._number), now + delay_ms)]
            case Due(key=_ThreadTimer(number=number)):
                waiting = self._waiting.pop(number, None)
                return [] if waiting is None else self._broker.handle(waiting, now)
            case Closed(link=link):
                self._waiting = {n: e for n, e in self._waiting.items() if e.link != link}
        return self._broker.handle(event, now)

    def check(self) -> None:
        self._broker.check()
