"""Logins at the Kafka listener: what is served before them, their states, refusals, sessions."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.edges import assert_every_edge
from tests.examples import examples
from tests.nodes.broker.driver import START
from tests.nodes.broker.kafka.conftest import KafkaRig

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.errors import ProtocolError
from steelyard.nodes.broker.kafka.logins.links import LOGIN_TIMEOUT_MS, LOGINS
from steelyard.nodes.broker.requests import Peer
from steelyard.nodes.broker.users import User
from steelyard.nodes.penalties import DELAYED_MAX
from steelyard.nodes.seam import KAFKA, Admit, Closed, Effect, Hang, Opened, Received
from steelyard.sasl.credentials import SCRAM_MECHANISMS, credential_of
from steelyard.sasl.login import exchange_of, login_of
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import (
    LOGIN_BYTES_MAX,
    LoginDecoder,
    Request,
    SaslToken,
    encode,
)
from steelyard.wire.kafka.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from steelyard.wire.kafka.messages.logins import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from steelyard.wire.kafka.schema import Api

ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PASSWORD = "a secret, which is nowhere in the log"
HANDSHAKE_1 = SaslHandshakeRequest("PLAIN")
RIGHT = SaslAuthenticateRequest(b"\0alice\0" + PASSWORD.encode())
WRONG = SaslAuthenticateRequest(b"\0alice\0wrong")


def stored(name: str, password: str) -> User:
    scram = {
        mechanism.name: credential_of(
            mechanism, mechanism.salted(password, b"salt", 4096), b"salt", 4096
        )
        for mechanism in SCRAM_MECHANISMS.values()
    }
    return User(name, 0, scram)


ALICE = stored("alice", PASSWORD)
BOB = stored("bob", PASSWORD)


class LoginRig(KafkaRig):
    """A broker at which clients log in; it knows alice and bob."""

    def __init__(self, **kafka: Any) -> None:
        self.admitted: list[int] = []
        self.tokens: list[bytes] = []
        kafka.setdefault("sasl_enabled_mechanisms", ALL)
        config = KafkaConfig(sasl_oauthbearer_unsecured=True, **kafka)
        super().__init__(BrokerConfig(kafka=config))
        assert self.node._kafka is not None
        self.node._parts.users.merge([ALICE, BOB])
        self.logins = self.node._kafka.logins

    def _make_other_true(self, effect: Effect) -> None:
        assert isinstance(effect, Admit)
        self.admitted.append(effect.link)

    def _carry(self, link: int, message: object) -> None:
        if isinstance(message, SaslToken):
            self.tokens.append(message.data)
        else:
            super()._carry(link, message)

    def authenticate(self, token: bytes, link: int | None = None) -> SaslAuthenticateResponse:
        """Send a token; wait for the answer, which is late if it is a refusal."""
        number = self.post(SaslAuthenticateRequest(token), 2, link=link)
        for _ in range(2):
            answer = self.answer_to(number, SaslAuthenticateResponse)
            if answer is not None:
                return answer
            self.advance(6_000)
        raise AssertionError("no answer")

    def log_in(
        self, mechanism: str, user: str = "alice", password: str = PASSWORD, link: int | None = None
    ) -> SaslAuthenticateResponse:
        """Log in as a client does; the last answer."""
        handshake = self.ask(SaslHandshakeRequest(mechanism), 1, SaslHandshakeResponse, link=link)
        assert handshake == SaslHandshakeResponse(ErrorCode.NONE, ALL)
        token = None
        if mechanism == "OAUTHBEARER":
            token = unsecured(user, self.now + 60_000)
            login = login_of(mechanism, token=lambda: str(token))
        else:
            login = login_of(mechanism, user, password)
        exchange = exchange_of(login, random.Random(1))
        given: bytes | None = exchange.first()
        while given is not None:
            answer = self.authenticate(given, link)
            if answer.error_code:
                return answer
            given = exchange.step(answer.auth_bytes)
        return answer

    def serves(self, link: int) -> bool:
        """Whether a request is answered."""
        if link in self.hung:
            return False
        number = self.post(MetadataRequest(None), 9, link=link)
        return self.answer_to(number, MetadataResponse) is not None

    @property
    def log_text(self) -> str:
        return "\n".join(line.text for line in self.told)


def unsecured(user: str, expires_at: int) -> str:
    parts = [
        base64.urlsafe_b64encode(msgspec.json.encode(part)).decode().rstrip("=")
        for part in ({"alg": "none"}, {"sub": user, "exp": expires_at / 1000})
    ]
    return ".".join([*parts, ""])


@pytest.fixture
def rig() -> LoginRig:
    found = LoginRig()
    found.link = found.connect()
    return found


# -- before a login ------------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_before_a_login(api: Api) -> None:
    """Two requests are answered, and a token follows; any other closes the link, and nothing of it is done."""
    rig = LoginRig()
    link = rig.connect()
    rig.post(api.request(), api.versions[1], link=link)
    rig.advance(100)
    if api.name in ("ApiVersions", "SaslHandshake"):
        assert rig.answers
    else:
        assert not rig.answers
        assert rig.hung == [link]
    assert not rig.admitted


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_during_a_login(api: Api) -> None:
    """Between the handshake and the end of the exchange only tokens are taken."""
    rig = LoginRig()
    link = rig.connect()
    rig.ask(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse, link=link)
    number = rig.post(api.request(), api.versions[1], link=link)
    rig.advance(1_000)
    assert rig.hung == [link]
    assert not rig.admitted
    if api.name == "SaslHandshake":
        answer = rig.answer_to(number, SaslHandshakeResponse)
        assert answer == SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    elif api.name != "SaslAuthenticate":
        assert number not in rig.answers


def test_versions_are_told_before_a_login(rig: LoginRig) -> None:
    answer = rig.ask(ApiVersionsRequest("x", "1"), 3, ApiVersionsResponse)
    keys = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert keys[17] == (0, 1)
    assert keys[36] == (0, 2)
    assert keys[0]


def test_who_does_not_log_in_is_closed(rig: LoginRig) -> None:
    rig.ask(SaslHandshakeRequest("SCRAM-SHA-256"), 1, SaslHandshakeResponse)
    rig.advance(LOGIN_TIMEOUT_MS - 1)
    assert rig.hung == []
    rig.advance(1)
    assert rig.hung == [1, rig.link]  # the first one never said anything


def test_a_link_that_is_closed_for_its_request_may_take_long_to_end(rig: LoginRig) -> None:
    """1. It sends what it may not, and does not read its answers, so that the connection does not end. 2. The time to
    log in is over: nothing more is to be done."""
    effects: list[Effect] = []
    rig.logins.opened(Peer(77, "10.0.0.7:1", b""), rig.now)
    metadata = next(api for api in APIS.values() if api.request is MetadataRequest)
    request = Request(metadata, 9, 1, "client", MetadataRequest(None))
    assert not rig.logins.admits(77, request, rig.now, effects)
    assert [each.link for each in effects if isinstance(each, Hang)] == [77]
    later: list[Effect] = []
    rig.logins.due(rig.now + LOGIN_TIMEOUT_MS, later)
    assert [each.link for each in later if isinstance(each, Hang)] == [1, rig.link]


def test_a_listener_without_logins() -> None:
    """It answers as Kafka's, and the link goes on."""
    rig = KafkaRig()
    link = rig.connect()
    state = ErrorCode.ILLEGAL_SASL_STATE
    handshake = rig.ask(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse, link=link)
    assert handshake == SaslHandshakeResponse(state)
    answer = rig.ask(SaslAuthenticateRequest(b"x"), 2, SaslAuthenticateResponse, link=link)
    assert answer.error_code == state
    assert rig.ask(MetadataRequest(None), 9, MetadataResponse, link=link).brokers
    assert rig.hung == []


