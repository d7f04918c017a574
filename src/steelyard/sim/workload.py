"""Simulated applications: producers that publish numbered messages, a group that consumes them.

A body begins with the message's number; the witness checks everything by it.
"""

from __future__ import annotations

from functools import partial
from random import Random

from steelyard.nodes.consumer.contract import ConsumeBatch
from steelyard.nodes.producer import SendMessages
from steelyard.nodes.seam import Handled
from steelyard.sim.checkers import DIGITS, Witness, number_of
from steelyard.sim.scenario import Scenario
from steelyard.sim.world import Process, World
from steelyard.types import ConsumeStatus, Message, SendResult
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.flags import PullFlag
from steelyard.wire.remoting.message import MessageView

TAGS = ("a", "b", "c")
BATCH_MAX = 8

LATER_MAX = 2
"""A message is failed at most so often, so that it comes through in the end."""


def topic_name(number: int) -> str:
    return f"Topic{number}"


class Publisher:
    """The application of one producer: sends at drawn times, remembers what was acknowledged."""

    def __init__(self, scenario: Scenario, witness: Witness) -> None:
        self._scenario = scenario
        self._witness = witness

    def publish(self, process: Process, numbers: tuple[int, ...], rng: Random) -> None:
        """Send the numbers, to one topic, in one request where there are several."""
        topic = topic_name(rng.randrange(self._scenario.topics))
        messages = []
        for number in numbers:
            tag = TAGS[number % len(TAGS)]
            padding = b"." * rng.randrange(self._scenario.body_bytes_max + 1)
            body = b"%0*d" % (DIGITS, number) + padding
            messages.append(Message(topic, body, tags=tag, keys=f"k{number}"))
            self._witness.sent(number, messages[-1])
        oneway = len(numbers) == 1 and rng.randrange(100) < self._scenario.oneway_of_100
        call = SendMessages(tuple(messages), oneway=oneway)
        process.ask(call, partial(self._answered, process.world, numbers))

    def _answered(self, world: World, numbers: tuple[int, ...], result: object) -> None:
        if isinstance(result, SendResult):
            for index, number in enumerate(numbers):
                offset = result.queue_offset + index
                self._witness.acknowledge(number, result.queue, offset, world.now)
        elif result is not None:
            for number in numbers:
                self._witness.fail(number, repr(result))


class Listener:
    """The application of one member: takes a drawn time for each batch, fails some."""

    def __init__(self, world: World, scenario: Scenario, witness: Witness, name: str) -> None:
        self._world = world
        self._scenario = scenario
        self._witness = witness
        self._rng = world.rng(f"listener {name}")
        self.busy = 0
        """Batches it has not given its verdict on."""

    def hand(self, process: Process, ticket: int, batch: object) -> None:
        assert isinstance(batch, ConsumeBatch)
        pairs = [(view.queue_offset, number_of(view.body)) for view in batch.messages]
        self._world.trace.note(
            self._world.now, process.name, f"> Hand {ticket} {batch.queue} {pairs}"
        )
        self._witness.delivered(batch.queue, batch.messages, self._world.now)
        status = self._verdict(batch.messages)
        self.busy += 1
        process_ms = self._rng.randrange(self._scenario.process_ms_max + 1)
        if self._rng.randrange(100) < self._scenario.slow_of_100:
            process_ms *= 1 + self._rng.randrange(100)

        def done() -> None:
            if not process.alive:
                return
            self.busy -= 1
            final = status is ConsumeStatus.CONSUME_SUCCESS
            for offset, number in pairs:
                self._witness.done(batch.queue, offset, number, final=final)
            process.deliver(Handled(ticket, status))

        self._world.after(process_ms, done)

    def _verdict(self, messages: tuple[MessageView, ...]) -> ConsumeStatus:
        if self._rng.randrange(100) >= self._scenario.later_of_100:
            return ConsumeStatus.CONSUME_SUCCESS
        if any(view.reconsume_times >= LATER_MAX for view in messages):
            return ConsumeStatus.CONSUME_SUCCESS
        return ConsumeStatus.RECONSUME_LATER


def commit_in(command: Command) -> tuple[str, int, int] | None:
    """(topic, queue id, offset) that a member's request commits, None for other requests."""
    ext = command.ext
    if command.code == RequestCode.UPDATE_CONSUMER_OFFSET and "commitOffset" in ext:
        return ext["topic"], int(ext["queueId"]), int(ext["commitOffset"])
    if (
        command.code == RequestCode.PULL_MESSAGE
        and int(ext.get("sysFlag", "0")) & PullFlag.COMMIT_OFFSET
    ):
        return ext["topic"], int(ext["queueId"]), int(ext["commitOffset"])
    return None
