"""Follows the ledger of a cluster, and counts what its rebalances cost (`rebalances`).

Every broker has a queue of the ledger's topic. Each is read by a task of its own, so that one
broker that is down delays no other. What was read is computed in a thread: a large group's state
takes some time, and `/healthz` must not wait for it.

At first the pasts of all brokers are put together (`catching_up`). Afterwards records may come
`DELAY_MS` later than others. If some come later still, because a broker hung or was away with
records that nobody had read, the rows are wrong. Then the ledger is read again, from before these
records on. Until that is done, the rows of before are shown, and the console says what they lack. A
broker whose clock is slow is late again and again: the pauses between two readings grow, and what
is dropped meanwhile is counted (`steelyard_ledger_late_records_total`).
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from steelyard.client.administration.asking import masters_of
from steelyard.client.aio.admin import Admin
from steelyard.client.aio.pull import PullConsumer
from steelyard.config import HttpConfig
from steelyard.driver.logs import logger
from steelyard.errors import SteelyardError
from steelyard.ledger.events import LEDGER_TOPIC
from steelyard.ledger.group import FINAL_MS, GroupState
from steelyard.ledger.parts import LASTS_MS
from steelyard.ledger.stream import LateRecords, LedgerMessage, Stream, Taken, ledger_message
from steelyard.types import MessageQueue
from steelyard.web.catching_up import Merge
from steelyard.web.console.history import LedgerHistory
from steelyard.web.consumers import consumer_of
from steelyard.web.rebalances import READER_GROUP, RebalanceCosts

HISTORY_MS = 600_000
"""Least time back at which reading begins, to know who had the queues before a rebalance."""

DELAY_MS = 5_000
"""How much later than others a broker's records may come."""

PAST_DELAY_MS = 120_000
"""The same in the past, which is there: what a broker wrote that had hung may span minutes."""

COMPUTE_SECONDS = 2.0
"""Interval between two computations."""

LOOK_SECONDS = 5.0
"""Interval between two looks for new brokers."""

AGAIN_SECONDS = 2.0
"""Pause after a failed attempt to read."""

HOLD_MS = 10_000
"""How long a broker may wait for the next message."""

AGAIN_MS = 60_000
AGAIN_MAX_MS = 3_600_000
"""Least pause between two readings because of late records: at first, and at most."""

_log = logger("steelyard.http")


class _Reading:
    """One reading of the ledger, from `begin`; its rows count as of `since`.

    `is_shown`: all was read, and its rows have replaced those of the reading before. `history`:
    until then its rows, None if nobody wants them. `late`: records that are missing from them.
    """

    def __init__(self, begin: int, since: int, history: LedgerHistory | None) -> None:
        self.begin = begin
        self.since = since
        self.history = history
        self.merge = Merge(_now())
        self.stream = Stream(PAST_DELAY_MS)
        self.states: dict[str, GroupState] = {}
        self.tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self.late: dict[str, LateRecords] = {}
        self.is_shown = False


