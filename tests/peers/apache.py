"""Apache RocketMQ's clients, servers and mqadmin as child processes.

`prepare` and `prepare_servers` fetch the jars of one version through the ordinary `mvn` (coordinates in
`java/pom.xml`), and compile the classes of `java/` against the client, once; `Peer` drives the Java
client line by line; `Cluster` is a nameserver and brokers on free loopback ports. `Missing` says why
there is none.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import secrets
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from tests.waiting import PATIENCE_S, until

JAVA = Path(__file__).parent / "java"
OLD, NEW = "4.9.8", "5.3.3"
"""The last client of 4.x, and of 5.x the version that the wire facts were read in."""
OLD_SERVER, NEW_SERVER = "4.9.7", NEW
"""The servers of both lines. Maven Central has no broker 4.9.8."""

QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms32m", "-Xmx256m")
_OFTEN = (
    "-Drocketmq.client.rebalance.waitInterval=5000",
    "-Drocketmq.client.unlockDelayTimeMills=1000",
)
"""What Java does every 20 s else: look again whether a queue is unlocked; and how long it keeps one of its own locked."""
_SERVER_HEAP = ("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")
_OPEN = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)
"""What the servers reach for by reflection, and Java 17 keeps to itself."""

SEND_TIMEOUT_MS = 20_000
"""For producers at Apache's brokers and ours: the first send to a topic makes it, and clients' own 3 s are few on a busy machine."""


class Missing(Exception):  # noqa: N818  # a reason to skip, no error
    """Java, Maven or the registry is not there; the text says which, and what it said."""


def free_port(*, around: Sequence[int] = (0,)) -> int:
    """A port P of the loopback such that P + each of `around` is free now.

    Below those that the kernel gives to clients: until a server listens there, and while it is down, no client takes it.
    """
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with ExitStack() as stack:
            try:
                for step in sorted({0, *around}):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port + step))
            except OSError:
                continue
            return port


def brokers_of(nameserver: str, topic: str) -> set[str]:
    """The names of a topic's brokers, as a nameserver, Apache's or ours, has them; in raw bytes: it needs nothing of ours."""
    header = json.dumps(
        {"code": 105, "extFields": {"topic": topic}, "flag": 0, "language": "JAVA", "opaque": 1}
        | {"serializeTypeCurrentRPC": "JSON", "version": 409}
    ).encode()
    host, _, port = nameserver.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 5) as link:
            link.sendall(struct.pack(">ii", 4 + len(header), len(header)) + header)
            with link.makefile("rb") as stream:
                size, header_size = struct.unpack(">ii", stream.read(8))
                reply = stream.read(size - 4)
    except (OSError, struct.error):
        return set()
    if json.loads(reply[:header_size])["code"] != 0:
        return set()
    return {data["brokerName"] for data in json.loads(reply[header_size:])["queueDatas"]}


def has_route(nameserver: str, topic: str) -> bool:
    return bool(brokers_of(nameserver, topic))


# -- jars ------------------------------------------------------------------------------------------


def prepare(version: str) -> Path:
    """The folder with the client of `version` in `lib/` and our classes in `classes/`, made when they are not there yet.

    Raises Missing.
    """
    target = _fetch(version, "lib")
    with _alone():
        _compile(version, target)
    return target


def _compile(version: str, target: Path) -> None:
    classes = target / "classes"
    compiled = classes / "Peer.class"
    sources = sorted(JAVA.glob("*.java"))
    changed = max(source.stat().st_mtime for source in sources)
    if not compiled.exists() or compiled.stat().st_mtime < changed:
        classes.mkdir(exist_ok=True)
        _build(
            [
                *("javac", "-nowarn", "--release", "8", "-Xlint:-options", "-encoding", "UTF-8"),
                *("-cp", f"{target / 'lib'}/*", "-d", str(classes)),
                *(source.name for source in sources),
            ],
            f"the Java peer does not compile against RocketMQ {version}",
        )


def prepare_servers(version: str) -> Path:
    """The folder with the jars of a nameserver and broker in `servers/`, fetched when they are not there yet.

    Apart from the client, because a logging configuration in the broker's jar makes a client print. Raises Missing.
    """
    return _fetch(version, "servers", "-P", "servers")


def _fetch(version: str, name: str, *options: str) -> Path:
    """Copy jars into the folder `name`; a mark beside it says that all are there. The folder's parent."""
    for program in ("java", "javac", "mvn"):
        if shutil.which(program) is None:
            raise Missing(f"the peer tests need {program} on the PATH (Java 11+ and Maven 3)")
    folder = JAVA / "target" / version / name
    mark = folder.with_suffix(".fetched")
    with _alone():
        if not mark.exists():
            _build(
                [
                    *("mvn", "-q", "-B", "dependency:copy-dependencies", *options),
                    *(f"-Drocketmq.version={version}", "-DincludeScope=runtime"),
                    f"-DoutputDirectory={folder}",
                ],
                f"Maven cannot fetch the jars of RocketMQ {version}",
            )
            mark.touch()
    return folder.parent


