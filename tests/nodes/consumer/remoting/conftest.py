"""A rig that drives one client node through the seam, with scripted nameservers and brokers behind it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable

from steelyard.config import ConsumerConfig
from steelyard.groups.remoting.locks import QueueLocks
from steelyard.nodes.consumer.remoting.contract import ConsumeBatch, ConsumerState, Describe
from steelyard.nodes.consumer.remoting.node import ConsumerNode
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
    Persist,
    Received,
    Refused,
    Send,
    SetTimer,
)
from steelyard.types import ConsumeStatus, LogLine, MessageQueue, Subscription
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import (
    Body,
    BrokerData,
    ConsumerListBody,
    HeartbeatData,
    LockBatchBody,
    LockBatchResponseBody,
    QueueData,
    TopicRouteData,
)
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command, is_oneway, is_response
from steelyard.wire.remoting.flags import SysFlag
from steelyard.wire.remoting.message import BatchEntry, encode_batch, encode_record

Script = Callable[[Command], Command | None]
START = 1_700_000_000_000


def reply(code: int = 0, remark: str = "", body: Body | bytes = b"", **ext: object) -> Command:
    """A response, its opaque still to be set."""
    data = body if isinstance(body, bytes) else fastjson.write(body)
    texts = {name: str(value) for name, value in ext.items()}
    return Command(code=code, flag=RESPONSE_FLAG, ext=texts, body=data, remark=remark)


class Peer:
    """Somebody at an address. `script[code]` answers requests of that code; None: no answer, or later."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.up = True
        self.asked: list[Command] = []
        self.script: dict[int, Script] = {}

    def take(self, command: Command) -> Command | None:
        self.asked.append(command)
        script = self.script.get(command.code)
        return reply(3, "not supported") if script is None else script(command)

    def codes(self) -> list[int]:
        return [command.code for command in self.asked]

    def count(self, code: int) -> int:
        return self.codes().count(code)


