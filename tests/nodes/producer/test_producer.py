"""A producer through the seam, against scripted nameservers and brokers."""

from __future__ import annotations

import msgspec
import pytest
from tests.effects import effects_of
from tests.nodes.consumer.remoting.conftest import (
    START,
    Broker,
    Nameserver,
    Peer,
    Rig,
    queues,
    reply,
    rng,
)

from steelyard.config import ProducerConfig
from steelyard.errors import (
    BrokerError,
    CallTimeoutError,
    ClosedError,
    MessageError,
    ProtocolError,
    RemotingError,
    RouteError,
    SteelyardError,
)
from steelyard.nodes.calls.remoting import Calls
from steelyard.nodes.producer import FetchQueues, ProducerNode, SendMessages, SendOneway, Stop
from steelyard.nodes.seam import Dial, Opened, Received
from steelyard.types import Message, MessageQueue, SendResult, SendStatus
from steelyard.wire.remoting.command import Command, is_oneway
from steelyard.wire.remoting.ids import UniqueIds


class Bench:
    """A producer, one nameserver, the brokers a and b with four queues of T each."""

    def __init__(self, **settings: object) -> None:
        self.a, self.b, self.ns = Broker("a", "a:1"), Broker("b", "b:1"), Nameserver()
        self.ns.add("T", self.a, self.b)
        values = {"nameservers": ("ns:9876",), "group": "pg", "client_id": "p1"} | settings
        config = ProducerConfig(**values)  # type: ignore[arg-type]
        node = ProducerNode(config, UniqueIds(b"\x7f\0\0\1", 1, 2), rng())
        self.rig = Rig(node, self.ns, self.a, self.b).start()

    def send(self, *messages: Message, **more: object) -> int:
        call = SendMessages(messages or (Message("T", b"x"),), **more)  # type: ignore[arg-type]
        return self.rig.ask(call)

    def sent(self) -> list[str]:
        """Which brokers got sends, in order."""
        return [at[0] for at, command in self.rig.sent if command.code in (310, 320)]

    def result(self, call_id: int) -> SendResult:
        answer = self.rig.answers[call_id]
        assert isinstance(answer, SendResult), answer
        return answer

    def error(self, call_id: int) -> SteelyardError:
        answer = self.rig.answers[call_id]
        assert isinstance(answer, SteelyardError), answer
        return answer


def silent(command: Command) -> None:
    """No answer at all."""


def test_the_first_send_finds_its_broker_and_says_who_is_there() -> None:
    bench = Bench()
    result = bench.result(bench.send())
    broker = bench.a if result.queue.broker_name == "a" else bench.b
    assert result.queue in queues("T", broker.name, 0, 1, 2, 3)
    assert (result.status, result.queue_offset, result.offset_message_id) == (
        SendStatus.SEND_OK,
        0,
        "0A",
    )
    assert result.message_id == UniqueIds(b"\x7f\0\0\1", 1, 2).next(START)
    assert bench.ns.codes() == [105]
    assert broker.codes() == [34, 310]
    assert bench.a.members == bench.b.members == ["p1"]


def test_messages_go_round_all_queues() -> None:
    bench = Bench()
    results = [bench.result(bench.send()).queue for _ in range(16)]
    every = queues("T", "a", 0, 1, 2, 3) + queues("T", "b", 0, 1, 2, 3)
    assert sorted(results) == sorted(every * 2)
    assert bench.ns.count(105) == 1


def test_a_batch_goes_to_one_queue() -> None:
    bench = Bench()
    result = bench.result(bench.send(Message("T", b"x"), Message("T", b"y")))
    assert len(result.message_id.split(",")) == 2
    assert len(bench.rig.to(bench.a, 320) + bench.rig.to(bench.b, 320)) == 1


def test_a_refused_connection_leads_to_the_other_broker() -> None:
    bench = Bench()
    bench.a.up = False
    results = [bench.result(bench.send()) for _ in range(6)]
    assert {result.queue.broker_name for result in results} == {"b"}


