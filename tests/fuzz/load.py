"""A mixed load on a cluster, which notes what was acknowledged and says at the end whether all of it held.

Each kind of client is a class of its own with `start`, `stop` and `verify`; what it promises is in its text. Kafka's clients are
librdkafka's, unmodified. Servers may be killed meanwhile: an error of a call is counted, and what it did is not known.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random

import confluent_kafka
from confluent_kafka import KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.fuzz.cluster import Cluster, FaultError

from steelyard import (
    ConsumeFrom,
    ConsumerConfig,
    MessageView,
    Producer,
    ProducerConfig,
    PushConsumer,
    TransactionState,
)
from steelyard.errors import SteelyardError

SETTLE_SECONDS = 240.0
"""How long what was acknowledged may take to come through once all servers are up: locks, sessions and transactions expire."""

PARTITIONS = 6
CLASSIC: Mapping[str, str | int] = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000}
COOPERATIVE: Mapping[str, str | int] = {
    **CLASSIC,
    "partition.assignment.strategy": "cooperative-sticky",
}
CONSUMER_PROTOCOL: Mapping[str, str | int] = {"group.protocol": "consumer"}
"""KIP-848."""

MEMBERS_MAX = 4


class Client:
    """A thread that works until it is told to stop. `errors`: calls that failed, by what they said."""

    def __init__(self, name: str, pause_seconds: float) -> None:
        self.errors: Counter[str] = Counter()
        self.bug: BaseException | None = None
        """What a client must never raise."""
        self.seconds: list[float] = []
        """How long each call took that succeeded."""
        self._pause = pause_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No further calls; what is under way ends first."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._pause):
                self.step()
            self.finish()
        except BaseException as error:
            self.bug = error
            raise

    def step(self) -> None:
        """One call, or a few."""
        raise NotImplementedError

    def finish(self) -> None:
        """After the last step."""

    def failed(self, error: Exception) -> None:
        self.errors[f"{type(error).__name__}: {str(error)[:80]}"] += 1


def wait_until(done: Callable[[], bool], what: Callable[[], str]) -> None:
    """Raises FaultError where it does not come true."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise FaultError(what())
        time.sleep(0.1)


# -- RocketMQ --------------------------------------------------------------------------------------


class Sends(Client):
    """Every message that was acknowledged reaches the push consumers of the group."""

    def __init__(self, cluster: Cluster, topic: str, pause_seconds: float) -> None:
        super().__init__("sends", pause_seconds)
        self._topic = topic
        config = ProducerConfig(send_timeout_ms=3_000)
        self._producer = Producer("load-producers", cluster.nameserver, config=config).start()
        self.acknowledged: set[bytes] = set()
        self._serial = 0

    def step(self) -> None:
        self._serial += 1
        body = b"send %d" % self._serial
        begun = time.monotonic()
        try:
            self._producer.send(self._topic, body)
        except SteelyardError as error:
            self.failed(error)
            return
        self.seconds.append(time.monotonic() - begun)
        self.acknowledged.add(body)

    def finish(self) -> None:
        self._producer.stop()

    def verify(self, group: PushGroup) -> str:
        wait_until(
            lambda: self.acknowledged <= group.bodies.keys(),
            lambda: (
                f"{len(self.acknowledged - group.bodies.keys())} acknowledged messages did not come"
            ),
        )
        return f"{len(self.acknowledged)} sends acknowledged, all consumed"


class Transactions(Client):
    """Every message whose transaction was committed reaches the group, none that was rolled back does.

    The broker's question is answered as the transaction was meant, so that each has one outcome whatever is killed.
    """

    UNDECIDED_EVERY = 7
    """So many transactions are left to the broker's question, which comes after half a minute."""

    def __init__(self, cluster: Cluster, topic: str, pause_seconds: float) -> None:
        super().__init__("transactions", pause_seconds)
        self._topic = topic
        self._producer = Producer(
            "load-transactions",
            cluster.nameserver,
            transaction_check=lambda view: self._fate(view.body),
        ).start()
        self.stored: set[bytes] = set()
        self._serial = 0

    @staticmethod
    def _fate(body: bytes) -> TransactionState:
        committed = int(body.split()[1]) % 3 > 0
        return TransactionState.COMMIT if committed else TransactionState.ROLLBACK

    def step(self) -> None:
        self._serial += 1
        body = b"transaction %d" % self._serial
        undecided = self._serial % self.UNDECIDED_EVERY == 0
        try:
            self._producer.send_in_transaction(
                self._topic, body, execute=lambda _: None if undecided else self._fate(body)
            )
        except SteelyardError as error:
            self.failed(error)
            return
        self.stored.add(body)

    def stop_producer(self) -> None:
        """After `verify`: until then it answers questions."""
        self._producer.stop()

    def verify(self, group: PushGroup) -> str:
        committed = {body for body in self.stored if self._fate(body) is TransactionState.COMMIT}
        wait_until(
            lambda: committed <= group.bodies.keys(),
            lambda: f"{len(committed - group.bodies.keys())} committed transactions did not come",
        )
        wrong = [
            body
            for body in group.bodies
            if body.startswith(b"transaction") and self._fate(body) is TransactionState.ROLLBACK
        ]
        if wrong:
            raise FaultError(f"{len(wrong)} messages came that were rolled back")
        return f"{len(self.stored)} transactions, {len(committed)} committed, none against its fate"