class Nameserver(Peer):
    def __init__(self, address: str = "ns:9876") -> None:
        super().__init__(address)
        self.routes: dict[str, TopicRouteData] = {}
        self.script[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self.route

    def route(self, command: Command) -> Command:
        found = self.routes.get(command.ext["topic"])
        return reply(17, "no route") if found is None else reply(body=found)

    def add(self, topic: str, *brokers: Broker, queues: int = 4, perm: int = 6) -> None:
        """The topic is on these brokers now."""
        self.routes[topic] = TopicRouteData(
            tuple(QueueData(b.name, queues, queues, perm) for b in brokers),
            tuple(BrokerData("c", b.name, {0: b.address}) for b in brokers),
        )


class Broker(Peer):
    """A broker in a few lines: queues in memory, members as heartbeats say, pulls held until `publish`, and
    the locks of a real one."""

    def __init__(self, name: str, address: str) -> None:
        super().__init__(address)
        self.name = name
        self.members: list[str] = []
        self.logs: dict[tuple[str, int], list[bytes]] = {}
        self.offsets: dict[tuple[str, int], int] = {}
        self.held: list[Command] = []
        self.sent_back: list[int] = []
        self.locks = QueueLocks(60_000)
        self.clock: Callable[[], int] = lambda: START
        self.script = {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._list,
            RequestCode.QUERY_CONSUMER_OFFSET: self._offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            RequestCode.GET_MAX_OFFSET: lambda c: reply(offset=len(self.log(c))),
            RequestCode.GET_MIN_OFFSET: lambda c: reply(offset=0),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda c: reply(offset=1),
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
        }

    def log(self, command: Command) -> list[bytes]:
        key = (command.ext["topic"], int(command.ext["queueId"]))
        return self.logs.setdefault(key, [])

    def fill(self, topic: str, queue_id: int, count: int, properties: bytes = b"") -> None:
        """Put `count` messages into a queue."""
        log = self.logs.setdefault((topic, queue_id), [])
        for _ in range(count):
            log.append(record(topic, queue_id, len(log), properties=properties))

    def _heartbeat(self, command: Command) -> Command:
        client = fastjson.read(HeartbeatData, command.body).client_id
        if client not in self.members:
            self.members.append(client)
        return reply()

    def _unregister(self, command: Command) -> Command:
        self.members = [m for m in self.members if m != command.ext["clientID"]]
        return reply()

    def _list(self, command: Command) -> Command:
        if not self.members:
            return reply(1, "no consumer for this group")
        return reply(body=ConsumerListBody(tuple(self.members)))

    def _offset(self, command: Command) -> Command:
        key = (command.ext["topic"], int(command.ext["queueId"]))
        return reply(22) if key not in self.offsets else reply(offset=self.offsets[key])

    def _commit(self, command: Command) -> Command:
        key = (command.ext["topic"], int(command.ext["queueId"]))
        self.offsets[key] = int(command.ext["commitOffset"])
        return reply()

    def _pull(self, command: Command) -> Command | None:
        log = self.log(command)
        first = int(command.ext["queueOffset"])
        if int(command.ext["sysFlag"]) & 1:
            self._commit(command)
        messages = log[first : first + int(command.ext["maxMsgNums"])]
        if not messages:
            self.held.append(command)
            return None
        following = first + len(messages)
        return pulled(messages, following)

    def _lock(self, command: Command) -> Command:
        body = fastjson.read(LockBatchBody, command.body)
        held = self.locks.lock(body.consumer_group, body.client_id, body.mq_set, self.clock())
        return reply(body=LockBatchResponseBody(tuple(held)))

    def _unlock(self, command: Command) -> Command:
        body = fastjson.read(LockBatchBody, command.body)
        self.locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return reply()

    def owner(self, topic: str, queue_id: int) -> str | None:
        """Who of group g has the queue's lock."""
        return self.locks.owner("g", MessageQueue(topic, self.name, queue_id), self.clock())

    def occupy(self, client_id: str, *queues: MessageQueue) -> None:
        """Somebody else of group g locks these queues."""
        assert self.locks.lock("g", client_id, queues, self.clock()) == list(queues)

    def _send_back(self, command: Command) -> Command:
        self.sent_back.append(int(command.ext["offset"]))
        return reply()

    def _send(self, command: Command) -> Command:
        key = (command.ext["b"], int(command.ext["e"]))
        log = self.logs.setdefault(key, [])
        log.append(command.body)
        return reply(msgId="0A", queueId=key[1], queueOffset=len(log) - 1)


def pulled(messages: list[bytes], following: int, code: int = 0) -> Command:
    """An answer to PULL_MESSAGE."""
    return reply(
        code,
        body=b"".join(messages),
        nextBeginOffset=following,
        minOffset=0,
        maxOffset=following,
        suggestWhichBrokerId=0,
    )


def record(
    topic: str,
    queue_id: int,
    offset: int,
    *,
    properties: bytes = b"",
    body: bytes = b"body",
    sys_flag: int = 0,
) -> bytes:
    """One stored message; its position is its offset times 1000."""
    return encode_record(
        topic=topic,
        queue_id=queue_id,
        flag=0,
        queue_offset=offset,
        physical_offset=offset * 1000,
        sys_flag=sys_flag,
        born_timestamp=START,
        born_host=b"\x7f\0\0\1\0\0\x10\0",
        store_timestamp=START,
        store_host=b"\x7f\0\0\1\0\0\x10\0",
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=properties,
    )


def inner_batch(topic: str, queue_id: int, offset: int, *tags: str) -> bytes:
    """Messages that Apache's broker stores as one, in a topic with `queue.type=BatchCQ`."""
    entries = [BatchEntry(0, b"body", b"TAGS\x01%s\x02" % tag.encode()) for tag in tags]
    marks = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
    return record(topic, queue_id, offset, body=encode_batch(entries), sys_flag=marks)


class Rig:
    """Makes a node's effects true at once, in virtual time, and checks the node after every event."""

    def __init__(self, node: Node, *peers: Peer) -> None:
        self.node = node
        self.peers = {peer.address: peer for peer in peers}
        self.now = START
        for peer in peers:
            if isinstance(peer, Broker):
                peer.clock = lambda: self.now
        self.sent: list[tuple[str, Command]] = []
        self.answers: dict[int, object] = {}
        self.hands: list[Deliver] = []
        self.tells: list[LogLine] = []
        self.kept: list[bytes] = []
        self.timers: dict[Hashable, int] = {}
        self.links: dict[int, str] = {}
        self._queue: deque[Event] = deque()
        self._link = 0
        self._ticket = 0
        self._call = 0
        self.held_at: dict[int, int] = {}
        self.steps_max = 20_000

    def start(self) -> Rig:
        self._apply(self.node.start(self.now))
        self.settle()
        return self

    def put(self, event: Event) -> None:
        """One event, and all that follows from it at once."""
        self._queue.append(event)
        self.settle()

    def settle(self) -> None:
        steps = 0
        while self._queue:
            steps += 1
            assert steps < self.steps_max, "the node does not come to rest"
            self._apply(self.node.handle(self._queue.popleft(), self.now))
            self.node.check()

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Dial(address=address):
                    peer = self.peers.get(address)
                    if peer is None or not peer.up:
                        self._queue.append(Refused(address, "nobody there"))
                        continue
                    self._link += 1
                    self.links[self._link] = address
                    self._queue.append(Opened(self._link, address, dialed=True))
                case Send(link=link, message=Command() as command):
                    self._deliver(link, command)
                case Hang(link=link, reason=reason):
                    self.links.pop(link, None)
                    self._queue.append(Closed(link, reason))
                case SetTimer(key=key, at=at):
                    self.timers[key] = at
                case DropTimer(key=key):
                    self.timers.pop(key, None)
                case Answer(call_id=call_id, result=result):
                    assert call_id not in self.answers, "answered twice"
                    self.answers[call_id] = result
                case Deliver():
                    self.hands.append(effect)
                case Persist(data=data):
                    self.kept.append(data)
                case LogLine():
                    self.tells.append(effect)
                case _:
                    raise AssertionError(f"unexpected {effect!r}")

    def _deliver(self, link: int, command: Command) -> None:
        address = self.links.get(link)
        if address is None:
            return
        self.sent.append((address, command))
        if is_response(command):
            return
        self.held_at[command.opaque] = self.now
        answer = self.peers[address].take(command)
        if answer is not None and not is_oneway(command):
            self._queue.append(Received(link, _numbered(answer, command.opaque)))

    # -- what tests do -----------------------------------------------------------------------------

    def ask(self, call: object) -> int:
        """A call of the application; its result will be in `answers`."""
        self._call += 1
        self.put(Asked(self._call, call))
        return self._call

    def advance(self, ms: int) -> None:
        """Let time pass: every timer in it comes due, and brokers end their long polls."""
        end = self.now + ms
        while True:
            timer = min(((at, repr(key), key) for key, at in self.timers.items()), default=None)
            ended = self._next_hold()
            if ended is not None and ended[0] <= end and (timer is None or ended[0] < timer[0]):
                self.now = max(self.now, ended[0])
                self._end_hold(ended[1])
            elif timer is not None and timer[0] <= end:
                del self.timers[timer[2]]
                self.now = max(self.now, timer[0])
                self.put(Due(timer[2]))
            else:
                break
        self.now = end

    def _next_hold(self) -> tuple[int, Broker] | None:
        """When the first held pull is to be answered, and by whom."""
        brokers = [peer for peer in self.peers.values() if isinstance(peer, Broker) and peer.held]
        found = [
            (self.held_at[b.held[0].opaque] + int(b.held[0].ext["suspendTimeoutMillis"]), b)
            for b in brokers
        ]
        return min(found, key=lambda item: item[0], default=None)

    def _end_hold(self, broker: Broker) -> None:
        command = broker.held.pop(0)
        self.answer(broker, command, pulled([], int(command.ext["queueOffset"]), 19))

    def link_to(self, peer: Peer) -> int:
        return next(link for link, address in self.links.items() if address == peer.address)

    def push(self, peer: Peer, command: Command) -> None:
        """The peer says something by itself, or answers late."""
        self.put(Received(self.link_to(peer), command))

    def answer(self, peer: Peer, request: Command, answer: Command) -> None:
        """The peer answers a request that it held back, unless its connection is closed."""
        if peer.address in self.links.values():
            self.push(peer, _numbered(answer, request.opaque))

    def crash(self, peer: Peer) -> None:
        """The peer is gone, with its links and what it held."""
        peer.up = False
        if isinstance(peer, Broker):
            peer.held.clear()
            peer.members.clear()
            peer.locks = QueueLocks(60_000)
        for link in [link for link, address in self.links.items() if address == peer.address]:
            del self.links[link]
            self._queue.append(Closed(link, "reset by peer"))
        self.settle()

    def publish(
        self, broker: Broker, topic: str, queue_id: int, count: int, properties: bytes = b""
    ) -> None:
        """Messages arrive, and a held pull of their queue is answered."""
        broker.fill(topic, queue_id, count, properties)
        for command in list(broker.held):
            if (command.ext["topic"], command.ext["queueId"]) == (topic, str(queue_id)):
                broker.held.remove(command)
                answer = broker.script[RequestCode.PULL_MESSAGE](command)
                if answer is not None:
                    self.answer(broker, command, answer)

    def handled(self, hand: Deliver, *, ok: bool = True) -> None:
        """The listener is done."""
        self.hands.remove(hand)
        status = ConsumeStatus.CONSUME_SUCCESS if ok else ConsumeStatus.RECONSUME_LATER
        self.put(Handled(hand.ticket, status))

    def handle_all(self) -> list[int]:
        """The listener is done with everything it has and gets. Returns the offsets it saw."""
        offsets: list[int] = []
        while self.hands:
            offsets += offsets_of(self.hands[0])
            self.handled(self.hands[0])
        return offsets

    def to(self, peer: Peer, *codes: int) -> list[Command]:
        """What was sent to the peer, of these codes."""
        return [c for address, c in self.sent if address == peer.address and c.code in codes]


def _numbered(command: Command, opaque: int) -> Command:
    return Command(
        code=command.code,
        opaque=opaque,
        flag=command.flag,
        ext=command.ext,
        body=command.body,
        remark=command.remark,
    )


def batch_of(hand: Deliver) -> ConsumeBatch:
    assert isinstance(hand.batch, ConsumeBatch)
    return hand.batch


def offsets_of(hand: Deliver) -> list[int]:
    return [message.queue_offset for message in batch_of(hand).messages]


def rng() -> random.Random:
    return random.Random(7)


def queues(topic: str, broker: str, *numbers: int) -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue(topic, broker, number) for number in numbers)


