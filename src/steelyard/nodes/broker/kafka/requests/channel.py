"""Takes the requests of Kafka clients, has them handled, and answers each link in order.

A handler returns its answer at once, or gives it later through `OpenRequest.answer`. Other requests
of the link are handled meanwhile; their answers wait until all earlier ones have been sent. (Apache
Kafka reads no further request of a connection until it has answered the last one.) So a request
that comes behind unanswered ones first releases the answer that waits on purpose, if there is one
(`groups.kafka.waiting`).

A large request (in bytes, or because it lists many names) is decoded in turns, handled in parts,
one per turn (`wide`), and its answer is encoded in turns. The requests behind it on its link wait
until it has been handled, and are then taken in turns as well. Names that a request repeats are
dropped (`repeats`).

A violation of the protocol closes the link, as in Kafka: an unknown API or version, or bytes that
are not a message. Any other error is an error code of the API, which the handler chooses.
Source: core/kafka/server/KafkaApis.scala, network/SocketServer.scala.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

from steelyard.errors import ProtocolError
from steelyard.groups.kafka.groups import Asker
from steelyard.nodes.broker.kafka.requests.batches import (
    is_excessive,
    refused,
    with_duplicates_first,
)
from steelyard.nodes.broker.kafka.requests.feature_levels import FeatureLevels
from steelyard.nodes.broker.kafka.requests.repeats import NAMING, without_repeats
from steelyard.nodes.broker.kafka.requests.versions import versions_reply
from steelyard.nodes.broker.kafka.requests.wide import Cut, JoinedAnswer, cut_of, is_wide, parts_of
from steelyard.nodes.broker.requests import Peer, marked
from steelyard.nodes.broker.turns import Steps, Turn, Turns, finish
from steelyard.nodes.seam import Effect, Hang, Link, Send
from steelyard.types import LogLine
from steelyard.wire.kafka.apis import API_VERSIONS_KEY, KEYS
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import AT_ONCE_BYTES, Reply, Request
from steelyard.wire.kafka.messages.cluster import ApiVersionsRequest
from steelyard.wire.kafka.schema import ApiMessage, Unread, has_field, read_in_steps, written

UNANSWERED_MAX = 10_000
"""Most unanswered requests of one link; a link with more is closed."""
TAKEN_PER_TURN = 16
"""Most requests taken per turn after a large one: as many as one read of a socket may bring."""
SOFTWARE_CHARACTERS_MAX = 64
"""Most characters of the name of a client's software that are kept."""
TOO_MANY = "too many requests wait for their turn"


AnyMessage = TypeVar("AnyMessage", bound=ApiMessage)


class _Slot(msgspec.Struct):
    """The place of one answer in the order of its link."""

    request: Request
    reply: Reply | None = None
    done: bool = False


class OpenRequest:
    """A request that is being handled; it is answered exactly once."""

    __slots__ = ("_channel", "_slot", "peer", "request")

    def __init__(self, channel: RequestChannel, slot: _Slot, peer: Peer, request: Request) -> None:
        self._channel = channel
        self._slot = slot
        self.peer = peer
        self.request = request

    @property
    def message(self) -> ApiMessage:
        assert self.request.message is not None
        return self.request.message

    def read(self, kind: type[AnyMessage]) -> AnyMessage:
        """Return the message, which must be of this kind."""
        assert isinstance(self.request.message, kind)
        return self.request.message

    @property
    def version(self) -> int:
        return self.request.version

    @property
    def asker(self) -> Asker:
        host = self.peer.address.rpartition(":")[0].strip("[]")
        link = self.peer.link
        return Asker(self.request.client_id or "", f"/{host}", link, self._channel.software(link))

    @property
    def is_gone(self) -> bool:
        """Return whether its link is closed, so that nobody waits for the answer."""
        return not self._channel.serves(self.peer.link)

    def answer(self, message: ApiMessage, effects: list[Effect]) -> None:
        """Give the answer that the handler left open; without effect if the link is gone."""
        request = self.request
        version = request.version
        self._slot.reply = Reply(request.api, version, request.correlation_id, message)
        self._settle(effects)

    def answer_in_turns(self, message: ApiMessage, now: int, effects: list[Effect]) -> None:
        """Answer like `answer`, if encoding may take long. A `now` in the past does no harm."""
        self._channel.write(self, message, now, effects)

    def no_reply(self, effects: list[Effect]) -> None:
        """End the request without an answer (Produce with acks=0)."""
        self._settle(effects)

    def _settle(self, effects: list[Effect]) -> None:
        assert not self._slot.done, f"{self.request.api.name} was answered twice"
        self._slot.done = True
        self._channel.settled(self.peer.link, effects)


