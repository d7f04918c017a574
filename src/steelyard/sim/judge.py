"""Asks the nodes, as an operator would, whether all is well; and reads the logs at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from steelyard.addresses import BROKER_PORT
from steelyard.errors import ProtocolError
from steelyard.ledger import events as ledger
from steelyard.ledger.events import LEDGER_TOPIC, Record
from steelyard.nodes.admin import Invoke
from steelyard.nodes.broker.node import Stop as StopBroker
from steelyard.nodes.consumer.kafka import contract as kafka
from steelyard.nodes.consumer.remoting.contract import ConsumerState, Describe
from steelyard.nodes.producer import Stop as StopProducer
from steelyard.sim.checkers import Witness, number_of, one_owner_each, uneven
from steelyard.sim.cluster import SimCluster
from steelyard.sim.configs import GROUP
from steelyard.sim.kafka.judge import (
    not_as_assigned,
    not_caught_up,
    not_one_group,
    not_shared_out,
)
from steelyard.sim.kafka.witness import compare_queues
from steelyard.sim.seats import Seat
from steelyard.sim.world import Violation
from steelyard.types import MessageQueue, TopicPartition
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import TopicRouteData
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import MessageView, decode_records
from steelyard.wire.remoting.names import retry_topic
from steelyard.wire.remoting.properties import TIMER_OUT_MS

ASK_MS = 3_500
"""Time that questions get: connecting may take 3 s."""

ASK_TRIES = 3
STOP_MS = 20_000
READ_PERM = 4
ALL = 1_000_000_000


class Judge:
    """Everything here takes virtual time, in which the cluster runs on."""

    def __init__(self, cluster: SimCluster, witness: Witness) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._witness = witness
        self._topics = cluster.topics
        self._kafka = cluster.kafka_witness
        self._replies: dict[str, object] = {}
        self._partitions: dict[str, int] = {}
        """How many readable queues each topic had when last asked for."""

    # -- asking ------------------------------------------------------------------------------------

    def complaint(self) -> str | None:
        """What is not well yet, None if all is. Cheap complaints come first."""
        unfinished = self._unfinished()
        if unfinished is not None:
            return unfinished
        missing = self._witness.missing()
        if missing:
            number = missing[0]
            where = self._witness.acknowledged.get(number, "an unknown place")
            text = "acknowledged or committed messages not finished"
            return f"{len(missing)} {text}, e.g. {number} at {where}"
        busy = self._cluster.busy_members()
        if busy:
            return f"the listener of {busy[0]} is at work"
        return (
            self._ownership()
            or self._kafka_group()
            or self._streams()
            or self._kafka_producers()
            or self._share_group()
            or self._unfinished()
        )  # while members answered, a delayed message may have come

    def _unfinished(self) -> str | None:
        if self._cluster.kafka_members:
            unfinished = self._kafka.unfinished()
            if unfinished is not None:
                return unfinished
        if self._cluster.share_members.seats:
            unfinished = self._cluster.share_members.witness.unfinished()
            if unfinished is not None:
                return unfinished
        for queue, end in self._logs():
            offset = self._witness.unfinished(queue, end)
            if offset is not None:
                return f"{queue}: offset {offset} of {end} is not finished"
        return None

    def _logs(self) -> list[tuple[MessageQueue, int]]:
        """Every queue of the group in a live broker's store, with its log's end."""
        found = []
        for seat in self._cluster.brokers:
            if seat.store is not None and seat.process.alive:
                for topic in [*self._topics, retry_topic(GROUP)]:
                    for log in seat.store.logs(topic):
                        queue = MessageQueue(topic, seat.name, log.queue_id)
                        found.append((queue, log.max_offset))
        return found

    def _ownership(self) -> str | None:
        members = [seat for seat in self._cluster.members if seat.process.alive]
        self._replies.clear()
        for seat in members:
            seat.process.ask(Describe(), partial(self._replies.__setitem__, seat.name))
        nameservers = self._cluster.nameserver_addresses
        topics = [*self._topics, retry_topic(GROUP)]
        for address in nameservers:
            for topic in topics:
                ext = headers.write(headers.GetRouteInfoRequestHeader(topic=topic))
                command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=ext)
                self._invoke(address, command, f"{address} {topic}")
        self._world.run(self._world.now + ASK_MS)
        states = {seat.name: self._replies.get(seat.name) for seat in members}
        for name, state in states.items():
            if not isinstance(state, ConsumerState):
                return f"{name} does not describe itself: {state!r}"
        held = {name: s.held for name, s in states.items() if isinstance(s, ConsumerState)}
        for address in nameservers:
            for topic in topics:
                queues = self._queues(f"{address} {topic}", topic)
                if isinstance(queues, str):
                    return queues
                complaint = one_owner_each(queues, held)
                if complaint is not None:
                    return complaint
                self._partitions[topic] = len(queues)
        behind = self._behind(states)
        if behind is not None:
            return behind
        return uneven(self._topics, held) if self._cluster.scenario.strategy == "EVEN" else None

    def _behind(self, states: dict[str, object]) -> str | None:
        """Describe a member that is behind: after a long silence it repeats what others did."""
        ends = dict(self._logs())
        for name, state in states.items():
            assert isinstance(state, ConsumerState)
            for queue, offset in state.offsets.items():
                if any(self._wanted(queue, at) for at in range(offset, ends.get(queue, 0))):
                    return f"{name} is at {offset} of {ends[queue]} in {queue}"
        return None

    def _kafka_group(self) -> str | None:
        """Return what keeps the Kafka group from being stable and fully assigned, or None."""
        seats = [seat for seat in self._cluster.kafka_members if seat.process.alive]
        if not seats:
            return None
        self._replies.clear()
        for seat in seats:
            note = partial(self._replies.__setitem__, seat.name)
            seat.process.ask(kafka.Describe(), note)
            note = partial(self._replies.__setitem__, f"{seat.name} assignment")
            seat.process.ask(kafka.Assignment(), note)
        self._world.run(self._world.now + 1)
        states = {seat.name: self._replies.get(seat.name) for seat in seats}
        complaint = not_one_group(states)
        if complaint is not None:
            return complaint
        held = {}
        for name, state in states.items():
            share = self._replies.get(f"{name} assignment")
            assert isinstance(state, kafka.MemberState)
            assert isinstance(share, tuple)
            # Kafka's range puts members in the order of their instance ids.
            held[name if self._cluster.scenario.kafka_static else state.member_id] = share
        partitions = {topic: self._partitions[topic] for topic in self._topics}
        return (
            not_shared_out(partitions, held)
            or not_as_assigned(self._cluster.scenario.kafka_assignor, partitions, held)
            or self._kafka_behind()
        )

    def _kafka_behind(self) -> str | None:
        """Describe a Kafka member that has yet to read again what the group has finished.

        It would leave with an offset committed that lies behind.
        """
        seats = {seat.name: seat for seat in self._cluster.kafka_members if seat.process.alive}
        shares = {name: self._replies[f"{name} assignment"] for name in seats}
        told: dict[TopicPartition, object] = {}
        for name, share in shares.items():
            assert isinstance(share, tuple)
            for partition in share:
                told[partition] = None
                note = partial(told.__setitem__, partition)
                seats[name].process.ask(kafka.Position(partition), note)
        self._world.run(self._world.now + 1)
        positions = {
            partition: self._kafka.past_damage(partition, at) if isinstance(at, int) else None
            for partition, at in told.items()
        }
        return not_caught_up(positions, {part: self._kafka.reached(part) for part in positions})

    def _streams(self) -> str | None:
        """Return what keeps the Kafka Streams group from running all its tasks, or None."""
        if not self._cluster.scenario.streams_threads:
            return None
        return self._cluster.streams_threads.complaint(self._partitions[self._topics[0]])

    def _kafka_producers(self) -> str | None:
        """Return what is not well with what Kafka producers write, or None."""
        if not self._cluster.scenario.kafka_producers:
            return None
        return self._cluster.kafka_producing.incomplete()

    def _share_group(self) -> str | None:
        """Return which partition no member of the share group has, or None."""
        partitions = {topic: self._partitions[topic] for topic in self._topics}
        return self._cluster.share_members.complaint(partitions)

    def _invoke(self, address: str, command: Command, key: str) -> None:
        invoke = Invoke(address, command, ASK_MS - 500)
        self._cluster.admin.process.ask(invoke, partial(self._replies.__setitem__, key))

    def _queues(self, key: str, topic: str) -> list[MessageQueue] | str:
        """The readable queues of a topic's route, or what is wrong with the route."""
        reply = self._replies.get(key)
        if not isinstance(reply, Command):
            return f"no route of {topic}: {reply!r}"
        if reply.code == ResponseCode.TOPIC_NOT_EXIST and not self._stored(topic):
            return []
        if reply.code != ResponseCode.SUCCESS:
            return f"no route of {topic}: {reply.code} {reply.remark}"
        try:
            route = fastjson.read(TopicRouteData, reply.body)
        except ProtocolError as error:
            raise Violation(f"route of {topic} cannot be read: {error}") from error
        queues = [
            MessageQueue(topic, data.broker_name, queue_id)
            for data in route.queue_datas
            if data.perm & READ_PERM
            for queue_id in range(data.read_queue_nums)
        ]
        absent = sorted(self._stored(topic) - {queue.broker_name for queue in queues})
        return f"route of {topic} lacks {absent}" if absent else queues

    def _stored(self, topic: str) -> set[str]:
        """Brokers that have logs of the topic, or must have the topic."""
        brokers = self._cluster.brokers
        if self._cluster.scenario.create_topics and topic in self._topics:
            return {seat.name for seat in brokers}
        return {seat.name for seat in brokers if seat.store is not None and seat.store.logs(topic)}

    # -- the end -----------------------------------------------------------------------------------

    def read_logs(self) -> None:
        """Every log is dense, and every acknowledged message is where it was acknowledged."""
        found: dict[tuple[MessageQueue, int], int] = {}
        for seat in self._cluster.brokers:
            assert seat.store is not None
            for topic in [*self._topics, retry_topic(GROUP)]:
                for log in seat.store.logs(topic):
                    queue = MessageQueue(topic, seat.name, log.queue_id)
                    expected = log.min_offset
                    while expected < log.max_offset:
                        read = log.read(expected, ALL, ALL)
                        for view in decode_records(read.data, seat.name):
                            view.verify()
                            expected = self._past_damage(queue, expected)
                            if (view.queue_offset, view.queue_id) != (expected, log.queue_id):
                                raise Violation(f"{queue}: {view.queue_offset} at {expected}")
                            number = number_of(view.body)
                            self._witness.read_in_log(queue, expected, number)
                            if number in self._witness.promised and topic in self._topics:
                                self._published(view, queue)
                            found[queue, expected] = number
                            expected += 1
                        if not expected <= read.next_offset <= self._past_damage(queue, expected):
                            raise Violation(f"{queue}: next {read.next_offset} after {expected}")
                        expected = read.next_offset
        found.update(self._witness.damage.numbers)
        for number, position in self._witness.acknowledged.items():
            if position not in found:
                raise Violation(f"acknowledged message {number} is not in its log: {position}")
        self._kafka.compare(found)
        compare_queues(self._cluster.share_members.witness.numbers, found)

    def _past_damage(self, queue: MessageQueue, offset: int) -> int:
        while (queue, offset) in self._witness.damage.given_up:
            offset += 1
        return offset

    def _published(self, view: MessageView, queue: MessageQueue) -> None:
        """A half message is published once, unless its delay lets a kill deliver it twice.

        After a power cut its address may have been another's before.
        """
        if view.property_of(TIMER_OUT_MS) is not None:
            return
        if queue.broker_name not in self._cluster.power_cuts:
            half_address = view.prepared_transaction_offset
            self._witness.published(queue, view.queue_offset, half_address)

    def stop_members(self) -> None:
        """Stop the groups cleanly.

        Then every queue's committed offset must be where the group was.
        """
        ends = [(queue, end) for queue, end in self._logs() if end]
        cluster = self._cluster
        members = [*cluster.members, *cluster.kafka_members, *cluster.share_members.seats]
        self._stop(members, cluster.stop_member)
        self._world.run(self._world.now + 1_000)
        for queue, end in ends:
            self._check_committed(queue, end, self._committed(queue))
        if cluster.kafka_members:
            self._check_kafka_committed()

    def _check_kafka_committed(self) -> None:
        """All members have left in order: what they finished is committed."""
        floors = {part: self._kafka.reached(part) for part in self._kafka.floors}
        floors = {part: self._kafka.past_damage(part, at) for part, at in floors.items() if at}
        auditor = self._cluster.start_auditor()
        self._replies.clear()
        note = partial(self._replies.__setitem__, "committed")
        auditor.ask(kafka.FetchCommitted(tuple(sorted(floors))), note)
        deadline = self._world.now + STOP_MS
        while not self._replies and self._world.now < deadline:
            self._world.run(self._world.now + 20)
        told = self._replies.get("committed")
        if not isinstance(told, dict):
            raise Violation(f"no committed offsets of the Kafka group: {told!r}")
        committed = {part: self._kafka.past_damage(part, at.offset) for part, at in told.items()}
        for partition in sorted(self._witness.damage.kafka_offsets_lost & floors.keys()):
            # Whoever was further need not commit anew what the coordinator lost.
            floor = floors.pop(partition)
            if committed.pop(partition, 0) > floor:
                raise Violation(f"more of {partition} is committed than {floor}")
        if committed != floors:
            raise Violation(f"the Kafka group left at {floors}, committed is {committed}")

    def restart_brokers(self) -> None:
        """Stop producers and brokers cleanly and restart the brokers: nothing may be lost."""
        self._stop(
            self._cluster.producers, lambda seat, then: seat.process.ask(StopProducer(), then)
        )
        self._stop(self._cluster.brokers, lambda seat, then: seat.process.ask(StopBroker(), then))
        for seat in self._cluster.brokers:
            self._cluster.start(seat)

    def _stop(
        self, seats: Sequence[Seat], ask: Callable[[Seat, Callable[[object], None]], None]
    ) -> None:
        """Ask for a clean stop and wait for it."""
        seats = [seat for seat in seats if seat.process.alive]
        self._replies.clear()
        for seat in seats:
            ask(seat, partial(self._replies.__setitem__, seat.name))
        deadline = self._world.now + STOP_MS
        while len(self._replies) < len(seats) and self._world.now < deadline:
            self._world.run(self._world.now + 100)
        for seat in seats:
            if self._replies.get(seat.name, self) is not None:
                raise Violation(f"{seat.name} did not stop: {self._replies.get(seat.name)!r}")
            seat.process.die("stopped")

    def _committed(self, queue: MessageQueue) -> int:
        """The group's committed offset, as the broker tells it.

        A link may be half-open: asked again.
        """
        header = headers.QueryConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=queue.topic, queue_id=queue.queue_id
        )
        command = Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=headers.write(header))
        seat = next(s for s in self._cluster.brokers if s.name == queue.broker_name)
        reply: object = None
        for _ in range(ASK_TRIES):
            self._replies.clear()
            self._invoke(f"{seat.host.ip}:{BROKER_PORT}", command, "offset")
            deadline = self._world.now + ASK_MS
            while not self._replies and self._world.now < deadline:
                self._world.run(self._world.now + 20)
            reply = self._replies.get("offset")
            if isinstance(reply, Command) and reply.code == ResponseCode.SUCCESS:
                return int(reply.ext["offset"])
        raise Violation(f"no committed offset of {queue}: {reply!r}")

    def _check_committed(self, queue: MessageQueue, end: int, offset: int) -> None:
        self._witness.committed(queue, offset, queue.broker_name)
        left = [at for at in range(offset, end) if self._wanted(queue, at)]
        if left and queue not in self._witness.damage.offsets_lost:
            raise Violation(
                f"{queue}: {offset} is committed after a clean stop, not {left[-1] + 1}"
            )

    def _wanted(self, queue: MessageQueue, offset: int) -> bool:
        if (queue, offset) in self._witness.damage.given_up:
            return False
        number = self._cluster.number_at(queue, offset)
        return number is not None and self._witness.wanted(number)

    def ledger(self) -> tuple[Record, ...]:
        """The rebalance ledger of all brokers, as they wrote it."""
        records: list[Record] = []
        for seat in self._cluster.brokers:
            if seat.store is None or not seat.process.alive:
                continue
            for log in seat.store.logs(LEDGER_TOPIC):
                offset = log.min_offset
                while offset < log.max_offset:
                    read = log.read(offset, ALL, ALL)
                    for view in decode_records(read.data, seat.name):
                        records.extend(ledger.decode(view.body))
                    offset = read.next_offset
        return tuple(records)