class PushGroup:
    """Push consumers of one group. `bodies`: what they were handed, and how often."""

    def __init__(self, cluster: Cluster, topics: Sequence[str]) -> None:
        self._cluster = cluster
        self._topics = topics
        self.bodies: Counter[bytes] = Counter()
        self._lock = threading.Lock()
        self._members: list[PushConsumer] = []
        self._serial = 0

    def join(self) -> None:
        self._serial += 1
        config = ConsumerConfig(
            consume_from=ConsumeFrom.FIRST_OFFSET, client_id=f"127.0.0.1@load-{self._serial}"
        )
        member = PushConsumer("load-consumers", self._cluster.nameserver, self._take, config=config)
        for topic in self._topics:
            member.subscribe(topic)
        self._members.append(member.start())

    def leave(self) -> None:
        self._members.pop(0).stop()

    def churn(self, rng: Random) -> None:
        """A member comes or goes."""
        if len(self._members) < 2 or (len(self._members) < MEMBERS_MAX and rng.random() < 0.5):
            self.join()
        else:
            self.leave()

    def _take(self, view: MessageView) -> None:
        view.verify()
        with self._lock:
            self.bodies[view.body] += 1

    def stop(self) -> None:
        while self._members:
            self.leave()


# -- Kafka -----------------------------------------------------------------------------------------


