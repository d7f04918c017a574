"""Requests in flight to Kafka brokers: links, versions, matching of responses, time-outs.

A broker answers the requests of a connection in order, and a waiting request (a JoinGroup, a Fetch)
blocks those behind it. There can therefore be several connections to one address, each a `Lane`;
the group's requests have their own, as in Apache's client. Every connection begins with
ApiVersions: each request is sent in the highest version that both sides support (KIP-511: a broker
that does not support ours answers in version 0, with the versions that it supports).

With a `Login`, SaslHandshake and SaslAuthenticate follow before the first request, and again before
the session that the broker grants ends (KIP-368): requests wait meanwhile. A refused login fails
the requests that wait for the connection with AuthenticationError.

A request that times out closes its connection, because nothing behind it would be answered either
(NetworkClient.handleTimedOutRequests). The number of requests is bounded by their senders, which
have few each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

import msgspec

from steelyard.errors import (
    AuthenticationError,
    CallTimeoutError,
    ConnectError,
    KafkaError,
    ProtocolError,
    RemotingError,
    SteelyardError,
)
from steelyard.nodes.seam import (
    KAFKA,
    Address,
    Closed,
    Dial,
    Effect,
    Hang,
    Link,
    Opened,
    Refused,
    Send,
)
from steelyard.printable import printable
from steelyard.sasl.login import Login, exchange_of
from steelyard.sasl.outcomes import ClientExchange
from steelyard.types import Random
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import RawReply, Request, read_reply
from steelyard.wire.kafka.messages.cluster import (
    API_VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from steelyard.wire.kafka.messages.data import FETCH
from steelyard.wire.kafka.messages.logins import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from steelyard.wire.kafka.messages.offsets import OFFSET_COMMIT, OFFSET_FETCH
from steelyard.wire.kafka.schema import Api, ApiMessage

P = TypeVar("P")

VERSIONS_MAX: Mapping[int, int] = {FETCH.key: 12, OFFSET_COMMIT.key: 9, OFFSET_FETCH.key: 9}
"""Above these versions, requests name topics by id."""

SOFTWARE_NAME = "steelyard"

SESSION_SHARE = 0.85
"""Part of a session after which a client logs in again (ExpiringCredential: 85 to 95 %)."""


class Lane(NamedTuple):
    """One of the connections to an address."""

    address: Address
    use: str


class Outcome(msgspec.Struct, Generic[P], frozen=True):
    """The outcome of a request: `reply` is the response, or an error if there is none."""

    purpose: P
    lane: Lane
    reply: ApiMessage | SteelyardError


class _Pending(msgspec.Struct, Generic[P]):
    purpose: P | None
    """None: a request that begins a connection: ApiVersions, or one of a login."""
    api: Api
    message: ApiMessage
    deadline: int
    version: int = 0
    correlation_id: int = 0


class _Line(Generic[P]):
    """The state of one lane."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self.versions: dict[int, tuple[int, int]] | None = None
        """Once they are known."""
        self.is_ready = False
        """Whether requests may be sent: not before, and not during a login."""
        self.exchange: ClientExchange | None = None
        self.login_at: int | None = None
        """When to log in again."""
        self.waiting: deque[_Pending[P]] = deque()
        self.in_flight: deque[_Pending[P]] = deque()