class LedgerFollower:
    """`await run()` until it is cancelled; `costs` has the counters. `admin` must be running.

    `history`: of the console, which gets the same rows; it may begin earlier. `tls`: as `admin` has
    it.
    """

    def __init__(
        self,
        admin: Admin,
        config: HttpConfig,
        history: LedgerHistory | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._admin = admin
        self._tls = tls
        self._wanted = frozenset(config.brokers)
        since = _now()
        self._history = history
        begins = [since - HISTORY_MS]
        self._begin = min(begins if history is None else [*begins, history.since])
        self.costs = RebalanceCosts(since, config)
        self._late: dict[str, LateRecords] = {}
        """Records that are missing from the rows, by broker."""
        self._again_at = 0
        self._pause_ms = AGAIN_MS

    async def run(self) -> None:
        """Follow the ledger. Errors are counted, and tried again."""
        async with consumer_of(self._admin, READER_GROUP, self._tls) as consumer:
            begin, since = self._begin, 0
            while True:
                fresh = None if self._history is None else LedgerHistory(self._history.since)
                await self._follow(consumer, _Reading(begin, since, fresh))
                first_at = min(late.first_at for late in self._late.values())
                since = first_at - LASTS_MS - FINAL_MS
                begin = since - HISTORY_MS
                if begin <= self._begin:
                    begin, since = self._begin, 0
                self.costs.begin_again(since)

    async def _follow(self, consumer: PullConsumer, reading: _Reading) -> None:
        """Read the ledger once; return when it should be read again."""
        looking = asyncio.create_task(self._look(consumer, reading))
        try:
            while not await self._compute(reading):
                if looking.done():
                    looking.result()
                await asyncio.sleep(COMPUTE_SECONDS)
        finally:
            for task in (looking, *reading.tasks.values()):
                task.cancel()

    def _failed(self, error: SteelyardError) -> None:
        self.costs.errors += 1
        _log.info("the ledger cannot be read: %s; trying again", error)

    # -- reading ---------------------------------------------------------------------------------

    async def _look(self, consumer: PullConsumer, reading: _Reading) -> None:
        """Find out who is there again and again; begin to read queues that are new."""
        while True:
            try:
                listed = masters_of(await self._admin.clusters())
                # Whoever starts with the cluster comes before its first broker: no failure.
                queues = await consumer.queues(LEDGER_TOPIC) if listed else ()
            except SteelyardError as error:
                self._failed(error)
            else:
                if listed:
                    reading.merge.expect(self._wanted - listed.keys(), queues, _now())
                for queue in queues:
                    task = reading.tasks.get(queue)
                    if task is None or task.done():
                        reader = self._read(consumer, queue, reading)
                        reading.tasks[queue] = asyncio.create_task(reader)
            await asyncio.sleep(LOOK_SECONDS if reading.merge.is_complete else COMPUTE_SECONDS)

    async def _read(self, consumer: PullConsumer, queue: MessageQueue, reading: _Reading) -> None:
        offset: int | None = None
        merge = reading.merge
        while True:
            if merge.is_full(queue):
                await asyncio.sleep(COMPUTE_SECONDS)
                continue
            try:
                if offset is None:
                    offset = await consumer.offset_for_timestamp(queue, reading.begin)
                    end = await consumer.max_offset(queue)
                hold_ms = HOLD_MS if offset >= end else 0
                result = await consumer.pull(queue, offset, hold_ms=hold_ms)
            except SteelyardError as error:
                self._failed(error)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            found: list[LedgerMessage] = []
            for view in result.messages:
                place = (queue.broker_name, queue.queue_id, view.queue_offset)
                message = ledger_message(place, view.body)
                if message is not None:
                    found.append(message)
            offset = result.next_begin_offset
            merge.add(queue, found, _now(), is_at_end=offset >= end)

    # -- computing -------------------------------------------------------------------------------

    async def _compute(self, reading: _Reading) -> bool:
        """Compute what was read; return whether to read again."""
        messages = reading.merge.take(_now())
        if messages:
            taken = await asyncio.to_thread(reading.stream.take, messages, reading.states.get)
            if taken.late:
                reading.late = _together(reading.late, taken.late_of)
                self._late = _together(self._late, taken.late_of)
                if self._is_again(_now()):
                    return True
            self._keep(reading, taken)
        now = _now()
        if reading.is_shown:
            self.costs.settle(now)
        elif reading.merge.is_complete:
            self._show(reading)
        if self._history is not None:
            self._history.incomplete = self._words(reading)
        return reading.is_shown and bool(self._late) and self._is_again(now)

    def _is_again(self, now: int) -> bool:
        """Return whether to read again now, because of late records."""
        if now < self._again_at:
            return False
        if now - self._again_at > AGAIN_MAX_MS:
            self._pause_ms = AGAIN_MS
        self._again_at = now + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, AGAIN_MAX_MS)
        return True

    def _keep(self, reading: _Reading, taken: Taken) -> None:
        for group, state in taken.states.items():
            if state is None:
                reading.states.pop(group, None)
            else:
                reading.states[group] = state
        self.costs.take(taken, _now(), settles=reading.is_shown)
        history = self._history if reading.is_shown else reading.history
        if history is not None:
            history.take(taken)

    def _show(self, reading: _Reading) -> None:
        """Show what was read instead of what was read before."""
        reading.is_shown = True
        reading.stream.delay_ms = DELAY_MS
        self._late = reading.late
        if self._history is not None and reading.history is not None:
            self._history.renew(reading.history, reading.since)
        reading.history = None

    def _words(self, reading: _Reading) -> str | None:
        """Return what is missing from the rows, if anything is."""
        said: list[str] = []
        missing = ", ".join(reading.merge.missing())
        if self._late:
            late = "; ".join(
                f"{one.number:,} of {name} ({_clock(one.first_at)} to {_clock(one.last_at)} UTC)"
                for name, one in sorted(self._late.items())
            )
            said.append(f"Records came too late: {late}. Figures of these minutes are incomplete")
            until = f" until the ledger is read again at {_clock(self._again_at)} UTC."
            said[-1] += until if reading.is_shown else "; the ledger is being read again."
        elif not reading.is_shown:
            said.append(
                "What the brokers recorded is being read; rebalances are shown when all is read."
            )
        if missing:
            said.append(f"Not read to the end: {missing}.")
        return " ".join(said) or None


def _together(
    some: Mapping[str, LateRecords], others: Mapping[str, LateRecords]
) -> dict[str, LateRecords]:
    found = dict(some)
    for broker, one in others.items():
        known = found.get(broker, LateRecords(0, one.first_at, one.last_at))
        first_at, last_at = min(known.first_at, one.first_at), max(known.last_at, one.last_at)
        found[broker] = LateRecords(known.number + one.number, first_at, last_at)
    return found


def _clock(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%H:%M:%S}"


def _now() -> int:
    return time.time_ns() // 1_000_000
