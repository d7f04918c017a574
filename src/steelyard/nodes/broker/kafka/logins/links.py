"""17 SaslHandshake (versions 0-1) and 36 SaslAuthenticate (0-2): who is at the far end of a link.

At a listener with SASL every link has to log in first (`admits`): until then only ApiVersions and
these two requests are served, and any other closes it. Its states:

| state | what comes | what follows |
|---|---|---|
| NEW | SaslHandshake | PROVING; FAILED for a mechanism that is not enabled |
| PROVING | SaslAuthenticate, or a bare token after version 0 of the handshake | OPEN or FAILED |
| OPEN | any request | served; FAILED if its session has ended |
| OPEN | SaslHandshake, if its session will end (KIP-368) | PROVING: the same user logs in again |
| FAILED | anything | ignored: the answer is under way, then the link is closed |

Whatever is not in the table is answered ILLEGAL_SASL_STATE, or closes the link. A refusal is
answered late (`penalties`), logged without secrets, and counted. A link that does not log in within
LOGIN_TIMEOUT_MS is closed. A session ends `connections_max_reauth_ms` after a login, or with the
token that was shown; the client is told, and its next request after that closes the link unless
it logs in again. At a listener without SASL both requests are answered ILLEGAL_SASL_STATE.
Source: clients/common/security/authenticator/SaslServerAuthenticator.java,
clients/common/network/KafkaChannel.java, core/kafka/server/KafkaApis.scala.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from enum import StrEnum

import msgspec

from steelyard.config import KafkaConfig
from steelyard.machine import Machine
from steelyard.nodes.broker.kafka.logins.mechanisms import Mechanisms
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.requests import Peer
from steelyard.nodes.penalties import Penalties
from steelyard.nodes.seam import Admit, Effect, Hang, Link, Send
from steelyard.printable import printable
from steelyard.sasl.outcomes import Accepted, Challenge, Denied, ServerExchange, Step
from steelyard.types import LogLine
from steelyard.wire.kafka.apis import API_VERSIONS_KEY
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import Request, SaslToken
from steelyard.wire.kafka.messages.logins import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

LOGIN_TIMEOUT_MS = 60_000
"""Time for a new link to log in."""
REAUTHENTICATION_PAUSE_MS = 1_000
"""Shortest time between two logins of a link. Source: KafkaChannel."""
NAME_CHARACTERS = 100
"""Of a name that was given, in the log."""
STRANGER_MS = 60_000
"""Shortest time between two log lines about clients of an address that do not log in."""

ANONYMOUS = "User:ANONYMOUS"


class LoginState(StrEnum):
    """The state of a link; see the module docstring."""

    NEW = "new"
    PROVING = "proving"
    OPEN = "open"
    FAILED = "failed"


class LoginEvent(StrEnum):
    """What changes the state of a link."""

    CONNECTED = "connected"
    CHOSEN = "a mechanism was chosen"
    CHALLENGED = "a token that is not the last one"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    EXPIRED = "the session has ended"


_S, _E = LoginState, LoginEvent

LOGINS: Machine[LoginState, LoginEvent] = Machine(
    "A Kafka client's link at a listener with SASL",
    {
        None: {_E.CONNECTED: (_S.NEW,)},
        _S.NEW: {_E.CHOSEN: (_S.PROVING,), _E.REFUSED: (_S.FAILED,)},
        _S.PROVING: {
            _E.CHALLENGED: (_S.PROVING,),
            _E.ACCEPTED: (_S.OPEN,),
            _E.REFUSED: (_S.FAILED,),
        },
        _S.OPEN: {_E.CHOSEN: (_S.PROVING,), _E.EXPIRED: (_S.FAILED,)},
        _S.FAILED: {},
    },
)


class _Login(msgspec.Struct):
    """The login of one link."""

    peer: Peer
    since: int
    state: LoginState
    mechanism: str = ""
    exchange: ServerExchange | None = None
    has_headers: bool = True
    """Whether tokens come as SaslAuthenticate requests."""
    user: str = ""
    """Who has logged in, also while it does so again."""
    logged_in_at: int = 0
    expires_at: int | None = None

    @property
    def ip(self) -> str:
        return self.peer.address.rpartition(":")[0]

    @property
    def doing(self) -> str:
        """What fails if this fails, in Kafka's words."""
        return "re-authentication" if self.user else "authentication"


