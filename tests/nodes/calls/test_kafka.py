from __future__ import annotations

from steelyard.errors import CallTimeoutError, ConnectError, KafkaError, RemotingError
from steelyard.nodes.calls.kafka import KafkaCalls, Lane, Outcome
from steelyard.nodes.seam import KAFKA, Closed, Dial, Effect, Hang, Opened, Refused, Send
from steelyard.wire.kafka import frame
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import RawReply, Reply, Request
from steelyard.wire.kafka.messages.cluster import API_VERSIONS, ApiVersion, ApiVersionsResponse
from steelyard.wire.kafka.messages.groups import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from steelyard.wire.kafka.schema import ApiMessage

DATA, GROUP = Lane("a:1", "data"), Lane("a:1", "group")


class Rig:
    def __init__(self) -> None:
        self.calls: KafkaCalls[str] = KafkaCalls("me", "1.0", 5_000)
        self.out: list[Effect] = []

    def ask(self, lane: Lane, purpose: str, now: int = 0, timeout_ms: int = 1_000) -> None:
        request = HeartbeatRequest(purpose)
        self.calls.call(lane, HEARTBEAT, request, purpose, now, timeout_ms, self.out)

    def taken(self) -> list[Effect]:
        self.calls.check()
        out, self.out = self.out, []
        return out

    def sent(self) -> list[Request]:
        """What was sent, and nothing else was done."""
        return [effect.message for effect in self.taken() if isinstance(effect, Send)]  # type: ignore[misc]

    def answer(self, link: int, request: Request, message: ApiMessage) -> list[Outcome[str]]:
        data = frame.encode(Reply(request.api, request.version, request.correlation_id, message))[
            4:
        ]
        reply = RawReply(request.correlation_id, data)
        return self.calls.received(link, reply, 0, self.out)

    def open(self, link: int, *versions: ApiVersion) -> None:
        """A link to the dialed lane, whose broker knows these."""
        self.calls.opened(Opened(link, "a:1", True, KAFKA), 0, self.out)
        (hello,) = self.sent()
        assert hello.api is API_VERSIONS
        keys = versions or (ApiVersion(HEARTBEAT.key, 0, 3),)
        assert self.answer(link, hello, ApiVersionsResponse(0, keys)) == []


def test_lanes_to_one_address_are_dialed_one_after_the_other() -> None:
    rig = Rig()
    rig.ask(DATA, "d")
    rig.ask(GROUP, "g1")
    rig.ask(GROUP, "g2")
    assert rig.taken() == [Dial("a:1", KAFKA)]
    assert rig.calls.is_dialing("a:1")
    rig.calls.opened(Opened(7, "a:1", True, KAFKA), 0, rig.out)
    dial, hello = rig.taken()
    assert (dial, type(hello)) == (Dial("a:1", KAFKA), Send)
    rig.open(8)
    assert not rig.calls.is_dialing("a:1")
    assert rig.calls.pump(rig.out) == []
    requests = rig.sent()
    assert [request.message for request in requests] == [
        HeartbeatRequest("g1"),
        HeartbeatRequest("g2"),
    ]
    assert {(request.version, request.client_id) for request in requests} == {(3, "me")}
    assert not rig.calls.is_idle(GROUP)
    for request, purpose in zip(requests, ("g1", "g2"), strict=True):
        (outcome,) = rig.answer(8, request, HeartbeatResponse(0, 27))
        assert outcome == Outcome(purpose, GROUP, HeartbeatResponse(0, 27))
    assert rig.calls.is_idle(GROUP)


def test_nobody_there() -> None:
    rig = Rig()
    rig.ask(DATA, "d")
    (outcome,) = rig.calls.refused(Refused("a:1", "no"), rig.out)
    assert (outcome.purpose, type(outcome.reply)) == ("d", ConnectError)
    rig.taken()
    rig.ask(DATA, "again")
    assert rig.taken() == [Dial("a:1", KAFKA)]


def test_a_link_that_dies_takes_all_with_it() -> None:
    rig = Rig()
    rig.ask(DATA, "sent")
    rig.taken()
    rig.open(7)
    rig.calls.pump(rig.out)
    rig.taken()
    rig.ask(DATA, "waiting")
    outcomes = rig.calls.closed(Closed(7, "gone"))
    assert [(one.purpose, type(one.reply)) for one in outcomes] == [
        ("sent", RemotingError),
        ("waiting", RemotingError),
    ]
    assert rig.calls.closed(Closed(7, "gone")) == []


def test_a_request_past_its_time_ends_the_link() -> None:
    rig = Rig()
    rig.ask(DATA, "late", timeout_ms=100)
    rig.ask(DATA, "behind it", timeout_ms=900)
    rig.taken()
    rig.open(7)
    rig.calls.pump(rig.out)
    rig.taken()
    assert rig.calls.due == 100
    assert rig.calls.expire(99, rig.out) == []
    outcomes = rig.calls.expire(100, rig.out)
    assert [one.purpose for one in outcomes] == ["late", "behind it"]
    assert isinstance(outcomes[0].reply, CallTimeoutError)
    (hang,) = rig.taken()
    assert isinstance(hang, Hang)
    assert rig.calls.received(7, RawReply(2, b"\0\0\0\2\0\0"), 0, rig.out) == []


def test_a_request_that_never_got_a_link() -> None:
    rig = Rig()
    rig.ask(DATA, "early", timeout_ms=100)
    rig.ask(DATA, "later", timeout_ms=900)
    rig.taken()
    (outcome,) = rig.calls.expire(100, rig.out)
    assert (outcome.purpose, rig.calls.due) == ("early", 900)


def test_a_broker_without_the_api() -> None:
    rig = Rig()
    rig.ask(DATA, "d")
    rig.taken()
    rig.open(7, ApiVersion(API_VERSIONS.key, 0, 4))
    (outcome,) = rig.calls.pump(rig.out)
    assert isinstance(outcome.reply, KafkaError)
    assert outcome.reply.code == ErrorCode.UNSUPPORTED_VERSION


def test_hang_up_all() -> None:
    rig = Rig()
    rig.ask(DATA, "d")
    rig.taken()
    rig.open(7)
    rig.calls.hang_up_all(rig.out)
    assert rig.taken() == [Hang(7, "the consumer closes")]