# -- logins --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ALL)
def test_a_login(mechanism: str) -> None:
    rig = LoginRig()
    link = rig.connect()
    answer = rig.log_in(mechanism, link=link)
    assert answer.error_code == 0
    assert rig.serves(link)
    assert rig.admitted == [link]
    assert rig.logins.principal(link) == "User:alice"
    assert rig.node._parts.statistics.kafka_logins == {(mechanism, "accepted"): 1}
    other = rig.connect()
    assert rig.logins.principal(other) == "User:ANONYMOUS"


@pytest.mark.parametrize(
    ("mechanism", "user", "told"),
    [
        ("PLAIN", "alice", "Authentication failed: Invalid username or password"),
        ("PLAIN", "nobody", "Authentication failed: Invalid username or password"),
        *(
            (
                mechanism,
                user,
                "Authentication failed during authentication due to invalid credentials with SASL"
                f" mechanism {mechanism}",
            )
            for mechanism in SCRAM_MECHANISMS
            for user in ("alice", "nobody")
        ),
    ],
)
def test_a_wrong_password(mechanism: str, user: str, told: str) -> None:
    """The answer comes late and says no more than Kafka's; the log names the user only."""
    rig = LoginRig()
    link = rig.connect()
    answer = rig.log_in(mechanism, user, "wr0ng", link)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == told
    assert rig.hung == [link]
    assert rig.admitted == []
    (line,) = rig.told
    assert line.level == "WARNING"
    assert f"failed to log in as '{user}' with {mechanism}" in line.text
    assert "wr0ng" not in line.text
    assert rig.node._parts.statistics.kafka_logins == {(mechanism, "refused"): 1}


