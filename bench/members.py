"""Processes that are members of a group, by the commands that `commands` describes; they stay for many runs."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from tests.peers import apache  # noqa: E402
from tests.peers.kafka import builds  # noqa: E402

from bench import clusters  # noqa: E402

PEERS = HERE.parent / "tests" / "peers"
ANSWER_S = 60.0
JAVA_OPTIONS = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC")


class Member:
    """One process. A command's answer is read by `expect`, or before the next command."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._log = folder / "members.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env=apache.java_environment(),
                cwd=folder,
            )
        self._open = 0

    def say(self, *words: object) -> int:
        """Give a command; when, on the monotonic clock."""
        while self._open:
            self.expect()
        assert self._process.stdin is not None
        line = " ".join(map(str, words))
        now = time.monotonic_ns()
        self._process.stdin.write(f"{line}\n".encode())
        self._open += 1
        return now

    def expect(self) -> str:
        """The answer to the oldest command without one."""
        output = self._process.stdout
        assert output is not None
        ready, _, _ = select.select([output], [], [], ANSWER_S)
        line = output.readline() if ready else b""
        if not line:
            how = "ended" if ready else f"gave no answer in {ANSWER_S:.0f} s"
            raise RuntimeError(f"a member {how}: {self._log.read_text()[-3000:]}")
        self._open -= 1
        return line.decode().strip()

    def kill(self) -> int:
        """SIGKILL; when, on the monotonic clock."""
        now = time.monotonic_ns()
        self._process.kill()
        self._process.wait()
        self._open = 0
        return now

    def close(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()


class Client(Protocol):
    """A kind of member."""

    kind: str
    speaks_kafka: bool

    def make(self) -> Member:
        """A process that is ready to join. Raises Missing."""

    def servers(self, cluster: clusters.Cluster) -> str:
        """The address that its members are given."""


class Remoting:
    """Speaks RocketMQ's protocol."""

    speaks_kafka = False

    def servers(self, cluster: clusters.Cluster) -> str:
        return cluster.nameserver


class Steelyard(Remoting):
    """`clean_handover`: as the client's setting of that name."""

    def __init__(self, folder: Path, *, clean_handover: bool = True) -> None:
        self._folder = folder
        self._options = [] if clean_handover else ["--no-clean-handover"]
        self.kind = "steelyard" if clean_handover else "steelyard, not clean"

    def make(self) -> Member:
        command = [sys.executable, str(HERE / "member.py"), *self._options]
        return Member(command, self._folder)


class Java(Remoting):
    def __init__(self, folder: Path, version: str = apache.NEW, *, orderly: bool = False) -> None:
        self._folder = folder
        self._version = version
        self._words = ["orderly"] if orderly else []
        self.kind = f"RocketMQ Java {version}" + (", orderly" if orderly else "")

    def make(self) -> Member:
        target = apache.prepare(self._version)
        path = f"{target / 'classes'}:{target / 'lib'}/*"
        options = [*JAVA_OPTIONS, f"-Duser.home={self._folder}", "-cp", path]
        return Member(["java", *options, "Member", *self._words], self._folder)


class Go(Remoting):
    kind = "RocketMQ Go"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self) -> Member:
        program = builds.go_program("member", PEERS / "go" / "rocketmq")
        return Member([str(program)], self._folder)


class Kafka:
    """A client of Kafka. `assignment`: an assignor of the classic protocol, or `consumer` for KIP-848."""

    speaks_kafka = True

    def __init__(self, folder: Path, assignment: str) -> None:
        self._folder = folder
        self._assignment = assignment
        told = "KIP-848" if assignment == "consumer" else assignment
        self.kind = f"{self.library}, {told}"

    library = "librdkafka"

    def command(self) -> list[str]:
        return [sys.executable, str(HERE / "kafka_member.py")]

    def make(self) -> Member:
        return Member([*self.command(), self._assignment], self._folder)

    def servers(self, cluster: clusters.Cluster) -> str:
        return ",".join(cluster.kafka.values())


class KafkaJava(Kafka):
    def __init__(self, folder: Path, assignment: str, version: str) -> None:
        self._version = version
        self.library = f"Kafka Java {version}"
        super().__init__(folder, assignment)

    def command(self) -> list[str]:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        path = builds.java_classes(self._version)
        return ["java", *JAVA_OPTIONS, quiet, "-cp", path, "BenchMember"]


class Franz(Kafka):
    library = "franz-go"

    def command(self) -> list[str]:
        return [str(builds.go_program("bench"))]


def clients(folder: Path) -> list[Client]:
    """All kinds of members; their processes live in `folder`."""
    old, new = builds.OLD, builds.NEW
    cooperative = "cooperative-sticky"
    return [
        Steelyard(folder),
        Steelyard(folder, clean_handover=False),
        Java(folder, apache.OLD),
        Java(folder, apache.OLD, orderly=True),
        Java(folder, apache.NEW),
        Java(folder, apache.NEW, orderly=True),
        Go(folder),
        Kafka(folder, "range"),
        Kafka(folder, cooperative),
        Kafka(folder, "consumer"),
        KafkaJava(folder, "range", old),
        KafkaJava(folder, cooperative, old),
        KafkaJava(folder, "range", new),
        KafkaJava(folder, cooperative, new),
        KafkaJava(folder, "consumer", new),
        Franz(folder, cooperative),
    ]


class Pool:
    """Members by name, made when they are first asked for."""

    def __init__(self, client: Client) -> None:
        self.kind, self.speaks_kafka = client.kind, client.speaks_kafka
        self._client = client
        self.servers = client.servers
        self._members: dict[str, Member] = {}

    def __getitem__(self, name: str) -> Member:
        if name not in self._members:
            member = self._members[name] = self._client.make()
            before = time.monotonic_ns()
            member.say("clock")
            if not before <= int(member.expect()) <= time.monotonic_ns():
                raise RuntimeError(f"the clock of a {self.kind} member is not the monotonic one")
        return self._members[name]

    def kill(self, name: str) -> int:
        return self._members.pop(name).kill()

    def close(self) -> None:
        for member in self._members.values():
            member.close()

    def renew(self) -> None:
        """All members are new processes when they are asked for again."""
        for name in list(self._members):
            self.kill(name)
