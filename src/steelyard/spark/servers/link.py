"""A blocking connection to a broker or nameserver, for Spark's workers.

A worker reads one queue at a time and only waits for it (`driver.blocking_links`). Requests may be
pipelined, as long as each reply is awaited by its opaque.
"""

from __future__ import annotations

import socket
from typing import Self

import msgspec

from steelyard.driver import blocking_links
from steelyard.driver.blocking_links import failure
from steelyard.errors import BrokerError, ConnectError, RemotingError
from steelyard.spark.options.access import PLAIN, Access
from steelyard.wire.remoting import frame
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command, is_response

RECEIVE_BYTES = 1 << 20


def connect(address: str, timeout_ms: int, access: Access) -> socket.socket:
    """Connect to `host:port`, with TLS if `access` says so.

    Raises ConnectError if nothing listens there or TLS fails, ConfigError for unusable TLS files.
    """
    made = blocking_links.connect(address, timeout_ms)
    context = access.context()
    if context is None:
        return made
    host = address.rpartition(":")[0].strip("[]")
    try:
        return context.wrap_socket(made, server_hostname=host)
    except OSError as error:
        made.close()
        raise ConnectError(f"TLS with {address} failed: {error}") from None


class Link:
    """A connection; raises as `connect`."""

    def __init__(self, address: str, timeout_ms: int, access: Access = PLAIN) -> None:
        self.address = address
        self._opaque = 0
        self._decoder = frame.Decoder()
        self._replies: dict[int, Command] = {}
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._socket = connect(address, timeout_ms, access)
        self._signer = access.signer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, request: Command) -> int:
        """Send a request; return its opaque, for `receive`."""
        self._opaque += 1
        if self._signer is not None:
            request = self._signer(request)
        data = frame.encode(msgspec.structs.replace(request, opaque=self._opaque))
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise failure(self.address, error) from None
        return self._opaque

    def receive(self, opaque: int) -> Command:
        """Wait for the reply to a request.

        Raises CallTimeoutError, RemotingError or ProtocolError.
        """
        while opaque not in self._replies:
            try:
                size = self._socket.recv_into(self._buffer)
            except OSError as error:
                raise failure(self.address, error) from None
            if not size:
                raise RemotingError(f"{self.address} closed the connection")
            for command in self._decoder.feed(self._buffer[:size]):
                # brokers also send requests to clients, which are not for us
                if is_response(command):
                    self._replies[command.opaque] = command
        return self._replies.pop(opaque)

    def call(self, request: Command) -> Command:
        """Return the reply to `request`, which must be SUCCESS.

        Raises BrokerError with its remark.
        """
        reply = self.receive(self.send(request))
        if reply.code != ResponseCode.SUCCESS:
            raise self.refusal(reply)
        return reply

    def refusal(self, reply: Command) -> BrokerError:
        return BrokerError(reply.code, reply.remark, self.address)
