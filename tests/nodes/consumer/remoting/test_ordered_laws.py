"""What holds of ordered consumption whatever happens: verdicts, thefts of locks, rebalances, resets of time."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples
from tests.nodes.consumer.remoting.conftest import batch_of, offsets_of
from tests.nodes.consumer.remoting.test_ordered import OrderedGroup

from steelyard.nodes.seam import Deliver
from steelyard.types import MessageQueue
from steelyard.wire.remoting.command import Command

LOCK_LIFE_MS = 30_000

A0, A1 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
B0, B1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
QUEUES = (A0, A1, B0, B1)


class Watched(list[Deliver]):
    """What the listener has; tells of everything that comes."""

    def __init__(self, seen: Callable[[Deliver], None]) -> None:
        self._seen = seen

    def append(self, hand: Deliver) -> None:
        self._seen(hand)
        super().append(hand)


class OrderedMachine(RuleBasedStateMachine):
    """One member with four queues, and another that takes locks and a share, but consumes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.published = dict.fromkeys(QUEUES, 0)
        self.succeeded: dict[MessageQueue, set[int]] = {queue: set() for queue in QUEUES}
        self.stolen_at: dict[MessageQueue, int] = {}

    @initialize(batch=st.integers(1, 3), places=st.integers(1, 4), clean=st.booleans())
    def begin(self, batch: int, places: int, clean: bool) -> None:
        self.group = OrderedGroup(
            2,
            consume_batch=batch,
            handed_max=places,
            clean_handover=clean,
            suspend_ms=500,
            pull_batch=4,
        )
        self.rig = self.group.rig
        self.tables = {"a": self.group.locks_a, "b": self.group.locks_b}
        self.rig.hands = Watched(self.handed)
        self.group.start()

    def owners(self, queue: MessageQueue) -> dict[MessageQueue, str]:
        return self.tables[queue.broker_name].owners

    def handed(self, hand: Deliver) -> None:
        """No batch beside another of its queue, none without the lock, no message before its forerunners."""
        queue = batch_of(hand).queue
        assert queue not in [batch_of(other).queue for other in self.rig.hands]
        stolen_at = self.stolen_at.get(queue)
        assert stolen_at is None or self.rig.now - stolen_at < LOCK_LIFE_MS
        first, *others = offsets_of(hand)
        assert self.succeeded[queue] >= set(range(first))
        assert others == [first + number for number in range(1, len(others) + 1)]

    @rule(queue=st.sampled_from(QUEUES), count=st.integers(1, 5))
    def publish(self, queue: MessageQueue, count: int) -> None:
        broker = self.group.a if queue.broker_name == "a" else self.group.b
        self.published[queue] += count
        self.rig.publish(broker, "T", queue.queue_id, count)

    @precondition(lambda self: self.rig.hands)
    @rule(data=st.data(), ok=st.booleans())
    def verdict(self, data: st.DataObject, ok: bool) -> None:
        hand = data.draw(st.sampled_from(list(self.rig.hands)))
        if ok:
            self.succeeded[batch_of(hand).queue].update(offsets_of(hand))
        self.group.verdict(hand, ok=ok)

    @rule(ms=st.sampled_from([1, 20, 600, 2_000, 10_000, 20_000, 65_000]))
    def pass_time(self, ms: int) -> None:
        self.rig.advance(ms)

    @rule(queue=st.sampled_from(QUEUES), silent=st.booleans(), ms=st.sampled_from([0, 40_000]))
    def steal(self, queue: MessageQueue, silent: bool, ms: int) -> None:
        """As a broker does that was restarted, or that this member is cut off from."""
        if self.owners(queue).get(queue) != "c2":
            self.owners(queue)[queue] = "c2"
            self.stolen_at[queue] = self.rig.now
            self.tables[queue.broker_name].silent = silent
        self.rig.advance(ms)

    @rule(queue=st.sampled_from(QUEUES))
    def give_back(self, queue: MessageQueue) -> None:
        if self.owners(queue).get(queue) == "c2":
            del self.owners(queue)[queue]
            self.stolen_at.pop(queue, None)

    @rule(present=st.booleans())
    def other_member(self, present: bool) -> None:
        """It joins or leaves; this member gets or gives half of the queues.

        The notification is lost if a broker was silent for so long that its connection was just closed.
        """
        for broker in (self.group.a, self.group.b):
            broker.members = [m for m in broker.members if m != "c2"] + ["c2"] * present
        if self.group.a.address in self.rig.links.values():
            self.rig.push(self.group.a, Command(code=40, flag=2, ext={"consumerGroup": "g"}))

    @rule(name=st.sampled_from("ab"), silent=st.booleans())
    def silence(self, name: str, silent: bool) -> None:
        """A broker that does not answer lock requests for a while."""
        self.tables[name].silent = silent

    @invariant()
    def nothing_is_committed_that_was_not_consumed(self) -> None:
        for broker in (self.group.a, self.group.b):
            for (topic, number), offset in broker.offsets.items():
                if topic == "T":
                    queue = MessageQueue(topic, broker.name, number)
                    assert self.succeeded[queue] >= set(range(offset))

    def teardown(self) -> None:
        """Once all is well again, every message is consumed."""
        if not hasattr(self, "group"):
            return
        for table in self.tables.values():
            table.silent = False
        for queue in QUEUES:
            self.give_back(queue)
        self.other_member(present=False)
        for _ in range(60):
            while self.rig.hands:
                hand = self.rig.hands[0]
                self.succeeded[batch_of(hand).queue].update(offsets_of(hand))
                self.group.verdict(hand)
            if all(len(self.succeeded[q]) == self.published[q] for q in QUEUES):
                return
            self.rig.advance(2_000)
        raise AssertionError(f"not all of {self.published} was consumed: {self.succeeded}")


TestOrdered = OrderedMachine.TestCase
TestOrdered.settings = settings(max_examples=examples(40), stateful_step_count=40)
