"""Apache RocketMQ's clients, servers and mqadmin as child processes.

`prepare` fetches the jars of one version through the ordinary `mvn` (coordinates in `java/pom.xml`)
and compiles `java/Peer.java` against them, once; `Peer` drives the Java client line by line;
`Cluster` is a nameserver and one broker on free loopback ports. `Missing` says why there is none.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar

JAVA = Path(__file__).parent / "java"
OLD, NEW = "4.9.8", "5.3.3"
"""The last client of 4.x, and of 5.x the version that the wire facts were read in."""
SERVERS = NEW
"""Maven Central has the servers of 5.x only."""

T = TypeVar("T")

_QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms32m", "-Xmx256m")
_SERVER_HEAP = ("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")
_OPEN = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)


class Missing(Exception):  # noqa: N818  # a reason to skip, no error
    """Java, Maven or the registry is not there; the text says which, and what it said."""


def eventually(look: Callable[[], T | None], what: object, deadline_s: float = 60.0) -> T:
    """Ask `look` until it gives something true; AssertionError shows `what`, as it is then, after the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(0.1)


def free_port(*, around: Sequence[int] = (0,)) -> int:
    """A port P of the loopback such that P + each of `around` is free now."""
    while True:
        with ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                for step in around:
                    if step:
                        stack.enter_context(socket.socket()).bind(("127.0.0.1", port + step))
            except OSError:
                continue
            return port


def has_route(nameserver: str, topic: str) -> bool:
    """Whether a nameserver, Apache's or ours, has a route for `topic`; in raw bytes, so that it needs nothing of ours."""
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
                reply = json.loads(stream.read(size - 4)[:header_size])
    except (OSError, struct.error):
        return False
    return bool(reply["code"] == 0)


# -- jars ------------------------------------------------------------------------------------------


def prepare(version: str, *, servers: bool = False) -> Path:
    """The folder with the jars of `version`, fetched and compiled against when that was not done yet. Raises Missing.

    `lib/` and `classes/` hold the client side, `servers/` (of SERVERS) all that a nameserver or broker needs;
    apart, because a logging configuration in the broker's jar makes a client print.
    """
    for program in ("java", "javac", "mvn"):
        if shutil.which(program) is None:
            raise Missing(f"the peer tests need {program} on the PATH (Java 11+ and Maven 3)")
    target = JAVA / "target" / version
    _fetch(version, target / "lib", [])
    if servers:
        _fetch(version, target / "servers", ["-P", "servers"])
    classes = target / "classes"
    compiled = classes / "Peer.class"
    if not compiled.exists() or compiled.stat().st_mtime < (JAVA / "Peer.java").stat().st_mtime:
        classes.mkdir(exist_ok=True)
        _build(
            [
                *("javac", "-nowarn", "--release", "8", "-Xlint:-options", "-encoding", "UTF-8"),
                *("-cp", f"{target / 'lib'}/*", "-d", str(classes), "Peer.java"),
            ],
            f"Peer.java does not compile against RocketMQ {version}",
        )
    return target


