"""A producer and a push consumer among hostile servers: every reply may be garbage, late, or not come."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable
from random import Random

import msgspec
import pytest
from tests.fuzz import garbage

from steelyard.config import ConsumerConfig, LitePullConfig, ProducerConfig
from steelyard.errors import SteelyardError
from steelyard.nodes.admin import AdminNode, Invoke
from steelyard.nodes.consumer.remoting import contract as consumer_contract
from steelyard.nodes.consumer.remoting import questions
from steelyard.nodes.consumer.remoting.contract import ConsumeBatch, Describe
from steelyard.nodes.consumer.remoting.node import ConsumerNode
from steelyard.nodes.consumer.remoting.puller import Balanced, PullerNode
from steelyard.nodes.producer import FetchQueues, ProducerNode, SendMessages, SendOneway
from steelyard.nodes.producer import contract as producer_contract
from steelyard.nodes.producer.contract import EndTransaction, Half, SendHalf, SendRequest
from steelyard.nodes.seam import (
    Answer,
    Asked,
    Closed,
    Deliver,
    Dial,
    DropTimer,
    Due,
    Effect,
    Event,
    Handled,
    Hang,
    Node,
    Opened,
    Received,
    Refused,
    Send,
    SetTimer,
    Verdict,
)
from steelyard.types import (
    ConsumeFrom,
    ConsumeOrderlyStatus,
    ConsumeStatus,
    Message,
    MessageQueue,
    Subscription,
    TransactionState,
)
from steelyard.wire.remoting import bodies, fastjson, frame, headers
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command, is_oneway, is_response
from steelyard.wire.remoting.ids import UniqueIds, host_bytes
from steelyard.wire.remoting.message import encode_record

NOW = 1_700_000_000_000
ROUTE = bodies.TopicRouteData(
    queue_datas=(bodies.QueueData("broker-a", 4, 4, 6),),
    broker_datas=(bodies.BrokerData("c", "broker-a", {0: "127.0.0.1:10911"}),),
)


def record(offset: int) -> bytes:
    return encode_record(
        topic="TopicA",
        queue_id=0,
        flag=0,
        queue_offset=offset,
        physical_offset=offset,
        sys_flag=0,
        born_timestamp=NOW,
        born_host=host_bytes("127.0.0.1:1"),
        store_timestamp=NOW,
        store_host=host_bytes("127.0.0.1:10911"),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"x",
        properties=b"TAGS\x01TagA\x02",
    )


def good_answer(request: Command) -> Command:
    """What an honest server might say."""
    ext: dict[str, str] = {}
    body = b""
    match request.code:
        case 105:
            body = fastjson.write(ROUTE)
        case 38:
            body = fastjson.write(bodies.ConsumerListBody(("me", "you")))
        case 14 | 29 | 30 | 31:
            ext = {"offset": "0"}
        case 11:
            start = max(0, min(int(request.ext["queueOffset"]), 2**40))
            body = b"".join(record(start + step) for step in range(3))
            pulled = headers.PullMessageResponseHeader(
                next_begin_offset=start + 3, min_offset=0, max_offset=start + 3
            )
            ext = headers.write(pulled)
        case 10 | 310 | 320:
            sent = headers.SendMessageResponseHeader(msg_id="00" * 16, queue_id=0, queue_offset=1)
            ext = headers.write(sent)
        case 41:
            locks = fastjson.read(bodies.LockBatchBody, request.body)
            body = fastjson.write(bodies.LockBatchResponseBody(locks.mq_set))
    return Command(0, request.opaque, RESPONSE_FLAG, ext, body)


def spoiled(rng: Random, answer: Command) -> Command:
    """The same reply, wrong in one way."""
    match rng.randrange(10):
        case 5:  # another's
            return msgspec.structs.replace(answer, opaque=answer.opaque + rng.choice((-1, 1, 7)))
        case 6:
            return msgspec.structs.replace(answer, body=b"")
        case 7:
            return msgspec.structs.replace(answer, body=answer.body * rng.choice((2, 50)))
        case 8:  # a header that is right but for one number
            ext = dict(answer.ext)
            if ext:
                ext[rng.choice(sorted(ext))] = rng.choice(garbage.NASTY)
            return msgspec.structs.replace(answer, ext=ext)
        case 9:
            return msgspec.structs.replace(answer, code=rng.choice(garbage.CODES), remark="x" * 500)
        case 0:
            code = rng.choice((1, 2, 3, 14, 17, 19, 20, 21, 22, 24, 25, 26, 29, 205, 999, -1))
            return msgspec.structs.replace(answer, code=code)
        case 1:
            return msgspec.structs.replace(answer, body=garbage.mutated(rng, answer.body))
        case 2:
            return msgspec.structs.replace(answer, body=rng.choice(garbage.BODIES))
        case 3:
            ext = dict(answer.ext)
            for name in ext:
                ext[name] = rng.choice(garbage.NASTY)
            return msgspec.structs.replace(answer, ext=ext)
    return msgspec.structs.replace(answer, ext={})


class HostileWorld:
    """Drives one client; plays every server it dials."""

    def __init__(self, node: Node, rng: Random) -> None:
        self.node = node
        self.rng = rng
        self.now = NOW
        self.links: dict[int, str] = {}
        self.last_link = 0
        self.timers: dict[Hashable, int] = {}
        self.dials: list[str] = []
        self.requests: list[tuple[int, Command]] = []
        self.handed: list[int] = []
        self.asked = 0
        self.answers: Counter[str] = Counter()
        self.handed_messages = 0
        self.verdicts: list[Verdict] = [*ConsumeStatus, None, "no verdict"]
        self.checks: list[object] = []
        self.results: list[object] = []
        self.settled: set[int] = set()
        self.take(node.start(self.now))

    def run(self, steps: int, call: Callable[[], object]) -> None:
        for _ in range(steps):
            self.now += self.rng.choice((0, 1, 10, 100, 1000))
            self.step(call)
            self.node.check()

    def step(self, call: Callable[[], object]) -> None:
        rng = self.rng
        due = [key for key, at in self.timers.items() if at <= self.now]
        chance = rng.random()
        if due:
            del self.timers[due[0]]
            self.handle(Due(due[0]))
        elif self.dials:
            self.dialed(self.dials.pop(0))
        elif self.requests and chance < 0.7:
            self.reply(*self.requests.pop(rng.randrange(len(self.requests))))
        elif self.handed and chance < 0.8:
            self.handle(Handled(self.handed.pop(0), rng.choice(self.verdicts)))
        elif self.links and chance < 0.83:
            link = rng.choice(sorted(self.links))
            self.close(link)
        elif self.links and chance < 0.9:
            command = garbage.any_command(rng)
            [command] = frame.Decoder().feed(frame.encode(command))
            self.handle(Received(rng.choice(sorted(self.links)), command))
        else:
            self.asked += 1
            self.handle(Asked(self.asked, call()))

    def dialed(self, address: str) -> None:
        if self.rng.random() < 0.1:
            self.handle(Refused(address, "nobody there"))
        else:
            self.last_link += 1
            self.links[self.last_link] = address
            self.handle(Opened(self.last_link, address, dialed=True))

    def reply(self, link: int, request: Command) -> None:
        if self.rng.random() < 0.05:
            return
        answer = good_answer(request)
        if self.rng.random() < 0.3:
            answer = spoiled(self.rng, answer)
            if self.rng.random() < 0.2:
                self.handle(Received(link, answer))  # twice
        if link in self.links:
            self.handle(Received(link, answer))

    def close(self, link: int) -> None:
        del self.links[link]
        self.requests = [waiting for waiting in self.requests if waiting[0] != link]
        self.handle(Closed(link, "gone"))

    def handle(self, event: Event) -> None:
        self.take(self.node.handle(event, self.now))

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(link, Command() as command):
                    frame.encode(command)
                    if not is_response(command) and not is_oneway(command):
                        self.requests.append((link, command))
                case Dial(address):
                    self.dials.append(address)
                case SetTimer(key, at):
                    self.timers[key] = at
                case DropTimer(key):
                    self.timers.pop(key, None)
                case Hang(link, _) if link in self.links:
                    self.close(link)
                case Deliver(ticket, ConsumeBatch() as batch):
                    self.handed.append(ticket)
                    self.handed_messages += len(batch.messages)
                case Deliver(ticket, batch):
                    self.handed.append(ticket)
                    self.checks.append(batch)
                case Answer(call_id, result):
                    assert call_id not in self.settled, "a call was answered twice"
                    self.settled.add(call_id)
                    self.results.append(result)
                    assert not isinstance(result, Exception) or isinstance(result, SteelyardError)
                    self.answers[type(result).__name__] += 1


QUEUE = MessageQueue("TopicA", "broker-a", 0)
SEEDS = range(int(os.environ.get("FUZZ_SEEDS", "4")))


def calls_end(world: HostileWorld, stop: object) -> None:
    """Once all links are dead and time has passed, every call has its answer, and a stop succeeds."""
    world.asked += 1
    world.handle(Asked(world.asked, stop))
    for _ in range(400):
        for link in sorted(world.links):
            world.close(link)
        while world.dials:
            world.handle(Refused(world.dials.pop(0), "nobody there"))
        while world.handed:
            world.handle(Handled(world.handed.pop(0), None))
        for key in [key for key, at in world.timers.items() if at <= world.now]:
            if world.timers.pop(key, None) is not None:
                world.handle(Due(key))
        world.now += 500
    world.node.check()
    assert len(world.settled) == world.asked, "a call was never answered"


@pytest.mark.parametrize("seed", SEEDS)
def test_producer(seed: int) -> None:
    rng = Random(seed)
    config = ProducerConfig(
        nameservers=("127.0.0.1:9876", "127.0.0.1:9877"),
        group="pg",
        client_id="me",
        checks=True,
        latency_faults=rng.choice(("off", "4.x", "5.x")),
        detect=rng.random() < 0.5,
    )
    node = ProducerNode(config, UniqueIds(b"\x7f\0\0\1", 1, 2), rng)
    world = HostileWorld(node, rng)
    message = Message("TopicA", b"x")

    def call() -> object:
        halves = [result for result in world.results if isinstance(result, Half)]
        world.results.clear()
        if halves:
            return EndTransaction(halves[0], rng.choice(list(TransactionState)))
        match rng.randrange(8):
            case 0:
                return FetchQueues("TopicA")
            case 1:
                return SendHalf(message)
            case 2:
                return SendRequest(message, timeout_ms=1000)
            case 3:
                return SendOneway((message,))
            case 4:
                return SendMessages((message,), queue=QUEUE)
        return SendMessages((message,) * rng.choice((1, 1, 2)))

    world.run(2000, call)
    assert world.answers["SendResult"] > 5
    assert len(world.answers) > 2  # some failed, and said how
    calls_end(world, producer_contract.Stop())


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_consumer(seed: int, orderly: bool) -> None:
    rng = Random(seed)
    config = ConsumerConfig(
        nameservers=("127.0.0.1:9876", "127.0.0.1:9877"),
        group="cg",
        client_id="me",
        subscriptions=(Subscription("TopicA", "TagA"),),
        orderly=orderly,
        consume_from=rng.choice(list(ConsumeFrom)),
        clean_handover=rng.random() < 0.5,
    )
    world = HostileWorld(ConsumerNode(config, rng), rng)
    world.verdicts = list(ConsumeOrderlyStatus if orderly else ConsumeStatus)
    world.run(2000, Describe)
    assert world.answers["ConsumerState"] > 5
    assert world.handed_messages > 10
    calls_end(world, consumer_contract.Stop())


@pytest.mark.parametrize("seed", SEEDS)
def test_lite_pull_consumer(seed: int) -> None:
    rng = Random(seed)
    config = LitePullConfig(
        nameservers=("127.0.0.1:9876", "127.0.0.1:9877"),
        group="cg",
        client_id="me",
        subscriptions=(Subscription("TopicA", "TagA"),),
    )
    world = HostileWorld(ConsumerNode(config, rng), rng)
    number = 0

    def call() -> object:
        nonlocal number
        number += 1
        return rng.choice(
            (
                consumer_contract.Poll(10, 1000, number),
                consumer_contract.Poll(10, 0, number),
                consumer_contract.Commit(),
                consumer_contract.Seek(QUEUE, rng.choice((0, 5, consumer_contract.Bound.END))),
                consumer_contract.PauseQueues((QUEUE,)),
                consumer_contract.ResumeQueues((QUEUE,)),
                consumer_contract.Assignment(),
                questions.QueryConsumerOffset(QUEUE),
                questions.OffsetForTimestamp(QUEUE, NOW),
                questions.FetchQueues("TopicA"),
            )
        )

    world.run(2000, call)
    assert world.answers["tuple"] > 5
    calls_end(world, consumer_contract.Stop())


@pytest.mark.parametrize("seed", SEEDS)
def test_pull_consumer(seed: int) -> None:
    rng = Random(seed)
    config = ConsumerConfig(
        nameservers=("127.0.0.1:9876", "127.0.0.1:9877"),
        group="cg",
        client_id="me",
        subscriptions=(Subscription("TopicA", "*"),),
    )
    world = HostileWorld(PullerNode(config, rng), rng)

    def call() -> object:
        offset = rng.choice((0, 3, 2**40))
        return rng.choice(
            (
                questions.Pull(QUEUE, offset),
                questions.Pull(QUEUE, offset, hold_ms=1000),
                questions.QueryConsumerOffset(QUEUE),
                questions.CommitOffset(QUEUE, offset),
                questions.MinOffset(QUEUE),
                questions.MaxOffset(QUEUE),
                questions.OffsetForTimestamp(QUEUE, NOW),
                questions.FetchQueues("TopicA"),
                Balanced("TopicA"),
            )
        )

    world.run(2000, call)
    assert world.answers["PullResult"] > 5
    calls_end(world, consumer_contract.Stop())


@pytest.mark.parametrize("seed", SEEDS)
def test_admin(seed: int) -> None:
    rng = Random(seed)
    world = HostileWorld(AdminNode(), rng)

    def call() -> object:
        command = garbage.any_command(rng)
        code = rng.choice((105, 14, 29, 30))
        fixed = msgspec.structs.replace(
            command, code=code, flag=0, ext={"queueOffset": "0"}, body=b""
        )
        return Invoke(rng.choice(("127.0.0.1:9876", "127.0.0.1:10911")), fixed, 3000)

    world.run(2000, call)
    assert world.answers["Command"] > 5
    calls_end(world, "no such call")