def test_a_broker_that_dies_with_a_send_leads_to_the_other() -> None:
    bench = Bench()
    bench.a.script[310] = bench.b.script[310] = silent
    call = bench.send()
    (first,) = bench.sent()
    broken, other = (bench.a, bench.b) if first == "a" else (bench.b, bench.a)
    bench.rig.crash(broken)
    assert bench.sent() == [first, other.name]
    bench.rig.answer(
        other, bench.rig.to(other, 310)[0], reply(msgId="0B", queueId=2, queueOffset=9)
    )
    assert bench.result(call).queue == MessageQueue("T", other.name, 2)


@pytest.mark.parametrize(
    ("code", "version"),
    [(code, version) for code in (17, 14, 1, 16, 204, 205) for version in ("4.x", "5.x")]
    + [(2, "5.x"), (1500, "5.x")],
)
def test_codes_that_are_tried_on_another_broker(code: int, version: str) -> None:
    bench = Bench(retry_codes=version)
    bench.a.script[310] = bench.b.script[310] = lambda command: reply(code, "no")
    error = bench.error(bench.send())
    assert isinstance(error, BrokerError)
    assert (error.code, error.remark, error.retriable) == (code, "no", True)
    first, second, third = bench.sent()
    assert first != second != third


@pytest.mark.parametrize(
    ("code", "version"),
    [(code, version) for code in (3, 13, 15, 99) for version in ("4.x", "5.x")]
    + [(2, "4.x"), (1500, "4.x")],
)
def test_codes_that_are_final(code: int, version: str) -> None:
    bench = Bench(retry_codes=version)
    bench.a.script[310] = bench.b.script[310] = lambda command: reply(code, "no")
    error = bench.error(bench.send())
    assert isinstance(error, BrokerError)
    assert (error.code, error.retriable) == (code, False)
    assert len(bench.sent()) == 1


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_stored_but_with_a_reservation(code: int, status: SendStatus) -> None:
    bench = Bench()
    stored = reply(code, msgId="0C", queueId=1, queueOffset=5)
    bench.a.script[310] = bench.b.script[310] = lambda command: stored
    assert bench.result(bench.send()).status is status


def test_stored_with_a_reservation_another_broker_is_tried_if_the_settings_say_so() -> None:
    """What the last one stored counts, if none stored it without a reservation."""
    bench = Bench(retry_another_broker=True)
    places = iter(range(9))

    def hurried(command: Command) -> Command:
        return reply(10, msgId="0C", queueId=1, queueOffset=next(places))

    bench.a.script[310] = bench.b.script[310] = hurried
    result = bench.result(bench.send())
    assert (result.status, result.queue_offset) == (SendStatus.FLUSH_DISK_TIMEOUT, 2)
    first, second, third = bench.sent()
    assert first == third != second

    bench.a.script[310] = bench.b.script[310] = lambda command: (
        hurried(command) if len(bench.sent()) == 4 else reply(13, "no")
    )
    assert bench.result(bench.send()).queue_offset == 3
    (queue,) = queues("T", "a", 2)
    bench.a.script[310] = hurried
    assert bench.result(bench.send(queue=queue)).queue_offset == 4
    assert len(bench.sent()) == 6


def test_an_answer_without_its_fields_is_the_brokers_fault() -> None:
    bench = Bench()
    bench.a.script[310] = bench.b.script[310] = lambda command: reply(queueId="x")
    assert isinstance(bench.error(bench.send()), ProtocolError)


def test_one_time_out_for_all_attempts() -> None:
    """The first broker dies after 2 of 3 seconds; the second has only the last one."""
    bench = Bench()
    bench.a.script[310] = bench.b.script[310] = silent
    call = bench.send()
    bench.rig.advance(2_000)
    bench.rig.crash(bench.a if bench.sent() == ["a"] else bench.b)
    assert len(bench.sent()) == 2
    bench.rig.advance(999)
    assert call not in bench.rig.answers
    bench.rig.advance(1)
    assert isinstance(bench.error(call), CallTimeoutError)
    assert len(bench.sent()) == 2


