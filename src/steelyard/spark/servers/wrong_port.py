"""Recognition of a server of the other protocol at an address that a user gave.

Brokers and nameservers close a connection whose requests they cannot read, so a mistaken port would
look like a server that is away for a moment, and be tried again. See `wire.strangers`.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from steelyard.errors import ConfigError, RemotingError, SteelyardError
from steelyard.spark.options.access import Access
from steelyard.wire.strangers import HEAD_BYTES, Stranger, named, question


def explained(
    error: RemotingError, address: str, wants: Stranger, timeout_ms: int, access: Access
) -> SteelyardError:
    """Return what a failed request to `address` means.

    ConfigError if a server of the other protocol than `wants` answers there, else `error`.
    """
    # A subclass says that nothing listens, or that nothing answered; TLS fails before a request.
    if type(error) is not RemotingError or access.context() is not None:
        return error
    with suppress(OSError):
        words = named(wants, _answer(address, question(wants), timeout_ms))
        if words:
            return ConfigError(f"{address}: {words}")
    return error


def _answer(address: str, data: bytes, timeout_ms: int) -> bytes:
    """Return the first bytes that the server at an address answers."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout_ms / 1000) as peer:
        peer.sendall(data)
        head = b""
        while len(head) < HEAD_BYTES:
            more = peer.recv(HEAD_BYTES - len(head))
            if not more:
                break
            head += more
        return head
