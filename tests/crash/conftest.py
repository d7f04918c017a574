"""A broker process that is killed, publishers that note what it acknowledged, and a reader that compares.

The publishers speak the wire themselves: no client of ours stands between the kill and the notes.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from steelyard.wire.remoting import frame, headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import BatchEntry, MessageView, decode_records, encode_batch

STEELYARD = Path(sys.executable).with_name("steelyard")
SECONDS_MAX = 90.0
"""Deadline of each wait: a start, a reply, the end of a publisher."""

SUBSCRIPTION = 4
"""PullSysFlag: the request carries its subscription."""

Queue = tuple[str, int]


class Broker:
    """One broker process on one data directory, started again and again."""

    def __init__(self, data: Path, nameserver: str, flush: str) -> None:
        self.data = data
        self._command = [str(STEELYARD), "broker", "--data", str(data), "--port", "0", "--json"]
        self._command += ["--nameserver", nameserver, "--flush", flush]
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ("", 0)

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        host, _, port = ready(self._process)["broker"].rpartition(":")
        self.address = (host, int(port))

    def kill(self) -> None:
        """SIGKILL; may be called in any thread, and after the end."""
        if self._process is not None:
            self._process.kill()

    def wait(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        code = self._process.wait(SECONDS_MAX)
        self._process.stdout.close()
        self._process = None
        return code

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait()


def ready(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """The line that a server prints when clients can use it."""
    assert process.stdout is not None
    timer = threading.Timer(SECONDS_MAX, process.kill)
    timer.start()
    line = process.stdout.readline()
    timer.cancel()
    assert line, "the server ended before it was ready"
    return msgspec.convert(json.loads(line), dict[str, str])


class Notes:
    """What publishers sent and what the broker acknowledged; kills the broker at the n-th acknowledgement."""

    def __init__(self) -> None:
        self.sent: dict[bytes, Queue] = {}
        self.acknowledged: dict[Queue, dict[int, bytes]] = {}
        self.count = 0
        self._lock = threading.Lock()
        self._kill_at = 0
        self._broker: Broker | None = None

    def arm(self, broker: Broker, acknowledgements: int) -> None:
        self._broker = broker
        self._kill_at = self.count + acknowledgements

    def note_sent(self, queue: Queue, bodies: list[bytes]) -> None:
        with self._lock:
            self.sent.update(dict.fromkeys(bodies, queue))

    def note_acknowledged(self, queue: Queue, first: int, bodies: list[bytes]) -> None:
        with self._lock:
            offsets = self.acknowledged.setdefault(queue, {})
            for number, body in enumerate(bodies):
                assert first + number not in offsets, f"{queue} acknowledged {first + number} twice"
                offsets[first + number] = body
            self.count += len(bodies)
            if self.count >= self._kill_at and self._broker is not None:
                self._broker.kill()


class Publisher(threading.Thread):
    """Sends on one connection, a few requests ahead of the replies, until the connection ends.

    `kind`: single (messages to a few queues), batch (batches to a few queues), creation (each message
    to a topic that is not there yet).
    """

    def __init__(
        self, broker: Broker, notes: Notes, name: str, kind: str, ahead: int, rng: Random
    ) -> None:
        super().__init__(name=name)
        self.failure: str | None = None
        self._broker = broker
        self._notes = notes
        self._kind = kind
        self._ahead = ahead
        self._rng = rng
        self._opaque = 0
        self._waiting: dict[int, tuple[Queue, list[bytes]]] = {}

    def run(self) -> None:
        try:
            with socket.create_connection(self._broker.address, SECONDS_MAX) as connection:
                self._publish(connection)
        except TimeoutError:
            self.failure = "no reply"
        except ConnectionError:
            pass  # the broker was killed
        except AssertionError as error:
            self.failure = str(error)

    def _publish(self, connection: socket.socket) -> None:
        decoder = frame.Decoder()
        while True:
            while len(self._waiting) < self._ahead:
                connection.sendall(frame.encode(self._request()))
            data = connection.recv(65_536)
            if not data:
                return
            for reply in decoder.feed(data):
                queue, bodies = self._waiting.pop(reply.opaque)
                assert reply.code == ResponseCode.SUCCESS, f"{reply.code}: {reply.remark}"
                header = headers.read(headers.SendMessageResponseHeader, reply.ext)
                assert header.queue_id == queue[1]
                self._notes.note_acknowledged(queue, header.queue_offset, bodies)

    def _request(self) -> Command:
        self._opaque += 1
        rng = self._rng
        count = rng.randrange(1, 41) if self._kind == "batch" else 1
        bodies = [
            b"%s/%d/%d:" % (self.name.encode(), self._opaque, number)
            + rng.randbytes(rng.randrange(1_200))
            for number in range(count)
        ]
        queue = (
            (f"made-{self.name}-{self._opaque}" if self._kind == "creation" else "orders"),
            (rng.randrange(3)),
        )
        self._waiting[self._opaque] = queue, bodies
        self._notes.note_sent(queue, bodies)
        header = headers.SendMessageRequestHeaderV2(
            producer_group="publishers",
            topic=queue[0],
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue[1],
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            flag=0,
            properties="TAGS\x01TagA\x02",
            batch=self._kind == "batch",
        )
        body = bodies[0]
        if self._kind == "batch":
            body = encode_batch([BatchEntry(0, body, b"TAGS\x01TagA\x02") for body in bodies])
        code = (
            RequestCode.SEND_BATCH_MESSAGE if self._kind == "batch" else RequestCode.SEND_MESSAGE_V2
        )
        return Command(code, self._opaque, ext=headers.write(header), body=body)


class Reader:
    """Pulls what a broker has and compares it with the notes."""

    def __init__(self, broker: Broker, notes: Notes) -> None:
        self._notes = notes
        self._connection = socket.create_connection(broker.address, SECONDS_MAX)
        self._decoder = frame.Decoder()
        self._opaque = 0

    def close(self) -> None:
        self._connection.close()

    def compare(self, queue: Queue, start: int) -> int:
        """Everything acknowledged from `start` on is there, byte for byte; the offset after the last message.

        Offsets follow each other; a message that was never acknowledged is there whole, or not at all.
        """
        acknowledged = self._notes.acknowledged.get(queue, {})
        offset = start
        seen: set[bytes] = set()
        for message in self.messages(queue, start):
            message.verify()
            body = bytes(message.body)
            assert message.queue_offset == offset, f"{queue}: a gap before {message.queue_offset}"
            assert self._notes.sent.get(body) == queue, f"{queue} at {offset}: nobody sent this"
            assert body not in seen, f"{queue} at {offset}: sent once, stored twice"
            assert acknowledged.get(offset, body) == body, f"{queue} at {offset}: another message"
            assert message.tags == "TagA"
            seen.add(body)
            offset += 1
        lost = [missing for missing in acknowledged if missing >= offset]
        assert not lost, f"{queue} ends at {offset}, acknowledged and lost: {sorted(lost)[:9]}"
        return offset

    def messages(self, queue: Queue, start: int) -> Iterator[MessageView]:
        """Everything in a queue from an offset on."""
        offset = start
        while True:
            reply = self._ask(queue, offset)
            if reply.code == ResponseCode.PULL_NOT_FOUND:
                return
            assert reply.code == ResponseCode.SUCCESS, f"{queue} at {offset}: {reply.remark}"
            yield from decode_records(reply.body, "broker-a")
            header = headers.read(headers.PullMessageResponseHeader, reply.ext)
            assert header.next_begin_offset > offset
            offset = header.next_begin_offset

    def _ask(self, queue: Queue, offset: int) -> Command:
        self._opaque += 1
        header = headers.PullMessageRequestHeader(
            consumer_group="readers",
            topic=queue[0],
            queue_id=queue[1],
            queue_offset=offset,
            max_msg_nums=1_000,
            sys_flag=SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        request = Command(RequestCode.PULL_MESSAGE, self._opaque, ext=headers.write(header))
        self._connection.sendall(frame.encode(request))
        replies: list[Command] = []
        while not replies:
            data = self._connection.recv(1 << 20)
            assert data, "the broker hung up on a pull"
            replies = self._decoder.feed(data)
        (reply,) = replies
        return reply


@pytest.fixture(scope="module")
def nameserver() -> Iterator[str]:
    command = [str(STEELYARD), "nameserver", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        yield ready(process)["nameserver"]
        process.terminate()
