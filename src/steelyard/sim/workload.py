"""Simulated applications: producers that publish numbered messages, a group that consumes them.

A body begins with the message's number; the witness checks everything by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

from msgspec.structs import replace

from steelyard.nodes.consumer.remoting.contract import ConsumeBatch
from steelyard.nodes.producer import SendMessages, SendOneway
from steelyard.nodes.seam import Handled, Verdict
from steelyard.sim.checkers import DIGITS, Witness, number_of
from steelyard.sim.order import OrderChecker
from steelyard.sim.scenario import Scenario
from steelyard.sim.transactions import Decisions
from steelyard.sim.world import Process, World
from steelyard.types import (
    ConsumeOrderlyStatus,
    ConsumeStatus,
    Message,
    MessageQueue,
    SendResult,
)
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.flags import PullFlag
from steelyard.wire.remoting.message import MessageView

TAGS = ("a", "b", "c")
BATCH_MAX = 8
DELAY_MS_MAX = 10_000

LATER_MAX = 2
"""Maximum failures of a message, so that it succeeds in the end."""


SUCCESS = ConsumeOrderlyStatus.SUCCESS
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


def topic_name(number: int) -> str:
    return f"Topic{number}"


class Publisher:
    """The application of a producer: sends at random times and remembers acknowledgements."""

    def __init__(self, scenario: Scenario, witness: Witness, decisions: Decisions) -> None:
        self._scenario = scenario
        self._witness = witness
        self._decisions = decisions

    def publish(self, process: Process, numbers: tuple[int, ...], rng: Random) -> None:
        """Send the numbers to one topic, in one request if there are several."""
        topic = topic_name(rng.randrange(self._scenario.topics))
        messages = []
        for number in numbers:
            tag = TAGS[number % len(TAGS)]
            padding = b"." * rng.randrange(self._scenario.body_bytes_max + 1)
            body = b"%0*d" % (DIGITS, number) + padding
            messages.append(Message(topic, body, tags=tag, keys=f"k{number}"))
            self._witness.sent(number, messages[-1])
        timers = self._scenario.timers_of_100
        if timers and len(numbers) == 1 and rng.randrange(100) < timers:
            delay_ms = 1 + rng.randrange(DELAY_MS_MAX)
            messages = [replace(messages[0], delay_ms=delay_ms)]
            self._witness.sent(numbers[0], messages[0])
        share = self._scenario.transactions_of_100
        if share and len(numbers) == 1 and rng.randrange(100) < share:
            self._decisions.begin(process, numbers[0], messages[0])
            return
        oneway = len(numbers) == 1 and rng.randrange(100) < self._scenario.oneway_of_100
        call = SendOneway if oneway else SendMessages
        process.ask(call(tuple(messages)), partial(self._answered, process.world, numbers))

    def _answered(self, world: World, numbers: tuple[int, ...], result: object) -> None:
        if isinstance(result, SendResult):
            for index, number in enumerate(numbers):
                offset = result.queue_offset + index
                if result.recall_handle is not None:  # it waits, and has no place yet
                    self._witness.owe(number)
                    continue
                self._witness.acknowledge(number, result.queue, offset, world.now)
        elif result is not None:
            for number in numbers:
                self._witness.fail(number, repr(result))


class Listener:
    """The application of a member's run `name`, with random processing times and failures.

    With `order` it is an orderly one.
    """

    def __init__(
        self,
        world: World,
        scenario: Scenario,
        witness: Witness,
        order: OrderChecker | None,
        name: str,
    ) -> None:
        self._world = world
        self._scenario = scenario
        self._witness = witness
        self._order = order
        self._name = name
        self._rng = world.rng(f"listener {name}")
        self.busy = 0
        """Batches without a result."""

    def hand(self, process: Process, ticket: int, batch: object) -> None:
        assert isinstance(batch, ConsumeBatch)
        pairs = [(view.queue_offset, number_of(view.body)) for view in batch.messages]
        self._world.trace.note(
            self._world.now, process.name, f"> Hand {ticket} {batch.queue} {pairs}"
        )
        if self._order is not None:
            offsets = tuple(offset for offset, _ in pairs)
            self._order.handed(batch.queue, self._name, offsets, self._world.now)
        self._witness.delivered(batch.queue, batch.messages, self._world.now)
        succeeds = self._succeeds(batch.messages)
        self.busy += 1
        process_ms = self._rng.randrange(self._scenario.process_ms_max + 1)
        if self._rng.randrange(100) < self._scenario.slow_of_100:
            process_ms *= 1 + self._rng.randrange(100)

        def done() -> None:
            if not process.alive:
                return
            self.busy -= 1
            status = self._judge(batch.queue, pairs, succeeds=succeeds)
            process.deliver(Handled(ticket, status))

        self._world.after(process_ms, done)

    def _succeeds(self, messages: tuple[MessageView, ...]) -> bool:
        if self._rng.randrange(100) >= self._scenario.later_of_100:
            return True
        return any(view.reconsume_times >= LATER_MAX for view in messages)

    def _judge(
        self, queue: MessageQueue, pairs: Sequence[tuple[int, int]], *, succeeds: bool
    ) -> Verdict:
        """Return the result.

        A failed message goes to the group's retry topic, or stays in its queue.
        """
        if self._order is None:
            # Of a batch that fails, every second message was consumed.
            consumed = [succeeds or place % 2 == 1 for place in range(len(pairs))]
            for (offset, number), final in zip(pairs, consumed, strict=True):
                self._witness.done(queue, offset, number, final=final)
            if succeeds:
                return ConsumeStatus.CONSUME_SUCCESS
            later, done = ConsumeStatus.RECONSUME_LATER, ConsumeStatus.CONSUME_SUCCESS
            return tuple(done if final else later for final in consumed)
        self._order.done(queue, self._name, succeeded=succeeds)
        for offset, number in pairs:
            if succeeds:
                self._witness.done(queue, offset, number, final=True)
            else:
                self._witness.suspended(queue, offset)
        return SUCCESS if succeeds else SUSPEND


def commit_in(command: Command) -> tuple[str, int, int] | None:
    """Return (topic, queue id, offset) that a member's request commits, None for other requests."""
    ext = command.ext
    if command.code == RequestCode.UPDATE_CONSUMER_OFFSET and "commitOffset" in ext:
        return ext["topic"], int(ext["queueId"]), int(ext["commitOffset"])
    if (
        command.code == RequestCode.PULL_MESSAGE
        and int(ext.get("sysFlag", "0")) & PullFlag.COMMIT_OFFSET
    ):
        return ext["topic"], int(ext["queueId"]), int(ext["commitOffset"])
    return None


def start_asked_in(command: Command) -> tuple[str, int] | None:
    """Return (topic, queue id) whose start a member requests, None for other requests."""
    if command.code != RequestCode.QUERY_CONSUMER_OFFSET:
        return None
    return command.ext["topic"], int(command.ext["queueId"])
