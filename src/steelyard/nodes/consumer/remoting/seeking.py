"""Seeks of an application that polls: to an offset, to the beginning, or to the end of a queue.

The broker is asked for both ends of the queue first (31, 30), because a pull would silently correct
a seek beyond them. Source: client/impl/consumer/DefaultLitePullConsumerImpl.java `seek`.
"""

from __future__ import annotations

import msgspec

from steelyard.errors import (
    BrokerError,
    ConfigError,
    ProtocolError,
    RemotingError,
    RouteError,
    SteelyardError,
)
from steelyard.groups.remoting.ownership import HoldingState
from steelyard.nodes.consumer.remoting.contract import Bound, Seek
from steelyard.nodes.consumer.remoting.held import Held
from steelyard.nodes.consumer.remoting.holdings import Holdings
from steelyard.nodes.consumer.remoting.peers import Peers, RangeAsked
from steelyard.nodes.consumer.remoting.polled import PolledDelivery
from steelyard.nodes.seam import Address, Answer, Effect
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command


class _Seeking(msgspec.Struct):
    """A seek that waits for the ends of its queue."""

    seek: Seek
    held: Held
    low: int | None = None
    high: int | None = None


class Seeking:
    """The seeks in progress."""

    def __init__(self, peers: Peers, holdings: Holdings, polled: PolledDelivery) -> None:
        self._peers = peers
        self._holdings = holdings
        self._polled = polled
        self._open: dict[int, _Seeking] = {}

    def ask(self, call_id: int, seek: Seek, now: int, effects: list[Effect]) -> None:
        queue = seek.queue
        held = self._polled.held([queue])
        if isinstance(held, ConfigError):
            effects.append(Answer(call_id, held))
            return
        address = self._peers.address(queue)
        if address is None:
            text = f"broker {queue.broker_name} is not in the routes"
            effects.append(Answer(call_id, RouteError(text)))
            return
        self._open[call_id] = _Seeking(seek, held[0])
        header = headers.QueueRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        for code, lowest in (
            (RequestCode.GET_MIN_OFFSET, True),
            (RequestCode.GET_MAX_OFFSET, False),
        ):
            self._peers.ask(address, code, header, RangeAsked(call_id, lowest), now, effects)

    def answered(
        self,
        asked: RangeAsked,
        address: Address,
        reply: Command | RemotingError,
        now: int,
        effects: list[Effect],
    ) -> None:
        seeking = self._open.get(asked.call_id)
        if seeking is None:
            return  # the request for the other end failed
        try:
            offset = _offset(address, reply)
        except SteelyardError as error:
            self._end(asked.call_id, error, effects)
            return
        if asked.lowest:
            seeking.low = offset
        else:
            seeking.high = offset
        if seeking.low is None or seeking.high is None:
            return
        self._go(asked.call_id, seeking, seeking.low, seeking.high, now, effects)

    def _go(
        self, call_id: int, seeking: _Seeking, low: int, high: int, now: int, effects: list[Effect]
    ) -> None:
        queue, to = seeking.seek.queue, seeking.seek.to
        if to is Bound.BEGIN:
            offset = low
        elif to is Bound.END:
            offset = high
        else:
            offset = to
        if not low <= offset <= high:
            text = f"{queue} has no offset {offset}; it has {low} to {high}"
            self._end(call_id, ConfigError(text), effects)
            return
        held = self._holdings.get(queue)
        if held is None or held.state not in (HoldingState.ACQUIRING, HoldingState.PULLING):
            text = f"{queue} is not held, or not yet: see assignment(), or wait for on_assigned"
            self._end(call_id, ConfigError(text), effects)
        else:
            self._polled.move(held, offset, now, effects)
            self._end(call_id, None, effects)

    def _end(self, call_id: int, result: SteelyardError | None, effects: list[Effect]) -> None:
        del self._open[call_id]
        effects.append(Answer(call_id, result))


def _offset(address: Address, reply: Command | RemotingError) -> int:
    """Return the offset in a reply. Raises SteelyardError."""
    if isinstance(reply, RemotingError):
        raise reply
    if reply.code != ResponseCode.SUCCESS:
        raise BrokerError(reply.code, reply.remark, address)
    offset = headers.read(headers.OffsetResponseHeader, reply.ext).offset
    if offset < 0:
        raise ProtocolError(f"{address} returned the invalid offset {offset}")
    return offset