def wait_until_met(cluster: Cluster, address: str) -> None:
    """Wait until the broker at this address tells clients of all brokers."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def has_met() -> bool:
        with suppress(KafkaException):
            return len(admin.list_topics(timeout=5).brokers) == len(cluster.brokers)
        return False

    wait_until(has_met, lambda: f"the broker at {address} does not know all brokers")


def make_topics(cluster: Cluster, topics: Sequence[str]) -> None:
    """Topics with a partition on each broker, which a broker that has met nobody would keep to itself."""
    for address in cluster.bootstrap.split(","):
        wait_until_met(cluster, address)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics]).values():
        made.result(60)


class Produces(Client):
    """Every record that was acknowledged is in the log at its offset, once (the producer is idempotent)."""

    def __init__(self, cluster: Cluster, topic: str, pause_seconds: float) -> None:
        super().__init__("produces", pause_seconds)
        self._topic = topic
        self._bootstrap = cluster.bootstrap
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 120_000,
                "socket.timeout.ms": 5_000,
                "log_level": 0,
            }
        )
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._serial = 0

    def step(self) -> None:
        for _ in range(5):
            self._serial += 1
            begun = time.monotonic()

            def told(error: object, message: Message, begun: float = begun) -> None:
                if error is not None:
                    self.errors[str(error)[:80]] += 1
                    return
                self.seconds.append(time.monotonic() - begun)
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self.acknowledged[partition, offset] = message.value() or b""

            with suppress(BufferError):
                self._producer.produce(self._topic, b"record %d" % self._serial, on_delivery=told)
        self._producer.poll(0)

    def finish(self) -> None:
        self._producer.flush(150)

    def verify(self) -> str:
        found = read_all(self._bootstrap, self._topic)
        values = Counter(found.values())
        lost = [place for place, value in self.acknowledged.items() if found.get(place) != value]
        if lost:
            raise FaultError(
                f"{len(lost)} acknowledged records are not where they were, e.g. {lost[:3]}"
            )
        twice = [value for value in self.acknowledged.values() if values[value] != 1]
        if twice:
            raise FaultError(f"{len(twice)} acknowledged records are there twice, e.g. {twice[:3]}")
        return f"{len(self.acknowledged)} records acknowledged, each in the log once"


class ConsumerMember(Client):
    """One member of a `ConsumerGroup`."""

    def __init__(self, group: ConsumerGroup, serial: int) -> None:
        super().__init__(f"member {serial}", 0)
        self._group = group
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": group.bootstrap,
                "group.id": group.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "socket.timeout.ms": 5_000,
                "log_level": 0,
                **group.settings,
            }
        )
        self._consumer.subscribe([group.topic])

    def step(self) -> None:
        try:
            messages = self._consumer.consume(200, 0.5)
        except KafkaException as error:
            self.failed(error)
            return
        good = [message for message in messages if message.error() is None]
        for message in messages:
            if message.error() is not None:
                self.errors[str(message.error())[:80]] += 1
        if not good:
            return
        self._group.took(good)
        try:
            committed = self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            self.failed(error)
            return
        self._group.committed(committed or [])

    def finish(self) -> None:
        self._consumer.close()


class ConsumerGroup:
    """A group never loses a commit that was acknowledged, and gets every record that is there."""

    def __init__(
        self, cluster: Cluster, name: str, topic: str, settings: Mapping[str, str | int]
    ) -> None:
        self.bootstrap = cluster.bootstrap
        self.name = name
        self.topic = topic
        self.settings = settings
        self.values: Counter[bytes] = Counter()
        self.commits: dict[int, int] = {}
        """By partition: the largest offset whose commit was acknowledged."""
        self._lock = threading.Lock()
        self._members: list[ConsumerMember] = []
        self._serial = 0

    def took(self, messages: Sequence[Message]) -> None:
        with self._lock:
            self.values.update(message.value() or b"" for message in messages)

    def committed(self, places: Sequence[TopicPartition]) -> None:
        with self._lock:
            for place in places:
                if place.error is None and place.offset >= 0:
                    self.commits[place.partition] = max(
                        place.offset, self.commits.get(place.partition, 0)
                    )

    def join(self) -> None:
        self._serial += 1
        member = ConsumerMember(self, self._serial)
        self._members.append(member)
        member.start()

    def leave(self) -> None:
        member = self._members.pop(0)
        member.stop()
        if member.bug is not None:
            raise FaultError(f"a member of {self.name} failed: {member.bug!r}")

    def churn(self, rng: Random) -> None:
        """A member comes or goes."""
        if len(self._members) < 2 or (len(self._members) < MEMBERS_MAX and rng.random() < 0.5):
            self.join()
        else:
            self.leave()

    def check(self) -> None:
        """No commit that was acknowledged is gone. Raises FaultError; takes no notice of brokers that are down."""
        with self._lock:
            before = dict(self.commits)
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": self.name, "log_level": 0}
        )
        try:
            places = [TopicPartition(self.topic, partition) for partition in sorted(before)]
            found = consumer.committed(places, 60) if places else []
        except KafkaException:
            return
        finally:
            consumer.close()
        for place in found:
            if place.error is None and place.offset < before[place.partition]:
                raise FaultError(
                    f"{self.name} had committed {before[place.partition]} of {self.topic}-{place.partition}, "
                    f"and now it is {place.offset}"
                )

    def verify(self, wanted: set[bytes]) -> str:
        wait_until(
            lambda: wanted <= self.values.keys(),
            lambda: (
                f"{len(wanted - self.values.keys())} of {len(wanted)} records did not come to {self.name}"
            ),
        )
        self.check()
        repeated = sum(count - 1 for count in self.values.values())
        return (
            f"{self.name}: {len(wanted)} records, all consumed, {repeated} repeated, no commit lost"
        )

    def stop(self) -> None:
        while self._members:
            self.leave()


class KafkaTransactions(Client):
    """Every transaction is there as a whole or not at all, as its end was acknowledged."""

    SIZE = 6

    def __init__(self, cluster: Cluster, topic: str, pause_seconds: float) -> None:
        super().__init__("Kafka transactions", pause_seconds)
        self._topic = topic
        self._bootstrap = cluster.bootstrap
        self._producer: confluent_kafka.Producer | None = None
        self._serial = 0
        self.outcomes: dict[int, str] = {}
        """committed, aborted, or unknown."""

    def step(self) -> None:
        try:
            if self._producer is None:
                producer = confluent_kafka.Producer(
                    {
                        "bootstrap.servers": self._bootstrap,
                        "transactional.id": "load",
                        "transaction.timeout.ms": 30_000,
                        "socket.timeout.ms": 5_000,
                        "log_level": 0,
                    }
                )
                producer.init_transactions(60)
                self._producer = producer
            self._serial += 1
            self._transact(self._producer)
        except KafkaException as error:
            self.failed(error)
            self._producer = None  # a new one fences it, and ends what it left open

    def _transact(self, producer: confluent_kafka.Producer) -> None:
        number = self._serial
        commits = number % 4 > 0
        # Before the end was asked for, a failure can only mean that it is aborted.
        self.outcomes[number] = "aborted"
        begun = time.monotonic()
        producer.begin_transaction()
        for part in range(self.SIZE):
            value = b"%d %d" % (number, part)
            producer.produce(self._topic, value, partition=part % PARTITIONS)
        if not commits:
            producer.abort_transaction(60)
            return
        self.outcomes[number] = "unknown"
        producer.commit_transaction(60)
        self.outcomes[number] = "committed"
        self.seconds.append(time.monotonic() - begun)

    def verify(self) -> str:
        """All transactions have ended: the last producer was fenced by a new one."""
        last = confluent_kafka.Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": "load", "log_level": 0}
        )
        last.init_transactions(60)
        found: Counter[int] = Counter()
        for value in read_all(self._bootstrap, self._topic, "read_committed").values():
            found[int(value.split()[0])] += 1
        for number, outcome in self.outcomes.items():
            allowed = {"committed": {self.SIZE}, "aborted": {0}, "unknown": {0, self.SIZE}}[outcome]
            if found[number] not in allowed:
                raise FaultError(
                    f"{found[number]} of {self.SIZE} records of Kafka transaction {number} are there, which is {outcome}"
                )
        outcomes = Counter(self.outcomes.values())
        told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        return f"Kafka transactions: {told}; each as a whole or not at all"


def read_all(
    bootstrap: str, topic: str, isolation: str = "read_uncommitted"
) -> dict[tuple[int, int], bytes]:
    """Every record of a topic by (partition, offset). Raises FaultError where one cannot be read."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-all",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    found: dict[tuple[int, int], bytes] = {}
    ended: set[int] = set()
    deadline = time.monotonic() + SETTLE_SECONDS
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        while len(ended) < PARTITIONS:
            if time.monotonic() > deadline:
                raise FaultError(f"{topic} was not read to its end in {SETTLE_SECONDS:.0f} s")
            for message in consumer.consume(1_000, 1.0):
                error = message.error()
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                if error is None:
                    assert offset is not None
                    found[partition, offset] = message.value() or b""
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ended.add(partition)
                elif not error.retriable():
                    raise FaultError(f"{topic}-{partition} cannot be read: {error}")
    finally:
        consumer.close()
    return found


