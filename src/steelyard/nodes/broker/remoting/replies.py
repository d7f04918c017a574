"""324, 325 SEND_REPLY_MESSAGE: the reply of request-reply, pushed (326) to the client that asked.

That client is a producer, found by the property REPLY_TO_CLIENT. The replier gets 0 when the client
has taken the reply, and 1 if the property is missing, or the client is not here, refuses the reply,
leaves, or does not answer for PUSH_TIMEOUT_MS. With `store_replies` the reply is also stored in its
topic, whatever came of the push, and the answer says where if it was taken. Topic and queue are
checked as for ordinary sends.
Source: broker/processor/ReplyMessageProcessor.java.
"""

from __future__ import annotations

import msgspec

from steelyard.errors import MessageError, StorageError
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.remoting.send import AnySend, Sends
from steelyard.nodes.broker.requests import Peer, RemotingRequest, serves
from steelyard.nodes.broker.writer import AppendResult, Draft
from steelyard.nodes.seam import Effect, Link, Send, SetTimer
from steelyard.types import LogLine
from steelyard.wire.remoting import headers
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.ids import host_address, offset_message_id
from steelyard.wire.remoting.properties import Properties, closed

REPLIES_TIMER = "replies"

PUSHES_MAX = 10_000
"""Maximum of replies on their way to clients."""

PUSH_TIMEOUT_MS = 3_000
"""How long a client may take to answer: as long as repliers wait by default (sendMsgTimeout).

Broker2Client.callClient waits 10 s, when nobody waits any more.
"""

FIRST_OPAQUE = 1 << 30
"""Far from the numbers of `relays`, which sends requests over the same connections."""


class _Push(msgspec.Struct, frozen=True):
    """A reply on its way, and who sent it. `stored`: where it was stored, None if it was not."""

    request: RemotingRequest
    client_id: str
    queue_id: int
    stored: AppendResult | None
    deadline: int


