"""Request-reply of a producer, through the seam: both of its sides."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import pytest
from tests.nodes.consumer.remoting.conftest import START, queues, record, reply
from tests.nodes.producer.test_producer import Bench, silent

from steelyard.errors import BrokerError, CallTimeoutError, ClosedError, MessageError, RemotingError
from steelyard.nodes.producer import SendReply, SendRequest, Stop
from steelyard.nodes.seam import Opened, Received
from steelyard.types import Message, SendResult, SendStatus
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import MessageView, decode_records
from steelyard.wire.remoting.properties import decode_properties, encode_properties


def ask(bench: Bench, **more: object) -> int:
    return bench.rig.ask(SendRequest(Message("T", b"?"), **more))  # type: ignore[arg-type]


def sent_request(bench: Bench) -> Command:
    """The last one."""
    return [command for _, command in bench.rig.sent if command.code == 310][-1]


def pushed(
    correlation_id: str, body: bytes = b"!", sys_flag: int = 0, changes: Mapping[str, str] = {}
) -> Command:
    """326, as ReplyMessageProcessor.java makes it."""
    properties = {"CORRELATION_ID": correlation_id, "MSG_TYPE": "reply", "UNIQ_KEY": "AB"}
    header = {
        "producerGroup": "repliers",
        "topic": "c_REPLY_TOPIC",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "1",
        "sysFlag": str(sys_flag),
        "bornTimestamp": "1600",
        "flag": "7",
        "properties": encode_properties(properties).removesuffix("\x02"),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "bornHost": "127.0.0.1:40000",
        "storeHost": "127.0.0.1:10911",
        "storeTimestamp": "1700",
    }
    return Command(326, 4711, 0, {**header, **changes}, body)


def correlation_of(command: Command) -> str:
    return decode_properties(command.ext["i"])["CORRELATION_ID"]


def answers_to(bench: Bench, opaque: int = 4711) -> list[tuple[int, int]]:
    """What brokers were answered: code and flag."""
    return [(c.code, c.flag) for _, c in bench.rig.sent if c.opaque == opaque]


def test_a_request_gets_its_reply() -> None:
    bench = Bench()
    call = ask(bench, timeout_ms=2_000)
    request = sent_request(bench)
    properties = decode_properties(request.ext["i"])
    correlation_id = correlation_of(request)
    assert properties == {
        "UNIQ_KEY": properties["UNIQ_KEY"],
        "WAIT": "true",
        "CORRELATION_ID": correlation_id,
        "REPLY_TO_CLIENT": "p1",
        "TTL": "2000",
    }
    assert correlation_id != properties["UNIQ_KEY"]
    assert call not in bench.rig.answers
    bench.rig.push(bench.b, pushed(correlation_id))
    view = bench.rig.answers[call]
    assert isinstance(view, MessageView)
    assert (view.body, view.topic, view.broker_name) == (b"!", "c_REPLY_TOPIC", "b")
    assert (view.born_host, view.store_host) == ("127.0.0.1:40000", "127.0.0.1:10911")
    assert (view.born_timestamp, view.store_timestamp, view.flag) == (1600, 1700, 7)
    assert view.message_id == "AB"
    assert view.property_of("ARRIVE_TIME") == str(START)
    view.verify()
    assert answers_to(bench) == [(0, 1)]


def test_brokers_know_a_requester_before_they_get_its_request() -> None:
    bench = Bench()
    ask(bench)
    for broker in (bench.a, bench.b):
        assert broker.codes()[:1] == [34]
    bench.rig.crash(bench.a)
    bench.a.up = True
    bench.a.asked.clear()
    for _ in range(8):
        ask(bench)
    assert bench.a.codes()[0] == 34


def test_a_compressed_reply_is_readable() -> None:
    bench = Bench()
    call = ask(bench)
    body = b"!" * 9_000
    reply_ = pushed(correlation_of(sent_request(bench)), zlib.compress(body), 0x301)
    bench.rig.push(bench.a, reply_)
    view = bench.rig.answers[call]
    assert isinstance(view, MessageView)
    assert view.body == body


def test_a_reply_may_overtake_the_brokers_word() -> None:
    bench = Bench()
    bench.a.script[310] = bench.b.script[310] = silent
    call = ask(bench)
    request = sent_request(bench)
    broker = bench.a if bench.sent() == ["a"] else bench.b
    bench.rig.push(broker, pushed(correlation_of(request)))
    assert isinstance(bench.rig.answers[call], MessageView)
    stop = bench.rig.ask(Stop())
    bench.rig.answer(broker, request, reply(msgId="0A", queueId=1, queueOffset=0))
    assert bench.rig.answers[stop] is None


def test_no_reply_in_time() -> None:
    bench = Bench()
    call = ask(bench, timeout_ms=2_000)
    longer = ask(bench, timeout_ms=5_000)
    request = sent_request(bench)
    bench.rig.advance(1_999)
    assert call not in bench.rig.answers
    bench.rig.advance(1)
    error = bench.error(call)
    assert isinstance(error, CallTimeoutError)
    assert "sent, but not replied to" in str(error)
    bench.rig.push(bench.a, pushed(correlation_of(request)))
    assert isinstance(bench.rig.answers[longer], MessageView)
    bench.rig.push(bench.a, pushed(correlation_of(request)))
    assert answers_to(bench) == [(0, 1)] * 2
    assert "no request is waiting" in bench.rig.tells[-1].text


def test_the_default_time_out_is_that_of_sends() -> None:
    bench = Bench(send_timeout_ms=1_000)
    bench.ns.script[105] = silent
    call = ask(bench)
    bench.rig.advance(1_000)
    assert isinstance(bench.error(call), CallTimeoutError)


def test_a_request_that_no_broker_takes() -> None:
    bench = Bench()
    bench.a.script[310] = bench.b.script[310] = lambda command: reply(14, "no")
    assert isinstance(bench.error(ask(bench)), BrokerError)
    assert len(bench.sent()) == 3
    (queue,) = queues("T", "a", 2)
    assert isinstance(bench.error(ask(bench, queue=queue)), BrokerError)
    assert isinstance(bench.error(bench.rig.ask(SendRequest(Message("T", b"")))), MessageError)


def test_more_requests_than_allowed_are_refused() -> None:
    bench = Bench(in_flight_max=2)
    calls = [ask(bench) for _ in range(3)]
    assert isinstance(bench.error(calls[2]), RemotingError)
    assert isinstance(bench.rig.answers[bench.send()], SendResult)
    bench.rig.advance(3_000)
    assert isinstance(bench.error(calls[0]), CallTimeoutError)
    assert ask(bench) not in bench.rig.answers


@pytest.mark.parametrize(
    "wrong", [{"bornHost": "nowhere"}, {"queueId": "x"}, {"storeTimestamp": ""}]
)
def test_a_reply_that_cannot_be_read_is_refused(wrong: dict[str, str]) -> None:
    bench = Bench()
    call = ask(bench)
    bench.rig.push(bench.a, pushed(correlation_of(sent_request(bench)), changes=wrong))
    assert call not in bench.rig.answers
    assert answers_to(bench) == [(1, 1)]
    assert "cannot be read" in bench.rig.tells[-1].text


def test_a_stranger_has_nothing_to_reply() -> None:
    bench = Bench()
    bench.rig.put(Opened(99, "c:1"))
    bench.rig.links[99] = "c:1"
    bench.rig.put(Received(99, pushed("x")))
    assert answers_to(bench) == [(3, 1)]


def test_stop_waits_for_replies() -> None:
    bench = Bench()
    call = ask(bench)
    stop = bench.rig.ask(Stop())
    assert isinstance(bench.error(ask(bench)), ClosedError)
    assert stop not in bench.rig.answers
    bench.rig.push(bench.a, pushed(correlation_of(sent_request(bench))))
    assert isinstance(bench.rig.answers[call], MessageView)
    assert bench.rig.answers[stop] is None


# -- the other side --------------------------------------------------------------------------------


def view_of(broker: str, **properties: str) -> MessageView:
    """A request as a consumer got it from this broker."""
    asked = {"CLUSTER": "c", "CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "p9", "TTL": "3000"}
    encoded = encode_properties(asked | properties).encode()
    return decode_records(record("T", 0, 5, properties=encoded), broker)[0]


def replier() -> Bench:
    bench = Bench()
    bench.ns.add("c_REPLY_TOPIC", bench.a, bench.b, queues=1)
    took = reply(msgId="0", queueId=0, queueOffset=0)
    bench.a.script[325] = bench.b.script[325] = lambda command: took
    return bench


def answer(bench: Bench, view: MessageView) -> int:
    return bench.rig.ask(SendReply(Message("c_REPLY_TOPIC", b"!"), view))


@pytest.mark.parametrize("broker", ["a", "b"])
def test_a_reply_goes_to_the_broker_its_request_came_from(broker: str) -> None:
    """Not as in Java, which takes any broker, though the requester may be known to this one only."""
    bench = replier()
    for _ in range(3):
        assert bench.result(answer(bench, view_of(broker))).status is SendStatus.SEND_OK
    peer, other = (bench.a, bench.b) if broker == "a" else (bench.b, bench.a)
    assert bench.rig.to(other, 325) == []
    command = bench.rig.to(peer, 325)[0]
    assert (command.ext["b"], command.ext["n"], command.body) == ("c_REPLY_TOPIC", broker, b"!")
    properties = decode_properties(command.ext["i"])
    del properties["UNIQ_KEY"]
    assert properties == {
        "CORRELATION_ID": "c-1",
        "REPLY_TO_CLIENT": "p9",
        "TTL": "3000",
        "MSG_TYPE": "reply",
        "WAIT": "true",
    }


def test_a_reply_is_tried_elsewhere_where_the_requester_is_not_known() -> None:
    bench = replier()
    unknown = reply(1, "push reply message fail, channel of <p9> not found.")
    bench.a.script[325] = lambda command: unknown
    assert bench.result(answer(bench, view_of("a"))).queue.broker_name == "b"
    bench.b.script[325] = lambda command: unknown
    error = bench.error(answer(bench, view_of("gone")))
    assert isinstance(error, BrokerError)
    assert "channel of <p9> not found" in str(error)


def test_what_is_no_request_is_not_replied_to() -> None:
    bench = replier()
    plain = decode_records(record("T", 0, 5), "a")[0]
    assert isinstance(bench.error(answer(bench, plain)), MessageError)