@contextmanager
def _alone() -> Iterator[None]:
    """One test process at a time: the first one makes what the others find."""
    (JAVA / "target").mkdir(exist_ok=True)
    with (JAVA / "target" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(command: list[str], failure: str) -> None:
    try:
        done = subprocess.run(command, cwd=JAVA, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        raise Missing(f"{failure}: no end after 600 s") from None
    if done.returncode != 0:
        lines = [
            line
            for line in (done.stdout + done.stderr).splitlines()
            if "ERROR" in line or "error" in line
        ]
        raise Missing(f"{failure}: {lines[0] if lines else done.stderr[-500:]}")


def java_environment() -> dict[str, str]:
    """Times as UTC, and no serialisation or nameserver of the caller's environment."""
    clean = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("ROCKETMQ", "NAMESRV"))
    }
    return {**clean, "TZ": "UTC"}


# -- the client ------------------------------------------------------------------------------------


class Peer:
    """One JVM with `Peer.java`; not for several threads.

    `messages` grows as its consumers receive, `notices` by all else that it tells unasked (see Peer.java), each with the
    time `at` which it did.
    """

    def __init__(
        self, version: str, folder: Path, *, java_options: Sequence[str] = QUICK_START
    ) -> None:
        self.version = version
        self.messages: list[dict[str, Any]] = []
        self.notices: list[dict[str, Any]] = []
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        (folder / "conf").mkdir(exist_ok=True)
        (folder / "conf" / "logback_tools.xml").write_text(
            "<configuration/>"
        )  # mqadmin 4.x insists
        self._errors = (folder / f"peer-{version}-{time.monotonic_ns()}.log").open("wb")
        target = prepare(version)
        self.process = subprocess.Popen(
            [
                *("java", *java_options, *_OFTEN, "-Dfile.encoding=UTF-8", f"-Duser.home={folder}"),
                *(
                    f"-Drocketmq.home.dir={folder}",
                    "-cp",
                    f"{target / 'classes'}:{target / 'lib'}/*",
                ),
                "Peer",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=folder,  # consumerStatus leaves files in the working directory
            env=java_environment(),
        )
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        self._answer("start")

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            event = {"at": time.time(), **json.loads(line)}
            if event["event"] == "message":
                self.messages.append(event)
            elif event["event"] in ("done", "failed"):
                self._answers.put(event)
            else:
                self.notices.append(event)
        self._answers.put({"event": "failed", "error": "the JVM has ended"})

    def ask(self, *words: object, **options: object) -> dict[str, Any]:
        """Send a command (see Peer.java), return its answer; AssertionError when it failed."""
        line = "\t".join(
            [*map(str, words), *(f"--{name}={text}" for name, text in options.items())]
        )
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        return self._answer(line)

    def _answer(self, line: str) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError(f"no answer to {line!r} within {PATIENCE_S:.0f} s") from None
        assert answer["event"] == "done", f"{line}: {answer['error']}"
        return answer

    def mqadmin(self, *words: object, **options: object) -> str:
        """What mqadmin prints for these arguments; AssertionError with its words when it fails."""
        answer = self.ask("mqadmin", *words, **options)
        assert "Exception" not in answer["errors"], answer["errors"]
        text: str = answer["text"]
        return text

    def received(self, consumer: str) -> list[dict[str, Any]]:
        """What a push consumer's listener got so far."""
        return [event for event in self.messages if event["consumer"] == consumer]

    def numbers(self, consumer: str) -> list[int]:
        """The numbers of the messages, which are of a series, that a push consumer's listener got so far."""
        return [int(event["properties"]["number"]) for event in self.received(consumer)]

    def held(self, consumer: str, topic: str) -> list[tuple[str, int]]:
        """(broker, queue id) that a consumer holds of a topic."""
        queues = self.ask("held", consumer)["queues"]
        return [(item["broker"], item["queue"]) for item in queues if item["topic"] == topic]

    def close(self) -> None:
        """Stop clients and JVM cleanly, or kill it when it does not end."""
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(b"quit\n")
            self.process.stdin.close()
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self._reader.join(5)
        self._errors.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -- the servers -----------------------------------------------------------------------------------


class Cluster:
    """An Apache nameserver and brokers, in a folder of their own. `brokers` has the addresses by name."""

    def __init__(
        self,
        folder: Path,
        version: str = NEW_SERVER,
        *,
        names: Sequence[str] = ("broker-a",),
        java_options: Sequence[str] = _SERVER_HEAP,
        commit_log_bytes: int = 64 * 1024 * 1024,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.version = version
        self._options = list(java_options)
        self._commit_log_bytes = commit_log_bytes
        self._more_settings = settings or {}
        self.nameserver = f"127.0.0.1:{free_port()}"
        # With the VIP port and the replication port beside each broker's own.
        self.brokers = {name: f"127.0.0.1:{free_port(around=(-2, 0, 1))}" for name in names}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def broker(self) -> str:
        """The address of the only broker."""
        (address,) = self.brokers.values()
        return address

    def start(self) -> Cluster:
        """Start all; they are ready when `wait_ready` returns."""
        (self.folder / "conf").mkdir(exist_ok=True)
        for name in ("namesrv", "broker"):  # 4.x insists on a file, 5.x brings its own
            (self.folder / "conf" / f"logback_{name}.xml").write_text("<configuration/>")
        self._write("namesrv", {"listenPort": self.nameserver.rpartition(":")[2]})
        self._spawn("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup")
        for name in self.brokers:
            self.start_broker(name)
        return self

    def start_broker(self, name: str) -> None:
        self._write(name, self._settings(name))
        self._spawn(name, "org.apache.rocketmq.broker.BrokerStartup")

    def _settings(self, name: str) -> dict[str, object]:
        store = self.folder / f"store-{name}"
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": name,
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": self.brokers[name].rpartition(":")[2],
            "namesrvAddr": self.nameserver,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "mappedFileSizeCommitLog": self._commit_log_bytes,
            "autoCreateTopicEnable": "true",
            "timerWheelEnable": "false",
            "diskMaxUsedSpaceRatio": 95,
            **self._more_settings,
        }

    def _write(self, name: str, settings: Mapping[str, object]) -> None:
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.folder / f"{name}.properties").write_text(text)

    def _spawn(self, name: str, program: str) -> None:
        jars = prepare_servers(self.version) / "servers"
        with (self.folder / f"{name}.out").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [
                    *("java", *self._options, *_OPEN, f"-Duser.home={self.folder}"),
                    *(f"-Drocketmq.home.dir={self.folder}", "-cp", f"{jars}/*", program),
                    *("-c", str(self.folder / f"{name}.properties")),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=java_environment(),
            )

    def wait_ready(self) -> Cluster:
        """Wait until the default topic has a route to every broker."""

        def ready() -> bool:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    output = (self.folder / f"{name}.out").read_text()[-2000:]
                    raise AssertionError(f"the Apache {name} has ended: {output}")
            return brokers_of(self.nameserver, "TBW102") == set(self.brokers)

        until(ready, "route of TBW102 on the Apache cluster")
        return self

    def stop_broker(self, name: str) -> None:
        """Kill it: nobody needs its store afterwards, and a clean stop takes Apache's broker 20 s."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for name in list(self.processes):
            self.stop_broker(name)