Refusing = Callable[[list[Effect]], None]
"""Sends the answer to a login that failed."""


class LinkLogins:
    """The logins of all links. `mechanisms`: None at a listener without SASL.

    `counts`: of logins, by mechanism and outcome, `accepted` or `refused`.
    """

    def __init__(
        self,
        config: KafkaConfig,
        mechanisms: Mechanisms | None,
        counts: dict[tuple[str, str], int],
    ) -> None:
        self._mechanisms = mechanisms
        self._max_reauth_ms = config.connections_max_reauth_ms
        self._penalties = Penalties(config.connection_failed_authentication_delay_ms)
        self._counts = counts
        self._logins: dict[Link, _Login] = {}
        self._unfinished: dict[Link, int] = {}
        """New links, oldest first, and until when each has to log in."""
        self._late: list[tuple[int, int, Link, str, Refusing]] = []
        """Refusals to be sent later: when, a serial number, the link, its address, the answer."""
        self._serial = 0
        self._strangers: dict[str, int] = {}

    # -- links -----------------------------------------------------------------------------------

    def opened(self, peer: Peer, now: int) -> None:
        state = LOGINS.move(None, LoginEvent.CONNECTED)
        self._logins[peer.link] = _Login(peer, now, state)
        self._unfinished[peer.link] = now + LOGIN_TIMEOUT_MS

    def closed(self, link: Link) -> None:
        self._logins.pop(link, None)
        self._unfinished.pop(link, None)

    def principal(self, link: Link) -> str:
        """Return who has logged in on a link, as Kafka writes it: `User:alice`."""
        login = self._logins.get(link)
        return f"User:{login.user}" if login is not None and login.user else ANONYMOUS

    def principal_of(self, peer: Peer) -> str:
        """Return who a client is: its login, otherwise the owner of its certificate."""
        found = self.principal(peer.link)
        return f"User:{peer.owner}" if found == ANONYMOUS and peer.owner else found

    def admits(
        self, link: Link, message: Request | SaslToken, now: int, effects: list[Effect]
    ) -> bool:
        """Return whether a message may be served now; otherwise it was dealt with."""
        login = self._logins.get(link)
        if login is None or login.state is LoginState.FAILED:
            return False
        if isinstance(message, SaslToken):
            self._bare(login, message.data, now, effects)
            return False
        key = message.api.key
        if login.state is LoginState.OPEN:
            ends_at = login.expires_at
            if ends_at is None or now < ends_at or key == SASL_HANDSHAKE.key:
                return True
            login.state = LOGINS.move(login.state, LoginEvent.EXPIRED)
            effects.append(Hang(link, "its session has ended, and it did not log in again"))
            return False
        if key in (SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key):
            return True
        if key == API_VERSIONS_KEY and login.state is LoginState.NEW:
            return True
        self._break(login, f"{message.api.name} without a login", now, effects)
        return False

    def _break(self, login: _Login, reason: str, now: int, effects: list[Effect]) -> None:
        """Close the link of a client that does not do what its state allows."""
        login.state = LOGINS.move(
            login.state,
            LoginEvent.EXPIRED if login.state is LoginState.OPEN else LoginEvent.REFUSED,
        )
        login.exchange = None
        self._unfinished.pop(login.peer.link, None)
        ip = login.ip
        if now - self._strangers.get(ip, now - STRANGER_MS) >= STRANGER_MS:
            if len(self._strangers) >= 1_000:
                self._strangers.clear()
            self._strangers[ip] = now
            text = (
                f"{login.peer.address} was closed: {reason}; this port asks for a login: clients"
                " set security.protocol to SASL_PLAINTEXT or SASL_SSL, and sasl.mechanism"
            )
            effects.append(LogLine("WARNING", text))
        effects.append(Hang(login.peer.link, reason))

    # -- requests --------------------------------------------------------------------------------

    @serves(SaslHandshakeRequest)
    def handshake(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        login = self._logins.get(call.peer.link)
        mechanisms = self._mechanisms
        if login is None or mechanisms is None or not self._may_choose(login, now):
            if login is not None and login.state is LoginState.PROVING:
                call.answer(SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE), effects)
                self._break(login, "SaslHandshake during a login", now, effects)
                return None
            return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
        chosen = call.read(SaslHandshakeRequest).mechanism
        if chosen not in mechanisms.enabled:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            answer = SaslHandshakeResponse(code, mechanisms.enabled)
            denied = Denied("the mechanism is not enabled")
            if login.state is LoginState.OPEN:
                login.state = LOGINS.move(login.state, LoginEvent.CHOSEN)
            login.mechanism = login.mechanism or printable(chosen)[:NAME_CHARACTERS]
            self._refuse(login, denied, lambda more: call.answer(answer, more), now, effects)
            return None
        login.state = LOGINS.move(login.state, LoginEvent.CHOSEN)
        login.has_headers = call.version > 0
        if login.user and login.mechanism != chosen:
            told = (
                f"SASL mechanism '{chosen}' requested by client is not supported for"
                f" re-authentication of mechanism '{login.mechanism}'"
            )
            login.exchange = _Refusal(Denied("another mechanism than before", told, login.user))
        else:
            login.mechanism = chosen
            login.exchange = mechanisms.begin(chosen)
        return SaslHandshakeResponse(ErrorCode.NONE, mechanisms.enabled)

    @staticmethod
    def _may_choose(login: _Login, now: int) -> bool:
        """Return whether a link may begin a login: a new one, or one whose session will end."""
        if login.state is LoginState.OPEN:
            pause = now - login.logged_in_at
            return login.expires_at is not None and pause >= REAUTHENTICATION_PAUSE_MS
        return login.state is LoginState.NEW

    @serves(SaslAuthenticateRequest)
    def authenticate(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        login = self._logins.get(call.peer.link)
        if login is None or login.state is LoginState.OPEN:
            text = "SaslAuthenticate request received after successful authentication"
            return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, text)
        if login.state is not LoginState.PROVING or not login.has_headers:
            self._break(login, "SaslAuthenticate without SaslHandshake", now, effects)
            return None
        outcome = self._step(login, call.read(SaslAuthenticateRequest).auth_bytes, now)
        if isinstance(outcome, Denied):
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            answer = SaslAuthenticateResponse(code, outcome.told or _unsaid(login))
            self._refuse(login, outcome, lambda more: call.answer(answer, more), now, effects)
            return None
        if isinstance(outcome, Challenge):
            login.state = LOGINS.move(login.state, LoginEvent.CHALLENGED)
            return SaslAuthenticateResponse(ErrorCode.NONE, None, outcome.token)
        lifetime_ms = self._accept(login, outcome, now, effects)
        return SaslAuthenticateResponse(ErrorCode.NONE, None, outcome.token, lifetime_ms)

    def _bare(self, login: _Login, token: bytes, now: int, effects: list[Effect]) -> None:
        """Take a token that comes in a frame of its own, after version 0 of the handshake."""
        if login.state is not LoginState.PROVING or login.has_headers:
            self._break(login, "a bare token", now, effects)
            return
        outcome = self._step(login, token, now)
        if isinstance(outcome, Denied):
            self._refuse(login, outcome, lambda more: None, now, effects)
            return
        if isinstance(outcome, Challenge):
            login.state = LOGINS.move(login.state, LoginEvent.CHALLENGED)
        else:
            self._accept(login, outcome, now, effects)
        effects.append(Send(login.peer.link, SaslToken(outcome.token)))

    # -- outcomes --------------------------------------------------------------------------------

    def _step(self, login: _Login, token: bytes, now: int) -> Step:
        exchange = login.exchange
        assert exchange is not None
        if not self._penalties.may_try(login.ip):
            return Denied("too many failed logins of its address wait for their answers")
        outcome = exchange.step(token, now)
        if isinstance(outcome, Accepted) and login.user not in ("", outcome.user):
            told = (
                "Cannot change principals during re-authentication from"
                f" User.{login.user}: User.{outcome.user}"
            )
            return Denied("another user than before", told, outcome.user)
        return outcome

    def _accept(self, login: _Login, outcome: Accepted, now: int, effects: list[Effect]) -> int:
        """Open the link; return how long its session lasts, in ms, 0 for no end."""
        login.state = LOGINS.move(login.state, LoginEvent.ACCEPTED)
        self._unfinished.pop(login.peer.link, None)
        if not login.user:
            effects.append(Admit(login.peer.link))
        login.user = outcome.user
        login.exchange = None
        login.logged_in_at = now
        self._count(login.mechanism, "accepted")
        ends = [now + self._max_reauth_ms] if self._max_reauth_ms else []
        if outcome.expires_at is not None:
            ends.append(max(now, outcome.expires_at))
        login.expires_at = min(ends, default=None)
        return 0 if login.expires_at is None else login.expires_at - now

    def _refuse(
        self, login: _Login, denied: Denied, answer: Refusing, now: int, effects: list[Effect]
    ) -> None:
        """Log a failed login, and have its answer sent later."""
        mechanism, link = login.mechanism, login.peer.link
        login.state = LOGINS.move(login.state, LoginEvent.REFUSED)
        login.exchange = None
        self._unfinished.pop(link, None)
        self._count(mechanism if self._is_enabled(mechanism) else "other", "refused")
        name = f" as {printable(denied.user)[:NAME_CHARACTERS]!r}" if denied.user else ""
        text = f"{login.peer.address} failed to log in{name} with {mechanism}: {denied.reason}"
        effects.append(LogLine("WARNING", text))
        if not self._penalties.may_try(login.ip):
            effects.append(Hang(link, "too many failed logins"))
            return
        self._serial += 1
        late = self._penalties.failed(login.ip, now)
        heapq.heappush(self._late, (late, self._serial, link, login.ip, answer))

    def _is_enabled(self, mechanism: str) -> bool:
        return self._mechanisms is not None and mechanism in self._mechanisms.enabled

    def _count(self, mechanism: str, outcome: str) -> None:
        self._counts[mechanism, outcome] = self._counts.get((mechanism, outcome), 0) + 1

    # -- time ------------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        late = self._late[0][0] if self._late else None
        waits = next(iter(self._unfinished.values()), None)
        if late is None or waits is None:
            return waits if late is None else late
        return min(late, waits)

    def due(self, now: int, effects: list[Effect]) -> None:
        """Send the refusals that are due, and close links that do not log in."""
        while self._late and self._late[0][0] <= now:
            _, _, link, ip, answer = heapq.heappop(self._late)
            self._penalties.answered(ip)
            if link in self._logins:
                answer(effects)
                effects.append(Hang(link, "the login failed"))
        for link, until in list(self._unfinished.items()):
            if until > now:
                break
            del self._unfinished[link]
            login = self._logins[link]
            login.state = LOGINS.move(login.state, LoginEvent.REFUSED)
            login.exchange = None
            effects.append(Hang(link, f"no login within {LOGIN_TIMEOUT_MS // 1000} s"))

    def check(self) -> None:
        for link in self._unfinished:
            assert self._logins[link].state in (LoginState.NEW, LoginState.PROVING)
        for login in self._logins.values():
            assert (login.exchange is not None) == (login.state is LoginState.PROVING)
            assert login.user or login.state is not LoginState.OPEN


class _Refusal:
    """An exchange that refuses whatever comes."""

    def __init__(self, denied: Denied) -> None:
        self._denied = denied

    def step(self, token: bytes, now: int) -> Step:
        return self._denied


def _unsaid(login: _Login) -> str:
    """Return Kafka's text for credentials that are wrong, which says no more."""
    return (
        f"Authentication failed during {login.doing} due to invalid credentials with SASL mechanism"
        f" {login.mechanism}"
    )