Prompt = Callable[[OpenRequest, int, list[Effect]], ApiMessage | None]
"""A `Handler` that takes no steps."""

Handler = Callable[[OpenRequest, int, list[Effect]], ApiMessage | Steps[ApiMessage] | None]
"""(call, now, effects to add to) -> the answer, the steps that end with it, or None.

None: the answer comes later, through the call.
"""

Release = Callable[[Link, int, list[Effect]], None]
"""(link, now, effects to add to): answers what may wait no longer on the link."""

Handlers = Mapping[int, Handler]
"""By API key."""

HandlerMethod = TypeVar(
    "HandlerMethod",
    bound=Callable[[Any, OpenRequest, int, list[Effect]], ApiMessage | Steps[ApiMessage] | None],
)


def serves(kind: type[ApiMessage]) -> Callable[[HandlerMethod], HandlerMethod]:
    """Mark the decorated method as the `Handler` of requests of this kind."""
    return partial(marked, codes=(KEYS[kind],))


class _PartCall(OpenRequest):
    """One of the parts of a wide request."""

    __slots__ = ("_wide", "found", "is_answered")

    def __init__(self, wide: _Wide, whole: OpenRequest, message: ApiMessage) -> None:
        request = msgspec.structs.replace(whole.request, message=message)
        super().__init__(whole._channel, whole._slot, whole.peer, request)
        self._wide = wide
        self.found: ApiMessage | None = None
        self.is_answered = False

    def answer(self, message: ApiMessage, effects: list[Effect]) -> None:
        self.found = message
        self._settle(effects)

    def answer_in_turns(self, message: ApiMessage, now: int, effects: list[Effect]) -> None:
        self.answer(message, effects)

    def _settle(self, effects: list[Effect]) -> None:
        assert not self.is_answered, f"a part of {self.request.api.name} was answered twice"
        self.is_answered = True
        self._wide.answered(effects)


class _Wide:
    """A request that is handled in parts, one per turn, and answered when all parts are."""

    def __init__(self, call: OpenRequest, cut: Cut, handler: Handler) -> None:
        self._call = call
        message = call.message
        if is_excessive(message):
            handler = _refused
        else:
            message = with_duplicates_first(message)
        self._handler = handler
        self._parts = parts_of(message, cut)
        self._next = next(self._parts, None)
        self._steps: Steps[ApiMessage] | None = None
        """The remaining steps of the last part in `_waiting`."""
        self._waiting: deque[_PartCall] = deque()
        """Parts not answered yet, and the answered ones behind them."""
        self._joined = JoinedAnswer(cut)
        self._is_handled = False
        self._now = 0

    def turn(self, now: int, effects: list[Effect]) -> bool:
        """Handle the next part, or take a step of the current one; return whether all are handled.

        Raises ProtocolError.
        """
        self._now = now
        answer: ApiMessage | Steps[ApiMessage] | None
        if self._steps is None:
            assert self._next is not None
            part = _PartCall(self, self._call, self._next)
            self._next = next(self._parts, None)
            self._waiting.append(part)
            answer = self._handler(part, now, effects)
        else:
            part, answer = self._waiting[-1], self._steps
        if isinstance(answer, Generator):
            self._steps = answer
            try:
                next(answer)
            except StopIteration as end:
                self._steps = None
                part.answer(end.value, effects)
            else:
                return False
        elif answer is not None:
            part.answer(answer, effects)
        is_last = self._next is None
        if is_last:
            self._is_handled = True
            self.answered(effects)
        return is_last

    def answered(self, effects: list[Effect]) -> None:
        """Collect the answers of the parts in order, and answer the request when all are there."""
        waiting = self._waiting
        while waiting and waiting[0].is_answered:
            found = waiting.popleft().found
            if found is not None:
                self._joined.add(found)
        if self._is_handled and not waiting:
            whole = self._joined.answer()
            if whole is None:
                self._call.no_reply(effects)
            else:
                self._call.answer_in_turns(whole, self._now, effects)


def _in_steps(call: OpenRequest, steps: Steps[ApiMessage]) -> Steps[ApiMessage]:
    """Find an answer in steps; encode it in steps as well if there was more than one."""
    took_turns = False
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: ApiMessage = end.value
            break
        took_turns = True
        yield
    if not took_turns:
        return answer
    flexible = call.request.api.is_flexible(call.version)
    return (yield from written(answer, call.version, flexible=flexible))


def size_of(request: Request) -> int:
    """Return the bytes that a waiting request counts for."""
    return len(request.message.data) if isinstance(request.message, Unread) else AT_ONCE_BYTES