class Replies:
    """Pushes replies to clients; see the module docstring."""

    def __init__(self, parts: Parts, sends: Sends) -> None:
        self._config = parts.config
        self._registry = parts.registry
        self._sends = sends
        self._writer = parts.writer
        self._pushes: dict[tuple[Link, int], _Push] = {}
        """In the order of their deadlines."""
        self._armed = False
        self._opaque = FIRST_OPAQUE

    # -- requests --------------------------------------------------------------------------------

    @serves(RequestCode.SEND_REPLY_MESSAGE)
    def send(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command | None:
        header = request.header(headers.SendMessageRequestHeader)
        return self._send(request, header, now, effects)

    @serves(RequestCode.SEND_REPLY_MESSAGE_V2)
    def send_v2(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command | None:
        header = request.header(headers.SendMessageRequestHeaderV2)
        return self._send(request, header, now, effects)

    def _send(
        self, request: RemotingRequest, header: AnySend, now: int, effects: list[Effect]
    ) -> Command | None:
        bytes_max = self._config.store.message_bytes_max
        if len(request.body) > bytes_max:
            remark = f"a reply of {len(request.body)} bytes; {bytes_max} are allowed"
            return request.reply(ResponseCode.MESSAGE_ILLEGAL, remark)
        queue_id = self._sends.checked_queue(header, now, effects)
        properties = Properties(closed(header.properties))
        client_id = properties.values.get(props.REPLY_TO_CLIENT)
        link = None if client_id is None else self._registry.producer_link(client_id)
        stored = self._store(request, header, queue_id, properties, now, effects)
        if client_id is None:
            return _failed(request, f"reply message properties[{props.REPLY_TO_CLIENT}] is null")
        if link is None:
            remark = f"push reply message fail, channel of <{client_id}> not found."
            return _failed(request, remark)
        if len(self._pushes) >= PUSHES_MAX:
            remark = f"more than {PUSHES_MAX} replies are in flight"
            return request.reply(ResponseCode.SYSTEM_BUSY, remark)
        pushed = self._pushed_header(header, properties, request.peer, now)
        self._opaque = (self._opaque + 1) & (FIRST_OPAQUE - 1) | FIRST_OPAQUE
        code = int(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
        push = Command(code, self._opaque, 0, headers.write(pushed), request.body)
        self._pushes[link, self._opaque] = _Push(
            request, client_id, queue_id, stored, now + PUSH_TIMEOUT_MS
        )
        effects.append(Send(link, push))
        if not self._armed:
            self._set_timer(effects)
        return None

    def _store(
        self,
        request: RemotingRequest,
        header: AnySend,
        queue_id: int,
        properties: Properties,
        now: int,
        effects: list[Effect],
    ) -> AppendResult | None:
        """Store the reply; if the disk refuses, it is pushed nevertheless."""
        if not self._config.store_replies:
            return None
        draft = Draft(
            request.body,
            properties,
            request.peer.host,
            header.born_timestamp,
            header.flag,
            header.sys_flag,
            header.reconsume_times,
        )
        try:
            return self._writer.write(header.topic, queue_id, draft, now, effects)
        except (StorageError, MessageError) as error:
            effects.append(LogLine("WARNING", f"a reply was not stored: {error}"))
            return None

    def _pushed_header(
        self, header: AnySend, properties: Properties, peer: Peer, now: int
    ) -> headers.ReplyMessageRequestHeader:
        return headers.ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=props.encode_properties(
                {**properties.values, props.PUSH_REPLY_TIME: str(now)}
            ),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=peer.address,
            store_host=host_address(self._writer.host),
            store_timestamp=now,
        )

    # -- answers ---------------------------------------------------------------------------------

    def answered(self, link: Link, response: Command, effects: list[Effect]) -> bool:
        """Handle a client's answer; return False if the response is to something else."""
        push = self._pushes.pop((link, response.opaque), None)
        if push is None:
            return False
        if response.code == ResponseCode.SUCCESS:
            self._answer(push, self._delivered(push), effects)
        else:
            self._answer(push, _undelivered(push), effects)
        return True

    def closed(self, link: Link, effects: list[Effect]) -> None:
        """Handle a closed link: of a client that a reply went to, or of a replier."""
        for key, push in list(self._pushes.items()):
            if link in (key[0], push.request.peer.link):
                del self._pushes[key]
                if link != push.request.peer.link:
                    self._answer(push, _undelivered(push), effects)

    def due(self, now: int, effects: list[Effect]) -> None:
        """Stop waiting for clients that have not answered in time."""
        for key, push in list(self._pushes.items()):
            if push.deadline > now:
                break
            del self._pushes[key]
            self._answer(push, _undelivered(push), effects)
        self._set_timer(effects)

    def _answer(self, push: _Push, answer: Command, effects: list[Effect]) -> None:
        if not push.request.is_oneway:
            effects.append(Send(push.request.peer.link, answer))

    def _delivered(self, push: _Push) -> Command:
        place = push.stored
        message_id = "0" if place is None else offset_message_id(self._writer.host, place.address)
        header = headers.SendMessageResponseHeader(
            msg_id=message_id,
            queue_id=push.queue_id,
            queue_offset=0 if place is None else place.offset,
        )
        return push.request.reply(ext=headers.write(header))

    def _set_timer(self, effects: list[Effect]) -> None:
        self._armed = bool(self._pushes)
        if self._armed:
            push = next(iter(self._pushes.values()))
            effects.append(SetTimer(REPLIES_TIMER, push.deadline))

    def check(self) -> None:
        assert len(self._pushes) <= PUSHES_MAX
        deadlines = [push.deadline for push in self._pushes.values()]
        assert deadlines == sorted(deadlines)
        assert self._armed or not deadlines


def _undelivered(push: _Push) -> Command:
    return _failed(push.request, f"push reply message to {push.client_id}fail.")


def _failed(request: RemotingRequest, remark: str) -> Command:
    """Build a refusal, from which the client also reads region and trace."""
    ext = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    return request.reply(ResponseCode.SYSTEM_ERROR, remark, ext)
