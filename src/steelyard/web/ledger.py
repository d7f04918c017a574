"""Follows the ledger of a cluster, and counts what its rebalances cost (`rebalances`).

Every broker has a queue of the ledger's topic. Each is read by a task of its own, so that one
broker that is down delays no other. What was read is computed in a thread: a large group's state
takes some time, and `/healthz` must not wait for it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from steelyard.client.aio.admin import Admin
from steelyard.client.aio.pull import PullConsumer
from steelyard.config import HttpConfig
from steelyard.driver.logs import logger
from steelyard.errors import SteelyardError
from steelyard.ledger.events import LEDGER_TOPIC
from steelyard.ledger.group import GroupState
from steelyard.ledger.stream import LedgerMessage, Stream, ledger_message
from steelyard.types import MessageQueue
from steelyard.web.console.history import LedgerHistory
from steelyard.web.rebalances import READER_GROUP, RebalanceCosts

HISTORY_MS = 600_000
"""Least time back at which reading begins, to know who had the queues before a rebalance."""

DELAY_MS = 5_000
"""How much later than others a broker's records may come."""

COMPUTE_SECONDS = 2.0
"""Interval between two computations."""

LOOK_SECONDS = 5.0
"""Interval between two looks for new brokers."""

AWAIT_SECONDS = 0.5
"""Interval between two looks for a first broker."""

AGAIN_SECONDS = 2.0
"""Pause after a failed attempt to read."""

HOLD_MS = 10_000
"""How long a broker may wait for the next message."""

WAITING_MAX = 5_000
"""Messages that may wait to be computed; then nothing is read for a while."""

_log = logger("steelyard.http")


class LedgerFollower:
    """`await run()` until it is cancelled; `costs` has the counters. `admin` must be running.

    `history`: of the console, which gets the same rows; it may begin earlier.
    """

    def __init__(
        self, admin: Admin, config: HttpConfig, history: LedgerHistory | None = None
    ) -> None:
        self._admin = admin
        self._since = _now()
        self._history = history
        begins = [self._since - HISTORY_MS]
        self._begin = min(begins if history is None else [*begins, history.since])
        self.costs = RebalanceCosts(self._since, config)
        self._stream = Stream(DELAY_MS)
        self._states: dict[str, GroupState] = {}
        self._waiting: list[LedgerMessage] = []
        self._readers: dict[MessageQueue, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow the ledger. Errors are counted, and tried again."""
        await self._awaited()
        reader = PullConsumer(
            READER_GROUP,
            self._admin.nameservers,
            address_translation=self._admin.config.address_translation,
        )
        async with reader as consumer:
            computing = asyncio.create_task(self._compute())
            try:
                while not computing.done():
                    try:
                        await self._look(consumer)
                    except SteelyardError as error:
                        self._failed(error)
                    await asyncio.sleep(LOOK_SECONDS)
                computing.result()
            finally:
                for task in (computing, *self._readers.values()):
                    task.cancel()

    async def _awaited(self) -> None:
        """Wait for a first broker: whoever starts with the cluster comes before it."""
        while True:
            with suppress(SteelyardError):
                if (await self._admin.clusters()).broker_addr_table:
                    return
            await asyncio.sleep(AWAIT_SECONDS)

    def _failed(self, error: SteelyardError) -> None:
        self.costs.errors += 1
        _log.info("the ledger cannot be read: %s; trying again", error)

    async def _look(self, consumer: PullConsumer) -> None:
        """Begin to read queues that are new, or whose reader has ended."""
        for queue in await consumer.queues(LEDGER_TOPIC):
            reader = self._readers.get(queue)
            if reader is None or reader.done():
                self._readers[queue] = asyncio.create_task(self._read(consumer, queue))

    async def _read(self, consumer: PullConsumer, queue: MessageQueue) -> None:
        offset: int | None = None
        while True:
            if len(self._waiting) >= WAITING_MAX:
                await asyncio.sleep(COMPUTE_SECONDS)
                continue
            try:
                if offset is None:
                    offset = await consumer.offset_for_timestamp(queue, self._begin)
                result = await consumer.pull(queue, offset, hold_ms=HOLD_MS)
            except SteelyardError as error:
                self._failed(error)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            for view in result.messages:
                place = (queue.broker_name, queue.queue_id, view.queue_offset)
                message = ledger_message(place, view.body)
                if message is not None:
                    self._waiting.append(message)
            offset = result.next_begin_offset

    async def _compute(self) -> None:
        while True:
            await asyncio.sleep(COMPUTE_SECONDS)
            messages, self._waiting = self._waiting, []
            if not messages:
                self.costs.settle(_now())
                continue
            taken = await asyncio.to_thread(self._stream.take, messages, self._states.get)
            for group, state in taken.states.items():
                if state is None:
                    self._states.pop(group, None)
                else:
                    self._states[group] = state
            self.costs.take(taken, _now())
            if self._history is not None:
                self._history.take(taken)


def _now() -> int:
    return time.time_ns() // 1_000_000