def test_a_given_queue_is_tried_once() -> None:
    bench = Bench()
    bench.a.script[310] = lambda command: reply(14, "no")
    (queue,) = queues("T", "a", 2)
    assert isinstance(bench.error(bench.send(queue=queue)), BrokerError)
    assert bench.sent() == ["a"]
    del bench.a.script[310]
    (missing,) = queues("T", "c", 0)
    assert isinstance(bench.error(bench.send(queue=missing)), RouteError)
    (other,) = queues("U", "a", 0)
    assert isinstance(bench.error(bench.send(queue=other)), MessageError)


def test_a_one_way_send_is_not_waited_for() -> None:
    bench = Bench()
    bench.a.script[310] = bench.b.script[310] = silent
    call = bench.rig.ask(SendOneway((Message("T", b"x"),)))
    assert bench.rig.answers[call] is None
    (command,) = bench.rig.to(bench.a, 310) + bench.rig.to(bench.b, 310)
    assert is_oneway(command)


def test_a_topic_that_does_not_exist_borrows_the_route_of_the_default_topic() -> None:
    bench = Bench()
    bench.ns.add("TBW102", bench.a, queues=8, perm=7)
    result = bench.result(bench.send(Message("New", b"x")))
    assert result.queue in queues("New", "a", 0, 1, 2, 3)
    assert [command.ext["topic"] for command in bench.ns.asked] == ["New", "TBW102"]
    (command,) = bench.rig.to(bench.a, 310)
    assert (command.ext["c"], command.ext["d"]) == ("TBW102", "4")


def test_no_route_at_all() -> None:
    bench = Bench()
    error = bench.error(bench.send(Message("New", b"x")))
    assert isinstance(error, RouteError)
    assert error.retriable
    bench.ns.add("New", bench.a)
    bench.result(bench.send(Message("New", b"x")))


def test_without_a_nameserver_in_the_settings() -> None:
    bench = Bench(nameservers=())
    assert isinstance(bench.error(bench.send()), RouteError)


def test_a_silent_nameserver_costs_the_time_out_of_the_send() -> None:
    bench = Bench(send_timeout_ms=1_000)
    bench.ns.script[105] = silent
    calls = [bench.send(), bench.rig.ask(FetchQueues("T")), bench.send(timeout_ms=2_000)]
    bench.rig.advance(999)
    assert not bench.rig.answers
    bench.rig.advance(1)
    assert [isinstance(bench.error(c), CallTimeoutError) for c in calls[:2]] == [True, True]
    assert calls[2] not in bench.rig.answers
    bench.rig.advance(1_000)
    assert isinstance(bench.error(calls[2]), CallTimeoutError)


def test_the_next_nameserver_is_asked_when_one_fails_and_kept() -> None:
    bench = Bench(nameservers=("dead:1", "ns:9876"))
    bench.result(bench.send())
    bench.result(bench.send())
    bench.rig.advance(60_000)
    assert bench.ns.count(105) == 3


def test_routes_are_looked_at_every_thirty_seconds() -> None:
    bench = Bench()
    bench.send()
    bench.ns.add("T", bench.b)
    bench.rig.advance(29_999)
    assert bench.ns.count(105) == 1
    bench.rig.advance(1)
    assert {bench.result(bench.send()).queue.broker_name for _ in range(8)} == {"b"}


def test_routes_are_looked_at_soon_after_a_broker_failed() -> None:
    bench = Bench()
    bench.send()
    bench.ns.add("T", bench.b)
    bench.rig.crash(bench.a)
    bench.rig.advance(500)
    assert bench.ns.count(105) == 2
    bench.rig.sent.clear()
    assert [bench.result(bench.send()).queue.broker_name for _ in range(4)] == ["b"] * 4
    assert bench.sent() == ["b"] * 4


