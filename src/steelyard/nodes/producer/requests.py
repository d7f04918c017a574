"""Requests: messages that ask for a reply, matched by correlation id.

A request passes through: being sent → waiting for its reply (326, from a broker that knows this
producer) → answered. If the reply arrives before the broker has confirmed that it stored the
request, the confirmation no longer matters.
Source: client/producer/RequestFutureHolder.java, client/impl/ClientRemotingProcessor.java
`receiveReplyMessage`.
"""

from __future__ import annotations

import zlib

import msgspec

from steelyard.errors import (
    CallTimeoutError,
    ConfigError,
    ProtocolError,
    RemotingError,
    SteelyardError,
)
from steelyard.nodes.seam import Answer, Effect, Link, Send, SetTimer
from steelyard.types import LogLine
from steelyard.wire.remoting import headers, ids
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command, is_oneway
from steelyard.wire.remoting.message import MessageView
from steelyard.wire.remoting.properties import (
    ARRIVE_TIME,
    CORRELATION_ID,
    NAME_END,
    VALUE_END,
    closed,
)

REQUESTS_TIMER = "requests"


class _Request(msgspec.Struct):
    call_id: int
    deadline: int
    sent: bool = False


class Requests:
    """The requests in progress, at most `count_max` at once."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._requests: dict[str, _Request] = {}
        self._due: int | None = None

    @property
    def idle(self) -> bool:
        return not self._requests

    def open(self, correlation_id: str, call_id: int, deadline: int, effects: list[Effect]) -> None:
        """Add a request that is about to be sent. Raises RemotingError if there are too many."""
        if len(self._requests) >= self._count_max:
            raise RemotingError(f"more than {self._count_max} requests in flight (in_flight_max)")
        self._requests[correlation_id] = _Request(call_id, deadline)
        if self._due is not None and self._due <= deadline:
            return
        self._due = deadline
        effects.append(SetTimer(REQUESTS_TIMER, deadline))

    def sent(self, correlation_id: str, result: object, effects: list[Effect]) -> None:
        """Note that the request was sent, or end it with the error of sending it."""
        request = self._requests.get(correlation_id)
        if request is None:
            return
        if isinstance(result, SteelyardError):
            del self._requests[correlation_id]
            effects.append(Answer(request.call_id, result))
        else:
            request.sent = True

    def replied(
        self, link: Link, command: Command, broker_name: str, now: int, effects: list[Effect]
    ) -> None:
        """Handle PUSH_REPLY_MESSAGE_TO_CLIENT (326): a reply, forwarded by a broker."""
        try:
            view = _view(command, broker_name, now)
        except ProtocolError as error:
            remark = f"process reply message fail: {error}"
            _response(link, command, ResponseCode.SYSTEM_ERROR, effects, remark)
            effects.append(LogLine("WARNING", f"a reply that cannot be read: {error}"))
            return
        _response(link, command, ResponseCode.SUCCESS, effects)
        request = self._requests.pop(view.property_of(CORRELATION_ID) or "", None)
        if request is None:
            text = f"a reply from {view.born_host} for which no request is waiting"
            effects.append(LogLine("INFO", text))
        else:
            effects.append(Answer(request.call_id, view))

    def expire(self, now: int, effects: list[Effect]) -> None:
        """Handle the timer: end requests past their deadline, and set the timer again."""
        for correlation_id, request in list(self._requests.items()):
            if request.deadline <= now:
                del self._requests[correlation_id]
                state = "sent, but not replied to" if request.sent else "not sent"
                error = CallTimeoutError(f"the request was {state} within the time-out")
                effects.append(Answer(request.call_id, error))
        self._due = min((request.deadline for request in self._requests.values()), default=None)
        if self._due is not None:
            effects.append(SetTimer(REQUESTS_TIMER, self._due))

    def check(self) -> None:
        """Assert that requests wait only while a timer is set, and are not too many."""
        assert len(self._requests) <= self._count_max
        assert not self._requests or self._due is not None


def _response(
    link: Link, command: Command, code: ResponseCode, effects: list[Effect], remark: str = ""
) -> None:
    if not is_oneway(command):
        effects.append(Send(link, Command(code, command.opaque, RESPONSE_FLAG, remark=remark)))


def _view(command: Command, broker_name: str, now: int) -> MessageView:
    """Return the reply as if it had been pulled; it is in no log. Raises ProtocolError."""
    header = headers.read(headers.ReplyMessageRequestHeader, command.ext)
    properties = closed(header.properties)
    properties += f"{ARRIVE_TIME}{NAME_END}{now}{VALUE_END}"
    try:
        born_host, store_host = ids.host_bytes(header.born_host), ids.host_bytes(header.store_host)
    except ConfigError as error:
        raise ProtocolError(str(error)) from None
    return MessageView(
        broker_name=broker_name,
        topic=header.topic,
        queue_id=header.queue_id,
        flag=header.flag,
        queue_offset=0,
        physical_offset=0,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host_bytes=born_host,
        store_timestamp=header.store_timestamp,
        store_host_bytes=store_host,
        reconsume_times=header.reconsume_times,
        prepared_transaction_offset=0,
        body_crc=zlib.crc32(command.body) & 0x7FFFFFFF,
        stored_body=command.body,
        property_bytes=properties.encode(errors="replace"),
    )
