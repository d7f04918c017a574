"""The request channel: answers in the order of requests, broken peers, what is advertised."""

from __future__ import annotations

from steelyard.config import StoreConfig
from steelyard.nodes.broker.dynamic_configs import DynamicConfigs
from steelyard.nodes.broker.kafka.requests.channel import (
    UNANSWERED_MAX,
    OpenRequest,
    RequestChannel,
)
from steelyard.nodes.broker.kafka.requests.feature_levels import FeatureLevels
from steelyard.nodes.broker.requests import Peer
from steelyard.nodes.broker.turns import Turns
from steelyard.nodes.seam import Effect, Hang, Link, Send
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import Reply, Request
from steelyard.wire.kafka.messages.cluster import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from steelyard.wire.kafka.messages.data import PRODUCE, ProduceRequest
from steelyard.wire.kafka.messages.groups import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from steelyard.wire.kafka.schema import ApiMessage

LINK = 7


class Rig:
    """A channel whose heartbeats are answered when the test says so."""

    def __init__(self) -> None:
        self.calls: list[OpenRequest] = []
        self.effects: list[Effect] = []
        self.released: list[int] = []
        store = Store(MemoryDisk(), StoreConfig())
        store.open(0)
        table = store.table("configs")
        self.channel = RequestChannel(
            {HEARTBEAT.key: self.later, PRODUCE.key: self.never},
            Turns(),
            self.release,
            {},
            FeatureLevels(DynamicConfigs(table)),
        )
        self.channel.opened(Peer(LINK, "127.0.0.1:1234", b""))

    def later(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        self.calls.append(call)
        return None

    def release(self, link: Link, now: int, effects: list[Effect]) -> None:
        """Noted with how many requests the channel has handled by then."""
        assert link == LINK
        self.released.append(len(self.calls))

    def never(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        call.no_reply(effects)
        return None

    def ask(self, request: Request) -> None:
        self.channel.received(LINK, request, 0, self.effects)
        self.channel.check()

    def beat(self, number: int) -> None:
        self.ask(Request(HEARTBEAT, 4, number, "me", HeartbeatRequest()))

    def answer(self, number: int) -> None:
        (call,) = [c for c in self.calls if c.request.correlation_id == number]
        call.answer(HeartbeatResponse(), self.effects)
        self.channel.check()

    def sent(self) -> list[int]:
        found = [e.message.correlation_id for e in self.effects if isinstance(e, Send)]  # type: ignore[attr-defined]
        self.effects.clear()
        return found


def test_answers_keep_the_order_of_the_requests() -> None:
    rig = Rig()
    for number in (1, 2, 3):
        rig.beat(number)
    rig.answer(3)
    assert rig.sent() == []
    rig.answer(1)
    assert rig.sent() == [1]
    rig.answer(2)
    assert rig.sent() == [2, 3]


def test_a_request_without_an_answer_does_not_hold_up_the_next() -> None:
    rig = Rig()
    rig.beat(1)
    rig.ask(Request(PRODUCE, 3, 2, "me", ProduceRequest()))
    rig.ask(Request(API_VERSIONS, 0, 3, "me", ApiVersionsRequest()))
    rig.answer(1)
    assert rig.sent() == [1, 3]


def test_an_answer_for_a_link_that_is_gone_goes_nowhere() -> None:
    rig = Rig()
    rig.beat(1)
    assert rig.channel.closed(LINK)
    rig.answer(1)
    assert not rig.channel.closed(LINK)
    rig.beat(2)
    assert rig.sent() == []


def test_the_asker_is_shown_as_kafka_shows_it() -> None:
    rig = Rig()
    rig.beat(1)
    asker = rig.calls[0].asker
    assert (asker.client_id, asker.host, asker.link) == ("me", "/127.0.0.1", LINK)


def test_a_peer_that_never_waits_is_hung_up_on() -> None:
    rig = Rig()
    for number in range(UNANSWERED_MAX):
        rig.beat(number)
    assert not rig.effects
    rig.beat(UNANSWERED_MAX)
    told, hang = rig.effects
    assert isinstance(told, LogLine)
    assert isinstance(hang, Hang)
    assert hang.link == LINK


def versions(request: Request) -> tuple[int, ApiVersionsResponse]:
    rig = Rig()
    rig.ask(request)
    (effect,) = rig.effects
    assert isinstance(effect, Send)
    reply = effect.message
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, ApiVersionsResponse)
    return reply.version, reply.message


def test_what_is_served_is_advertised_and_produce_from_version_0() -> None:
    version, message = versions(Request(API_VERSIONS, 4, 1, None, ApiVersionsRequest("lib", "1")))
    assert version == 4
    assert message.api_keys == [ApiVersion(0, 0, 13), ApiVersion(12, 0, 4), ApiVersion(18, 0, 4)]


def test_a_version_we_do_not_have_is_answered_in_version_0() -> None:
    version, message = versions(Request(API_VERSIONS, 99, 1, None, None))
    assert version == 0
    assert message.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list(message.api_keys) == [ApiVersion(18, 0, 4)]


def test_a_client_must_have_a_name() -> None:
    for name in ("", "-lib", "lib!"):
        request = Request(API_VERSIONS, 3, 1, None, ApiVersionsRequest(name, "1.0"))
        assert versions(request)[1].error_code == ErrorCode.INVALID_REQUEST


def test_request_behind_unanswered_ones_releases_what_waits_before_it_is_handled() -> None:
    rig = Rig()
    rig.beat(1)
    assert rig.released == []
    rig.beat(2)
    assert rig.released == [1]
    rig.answer(1)
    rig.answer(2)
    rig.beat(3)
    assert rig.released == [1]


def test_client_names_itself_once_for_its_link() -> None:
    rig = Rig()
    rig.beat(1)
    named = ApiVersionsRequest("librdkafka", "2.6.0")
    rig.ask(Request(API_VERSIONS, 3, 2, "me", named))
    rig.beat(3)
    assert [call.asker.software for call in rig.calls] == ["librdkafka"] * 2
    rig.channel.closed(LINK)
    assert rig.channel.software(LINK) == ""
    rig.channel.check()