def test_heartbeats_keep_coming_and_follow_a_broker_that_comes_back() -> None:
    bench = Bench()
    bench.send()
    bench.rig.advance(30_000)
    assert (bench.a.count(34), bench.b.count(34)) == (2, 2)
    bench.rig.crash(bench.a)
    bench.a.up = True
    for _ in range(4):
        bench.send()
    assert bench.a.count(34) == 3


def test_more_sends_than_allowed_are_refused() -> None:
    bench = Bench(in_flight_max=3)
    bench.a.script[310] = bench.b.script[310] = silent
    calls = [bench.send() for _ in range(4)]
    assert isinstance(bench.error(calls[3]), RemotingError)
    assert calls[2] not in bench.rig.answers


def test_more_bytes_than_allowed_are_refused_and_given_back_exactly() -> None:
    bench = Bench(in_flight_bytes_max=10)
    held: list[Command] = []
    bench.a.script[310] = bench.b.script[310] = held.append
    six, four = bench.send(Message("T", b"x" * 6)), bench.send(Message("T", b"x" * 4))
    error = bench.error(bench.send(Message("T", b"x")))
    assert isinstance(error, RemotingError)
    assert "10 bytes in flight (in_flight_bytes_max)" in str(error)
    assert six not in bench.rig.answers
    answers = reply(msgId="0A", queueId=0, queueOffset=0), reply(13)
    for command, answer in zip(held, answers, strict=True):
        peer = bench.a if command in bench.rig.to(bench.a, 310) else bench.b
        bench.rig.answer(peer, command, answer)
    assert isinstance(bench.error(four), BrokerError)
    both = [bench.send(Message("T", b"x" * 6)), bench.send(Message("T", b"x" * 4))]
    bench.rig.advance(3_000)
    assert [isinstance(bench.error(call), CallTimeoutError) for call in both] == [True, True]
    assert isinstance(bench.error(bench.send(Message("T", b"x" * 11))), RemotingError)


def test_messages_of_one_key_go_to_one_queue_and_are_tried_once() -> None:
    bench = Bench()
    every = queues("T", "a", 0, 1, 2, 3) + queues("T", "b", 0, 1, 2, 3)
    keyed = Message("T", b"x", sharding_key="FB")  # 2236, by String.hashCode
    assert {bench.result(bench.send(keyed)).queue for _ in range(3)} == {every[2236 % 8]}
    assert bench.result(bench.send(keyed, keyed)).queue == every[2236 % 8]
    (other,) = queues("T", "a", 1)
    assert bench.result(bench.send(keyed, queue=other)).queue == other
    bench.rig.sent.clear()
    bench.b.script[310] = lambda command: reply(14, "no")
    assert isinstance(bench.error(bench.send(keyed)), BrokerError)
    assert bench.sent() == ["b"]


def test_a_batch_of_several_keys_needs_a_given_queue() -> None:
    bench = Bench()
    messages = Message("T", b"x", sharding_key="k1"), Message("T", b"x", sharding_key="k2")
    error = bench.error(bench.send(*messages))
    assert isinstance(error, MessageError)
    assert "sharding keys 'k1' and 'k2'" in str(error)
    (queue,) = queues("T", "a", 1)
    assert bench.result(bench.send(*messages, queue=queue)).queue == queue


def test_a_broker_of_an_ordered_topic_that_is_away_is_passed_over() -> None:
    """The order configuration keeps its queues in the route; they cannot be sent to."""
    bench = Bench()
    route = bench.ns.routes["T"]
    bench.ns.routes["T"] = msgspec.structs.replace(route, order_topic_conf="a:1;c:1")
    results = [bench.rig.answers[bench.send()] for _ in range(4)]
    assert [isinstance(r, SendResult) and r.queue.broker_name for r in results] == ["a"] * 4
    bench.ns.routes["T"] = msgspec.structs.replace(route, order_topic_conf="c:1")
    bench.rig.advance(30_000)
    assert isinstance(bench.error(bench.send()), RouteError)


