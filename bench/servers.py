"""The servers under test: `steelyard up` and Apache RocketMQ, one nameserver and one broker each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.peers import apache  # noqa: E402

from bench import load  # noqa: E402

APACHE_OPTIONS = (
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-XX:MaxDirectMemorySize=1g",
    *("-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"),
    *("-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0"),
)
"""runbroker.sh of RocketMQ, with 1 GiB of heap instead of 8 and without AlwaysPreTouch, in Apache's favour."""

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(process_id: int) -> float:
    """CPU time of a process so far, user and system, from /proc/PID/stat."""
    text = Path(f"/proc/{process_id}/stat").read_text()
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS


def tree_cpu_s(root: psutil.Process) -> float:
    """User and system time of a process, its children, and those of them that have ended."""
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


class Server:
    """A running nameserver and broker. `broker_process` is the one that is measured."""

    kind: str
    nameserver: str
    broker: str
    processes: Sequence[psutil.Process]
    broker_process: psutil.Process
    startup_s: float
    """From the first process to the first message that was acknowledged."""

    def await_first_send(self, begun: float) -> None:
        end = begun + 90
        while not (
            apache.has_route(self.nameserver, "TBW102") and load.sends(self.broker, "First")
        ):
            if time.perf_counter() > end:
                raise RuntimeError(f"{self.kind} takes no message")
            time.sleep(0.005)
        self.startup_s = time.perf_counter() - begun

    def cpu_s(self) -> float:
        """CPU time of the broker so far."""
        return cpu_s(self.broker_process.pid)

    def memory(self) -> dict[str, float]:
        """MiB resident in the broker: all, and without pages of files, which the kernel can take back."""
        status = Path(f"/proc/{self.broker_process.pid}/status").read_text()
        rows = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        return {
            "resident_mib": int(rows["VmRSS"].split()[0]) / 1024,
            "anonymous_mib": int(rows["RssAnon"].split()[0]) / 1024,
        }

    def freeze(self) -> None:
        """Stand still while the other is measured."""
        for process in self.processes:
            process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        raise NotImplementedError


class Steelyard(Server):
    kind = "steelyard"
    kafka = ""
    """Where Kafka's clients begin, if it has a Kafka listener."""

    def __init__(self, folder: Path, *, with_kafka: bool = False) -> None:
        self.nameserver = f"127.0.0.1:{apache.free_port()}"
        port = apache.free_port()
        begun = time.perf_counter()
        self._up = subprocess.Popen(
            [
                *(sys.executable, "-m", "steelyard", "up", "--brokers", "1", "--json"),
                *("--nameserver-port", self.nameserver.rpartition(":")[2]),
                *("--broker-port", str(port), "--data", str(folder)),
                *(("--kafka-port", "0") if with_kafka else ()),
            ],
            stdout=subprocess.PIPE,
        )
        self.broker = f"127.0.0.1:{port}"
        self.await_first_send(begun)
        assert self._up.stdout is not None
        ready = json.loads(self._up.stdout.readline())
        assert ready["brokers"] == {"broker-a": self.broker}
        self.kafka = ready.get("kafka", "")
        up = psutil.Process(self._up.pid)
        self.processes = [up, *up.children(recursive=True)]
        self.broker_process = next(p for p in self.processes if listens(p, port))

    def stop(self) -> None:
        self.thaw()
        self._up.terminate()
        self._up.wait(20)


class Apache(Server):
    kind = "apache"

    def __init__(self, folder: Path) -> None:
        self._cluster = apache.Cluster(
            folder, java_options=APACHE_OPTIONS, commit_log_bytes=1024 * 1024 * 1024
        )
        self.nameserver, self.broker = self._cluster.nameserver, self._cluster.broker
        begun = time.perf_counter()
        self._cluster.start()
        self.await_first_send(begun)
        children = self._cluster.processes
        self.processes = [psutil.Process(child.pid) for child in children.values()]
        self.broker_process = psutil.Process(children["broker-a"].pid)

    def stop(self) -> None:
        self.thaw()
        self._cluster.stop()


def listens(process: psutil.Process, port: int) -> bool:
    """Whether the process accepts connections on the port."""
    return any(
        link.status == psutil.CONN_LISTEN and link.laddr.port == port
        for link in process.net_connections("tcp")
    )
