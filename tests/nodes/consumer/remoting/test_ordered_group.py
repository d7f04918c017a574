"""Several ordered consumers and real brokers: the order of each queue is kept while members come, go and die."""

from __future__ import annotations

import random
from collections import defaultdict

import msgspec
import pytest
from tests.nodes.consumer.remoting.conftest import batch_of, offsets_of
from tests.nodes.consumer.remoting.test_group import Cluster

from steelyard.config import ConsumerConfig
from steelyard.nodes.consumer.remoting.contract import Stop
from steelyard.nodes.consumer.remoting.node import ConsumerNode
from steelyard.nodes.seam import Deliver, Handled
from steelyard.types import ConsumeFrom, ConsumeOrderlyStatus, MessageQueue, Subscription

STEP_MS = 20


class Work(msgspec.Struct):
    """A batch at some member's listener."""

    address: str
    hand: Deliver
    queue: MessageQueue
    until: int
    ok: bool


class OrderedCluster(Cluster):
    """Listeners take their time and fail now and then; `done` has what was consumed, queue by queue."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.work: list[Work] = []
        self.done: dict[MessageQueue, list[int]] = defaultdict(list)
        self.shared: list[MessageQueue] = []
        """Queues that two members had at once."""
        super().__init__()

    def join(self, name: str) -> None:
        config = ConsumerConfig(
            nameservers=("127.0.0.1:9876",),
            group="g",
            client_id=name,
            subscriptions=(Subscription("T"),),
            consume_from=ConsumeFrom.FIRST_OFFSET,
            orderly=True,
            consume_batch=2,
            suspend_ms=100,
        )
        self.add(name, ConsumerNode(config, random.Random(3)))

    def _hand(self, address: str, hand: Deliver) -> None:
        queue = batch_of(hand).queue
        if queue.topic == "T":
            assert set(range(offsets_of(hand)[0])) <= set(self.done[queue]), "out of order"
            if any(work.queue == queue for work in self.work):
                self.shared.append(queue)
        until = self.now + self.chance.choice([0, 10, 200])
        self.work.append(Work(address, hand, queue, until, self.chance.random() < 0.9))

    def kill(self, address: str) -> None:
        self.work = [work for work in self.work if work.address != address]
        super().kill(address)

    def advance(self, ms: int) -> None:
        end = self.now + ms
        while self.now < end:
            super().advance(STEP_MS)
            for work in [work for work in self.work if work.until <= self.now]:
                self.work.remove(work)
                if work.ok:
                    self.done[work.queue] += offsets_of(work.hand)
                said = ConsumeOrderlyStatus.SUCCESS
                if not work.ok:
                    said = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                self._queue.append((work.address, Handled(work.hand.ticket, said)))
                self.settle()

    def consumed_once(self) -> int:
        return sum(len(set(offsets)) for queue, offsets in self.done.items() if queue.topic == "T")


@pytest.mark.parametrize("seed", range(4))
def test_planned_changes_cost_neither_order_nor_repetition(seed: int) -> None:
    town = OrderedCluster(seed)
    town.send(20)
    town.advance(31_000)
    members: list[str] = []
    for turn in range(10):
        if len(members) > 1 and town.chance.random() < 0.5:
            name = members.pop(town.chance.randrange(len(members)))
            stop = town.ask(name, Stop())
            town.advance(1_000)
            assert town.answers[stop] is None
            town.kill(name)
        else:
            members.append(f"c{turn}")
            town.join(members[-1])
        town.send(30)
        town.advance(town.chance.choice([200, 2_000, 30_000]))
    town.advance(10_000)
    assert town.consumed_once() == len(town.sent)
    assert not town.shared
    assert all(offsets == list(range(len(offsets))) for offsets in town.done.values())


@pytest.mark.parametrize("seed", range(4))
def test_members_that_die_leave_their_queues_in_order(seed: int) -> None:
    """After a minute, when the brokers drop their locks. What they had in hand comes again."""
    town = OrderedCluster(seed)
    town.send(20)
    town.advance(31_000)
    for name in ("c1", "c2", "c3"):
        town.join(name)
        town.advance(3_000)
    for name in ("c2", "c1"):
        town.send(40)
        town.advance(100)
        town.kill(name)
        town.advance(town.chance.choice([1_000, 40_000, 90_000]))
    town.send(40)
    town.advance(90_000)
    assert town.consumed_once() == len(town.sent)
    assert not town.shared


@pytest.mark.parametrize("seed", range(4))
def test_a_broker_that_forgets_its_locks_does_not_mix_the_order_up(seed: int) -> None:
    town = OrderedCluster(seed)
    town.send(20)
    town.advance(31_000)
    for name in ("c1", "c2"):
        town.join(name)
        town.advance(3_000)
    for _ in range(3):
        town.send(40)
        town.advance(100)
        town.kill("127.0.0.1:1")
        town.advance(town.chance.choice([500, 5_000, 40_000]))
        town.add_broker("127.0.0.1:1")
        town.advance(10_000)
    town.advance(60_000)
    assert town.consumed_once() == len(town.sent)