def test_a_message_that_breaks_a_rule_is_not_sent() -> None:
    bench = Bench()
    assert isinstance(bench.error(bench.send(Message("T", b""))), MessageError)
    assert isinstance(bench.error(bench.rig.ask(FetchQueues("a b"))), MessageError)
    assert bench.rig.sent == []


def test_queues_can_be_asked_for() -> None:
    bench = Bench()
    every = queues("T", "a", 0, 1, 2, 3) + queues("T", "b", 0, 1, 2, 3)
    assert bench.rig.answers[bench.rig.ask(FetchQueues("T"))] == every
    assert bench.rig.answers[bench.rig.ask(FetchQueues("T"))] == every
    assert bench.ns.count(105) == 1


def test_stop_waits_for_what_is_under_way_and_says_good_bye() -> None:
    bench = Bench()
    bench.a.script[310] = bench.b.script[310] = silent
    call = bench.send()
    stop = bench.rig.ask(Stop())
    assert isinstance(bench.error(bench.send()), ClosedError)
    assert stop not in bench.rig.answers
    broker = bench.a if bench.sent() == ["a"] else bench.b
    (request,) = bench.rig.to(broker, 310)
    bench.rig.answer(broker, request, reply(msgId="0D", queueId=1, queueOffset=5))
    assert bench.result(call).queue_offset == 5
    assert bench.rig.answers[stop] is None
    assert bench.a.codes()[-1] == bench.b.codes()[-1] == 35
    (goodbye,) = bench.rig.to(bench.a, 35)
    assert goodbye.ext == {"clientID": "p1", "producerGroup": "pg"}
    assert isinstance(bench.error(bench.rig.ask(Stop())), ClosedError)
    bench.rig.sent.clear()
    bench.rig.advance(120_000)
    assert bench.rig.sent == []


def test_stop_with_a_call_that_waits_for_a_route() -> None:
    bench = Bench()
    bench.ns.script[105] = silent
    fetch = bench.rig.ask(FetchQueues("T"))
    stop = bench.rig.ask(Stop())
    bench.rig.advance(3_000)
    assert isinstance(bench.error(fetch), CallTimeoutError)
    assert bench.rig.answers[stop] is None


def test_stop_of_an_idle_producer_and_of_one_whose_broker_is_dead() -> None:
    idle = Bench()
    assert idle.rig.answers[idle.rig.ask(Stop())] is None
    bench = Bench()
    bench.send()
    bench.a.script[35] = silent
    stop = bench.rig.ask(Stop())
    bench.rig.advance(2_999)
    assert stop not in bench.rig.answers
    bench.rig.advance(1)
    assert bench.rig.answers[stop] is None


def test_what_brokers_ask_of_it_is_refused_politely() -> None:
    bench = Bench()
    bench.send()
    bench.rig.sent.clear()
    bench.rig.push(bench.a, Command(code=39, opaque=77, flag=2))
    bench.rig.push(bench.a, Command(code=307, opaque=78))
    ((_, answer),) = bench.rig.sent
    assert (answer.code, answer.opaque, answer.flag) == (3, 78, 1)
    bench.rig.put(Received(bench.rig.link_to(bench.a), reply(opaque=12345)))
    bench.rig.put(Opened(99, "c:1"))


def test_a_peer_that_is_no_broker_does_not_break_it() -> None:
    bench = Bench()
    bench.rig.peers["a:1"] = bench.rig.peers["b:1"] = Peer("a:1")
    assert isinstance(bench.error(bench.send()), BrokerError)


def test_one_way_sends_do_not_pile_up_while_a_link_is_made() -> None:
    """Beyond the limit they are lost, as one-way sends may be."""
    calls: Calls[int] = Calls(in_flight_max=3)
    assert effects_of(calls.tell, "a:1", Command(code=1)) == [Dial("a:1")]
    assert [effects_of(calls.tell, "a:1", Command(code=1)) for _ in range(9)] == [[]] * 9
    assert len(effects_of(calls.opened, Opened(1, "a:1", dialed=True))) == 3
