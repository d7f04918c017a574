"""Transactions and a process that dies, or a disk that is full, anywhere.

Law: once producers have answered all questions, each message whose half was acknowledged is published exactly once where
its transaction commits, and never where it does not; a half message that nobody was told of is never published. (One with
a delay may come twice: the schedule's progress is written after its messages.)
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.nodes.broker.conftest import Rig
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.remoting.test_transactions import (
    COMMIT,
    PGROUP,
    ROLLBACK,
    UNKNOWN,
    end,
    end_ext,
    half,
    published,
    questions,
)

from steelyard.config import BrokerConfig, StoreConfig
from steelyard.store.memory import Killed, MemoryDisk
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command

CONFIG = BrokerConfig(
    transaction_timeout_ms=1_000,
    transaction_check_interval_ms=1_500,
    transaction_check_max=1_000,
    ledger=False,
    store=StoreConfig(segment_bytes=2_000, index_flush_rows=2, retention_ms=0),
)

Step = tuple[str, int]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(0, 3)),
        st.tuples(st.just("rollback"), st.integers(0, 3)),
        st.tuples(st.just("delayed"), st.integers(0, 3)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.integers(0, 3_000)),
        st.tuples(st.just("ordinary"), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=14,
)


class Producer:
    """A producer that knows what becomes of its transactions, whatever becomes of the broker."""

    def __init__(self, number: int = 0) -> None:
        """`number`: that of the last transaction before, in another life."""
        self.decisions: dict[str, int] = {}
        """Of the half messages that were acknowledged."""
        self.delayed: set[str] = set()
        self.sent: list[tuple[str, Command]] = []
        self.number = self.first = number

    def live(self, rig: Rig, steps: Iterable[Step]) -> None:
        link = rig.connect()
        rig.beat(link, "p1", producer=PGROUP)
        for kind, value in steps:
            if kind in ("commit", "rollback", "delayed"):
                self._begin(rig, link, kind, value)
            elif kind == "end" and self.sent:
                key, answer = self.sent[value % len(self.sent)]
                end(rig, link, answer, self.decisions[key])
            elif kind == "wait":
                rig.advance(value)
                self.answer(rig, {0: UNKNOWN})
            elif kind == "ordinary":
                rig.send(link, bytes(50), queue_id=value)

    def _begin(self, rig: Rig, link: int, kind: str, size: int) -> None:
        self.number += 1
        key = str(self.number)
        more = {"DELAY": "1"} if kind == "delayed" else {}
        answer = half(rig, link, key, bytes(100 * size), **more)
        if answer.code == 0:
            self.decisions[key] = ROLLBACK if kind == "rollback" else COMMIT
            self.sent.append((key, answer))
            if more:
                self.delayed.add(key)

    def answer(self, rig: Rig, but: dict[int, int] | None = None) -> None:
        """Answer the questions; what was never acknowledged is rolled back."""
        for number, (link, question) in enumerate(questions(rig)):
            state = self.decisions.get(question.ext["msgId"], ROLLBACK)
            ext = {
                "producerGroup": PGROUP,
                "tranStateTableOffset": question.ext["tranStateTableOffset"],
                "commitLogOffset": question.ext["commitLogOffset"],
                "commitOrRollback": (but or {}).get(number, state),
                "fromTransactionCheck": "true",
                "msgId": question.ext["msgId"],
            }
            rig.post(link, RequestCode.END_TRANSACTION, ext, oneway=True)

    def settle(self, rig: Rig) -> None:
        """Answer until there is nothing left to ask."""
        link = rig.connect()
        rig.beat(link, "p1", producer=PGROUP)
        for _ in range(8):
            rig.advance(1_500)
            self.answer(rig)

    def check(self, rig: Rig) -> None:
        found = [view.message_id for view in published(rig) if view.property_of("PGROUP")]
        found = [key for key in found if int(key) > self.first]
        committed = [key for key, state in self.decisions.items() if state == COMMIT]
        once = [key for key in found if key not in self.delayed]
        assert sorted(once) == sorted(set(committed) - self.delayed)
        assert set(found) == set(committed)


def after(disk: MemoryDisk, now: int) -> Rig:
    """The next process on the same disk."""
    disk = disk.copy()
    disk.kill_after_bytes = None
    return Rig(CONFIG, disk, now=now)


def new_rig() -> Rig:
    rig = Rig(CONFIG)
    rig.send(rig.connect(), topic=TOPIC)
    return rig


@settings(max_examples=100)
@given(steps, steps, st.integers(0, 12_000), st.integers(0, 2_000))
@example([("commit", 1), ("end", 0)], [], 830, 100)
def test_a_kill_loses_no_committed_message_and_publishes_none_twice(
    first: list[Step], second: list[Step], kill_first: int, kill_second: int
) -> None:
    producer = Producer()
    rig = new_rig()
    rig.disk.kill_after_bytes = kill_first
    try:
        producer.live(rig, first)
        rig.disk.kill_after_bytes = None
    except Killed:
        rig = after(rig.disk, rig.now)
        rig.disk.kill_after_bytes = kill_second
        try:
            producer.live(rig, second)
            rig.disk.kill_after_bytes = None
        except Killed:
            rig = after(rig.disk, rig.now)
    producer.settle(rig)
    producer.check(rig)
    rig = after(rig.disk, rig.now)
    producer.settle(rig)
    producer.check(rig)


def test_a_kill_anywhere_in_a_commit() -> None:
    """Half message, operation, message and progress, cut at every third byte."""
    steps = [
        ("commit", 1),
        ("wait", 1_100),
        ("rollback", 0),
        ("end", 0),
        ("end", 1),
        ("wait", 1_100),
    ]
    rig = new_rig()
    size = sum(len(file.data) for file in rig.disk.files.values())
    Producer().live(rig, steps)
    written = sum(len(file.data) for file in rig.disk.files.values()) - size
    assert written > 1_000
    for position in range(0, written + 1, 3):
        producer = Producer()
        rig = new_rig()
        rig.disk.kill_after_bytes = position
        try:
            producer.live(rig, steps)
            rig.disk.kill_after_bytes = None
        except Killed:
            rig = after(rig.disk, rig.now)
        producer.settle(rig)
        producer.check(rig)


@settings(max_examples=80)
@given(steps, steps, st.integers(0, 4_000))
def test_a_full_disk_delays_but_changes_nothing(
    first: list[Step], second: list[Step], room: int
) -> None:
    producer = Producer()
    rig = new_rig()
    rig.disk.room_bytes = room
    producer.live(rig, first)
    rig.disk.room_bytes = None
    producer.live(rig, second)
    producer.settle(rig)
    producer.check(rig)
    rig = after(rig.disk, rig.now)
    producer.settle(rig)
    producer.check(rig)


@settings(max_examples=100)
@given(steps, steps, st.integers(0, 4_000), st.integers(0, 6_000))
def test_a_full_disk_and_then_a_kill(
    first: list[Step], second: list[Step], room: int, kill: int
) -> None:
    producer = Producer()
    rig = new_rig()
    rig.disk.room_bytes = room
    producer.live(rig, first)
    rig.disk.room_bytes = None
    rig.disk.kill_after_bytes = kill
    with suppress(Killed):
        producer.live(rig, second)
    rig = after(rig.disk, rig.now)
    producer.settle(rig)
    producer.check(rig)


@settings(max_examples=100)
@given(steps, steps, st.integers(0, 2**32))
def test_after_a_power_cut_new_transactions_are_not_taken_for_lost_ones(
    first: list[Step], second: list[Step], seed: int
) -> None:
    before, later = Producer(), Producer(100)
    rig = new_rig()
    rig.disk_answers = False
    before.live(rig, first)
    rig = Rig(CONFIG, rig.disk.lose_power(Random(seed)), now=rig.now)
    rig.node.check()
    later.live(rig, second)
    rig = after(rig.disk, rig.now)
    later.settle(rig)
    later.check(rig)


sync_steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["commit", "rollback", "delayed"]), st.integers(0, 3)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.integers(0, 3_000)),
        st.tuples(st.just("disk"), st.just(0)),
    ),
    min_size=1,
    max_size=14,
)


def live_on_a_slow_disk(rig: Rig, steps: Iterable[Step], producer: Producer) -> None:
    """A producer's life while flushes end only with a step "disk", or with the end of a half message's send."""
    link = rig.connect()
    rig.beat(link, "p1", producer=PGROUP)
    for kind, value in steps:
        rig.disk_answers = kind in ("commit", "rollback", "delayed")
        if kind == "disk":
            rig.answer_flushes()
        elif kind == "end" and producer.sent:
            key, answer = producer.sent[value % len(producer.sent)]
            ext = end_ext(answer, producer.decisions[key])
            rig.post(link, RequestCode.END_TRANSACTION, ext, oneway=True)
        elif kind == "wait":
            rig.advance(value)
            producer.answer(rig)
        elif rig.disk_answers:
            rig.answer_flushes()
            producer._begin(rig, link, kind, value)
    rig.disk_answers = True


@settings(max_examples=200)
@given(sync_steps, sync_steps, st.integers(0, 2**32), st.integers(0, 2**32))
def test_power_cuts_lose_no_committed_message_if_every_reply_waits_for_the_disk(
    first: list[Step], second: list[Step], seed: int, another: int
) -> None:
    """It may come twice: a power cut may take the operation and leave the message."""
    producer = Producer()
    config = replace(CONFIG, flush="sync")
    rig = Rig(config)
    for steps, cut in ((first, seed), (second, another)):
        live_on_a_slow_disk(rig, steps, producer)
        rig = Rig(config, rig.disk.lose_power(Random(cut)), now=rig.now)
        producer.sent.clear()
    producer.settle(rig)
    committed = {key for key, state in producer.decisions.items() if state == COMMIT}
    assert {view.message_id for view in published(rig)} == committed
