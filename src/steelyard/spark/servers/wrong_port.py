"""Recognition of a server of the other protocol at an address that a user gave.

Brokers and nameservers close a connection whose requests they cannot read, so a mistaken port would
look like a server that is away for a moment, and be tried again. See `wire.strangers`.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from steelyard.errors import ConfigError, RemotingError, SteelyardError
from steelyard.spark.options.access import Access
from steelyard.wire.strangers import HEAD_BYTES, Stranger, named, question, recognised

TIMEOUT_MS = 2_000
"""Time-out of each question to a server before it is used."""


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


def check_kafka(bootstrap: str, access: Access) -> None:
    """Raise ConfigError if RocketMQ's servers answer at an address, and Kafka's at none of them.

    A consumer would try again until its time-out: a server that closes a connection may be one that
    is starting. Returns as well if nobody answers, which the consumer tells.
    """
    if access.context() is not None:
        return
    found = ""
    for address in (one.strip() for one in bootstrap.split(",")):
        with suppress(OSError, ValueError):
            head = _answer(address, question(Stranger.REMOTING), TIMEOUT_MS)
            if recognised(Stranger.REMOTING, head):
                return
        with suppress(OSError, ValueError):
            words = named(Stranger.KAFKA, _answer(address, question(Stranger.KAFKA), TIMEOUT_MS))
            found = found or (words and f"{address}: {words}")
    if found:
        raise ConfigError(found)


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