class Group:
    """One member of group g, a nameserver, and the brokers a and b with `count` queues of T each."""

    def __init__(self, count: int = 2, **settings: object) -> None:
        self.a, self.b, self.ns = Broker("a", "a:1"), Broker("b", "b:1"), Nameserver()
        self.ns.add("T", self.a, self.b, queues=count)
        values = {
            "nameservers": ("ns:9876",),
            "group": "g",
            "client_id": "c1",
            "subscriptions": (Subscription("T"),),
        } | settings
        self.config = ConsumerConfig(**values)  # type: ignore[arg-type]
        self.rig = Rig(ConsumerNode(self.config, rng()), self.ns, self.a, self.b)

    def start(self) -> Rig:
        self.rig.start()
        self.rig.advance(0)
        return self.rig

    def state(self) -> ConsumerState:
        answer = self.rig.answers[self.rig.ask(Describe())]
        assert isinstance(answer, ConsumerState)
        return answer

    def offset(self, broker: str, number: int, topic: str = "T") -> int:
        """What would be committed now."""
        return self.state().offsets[MessageQueue(topic, broker, number)]

    def pulls(self, broker: Broker, number: int = 0) -> list[Command]:
        """The pulls of one queue of T that the broker got."""
        found = self.rig.to(broker, 11)
        return [c for c in found if (c.ext["topic"], c.ext["queueId"]) == ("T", str(number))]

    def commits(self, broker: Broker, number: int = 0) -> list[int]:
        """The one-way commits of one queue of T that the broker got."""
        found = [c for c in self.rig.to(broker, 15) if c.ext["queueId"] == str(number)]
        return [int(c.ext["commitOffset"]) for c in found]
