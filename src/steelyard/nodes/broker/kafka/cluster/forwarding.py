"""Forwards requests that only the controller may grant to it (9001), and returns its answers.

Requests of brokers to each other go the same way where their Kafka listeners want TLS or a login.

A forwarded request is not forwarded again: if two brokers take each other for the controller, the
client gets NOT_CONTROLLER. If the controller does not answer, the broker handles the request
itself, which refuses changes with NOT_CONTROLLER unless the broker has become the controller.
Source: core/kafka/server/ForwardingManager.scala (Envelope, KIP-590).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from msgspec.structs import replace

from steelyard.errors import ProtocolError
from steelyard.nodes.broker.kafka.cluster.cluster import Broker, Cluster
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, Prompt
from steelyard.nodes.broker.kafka.requests.repeats import without_repeats
from steelyard.nodes.broker.peers.registration import PendingCall, Purpose
from steelyard.nodes.broker.peers.requests import FORWARD, PeerRequests
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.broker.turns import finish
from steelyard.nodes.calls.remoting import Outcome
from steelyard.nodes.seam import Effect, Send
from steelyard.wire.kafka import frame
from steelyard.wire.kafka.apis import APIS, KEYS
from steelyard.wire.kafka.schema import ApiMessage
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command


class _Forwarded(PendingCall, frozen=True):
    serial: int


class _Sent(PendingCall, frozen=True):
    serial: int


Then = Callable[[ApiMessage | None, int, list[Effect]], None]
"""(answer, None without one; now; effects to add to)."""


class ForwardedCall(OpenRequest):
    """A request that another broker forwarded; the answer goes back to that broker."""

    __slots__ = ("_asked",)

    def __init__(self, asked: RemotingRequest, request: frame.Request) -> None:
        self._asked = asked
        self.peer = asked.peer
        self.request = request

    def answer(self, message: ApiMessage, effects: list[Effect]) -> None:
        request = self.request
        answer = frame.Reply(request.api, request.version, request.correlation_id, message)
        body = frame.encode(answer)
        effects.append(Send(self.peer.link, self._asked.reply(body=body)))


class Forwarding:
    """Requests to and from the controller; see the module docstring."""

    def __init__(self, cluster: Cluster, peer_requests: PeerRequests) -> None:
        self._cluster = cluster
        self._peer_requests = peer_requests
        self._handlers: dict[int, Prompt] = {}
        self._serial = 0
        self._under_way: dict[int, tuple[OpenRequest, Prompt]] = {}
        self._sent: dict[int, tuple[frame.Request, Then]] = {}

    def serve(self, key: int, handler: Prompt) -> None:
        """Accept such requests from other brokers."""
        self._handlers[key] = handler

    def controlled(self, handlers: Mapping[int, Prompt]) -> dict[int, Prompt]:
        """Return handlers that have the controller do what `handlers` do there."""
        self._handlers.update(handlers)
        return {key: partial(self._handle, handler) for key, handler in handlers.items()}

    def _handle(
        self, handler: Prompt, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage | None:
        if self.forward(call, handler, now, effects):
            return None
        return handler(call, now, effects)

    def forward(
        self, call: OpenRequest, otherwise: Prompt, now: int, effects: list[Effect]
    ) -> bool:
        """Forward a request to the controller; `otherwise` answers it if the controller does not.

        Returns False if this broker is the controller, the request was forwarded already, or it
        could not be sent.
        """
        if self._cluster.is_controller or isinstance(call, ForwardedCall):
            return False
        self._serial += 1
        pending = _Forwarded(self._serial)
        body = frame.encode(call.request)
        address = self._cluster.controller.remoting
        if not self._peer_requests.ask(address, FORWARD, pending, now, effects, body=body):
            return False
        self._under_way[self._serial] = call, otherwise
        return True

    def send(
        self, broker: Broker, message: ApiMessage, then: Then, now: int, effects: list[Effect]
    ) -> bool:
        """Send a request of this broker's own to another one; False if too many wait."""
        self._serial += 1
        api = APIS[KEYS[type(message)]]
        request = frame.Request(api, api.versions[1], self._serial & 0x7FFFFFFF, None, message)
        sent, body = _Sent(self._serial), frame.encode(request)
        if not self._peer_requests.ask(broker.remoting, FORWARD, sent, now, effects, body=body):
            return False
        self._sent[self._serial] = request, then
        return True

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> bool:
        """Handle the outcome of a call; return False if it is not one of these."""
        pending = outcome.purpose
        if isinstance(pending, _Sent):
            request, then = self._sent.pop(pending.serial)
            then(_read(request, outcome.reply), now, effects)
            return True
        if not isinstance(pending, _Forwarded):
            return False
        call, otherwise = self._under_way.pop(pending.serial)
        answer = _read(call.request, outcome.reply)
        if answer is None:
            answer = otherwise(call, now, effects)
        if answer is not None:
            call.answer(answer, effects)
        return True

    @serves(FORWARD)
    def requested(self, asked: RemotingRequest, now: int, effects: list[Effect]) -> Command | None:
        """Handle 9001, a request that another broker forwards. Raises ProtocolError."""
        requests = frame.RequestDecoder().feed(asked.body)
        if len(requests) != 1:
            raise ProtocolError(f"{len(requests)} Kafka requests in one that is forwarded")
        request = requests[0]
        handler = self._handlers.get(request.api.key)
        if handler is None or request.message is None:
            raise ProtocolError(f"{request.api.name} cannot be forwarded")
        message = finish(without_repeats(request.message, request.api.key, request.version))
        call = ForwardedCall(asked, replace(request, message=message))
        answer = handler(call, now, effects)
        if answer is not None:
            call.answer(answer, effects)
        return None


def _read(request: frame.Request, outcome: object) -> ApiMessage | None:
    """Return the controller's answer, or None if it has none."""
    if not isinstance(outcome, Command) or outcome.code != ResponseCode.SUCCESS:
        return None
    try:
        replies = frame.ReplyDecoder().feed(outcome.body)
        return frame.read_reply(request.api, request.version, replies[0]) if replies else None
    except ProtocolError:
        return None
