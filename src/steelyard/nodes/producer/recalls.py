"""Recalls: delayed messages that a producer takes back (370), from the broker that has them.

Source: client/impl/producer/DefaultMQProducerImpl.java `recallMessage`.
"""

from __future__ import annotations

import msgspec

from steelyard.errors import BrokerError, MessageError, RemotingError, RouteError, SteelyardError
from steelyard.nodes.producer.contract import RecallMessage
from steelyard.nodes.producer.peers import Peers, Recalled
from steelyard.nodes.producer.waiting import Waiting
from steelyard.nodes.seam import Address, Answer, Effect
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.headers import RecallMessageRequestHeader
from steelyard.wire.remoting.recall import RecallHandle


class _Recalling(msgspec.Struct, frozen=True):
    handle: RecallHandle
    text: str
    deadline: int


class ProducerRecalls:
    """The recalls in progress; at most `in_flight_max`."""

    def __init__(self, peers: Peers, waiting: Waiting) -> None:
        self._peers = peers
        self._waiting = waiting
        self._open: dict[int, _Recalling] = {}

    def __contains__(self, call_id: int) -> bool:
        return call_id in self._open

    @property
    def idle(self) -> bool:
        return not self._open

    def ask(self, call_id: int, call: RecallMessage, now: int, effects: list[Effect]) -> None:
        config = self._peers.config
        timeout_ms = config.send_timeout_ms if call.timeout_ms is None else call.timeout_ms
        try:
            if len(self._open) >= config.in_flight_max:
                text = f"more than {config.in_flight_max} recalls in flight (in_flight_max)"
                raise RemotingError(text)
            handle = RecallHandle.decode(call.handle)
        except (MessageError, RemotingError) as error:
            effects.append(Answer(call_id, error))
            return
        self._open[call_id] = _Recalling(handle, call.handle, now + timeout_ms)
        self.released(call_id, None, now, effects)

    def released(
        self, call_id: int, error: SteelyardError | None, now: int, effects: list[Effect]
    ) -> None:
        """Continue a recall that may know its route now. `error`: why it never will."""
        recall = self._open[call_id]
        topic = recall.handle.topic
        if error is not None:
            self._end(call_id, error, effects)
            return
        route = self._peers.routes.route(topic)
        if route is None:
            if not self._peers.config.nameservers:
                self._end(call_id, RouteError("no nameserver is configured"), effects)
                return
            self._waiting.add(topic, call_id, recall.deadline, now, effects)
            return
        address = route.masters.get(recall.handle.broker)
        if address is None:
            text = f"broker {recall.handle.broker} of topic {topic} is not in the route"
            self._end(call_id, RouteError(text), effects)
            return
        header = RecallMessageRequestHeader(
            producer_group=self._peers.config.group, topic=topic, recall_handle=recall.text
        )
        request = Command(int(RequestCode.RECALL_MESSAGE), ext=headers.write(header))
        left_ms = recall.deadline - now
        self._peers.calls.call(address, request, Recalled(call_id), now, left_ms, effects)

    def outcome(
        self,
        recalled: Recalled,
        address: Address,
        reply: Command | RemotingError,
        effects: list[Effect],
    ) -> None:
        """Take a broker's response, or its absence."""
        call_id = recalled.call_id
        if isinstance(reply, RemotingError):
            self._end(call_id, reply, effects)
        elif reply.code != ResponseCode.SUCCESS:
            self._end(call_id, BrokerError(reply.code, reply.remark, address), effects)
        else:
            unique_id = self._open[call_id].handle.unique_id
            self._end(call_id, reply.ext.get("msgId", unique_id), effects)

    def _end(self, call_id: int, result: str | SteelyardError, effects: list[Effect]) -> None:
        del self._open[call_id]
        effects.append(Answer(call_id, result))