class KafkaCalls(Generic[P]):
    """Requests in flight, see the module.

    Each has a purpose, plain data of the caller, which is returned.
    """

    def __init__(
        self,
        client_id: str,
        software_version: str,
        handshake_timeout_ms: int,
        *,
        login: Login | None = None,
        random: Random | None = None,
    ) -> None:
        """`random`: for a login, not predictable."""
        assert login is None or random is not None
        self._login = login
        self._random = random
        self._client_id = client_id
        self._software_version = software_version
        self._handshake_timeout_ms = handshake_timeout_ms
        self._correlation_id = 0
        self._lines: dict[Lane, _Line[P]] = {}
        self._lanes: dict[Link, Lane] = {}
        self._dialing: dict[Address, deque[Lane]] = {}
        """Lanes waiting for their link; the first one is being dialed."""

    @property
    def due(self) -> int | None:
        """Return when to call `expire`."""
        if not self._lines:
            return None
        deadlines = [
            pending.deadline
            for line in self._lines.values()
            for pending in (*line.in_flight, *line.waiting)
        ]
        deadlines += [line.login_at for line in self._lines.values() if line.login_at is not None]
        return min(deadlines, default=None)

    # -- asking ------------------------------------------------------------------------------------

    def call(
        self,
        lane: Lane,
        api: Api,
        message: ApiMessage,
        purpose: P,
        now: int,
        timeout_ms: int,
        effects: list[Effect],
    ) -> None:
        """Send a request; one of the methods below returns its `Outcome` later."""
        pending: _Pending[P] = _Pending(purpose, api, message, now + timeout_ms)
        line = self._lines.setdefault(lane, _Line())
        line.waiting.append(pending)
        if line.link is not None:
            return  # the pump sends it
        lanes = self._dialing.get(lane.address)
        if lanes is None:
            self._dialing[lane.address] = deque([lane])
            effects.append(Dial(lane.address, KAFKA))
        elif lane not in lanes:
            lanes.append(lane)

    def pump(self, effects: list[Effect]) -> list[Outcome[P]]:
        """Send what waits on links that are ready.

        Fail requests that their brokers do not support.
        """
        outcomes: list[Outcome[P]] = []
        for lane, line in self._lines.items():
            while line.waiting and line.is_ready and line.link is not None:
                assert line.versions is not None
                pending = line.waiting.popleft()
                version = _version(pending.api, line.versions)
                if version is None:
                    text = (
                        f"{lane.address} has no version of {pending.api.name} that this client"
                        " supports"
                    )
                    error = KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
                    assert pending.purpose is not None
                    outcomes.append(Outcome(pending.purpose, lane, error))
                    continue
                pending.version = version
                self._send(line, pending, effects)
        return outcomes

    def _send(self, line: _Line[P], pending: _Pending[P], effects: list[Effect]) -> None:
        assert line.link is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        pending.correlation_id = self._correlation_id
        line.in_flight.append(pending)
        request = Request(
            pending.api,
            pending.version,
            pending.correlation_id,
            self._client_id,
            pending.message,
        )
        effects.append(Send(line.link, request))

    def _shake_hands(self, line: _Line[P], version: int, now: int, effects: list[Effect]) -> None:
        message = ApiVersionsRequest(SOFTWARE_NAME, self._software_version)
        deadline = now + self._handshake_timeout_ms
        self._send(line, _Pending(None, API_VERSIONS, message, deadline, version), effects)

    # -- what the driver tells ---------------------------------------------------------------------

    def opened(self, event: Opened, now: int, effects: list[Effect]) -> None:
        """Take a dialed link."""
        lane = self._dialed(event.address, effects)
        line = self._lines[lane]
        line.link = event.link
        self._lanes[event.link] = lane
        self._shake_hands(line, API_VERSIONS.versions[1], now, effects)

    def refused(self, event: Refused, effects: list[Effect]) -> list[Outcome[P]]:
        """Fail all requests that waited for the link: nothing listens at the address."""
        lane = self._dialed(event.address, effects)
        error = ConnectError(f"cannot connect to {event.address}: {event.reason}")
        return self._drop(lane, error)

    def _dialed(self, address: Address, effects: list[Effect]) -> Lane:
        lanes = self._dialing[address]
        lane = lanes.popleft()
        if lanes:
            effects.append(Dial(address, KAFKA))
        else:
            del self._dialing[address]
        return lane

    def closed(self, event: Closed) -> list[Outcome[P]]:
        """Fail all requests in flight on a closed link."""
        lane = self._lanes.get(event.link)
        if lane is None:
            return []
        error = RemotingError(f"connection to {lane.address} closed: {event.reason}")
        return self._drop(lane, error)

    def received(
        self, link: Link, reply: RawReply, now: int, effects: list[Effect]
    ) -> list[Outcome[P]]:
        """Match a response."""
        lane = self._lanes.get(link)
        if lane is None:
            return []  # the link was closed by us
        line = self._lines[lane]
        pending = line.in_flight.popleft() if line.in_flight else None
        try:
            if pending is None or pending.correlation_id != reply.correlation_id:
                raise ProtocolError(f"response {reply.correlation_id} matches no request")
            if pending.purpose is None:
                if pending.api is API_VERSIONS:
                    self._agree(line, pending, reply, now, effects)
                else:
                    self._log_in(line, pending, reply, now, effects)
                return []
            message = read_reply(pending.api, pending.version, reply)
        except (ProtocolError, AuthenticationError) as error:
            if pending is not None:
                line.in_flight.appendleft(pending)
            return self._hang_up(lane, error, effects)
        return [Outcome(pending.purpose, lane, message)]

    def _agree(
        self, line: _Line[P], pending: _Pending[P], reply: RawReply, now: int, effects: list[Effect]
    ) -> None:
        """Take the versions that the broker supports. Raises ProtocolError."""
        unsupported = int.from_bytes(reply.data[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION
        message = read_reply(API_VERSIONS, 0 if unsupported else pending.version, reply)
        assert isinstance(message, ApiVersionsResponse)
        theirs = {key.api_key: (key.min_version, key.max_version) for key in message.api_keys}
        if unsupported and pending.version > 0:
            self._shake_hands(line, _version(API_VERSIONS, theirs) or 0, now, effects)
        elif message.error_code:
            raise ProtocolError(f"ApiVersions was answered with error {message.error_code}")
        else:
            line.versions = theirs
            self._begin_login(line, now, effects)

    # -- logins ------------------------------------------------------------------------------------

    def _begin_login(self, line: _Line[P], now: int, effects: list[Effect]) -> None:
        """Log in, if there is a login; then requests may be sent. Raises AuthenticationError."""
        line.login_at = None
        if self._login is None:
            line.is_ready = True
            return
        assert self._random is not None
        line.is_ready = False
        line.exchange = exchange_of(self._login, self._random)
        self._ask(line, SASL_HANDSHAKE, SaslHandshakeRequest(self._login.mechanism), now, effects)

    def _ask(
        self, line: _Line[P], api: Api, message: ApiMessage, now: int, effects: list[Effect]
    ) -> None:
        """Send a request of a login. Raises AuthenticationError if the broker has no logins."""
        version = _version(api, line.versions or {})
        if not version and api is SASL_HANDSHAKE:  # version 0 is followed by bare tokens
            raise AuthenticationError("the broker does not support logins by SaslAuthenticate")
        deadline = now + self._handshake_timeout_ms
        self._send(line, _Pending(None, api, message, deadline, version or 0), effects)

    def _log_in(
        self, line: _Line[P], pending: _Pending[P], reply: RawReply, now: int, effects: list[Effect]
    ) -> None:
        """Take the answer to a request of a login. Raises ProtocolError or AuthenticationError."""
        assert self._login is not None
        exchange = line.exchange
        assert exchange is not None
        answer = read_reply(pending.api, pending.version, reply)
        if isinstance(answer, SaslHandshakeResponse):
            check_handshake(self._login.mechanism, answer)
            token = exchange.first()
        else:
            assert isinstance(answer, SaslAuthenticateResponse)
            check_login(answer)
            following = exchange.step(answer.auth_bytes)
            if following is None:
                line.exchange = None
                line.is_ready = True
                if answer.session_lifetime_ms > 0:
                    line.login_at = now + round(answer.session_lifetime_ms * SESSION_SHARE)
                return
            token = following
        self._ask(line, SASL_AUTHENTICATE, SaslAuthenticateRequest(token), now, effects)

    def expire(self, now: int, effects: list[Effect]) -> list[Outcome[P]]:
        """Fail requests past their deadline; to be called at `due`."""
        outcomes: list[Outcome[P]] = []
        for lane, line in list(self._lines.items()):
            if any(pending.deadline <= now for pending in line.in_flight):
                error = CallTimeoutError(f"no reply from {lane.address} within the time-out")
                outcomes += self._hang_up(lane, error, effects)
                continue
            if line.login_at is not None and line.login_at <= now:
                try:
                    self._begin_login(line, now, effects)
                except AuthenticationError as refused:
                    outcomes += self._hang_up(lane, refused, effects)
                    continue
            late = [pending for pending in line.waiting if pending.deadline <= now]
            for pending in late:
                line.waiting.remove(pending)
                error = CallTimeoutError(f"no connection to {lane.address} within the time-out")
                assert pending.purpose is not None
                outcomes.append(Outcome(pending.purpose, lane, error))
        return outcomes

    # -- links -------------------------------------------------------------------------------------

    def is_dialing(self, address: Address) -> bool:
        """Return whether a `Dial` to it is pending: its `Opened` or `Refused` is then ours."""
        return address in self._dialing

    def is_idle(self, lane: Lane) -> bool:
        """Return whether no request is in flight on that lane."""
        line = self._lines.get(lane)
        return line is None or not (line.waiting or line.in_flight)

    def hang_up_all(self, effects: list[Effect]) -> None:
        """Close every link; no outcomes follow."""
        effects += [Hang(link, "the consumer closes") for link in self._lanes]
        self._lanes.clear()
        self._lines.clear()

    def _hang_up(
        self, lane: Lane, error: SteelyardError, effects: list[Effect]
    ) -> list[Outcome[P]]:
        link = self._lines[lane].link
        assert link is not None
        effects.append(Hang(link, str(error)))
        return self._drop(lane, error)

    def _drop(self, lane: Lane, error: SteelyardError) -> list[Outcome[P]]:
        """Fail all requests of a lane that has lost its link."""
        line = self._lines.pop(lane)
        if line.link is not None:
            del self._lanes[line.link]
        return [
            Outcome(pending.purpose, lane, error)
            for pending in (*line.in_flight, *line.waiting)
            if pending.purpose is not None
        ]

    def check(self) -> None:
        """Assert that links are known both ways, and only lanes without one wait to be dialed."""
        for link, lane in self._lanes.items():
            assert self._lines[lane].link == link
        for lanes in self._dialing.values():
            assert lanes
        for lane, line in self._lines.items():
            if line.link is None:
                assert lane in self._dialing[lane.address]
                assert not line.in_flight


def check_handshake(mechanism: str, answer: SaslHandshakeResponse) -> None:
    """Raise AuthenticationError if the broker does not take this mechanism."""
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        known = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationError(
            f"the broker does not accept {mechanism}; its mechanisms are: {known}"
        )
    if answer.error_code:
        raise AuthenticationError(
            f"the broker does not ask for a login here (Kafka error {answer.error_code}); leave"
            " out sasl_mechanism, or use its port for logins"
        )


def check_login(answer: SaslAuthenticateResponse) -> None:
    """Raise AuthenticationError if the broker refuses the login."""
    if answer.error_code:
        text = answer.error_message or f"Kafka error {answer.error_code}"
        raise AuthenticationError(f"the broker refused the login: {printable(text)}")


def _version(api: Api, theirs: Mapping[int, tuple[int, int]]) -> int | None:
    """Return the highest version that both sides support, or None."""
    first, last = theirs.get(api.key, (0, -1))
    highest = min(last, api.versions[1], VERSIONS_MAX.get(api.key, api.versions[1]))
    return highest if highest >= max(first, api.versions[0]) else None
