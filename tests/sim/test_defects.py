"""Known defects, planted: the simulator must find each. A checker that cannot fail checks nothing."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace
from tests.sim.planted import run

from steelyard.allocate import contiguous
from steelyard.allocate.plan import Claim, Plan
from steelyard.compaction.offset_map import OffsetMap
from steelyard.config import BrokerConfig, ConsumerConfig
from steelyard.consume.process_queue import ProcessQueue
from steelyard.errors import CorruptError
from steelyard.groups.kafka.consumer.groups import ConsumerGroups
from steelyard.groups.remoting.locks import QueueLocks
from steelyard.groups.remoting.ownership import HoldingState, Move
from steelyard.nodes.access import guard
from steelyard.nodes.broker.kafka.service import KafkaService
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.broker.remoting import delays, transactions
from steelyard.nodes.broker.remoting.operations import Operations, TransactionOutcome
from steelyard.nodes.broker.remoting.schedule import SECONDS, Schedule
from steelyard.nodes.broker.remoting.transactions import Transactions
from steelyard.nodes.broker.timers.timers import DelayedMessages
from steelyard.nodes.consumer.remoting import holdings
from steelyard.nodes.consumer.remoting import node as consumer_node
from steelyard.nodes.consumer.remoting.commits import Commits
from steelyard.nodes.consumer.remoting.handover import Handover
from steelyard.nodes.consumer.remoting.held import Held
from steelyard.nodes.consumer.remoting.locks import LockNews, Locks
from steelyard.nodes.consumer.remoting.node import ConsumerNode
from steelyard.nodes.consumer.remoting.ordered import OrderedDelivery
from steelyard.nodes.consumer.remoting.ordered import _Turn as Turn
from steelyard.nodes.seam import Due, Effect, Event, Node, Received, Send
from steelyard.sim.cluster import NodeFactories
from steelyard.sim.disk import Mount, SimFile
from steelyard.sim.network import Weather
from steelyard.sim.scenario import Fault, Scenario, load
from steelyard.store import check, files, links, reads, salvage, table_records, tables
from steelyard.store.files import Files
from steelyard.store.log import Log
from steelyard.store.reads import Slice
from steelyard.store.segment import Segment
from steelyard.store.store import Store
from steelyard.store.table_records import Entry, Gap, decode
from steelyard.store.verify import LOG, Stretch, verify_log
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command

FOLDER = Path(__file__).parents[2] / "scenarios"

SLOW = Scenario(seed=1, queues=2, members=2, messages=60, process_ms_max=200, settle_ms=60_000)
KILL = Scenario(
    seed=2,
    messages=100,
    settle_ms=60_000,
    faults=(Fault(kind="kill_broker", at_ms=10_300, for_ms=3_000),),
)


def failure(scenario: Scenario, parts: NodeFactories) -> str:
    """The rule that was broken; the same scenario is fine with sound nodes."""
    assert run(scenario).failure is None
    found = run(scenario, parts=parts).failure
    assert found is not None, "the planted defect was not found"
    return found


def test_a_consumer_that_commits_what_is_not_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hasty(ProcessQueue):
        @property
        def committable(self) -> int:
            return self.next_offset

    assert run(SLOW).failure is None
    monkeypatch.setattr(holdings, "ProcessQueue", Hasty)
    found = run(SLOW).failure
    assert found is not None
    assert "is not finished" in found


def test_a_broker_that_acknowledges_what_the_kernel_does_not_have() -> None:
    assert "is lost" in failure(KILL, NodeFactories(disk=LazyMount))


class LazyFile:
    """Keeps writes in the process until `sync`, as a buffered file does."""

    def __init__(self, file: SimFile) -> None:
        self._file = file
        self._data = bytearray(file.read(0, file.size()))

    def size(self) -> int:
        return len(self._data)

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._data[position : position + size])

    def write(self, position: int, data: bytes) -> None:
        self._data[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        del self._data[size:]

    def sync(self) -> None:
        self._file.truncate(0)
        self._file.write(0, bytes(self._data))
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class LazyMount(Mount):
    def __init__(self, mount: Mount) -> None:
        super().__init__(mount._disk, mount._generation)
        self._open: dict[str, LazyFile] = {}

    def open(self, path: str) -> SimFile:
        if path not in self._open:
            self._open[path] = LazyFile(super().open(path))
        return self._open[path]  # type: ignore[return-value]  # a file all the same


def test_a_broker_that_flushes_only_in_name() -> None:
    class NeverSyncs(Mount):
        def __init__(self, mount: Mount) -> None:
            super().__init__(mount._disk, mount._generation)

        def open(self, path: str) -> SimFile:
            file = super().open(path)
            if path.endswith(".log"):
                file.sync = lambda: None  # type: ignore[method-assign]
            return file

    scenario = load((FOLDER / "power_loss.toml").read_text())
    assert "is lost" in failure(scenario, NodeFactories(disk=NeverSyncs))


def test_a_broker_that_forgets_one_message_in_twenty() -> None:
    class Forgetful(BrokerNode):
        sends = 0

        def handle(self, event: Event, now: int) -> list[Effect]:
            effects = super().handle(event, now)
            if isinstance(event, Received) and isinstance(event.message, Command):
                if event.message.code == RequestCode.PULL_MESSAGE:
                    self.sends += 1
                if self.sends % 20 == 19:
                    effects = [_skip_first(effect) for effect in effects]
            return effects

    def _skip_first(effect: Effect) -> Effect:
        """A pull reply without its messages, that says to go on behind them."""
        if isinstance(effect, Send) and isinstance(effect.message, Command) and effect.message.body:
            ext = effect.message.ext
            if "nextBeginOffset" in ext:
                empty = Command(20, effect.message.opaque, effect.message.flag, ext)
                return Send(effect.link, empty)
        return effect

    def build(config: BrokerConfig, store: Store, rng: Random) -> Node:
        return Forgetful(config, store, rng)

    found = failure(replace(SLOW, settle_ms=20_000), NodeFactories(broker=build))
    assert "is not finished" in found


def everything_for_everyone(claims: Sequence[Claim], queues: Sequence) -> Plan:  # type: ignore[type-arg]
    return Plan(tuple(c.member for c in claims), tuple(tuple(queues) for _ in claims))


def the_last_queue_for_nobody(claims: Sequence[Claim], queues: Sequence) -> Plan:  # type: ignore[type-arg]
    return contiguous.allocate(claims, queues[:-1])


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        (everything_for_everyone, "is held by ['member-0', 'member-1']"),
        (the_last_queue_for_nobody, "offset 0 of"),
    ],
)
def test_an_allocation_that_breaks_its_laws(strategy: object, says: str) -> None:
    def build(config: ConsumerConfig, rng: Random) -> Node:
        return ConsumerNode(config, rng, strategy)  # type: ignore[arg-type]

    assert says in failure(replace(SLOW, settle_ms=20_000), NodeFactories(consumer=build))


def test_members_that_rely_on_notifications_alone() -> None:
    def build(config: ConsumerConfig, rng: Random) -> Node:
        return ConsumerNode(dataclasses.replace(config, rebalance_interval_ms=10**9), rng)

    scenario = load((FOLDER / "lost_notification.toml").read_text())
    found = failure(replace(scenario, settle_ms=60_000), NodeFactories(consumer=build))
    assert "not well 61000 ms after the faults" in found


PLANNED = Scenario(
    seed=1,
    queues=8,
    messages=800,
    first_message_ms=36_000,
    interval_ms=8,
    process_ms_max=10,
    thread_ms_max=30,
    duplicates_max=0,
    weather=Weather(delay_ms_max=1, spike_every=0),
    faults=tuple(
        Fault(kind="leave" if number % 2 else "join", at_ms=37_000 + 500 * number)
        for number in range(10)
    ),
)
"""Members come and go twice a second under load, over brokers that take requests in the wrong way round."""


def duplicates(scenario: Scenario) -> bool:
    """Whether messages came twice: the only rule that a planted defect may break here."""
    found = run(scenario).failure
    assert found is None or "duplicates" in found
    return found is not None


def test_members_that_hand_over_as_rocketmq_does() -> None:
    assert not duplicates(PLANNED)
    assert duplicates(replace(PLANNED, clean_handover=False))


def hasty(self: Handover, held: Held, now: int, effects: list[Effect]) -> None:
    """In place of `_release`."""
    self._draining.pop(held.epoch, None)
    self._holdings.move(held, Move.RELEASED, now)
    self._holdings.commits.commit_last(held, now, effects)
    self._let_go(held, now, effects)


def test_members_that_unlock_before_their_last_commit_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Handover, "_release", hasty)
    assert any(duplicates(replace(PLANNED, seed=seed)) for seed in (1, 3))


def test_members_whose_last_commit_does_not_wait_for_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Commits, "settles_at", lambda self, held: 0)
    monkeypatch.setattr(Commits, "doubtful", lambda self, held: False)
    assert any(duplicates(replace(PLANNED, seed=seed)) for seed in (2, 3))


ORDERED = load((FOLDER / "ordered_planned.toml").read_text())
ORDERED_FAULTS = load((FOLDER / "ordered_faults.toml").read_text())
TRANSACTIONS = load((FOLDER / "transactions.toml").read_text())


def broken(rule: str, scenario: Scenario, seeds: Iterable[int]) -> bool:
    """Is the rule broken with one of these seeds?"""
    return any(rule in (run(replace(scenario, seed=seed)).failure or "") for seed in seeds)


def test_orderly_members_that_believe_in_a_lock_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Locks, "holds", lambda self, held, now: True)
    found = run(ORDERED_FAULTS).failure
    assert found is not None
    assert "its lock was granted" in found


def test_orderly_members_that_start_without_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(Locks):
        def holds(self, held: Held, now: int) -> bool:
            return True

    def free(self: Locks, now: int, effects: list[Effect]) -> LockNews:
        news = LockNews()
        news.free += [h for h in self._holdings.all() if h.state is HoldingState.LOCKING]
        for held in news.free:
            self._claims[held.queue].waive()
        return news

    monkeypatch.setattr(Impatient, "ask", free)
    monkeypatch.setattr(consumer_node, "Locks", Impatient)
    found = run(ORDERED).failure
    assert found is not None
    assert "without its lock" in found


def test_a_broker_that_locks_a_queue_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueLocks, "lock", lambda self, group, client, queues, now: list(queues))
    found = run(ORDERED).failure
    assert found is not None
    assert "is locked for" in found


def test_orderly_members_that_do_not_wait_for_their_listener(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = replace(ORDERED, process_ms_max=1_000, slow_of_100=0)
    assert run(slow).failure is None
    monkeypatch.setattr(Handover, "_go_on_draining", Handover._release)
    found = run(slow).failure
    assert found is not None
    assert "lets the lock of" in found


def test_orderly_members_that_unlock_before_their_last_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Handover, "_release", hasty)
    calm = Weather(delay_ms_max=1, spike_every=0)
    busy = replace(ORDERED, messages=900, interval_ms=15, thread_ms_max=150, weather=calm)
    assert broken("succeeded elsewhere", busy, range(6))


def test_orderly_members_that_go_on_behind_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def finish(self: OrderedDelivery, turn: Turn, now: int, effects: list[Effect]) -> None:
        self._finish(turn, now)

    monkeypatch.setattr(OrderedDelivery, "_again", finish)
    assert broken("was suspended", ORDERED, range(3))


def test_a_broker_that_publishes_what_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    both = dict.fromkeys(transactions._OUTCOMES, TransactionOutcome.COMMIT)
    monkeypatch.setattr(transactions, "_OUTCOMES", both)
    found = run(TRANSACTIONS).failure
    assert found is not None
    assert "was not committed" in found


def test_a_broker_that_never_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transactions, "_ask", lambda self, half, checks, effects: None)
    found = run(replace(TRANSACTIONS, settle_ms=60_000)).failure
    assert found is not None
    assert "committed messages not finished" in found


def test_a_broker_that_publishes_again_what_it_finds_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Operations, "is_unfinished", lambda self, found, half: found.address >= 0)
    found = run(TRANSACTIONS).failure
    assert found is not None
    assert "is published at" in found


def test_a_broker_that_forgets_what_it_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the operation and the message: a restart has to publish it."""
    kills = tuple(
        Fault(kind="kill_broker", at_ms=8_000 + 4_000 * n, for_ms=1_500, count=1 + n % 4)
        for n in range(10)
    )
    often = replace(TRANSACTIONS, seed=2, brokers=1, transactions_of_100=100, faults=kills)
    assert run(often).failure is None
    monkeypatch.setattr(Operations, "is_unfinished", lambda self, operation, address: False)
    rule = "committed messages not finished"
    assert broken(rule, replace(often, settle_ms=60_000), range(4))


