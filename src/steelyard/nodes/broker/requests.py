"""What every handler of the broker speaks: the peer behind a link, replies, and the handler's own shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from steelyard.errors import ConfigError
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect, Link
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command, is_oneway
from steelyard.wire.remoting.ids import host_bytes
from steelyard.wire.remoting.names import FAQ

_NOTHING: Mapping[str, str] = {}

NO_HOST = bytes(8)
"""Stands for a peer whose address is not an ip, e.g. a name."""


class Peer(msgspec.Struct, frozen=True, gc=False):
    """The far end of an accepted link. `host`: ip and port as messages carry it."""

    link: Link
    address: str
    host: bytes


AnyHeader = TypeVar("AnyHeader", bound=headers.Header)


class RemotingRequest(msgspec.Struct, frozen=True, gc=False):
    """What a peer asks."""

    command: Command
    peer: Peer

    @property
    def ext(self) -> Mapping[str, str]:
        return self.command.ext

    @property
    def body(self) -> bytes:
        return self.command.body

    @property
    def is_oneway(self) -> bool:
        return is_oneway(self.command)

    def header(self, kind: type[AnyHeader]) -> AnyHeader:
        """The custom header. Raises ProtocolError."""
        return headers.read(kind, self.command.ext)

    def reply(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str = "",
        ext: Mapping[str, str] = _NOTHING,
        body: bytes = b"",
    ) -> Command:
        """The response to it."""
        return Command(int(code), self.command.opaque, RESPONSE_FLAG, ext, body, remark)


class Refusal(Exception):  # noqa: N818  # an outcome of one request, not an error of the program
    """Raised in a handler that refuses a request: the code and the remark of the reply."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


def no_topic(topic: str) -> Refusal:
    """No such topic, and no leave to make it."""
    remark = f"topic[{topic}] not exist, apply first please!{FAQ}"
    return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)


Handler = Callable[[RemotingRequest, int, list[Effect]], Command | Steps[Command | None] | None]
"""(request, now, effects to add to) -> the reply, the work that ends with it, or None where it comes later.

A handler may raise Refusal, ProtocolError for a bad request, and StorageError, each before it changed anything;
`RemotingService` turns them into replies. One-way requests are handled alike; their replies are dropped.
"""

AnyMethod = TypeVar("AnyMethod", bound=Callable[..., object])
HandlerMethod = TypeVar(
    "HandlerMethod",
    bound=Callable[
        [Any, RemotingRequest, int, list[Effect]],
        Command | Steps[Command] | Steps[Command | None] | None,
    ],
)

_CODES = "codes_served"


def marked(method: AnyMethod, codes: Sequence[int]) -> AnyMethod:
    """The method with a mark that `served` finds."""
    setattr(method, _CODES, codes)
    return method


def serves(*codes: int) -> Callable[[HandlerMethod], HandlerMethod]:
    """Decorates the method that is the `Handler` of requests with these codes."""
    return partial(marked, codes=codes)


def served(parts: Iterable[object]) -> dict[int, Any]:
    """The handlers of several parts, each of which serves codes of its own."""
    found: dict[int, Any] = {}
    for part in parts:
        for name, member in vars(type(part)).items():
            for code in getattr(member, _CODES, ()):
                assert code not in found, f"served twice: {code}"
                found[code] = getattr(part, name)
    return found


def host_of(address: str) -> bytes:
    """An address as messages carry it: 4 or 16 bytes of ip, then the port; zeros for a name."""
    try:
        return host_bytes(address)
    except ConfigError:
        return NO_HOST
