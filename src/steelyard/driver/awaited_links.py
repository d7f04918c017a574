"""Connections to Kafka listeners for coroutines that ask single questions.

Where a client has a state to keep (a membership, positions) a node decides what to send, and
`driver.links` sends it. Whoever only asks awaits `KafkaRequester.call`: the connections, the
versions that each server speaks, and the time-outs are handled here.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from random import SystemRandom

from steelyard.config import translation
from steelyard.driver.blocking_links import RECEIVE_BYTES, M, failure
from steelyard.errors import (
    CallTimeoutError,
    ConnectError,
    ProtocolError,
    RemotingError,
    SteelyardError,
)
from steelyard.nodes.calls.kafka import SESSION_SHARE, check_handshake, check_login
from steelyard.sasl.login import Login, exchange_of
from steelyard.wire.kafka.frame import RawReply, ReplyDecoder, Request, encode, read_reply
from steelyard.wire.kafka.messages.cluster import (
    API_VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from steelyard.wire.kafka.messages.logins import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from steelyard.wire.kafka.schema import Api, ApiMessage

LINKS_MAX = 1_000
"""Most connections that are kept; one to each server."""


class _Link:
    """One connection. `versions`: the first and last version of each API that the server speaks."""

    def __init__(
        self,
        address: str,
        client_id: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        self.is_open = True
        self.ends_at = math.inf
        """When another connection should take its place, in seconds of `time.monotonic`."""
        self._client_id = client_id
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self._waiting: dict[int, asyncio.Future[RawReply]] = {}
        self._receiving = asyncio.create_task(self._receive())

    @property
    def is_idle(self) -> bool:
        """Return whether nobody waits for a response."""
        return not self._waiting

    def version(self, api: Api, most: int | None) -> int:
        """Return the newest version that both sides speak. Raises ProtocolError without one."""
        first, last = api.versions
        theirs = self.versions.get(api.key)
        if theirs is not None:
            found = min(last, theirs[1], last if most is None else most)
            if found >= max(first, theirs[0]):
                return found
        raise ProtocolError(f"{self.address} does not support {api.name} in a version known here")

    async def call(self, api: Api, version: int, message: ApiMessage, kind: type[M]) -> M:
        """Return the response to a request. Raises RemotingError or ProtocolError."""
        self._correlation_id += 1
        number = self._correlation_id
        request = Request(api, version, number, self._client_id, message)
        future = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._writer.write(encode(request))
            await self._writer.drain()
            found = read_reply(api, version, await future)
        except OSError as error:
            raise failure(self.address, error) from None
        finally:
            self._waiting.pop(number, None)
        if not isinstance(found, kind):
            raise ProtocolError(f"{self.address} answered {api.name} with {type(found).__name__}")
        return found

    async def _receive(self) -> None:
        decoder = ReplyDecoder()
        error: SteelyardError = RemotingError(f"{self.address} closed the connection")
        try:
            while data := await self._reader.read(RECEIVE_BYTES):
                for reply in decoder.feed(data):
                    future = self._waiting.get(reply.correlation_id)
                    if future is not None and not future.done():
                        future.set_result(reply)
        except OSError as cause:
            error = failure(self.address, cause)
        except ProtocolError as cause:
            error = cause
        finally:
            self._end(error)

    def _end(self, error: SteelyardError) -> None:
        self.is_open = False
        self._writer.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    async def close(self) -> None:
        self._receiving.cancel()
        with suppress(asyncio.CancelledError):
            await self._receiving


class KafkaRequester:
    """Asks Kafka listeners by their addresses, `host:port`. Any number of tasks may share one.

    `timeout_ms`: for each call, with the connection that it may need. `tls`: None for plain
    connections. `address_translation`: pairs "ADVERTISED=REACHED", what to connect to in place of
    an address. `login`: at every server, for each connection; a refused one raises
    AuthenticationError.
    """

    def __init__(
        self,
        client_id: str,
        *,
        timeout_ms: int,
        tls: ssl.SSLContext | None = None,
        address_translation: Sequence[str] = (),
        login: Login | None = None,
    ) -> None:
        self._login = login
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._tls = tls
        self._translation = translation(address_translation)
        self._links: dict[str, _Link] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def call(
        self,
        address: str,
        api: Api,
        message: ApiMessage,
        kind: type[M],
        *,
        version_max: int | None = None,
    ) -> M:
        """Return a server's response to a request, in the newest version that both sides speak.

        `version_max`: the newest version in which `message` says what is meant. Raises ConnectError
        if nothing listens there, CallTimeoutError, RemotingError, or ProtocolError if the server
        does not support it.
        """
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                link = await self._link(address)
                return await link.call(api, link.version(api, version_max), message, kind)
        except TimeoutError:
            raise CallTimeoutError(f"no reply from {address} within the time-out") from None

    async def supports(self, address: str, api: Api) -> bool:
        """Return whether a server supports an API. Raises as `call`."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return api.key in (await self._link(address)).versions
        except TimeoutError:
            raise CallTimeoutError(f"no reply from {address} within the time-out") from None

    async def close(self) -> None:
        """Close all connections."""
        links, self._links = self._links, {}
        for link in links.values():
            await link.close()

    async def _link(self, address: str) -> _Link:
        async with self._opening.setdefault(address, asyncio.Lock()):
            link = self._links.get(address)
            if link is not None and link.is_idle and time.monotonic() >= link.ends_at:
                await link.close()
            if link is None or not link.is_open:
                link = await self._opened(address)
                self._links[address] = link
                for old in list(self._links)[: len(self._links) - LINKS_MAX]:
                    await self._links.pop(old).close()
                    self._opening.pop(old, None)
            return link

    async def _opened(self, address: str) -> _Link:
        name = address.rpartition(":")[0].strip("[]")
        host, _, port = self._translation.get(address, address).rpartition(":")
        try:
            reader, writer = await asyncio.open_connection(
                host.strip("[]"),
                int(port),
                ssl=self._tls,
                server_hostname=None if self._tls is None else name,
            )
        except OSError as error:
            raise ConnectError(f"cannot connect to {address}: {error.strerror or error}") from None
        link = _Link(address, self._client_id, reader, writer)
        try:
            # In the first version: every server knows it.
            answer = await link.call(API_VERSIONS, 0, ApiVersionsRequest(), ApiVersionsResponse)
            link.versions = {
                one.api_key: (one.min_version, one.max_version) for one in answer.api_keys
            }
            if self._login is not None:
                await _log_in(link, self._login)
        except BaseException:
            await link.close()
            raise
        return link


async def _log_in(link: _Link, login: Login) -> None:
    """Log in on a new connection, which is replaced when its session is about to end."""
    exchange = exchange_of(login, SystemRandom())
    chosen = await link.call(
        SASL_HANDSHAKE, 1, SaslHandshakeRequest(login.mechanism), SaslHandshakeResponse
    )
    check_handshake(login.mechanism, chosen)
    token: bytes | None = exchange.first()
    version = link.version(SASL_AUTHENTICATE, None)
    while token is not None:
        answer = await link.call(
            SASL_AUTHENTICATE, version, SaslAuthenticateRequest(token), SaslAuthenticateResponse
        )
        check_login(answer)
        token = exchange.step(answer.auth_bytes)
    if answer.session_lifetime_ms > 0:
        link.ends_at = time.monotonic() + answer.session_lifetime_ms / 1000 * SESSION_SHARE