def test_a_mechanism_that_is_not_enabled() -> None:
    rig = LoginRig(sasl_enabled_mechanisms=("SCRAM-SHA-256",))
    link = rig.connect()
    number = rig.post(SaslHandshakeRequest("GSSAPI"), 1, link=link)
    rig.advance(99)
    assert rig.answer_to(number, SaslHandshakeResponse) is None
    rig.advance(1)
    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    answer = rig.answer_to(number, SaslHandshakeResponse)
    assert answer == SaslHandshakeResponse(code, ("SCRAM-SHA-256",))
    assert rig.hung == [link]


def test_a_token_that_is_refused_takes_two_steps(rig: LoginRig) -> None:
    rig.ask(SaslHandshakeRequest("OAUTHBEARER"), 1, SaslHandshakeResponse)
    first = b"n,,\x01auth=Bearer " + unsecured("alice", rig.now).encode() + b"\x01\x01"
    assert rig.authenticate(first).auth_bytes == b'{"status":"invalid_token"}'
    answer = rig.authenticate(b"\x01")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == '{"status":"invalid_token"}'


def test_what_comes_after_a_refusal_is_ignored(rig: LoginRig) -> None:
    rig.ask(HANDSHAKE_1, 1, SaslHandshakeResponse)
    rig.post(WRONG, 2)
    number = rig.post(RIGHT, 2)
    assert not rig.serves(rig.link)
    rig.advance(1_000)
    assert number not in rig.answers
    assert rig.admitted == []
    assert rig.hung == [rig.link]


def test_nothing_after_a_login_is_one(rig: LoginRig) -> None:
    rig.log_in("PLAIN")
    state = ErrorCode.ILLEGAL_SASL_STATE
    answer = rig.ask(HANDSHAKE_1, 1, SaslHandshakeResponse)
    assert answer == SaslHandshakeResponse(state)
    assert rig.authenticate(b"x").error_code == state
    assert rig.serves(rig.link)


# -- bare tokens, after version 0 of the handshake -----------------------------------------------


def token(rig: LoginRig, data: bytes) -> None:
    rig.event(Received(rig.link, SaslToken(data)))


def test_bare_tokens(rig: LoginRig) -> None:
    rig.ask(SaslHandshakeRequest("SCRAM-SHA-256"), 0, SaslHandshakeResponse)
    client = exchange_of(login_of("SCRAM-SHA-256", "alice", PASSWORD), random.Random(1))
    token(rig, client.first())
    proof = client.step(rig.tokens[-1])
    assert proof is not None
    token(rig, proof)
    assert client.step(rig.tokens[-1]) is None
    assert rig.serves(rig.link)


def test_a_bare_token_that_is_wrong(rig: LoginRig) -> None:
    """There is no answer for it: the link is closed, late."""
    rig.ask(HANDSHAKE_1, 0, SaslHandshakeResponse)
    token(rig, WRONG.auth_bytes)
    assert rig.hung == []
    rig.advance(100)
    assert rig.hung == [rig.link]
    assert rig.tokens == []


