"""A rig that drives one Kafka consumer node through the seam, with scripted brokers behind it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from itertools import count

from steelyard.config import KafkaConsumerConfig
from steelyard.nodes.consumer.kafka.contract import Poll
from steelyard.nodes.consumer.kafka.node import KafkaConsumerNode
from steelyard.nodes.seam import (
    Answer,
    Asked,
    Call,
    Closed,
    Deliver,
    Dial,
    DropTimer,
    Due,
    Effect,
    Event,
    Handled,
    Hang,
    Opened,
    Received,
    Refused,
    Send,
    SetTimer,
)
from steelyard.types import LogLine, TopicPartition
from steelyard.wire.kafka import frame
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import RawReply, Reply, Request
from steelyard.wire.kafka.messages.cluster import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsResponse,
    Coordinator,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from steelyard.wire.kafka.messages.consumer_groups import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from steelyard.wire.kafka.messages.consumer_groups import TopicPartitions as TopicIdPartitions
from steelyard.wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    TopicPartitions,
    write_assignment,
)
from steelyard.wire.kafka.messages.data import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from steelyard.wire.kafka.messages.groups import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from steelyard.wire.kafka.messages.logs import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetResponsePartition,
    OffsetResponseTopic,
)
from steelyard.wire.kafka.records import Record, read_headers, write_batch
from steelyard.wire.kafka.schema import ApiMessage

START = 1_700_000_000_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

Script = Callable[[Request], ApiMessage | None]


def topic_id(name: str | None) -> bytes:
    return (name or "").encode().ljust(16, b"-")


class Cluster:
    """Two brokers in a few lines, `a` leads partition 0, `b` partition 1; a group whose only member is the consumer."""

    def __init__(self) -> None:
        self.addresses = {1: "a:9092", 2: "b:9092"}
        self.leaders = {T0: 1, T1: 2}
        self.up = {1, 2}
        self.logs: dict[TopicPartition, list[bytes]] = {T0: [], T1: []}
        self.ends = {T0: 0, T1: 0}
        self.offsets: dict[TopicPartition, int] = {}
        self.versions: dict[int, tuple[int, int]] = {key: api.versions for key, api in APIS.items()}
        self.asked: list[tuple[int, Request]] = []
        self.errors: dict[str, list[int]] = {}
        """Codes with which the next requests of an API are answered."""
        self.mute: set[str] = set()
        """APIs that get no answer."""
        self.silent: dict[int, set[str]] = {}
        """The same, of one node."""
        self.throttles: dict[int, int] = {}
        """For how long the next answer to a fetch tells the client to wait, by node."""
        self.generation = 0
        self.protocol = "range"
        self.share: tuple[int, ...] = (0, 1)
        """Partitions that a KIP-848 member is assigned."""

    def fill(self, partition: TopicPartition, *values: bytes) -> None:
        """Append one batch."""
        base = self.ends[partition]
        records = [
            Record(base + number, START + number, None, value)
            for number, value in enumerate(values)
        ]
        self.logs[partition].append(write_batch(records))
        self.ends[partition] = base + len(values)

    def names(self, *besides: str) -> list[str]:
        """The APIs that were asked, in their order, without those that go on by themselves."""
        quiet = {"ApiVersions", "Metadata", "Fetch", *besides}
        return [request.api.name for _, request in self.asked if request.api.name not in quiet]

    def requests(self, name: str) -> list[Request]:
        return [request for _, request in self.asked if request.api.name == name]

    def take(self, node: int, request: Request) -> ApiMessage | None:
        self.asked.append((node, request))
        name = request.api.name
        if name in self.mute or name in self.silent.get(node, ()):
            return None
        script: Script = getattr(self, f"_{name.lower()}")
        return script(request)

    def code(self, name: str) -> int:
        codes = self.errors.get(name)
        return codes.pop(0) if codes else 0

    def _apiversions(self, request: Request) -> ApiMessage:
        keys = tuple(ApiVersion(key, *span) for key, span in sorted(self.versions.items()))
        return ApiVersionsResponse(0, keys)

    def _metadata(self, request: Request) -> ApiMessage:
        assert isinstance(request.message, MetadataRequest)
        wanted = request.message.topics
        brokers = tuple(
            MetadataResponseBroker(node, address.partition(":")[0], 9092)
            for node, address in self.addresses.items()
            if node in self.up
        )
        topics = []
        for name in ["t"] if wanted is None else [topic.name for topic in wanted]:
            parts = tuple(
                MetadataResponsePartition(0, key.partition, leader)
                for key, leader in self.leaders.items()
                if key.topic == name
            )
            code = 0 if parts else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(MetadataResponseTopic(code, name, topic_id(name), partitions=parts))
        return MetadataResponse(0, brokers, topics=topics)

    def _fetch(self, request: Request) -> ApiMessage | None:
        assert isinstance(request.message, FetchRequest)
        answered = []
        for topic in request.message.topics:
            for part in topic.partitions:
                key = TopicPartition(topic.topic, part.partition)
                code = self.code("Fetch")
                if self.leaders[key] != self.asked[-1][0]:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                data = b"".join(
                    batch
                    for batch in self.logs[key]
                    if next(iter(read_headers(batch)))[1].next_offset > part.fetch_offset
                )
                if code or data:
                    answered.append((key, PartitionData(key.partition, code, records=data)))
        if not answered:
            return None  # it waits, as a real one does
        return FetchResponse(
            throttle_time_ms=self.throttles.pop(self.asked[-1][0], 0),
            responses=tuple(
                FetchableTopicResponse(key.topic, partitions=(data,)) for key, data in answered
            ),
        )

    def _listoffsets(self, request: Request) -> ApiMessage:
        assert isinstance(request.message, ListOffsetsRequest)
        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    topic.name,
                    tuple(
                        ListOffsetsPartitionResponse(
                            part.partition_index,
                            self.code("ListOffsets"),
                            -1,
                            0
                            if part.timestamp == -2
                            else self.ends[TopicPartition(topic.name, part.partition_index)],
                        )
                        for part in topic.partitions
                    ),
                )
                for topic in request.message.topics
            )
        )

    def _findcoordinator(self, request: Request) -> ApiMessage:
        code = self.code("FindCoordinator")
        return FindCoordinatorResponse(coordinators=(Coordinator("g", 1, "a", 9092, code),))

    def _joingroup(self, request: Request) -> ApiMessage:
        code = self.code("JoinGroup")
        if not code:
            self.generation += 1
        return JoinGroupResponse(
            0, code, self.generation, "consumer", self.protocol, "other", False, "me", ()
        )

    def _syncgroup(self, request: Request) -> ApiMessage:
        data = write_assignment(ConsumerProtocolAssignment((TopicPartitions("t", (0, 1)),)))
        return SyncGroupResponse(0, self.code("SyncGroup"), assignment=data)

    def _heartbeat(self, request: Request) -> ApiMessage:
        return HeartbeatResponse(0, self.code("Heartbeat"))

    def _consumergroupheartbeat(self, request: Request) -> ApiMessage:
        assert isinstance(request.message, ConsumerGroupHeartbeatRequest)
        code = self.code("ConsumerGroupHeartbeat")
        if not code and request.message.member_epoch == 0:
            self.generation += 1
        share = Assignment((TopicIdPartitions(topic_id("t"), self.share),))
        return ConsumerGroupHeartbeatResponse(
            0, code, None, request.message.member_id, self.generation, 5_000, share
        )

    def _leavegroup(self, request: Request) -> ApiMessage:
        return LeaveGroupResponse()

    def _offsetfetch(self, request: Request) -> ApiMessage:
        assert isinstance(request.message, OffsetFetchRequest)
        code = self.code("OffsetFetch")
        (group,) = request.message.groups
        topics = tuple(
            OffsetFetchResponseTopic(
                topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        number,
                        self.offsets.get(TopicPartition(topic.name, number), -1),
                        -1,
                        "",
                        code,
                    )
                    for number in topic.partition_indexes
                ),
            )
            for topic in group.topics or ()
        )
        return OffsetFetchResponse(groups=(OffsetFetchResponseGroup("g", topics),))

    def _offsetcommit(self, request: Request) -> ApiMessage:
        assert isinstance(request.message, OffsetCommitRequest)
        code = self.code("OffsetCommit")
        topics = []
        for topic in request.message.topics:
            for part in topic.partitions:
                if not code:
                    key = TopicPartition(topic.name, part.partition_index)
                    self.offsets[key] = part.committed_offset
                answer = OffsetResponsePartition(part.partition_index, code)
                topics.append(OffsetResponseTopic(topic.name, partitions=(answer,)))
        return OffsetCommitResponse(topics=topics)


class Rig:
    """The node, virtual time, and the links to the cluster's brokers."""

    def __init__(self, *, hooks: bool = False, **settings: object) -> None:
        config = KafkaConsumerConfig(
            **{  # type: ignore[arg-type]
                "bootstrap_servers": ("a:9092",),
                "group_id": "g",
                "auto_offset_reset": "earliest",
                **({} if "group_protocol" in settings else {"assignors": ("range",)}),
                **settings,
            }
        )
        self.cluster = Cluster()
        self.node = KafkaConsumerNode(config, random.Random(1), hooks=hooks)
        self.now = START
        self.links: dict[int, int] = {}
        self.hung: list[str] = []
        self.told: list[str] = []
        self.handed: list[object] = []
        self.hold_hooks = False
        self.answers: dict[int, object] = {}
        self.out_of_order = False
        self.nonsense: dict[str, bytes] = {}
        """What comes instead of an answer, behind its correlation id."""
        self.spoil: Callable[[bytes], bytes] | None = None
        """What becomes of the bytes of an answer, its correlation id first, on their way."""
        self._numbers = count(100)
        self._calls = 0
        self._timers: dict[object, int] = {}
        self._events: deque[Event] = deque()
        self._tickets: list[int] = []
        self._perform(self.node.start(self.now))

    # -- the seam ----------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Dial(address=address):
                    self._dial(address)
                case Send(link=link, message=message):
                    assert isinstance(message, Request)
                    self._send(link, message)
                case Hang(link=link, reason=reason):
                    self.hung.append(reason)
                    if self.links.pop(link, None) is not None:
                        self._events.append(Closed(link, reason))
                case SetTimer(key=key, at=at):
                    self._timers[key] = at
                case DropTimer(key=key):
                    self._timers.pop(key, None)
                case Answer(call_id=call_id, result=result):
                    assert call_id not in self.answers
                    self.answers[call_id] = result
                case Deliver(ticket=ticket, batch=batch):
                    self.handed.append(batch)
                    self._tickets.append(ticket)
                    if not self.hold_hooks:
                        self.finish_hook()
                case LogLine(text=text):
                    self.told.append(text)
                case _:
                    raise AssertionError(effect)

    def _dial(self, address: str) -> None:
        node = next((n for n, a in self.cluster.addresses.items() if a == address), 0)
        if node not in self.cluster.up:
            self._events.append(Refused(address, "nobody there"))
            return
        link = next(self._numbers)
        self.links[link] = node
        self._events.append(Opened(link, address, dialed=True, dialect="kafka"))

    def _send(self, link: int, request: Request) -> None:
        node = self.links.get(link)
        if node is None or node not in self.cluster.up:
            return
        # Over the wire and back, so that what is asked is what a broker can read.
        (read,) = frame.RequestDecoder().feed(frame.encode(request))
        known = self.cluster.versions.get(request.api.key)
        version = request.version
        if request.api.key == API_VERSIONS.key and known and version > known[1]:
            keys = (ApiVersion(API_VERSIONS.key, *known),)
            answer: ApiMessage | None = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, keys)
            version = 0
        else:
            assert known is not None
            assert known[0] <= version <= known[1], f"{request.api.name} version {version}"
            answer = self.cluster.take(node, read)
        if answer is not None and request.api.name in self.nonsense:
            garbage = request.correlation_id.to_bytes(4, "big") + self.nonsense[request.api.name]
            self._events.append(Received(link, RawReply(request.correlation_id, garbage)))
        elif answer is not None:
            reply = frame.encode(Reply(request.api, version, request.correlation_id, answer))
            number = request.correlation_id + 7 * self.out_of_order
            data = reply[4:]
            if self.spoil is not None:
                data = self.spoil(data)
                number = int.from_bytes(data[:4].ljust(4, b"\0"), "big", signed=True)
            self._events.append(Received(link, RawReply(number, data)))

    def finish_hook(self) -> None:
        self._events.append(Handled(self._tickets.pop(0), None))

    def run(self) -> None:
        """Until nothing happens any more by itself."""
        for _ in range(1000):
            if self._events:
                self._perform(self.node.handle(self._events.popleft(), self.now))
                self.node.check()
                continue
            due = [key for key, at in self._timers.items() if at <= self.now]
            if not due:
                return
            del self._timers[due[0]]
            self._events.append(Due(due[0]))
        raise AssertionError("it never comes to rest")

    def pass_time(self, milliseconds: int) -> None:
        end = self.now + milliseconds
        self.run()
        while self._timers and min(self._timers.values()) <= end:
            self.now = max(self.now, min(self._timers.values()))
            self.run()
        self.now = end

    def cut(self, node: int) -> None:
        """All links to a broker die."""
        for link in [link for link, peer in self.links.items() if peer == node]:
            del self.links[link]
            self._events.append(Closed(link, "cut"))

    # -- the application ---------------------------------------------------------------------------

    def ask(self, call: Call[object]) -> int:
        """The number under which the answer will be in `answers`."""
        self._calls += 1
        self._events.append(Asked(self._calls, call))
        self.run()
        return self._calls

    def result(self, call: Call[object]) -> object:
        """The answer, which must come without time going by."""
        number = self.ask(call)
        assert number in self.answers, f"{call} was not answered"
        return self.answers[number]

    def begin_poll(self, timeout_ms: int = 100, records_max: int = 500) -> int:
        return self.ask(Poll(records_max, timeout_ms, self._calls + 1))

    def poll(self, timeout_ms: int = 100, records_max: int = 500) -> list[bytes | None]:
        """The values that a poll returns; raises what it is answered with."""
        number = self.begin_poll(timeout_ms, records_max)
        if number not in self.answers:
            self.pass_time(timeout_ms)
        answer = self.answers[number]
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, tuple)
        return [record.value for record in answer]
