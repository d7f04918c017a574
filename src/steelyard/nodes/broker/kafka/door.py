"""Takes the requests of Kafka clients, has them handled, and answers each link in the order of its requests.

A handler gives its answer at once, or later through `Call.answer`. Other requests of the link are handled meanwhile; their
answers wait for their turn. (Apache Kafka reads no further request of a connection before it has answered the last one.)

What breaks the protocol closes the link, as in Kafka: an unknown API or version, bytes that are no message. Everything
else has an error code of its API, which the handler gives.
Source: core/kafka/server/KafkaApis.scala, network/SocketServer.scala.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial

import msgspec

from steelyard.errors import ProtocolError
from steelyard.groups.coordinator.group import Asker
from steelyard.nodes.broker.door import Peer
from steelyard.nodes.broker.kafka.versions import versions_reply
from steelyard.nodes.broker.turns import Steps, Turns
from steelyard.nodes.seam import Effect, Hang, Link, Send, Tell
from steelyard.wire.kafka.apis import API_VERSIONS_KEY
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import Reply, Request
from steelyard.wire.kafka.schema import Message, has_field, written

UNANSWERED_MAX = 10_000
"""Most requests of one link that wait for their answers; a link with more is closed."""


class _Slot(msgspec.Struct):
    """The place of one answer in its link."""

    request: Request
    reply: Reply | None = None
    done: bool = False


class Call:
    """One request under way, and how it is answered: once."""

    __slots__ = ("_door", "_slot", "peer", "request")

    def __init__(self, door: KafkaDoor, slot: _Slot, peer: Peer, request: Request) -> None:
        self._door = door
        self._slot = slot
        self.peer = peer
        self.request = request

    @property
    def message(self) -> Message:
        assert self.request.message is not None
        return self.request.message

    @property
    def version(self) -> int:
        return self.request.version

    @property
    def asker(self) -> Asker:
        host = self.peer.address.rpartition(":")[0].strip("[]")
        return Asker(self.request.client_id or "", f"/{host}", self.peer.link)

    def answer(self, message: Message, effects: list[Effect]) -> None:
        """The answer that a handler left open. Nothing happens where the link is gone."""
        request = self.request
        version = request.version
        self._slot.reply = Reply(request.api, version, request.correlation_id, message)
        self._settle(effects)

    def no_reply(self, effects: list[Effect]) -> None:
        """This request has no answer at all (Produce with acks=0)."""
        self._settle(effects)

    def _settle(self, effects: list[Effect]) -> None:
        assert not self._slot.done, f"{self.request.api.name} was answered twice"
        self._slot.done = True
        self._door.settled(self.peer.link, effects)


Prompt = Callable[[Call, int, list[Effect]], Message | None]
"""A `Handler` that takes no steps."""

Handler = Callable[[Call, int, list[Effect]], Message | Steps[Message] | None]
"""(call, now, effects to add to) -> the answer, the work that ends with it, or None where it comes later through the call."""


def _in_steps(call: Call, steps: Steps[Message]) -> Steps[Message]:
    """An answer that was found in several steps is written in several, too."""
    took_turns = False
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: Message = end.value
            break
        took_turns = True
        yield
    if not took_turns:
        return answer
    flexible = call.request.api.is_flexible(call.version)
    return (yield from written(answer, call.version, flexible=flexible))


def _answer(call: Call, answer: Message, now: int, effects: list[Effect]) -> None:
    call.answer(answer, effects)


class KafkaDoor:
    """See the module's text. `handlers`: by API key."""

    def __init__(self, handlers: dict[int, Handler], turns: Turns) -> None:
        self._handlers = handlers
        self._turns = turns
        self._peers: dict[Link, Peer] = {}
        self._slots: dict[Link, deque[_Slot]] = {}

    def opened(self, peer: Peer) -> None:
        self._peers[peer.link] = peer
        self._slots[peer.link] = deque()

    def closed(self, link: Link) -> bool:
        """Forget a link; False for one that was never ours."""
        self._slots.pop(link, None)
        return self._peers.pop(link, None) is not None

    def received(self, link: Link, request: Request, now: int, effects: list[Effect]) -> None:
        peer = self._peers.get(link)
        if peer is None:
            return  # its Closed was handled
        slots = self._slots[link]
        if len(slots) >= UNANSWERED_MAX:
            self._break(peer, f"more than {UNANSWERED_MAX} requests wait for answers", effects)
            return
        slot = _Slot(request)
        slots.append(slot)
        call = Call(self, slot, peer, request)
        if request.api.key == API_VERSIONS_KEY:
            served = (*self._handlers, API_VERSIONS_KEY)
            version, message = versions_reply(request, served)
            slot.reply = Reply(request.api, version, request.correlation_id, message)
            call.no_reply(effects)
            return
        handler = self._handlers.get(request.api.key)
        try:
            if handler is None:
                raise ProtocolError("this API is not served here")
            answer = handler(call, now, effects)
        except ProtocolError as error:
            self._break(peer, f"{request.api.name}: {error}", effects)
            return
        if isinstance(answer, Generator):
            steps = _in_steps(call, answer)
            if not self._turns.run(link, steps, partial(_answer, call), now, effects):
                self._break(peer, "too many requests wait for their turn", effects)
        elif answer is not None:
            call.answer(answer, effects)

    def failed(self, link: Link, request: Request, effects: list[Effect]) -> None:
        """A bug ended the handling of the last request: UNKNOWN_SERVER_ERROR, where its response has one place for it.

        Else the client learns it from the end of the link, as it does where an earlier answer has not gone out yet.
        (Apache Kafka builds an error for every topic of the request, AbstractRequest.getErrorResponse.)
        """
        slots = self._slots.get(link)
        if not slots or slots[-1].request is not request or slots[-1].done:
            return
        api, version = request.api, request.version
        if not has_field(api.response, "error_code", version):
            return
        code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        answer = msgspec.structs.replace(api.response(), error_code=code)
        Call(self, slots[-1], self._peers[link], request).answer(answer, effects)

    def settled(self, link: Link, effects: list[Effect]) -> None:
        """An answer is there: send all whose turn it is."""
        slots = self._slots.get(link)
        while slots and slots[0].done:
            reply = slots.popleft().reply
            if reply is not None:
                effects.append(Send(link, reply))

    def _break(self, peer: Peer, reason: str, effects: list[Effect]) -> None:
        effects.append(Tell("WARNING", f"{peer.address} broke the protocol: {reason}"))
        effects.append(Hang(peer.link, reason))
        self.closed(peer.link)

    def check(self) -> None:
        assert self._peers.keys() == self._slots.keys()
        for slots in self._slots.values():
            assert not slots or not slots[0].done
            assert len(slots) <= UNANSWERED_MAX
