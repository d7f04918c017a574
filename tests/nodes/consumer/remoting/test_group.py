"""Real nodes wired together: nameserver, two brokers, a producer and a group of consumers, in virtual time."""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import NamedTuple

from tests.nodes.consumer.remoting.conftest import START, batch_of

from steelyard.config import BrokerConfig, ConsumerConfig, NameserverConfig, ProducerConfig
from steelyard.errors import SteelyardError
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.consumer.remoting.node import ConsumerNode, ConsumerState, Describe, Stop
from steelyard.nodes.nameserver import NameserverNode
from steelyard.nodes.producer import ProducerNode, SendMessages
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
    Flush,
    Flushed,
    Handled,
    Hang,
    Node,
    Opened,
    Received,
    Refused,
    Send,
    SetTimer,
)
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store
from steelyard.types import (
    ConsumeFrom,
    ConsumeStatus,
    Message,
    MessageQueue,
    SendResult,
    Subscription,
)
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.ids import UniqueIds


class Busy(NamedTuple):
    """Key of a timer: a listener is done then."""

    ticket: int


class Town:
    """Nodes by address; links are pairs of numbers; everything sent arrives in order and at once.

    A listener takes `listen_ms` for a batch; one of `busy` never ends.
    """

    def __init__(self) -> None:
        self.now = START
        self.nodes: dict[str, Node] = {}
        self.answers: dict[int, object] = {}
        self.consumed: list[tuple[str, MessageQueue, int]] = []
        self.bodies: list[bytes] = []
        self.busy: set[str] = set()
        self.deaf: set[str] = set()
        """Hear no notifications."""
        self.listen_ms = 0
        self._far: dict[tuple[str, int], tuple[str, int]] = {}
        self._timers: dict[tuple[str, object], int] = {}
        self._queue: deque[tuple[str, Event]] = deque()
        self._numbers = 0

    def add(self, address: str, node: Node) -> None:
        self.nodes[address] = node
        self._apply(address, node.start(self.now))
        self.settle()

    def kill(self, address: str) -> None:
        """The process is gone; its links break."""
        del self.nodes[address]
        self._timers = {key: at for key, at in self._timers.items() if key[0] != address}
        for near, far in list(self._far.items()):
            if near[0] == address:
                self._hang(*near)
                self._queue.append((far[0], Closed(far[1], "reset")))
        self.settle()

    def settle(self) -> None:
        for _ in range(200_000):
            if not self._queue:
                return
            address, event = self._queue.popleft()
            if address in self.nodes:
                self._apply(address, self.nodes[address].handle(event, self.now))
                self.nodes[address].check()
        raise AssertionError("the nodes do not come to rest")

    def advance(self, ms: int) -> None:
        end = self.now + ms
        while True:
            due = [(at, repr(key), key) for key, at in self._timers.items() if at <= end]
            if not due:
                break
            at, _, (address, key) = min(due)
            del self._timers[address, key]
            self.now = max(self.now, at)
            event = _done(key.ticket) if isinstance(key, Busy) else Due(key)
            self._queue.append((address, event))
            self.settle()
        self.now = end

    def ask(self, address: str, call: object) -> int:
        self._numbers += 1
        number = self._numbers
        self._queue.append((address, Asked(number, call)))
        self.settle()
        return number

    def _apply(self, address: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Dial(address=peer):
                    self._dial(address, peer)
                case Send(link=link, message=message):
                    far = self._far.get((address, link))
                    if far is not None and not (far[0] in self.deaf and _notifies(message)):
                        self._queue.append((far[0], Received(far[1], message)))
                case Hang(link=link, reason=reason):
                    far = self._hang(address, link)
                    self._queue.append((address, Closed(link, reason)))
                    if far is not None:
                        self._queue.append((far[0], Closed(far[1], reason)))
                case SetTimer(key=key, at=at):
                    self._timers[address, key] = at
                case DropTimer(key=key):
                    self._timers.pop((address, key), None)
                case Flush(ticket=ticket):
                    self._queue.append((address, Flushed(ticket)))
                case Answer(call_id=call_id, result=result):
                    self.answers[call_id] = result
                case Deliver():
                    self._hand(address, effect)

    def _hand(self, address: str, hand: Deliver) -> None:
        if address in self.busy:
            return
        batch = batch_of(hand)
        self.consumed += [(address, batch.queue, m.queue_offset) for m in batch.messages]
        self.bodies += [m.body for m in batch.messages]
        if self.listen_ms:
            self._timers[address, Busy(hand.ticket)] = self.now + self.listen_ms
        else:
            self._queue.append((address, _done(hand.ticket)))

    def _dial(self, address: str, peer: str) -> None:
        if peer not in self.nodes:
            self._queue.append((address, Refused(peer, "nobody there")))
            return
        near, far = (address, self._numbers + 1), (peer, self._numbers + 2)
        self._numbers += 2
        self._far[near], self._far[far] = far, near
        self._queue.append((peer, Opened(far[1], f"127.0.0.1:{far[1]}")))
        self._queue.append((address, Opened(near[1], peer, dialed=True)))

    def _hang(self, address: str, link: int) -> tuple[str, int] | None:
        far = self._far.pop((address, link), None)
        if far is not None:
            self._far.pop(far, None)
        return far


def _done(ticket: int) -> Handled:
    return Handled(ticket, ConsumeStatus.CONSUME_SUCCESS)


def _notifies(message: object) -> bool:
    return isinstance(message, Command) and message.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


class Cluster(Town):
    """A nameserver, two brokers, a producer of topic T, and members of group g that read `topics`."""

    def __init__(self, *topics: str, **settings: object) -> None:
        super().__init__()
        self.topics = topics or ("T",)
        self.settings = settings
        self.disks = {"127.0.0.1:1": MemoryDisk(), "127.0.0.1:2": MemoryDisk()}
        self.add("127.0.0.1:9876", NameserverNode(NameserverConfig()))
        for address in self.disks:
            self.add_broker(address)
        config = ProducerConfig(nameservers=("127.0.0.1:9876",), group="p", client_id="p")
        self.add("p", ProducerNode(config, UniqueIds(b"\x7f\0\0\1", 1, 1), random.Random(1)))
        self.sent: list[bytes] = []

    def add_broker(self, address: str) -> None:
        config = BrokerConfig(
            name=f"broker-{address[-1]}", address=address, nameservers=("127.0.0.1:9876",)
        )
        store = Store(self.disks[address], config.store)
        store.open(self.now)
        self.add(address, BrokerNode(config, store, random.Random(2)))

    def join(self, name: str) -> None:
        values = {
            "nameservers": ("127.0.0.1:9876",),
            "group": "g",
            "client_id": name,
            "subscriptions": tuple(Subscription(topic) for topic in self.topics),
            "consume_from": ConsumeFrom.FIRST_OFFSET,
            "consume_batch": 4,
        } | self.settings
        config = ConsumerConfig(**values)  # type: ignore[arg-type]
        self.add(name, ConsumerNode(config, random.Random(3)))

    def send(self, count: int) -> None:
        for _ in range(count):
            body = f"message {len(self.sent)}".encode()
            topic = self.topics[len(self.sent) % len(self.topics)]
            result = self.answers[self.ask("p", SendMessages((Message(topic, body),)))]
            assert isinstance(result, SendResult), result
            self.sent.append(body)

    def held(self, *names: str) -> list[list[MessageQueue]]:
        states = [self.answers[self.ask(name, Describe())] for name in names]
        assert all(isinstance(state, ConsumerState) for state in states)
        return [list(state.held) for state in states if isinstance(state, ConsumerState)]


def spread(held: list[list[MessageQueue]]) -> list[int]:
    """How many queues of T each holds, once each of the 8 is held by one."""
    queues = [queue for part in held for queue in part if queue.topic == "T"]
    assert len(queues) == len(set(queues)) == 8
    return [sum(queue.topic == "T" for queue in part) for part in held]


def test_a_group_grows_and_shrinks_and_nothing_is_lost_or_read_twice() -> None:
    town = Cluster()
    town.send(20)
    town.advance(31_000)
    town.join("c1")
    town.advance(2_000)
    assert Counter(town.bodies) == Counter(town.sent)
    for name in ("c2", "c3"):
        town.advance(6_000)
        town.join(name)
        town.advance(2_000)
        town.send(20)
    assert spread(town.held("c1", "c2", "c3")) == [3, 3, 2]
    stop = town.ask("c2", Stop())
    town.advance(200)  # a commit may still be on its way
    assert town.answers[stop] is None
    town.advance(2_000)
    assert spread(town.held("c1", "c3")) == [4, 4]
    town.send(20)
    town.advance(1_000)
    assert Counter(town.bodies) == Counter(town.sent)


def test_a_member_that_dies_with_messages_in_hand_leaves_them_to_the_others() -> None:
    town = Cluster()
    town.send(20)
    town.advance(31_000)
    town.join("c1")
    town.join("c2")
    town.advance(6_000)
    assert spread(town.held("c1", "c2")) == [4, 4]
    town.busy.add("c1")
    town.send(40)
    assert set(town.bodies) != set(town.sent)
    town.kill("c1")
    town.advance(2_000)
    assert spread(town.held("c2")) == [8]
    assert Counter(town.bodies) == Counter(town.sent)


def test_a_broker_that_restarts_finds_its_group_again() -> None:
    town = Cluster()
    town.send(20)
    town.advance(31_000)
    town.join("c1")
    town.join("c2")
    town.advance(10_000)
    town.kill("127.0.0.1:1")
    town.advance(3_000)
    on_two = [q for part in town.held("c1", "c2") for q in part]
    assert {queue.broker_name for queue in on_two if queue.topic == "T"} == {"broker-2"}
    town.send(20)
    town.add_broker("127.0.0.1:1")
    town.advance(10_000)
    assert spread(town.held("c1", "c2")) == [4, 4]
    town.send(20)
    town.advance(1_000)
    assert Counter(town.bodies) == Counter(town.sent)
    assert not [a for a in town.answers.values() if isinstance(a, SteelyardError)]
