"""Brokers with a Kafka listener in this process, and what other clients do with them, for the tests of `KafkaConsumer`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.driver.loops import Background
from steelyard.servers.server import LocalServer, serve_broker, serve_nameserver


class KafkaServers:
    """A nameserver and brokers on a loop of their own."""

    def __init__(self, folder: Path, brokers: int = 2, *, delayed_answers: bool = True) -> None:
        self._delayed_answers = delayed_answers
        self._background = Background()
        self._folder = folder
        self._nameserver = self._background.wait(serve_nameserver(port=0))
        self.nameservers = self._nameserver.address
        self._brokers: dict[str, LocalServer] = {}
        self._names = [f"broker-{number}" for number in range(brokers)]
        for name in self._names:
            self.start_broker(name)
        self.bootstrap = ",".join(server.kafka for server in self._brokers.values())
        self._client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap,
            "log_level": 0,
        }

    def start_broker(self, name: str, port: int = 0, kafka_port: int = 0) -> None:
        config = BrokerConfig(
            name=name,
            nameservers=(self.nameservers,),
            delayed_answers=self._delayed_answers,
            kafka=KafkaConfig(
                node_id=int(name.rpartition("-")[2]),
                brokers=tuple(dict.fromkeys((*self._names, name))),
            ),
        )

        async def start() -> LocalServer:
            server = await serve_broker(
                str(self._folder / name), port=port, config=config, kafka_port=kafka_port
            )
            await server.registered()
            return server

        self._brokers[name] = self._background.wait(start(), 60)

    def stop_broker(self, name: str) -> tuple[int, int]:
        """Stop one broker cleanly; the ports it had."""
        server = self._brokers.pop(name)
        self._background.wait(server.stop(), 60)
        ports = (int(address.rpartition(":")[2]) for address in (server.address, server.kafka))
        return next(ports), next(ports)

    def restart_nameserver(self) -> None:
        """Replace the nameserver by one that knows nothing yet."""
        self._background.wait(self._nameserver.stop(), 60)
        port = int(self.nameservers.rpartition(":")[2])
        self._nameserver = self._background.wait(serve_nameserver(port=port))

    def stop(self) -> None:
        for name in list(self._brokers):
            self.stop_broker(name)
        self._background.wait(self._nameserver.stop(), 60)
        self._background.loop.call_soon_threadsafe(self._background.loop.stop)

    # -- what other clients do ---------------------------------------------------------------------

    def topic(self, name: str, partitions: int = 4) -> str:
        admin = AdminClient(self._client)
        (made,) = admin.create_topics([NewTopic(name, partitions, 1)]).values()
        made.result(60)
        return name

    def more_partitions(self, name: str, partitions: int) -> None:
        admin = AdminClient(self._client)
        (made,) = admin.create_partitions([NewPartitions(name, partitions)]).values()
        made.result(60)

    def fill(self, topic: str, values: range, *, partitions: int = 4, codec: str = "none") -> None:
        """These numbers as values, in turn to the partitions."""
        producer = Producer({**self._client, "linger.ms": 5, "compression.type": codec})
        for value in values:
            producer.produce(topic, b"%d" % value, key=b"k", partition=value % partitions)
        assert producer.flush(30) == 0

    def transactions(self, topic: str, kept: Mapping[int, bool]) -> None:
        """One transaction for each value, committed where it is kept, to partition 0."""
        producer = Producer({**self._client, "transactional.id": f"tx-{topic}"})
        producer.init_transactions(30)
        for value, is_kept in kept.items():
            producer.begin_transaction()
            producer.produce(topic, b"%d" % value, partition=0)
            if is_kept:
                producer.commit_transaction(30)
            else:
                assert producer.flush(30) == 0
                producer.abort_transaction(30)
