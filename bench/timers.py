"""A million delayed messages wait: what that takes in memory, how exactly they come, and what a send costs.

`python -m bench.timers` runs it; `--waiting` and `--due` make it smaller. Costs are CPU time of the broker, which other work on the
machine changes little; lateness is the broker's: when a message was written to its queue, less when it was due.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import quantiles

from bench.load import create_topic
from bench.servers import cpu_s

from steelyard.wire.remoting import frame, headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import MessageView, decode_records

STEELYARD = str(Path(sys.executable).with_name("steelyard"))
TOPIC = "Timed"
BODY = b"x" * 100
AHEAD = 500
"""Requests that are sent ahead of their replies."""
HOUR_MS = 3_600_000


class Broker:
    """A broker process on a folder; `start` again after `kill`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self) -> float:
        """Start it; return after how many seconds it was ready."""
        begun = time.perf_counter()
        command = [STEELYARD, "broker", "--data", str(self._folder), "--port", "0", "--json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.address = json.loads(self._process.stdout.readline())["broker"]
        return time.perf_counter() - begun

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    @property
    def cpu_s(self) -> float:
        return cpu_s(self._process.pid)

    @property
    def memory_mb(self) -> float:
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")


class Client:
    """One connection that is never idle."""

    def __init__(self, broker: Broker) -> None:
        host, _, port = broker.address.rpartition(":")
        self._connection = socket.create_connection((host, int(port)), 600)
        self._decoder = frame.Decoder()

    def send(self, properties: Iterator[str]) -> int:
        """Send a message for each of these properties; the number of them."""
        sent = answered = 0
        while True:
            texts = list(islice(properties, AHEAD - (sent - answered)))
            requests = [frame.encode(_send(sent + index, text)) for index, text in enumerate(texts)]
            self._connection.sendall(b"".join(requests))
            sent += len(texts)
            if answered == sent:
                return sent
            answered += len(self._replies())

    def _replies(self) -> list[Command]:
        replies = self._received()
        assert all(reply.code == ResponseCode.SUCCESS for reply in replies), replies[0].remark
        return replies

    def _received(self) -> list[Command]:
        """The commands that the next bytes complete."""
        received = self._connection.recv(1 << 20)
        if not received:
            raise ConnectionError("the broker closed the connection")
        return self._decoder.feed(received)

    def read(self) -> list[MessageView]:
        """Everything in the topic's queue."""
        found: list[MessageView] = []
        while True:
            header = headers.PullMessageRequestHeader(
                consumer_group="readers",
                topic=TOPIC,
                queue_id=0,
                queue_offset=len(found),
                max_msg_nums=1_000,
                sys_flag=4,
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
                sub_version=0,
            )
            request = Command(RequestCode.PULL_MESSAGE, 1, ext=headers.write(header))
            self._connection.sendall(frame.encode(request))
            replies: list[Command] = []
            while not replies:
                replies = self._received()
            if replies[0].code != ResponseCode.SUCCESS:
                return found
            found += decode_records(replies[0].body)


def _send(number: int, properties: str) -> Command:
    header = headers.SendMessageRequestHeaderV2(
        producer_group="p",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=f"UNIQ_KEY\x01{number:032}\x02{properties}",
    )
    return Command(RequestCode.SEND_MESSAGE_V2, number, ext=headers.write(header), body=BODY)


def run(waiting: int, due: int, seconds: int) -> dict[str, float]:
    """The figures, in the units of their names."""
    rng = random.Random(1)
    found: dict[str, float] = {"waiting": waiting, "due": due}
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        broker.start()
        try:
            create_topic(broker.address, TOPIC, 1)
            client = Client(broker)
            probe = max(due, 1_000)
            client.send("" for _ in range(probe))
            begun = broker.cpu_s
            client.send("" for _ in range(probe))
            found["plain_send_us"] = (broker.cpu_s - begun) / probe * 1e6
            plain = len(client.read())
            found["memory_before_mb"] = broker.memory_mb
            begun = broker.cpu_s
            times = (rng.randrange(HOUR_MS, 71 * HOUR_MS) for _ in range(waiting))
            client.send(f"TIMER_DELAY_MS\x01{delay_ms}\x02" for delay_ms in times)
            found["delayed_send_us"] = (broker.cpu_s - begun) / waiting * 1e6
            found["memory_waiting_mb"] = broker.memory_mb
            broker.kill()
            found["start_after_kill_s"] = broker.start()
            found["memory_after_start_mb"] = broker.memory_mb
            client = Client(broker)
            first = int(time.time() * 1000) + 3_000
            soon = (first + rng.randrange(seconds * 1_000) for _ in range(due))
            client.send(f"TIMER_DELIVER_MS\x01{at_ms}\x02" for at_ms in soon)
            while len(views := client.read()) < plain + due:
                time.sleep(1)
            late = [
                view.store_timestamp - int(view.properties["TIMER_OUT_MS"])
                for view in views
                if "TIMER_OUT_MS" in view.properties
            ]
            cuts = quantiles(late, n=100)
            found |= {"late_p50_ms": cuts[49], "late_p99_ms": cuts[98], "late_max_ms": max(late)}
            found["early"] = sum(ms < 0 for ms in late)
        finally:
            broker.kill()
    return {name: round(value, 2) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--waiting", type=int, default=1_000_000, help="messages that wait for hours"
    )
    parser.add_argument(
        "--due", type=int, default=20_000, help="messages that become due meanwhile"
    )
    parser.add_argument("--seconds", type=int, default=20, help="over how long these are due")
    options = parser.parse_args()
    print(json.dumps(run(options.waiting, options.due, options.seconds), indent=1))


if __name__ == "__main__":
    main()
