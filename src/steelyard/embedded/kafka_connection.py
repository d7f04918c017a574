"""A blocking connection to a broker's Kafka listener, for single requests."""

from __future__ import annotations

from typing import Self

from steelyard.driver.blocking_links import KafkaLink, M, connect
from steelyard.embedded.administrator import OperatorAccess
from steelyard.wire.kafka.schema import Api, ApiMessage

TIMEOUT_MS = 30_000
CLIENT_ID = "steelyard-server"


class KafkaConnection:
    """A connection to `address`, host:port, for requests in the newest version that we know.

    A context manager. Raises ConnectError if nothing listens there, AuthenticationError if the
    login of `access` is refused.
    """

    def __init__(self, address: str, access: OperatorAccess) -> None:
        made = connect(address, TIMEOUT_MS)
        if access.kafka_tls is not None:
            made = access.kafka_tls.wrap_socket(made)
        self._link = KafkaLink(address, made, CLIENT_ID)
        if access.login is not None:
            self._link.log_in(access.login)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def send(self, api: Api, message: ApiMessage) -> None:
        """Send a request without waiting for the response. Raises RemotingError."""
        self._link.send(api, api.versions[1], message)

    def call(self, api: Api, message: ApiMessage, kind: type[M]) -> M:
        """Return the response to a request. Raises RemotingError or ProtocolError."""
        return self._link.call(api, api.versions[1], message, kind)

    def check(self, code: int, doing: str) -> None:
        """Raise KafkaError for a code other than NONE."""
        self._link.check(code, doing)
