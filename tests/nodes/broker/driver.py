"""A driver for one broker without sockets: a disk in memory, a clock of the test's, effects made true at once."""

from __future__ import annotations

import random
from collections.abc import Hashable

from steelyard.acl.accounts import Accounts
from steelyard.config import BrokerConfig
from steelyard.nodes.broker.identity import identity_of
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.seam import (
    Closed,
    DropTimer,
    Due,
    Effect,
    Event,
    Flush,
    Flushed,
    Hang,
    Send,
    SetTimer,
)
from steelyard.store.files import Unsynced
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store
from steelyard.types import LogLine

START = 1_700_000_000_000
TOPIC = "TopicA"

ALL_CHECKED = 200
CHECK_EVERY = 10
"""Invariants are checked after each of the first events, and then after one of so many."""


def is_checked(events: int) -> bool:
    """Whether invariants are checked after the event of this number."""
    return events < ALL_CHECKED or events % CHECK_EVERY == 0


class _KeepNothing(random.Random):
    """Decides that a power cut loses whatever it can."""

    def randrange(self, *_: int) -> int:  # type: ignore[override]
        return 0


class Driver:
    """Every effect is made true, invariants are checked. A rig says what becomes of what the broker sends: `_carry`.

    `flushes` holds the flushes that the disk was not asked to answer yet, by ticket: with `disk_answers` it answers at once.
    """

    accounts: Accounts | None = None
    """Of RocketMQ's clients."""

    def __init__(self, config: BrokerConfig, disk: MemoryDisk | None, now: int) -> None:
        self.config = config
        self.disk = disk or MemoryDisk()
        self.now = now
        self.timers: dict[Hashable, int] = {}
        self.told: list[LogLine] = []
        self.hung: list[int] = []
        self.flushes: dict[int, Unsynced] = {}
        self.disk_answers = True
        self._events = 0
        self.restart()

    def restart(self) -> None:
        """A new node on what the disk holds, as after a kill."""
        self.store = Store(self.disk, self.config.store, identity_of(self.config))
        self.recovery = self.store.open(self.now)
        self.node = BrokerNode(self.config, self.store, random.Random(1), accounts=self.accounts)
        self.timers.clear()
        self.flushes.clear()
        self._make_true(self.node.start(self.now))

    def event(self, event: Event) -> list[Effect]:
        effects = self.node.handle(event, self.now)
        self._events += 1
        if is_checked(self._events):
            self.node.check()
        self._make_true(effects)
        return effects

    def _make_true(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SetTimer(key, at):
                    self.timers[key] = at
                case DropTimer(key):
                    self.timers.pop(key, None)
                case Send(link, message):
                    self._carry(link, message)
                case Hang(link):
                    self.hung.append(link)
                    self.event(Closed(link, "hung up"))
                case Flush(ticket):
                    self.flushes[ticket] = self.store.take_dirty()
                    if self.disk_answers:
                        self.answer_flushes()
                case LogLine():
                    self.told.append(effect)
                case _:
                    self._make_other_true(effect)

    def _carry(self, link: int, message: object) -> None:
        """What the broker sends arrives."""
        raise NotImplementedError

    def _make_other_true(self, effect: Effect) -> None:
        """Effects that not every rig's broker has."""
        raise AssertionError(f"not expected here: {effect}")

    def answer_flushes(self) -> None:
        flushes, self.flushes = self.flushes, {}
        for ticket, unsynced in flushes.items():
            unsynced.sync()
            self.event(Flushed(ticket))

    def lose_power(self, *written_back: str) -> None:
        """A power cut, and a new node: files are what was synced, and those below these folders what was written."""
        for path, file in self.disk.files.items():
            if path.startswith(written_back):
                file.sync()
        self.disk = self.disk.lose_power(_KeepNothing())
        self.restart()

    def advance(self, milliseconds: int) -> None:
        """Let time pass; timers go off in order."""
        until = self.now + milliseconds
        while self.timers:
            key = min(self.timers, key=lambda k: (self.timers[k], str(k)))
            if self.timers[key] > until:
                break
            self.now = max(self.now, self.timers.pop(key))
            self.event(Due(key))
        self.now = until
