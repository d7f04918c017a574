"""Blocking connections, for threads that only wait for one answer after the other.

A plain socket is simpler there than the event loop of `driver`. `KafkaLink` speaks to a Kafka
listener; its requests may be pipelined, as long as each response is awaited by its correlation id.
"""

from __future__ import annotations

import math
import socket
import time
from random import SystemRandom
from typing import TypeVar

from steelyard.errors import (
    CallTimeoutError,
    ConnectError,
    KafkaError,
    ProtocolError,
    RemotingError,
)
from steelyard.nodes.calls.kafka import SESSION_SHARE, check_handshake, check_login
from steelyard.sasl.login import Login, exchange_of
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import RawReply, ReplyDecoder, Request, encode, read_reply
from steelyard.wire.kafka.messages.logins import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from steelyard.wire.kafka.schema import Api, ApiMessage

RECEIVE_BYTES = 1 << 16

RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Errors that pass: a broker starts, lacks replicas, or is finishing an earlier transaction."""

M = TypeVar("M", bound=ApiMessage)


def connect(address: str, timeout_ms: int) -> socket.socket:
    """Connect to `host:port`. Raises ConnectError if nothing listens there."""
    host, _, port = address.rpartition(":")
    try:
        made = socket.create_connection((host.strip("[]"), int(port)), timeout_ms / 1000)
    except OSError as error:
        raise ConnectError(f"cannot connect to {address}: {error.strerror or error}") from None
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def failure(address: str, error: OSError) -> RemotingError:
    """Return what a failed read or write of a connection means."""
    if isinstance(error, TimeoutError):
        return CallTimeoutError(f"no reply from {address} within the time-out")
    return RemotingError(f"connection to {address} failed: {error}")


class KafkaLink:
    """A connection to the Kafka listener at `address`, over `connection`.

    `client_id`: what its requests are to be from.
    """

    def __init__(self, address: str, connection: socket.socket, client_id: str) -> None:
        self.address = address
        self._client_id = client_id
        self._correlation_id = 0
        self._decoder = ReplyDecoder()
        self._sent: dict[int, tuple[Api, int]] = {}
        self._replies: dict[int, RawReply] = {}
        self._socket = connection
        self.ends_at = math.inf
        """When the session of its login is about to end, in seconds of `time.monotonic`."""

    def close(self) -> None:
        self._socket.close()

    def send(self, api: Api, version: int, message: ApiMessage) -> int:
        """Send a request; return its correlation id, for `receive`. Raises RemotingError."""
        self._correlation_id += 1
        request = Request(api, version, self._correlation_id, self._client_id, message)
        self._sent[self._correlation_id] = api, version
        try:
            self._socket.sendall(encode(request))
        except OSError as error:
            raise failure(self.address, error) from None
        return self._correlation_id

    def receive(self, correlation_id: int, kind: type[M]) -> M:
        """Wait for the response to a request. Raises RemotingError or ProtocolError."""
        while correlation_id not in self._replies:
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except OSError as error:
                raise failure(self.address, error) from None
            if not data:
                raise RemotingError(f"{self.address} closed the connection")
            for reply in self._decoder.feed(data):
                self._replies[reply.correlation_id] = reply
        api, version = self._sent.pop(correlation_id)
        message = read_reply(api, version, self._replies.pop(correlation_id))
        if not isinstance(message, kind):
            raise ProtocolError(f"{self.address} answered {api.name} with {type(message).__name__}")
        return message

    def call(self, api: Api, version: int, message: ApiMessage, kind: type[M]) -> M:
        """Return the response to a request."""
        return self.receive(self.send(api, version, message), kind)

    def log_in(self, login: Login) -> None:
        """Log in, before anything else; `ends_at` says when to take another connection.

        If that fails, the connection is closed. Raises AuthenticationError if the server refuses
        the login, else as `call`.
        """
        try:
            self._exchange(login)
        except BaseException:
            self.close()
            raise

    def _exchange(self, login: Login) -> None:
        exchange = exchange_of(login, SystemRandom())
        chosen = self.call(
            SASL_HANDSHAKE, 1, SaslHandshakeRequest(login.mechanism), SaslHandshakeResponse
        )
        check_handshake(login.mechanism, chosen)
        token: bytes | None = exchange.first()
        while token is not None:
            request = SaslAuthenticateRequest(token)
            answer = self.call(SASL_AUTHENTICATE, 1, request, SaslAuthenticateResponse)
            check_login(answer)
            token = exchange.step(answer.auth_bytes)
        if answer.session_lifetime_ms > 0:
            session_s = answer.session_lifetime_ms / 1000
            self.ends_at = time.monotonic() + session_s * SESSION_SHARE

    def check(self, code: int, doing: str) -> None:
        """Raise KafkaError for a code other than NONE."""
        check_code(self.address, code, doing)


def check_code(address: str, code: int, doing: str) -> None:
    """Raise KafkaError for a code other than NONE."""
    if code != ErrorCode.NONE:
        names = {each.value: each.name for each in ErrorCode}
        text = f"{address} answers {names.get(code, code)} to {doing}"
        raise KafkaError(code, text, retriable=code in RETRIABLE)
