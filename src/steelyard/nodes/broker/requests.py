"""What every handler of the broker speaks: the peer behind a link, replies, and the handler's own shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from steelyard.errors import ConfigError
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect, Link
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command
from steelyard.wire.remoting.ids import host_bytes

NO_HOST = bytes(8)
"""Stands for a peer whose address is not an ip, e.g. a name."""


class Peer(msgspec.Struct, frozen=True, gc=False):
    """The far end of an accepted link. `host`: ip and port as messages carry it."""

    link: Link
    address: str
    host: bytes


Handler = Callable[[Command, Peer, int, list[Effect]], Command | Steps[Command | None] | None]
"""(request, who asks, now, effects to add to) -> the reply, the work that ends with it, or None where it comes later.

A handler may raise ProtocolError for a bad request and StorageError, both before it changed anything;
`RemotingService` turns them into replies. One-way requests are handled alike; their replies are dropped.
"""

Handlers = Mapping[int, Handler]
"""By request code."""

H = TypeVar("H")


def combined(tables: Iterable[Mapping[int, H]]) -> dict[int, H]:
    """The handlers of several parts, each of which serves codes of its own."""
    found: dict[int, H] = {}
    for table in tables:
        assert found.keys().isdisjoint(table), f"served twice: {sorted(found.keys() & table)}"
        found.update(table)
    return found


_NOTHING: Mapping[str, str] = {}


def reply(
    request: Command,
    code: int = ResponseCode.SUCCESS,
    remark: str = "",
    ext: Mapping[str, str] = _NOTHING,
    body: bytes = b"",
) -> Command:
    """The response to `request`."""
    return Command(int(code), request.opaque, RESPONSE_FLAG, ext, body, remark)


def host_of(address: str) -> bytes:
    """An address as messages carry it: 4 or 16 bytes of ip, then the port; zeros for a name."""
    try:
        return host_bytes(address)
    except ConfigError:
        return NO_HOST
