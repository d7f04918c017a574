"""Requests as the broker's handlers see them: peers, replies, refusals, and the type `Handler`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from steelyard.acl.accounts import Account
from steelyard.errors import ConfigError
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect, Link
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Command
from steelyard.wire.remoting.ids import host_bytes
from steelyard.wire.remoting.names import FAQ

_NOTHING: Mapping[str, str] = {}

NO_HOST = bytes(8)
"""Stands for a peer whose address is not an IP address but, for example, a name."""


class Peer(msgspec.Struct, frozen=True, gc=False):
    """The far end of an accepted link. `host`: IP address and port, encoded as in messages.

    `owner`: of its certificate, a distinguished name; empty if it has shown none.
    """

    link: Link
    address: str
    host: bytes
    owner: str = ""


AnyHeader = TypeVar("AnyHeader", bound=headers.Header)


class RemotingRequest(msgspec.Struct, frozen=True, gc=False):
    """A request of a peer, which may do what does not depend on stored messages."""

    command: Command
    peer: Peer
    account: Account | None = None
    """Whose request it is, whose permissions bind it; None: nobody's, without access control."""

    @property
    def ext(self) -> Mapping[str, str]:
        return self.command.ext

    @property
    def body(self) -> bytes:
        return self.command.body

    @property
    def is_oneway(self) -> bool:
        return self.command.flag & ONEWAY_FLAG != 0

    def header(self, kind: type[AnyHeader]) -> AnyHeader:
        """Decode the custom header. Raises ProtocolError."""
        return headers.read(kind, self.command.ext)

    def reply(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str = "",
        ext: Mapping[str, str] = _NOTHING,
        body: bytes = b"",
    ) -> Command:
        """Build the response to the request."""
        return Command(int(code), self.command.opaque, RESPONSE_FLAG, ext, body, remark)


class Refusal(Exception):  # noqa: N818  # an outcome of one request, not an error of the program
    """Raised by a handler that refuses a request, with the code and the remark of the reply."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


def no_topic(topic: str) -> Refusal:
    """Return the refusal for a topic that does not exist and must not be created."""
    remark = f"topic[{topic}] not exist, apply first please!{FAQ}"
    return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)


Handler = Callable[[RemotingRequest, int, list[Effect]], Command | Steps[Command | None] | None]
"""A function of (request, now, effects to add to).

It returns the reply, steps that end with it (`turns`), or None if it is sent later. It may raise
Refusal, ProtocolError for a bad request, or StorageError, always before it has changed anything;
`RemotingService` turns them into replies. One-way requests are handled alike, but their replies are
dropped.
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
    """Mark a method as serving these codes; `served` looks for the mark."""
    setattr(method, _CODES, codes)
    return method


def serves(*codes: int) -> Callable[[HandlerMethod], HandlerMethod]:
    """Decorate the method that is the `Handler` of requests with these codes."""
    return partial(marked, codes=codes)


def served(parts: Iterable[object]) -> dict[int, Any]:
    """Return the handlers of several parts by code. No code may be served twice."""
    found: dict[int, Any] = {}
    for part in parts:
        for name, member in vars(type(part)).items():
            for code in getattr(member, _CODES, ()):
                assert code not in found, f"served twice: {code}"
                found[code] = getattr(part, name)
    return found


def host_of(address: str) -> bytes:
    """Encode an address as in messages: an IP address of 4 or 16 bytes, then the port.

    Return NO_HOST for a name.
    """
    try:
        return host_bytes(address)
    except ConfigError:
        return NO_HOST
