"""A scenario's machines: runs the production nodes on simulated hosts, kills and restarts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from steelyard.acl.accounts import Accounts
from steelyard.addresses import BROKER_PORT, KAFKA_PORT, NAMESERVER_PORT
from steelyard.config import (
    BrokerConfig,
    ConsumerConfig,
    KafkaConfig,
    KafkaConsumerConfig,
    NameserverConfig,
    ProducerConfig,
)
from steelyard.errors import DamageError, DescriptorsError, DiskFullError
from steelyard.nodes.admin import AdminNode
from steelyard.nodes.broker.identity import identity_of
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.consumer.kafka.node import KafkaConsumerNode
from steelyard.nodes.consumer.remoting.contract import Stop as StopMember
from steelyard.nodes.consumer.remoting.node import ConsumerNode
from steelyard.nodes.nameserver import NameserverNode
from steelyard.nodes.producer import ProducerNode
from steelyard.nodes.seam import KAFKA, Address, Link, Node
from steelyard.sim.checkers import Witness, number_of
from steelyard.sim.clock import Clock
from steelyard.sim.configs import (
    GROUP,
    broker_config,
    consumer_config,
    operator_config,
    prepare,
    producer_config,
)
from steelyard.sim.disk import Mount, SimDisk
from steelyard.sim.kafka.application import KafkaApplication, member_config
from steelyard.sim.kafka.producers.producing import KafkaProducing
from steelyard.sim.kafka.shares.member import (
    ShareMemberConfig,
    ShareMemberNode,
    StopSharing,
)
from steelyard.sim.kafka.shares.members import ShareMembers
from steelyard.sim.kafka.shares.witness import ShareWitness
from steelyard.sim.kafka.streams.member import (
    StreamsMemberConfig,
    StreamsMemberNode,
)
from steelyard.sim.kafka.streams.threads import StreamsThreads
from steelyard.sim.kafka.streams.witness import StreamsWitness
from steelyard.sim.kafka.witness import KafkaWitness
from steelyard.sim.network import TcpNetwork
from steelyard.sim.order import Notary, OrderChecker
from steelyard.sim.scenario import Scenario
from steelyard.sim.seats import Seat
from steelyard.sim.strangers import ACCOUNTS, LIAR, Strangers
from steelyard.sim.table import CompactedTable
from steelyard.sim.threads import Threaded
from steelyard.sim.topics import TopicAdministrator
from steelyard.sim.transactions import Decisions
from steelyard.sim.workload import Listener, Publisher, commit_in, start_asked_in, topic_name
from steelyard.sim.world import Host, Process, Violation, World
from steelyard.store.disk import Disk
from steelyard.store.store import Store
from steelyard.types import MessageQueue
from steelyard.wire.remoting.command import Command, Serialize
from steelyard.wire.remoting.ids import UniqueIds
from steelyard.wire.remoting.message import decode_records

RETRY_RECOVERY_MS = 5_000
"""Delay after which a broker that could not start (disk full, no file descriptors) is restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFactories:
    """The nodes to run, and what their disk seems to be. Tests put defective ones here."""

    nameserver: Callable[..., Node] = NameserverNode
    """Of a NameserverConfig; with `accounts`, if the scenario has some."""
    broker: Callable[..., Node] = BrokerNode
    """Of a BrokerConfig, a Store and chance; with `accounts` as well."""
    producer: Callable[[ProducerConfig, UniqueIds, Random], Node] = ProducerNode
    consumer: Callable[[ConsumerConfig, Random], Node] = ConsumerNode
    kafka_consumer: Callable[[KafkaConsumerConfig, Random], Node] = lambda config, rng: (
        KafkaConsumerNode(config, rng, hooks=True)
    )
    streams: Callable[[StreamsMemberConfig, StreamsWitness, Random], Node] = StreamsMemberNode
    share: Callable[[ShareMemberConfig, ShareWitness, Random], Node] = ShareMemberNode
    disk: Callable[[Mount], Disk] = lambda mount: mount