def test_bare_tokens_out_of_place() -> None:
    for prepare in ("", "headers", "in"):
        rig = LoginRig()
        rig.link = rig.connect()
        if prepare == "headers":
            rig.ask(HANDSHAKE_1, 1, SaslHandshakeResponse)
        elif prepare:
            rig.log_in("PLAIN")
        token(rig, RIGHT.auth_bytes)
        assert rig.hung == [rig.link]
        assert rig.tokens == []


def test_headers_where_bare_tokens_belong(rig: LoginRig) -> None:
    rig.ask(HANDSHAKE_1, 0, SaslHandshakeResponse)
    rig.post(RIGHT, 2)
    assert rig.hung == [rig.link]


@pytest.mark.parametrize(
    ("mechanism", "version", "tokens"),
    [("PLAIN", 0, 1), ("SCRAM-SHA-512", 0, 2), ("OAUTHBEARER", 0, 1), ("PLAIN", 1, 0)],
)
def test_which_frames_are_tokens(mechanism: str, version: int, tokens: int) -> None:
    handshake = Request(APIS[17], version, 1, "c", SaslHandshakeRequest(mechanism))
    after = Request(APIS[3], 9, 2, "c", MetadataRequest(None))
    frames = encode(handshake)
    frames += b"".join(encode(SaslToken(b"tok%d" % number)) for number in range(tokens))
    frames += encode(after)
    expected = [SaslToken(b"tok%d" % number) for number in range(tokens)]
    found = LoginDecoder().feed(frames)
    assert found[1:-1] == expected
    assert (found[0], found[-1]) == (handshake, after)
    one_by_one = LoginDecoder()
    assert [m for byte in frames for m in one_by_one.feed(bytes([byte]))] == found


def test_large_frames_need_a_login() -> None:
    head = (LOGIN_BYTES_MAX + 1).to_bytes(4, "big")
    with pytest.raises(ProtocolError):
        LoginDecoder().feed(head)
    decoder = LoginDecoder()
    decoder.admit()
    assert decoder.feed(head) == []


# -- sessions (KIP-368) --------------------------------------------------------------------------


def test_a_session_ends() -> None:
    rig = LoginRig(connections_max_reauth_ms=10_000)
    link = rig.connect()
    assert rig.log_in("PLAIN", link=link).session_lifetime_ms == 10_000
    rig.advance(9_999)
    assert rig.serves(link)
    rig.advance(1)
    assert not rig.serves(link)
    assert rig.hung == [link]


def test_a_login_again_prolongs_it() -> None:
    rig = LoginRig(connections_max_reauth_ms=10_000)
    link = rig.connect()
    for _ in range(3):
        rig.advance(12_000)  # even a late one counts, if nothing else came before
        assert rig.log_in("SCRAM-SHA-512", link=link).session_lifetime_ms == 10_000
        assert rig.serves(link)
    assert rig.admitted == [link]


def test_a_session_ends_with_its_token() -> None:
    rig = LoginRig(connections_max_reauth_ms=100_000)
    link = rig.connect()
    assert rig.log_in("OAUTHBEARER", link=link).session_lifetime_ms == 60_000


def test_logging_in_again_at_once() -> None:
    rig = LoginRig(connections_max_reauth_ms=10_000)
    rig.link = rig.connect()
    rig.log_in("PLAIN")
    rig.advance(999)
    answer = rig.ask(HANDSHAKE_1, 1, SaslHandshakeResponse)
    assert answer == SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    assert rig.serves(rig.link)


@pytest.mark.parametrize(
    ("mechanism", "user", "told"),
    [
        (
            "SCRAM-SHA-256",
            "alice",
            "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for"
            " re-authentication of mechanism 'PLAIN'",
        ),
        (
            "PLAIN",
            "bob",
            "Cannot change principals during re-authentication from User.alice: User.bob",
        ),
    ],
)
def test_logging_in_again_as_another(mechanism: str, user: str, told: str) -> None:
    rig = LoginRig(connections_max_reauth_ms=10_000)
    link = rig.connect()
    rig.log_in("PLAIN", link=link)
    rig.advance(2_000)
    answer = rig.log_in(mechanism, user, link=link)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == told
    assert rig.hung == [link]