def _is_large(request: Request) -> bool:
    message = request.message
    if message is None or isinstance(message, Unread):
        return message is not None
    cut = cut_of(request.api.key, request.version)
    return cut is not None and is_wide(message, cut)


def _read(request: Request) -> Steps[Request]:
    """Decode the message of a request, if it is not yet, and drop the names that it repeats."""
    message = request.message
    assert message is not None
    if isinstance(message, Unread):
        message = yield from read_in_steps(message)
    message = yield from without_repeats(message, request.api.key, request.version)
    return msgspec.structs.replace(request, message=message)


def _refused(call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
    return refused(call.message)


def _answer(call: OpenRequest, answer: ApiMessage, now: int, effects: list[Effect]) -> None:
    call.answer(answer, effects)


class RequestChannel:
    """The open requests of all links; see the module docstring.

    `handlers`: by API key; `release`: called when a request comes behind unanswered ones; `counts`:
    of the requests that came, by API key.
    """

    def __init__(
        self,
        handlers: Handlers,
        turns: Turns,
        release: Release,
        counts: dict[int, int],
        features: FeatureLevels,
    ) -> None:
        self._features = features
        self._handlers = dict(handlers)
        self._counts = counts
        self._turns = turns
        self._release = release
        self._software: dict[Link, str] = {}
        self._peers: dict[Link, Peer] = {}
        self._slots: dict[Link, deque[_Slot]] = {}
        self._waiting: dict[Link, deque[Request]] = {}
        """By link with a large request in progress: the requests behind it."""

    def opened(self, peer: Peer) -> None:
        self._peers[peer.link] = peer
        self._slots[peer.link] = deque()

    def closed(self, link: Link) -> bool:
        """Forget a link; return whether it was known."""
        self._slots.pop(link, None)
        self._waiting.pop(link, None)
        self._software.pop(link, None)
        return self._peers.pop(link, None) is not None

    def software(self, link: Link) -> str:
        """Return how the client of a link has named itself, "" if it has not."""
        return self._software.get(link, "")

    def serves(self, link: Link) -> bool:
        return link in self._peers

    def received(self, link: Link, request: Request, now: int, effects: list[Effect]) -> None:
        peer = self._peers.get(link)
        if peer is None:
            return  # its Closed was handled
        key = request.api.key
        self._counts[key] = self._counts.get(key, 0) + 1
        waiting = self._waiting.get(link, ())
        if len(self._slots[link]) + len(waiting) >= UNANSWERED_MAX:
            self._break(peer, f"more than {UNANSWERED_MAX} requests wait for answers", effects)
        elif not isinstance(waiting, deque):
            self._take(peer, request, now, effects)
        elif self._turns.hold(link, size_of(request)):
            waiting.append(request)
        else:
            self._break(peer, TOO_MANY, effects)

    def _take(self, peer: Peer, request: Request, now: int, effects: list[Effect]) -> bool:
        """Take the next request of a link; return whether it is large, and so takes turns."""
        slots = self._slots[peer.link]
        if slots:
            self._release(peer.link, now, effects)
        slot = _Slot(request)
        slots.append(slot)
        call = OpenRequest(self, slot, peer, request)
        if request.api.key == API_VERSIONS_KEY:
            served = (*self._handlers, API_VERSIONS_KEY)
            version, message = versions_reply(request, served, self._features)
            self._named(peer.link, request)
            slot.reply = Reply(request.api, version, request.correlation_id, message)
            call.no_reply(effects)
        elif request.api.key not in self._handlers:
            self._break(peer, f"{request.api.name}: this API is not supported", effects)
        elif _is_large(request):
            self._waiting[peer.link] = deque()
            turn = partial(self._guarded, call, self._large(call))
            if not turn(now, effects):
                self._wait(peer, turn, now, effects, size_of(request))
            return True
        else:
            try:
                if request.api.key in NAMING:
                    call.request = finish(_read(request))
                self._handle(call, now, effects)
            except ProtocolError as error:
                self._break(peer, f"{request.api.name}: {error}", effects)
        return False

    def _named(self, link: Link, request: Request) -> None:
        """Note how a client names itself."""
        message = request.message
        if isinstance(message, ApiVersionsRequest) and message.client_software_name:
            self._software[link] = message.client_software_name[:SOFTWARE_CHARACTERS_MAX]

    def _wait(
        self, peer: Peer, turn: Turn, now: int, effects: list[Effect], request_bytes: int = 0
    ) -> None:
        if not self._turns.add(peer.link, turn, now, effects, request_bytes):
            self._break(peer, TOO_MANY, effects)

    def _handle(self, call: OpenRequest, now: int, effects: list[Effect]) -> None:
        """Have a request handled. Raises ProtocolError."""
        answer = self._handlers[call.request.api.key](call, now, effects)
        if isinstance(answer, Generator):
            steps = _in_steps(call, answer)
            if not self._turns.run(call.peer.link, steps, partial(_answer, call), now, effects):
                self._break(call.peer, TOO_MANY, effects)
        elif answer is not None:
            call.answer(answer, effects)

    # -- large requests --------------------------------------------------------------------------

    def _large(self, call: OpenRequest) -> Turn:
        """Return the turns of a large request, which decode it and then handle it."""
        reading = _read(call.request)
        handle: Turn | None = None

        def turn(now: int, effects: list[Effect]) -> bool:
            nonlocal handle
            if handle is None:
                try:
                    next(reading)
                except StopIteration as end:
                    call.request = end.value
                    handle = self._handling(call)
                else:
                    return False
            return handle(now, effects) and self._go_on(call.peer, now, effects)

        return turn

    def _handling(self, call: OpenRequest) -> Turn:
        """Return the turns that handle a large request once it is decoded."""
        cut = cut_of(call.request.api.key, call.version)
        if cut is not None:
            return _Wide(call, cut, self._handlers[call.request.api.key]).turn

        def at_once(now: int, effects: list[Effect]) -> bool:
            self._handle(call, now, effects)
            return True

        return at_once

    def _guarded(self, call: OpenRequest, turn: Turn, now: int, effects: list[Effect]) -> bool:
        """Take a turn of a large request, which may violate the protocol."""
        try:
            return turn(now, effects)
        except ProtocolError as error:
            self._break(call.peer, f"{call.request.api.name}: {error}", effects)
            return True

    def _go_on(self, peer: Peer, now: int, effects: list[Effect]) -> bool:
        """Take some of the requests behind a large one that was handled, others in later turns."""
        link = peer.link
        waiting = self._waiting.pop(link, deque())
        for _ in range(min(len(waiting), TAKEN_PER_TURN)):
            request = waiting.popleft()
            self._turns.let_go(link, size_of(request))
            is_large = self._take(peer, request, now, effects)
            if link not in self._peers:
                return True
            if is_large:
                break
        if link in self._waiting:  # for another large one
            self._waiting[link] += waiting
        elif waiting:
            self._waiting[link] = waiting
            self._wait(peer, partial(self._go_on, peer), now, effects)
        return True

    def write(self, call: OpenRequest, answer: ApiMessage, now: int, effects: list[Effect]) -> None:
        """Encode an answer in turns, then give it."""
        if call.peer.link not in self._peers:
            return
        steps = written(answer, call.version, flexible=call.request.api.is_flexible(call.version))
        if not self._turns.run(call.peer.link, steps, partial(_answer, call), now, effects):
            self._break(call.peer, TOO_MANY, effects)

    # -- answers ---------------------------------------------------------------------------------

    def failed(self, link: Link, request: Request, effects: list[Effect]) -> None:
        """Answer UNKNOWN_SERVER_ERROR if a bug ended the handling of the last request.

        This needs an error code at the top level of the response, and all earlier answers must have
        been sent; otherwise the client learns of the error when the link closes. (Apache Kafka
        builds an error for every topic of the request, AbstractRequest.getErrorResponse.)
        """
        slots = self._slots.get(link)
        if not slots or slots[-1].request is not request or slots[-1].done:
            return
        api, version = request.api, request.version
        if not has_field(api.response, "error_code", version):
            return
        code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        answer = msgspec.structs.replace(api.response(), error_code=code)
        OpenRequest(self, slots[-1], self._peers[link], request).answer(answer, effects)

    def settled(self, link: Link, effects: list[Effect]) -> None:
        """Send all answers whose turn it is."""
        slots = self._slots.get(link)
        while slots and slots[0].done:
            reply = slots.popleft().reply
            if reply is not None:
                effects.append(Send(link, reply))

    def _break(self, peer: Peer, reason: str, effects: list[Effect]) -> None:
        effects.append(LogLine("WARNING", f"{peer.address} broke the protocol: {reason}"))
        effects.append(Hang(peer.link, reason))
        self.closed(peer.link)

    def check(self) -> None:
        assert self._peers.keys() == self._slots.keys()
        for slots in self._slots.values():
            assert not slots or not slots[0].done
            assert len(slots) <= UNANSWERED_MAX
        assert self._waiting.keys() <= self._peers.keys()
        assert self._software.keys() <= self._peers.keys()
