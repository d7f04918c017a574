"""The streaming reader of `format("rocketmq")`.

Spark keeps one reader per query in a process of its own, and calls it about like this:

    initialOffset                    when there is no checkpoint, twice
    latestOffset(start, limit)       at each trigger; `start` is where the last batch ended
    partitions(start, end)           for each batch; first of all for one that a crash interrupted
    commit(end)                      before the batch after

- **The first offset.** Spark stores where a query began together with its first batch only, and
  asks for the beginning again if that batch is repeated. The first batch is therefore empty: it
  stores "latest" as offsets before anything depends on them.
- **Progress.** By the time of latestOffset(start), Spark has stored that everything before `start`
  is done; commit(end) comes later, and not at all for the last batch. So progress is stored for the
  consumer group at the former.
- **Idle polling.** Spark calls latestOffset every 10 ms while it finds nothing. Calls that find
  nothing wait, up to `IDLE_PAUSE_MAX_S`, before brokers are asked again.
- **Away.** Brokers and nameservers that do not answer are tried again for retryTimeoutMs, then the
  query fails; started again, it continues from its checkpoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from steelyard.errors import RemotingError, SteelyardError
from steelyard.spark.offsets import Offsets, QueueName, Range, aligned, from_json, to_json
from steelyard.spark.options.given import NUMBER_MAX
from steelyard.spark.options.reading import Options
from steelyard.spark.reading.admission import Admission
from steelyard.spark.reading.catalog import INTERNAL, Catalog, KnownQueues
from steelyard.spark.reading.planning import QueueRange, data_loss, first_offsets, partitions
from steelyard.spark.servers.patience import persist
from steelyard.spark.shipping import Shipped

if TYPE_CHECKING:
    import pyarrow as pa

REFRESH_S = 1.0
"""Interval at which routes are looked up: new topics and queues are found, moved ones followed."""
IDLE_PAUSE_MIN_S = 0.01
IDLE_PAUSE_MAX_S = 0.1
"""The pause before brokers are asked again doubles from the one to the other while idle."""
CLOCKS_MS = 3_600_000
"""Brokers' clocks may be ahead of ours by that much with alignByTime."""
STORE_RETRY_S = 30.0
"""The pause after progress could not be stored."""