def test_only_tokens_while_logging_in_again() -> None:
    rig = LoginRig(connections_max_reauth_ms=10_000)
    link = rig.connect()
    rig.log_in("PLAIN", link=link)
    rig.advance(2_000)
    rig.ask(HANDSHAKE_1, 1, SaslHandshakeResponse, link=link)
    assert not rig.serves(link)
    assert rig.hung == [link]


# -- who guesses ---------------------------------------------------------------------------------


def attempt(rig: LoginRig, ip: str) -> tuple[int, int]:
    """Fail once from an address: the link, and the correlation id of the request."""
    rig.links += 1
    link = rig.links
    rig.event(Opened(link, f"{ip}:5000", dialect=KAFKA))
    rig.ask(HANDSHAKE_1, 1, SaslHandshakeResponse, link=link)
    return link, rig.post(WRONG, 2, link=link)


def test_each_failure_of_an_address_waits_longer() -> None:
    rig = LoginRig()
    delays = []
    for _ in range(12):
        _, number = attempt(rig, "10.9.9.9")
        began = rig.now
        while number not in rig.answers:
            rig.advance(100)
        delays.append(rig.now - began)
    assert delays == [100] * 5 + [200, 400, 800, 1600, 3200, 5000, 5000]
    _, other = attempt(rig, "10.9.9.8")
    rig.advance(100)
    assert other in rig.answers
    rig.advance(60_001)
    _, again = attempt(rig, "10.9.9.9")
    rig.advance(100)
    assert again in rig.answers


def test_an_address_has_only_so_many_answers_delayed() -> None:
    """Beyond them nothing is looked at, not even a right password."""
    rig = LoginRig()
    links = [attempt(rig, "10.9.9.9")[0] for _ in range(DELAYED_MAX)]
    assert rig.hung == []
    more, _ = attempt(rig, "10.9.9.9")
    assert rig.hung == [more]
    rig.advance(6_000)
    assert set(links) < set(rig.hung)
    rig.link = rig.connect()
    assert rig.log_in("PLAIN").error_code == 0


def test_a_link_that_is_gone_before_its_refusal(rig: LoginRig) -> None:
    rig.ask(HANDSHAKE_1, 1, SaslHandshakeResponse)
    rig.post(WRONG, 2)
    rig.event(Closed(rig.link, "gone"))
    rig.advance(1_000)
    assert rig.hung == []


# -- everything ----------------------------------------------------------------------------------


def test_every_edge() -> None:
    scenarios: list[Callable[[], None]] = [
        lambda: test_a_login("SCRAM-SHA-256"),
        lambda: test_a_wrong_password("SCRAM-SHA-512", "alice", SCRAM_TOLD),
        test_a_mechanism_that_is_not_enabled,
        test_a_session_ends,
        test_a_login_again_prolongs_it,
    ]
    assert_every_edge(LOGINS, *scenarios)


SCRAM_TOLD = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism"
    " SCRAM-SHA-512"
)

MESSAGES = st.one_of(
    st.sampled_from((*ALL, "x")).map(SaslHandshakeRequest),
    st.binary(max_size=60).map(SaslAuthenticateRequest),
    st.just(WRONG),
    st.just(MetadataRequest(None)),
    st.just(ApiVersionsRequest("a", "1")),
    st.binary(max_size=60).map(SaslToken),
)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(MESSAGES, st.integers(0, 1), st.integers(0, 200)), max_size=12))
def test_whatever_comes_nobody_is_let_in(
    given: list[tuple[Any, int, int]],
) -> None:
    rig = LoginRig()
    link = rig.connect()
    for message, version, wait in given:
        if link in rig.hung:
            break
        if isinstance(message, SaslToken):
            rig.event(Received(link, message))
        elif isinstance(message, MetadataRequest):
            assert not rig.serves(link)
        else:
            rig.post(message, version, link=link)
        rig.advance(wait)
    assert rig.admitted == []
    assert PASSWORD not in rig.log_text
    assert rig.now >= START
