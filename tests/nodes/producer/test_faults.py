"""Latency fault tolerance and detection of a producer, through the seam."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.remoting.conftest import Broker, reply
from tests.nodes.producer.test_producer import Bench, silent

from steelyard.errors import BrokerError, CallTimeoutError
from steelyard.types import LogLine, Message
from steelyard.wire.remoting.command import Command


def at_a(bench: Bench) -> Message:
    """A message whose key leads to broker a: "a".hashCode() is 97, queue 1 of 8."""
    return Message("T", b"x", sharding_key="a")


def brokers_of(bench: Bench, count: int = 8) -> set[str]:
    return {bench.result(bench.send()).queue.broker_name for _ in range(count)}


def slow(bench: Bench, broker: Broker, ms: int) -> None:
    """One send that this broker answers after so long."""
    script = broker.script.pop(310)
    broker.script[310] = silent
    call = bench.send(at_a(bench))
    bench.rig.advance(ms)
    request = bench.rig.to(broker, 310)[-1]
    bench.rig.answer(broker, request, reply(msgId="0A", queueId=1, queueOffset=0))
    bench.result(call)
    broker.script[310] = script


@pytest.mark.parametrize(
    ("version", "latency_ms", "pause_ms"),
    [("4.x", 549, 0), ("4.x", 600, 30_000), ("4.x", 1_000, 60_000), ("5.x", 1_000, 2_000)],
)
def test_a_slow_broker_is_left_alone_as_the_table_says(
    version: str, latency_ms: int, pause_ms: int
) -> None:
    bench = Bench(latency_faults=version)
    slow(bench, bench.a, latency_ms)
    if pause_ms:
        assert brokers_of(bench) == {"b"}
        bench.rig.advance(pause_ms - 1)
        assert brokers_of(bench) == {"b"}
        bench.rig.advance(1)
    assert brokers_of(bench) == {"a", "b"}


def test_without_fault_tolerance_a_slow_broker_keeps_its_share() -> None:
    bench = Bench()
    slow(bench, bench.a, 2_900)
    assert brokers_of(bench) == {"a", "b"}


@pytest.mark.parametrize(("version", "pause_ms"), [("4.x", 600_000), ("5.x", 10_000)])
def test_a_broker_that_is_gone_is_isolated(version: str, pause_ms: int) -> None:
    bench = Bench(latency_faults=version)
    bench.a.up = False
    assert brokers_of(bench) == {"b"}
    refused = [at for at, command in bench.rig.sent if at == "a:1" and command.code == 310]
    assert refused == []
    bench.a.up = True
    bench.rig.advance(pause_ms - 1)
    assert brokers_of(bench) == {"b"}
    bench.rig.advance(1)
    assert brokers_of(bench) == {"a", "b"}


def test_an_error_code_isolates_too() -> None:
    bench = Bench(latency_faults="5.x")
    bench.a.script[310] = lambda command: reply(13, "no")
    assert isinstance(bench.error(bench.send(at_a(bench))), BrokerError)
    assert brokers_of(bench) == {"b"}


def test_silence_isolates_too() -> None:
    bench = Bench(latency_faults="5.x")
    bench.a.script[310] = silent
    call = bench.send(at_a(bench))
    bench.rig.advance(3_000)
    assert isinstance(bench.error(call), CallTimeoutError)
    assert brokers_of(bench) == {"b"}


def lost_bench() -> Bench:
    """Broker a does not answer sends any more, and b is slow: neither is available."""
    bench = Bench(latency_faults="5.x", detect=True)
    script = bench.a.script.pop(310)
    bench.a.script[310] = bench.a.script[30] = silent
    call = bench.send(at_a(bench), timeout_ms=100)
    bench.rig.advance(100)
    assert isinstance(bench.error(call), CallTimeoutError)
    bench.a.script[310] = script
    return bench


@pytest.mark.parametrize("code", [0, 1, 17])
def test_a_broker_that_answers_anything_can_be_reached_again(code: int) -> None:
    """GET_MAX_OFFSET of the queue that failed, every 2 s, until there is any reply."""
    bench = lost_bench()
    bench.rig.advance(2_000)
    (question,) = bench.rig.to(bench.a, 30)
    assert question.ext == {"topic": "T", "queueId": "1", "bname": "a"}
    bench.rig.advance(2_000)
    assert len(bench.rig.to(bench.a, 30)) == 2
    assert bench.rig.tells == []
    bench.a.script[30] = lambda command: reply(code, offset=5)
    bench.rig.advance(2_000)
    assert bench.rig.tells == [LogLine("INFO", "broker a can be reached again")]
    bench.rig.advance(60_000)
    assert len(bench.rig.to(bench.a, 30)) == 3
    assert brokers_of(bench) == {"a", "b"}


def test_when_nobody_is_available_the_reachable_broker_gets_it() -> None:
    bench = lost_bench()

    def slowly(command: Command) -> None:
        bench.rig.now += 1_999

    bench.b.script[310] = slowly
    keyed = Message("T", b"x", sharding_key="FB")  # queue 4 of 8: broker b
    bench.send(keyed, timeout_ms=3_000)
    bench.rig.answer(
        bench.b, bench.rig.to(bench.b, 310)[-1], reply(msgId="0A", queueId=0, queueOffset=0)
    )
    bench.b.script[310] = lambda command: reply(msgId="0A", queueId=0, queueOffset=0)
    assert brokers_of(bench) == {"b"}


def test_a_lost_broker_that_left_the_routes_is_not_looked_for() -> None:
    bench = lost_bench()
    bench.ns.add("T", bench.b)
    bench.rig.advance(40_000)
    before = len(bench.rig.to(bench.a, 30))
    bench.rig.advance(40_000)
    assert len(bench.rig.to(bench.a, 30)) == before
