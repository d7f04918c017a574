"""The one Spark session of the tests, and a small peer that answers as an Apache nameserver and broker do."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from steelyard.wire.remoting import fastjson, frame, headers
from steelyard.wire.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRouteData,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command
from steelyard.wire.remoting.message import batch_entries, encode_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKER = "broker-a"
STORED_MS = 1_700_000_000_500


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from steelyard.spark.session import session

    made = session()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs print their errors alone, however long they take here."""
    monkeypatch.setattr("steelyard.spark.terminal.LOG_INTERVAL_S", 86_400.0)


@dataclass
class Peer:
    """Nameserver and broker in one: `queues[topic][queue id]` holds records, the first one at offset `least`.

    It gives 32 messages a pull as Apache does, and what the brief of a pull allows where that is less.
    """

    address: str = ""
    queues: dict[str, list[list[bytes]]] = field(default_factory=dict)
    least: int = 0
    pull_messages_max: int = 32
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    replies: dict[int, Callable[[Command], Command | bytes]] = field(default_factory=dict)
    """Answers of a test's own, by request code; bytes are sent as they are."""
    asked: list[Command] = field(default_factory=list)

    def fill(self, topic: str, queues: int, count: int, body: bytes = b"body %d") -> None:
        """`count` messages in each of `queues` queues."""
        self.queues[topic] = [
            [stored(topic, queue, n, body.replace(b"%d", b"%d" % n)) for n in range(count)]
            for queue in range(queues)
        ]

    def put(self, topic: str, *bodies: bytes) -> None:
        """One queue with these messages."""
        self.queues[topic] = [[stored(topic, 0, n, body) for n, body in enumerate(bodies)]]

    def answer(self, request: Command) -> Command | bytes:
        self.asked.append(request)
        if request.code in self.replies:
            return self.replies[request.code](request)
        if request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return Command(0, body=fastjson.write(TopicList(tuple(self.queues))))
        if request.code in (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT):
            return Command(0)
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            brokers = {BROKER: BrokerData("DefaultCluster", BROKER, {0: self.address})}
            cluster = ClusterInfo(brokers, {"DefaultCluster": (BROKER,)})
            return Command(0, body=fastjson.write(cluster))
        topic = request.ext.get("topic", "")
        if topic not in self.queues:
            return Command(ResponseCode.TOPIC_NOT_EXIST, remark=f"no topic {topic}")
        match request.code:
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                count = len(self.queues[topic])
                route = TopicRouteData(
                    (QueueData(BROKER, count, count, 6),),
                    (BrokerData("DefaultCluster", BROKER, {0: self.address}),),
                )
                return Command(0, body=fastjson.write(route))
            case RequestCode.GET_MIN_OFFSET:
                return Command(0, ext={"offset": str(self.least)})
            case RequestCode.GET_MAX_OFFSET:
                records = self.queues[topic][int(request.ext["queueId"])]
                return Command(0, ext={"offset": str(self.least + len(records))})
            case RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                # stored() gives messages times that increase by one from this on
                after = int(request.ext["timestamp"]) - STORED_MS
                records = self.queues[topic][int(request.ext["queueId"])]
                return Command(
                    0, ext={"offset": str(self.least + min(max(after, 0), len(records)))}
                )
            case RequestCode.QUERY_CONSUMER_OFFSET:
                found = self.committed.get((topic, int(request.ext["queueId"])))
                if found is None:
                    return Command(ResponseCode.QUERY_NOT_FOUND, remark="not found")
                return Command(0, ext={"offset": str(found)})
            case RequestCode.UPDATE_CONSUMER_OFFSET:
                queue = topic, int(request.ext["queueId"])
                self.committed[queue] = int(request.ext["commitOffset"])
                return Command(0)
            case RequestCode.PULL_MESSAGE:
                return self.pull(headers.read(headers.PullMessageRequestHeader, request.ext))
        return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    def pull(self, header: headers.PullMessageRequestHeader) -> Command:
        records = self.queues[header.topic][header.queue_id]
        first = header.queue_offset - self.least
        if first < 0:
            return found_nothing(ResponseCode.PULL_OFFSET_MOVED, self.least)
        if first >= len(records):
            return found_nothing(ResponseCode.PULL_NOT_FOUND, header.queue_offset)
        part = records[first : first + min(header.max_msg_nums, self.pull_messages_max)]
        ext = pull_ext(header.queue_offset + len(part))
        return Command(0, remark="FOUND", ext=ext, body=b"".join(part))


def pull_ext(following: int) -> Mapping[str, str]:
    return {
        "nextBeginOffset": str(following),
        "minOffset": "0",
        "maxOffset": "0",
        "suggestWhichBrokerId": "0",
    }


def found_nothing(code: ResponseCode, following: int) -> Command:
    return Command(code, ext=pull_ext(following), remark=code.name)


def stores(peer: Peer, topic: str) -> list[bytes]:
    """Let the peer have an empty topic and take batches for it; the bodies that it took."""
    peer.queues[topic] = [[]]
    bodies: list[bytes] = []

    def store(request: Command) -> Command:
        bodies.extend(body for _, body, _ in batch_entries(request.body))
        return Command(0, ext={"msgId": "m", "queueId": "0", "queueOffset": "0"})

    peer.replies[RequestCode.SEND_BATCH_MESSAGE] = store
    return bodies


def hang_up(_: Command) -> Command:
    """Answer nothing: the connection ends."""
    raise ConnectionAbortedError


def stored(topic: str, queue: int, offset: int, body: bytes, at: int | None = None) -> bytes:
    """A message as a broker has it; `at`: when it was stored, after STORED_MS."""
    return encode_record(
        topic=topic,
        queue_id=queue,
        flag=0,
        queue_offset=offset,
        physical_offset=offset * 1000,
        sys_flag=0,
        born_timestamp=1_700_000_000_000 + offset,
        born_host=b"\x7f\x00\x00\x01\x00\x00\x13\x88",
        store_timestamp=STORED_MS + (offset if at is None else at),
        store_host=b"\x7f\x00\x00\x01\x00\x00\x2a\x9f",
        reconsume_times=0,
        prepared_transaction_offset=-1,
        body=body,
        properties=b"KEYS\x01k%d\x02TAGS\x01t\x02" % offset,
    )


@pytest.fixture
def peer() -> Iterator[Peer]:
    """An empty peer, listening."""
    with listening() as made:
        yield made


@contextmanager
def listening(tls: ssl.SSLContext | None = None) -> Iterator[Peer]:
    """An empty peer."""
    made = Peer()

    class Conversation(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            decoder = frame.Decoder()
            while data := self.request.recv(65_536):
                for request in decoder.feed(data):
                    reply = made.answer(request)
                    if isinstance(reply, Command):
                        reply = frame.encode(
                            Command(
                                reply.code,
                                request.opaque,
                                RESPONSE_FLAG,
                                reply.ext,
                                reply.body,
                                reply.remark,
                                "JAVA",
                            )
                        )
                    self.request.sendall(reply)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a reader that goes away early is part of some tests

    with Server(("127.0.0.1", 0), Conversation) as server:
        made.address = f"127.0.0.1:{server.server_address[1]}"
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        server.shutdown()
        thread.join()
