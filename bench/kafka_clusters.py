"""Two brokers of Apache Kafka and a controller, each a process; and what Kafka's clients need to know of any cluster.

Brokers have the settings that Apache's code has by default, but those that say how many replicas there are. The partitions of a
topic have one, as Steelyard's; the offsets that groups commit are on both brokers, so that one is enough.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from bench.clusters import NAMES
from bench.costs import queue_number
from bench.kafka_door.servers import APACHE_OPTIONS
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.peers.apache import free_port, java_environment
from tests.peers.kafka.builds import SERVER, jars
from tests.peers.kafka.servers import QUICK_START, QUIET
from tests.waiting import until

from bench import clusters

CONTROLLER = "controller"
SETTINGS = {
    "offsets.topic.replication.factor": 2,
    "min.insync.replicas": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}
_CLUSTER_ID = "c3RlZWx5YXJkLWJlbmNoIQ"


class Apache:
    nameserver = ""

    def __init__(
        self, folder: Path, settings: Mapping[str, object] | None = None, kind: str = "apache"
    ) -> None:
        """Raises Missing."""
        folder.mkdir(parents=True)
        self.kind = kind
        self._folder = folder
        self._more = dict(settings or {})
        self._path = ("-cp", f"{jars('server', SERVER)}/*")
        self._ports = {name: free_port() for name in (CONTROLLER, *NAMES)}
        self.kafka = {name: f"127.0.0.1:{self._ports[name]}" for name in NAMES}
        self.brokers = self.kafka
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name in self._ports:
                self._format(name)
                self._spawn(name)
            self._admin = admin(self)
            until(self._is_ready, "two brokers of Apache Kafka", 90)
        except BaseException:
            self.close()
            raise

    def _properties(self, name: str) -> Path:
        controls = name == CONTROLLER
        listener = "CONTROLLER" if controls else "PLAINTEXT"
        place = f"{listener}://127.0.0.1:{self._ports[name]}"
        lines: dict[str, object] = {
            "process.roles": "controller" if controls else "broker",
            "node.id": node_id(name),
            "controller.quorum.voters": f"{node_id(CONTROLLER)}@127.0.0.1:{self._ports[CONTROLLER]}",
            "controller.listener.names": "CONTROLLER",
            "listeners": place,
            "advertised.listeners": place,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self._folder / name,
            **SETTINGS,
            **self._more,
        }
        path = self._folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return path

    def _format(self, name: str) -> None:
        tool = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID]
        subprocess.run(
            ["java", *QUICK_START, QUIET, *self._path, *tool, "-c", str(self._properties(name))],
            check=True,
            capture_output=True,
            env=java_environment(),
        )

    def _spawn(self, name: str) -> None:
        options = QUICK_START if name == CONTROLLER else APACHE_OPTIONS
        with (self._folder / f"{name}.out").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [
                    *("java", *options, QUIET, *self._path),
                    *("kafka.Kafka", str(self._folder / f"{name}.properties")),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=java_environment(),
            )

    def _is_ready(self) -> bool:
        for name, process in self._processes.items():
            if process.poll() is not None:
                said = (self._folder / f"{name}.out").read_text()[-2000:]
                raise RuntimeError(f"{name} of Apache Kafka ended: {said}")
        try:
            return len(self._admin.list_topics(timeout=5).brokers) == len(NAMES)
        except KafkaException:
            return False

    def create_topic(self, topic: str, queues: int) -> None:
        """The first partitions are on the first broker."""
        replicas = [[node_id(name)] for name in NAMES for _ in range(queues)]
        new = NewTopic(topic, len(replicas), replica_assignment=replicas)
        (made,) = self._admin.create_topics([new]).values()
        made.result(30)

    def stop_broker(self, name: str) -> None:
        self._processes[name].terminate()

    def start_broker(self, name: str) -> None:
        process = self._processes[name]
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._spawn(name)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()  # nobody needs its log afterwards
            process.wait()


def node_id(name: str) -> int:
    """Brokers have the same numbers on Steelyard's cluster."""
    return (*NAMES, CONTROLLER).index(name) + 1


def admin(cluster: clusters.Cluster) -> AdminClient:
    """For any cluster that serves Kafka's clients."""
    return AdminClient({"bootstrap.servers": ",".join(cluster.kafka.values()), "log_level": 0})


def partitions(client: AdminClient, topic: str, queues: int) -> dict[str, list[int]]:
    """The partitions of each broker, by name, in the order of its queues."""

    def found() -> dict[str, list[int]]:
        told = client.list_topics(topic, 10).topics[topic].partitions
        led = {
            name: sorted(number for number, one in told.items() if one.leader == node_id(name))
            for name in NAMES
        }
        return led if {len(numbers) for numbers in led.values()} == {queues} else {}

    return until(found, f"{queues} partitions of {topic} on each broker")


def queue_numbers(led: Mapping[str, Sequence[int]]) -> dict[int, int]:
    """The number of each partition's queue."""
    return {
        partition: queue_number(name, queue)
        for name, numbers in led.items()
        for queue, partition in enumerate(numbers)
    }


def group_at(client: AdminClient, group: str, name: str) -> str:
    """A name of a group, beginning like this one, whose coordinator is the broker of that name."""
    candidates = (f"{group}-{number}" for number in count())
    return next(one for one in candidates if _coordinator(client, one) == node_id(name))


def _coordinator(client: AdminClient, group: str) -> int:
    """The node that answers for a group, which need not exist."""

    def found() -> int:
        (asked,) = client.describe_consumer_groups([group]).values()
        try:
            return int(asked.result(10).coordinator.id)
        except (KafkaException, TimeoutError):
            return 0  # while the coordinator begins

    return until(found, f"coordinator of {group}")
