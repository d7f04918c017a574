"""Single sends that the producer gathers into batches: which, how long, and what each caller gets."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.remoting.conftest import reply
from tests.nodes.producer.test_producer import Bench

from steelyard.errors import BrokerError, MessageError, RemotingError
from steelyard.nodes.producer import SendOneway, Stop
from steelyard.types import Message, MessageQueue, SendResult, SendStatus
from steelyard.wire.remoting.command import Command


def gathering(**settings: object) -> Bench:
    """A producer that gathers, with a route; brokers answer a batch as one that begins at offset 7."""
    bench = Bench(auto_batch=True, **settings)
    bench.send(Message("T", b"first", delay_level=1))

    def stored(command: Command) -> Command:
        count = 1 if command.code == 310 else command.body.count(b"UNIQ_KEY")
        ids = ",".join(f"0{number}" for number in range(count))
        return reply(msgId=ids, queueId=int(command.ext["e"]), queueOffset=7)

    for broker in (bench.a, bench.b):
        broker.script |= {310: stored, 320: stored}
    bench.rig.sent.clear()
    return bench


def codes(bench: Bench) -> list[int]:
    return [command.code for _, command in bench.rig.sent if command.code in (310, 320)]


def test_messages_wait_for_others_and_each_gets_its_own_result() -> None:
    bench = gathering()
    calls = [bench.send(Message("T", b"%d" % number)) for number in range(3)]
    assert codes(bench) == []
    bench.rig.advance(9)
    assert codes(bench) == []
    bench.rig.advance(1)
    assert codes(bench) == [320]
    results = [bench.result(call) for call in calls]
    assert [result.queue_offset for result in results] == [7, 8, 9]
    assert [result.offset_message_id for result in results] == ["00", "01", "02"]
    assert len({result.message_id for result in results}) == 3
    assert len({result.queue for result in results}) == 1
    assert all(result.status is SendStatus.SEND_OK for result in results)


def test_one_alone_is_sent_as_a_single_message() -> None:
    bench = gathering()
    call = bench.send()
    bench.rig.advance(10)
    assert codes(bench) == [310]
    assert bench.result(call).queue_offset == 7


def test_a_full_batch_does_not_wait() -> None:
    bench = gathering(batch_max_bytes=10)
    calls = [bench.send(Message("T", b"12345")), bench.send(Message("T", b"12345"))]
    assert codes(bench) == [320]
    assert all(bench.result(call) for call in calls)
    bench.send(Message("T", b"123456"))
    bench.send(Message("T", b"123456"))  # does not fit into the batch that waits
    assert codes(bench) == [320, 310]


@pytest.mark.parametrize(
    "other",
    [
        Message("T", b"y", wait_store_ok=False),
        Message("T", b"y", sharding_key="k"),
    ],
)
def test_only_what_may_share_a_request_is_gathered_together(other: Message) -> None:
    bench = gathering()
    bench.send()
    bench.send(other)
    bench.send(Message("T", b"z"), queue=MessageQueue("T", "a", 1))
    bench.send(Message("T", b"z"), timeout_ms=1_000)
    bench.rig.advance(10)
    assert codes(bench) == [310] * 4


@pytest.mark.parametrize(
    "alone",
    [
        Message("T", b"y", delay_level=2),
        Message("T", b"y", delay_ms=20),
        Message("T", b"y", deliver_at_ms=20),
        Message("T", b"y" * 5_000),  # it is compressed
        Message("T", b"y", properties={"TIMER_DELAY_SEC": "3"}),
        Message("T", bytes(40_000), properties={"n": "1"}),
    ],
)
def test_what_goes_alone_overtakes_nothing(alone: Message) -> None:
    bench = gathering()
    first = [bench.send(), bench.send()]
    last = bench.send(alone)
    assert codes(bench) == [320, 310]
    assert all(isinstance(bench.rig.answers[call], SendResult) for call in (*first, last))


def test_a_wrong_message_fails_alone_and_an_error_of_the_broker_reaches_all() -> None:
    bench = gathering(retries=0)
    for broker in (bench.a, bench.b):
        broker.script[320] = lambda command: reply(13, "no")
    calls = [bench.send(), bench.send()]
    assert isinstance(bench.error(bench.send(Message("T", b""))), MessageError)
    errors = [bench.error(call) for call in calls]
    assert all(isinstance(error, BrokerError) and error.code == 13 for error in errors)


@pytest.mark.parametrize("value", ["\ud800", "\u4e00" * 12_000])
def test_a_message_that_cannot_be_encoded_fails_alone(value: str) -> None:
    bench = gathering()
    good = bench.send(Message("T", b"good"))
    wrong = bench.send(Message("T", b"wrong", properties={"name": value}))
    other = bench.send(Message("T", b"good, too"))
    bench.rig.advance(10)
    assert codes(bench) == [310, 310]
    assert bench.result(good).status is bench.result(other).status is SendStatus.SEND_OK
    with pytest.raises(MessageError, match="the properties"):
        raise bench.rig.answers[wrong]  # type: ignore[misc]  # it is the error


def test_messages_that_are_too_large_together_are_sent_alone() -> None:
    bench = gathering(message_bytes_max=1_000, batch_max_bytes=1_000)
    calls = [bench.send(Message("T", b"x" * 450)) for _ in range(2)]
    bench.rig.advance(10)
    assert codes(bench) == [310, 310]
    assert all(bench.result(call).status is SendStatus.SEND_OK for call in calls)


def test_a_stop_sends_what_waits_and_oneway_sends_do_not_wait() -> None:
    bench = gathering(batch_max_delay_ms=60_000)
    calls = [bench.send(), bench.send()]
    bench.rig.ask(SendOneway((Message("Other", b"x"),)))
    assert codes(bench) == []  # Other has no route
    stop = bench.rig.ask(Stop())
    assert codes(bench)[:1] == [320]
    assert all(bench.result(call) for call in calls)
    bench.rig.advance(5_000)
    assert stop in bench.rig.answers


def test_what_waits_is_limited() -> None:
    bench = gathering(total_batch_max_bytes=3, in_flight_max=2)
    bench.send(Message("T", b"12"))
    bench.send(Message("T", b"34"))  # too much waits: it goes alone, after the other
    assert codes(bench) == [310, 310]
    bench.send(Message("T", b"1"))
    bench.send(Message("T", b"2"))
    third = bench.send(Message("T", b"3"))
    assert isinstance(bench.error(third), RemotingError)
