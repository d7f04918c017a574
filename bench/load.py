"""The load: frames encoded beforehand, thrown at one broker over raw sockets, one request in flight a connection.

A process of its own (`python load.py '{"kind": "send", ...}'`, see `Load`), the same for every server, with
as little Python per request as will do: what it costs is what a client cannot do without. It prints one
JSON line: messages, requests, seconds, failures, the median and 99th percentile of the reply times, and
its own CPU time.
"""

from __future__ import annotations

import json
import re
import select
import socket
import struct
import sys
import time
from array import array
from dataclasses import asdict, dataclass
from itertools import cycle

SEND, BATCH, PULL = 310, 320, 11
UPDATE_TOPIC = 17

_NEXT_OFFSET = re.compile(rb'"nextBeginOffset":"(\d+)"')
_OK = b'"code":0,'


@dataclass(frozen=True)
class Load:
    """What to throw: `kind` is send, batch or pull; a request carries or asks for `batch` messages."""

    kind: str
    address: str
    topic: str
    queues: int
    connections: int
    message_bytes: int
    batch: int
    seconds: float
    requests_max: int = 1 << 60
    """Stop after so many requests, where a topic is to hold a known number."""


def frame(code: int, ext: dict[str, object], body: bytes = b"") -> bytes:
    """One request, its header as JSON, as the Java client writes it."""
    header = json.dumps(
        {
            "code": code,
            "extFields": {key: str(value) for key, value in ext.items()},
            "flag": 0,
            "language": "JAVA",
            "opaque": 1,
            "serializeTypeCurrentRPC": "JSON",
            "version": 409,
        },
        separators=(",", ":"),
    ).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def send_frame(load: Load, queue: int, number: int) -> bytes:
    """A single message or a batch for one queue; `number` makes its UNIQ_KEYs differ from those of others."""
    keys = [f"7F000001{number:012X}{step:012X}" for step in range(load.batch)]
    body = bytes(32 + index % 90 for index in range(load.message_bytes))
    ext = {
        "a": "bench-producer",
        "b": load.topic,
        "c": "TBW102",
        "d": 4,
        "e": queue,
        "f": 0,
        "g": time.time_ns() // 1_000_000,
        "h": 0,
        "j": 0,
        "k": "false",
    }
    if load.kind == "send":
        ext |= {"i": f"UNIQ_KEY\x01{keys[0]}\x02WAIT\x01true\x02TAGS\x01bench\x02", "m": "false"}
        return frame(SEND, ext, body)
    entries = []
    for key in keys:
        properties = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01bench".encode()
        size = 22 + len(body) + len(properties)
        entries.append(
            struct.pack(">iiiii", size, 0, 0, 0, len(body))
            + body
            + struct.pack(">h", len(properties))
            + properties
        )
    return frame(BATCH, ext | {"i": "", "m": "true"}, b"".join(entries))


def pull_frame(load: Load, queue: int, offset: int) -> bytes:
    """Up to `batch` messages from `offset` on; no waiting, no commit."""
    ext = {
        "consumerGroup": "bench-consumer",
        "topic": load.topic,
        "queueId": queue,
        "queueOffset": offset,
        "maxMsgNums": load.batch,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    return frame(PULL, ext)


class Sending:
    """What one connection asks when it sends."""

    def __init__(self, load: Load, number: int) -> None:
        queue = number % load.queues
        frames = [send_frame(load, queue, number * 64 + step) for step in range(64)]
        self._frames = cycle(frames)
        self._batch = load.batch

    def request(self) -> bytes:
        return next(self._frames)

    def reply(self, reply: bytes | bytearray) -> int:
        """Messages that the reply is about, -1 where it is an error."""
        return self._batch if _OK in reply else -1


class Pulling:
    """What one connection asks when it pulls: one queue from its start, and from its start again at the end."""

    def __init__(self, load: Load, number: int) -> None:
        self._load = load
        self._queue = number % load.queues
        self._offset = 0

    def request(self) -> bytes:
        return pull_frame(self._load, self._queue, self._offset)

    def reply(self, reply: bytes | bytearray) -> int:
        head = bytes(reply[:600])
        found = _NEXT_OFFSET.search(head)
        if found is None:
            return -1
        if _OK not in head:  # PULL_NOT_FOUND at the end of the queue
            count, self._offset = 0, 0
            return count
        count, self._offset = int(found[1]) - self._offset, int(found[1])
        return count


def run(load: Load) -> dict[str, float]:
    """Throw the load, return what came of it."""
    host, _, port = load.address.rpartition(":")
    poll = select.epoll()
    links: dict[int, socket.socket] = {}
    asking: dict[int, Sending | Pulling] = {}
    buffers: dict[int, bytearray] = {}
    asked_at: dict[int, int] = {}
    make = Pulling if load.kind == "pull" else Sending
    for number in range(load.connections):
        link = socket.create_connection((host, int(port)), 10)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        links[link.fileno()] = link
        asking[link.fileno()] = make(load, number)
        buffers[link.fileno()] = bytearray()
        poll.register(link.fileno(), select.EPOLLIN)

    clock = time.perf_counter_ns
    took = array("q")
    messages = failures = requests = 0
    cpu = time.process_time()
    begin = clock()
    end = begin + int(load.seconds * 1e9)
    for number, link in links.items():
        asked_at[number] = clock()
        link.sendall(asking[number].request())
        requests += 1
    busy = len(links)
    while busy:
        for number, _event in poll.poll(10):
            link, buffer = links[number], buffers[number]
            data = link.recv(262_144)
            if not data:
                raise ConnectionError("the broker closed the connection")
            buffer += data
            if len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4]):
                continue
            now = clock()
            took.append(now - asked_at[number])
            count = asking[number].reply(buffer)
            if count >= 0:
                messages += count
            else:
                failures += 1
            buffer.clear()
            if now >= end or requests >= load.requests_max:
                busy -= 1
                continue
            asked_at[number] = now
            requests += 1
            link.sendall(asking[number].request())
    seconds = (clock() - begin) / 1e9
    ranked = sorted(took)
    return {
        "messages": messages,
        "requests": len(took),
        "failures": failures,
        "seconds": seconds,
        "messages_per_s": messages / seconds,
        "reply_p50_us": ranked[len(ranked) // 2] / 1e3,
        "reply_p99_us": ranked[len(ranked) * 99 // 100] / 1e3,
        "client_cpu_s": time.process_time() - cpu,
    }


def ask(address: str, request: bytes, timeout_s: float = 5) -> bytes:
    """One request over a connection of its own; the reply's header and body. Raises OSError."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout_s) as link:
        link.sendall(request)
        with link.makefile("rb") as stream:
            size = int.from_bytes(stream.read(4))
            return stream.read(size)


def create_topic(address: str, topic: str, queues: int) -> None:
    """What `mqadmin updateTopic -b` asks."""
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
    reply = ask(address, frame(UPDATE_TOPIC, ext))
    if _OK not in reply:
        raise RuntimeError(f"the broker refuses the topic: {reply!r}")


def sends(address: str, topic: str) -> bool:
    """Whether the broker takes a message now."""
    load = Load("send", address, topic, 1, 1, 100, 1, 0)
    try:
        return _OK in ask(address, send_frame(load, 0, 0))
    except OSError:
        return False


if __name__ == "__main__":
    given = Load(**json.loads(sys.argv[1]))
    print(json.dumps({**asdict(given), **run(given)}))