TIMERS = replace(KILL, timers_of_100=100)


def test_a_broker_that_delivers_delayed_messages_early(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(TIMERS).failure is None
    monkeypatch.setattr(delays, "due_of", lambda properties, now: now + 1)
    found = run(TIMERS).failure
    assert found is not None
    assert "before its time" in found


def test_a_broker_that_forgets_delayed_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a kill shows it: until then their rows are in memory."""
    monkeypatch.setattr(
        DelayedMessages, "start", lambda self, now, effects: self._arm(now, effects)
    )
    found = run(TIMERS).failure
    assert found is not None
    assert "messages not finished" in found


def test_a_node_that_raises() -> None:
    class Fragile(BrokerNode):
        def handle(self, event: Event, now: int) -> list[Effect]:
            assert not isinstance(event, Due), "planted"
            return super().handle(event, now)

    found = failure(SLOW, NodeFactories(broker=Fragile))
    assert "a node raised" in found
    assert "planted" in found


def test_a_store_that_takes_a_missing_descriptor_for_a_failed_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = load((FOLDER / "descriptors.toml").read_text())
    assert run(scenario).failure is None
    monkeypatch.setattr(files, "NO_DESCRIPTOR", frozenset())
    found = run(scenario).failure
    assert found is not None
    assert "Too many open files" in found


CLOCKS = replace(load((FOLDER / "clocks_set_back.toml").read_text()), settle_ms=60_000)


def test_retries_that_wait_for_an_earlier_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(CLOCKS).failure is None

    def due_at(self: Schedule, log: Log, offset: int, level: int) -> int:
        return log.stored_at(offset) + SECONDS[level - 1] * 1000

    monkeypatch.setattr(Schedule, "_due_at", due_at)
    assert "messages not finished" in (run(CLOCKS).failure or "")


def test_groups_whose_next_target_waits_for_an_earlier_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = ConsumerGroups.load
    monkeypatch.setattr(ConsumerGroups, "load", lambda self, now: load(self, now + 10**9))
    assert "did not reach the Kafka group" in (run(CLOCKS).failure or "")


def test_a_store_that_believes_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = replace(load((FOLDER / "rotten_index.toml").read_text()), settle_ms=20_000)
    assert run(replace(scenario, settle_ms=60_000)).failure is None

    def rows(self: Segment, offset: int, count: int) -> bytes:
        return self.index.read(offset - self.base_offset, count)

    monkeypatch.setattr(Segment, "rows", rows)
    assert run(scenario).failure is not None


ROTTEN_LOGS = load((FOLDER / "rotten_logs.toml").read_text())


def test_a_store_that_believes_its_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "is_record", lambda data, link, expected: True)
    assert run(ROTTEN_LOGS).failure is not None


def test_a_store_that_passes_over_damage_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = reads.read_records

    def careless(segment: Segment, offset: int, *limits: int) -> Slice:
        try:
            return sound(segment, offset, *limits)
        except CorruptError as error:
            return Slice(b"", 0, error.next_offset, error.next_offset)

    monkeypatch.setattr(reads, "read_records", careless)
    assert broken("is not finished", ROTTEN_LOGS, (1, 3))


def test_a_repair_that_gives_up_more_than_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Segment.give_up

    def generous(self: Segment, offset: int) -> tuple[int, int]:
        found = sound(self, offset)
        if offset + 1 < self.end[1]:
            sound(self, offset + 1)
        return found

    monkeypatch.setattr(Segment, "give_up", generous)
    assert run(replace(ROTTEN_LOGS, settle_ms=30_000)).failure is not None


def test_a_check_that_overlooks_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = verify_log

    def hasty(files: Files, folder: str, end: tuple[int, int] | None = None) -> Iterator[Stretch]:
        return (item for item in sound(files, folder, end) if item.part != LOG or item.offset % 3)

    monkeypatch.setattr(check, "verify_log", hasty)
    found = run(ROTTEN_LOGS).failure
    assert found is not None
    assert "check finds" in found


ROTTEN_TABLES = load((FOLDER / "rotten_tables.toml").read_text())


def found_in_tables() -> str:
    """The rule that was broken with a planted defect."""
    found = run(ROTTEN_TABLES).failure
    assert found is not None, "the planted defect was not found"
    return found


def test_a_table_that_is_believed() -> None:
    """Damaged values are taken: nobody looks at checksums."""

    class Blind:
        crc32 = staticmethod(lambda data, start=0: 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_records, "zlib", Blind)
        assert "starts, though tables/" in found_in_tables()


def test_a_table_that_passes_over_damage_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(data: bytes) -> Iterator[Entry | Gap]:
        return (item for item in decode(data) if isinstance(item, Entry) or item.torn)

    monkeypatch.setattr(tables, "decode", careless)
    assert "starts, though tables/" in found_in_tables()


def test_a_table_that_takes_damage_for_a_torn_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(data: bytes) -> Iterator[Entry | Gap]:
        for item in decode(data):
            if isinstance(item, Gap):
                yield Gap(item.position, len(data) - item.position, torn=True)
                return
            yield item

    monkeypatch.setattr(tables, "decode", cut)
    assert "starts, though tables/" in found_in_tables()


def test_a_check_that_overlooks_a_damaged_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(data: bytes) -> Iterator[Entry | Gap]:
        return (item for item in decode(data) if isinstance(item, Entry))

    monkeypatch.setattr(check, "decode", whole)
    assert "check finds []" in found_in_tables()


def test_a_repair_that_drops_more_of_a_table_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps what stands before the damage."""

    def first(data: bytes) -> Iterator[Entry | Gap]:
        for item in decode(data):
            yield item
            if isinstance(item, Gap):
                return

    monkeypatch.setattr(salvage, "decode", first)
    assert "a repair of tables/" in found_in_tables()


def test_a_repair_that_does_not_say_what_a_table_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "_lost", lambda gap: "")
    assert "a repair does not say that " in found_in_tables()


