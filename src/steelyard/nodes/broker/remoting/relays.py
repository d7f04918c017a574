"""Requests that only a client can answer: passed on to it, and its answer passed back.

| code | request | answer |
|---|---|---|
| 307 | what a client is doing | the client's own |
| 309 | have a client consume a message, by its id, now | the client's own |
| 223 | where the clients of a group are in a topic | gathered from the answers of all, or of one |

The broker adds the message to 309, and asks clients with 221 to answer 223. The answer is 1 if the
client is not here or leaves meanwhile, 207 if it does not answer; 223 leaves such clients out.
Source: broker/processor/AdminBrokerProcessor.java, broker/client/net/Broker2Client.java.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from steelyard.errors import ConfigError, ProtocolError
from steelyard.groups.remoting.registry import Member
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.remoting.stored import check_entry
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.seam import Effect, Link, Send, SetTimer
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.acl import unsigned
from steelyard.wire.remoting.bodies import ConsumerStatusBody
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.ids import parse_offset_message_id

RELAYS_TIMER = "relays"

RELAYS_MAX = 1_000
"""Maximum of requests to clients under way."""
RELAY_TIMEOUT_MS = 10_000
"""How long a client may take to answer (Broker2Client.callClient)."""
GATHER_TIMEOUT_MS = 4_000
"""How long all clients together may take to answer 221, a second less than tools wait.