logger = logging.getLogger(__name__)


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow, metaclass=Shipped):
    """Decides on the driver what each micro-batch reads; the workers read it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._catalog = Catalog(options)
        self._admission = Admission(options.trigger_offsets_min, options.trigger_delay_max_ms)
        self._initial: dict[str, object] | None = None
        self._first_batch_is_next = False
        self._known: KnownQueues | None = None
        self._known_at = 0.0
        self._latest: Offsets = {}
        self._target: dict[QueueName, int] | None = None
        """With Trigger.AvailableNow: where the query ends."""
        self._stored: Offsets = {}
        self._store_after = 0.0
        self._pause_s = 0.0
        self._looked_at = 0.0
        self._aligned_to = 0
        """The time at which the last batch with alignByTime ended."""

    # -- what Spark calls --------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """Return where a query without a checkpoint begins; the same at every call."""
        if self._initial is None:
            found = persist(
                lambda: first_offsets(self._catalog, self._options), self._options.retry_timeout_ms
            )
            self._initial = {**to_json(found)}
            self._first_batch_is_next = True
            if self._target is not None:
                # "latest" comes after the target was noted
                self._target |= {
                    queue: max(offset, self._target[queue])
                    for queue, offset in found.items()
                    if queue in self._target
                }
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return maxOffsetsPerTrigger.

        Never ReadAllAvailable, so that Spark passes that for Trigger.Once only.
        """
        return ReadMaxRows(self._options.trigger_offsets_max or NUMBER_MAX)

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """Return where the batch after `start` ends; `start` itself if there is nothing to read."""
        is_once = isinstance(limit, ReadAllAvailable)
        if self._first_batch_is_next:
            self._first_batch_is_next = False
            # Trigger.Once has no second batch
            if start == self._initial and not is_once:
                return start
        begun = from_json(start)
        latest = self._look(begun) if self._target is None else self._aimed(begun)
        self._check(begun, latest)
        end = self._admission.end(
            begun,
            latest,
            self._beginnings(latest.keys() - begun.keys()),
            most=limit.max_rows if isinstance(limit, ReadMaxRows) else NUMBER_MAX,
            now=int(time.monotonic() * 1000),
            may_wait=self._target is None and not is_once,
        )
        if self._options.align_by_time and end != begun:
            end = self._aligned(begun, end, latest)
        self._store(begun)
        if end == begun:
            self._pause_s = min(max(2 * self._pause_s, IDLE_PAUSE_MIN_S), IDLE_PAUSE_MAX_S)
            return start
        self._pause_s = 0.0
        return {**to_json(end)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note where the queues end now: this is where the query ends."""
        self._target = dict(persist(lambda: self._ask(()), self._options.retry_timeout_ms))
        self._latest = self._target

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """Return where the queues ended at the last look, for the query's progress."""
        return {**to_json(self._latest)} if self._latest else None

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """Return the partitions of a batch."""
        self._first_batch_is_next = False
        begun, until = from_json(start), from_json(end)
        # A first batch that is repeated may begin after its end. A queue that is new begins at its
        # end.
        ranges = [
            Range(queue, begun[queue], offset)
            for queue, offset in sorted(until.items())
            if begun.get(queue, offset) < offset
        ]
        known = persist(
            lambda: self._located([one.queue for one in ranges]), self._options.retry_timeout_ms
        )
        found = [one for one in ranges if one.queue in known.addresses]
        return [*partitions(self._options, found, known.addresses)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one partition; called in the workers."""
        # Only the workers need Arrow and numpy: planning works without them.
        from steelyard.spark.reading.pull import batches

        # otherwise Spark's placeholder for an empty list of them
        if isinstance(partition, QueueRange):
            yield from batches(partition, self._options)

    def commit(self, end: dict[str, object]) -> None:
        """Store the progress of the consumer group."""
        self._store(from_json(end))

    def stop(self) -> None:
        """Close the connections; Spark does not call this reliably."""
        self._catalog.close()

    # -- queues and their ends ---------------------------------------------------------------------

    def _look(self, begun: Offsets) -> Offsets:
        """Return where the queues end, after the pause that is due."""
        pause = self._looked_at + self._pause_s - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        self._latest = persist(lambda: self._ask(begun), self._options.retry_timeout_ms)
        self._looked_at = time.monotonic()
        return self._latest

    def _aimed(self, begun: Offsets) -> Offsets:
        """Return the target of Trigger.AvailableNow.

        Queues whose broker was away when it was noted are added.
        """
        assert self._target is not None
        missing = [one for one in begun.keys() - self._target.keys() if self._is_needed(one)]
        if missing:
            found = persist(lambda: self._ask(begun), self._options.retry_timeout_ms)
            for queue in missing:
                self._target[queue] = found[queue]
        return self._target

    def _ask(self, begun: Collection[QueueName]) -> Offsets:
        """Return where the queues end; those of `begun` that are needed must be among them."""
        known = self._refreshed(begun)
        try:
            latest = self._catalog.latest(known.addresses)
        except SteelyardError:
            self._known = None
            raise
        for queue in sorted(set(begun) - latest.keys()):
            if self._is_needed(queue):
                raise self._absent(queue, known)
        return latest

    def _refreshed(self, begun: Collection[QueueName]) -> KnownQueues:
        if self._known is None or time.monotonic() - self._known_at >= REFRESH_S:
            try:
                self._known = self._catalog.queues({topic for topic, _, _ in begun})
            except RemotingError:
                # brokers can be read without a nameserver
                if self._known is None:
                    raise
            self._known_at = time.monotonic()
        return self._known

    def _located(self, queues: Collection[QueueName]) -> KnownQueues:
        """Return addresses of all queues, but for those that may be left out."""
        if self._known is None or any(queue not in self._known.addresses for queue in queues):
            self._known = None
        known = self._refreshed(queues)
        for queue in queues:
            if queue not in known.addresses and (
                self._is_needed(queue) or not known.is_gone(queue)
            ):
                raise self._absent(queue, known)
        return known

    def _is_needed(self, queue: QueueName) -> bool:
        """Return whether the query cannot go on without a queue of its checkpoint.

        In version 0.1 patterns matched coordinators' topics.
        """
        was_matched = self._options.pattern and INTERNAL.fullmatch(queue[0])
        return self._options.fail_on_data_loss and not was_matched

    def _absent(self, queue: QueueName, known: KnownQueues) -> RemotingError:
        self._known = None
        topic, broker, queue_id = queue
        words = f"queue {queue_id} of topic {topic!r} on broker {broker!r}"
        if known.is_gone(queue):
            return RemotingError(
                f"{words} no longer exists, or the options exclude it. Set option 'failOnDataLoss'"
                " to false to go on without it"
            )
        return RemotingError(f"{words} cannot be read: no nameserver has an address of the broker")

    def _beginnings(self, queues: Collection[QueueName]) -> Offsets:
        """Return the least offsets of queues that are new."""
        if not queues:
            return {}
        known = self._known
        assert known is not None, "they were looked up"
        addresses = {
            queue: known.addresses[queue] for queue in sorted(queues) if queue in known.addresses
        }
        found = persist(lambda: self._catalog.earliest(addresses), self._options.retry_timeout_ms)
        for queue, offset in found.items():
            if offset and self._options.fail_on_data_loss:
                raise data_loss(queue, f"is new to this query, but starts at {offset}, not at 0")
        return found

    def _aligned(
        self, begun: Offsets, end: dict[QueueName, int], latest: Offsets
    ) -> dict[QueueName, int]:
        """Return an end of as many messages, at one time in all queues."""
        readable = {queue: offset for queue, offset in begun.items() if queue in latest}
        most = sum(end[queue] - offset for queue, offset in readable.items())
        if most == sum(latest[queue] - offset for queue, offset in readable.items()):
            return end
        known = self._known
        assert known is not None, "they were looked up"

        def at_time(at: int) -> Offsets:
            times = dict.fromkeys(known.addresses.keys() & readable.keys(), at)
            return self._catalog.at_time(known.addresses, times)

        now = int(time.time() * 1000) + CLOCKS_MS
        found, self._aligned_to = persist(
            lambda: aligned(readable, latest, most, at_time, after=self._aligned_to, before=now),
            self._options.retry_timeout_ms,
        )
        return {**end, **found}

    def _check(self, begun: Offsets, latest: Offsets) -> None:
        if self._options.fail_on_data_loss:
            for queue, offset in begun.items():
                if latest.get(queue, offset) < offset:
                    raise data_loss(
                        queue, f"ends at {latest[queue]}, but was read up to {offset} before"
                    )

    # -- progress ----------------------------------------------------------------------------------

    def _store(self, done: Offsets) -> None:
        """Store the group's progress where it changed. Failures do not matter to the query."""
        if not self._options.commit_offsets or self._known is None:
            return
        if time.monotonic() < self._store_after:
            return
        changed = {
            queue: offset for queue, offset in done.items() if self._stored.get(queue) != offset
        }
        if not changed:
            return
        try:
            if done.keys() != self._stored.keys():
                self._catalog.introduce_group(self._known.addresses)
            self._catalog.commit(self._known.addresses, changed)
        except SteelyardError as error:
            logger.warning(
                "progress of group %s was not stored: %s", self._options.consumer_group, error
            )
            self._store_after = time.monotonic() + STORE_RETRY_S
            return
        self._stored = dict(done)
