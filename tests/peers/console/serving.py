"""A cluster whose servers are processes of their own, so that each can be killed, a console beside it, and members of groups."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.peers.apache import free_port
from tests.peers.conftest import STEELYARD
from tests.waiting import PATIENCE_S

MEMBER = Path(__file__).with_name("member.py")
BROKERS = ("broker-a", "broker-b")


class Served:
    """`nameserver`, `bootstrap` and `console` are where they are reached; the console's address is an origin."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._ports = {
            name: (free_port(), free_port()) for name in (*BROKERS, "nameserver", "console")
        }
        self.nameserver = f"127.0.0.1:{self._ports['nameserver'][0]}"
        self.bootstrap = ",".join(f"127.0.0.1:{self._ports[name][1]}" for name in BROKERS)
        self.console = f"http://127.0.0.1:{self._ports['console'][0]}"

    def start(self, name: str, *options: str) -> None:
        """Start a server and wait for its ready line."""
        port, kafka_port = self._ports[name]
        words: tuple[str, ...]
        if name == "nameserver":
            words = ("nameserver", "--port", str(port))
        elif name == "console":
            words = ("console", "--nameserver", self.nameserver, "--http", str(port))
        else:
            number = BROKERS.index(name) + 1
            words = (
                *(
                    "broker",
                    "--name",
                    name,
                    "--node-id",
                    str(number),
                    "--data",
                    str(self._folder / name),
                ),
                *(
                    "--nameserver",
                    self.nameserver,
                    "--port",
                    str(port),
                    "--kafka-port",
                    str(kafka_port),
                ),
                *("--kafka-brokers", ",".join(BROKERS)),
            )
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(STEELYARD), *words, "--json", *options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._processes[name] = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"{name} ended: {(self._folder / f'{name}.log').read_text()[-2000:]}"
        json.loads(line)

    def kill(self, name: str) -> None:
        """End a server as a power cut does."""
        process = self._processes.pop(name)
        process.kill()
        process.wait(PATIENCE_S)

    def stop(self) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Served]:
    """A nameserver, two brokers and a console, with further options of the console."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Served(folder)
    try:
        for name in ("nameserver", *BROKERS):
            cluster.start(name)
        cluster.start("console", *options)
        yield cluster
    finally:
        cluster.stop()


class Members:
    """Members of groups, each a process; all end with the `with` block."""

    def __init__(self, cluster: Served, stack: ExitStack) -> None:
        self._cluster = cluster
        self._stack = stack
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def kafka(
        self,
        group: str,
        client_id: str,
        topics: str,
        strategy: str = "cooperative-sticky",
        revoke_seconds: float = 0,
    ) -> None:
        self._start(
            client_id,
            "kafka",
            self._cluster.bootstrap,
            group,
            client_id,
            strategy,
            topics,
            str(revoke_seconds),
        )

    def crowd(self, group: str, prefix: str, count: int, topic: str) -> None:
        """So many members in one process, which is named `prefix` here."""
        self._start(prefix, "crowd", self._cluster.bootstrap, group, prefix, str(count), topic)

    def rocketmq(self, group: str, client_id: str, topic: str) -> None:
        self._start(client_id, "rocketmq", self._cluster.nameserver, group, client_id, topic)

    def kill(self, client_id: str) -> None:
        process = self._processes.pop(client_id)
        process.kill()
        process.wait(PATIENCE_S)

    def leave(self, client_id: str) -> None:
        """End a member in order: it says that it leaves."""
        process = self._processes.pop(client_id)
        process.terminate()
        process.wait(PATIENCE_S)

    def _start(self, client_id: str, *words: str) -> None:
        process = subprocess.Popen([sys.executable, str(MEMBER), *words])
        self._processes[client_id] = process
        self._stack.callback(process.wait, PATIENCE_S)
        self._stack.callback(process.kill)


@contextmanager
def members(cluster: Served) -> Iterator[Members]:
    with ExitStack() as stack:
        yield Members(cluster, stack)