def _fetch(version: str, folder: Path, options: list[str]) -> None:
    """Copy the jars into `folder`; a mark beside it says that all are there."""
    mark = folder.with_suffix(".fetched")
    if mark.exists():
        return
    _build(
        [
            *("mvn", "-q", "-B", "dependency:copy-dependencies", *options),
            *(f"-Drocketmq.version={version}", "-DincludeScope=runtime"),
            f"-DoutputDirectory={folder}",
        ],
        f"Maven cannot fetch the jars of RocketMQ {version}",
    )
    mark.touch()


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
    """One JVM with `Peer.java`. `messages` grows as its consumers receive; not for several threads."""

    def __init__(
        self, version: str, folder: Path, *, java_options: Sequence[str] = _QUICK_START
    ) -> None:
        self.version = version
        self.messages: list[dict[str, Any]] = []
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        (folder / "conf").mkdir(exist_ok=True)
        (folder / "conf" / "logback_tools.xml").write_text(
            "<configuration/>"
        )  # mqadmin 4.x insists
        self._errors = (folder / f"peer-{version}-{time.monotonic_ns()}.log").open("wb")
        target = prepare(version)
        self.process = subprocess.Popen(
            [
                *("java", *java_options, "-Dfile.encoding=UTF-8", f"-Duser.home={folder}"),
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
        self._answer("start", 60)

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            event = json.loads(line)
            if event["event"] == "message":
                self.messages.append(event)
            else:
                self._answers.put(event)
        self._answers.put({"event": "failed", "error": "the JVM has ended"})

    def ask(self, *words: object, timeout_s: float = 60) -> dict[str, Any]:
        """Send a command (see Peer.java), return its answer; AssertionError when it failed."""
        line = " ".join(str(word) for word in words)
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        return self._answer(line, timeout_s)

    def _answer(self, line: str, timeout_s: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f"no answer to {line!r} within {timeout_s} s") from None
        assert answer["event"] == "done", f"{line}: {answer['error']}"
        return answer

    def mqadmin(self, *words: object) -> str:
        """What mqadmin prints for these arguments; AssertionError with its words when it fails."""
        answer = self.ask("mqadmin", *words)
        assert "Exception" not in answer["errors"], answer["errors"]
        text: str = answer["text"]
        return text

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


# -- the servers -----------------------------------------------------------------------------------


class Cluster:
    """An Apache nameserver and one broker, `broker-a`, in a folder of their own."""

    def __init__(
        self,
        folder: Path,
        *,
        java_options: Sequence[str] = _SERVER_HEAP,
        commit_log_bytes: int = 64 * 1024 * 1024,
        settings: dict[str, object] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._options = list(java_options)
        self.nameserver = f"127.0.0.1:{free_port()}"
        port = free_port(around=(-2, 0, 1))  # the VIP port and the replication port
        self.broker = f"127.0.0.1:{port}"
        store = folder / "store"
        self._settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "namesrvAddr": self.nameserver,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "mappedFileSizeCommitLog": commit_log_bytes,
            "autoCreateTopicEnable": "true",
            "timerWheelEnable": "false",
            "diskMaxUsedSpaceRatio": 95,
            **(settings or {}),
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> Cluster:
        """Start both; they are ready when `wait_ready` returns."""
        port = self.nameserver.rpartition(":")[2]
        home = f"-Drocketmq.home.dir={self.folder}"
        namesrv = "org.apache.rocketmq.namesrv.NamesrvStartup"
        self._write("namesrv.properties", {"listenPort": port})
        self._spawn("namesrv", [home, namesrv, "-c", str(self.folder / "namesrv.properties")])
        self._write("broker.properties", self._settings)
        broker = "org.apache.rocketmq.broker.BrokerStartup"
        self._spawn("broker", [home, broker, "-c", str(self.folder / "broker.properties")])
        return self

    def _write(self, name: str, settings: dict[str, object]) -> None:
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.folder / name).write_text(text)

    def _spawn(self, name: str, arguments: list[str]) -> None:
        with (self.folder / f"{name}.out").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [
                    *("java", *self._options, *_OPEN, f"-Duser.home={self.folder}"),
                    *("-cp", f"{prepare(SERVERS, servers=True) / 'servers'}/*", *arguments),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=java_environment(),
            )

    def wait_ready(self, deadline_s: float = 90) -> Cluster:
        """Wait until the broker's default topic has a route."""

        def ready() -> bool:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    output = (self.folder / f"{name}.out").read_text()[-2000:]
                    raise AssertionError(f"the Apache {name} has ended: {output}")
            return has_route(self.nameserver, "TBW102")

        eventually(ready, "route of TBW102 on the Apache cluster", deadline_s)
        return self

    def stop(self) -> None:
        """Kill both: nobody needs their store afterwards, and a clean stop takes Apache's broker 20 s."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        self.processes.clear()