Broker2Client.getConsumeStatus gives each 5 s in turn.
"""


class _Relay(msgspec.Struct, frozen=True):
    """A request passed on to one client, and who wants the answer."""

    request: RemotingRequest


class _Gathering(msgspec.Struct):
    """A request answered by combining the answers of several clients."""

    request: RemotingRequest
    waiting: int
    found: dict[str, dict[MessageQueue, int]] = {}


class _Asked(msgspec.Struct, frozen=True):
    """A request to a client that is under way."""

    purpose: _Relay | _Gathering
    client_id: str
    deadline: int


class Relays:
    """Passes requests on to clients; see the module docstring."""

    def __init__(self, parts: Parts) -> None:
        self._config = parts.config
        self._registry = parts.registry
        self._store = parts.store
        self._asked: dict[tuple[Link, int], _Asked] = {}
        self._opaque = 0

    # -- requests --------------------------------------------------------------------------------

    @serves(RequestCode.GET_CONSUMER_RUNNING_INFO)
    def running_info(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        header = request.header(headers.ConsumerRunningInfoRequestHeader)
        member = self._registry.find(header.consumer_group, header.client_id)
        return self._relay(request, request.command, member, now, effects)

    @serves(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    def consume_directly(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        header = request.header(headers.ConsumeMessageDirectlyRequestHeader)
        try:
            _, address = parse_offset_message_id(header.msg_id or "")
        except ConfigError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        message = None if address < 0 else self._store.at_address(address)
        if message is None:
            remark = f"can not find message by the offset, {address}"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        check_entry(request, message)
        ext = {**request.ext, "brokerName": self._config.name}
        member = self._registry.find(header.consumer_group, header.client_id or "")
        question = replace(request.command, ext=ext, body=message)
        return self._relay(request, question, member, now, effects)

    @serves(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    def consumer_status(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        header = request.header(headers.ConsumerStatusRequestHeader)
        members = {
            member.client.client_id: member
            for member in self._registry.memberships(header.group)
            if not header.client_addr or member.client.client_id == header.client_addr
        }
        if not members:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        if request.is_oneway:
            return None
        if len(self._asked) + len(members) > RELAYS_MAX:
            return _too_many(request)
        code = int(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
        question = Command(code, ext={"topic": header.topic, "group": header.group})
        gathering = _Gathering(request, len(members))
        for member in members.values():
            self._ask(question, gathering, member, now + GATHER_TIMEOUT_MS, effects)
        return None

    def _relay(
        self,
        request: RemotingRequest,
        question: Command,
        member: Member | None,
        now: int,
        effects: list[Effect],
    ) -> Command | None:
        if member is None:
            return _not_online(request)
        if request.is_oneway:
            return None
        if len(self._asked) >= RELAYS_MAX:
            return _too_many(request)
        question = replace(question, ext=unsigned(question.ext))  # the asker's signature is its own
        self._ask(question, _Relay(request), member, now + RELAY_TIMEOUT_MS, effects)
        return None

    def _ask(
        self,
        question: Command,
        purpose: _Relay | _Gathering,
        member: Member,
        deadline: int,
        effects: list[Effect],
    ) -> None:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        link = member.client.link
        self._asked[link, self._opaque] = _Asked(purpose, member.client.client_id, deadline)
        effects.append(Send(link, replace(question, opaque=self._opaque)))
        self._set_timer(effects)

    # -- answers ---------------------------------------------------------------------------------

    def answered(self, link: Link, response: Command, effects: list[Effect]) -> None:
        """Handle a client's answer; one that nobody asked for is ignored."""
        asked = self._asked.pop((link, response.opaque), None)
        if asked is not None:
            self._settle(asked, response, effects)

    def closed(self, link: Link, effects: list[Effect]) -> None:
        """Handle a closed link: of a client that was asked, or of a peer that asked."""
        for key, asked in list(self._asked.items()):
            if link == key[0]:
                del self._asked[key]
                self._settle(asked, _not_online(asked.purpose.request), effects)
            elif link == asked.purpose.request.peer.link:
                del self._asked[key]

    def due(self, now: int, effects: list[Effect]) -> None:
        """Stop waiting for clients that have not answered in time."""
        for key, asked in list(self._asked.items()):
            if asked.deadline <= now:
                del self._asked[key]
                self._settle(asked, _silent(asked.purpose.request), effects)
        self._set_timer(effects)

    def _settle(self, asked: _Asked, response: Command, effects: list[Effect]) -> None:
        purpose = asked.purpose
        if isinstance(purpose, _Relay):
            answer = replace(response, opaque=purpose.request.command.opaque)
            effects.append(Send(purpose.request.peer.link, answer))
            return
        if response.code == ResponseCode.SUCCESS:
            try:
                status = fastjson.read(ConsumerStatusBody, response.body)
                purpose.found[asked.client_id] = status.message_queue_table
            except ProtocolError:
                pass  # an answer that cannot be read counts as none
        purpose.waiting -= 1
        if purpose.waiting == 0:
            body = fastjson.write(ConsumerStatusBody(consumer_table=purpose.found))
            effects.append(Send(purpose.request.peer.link, purpose.request.reply(body=body)))

    def _set_timer(self, effects: list[Effect]) -> None:
        if self._asked:
            deadline = min(asked.deadline for asked in self._asked.values())
            effects.append(SetTimer(RELAYS_TIMER, deadline))

    def check(self) -> None:
        assert len(self._asked) <= RELAYS_MAX
        gatherings = [a.purpose for a in self._asked.values() if isinstance(a.purpose, _Gathering)]
        for gathering in gatherings:
            assert gathering.waiting == sum(1 for other in gatherings if other is gathering)


def _not_online(request: RemotingRequest) -> Command:
    group, client = request.ext.get("consumerGroup"), request.ext.get("clientId")
    remark = f"The Consumer <{group}> <{client}> not online"
    return request.reply(ResponseCode.SYSTEM_ERROR, remark)


def _silent(request: RemotingRequest) -> Command:
    group, client = request.ext.get("consumerGroup"), request.ext.get("clientId")
    remark = f"consumer <{group}> <{client}> Timeout: no answer within {RELAY_TIMEOUT_MS} ms"
    return request.reply(ResponseCode.CONSUME_MSG_TIMEOUT, remark)


def _too_many(request: RemotingRequest) -> Command:
    remark = f"more than {RELAYS_MAX} requests to clients are in flight"
    return request.reply(ResponseCode.SYSTEM_BUSY, remark)