# -- all of it -------------------------------------------------------------------------------------


class Load:
    """All of the above on one cluster."""

    def __init__(self, cluster: Cluster, pause_seconds: float = 0.02) -> None:
        make_topics(cluster, ("Records", "Transacted"))
        self.group = PushGroup(cluster, ("Sends", "Halves"))
        self.sends = Sends(cluster, "Sends", pause_seconds)
        self.transactions = Transactions(cluster, "Halves", 10 * pause_seconds)
        self.produces = Produces(cluster, "Records", pause_seconds)
        self.kafka_transactions = KafkaTransactions(cluster, "Transacted", 5 * pause_seconds)
        self.groups = [
            ConsumerGroup(cluster, name, "Records", settings)
            for name, settings in (
                ("load-classic", CLASSIC),
                ("load-cooperative", COOPERATIVE),
                ("load-consumer", CONSUMER_PROTOCOL),
            )
        ]
        self.clients: tuple[Client, ...] = (
            self.sends,
            self.transactions,
            self.produces,
            self.kafka_transactions,
        )

    def start(self) -> None:
        for client in self.clients:
            client.start()
        for _ in range(2):
            self.group.join()
            for group in self.groups:
                group.join()

    def churn(self, rng: Random) -> None:
        """A member of some group comes or goes."""
        groups: tuple[PushGroup | ConsumerGroup, ...] = (self.group, *self.groups)
        rng.choice(groups).churn(rng)

    def check(self) -> None:
        """Raise FaultError for what can be seen meanwhile."""
        for client in self.clients:
            if client.bug is not None:
                raise FaultError(f"a client failed: {client.bug!r}")
        for group in self.groups:
            group.check()

    def verify(self) -> list[str]:
        """Stop, and say line by line what held. All servers must be up. Raises FaultError."""
        for client in self.clients:
            client.stop()
        told = [
            self.sends.verify(self.group),
            self.transactions.verify(self.group),
            self.produces.verify(),
            self.kafka_transactions.verify(),
        ]
        wanted = set(self.produces.acknowledged.values())
        told += [group.verify(wanted) for group in self.groups]
        self.transactions.stop_producer()
        self.group.stop()
        for group in self.groups:
            group.stop()
        self.check()
        return told
