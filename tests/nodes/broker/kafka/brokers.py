"""A nameserver and several brokers in one process, without sockets: what is sent arrives at once, in order; time is ours."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Literal, TypeVar

from msgspec.structs import replace
from tests.nodes.broker.driver import is_checked

from steelyard.config import BrokerConfig, KafkaConfig, NameserverConfig
from steelyard.nodes.broker.identity import identity_of
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.nameserver import NameserverNode
from steelyard.nodes.seam import (
    KAFKA,
    REMOTING,
    Answer,
    Closed,
    Dial,
    DropTimer,
    Due,
    Effect,
    Event,
    Flush,
    Flushed,
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
from steelyard.types import LogLine
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.frame import (
    RawReply,
    Reply,
    ReplyDecoder,
    Request,
    RequestDecoder,
    encode,
)
from steelyard.wire.kafka.messages.cluster import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from steelyard.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from steelyard.wire.kafka.schema import ApiMessage
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

START = 1_700_000_000_000
NAMESERVER = "nameserver:9876"

R = TypeVar("R", bound=ApiMessage)


class Process:
    """One node that runs."""

    def __init__(self, node: Node, addresses: dict[str, str], store: Store | None = None) -> None:
        self.node = node
        self.store = store
        self.addresses = addresses
        """The dialect spoken at each address where it listens."""
        self.timers: dict[Hashable, int] = {}
        self.ends: dict[int, tuple[Process | None, int]] = {}
        """By link: the process at its other end and the link there; None for a client of the test."""


class Brokers:
    """`start`, `kill`, `ask`, `advance`. A broker's node id is the place of its letter: broker-a has 1."""

    def __init__(
        self,
        *names: str,
        listed: tuple[str, ...] = ("broker-a", "broker-b"),
        flush: Literal["async", "sync"] = "async",
        **kafka: int | bool | str,
    ) -> None:
        """`names`: of the brokers to start. `listed`: what each of them is told of all brokers; () for nothing."""
        self.flush = flush
        self.now = START
        self.kafka = kafka
        self.listed = names or listed
        self.processes: dict[str, Process] = {}
        self.disks: dict[str, MemoryDisk] = {}
        self.told: list[LogLine] = []
        self.answers: list[Answer] = []
        """To what was asked of nodes."""
        self.replies: dict[int, Reply | Command] = {}
        self.links = 0
        self.serial = 0
        self.arriving: deque[tuple[Process, Event]] = deque()
        self._events = 0
        self.lost: Callable[[Command], bool] = lambda command: False
        """Requests between processes that never arrive."""
        self.late: Callable[[Command], bool] = lambda command: False
        """Commands that wait until `release`."""
        self.held: list[tuple[Process, Event]] = []
        self.start_nameserver()
        for name in names:
            self.start(name)
        self.advance(1_000)

    # -- processes -------------------------------------------------------------------------------

    def start_nameserver(self) -> None:
        node = NameserverNode(NameserverConfig())
        self._run("nameserver", Process(node, {NAMESERVER: REMOTING}))

    def start(
        self,
        name: str,
        node_id: int | None = None,
        *,
        place: str = "",
        remoting: str = "",
        kafka: str = "",
    ) -> None:
        """`place`: its host, and what the rig knows it by; its name unless given. `remoting`, `kafka`: its addresses."""
        place = place or name
        disk = self.disks.setdefault(place, MemoryDisk())
        config = BrokerConfig(
            name=name,
            address=remoting or f"{place}:10911",
            nameservers=(NAMESERVER,),
            flush=self.flush,
            kafka=KafkaConfig(
                address=kafka or f"{place}:9092",
                node_id=node_id or ord(name[-1]) - ord("a") + 1,
                brokers=tuple(dict.fromkeys((*self.listed, name))) if self.listed else (),
                **self.kafka,  # type: ignore[arg-type]
            ),
        )
        store = Store(disk, config.store, identity_of(config))
        store.open(self.now)
        node = BrokerNode(config, store, random.Random(f"{place} {self.now}"))
        addresses = {config.address: REMOTING, f"{place}:9092": KAFKA}
        self._run(place, Process(node, addresses, store))

    def _run(self, name: str, process: Process) -> None:
        self.processes[name] = process
        self._make_true(process, process.node.start(self.now))
        self._settle()

    def kill(self, name: str) -> None:
        """It is gone; the others see its links close."""
        process = self.processes.pop(name)
        for link in list(process.ends):
            self._hang(process, link)
        self._settle()

    def lose_power(self, name: str, rng: random.Random) -> None:
        """It is gone, and its disk keeps what was synced, and some of the rest."""
        self.kill(name)
        self.disks[name] = self.disks[name].lose_power(rng)

    # -- the driver ------------------------------------------------------------------------------

    def _make_true(self, process: Process, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SetTimer(key, at):
                    process.timers[key] = at
                case DropTimer(key):
                    process.timers.pop(key, None)
                case Send(link, message):
                    self._carry(process, link, message)
                case Dial(address, dialect):
                    self._dial(process, address, dialect)
                case Hang(link):
                    self._hang(process, link)
                    self.arriving.append((process, Closed(link, "hung up")))
                case Flush(ticket):
                    if process.store is not None:
                        process.store.take_dirty().sync()
                    self.arriving.append((process, Flushed(ticket)))
                case LogLine():
                    self.told.append(effect)
                case Answer():
                    self.answers.append(effect)
                case _:
                    raise AssertionError(f"not expected here: {effect}")

    def _carry(self, process: Process, link: int, message: object) -> None:
        if link not in process.ends:
            return
        other, there = process.ends[link]
        if other is not None:
            if not isinstance(message, Command):
                self.arriving.append((other, Received(there, _over_the_wire(message))))
            elif self.late(message):
                self.held.append((other, Received(there, message)))
            elif not self.lost(message):
                self.arriving.append((other, Received(there, message)))
        elif isinstance(message, Reply):
            self.replies[message.correlation_id] = message
        else:
            assert isinstance(message, Command)
            self.replies[message.opaque] = message

    def release(self) -> None:
        """What was held arrives, and nothing is held any more."""
        self.late = lambda command: False
        self.arriving.extend(self.held)
        self.held.clear()
        self._settle()

    def _dial(self, process: Process, address: str, dialect: str) -> None:
        for other in self.processes.values():
            if address in other.addresses:
                self.links += 2
                process.ends[self.links] = other, self.links + 1
                other.ends[self.links + 1] = process, self.links
                accepted = Opened(self.links + 1, "10.0.0.1:5000", False, dialect)
                self.arriving.append((other, accepted))
                self.arriving.append((process, Opened(self.links, address, True, dialect)))
                return
        self.arriving.append((process, Refused(address, "nobody listens")))

    def _hang(self, process: Process, link: int) -> None:
        other, there = process.ends.pop(link, (None, 0))
        if other is not None and other.ends.pop(there, None) is not None:
            self.arriving.append((other, Closed(there, "the other end is gone")))

    def _settle(self) -> None:
        while self.arriving:
            process, event = self.arriving.popleft()
            if process in self.processes.values():
                effects = process.node.handle(event, self.now)
                self._events += 1
                if is_checked(self._events):
                    process.node.check()
                self._make_true(process, effects)

    def advance(self, milliseconds: int) -> None:
        """Let time pass; timers go off in order."""
        until = self.now + milliseconds
        while True:
            due = [
                (at, name, str(key), key)
                for name, process in self.processes.items()
                for key, at in process.timers.items()
                if at <= until
            ]
            if not due:
                break
            at, name, _, key = min(due, key=lambda item: item[:3])
            self.now = max(self.now, at)
            process = self.processes[name]
            del process.timers[key]
            self.arriving.append((process, Due(key)))
            self._settle()
        self.now = until

    # -- clients ---------------------------------------------------------------------------------

    def _connect(self, name: str, dialect: str) -> tuple[Process, int]:
        process = self.processes[name]
        self.links += 2
        process.ends[self.links] = None, 0
        self.arriving.append((process, Opened(self.links, "10.0.0.9:5000", False, dialect)))
        return process, self.links

    def connect(self, name: str) -> int:
        """A link of a Kafka client to a broker."""
        link = self._connect(name, KAFKA)[1]
        self._settle()
        return link

    def post(self, name: str, message: ApiMessage, version: int, link: int | None = None) -> int:
        """Send a Kafka request to a broker, on a new link unless one is given; its correlation id."""
        api = next(api for api in APIS.values() if api.request is type(message))
        if link is None:
            link = self.connect(name)
        process = self.processes[name]
        self.serial += 1
        request = Request(api, version, self.serial, "client", message)
        self.arriving.append((process, Received(link, request)))
        self._settle()
        return self.serial

    def ask(
        self, name: str, message: ApiMessage, version: int, kind: type[R], link: int | None = None
    ) -> R:
        """Send a Kafka request to a broker; its answer, which must have come without the clock."""
        return self.answer(self.post(name, message, version, link), kind)

    def answer(self, correlation_id: int, kind: type[R]) -> R:
        """The answer to a request that was posted."""
        reply = self.replies[correlation_id]
        assert isinstance(reply, Reply)
        assert isinstance(reply.message, kind)
        return reply.message

    def command(self, name: str, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        """Send a RocketMQ request to a broker or the nameserver; its answer."""
        reply = self.replies[self.post_command(name, code, ext, body)]
        assert isinstance(reply, Command)
        return reply

    def post_command(self, name: str, code: int, ext: dict[str, str], body: bytes = b"") -> int:
        """Send a RocketMQ request to a broker or the nameserver; the number of its answer."""
        process, link = self._connect(name, REMOTING)
        self.serial += 1
        request = Command(int(code), self.serial, 0, ext, body)
        self.arriving.append((process, Received(link, request)))
        self._settle()
        return self.serial

    def create_queues(self, name: str, topic: str, queues: int) -> None:
        """Create a topic, or queues of it, through a broker's RocketMQ listener."""
        assert self.ask_for_queues(name, topic, queues) == ResponseCode.SUCCESS

    def ask_for_queues(self, name: str, topic: str, queues: int) -> int:
        """Ask for a topic, or queues of it, through a broker's RocketMQ listener; the answer's code."""
        ext = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
        }
        return self.command(name, RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code

    def copy_config(self, name: str, topic: str, **changes: Any) -> None:
        """Store a topic's settings with changes in a broker's table, as a version before might have left them."""
        node = self.processes[name].node
        assert isinstance(node, BrokerNode)
        config = node._parts.topics.get(topic)
        assert config is not None
        node._parts.topics.put(replace(config, **changes), self.now)

    def create(self, name: str, topic: str, partitions: int) -> CreatableTopicResult:
        """Create a topic through a broker's Kafka listener."""
        request = CreateTopicsRequest([CreatableTopic(topic, partitions, 1)])
        return self.ask(name, request, 7, CreateTopicsResponse).topics[0]

    def metadata(self, name: str, *topics: str, create: bool = False) -> MetadataResponse:
        asked = [MetadataRequestTopic(name=topic) for topic in topics]
        return self.ask(name, MetadataRequest(asked, create), 12, MetadataResponse)

    def leaders(self, name: str, topic: str) -> list[int]:
        """The node ids of a topic's leaders, -1 for none, as a broker tells them; empty for an unknown topic."""
        told = self.metadata(name, topic).topics[0]
        return [partition.leader_id for partition in told.partitions]


def _over_the_wire(message: object) -> Request | RawReply:
    """What the other end reads of a Kafka request or response."""
    assert isinstance(message, Request | Reply)
    decoder = ReplyDecoder() if isinstance(message, Reply) else RequestDecoder()
    (read,) = decoder.feed(encode(message))
    return read