COMPACTED = load((FOLDER / "compacted_topic.toml").read_text())


def test_a_compaction_that_knows_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a key that comes again it keeps the first value."""
    assert run(COMPACTED).failure is None

    def get(self: OffsetMap, key: bytes) -> int:
        return 1 << 60

    monkeypatch.setattr(OffsetMap, "get", get)
    found = run(COMPACTED).failure
    assert found is not None
    assert "is lost" in found


def test_a_server_that_believes_every_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only strangers notice: whoever knows the secret is served as before."""
    scenario = load((FOLDER / "accounts.toml").read_text())
    scenario = replace(scenario, faults=(), messages=30, kafka_members=0)
    assert run(scenario).failure is None
    monkeypatch.setattr(guard, "is_signed", lambda *_: True)
    found = run(scenario).failure
    assert found is not None
    assert "of a stranger with" in found


def test_a_mute_that_is_forgotten_for_half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A send of RocketMQ wakes the fetch of a client that is over its quota then."""
    scenario = load((FOLDER / "quotas.toml").read_text())
    scenario = replace(scenario, faults=(), messages=100)
    passed = run(scenario)
    assert passed.failure is None
    assert passed.counts["muted"] > 0

    def forgetful(self: KafkaService, now: int, effects: list[Effect]) -> None:
        if now - self._followed_at >= 500:
            self.follow_up(now, effects)

    monkeypatch.setattr(KafkaService, "follow_up_soon", forgetful)
    found = run(scenario).failure
    assert found is not None
    assert "AssertionError" in found
