"""A blocking connection to a broker's Kafka listener, for single requests."""

from __future__ import annotations

import socket
from typing import Self, TypeVar

from steelyard.errors import (
    CallTimeoutError,
    ConnectError,
    KafkaError,
    ProtocolError,
    RemotingError,
)
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import ReplyDecoder, Request, encode, read_reply
from steelyard.wire.kafka.schema import Api, ApiMessage

TIMEOUT_SECONDS = 30.0
RECEIVE_BYTES = 1 << 16
CLIENT_ID = "steelyard-server"

M = TypeVar("M", bound=ApiMessage)


class KafkaConnection:
    """A connection to `address`, host:port; a context manager.

    Raises ConnectError if nothing listens there.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        host, _, port = address.rpartition(":")
        self._correlation_id = 0
        self._decoder = ReplyDecoder()
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_SECONDS)
        except OSError as error:
            raise ConnectError(f"cannot connect to {address}: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, api: Api, message: ApiMessage) -> None:
        """Send a request, in the newest version that we know, without waiting for the response."""
        self._correlation_id += 1
        request = Request(api, api.versions[1], self._correlation_id, CLIENT_ID, message)
        try:
            self._socket.sendall(encode(request))
        except OSError as error:
            raise RemotingError(f"connection to {self.address} failed: {error}") from None

    def call(self, api: Api, message: ApiMessage, kind: type[M]) -> M:
        """Return the response to a request. Raises RemotingError or ProtocolError."""
        self.send(api, message)
        while True:
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except TimeoutError:
                raise CallTimeoutError(
                    f"no reply from {self.address} within the time-out"
                ) from None
            except OSError as error:
                raise RemotingError(f"connection to {self.address} failed: {error}") from None
            if not data:
                raise RemotingError(f"{self.address} closed the connection")
            for reply in self._decoder.feed(data):
                if reply.correlation_id == self._correlation_id:
                    found = read_reply(api, api.versions[1], reply)
                    if not isinstance(found, kind):
                        raise ProtocolError(f"{self.address} answered {api.name} with nonsense")
                    return found


def check_code(code: int, doing: str) -> None:
    """Raise KafkaError for a code other than NONE."""
    if code != ErrorCode.NONE:
        names = {each.value: each.name for each in ErrorCode}
        raise KafkaError(code, f"the broker answers {names.get(code, code)} to {doing}")