class SimCluster:
    """All machines of one scenario, in a fixed order."""

    def __init__(
        self, world: World, scenario: Scenario, parts: NodeFactories, witness: Witness
    ) -> None:
        self.world = world
        self.scenario = scenario
        self.witness = witness
        self.network = TcpNetwork(world, scenario.weather)
        self.parts = parts
        self._rng = world.rng("cluster")
        self.nameservers = [
            self.new_seat(f"nameserver-{n}", 1 + n) for n in range(scenario.nameservers)
        ]
        self.brokers = [
            self.new_seat(f"broker-{'abcdefgh'[n]}", 11 + n) for n in range(scenario.brokers)
        ]
        self.producers = [
            self.new_seat(f"producer-{n}", 101 + n) for n in range(scenario.producers)
        ]
        self.members: list[Seat] = []
        self.kafka_members: list[Seat] = []
        self.kafka_witness = KafkaWitness(
            witness,
            planned=scenario.duplicates_max == 0,
            by_generations=scenario.kafka_protocol == "classic",
            migrates=scenario.kafka_protocol == "both",
        )
        self.streams_threads = StreamsThreads(self, parts.streams)
        self.kafka_producing = KafkaProducing(self)
        self.share_members = ShareMembers(self, parts.share)
        self._applications: dict[str, KafkaApplication] = {}
        self.topics = [topic_name(number) for number in range(scenario.topics)]
        self.table: CompactedTable | None = None
        if scenario.table_keys:
            self.table = CompactedTable(world, scenario.table_keys, scenario.body_bytes_max)
        self._listeners: dict[str, Listener] = {}
        self._topics: TopicAdministrator | None = None
        self.admin = self.new_seat("admin", 250)
        self.strangers: list[Seat] = []
        if scenario.accounts:
            self.strangers = [self.new_seat(f"stranger-{n}", 252 + n) for n in range(2)]
        self.asking: Strangers | None = None
        """What the strangers do."""
        self.decisions = Decisions(world, witness)
        self._publishers = {
            seat.name: Publisher(scenario, witness, self.decisions) for seat in self.producers
        }
        self.order = (
            OrderChecker(planned=scenario.duplicates_max == 0) if scenario.ordered else None
        )
        self.power_lost: set[str] = set()
        """Brokers whose machines lost power since their last start."""
        self.power_cuts: set[str] = set()
        """Brokers whose machines have ever lost power."""
        self.on_refusal: Callable[[Seat, DamageError], None] = _not_refuse
        """The operator's reaction if a broker refuses to start on its data."""
        witness.number_at = self.number_at
        witness.can_read = lambda queue: self.broker_log_end(queue) is not None

    def new_seat(self, name: str, last_byte: int) -> Seat:
        """Return a new machine, with this last byte of its address."""
        scenario, rng = self.scenario, self._rng
        skew, drift = scenario.skew_ms_max, scenario.drift_ppm_max
        clock = Clock(rng.randrange(-skew, skew + 1), rng.randrange(-drift, drift + 1))
        disk = SimDisk(self.world.rng(f"disk {name}"))
        host = Host(name, f"10.0.0.{last_byte}", clock, disk)
        self.network.attach(host)
        if rng.randrange(100) < scenario.binary_headers_of_100:
            self.network.serialize[name] = Serialize.ROCKETMQ
        return Seat(name, host, Process(self.world, self.network, host, name))

    # -- starting ----------------------------------------------------------------------------------

    @property
    def nameserver_addresses(self) -> tuple[Address, ...]:
        return tuple(f"{seat.host.ip}:{NAMESERVER_PORT}" for seat in self.nameservers)

    @property
    def broker_addresses(self) -> list[Address]:
        return [f"{seat.host.ip}:{BROKER_PORT}" for seat in self.brokers]

    @property
    def bootstrap(self) -> tuple[Address, ...]:
        """Return the Kafka listeners of all brokers."""
        return tuple(f"{broker.host.ip}:{KAFKA_PORT}" for broker in self.brokers)

    @property
    def seats(self) -> list[Seat]:
        """All machines that faults may hit."""
        return [
            *self.nameservers,
            *self.brokers,
            *self.producers,
            *self.members,
            *self.kafka_members,
            *self.streams_threads.seats,
            *self.kafka_producing.seats,
            *self.share_members.seats,
        ]

    def start(self, seat: Seat, *, kill_in_write: int = 0) -> None:
        """Start the seat's process unless it runs.

        A broker may be killed in one of its first writes.
        """
        if seat.process.alive or not seat.host.up:
            return
        if seat in self.nameservers:
            self.run(
                seat,
                lambda now: self.parts.nameserver(NameserverConfig(), **self._accounts),
                NAMESERVER_PORT,
            )
        elif seat in self.brokers:
            self._start_broker(seat, kill_in_write)
        elif seat in self.producers:
            self._start_producer(seat)
        elif seat in self.members:
            self._start_member(seat)
        elif seat in self.kafka_members:
            self._start_kafka_member(seat)
        elif seat in self.streams_threads.seats:
            self.streams_threads.start(seat)
        elif seat in self.kafka_producing.seats:
            self.kafka_producing.start(seat)
        elif seat in self.share_members.seats:
            self.share_members.start(seat)
        elif seat in self.strangers:
            config = LIAR if self.strangers.index(seat) else None
            self.run(seat, lambda now: AdminNode(config))
        else:
            self.run(seat, lambda now: AdminNode(operator_config(self.scenario)))

    @property
    def _accounts(self) -> dict[str, Accounts]:
        """What servers get in addition where there are accounts."""
        return {"accounts": ACCOUNTS} if self.scenario.accounts else {}

    def add_strangers(self) -> None:
        """Let strangers ask all servers from now on."""
        for seat in self.strangers:
            self.start(seat)
        servers = self.broker_addresses
        self.asking = Strangers(
            self.world,
            [partial(getattr, seat, "process") for seat in self.strangers],
            [*self.nameserver_addresses, *servers],
            self.topics[0],
            GROUP,
            self.world.rng("strangers"),
        )

    def run(
        self,
        seat: Seat,
        build: Callable[[int], Node],
        port: int = 0,
        take_dirty: Callable[[], Callable[[], None]] | None = None,
        kafka: KafkaConfig | None = None,
    ) -> None:
        """Start a node on a machine. `port`: that it listens on, 0 for none."""
        process = Process(
            self.world, self.network, seat.host, seat.name, port=port, take_dirty=take_dirty
        )
        seat.process = process
        seat.runs += 1
        seat.identity += 1
        if port:
            self.network.listen(process)
        if kafka is not None:
            self.network.listen(process, kafka.address, KAFKA)
        process.start(build)

    def _start_broker(self, seat: Seat, kill_in_write: int) -> None:
        scenario = self.scenario
        mount = seat.host.disk.remount()
        if kill_in_write:
            seat.host.disk.cut_write(kill_in_write)
        config = broker_config(scenario, seat, self.brokers, self.nameserver_addresses)
        rng = self.world.rng(f"{seat.name} {seat.runs}")

        def take_dirty() -> Callable[[], None]:
            assert seat.store is not None
            return seat.store.take_dirty().sync

        def build(now: int) -> Node:
            seat.store = self._open(mount, config, now)
            broker = self.parts.broker(config, seat.store, rng, **self._accounts)
            if self.order is not None:
                broker = Notary(broker, seat.name, self.order, lambda: self.world.now)
            if not scenario.thread_ms_max:
                return broker
            pool_rng = self.world.rng(f"threads {seat.name} {seat.runs}")
            return Threaded(broker, scenario.thread_ms_max, pool_rng)

        try:
            self.run(seat, build, BROKER_PORT, take_dirty, config.kafka)
            if seat.process.alive and seat.name in self.witness.damage.records:
                record = self.witness.damage.records[seat.name]
                raise Violation(f"{seat.name} starts, though {record.path} is damaged")
            self._compare_logs(seat)
            self._check_table(seat)
        except DamageError as error:
            seat.process.die(f"refuses to start: {error}")
            self.on_refusal(seat, error)
        except (DiskFullError, DescriptorsError) as error:
            seat.process.die(f"could not start: {error}")
            self.world.after(RETRY_RECOVERY_MS, lambda: self.start(seat))

    def _compare_logs(self, seat: Seat) -> None:
        """Check that everything seen in the broker's logs before is still there."""
        power_lost = seat.name in self.power_lost
        self.power_lost.discard(seat.name)
        for queue in self.witness.queues_of(seat.name):
            end = self.broker_log_end(queue)
            if end is not None:
                self.witness.log_ends(queue, end, cut_allowed=power_lost)

    def check_tables(self) -> None:
        """Check that the compacted topic has the last value of each key, on all live brokers."""
        for seat in self.brokers:
            self._check_table(seat)

    def _check_table(self, seat: Seat) -> None:
        if self.table is not None and seat.process.alive and seat.store is not None:
            with seat.host.disk.looked_at():
                self.table.check(seat.name, seat.store)

    def _open(self, mount: Mount, config: BrokerConfig, now: int) -> Store:
        store = Store(self.parts.disk(mount), config.store, identity_of(config))
        recovery = store.open(now)
        self.world.trace.note(self.world.now, "store", f"{recovery!r}")
        prepare(self.scenario, store)
        return store

    def _start_producer(self, seat: Seat) -> None:
        config = producer_config(self.scenario, seat, self.nameserver_addresses)
        ids = UniqueIds(bytes([10, 0, 0, int(seat.host.ip.rpartition(".")[2])]), 1, seat.runs)
        rng = self.world.rng(f"{seat.name} {seat.runs}")
        self.run(seat, lambda now: self.parts.producer(config, ids, rng))
        seat.process.on_hand = self.decisions.hand

    def add_member(self) -> None:
        """Let a new member join the group, on a machine of its own."""
        number = len(self.members)
        seat = self.new_seat(f"member-{number}", 151 + number)
        self.members.append(seat)
        self._start_member(seat)

    def _start_member(self, seat: Seat) -> None:
        scenario = self.scenario
        config = consumer_config(scenario, seat, self.nameserver_addresses, self.topics)
        rng = self.world.rng(f"{seat.name} {seat.runs}")
        self.run(seat, lambda now: self.parts.consumer(config, rng))
        process, who = seat.process, f"{seat.name} {seat.runs}"
        listener = Listener(self.world, scenario, self.witness, self.order, who)
        process.on_hand = listener.hand
        self._listeners[seat.name] = listener
        process.on_send = self._watch_commits
        if self.order is not None:
            self.order.joined(who, config.client_id, lambda: process.alive)
            process.on_send = partial(self._watch_order, self.order, who)

    def add_kafka_member(self) -> None:
        """Let a new member join the Kafka group, on a machine of its own."""
        number = len(self.kafka_members)
        seat = self.new_seat(f"kafka-{number}", 201 + number)
        self.kafka_members.append(seat)
        self._start_kafka_member(seat)

    def _start_kafka_member(self, seat: Seat) -> None:
        self._run_kafka_consumer(seat)
        self._applications[seat.name] = KafkaApplication(
            self.scenario, self.kafka_witness, seat.process, seat.runs, tuple(self.topics)
        )

    def start_auditor(self) -> Process:
        """Start a consumer that requests the Kafka group's offsets without being a member."""
        seat = self.new_seat("auditor", 251)
        self._run_kafka_consumer(seat)
        return seat.process

    def _run_kafka_consumer(self, seat: Seat) -> None:
        drawn = self.world.rng(f"protocol {seat.name} {seat.runs}")
        config = member_config(self.scenario, seat.name, self.bootstrap, drawn)
        rng = self.world.rng(f"{seat.name} {seat.runs}")
        self.run(seat, lambda now: self.parts.kafka_consumer(config, rng))

    def application(self, seat: Seat) -> KafkaApplication:
        """Return the application of a Kafka member's latest run."""
        return self._applications[seat.name]

    def stop_member(self, seat: Seat, then: Callable[[object], None]) -> None:
        """Ask a member of any group to leave properly; `then` gets the result."""
        if seat in self.kafka_members:
            self.application(seat).leave(then)
        elif seat in self.share_members.seats:
            seat.process.ask(StopSharing(), then)
        else:
            seat.process.ask(StopMember(), then)

    def _watch_commits(self, process: Process, link: Link, message: object) -> None:
        commit = commit_in(message) if isinstance(message, Command) else None
        if commit is not None:
            topic, queue_id, offset = commit
            for queue in self._queue_behind(link, topic, queue_id):
                self.witness.committed(queue, offset, process.name)

    def _watch_order(
        self, order: OrderChecker, who: str, process: Process, link: Link, message: object
    ) -> None:
        self._watch_commits(process, link, message)
        start = start_asked_in(message) if isinstance(message, Command) else None
        if start is not None:
            for queue in self._queue_behind(link, *start):
                order.acquired(queue, who)

    def _queue_behind(self, link: Link, topic: str, queue_id: int) -> list[MessageQueue]:
        """Return the queue meant by a request on this link; none if the other end is no broker."""
        remote = self.network.remote(link)
        names = [seat.name for seat in self.brokers if seat.process.address == remote]
        return [MessageQueue(topic, name, queue_id) for name in names]

    # -- topics ------------------------------------------------------------------------------------

    def create_topics(self) -> None:
        """Let the administrator create every topic on every broker."""
        addresses = self.broker_addresses
        queues = self.scenario.queues
        self._topics = TopicAdministrator(
            self.world, self.admin.process, self.topics, addresses, queues
        )
        self._topics.create()

    def create_table(self) -> None:
        """Let the administrator create the topic that is compacted."""
        assert self.table is not None
        addresses = self.broker_addresses
        self.table.create(self.admin.process, addresses)

    def grow_topics(self, queues: int) -> bool:
        """Add queues to every topic on every broker; return False without an administrator."""
        if self._topics is not None:
            self._topics.grow(queues)
        return self._topics is not None

    # -- looking -----------------------------------------------------------------------------------

    def publisher(self, seat: Seat) -> Publisher:
        return self._publishers[seat.name]

    def busy_members(self) -> list[str]:
        """Return the members whose listener or application is busy."""
        members = [seat.name for seat in self.members if seat.process.alive]
        kafka = [seat for seat in self.kafka_members if seat.process.alive]
        return [name for name in members if self._listeners[name].busy] + [
            seat.name for seat in kafka if self.application(seat).busy
        ]

    def broker_log_end(self, queue: MessageQueue) -> int | None:
        """Return one past the last offset of the queue's log; None while its broker is down."""
        seat = next(seat for seat in self.brokers if seat.name == queue.broker_name)
        if not seat.process.alive or seat.store is None:
            return None
        log = seat.store.log(queue.topic, queue.queue_id)
        return 0 if log is None else log.max_offset

    def number_at(self, queue: MessageQueue, offset: int) -> int | None:
        """Return the number of the message in the log; None if absent or the broker is down."""
        if (queue, offset) in self.witness.damage.numbers:
            return self.witness.damage.numbers[queue, offset]
        end = self.broker_log_end(queue)
        if end is None or offset >= end:
            return None
        seat = next(seat for seat in self.brokers if seat.name == queue.broker_name)
        assert seat.store is not None
        log = seat.store.log(queue.topic, queue.queue_id)
        assert log is not None
        with seat.host.disk.looked_at():
            (view,) = decode_records(log.entry_at(offset), queue.broker_name)
        return number_of(view.body)


def _not_refuse(seat: Seat, error: DamageError) -> None:
    raise Violation(f"{seat.name} refuses to start: {error}")
