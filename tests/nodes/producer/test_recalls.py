"""A producer that takes back delayed messages, against scripted servers."""

from __future__ import annotations

from tests.nodes.consumer.remoting.conftest import START, reply
from tests.nodes.producer.test_producer import Bench

from steelyard.errors import BrokerError, CallTimeoutError, MessageError, RemotingError, RouteError
from steelyard.nodes.producer import RecallMessage, Stop
from steelyard.types import Message
from steelyard.wire.remoting.recall import RecallHandle

RECALL = 370
HANDLE = RecallHandle("T", "b", START + 9, "ID").encode()


def test_a_recall_goes_to_the_broker_that_has_the_message() -> None:
    bench = Bench()
    bench.b.script[RECALL] = lambda command: reply(msgId="ID")
    call = bench.rig.ask(RecallMessage(HANDLE))
    assert bench.rig.answers[call] == "ID"
    (command,) = bench.rig.to(bench.b, RECALL)
    assert command.ext == {"producerGroup": "pg", "topic": "T", "recallHandle": HANDLE}
    assert bench.rig.to(bench.a, RECALL) == []


def test_how_a_recall_fails() -> None:
    bench = Bench(in_flight_max=1)
    bench.b.script[RECALL] = lambda command: reply(604, "recall failed, timestamp invalid")
    refused = bench.error(bench.rig.ask(RecallMessage(HANDLE)))
    assert isinstance(refused, BrokerError)
    assert (refused.code, refused.remark) == (604, "recall failed, timestamp invalid")
    for handle, kind in (
        ("nonsense", MessageError),
        ("", MessageError),
        (RecallHandle("T", "c", 1, "ID").encode(), RouteError),
        (RecallHandle("nowhere", "b", 1, "ID").encode(), RouteError),
    ):
        assert isinstance(bench.error(bench.rig.ask(RecallMessage(handle))), kind)
    bench.b.script[RECALL] = lambda command: None
    late, many = bench.rig.ask(RecallMessage(HANDLE, 500)), bench.rig.ask(RecallMessage(HANDLE))
    assert isinstance(bench.error(many), RemotingError)
    bench.rig.advance(500)
    assert isinstance(bench.error(late), CallTimeoutError)


def test_a_recall_without_a_nameserver_waits_for_nothing() -> None:
    bench = Bench(nameservers=())
    assert isinstance(bench.error(bench.rig.ask(RecallMessage(HANDLE))), RouteError)


def test_a_recall_whose_route_does_not_come_ends_with_its_time() -> None:
    bench = Bench()
    bench.ns.script[105] = lambda command: None
    call = bench.rig.ask(RecallMessage(HANDLE, 700))
    bench.rig.advance(700)
    assert isinstance(bench.error(call), CallTimeoutError)


def test_a_producer_stops_when_its_recalls_have_ended() -> None:
    bench = Bench()
    bench.b.script[RECALL] = lambda command: None
    call = bench.rig.ask(RecallMessage(HANDLE))
    stop = bench.rig.ask(Stop())
    assert stop not in bench.rig.answers
    (command,) = bench.rig.to(bench.b, RECALL)
    bench.rig.answer(bench.b, command, reply(msgId="ID"))
    bench.rig.advance(1)
    assert bench.rig.answers[call] == "ID"
    assert stop in bench.rig.answers


def test_a_delayed_send_brings_its_handle() -> None:
    bench = Bench()
    for broker in (bench.a, bench.b):
        broker.script[310] = lambda command: reply(
            msgId="0A", queueId=0, queueOffset=0, recallHandle=HANDLE
        )
    assert bench.result(bench.send(Message("T", b"x", delay_ms=5))).recall_handle == HANDLE
    both = [command for broker in (bench.a, bench.b) for command in bench.rig.to(broker, 310)]
    assert "TIMER_DELAY_MS\x015\x02" in both[0].ext["i"]
