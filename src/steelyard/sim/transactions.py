"""A simulated program that publishes with transactions and answers brokers' checks.

What it decides about a number is in its database, which every producer of the group sees, as
brokers ask any of them. A number is decided once: when its half message is stored, or when sending
it failed (then it is rolled back, because no local transaction was run). Some decisions are only
reported when a broker asks.
"""

from __future__ import annotations

from enum import Enum
from functools import partial

from steelyard.nodes.producer import EndTransaction, Half, SendHalf, TransactionCheck
from steelyard.nodes.seam import Handled
from steelyard.sim.checkers import Witness, number_of
from steelyard.sim.world import Process, World
from steelyard.types import Message, TransactionState

LOCAL_MS_MAX = 50
"""Longest local transaction, and longest database lookup."""


class TransactionPlan(Enum):
    """The program's plan for a number: its decision, and whether it reports it unasked."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    COMMIT_WHEN_ASKED = "commit when asked"
    ROLLBACK_WHEN_ASKED = "rollback when asked"


_PLANS = (
    TransactionPlan.COMMIT,
    TransactionPlan.COMMIT,
    TransactionPlan.COMMIT,
    TransactionPlan.ROLLBACK,
    TransactionPlan.COMMIT_WHEN_ASKED,
    TransactionPlan.ROLLBACK_WHEN_ASKED,
)


class Decisions:
    """The decisions about all numbers."""

    def __init__(self, world: World, witness: Witness) -> None:
        self._world = world
        self._witness = witness
        self._rng = world.rng("transactions")
        self._decided: dict[int, TransactionState] = {}
        self._put_off: set[int] = set()
        """Numbers whose first check was answered with UNKNOWN."""
        self.asked = 0

    def begin(self, process: Process, number: int, message: Message) -> None:
        """Send the half message; the rest follows from the response."""
        self._witness.began(number)
        plan = self._rng.choice(_PLANS)
        process.ask(SendHalf(message), partial(self._stored, process, number, plan))

    def _stored(self, process: Process, number: int, plan: TransactionPlan, result: object) -> None:
        if isinstance(result, Half):
            decide = partial(self._decide, process, number, plan, result)
            self._world.after(self._rng.randrange(LOCAL_MS_MAX), decide)
        else:
            self._witness.fail(number, repr(result))
            self._decided[number] = TransactionState.ROLLBACK

    def _decide(self, process: Process, number: int, plan: TransactionPlan, half: Half) -> None:
        """The local transaction ends."""
        if not process.alive:
            return
        state = TransactionState.ROLLBACK
        if plan in (TransactionPlan.COMMIT, TransactionPlan.COMMIT_WHEN_ASKED):
            state = TransactionState.COMMIT
            self._witness.promise(number)
        self._decided[number] = state
        told = (
            state
            if plan in (TransactionPlan.COMMIT, TransactionPlan.ROLLBACK)
            else TransactionState.UNKNOWN
        )
        process.ask(EndTransaction(half, told), lambda result: None)

    def hand(self, process: Process, ticket: int, question: object) -> None:
        """Answer a broker's check at one of the producers."""
        assert isinstance(question, TransactionCheck)
        number = number_of(question.message.body)
        self._world.trace.note(self._world.now, process.name, f"> Hand {ticket} {number}")
        self.asked += 1
        state = self._answer(number)
        answer = partial(process.deliver, Handled(ticket, state))
        self._world.after(self._rng.randrange(LOCAL_MS_MAX), answer)

    def _answer(self, number: int) -> TransactionState:
        if number not in self._put_off and self._rng.randrange(5) == 0:
            self._put_off.add(number)
            return TransactionState.UNKNOWN
        return self._decided.get(number, TransactionState.UNKNOWN)
