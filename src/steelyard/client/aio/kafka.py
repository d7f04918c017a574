"""The asyncio Kafka consumer. It runs one node with a driver of its own on the running loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from steelyard.checks import Positive
from steelyard.client.arguments import checked
from steelyard.client.reading import (
    CommitCallback,
    Hooks,
    KafkaSettings,
    Offsets,
    Partition,
    PartitionHook,
    Reading,
    assign_call,
    each_once,
    ends_call,
    subscription,
    times_call,
)
from steelyard.client.settings import Seconds, begin_call
from steelyard.config import KafkaConsumerConfig
from steelyard.driver.driver import Driver
from steelyard.errors import ClosedError, SteelyardError
from steelyard.nodes.consumer.kafka.contract import (
    Assignment,
    Committed,
    ConsumerRecord,
    Describe,
    GiveBack,
    ListOffsets,
    MemberState,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionsFor,
    Pause,
    Paused,
    Position,
    Rejoin,
    Resume,
    Seek,
    SeekToEnd,
    Subscribe,
)
from steelyard.nodes.seam import Call, Handled
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.list_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    import ssl

_ITERATION_MS = 60_000
"""How long one poll of an iteration waits."""


@checked
class KafkaConsumer(Reading):
    """Reads topics of Apache Kafka, or of anything that speaks its protocol, from asyncio.

    >>> async with KafkaConsumer("Orders", bootstrap_servers="h:9092", group_id="g") as consumer:  # doctest: +SKIP
    ...     async for record in consumer:
    ...         print(record.partition, record.offset, record.value)

    All that `steelyard.KafkaConsumer` says holds here, with coroutines; the hooks and callbacks may be coroutine functions.
    One task polls at a time. A poll that is cancelled, by `asyncio.timeout` for instance, loses nothing: what it would have
    returned comes with the next one.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] | None = None,
        group_id: str | None = None,
        on_assigned: PartitionHook | None = None,
        on_revoked: PartitionHook | None = None,
        on_lost: PartitionHook | None = None,
        config: KafkaConsumerConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
        **settings: Unpack[KafkaSettings],
    ) -> None:
        hooks = Hooks(on_assigned, on_revoked, on_lost)
        super().__init__(topics, bootstrap_servers, group_id, hooks, config, tls, settings)
        self._driver: Driver | None = None
        self._handed: deque[tuple[int, object]] = deque()
        self._caller: asyncio.Task[None] | None = None
        """Calls hooks and callbacks, one after the other."""

    # -- life --------------------------------------------------------------------------------------

    async def start(self, timeout: Seconds | None = None) -> Self:
        """Begin to read; any other call does so, too. `async with` does it.

        The start waits a moment for the first news of the servers; while they cannot be reached a warning says
        so, and they are tried on. With `timeout`, in seconds, it waits until they are reached, and raises ConnectError with
        the cause where they are not. After an error the consumer is closed.
        """
        driver = await self._live()
        try:
            await driver.ask(begin_call(timeout))
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Commit what polls returned, where that is automatic, leave the group and close. May be called again."""
        await self._close(returned=True)

    async def _close(self, *, returned: bool) -> None:
        driver = self._driver
        if driver is not None and not self._closed:
            with suppress(ClosedError):  # it is being closed by another task
                await driver.ask(self._stop_call(returned=returned))
                await driver.close()
        self._closed = True

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """After an error what the last poll returned is not committed: it may not have been worked on."""
        await self._close(returned=kind is None)

    # -- topics and partitions ---------------------------------------------------------------------

    async def subscribe(
        self, topics: str | Iterable[str] | None = None, pattern: str | None = None
    ) -> Self:
        """Read a share of these topics, in place of those before; or of all topics whose whole name matches the
        regular expression `pattern`, those to come included."""
        await self._call(subscription(topics, pattern))
        return self

    async def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group."""
        await self._call(Subscribe())

    async def assign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions and no others, without a share of the group's."""
        await self._call(assign_call(partitions))

    async def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read now, sorted."""
        return await self._partitions(Assignment())

    async def partitions_for_topic(self, topic: str) -> tuple[TopicPartition, ...]:
        """All partitions of a topic, sorted; none of one that does not exist."""
        return await self._partitions(PartitionsFor(topic))

    async def enforce_rebalance(self, reason: str = "the application wants a rebalance") -> None:
        """Have the group share out its partitions again, soon."""
        await self._call(Rejoin(reason))

    async def member(self) -> MemberState:
        """This consumer as a member of its group, at this moment."""
        state = await self._call(Describe())
        assert isinstance(state, MemberState)
        return state

    # -- records -----------------------------------------------------------------------------------

    async def poll(
        self, timeout_ms: int = 1_000, max_records: Positive | None = None
    ) -> list[ConsumerRecord]:
        """Records of the partitions held, in the order of each; none when nothing came within `timeout_ms`.

        `max_records`: `max_poll_records` unless given. Joins the group again where that is needed.
        """
        for rewind in self.rewinds():
            with suppress(SteelyardError):  # the partition went away: another reads it
                await self._call(rewind)
        call = self.poll_call(timeout_ms, max_records)
        driver = await self._live()
        records = await driver.poll(call, GiveBack(call.number))
        assert isinstance(records, tuple)
        return list(records)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Records one by one, until the consumer is closed. Those not passed on yet do not count as consumed."""
        while not self._closed:
            try:
                self._unread.extend(await self.poll(_ITERATION_MS))
            except ClosedError:
                return
            while self._unread and not self._closed:
                yield self._unread.popleft()

    # -- offsets -----------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit all that polls returned, or `offsets`: of each partition the one to go on at. Waits for the coordinator.

        Raises CommitFailedError where the group has gone on without this member.
        """
        await self._call(self._commit_call(offsets))

    async def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> asyncio.Future[None]:
        """As `commit`, without waiting for its end; `callback(error)` is called then, with None after a success."""
        future = (await self._live()).ask(self._commit_call(offsets))
        if callback is not None:
            future.add_done_callback(lambda done: self._on_hand(0, (callback, done.exception())))
        return future

    async def committed(self, partition: Partition) -> OffsetAndMetadata | None:
        """The group's committed offset of any partition; None without one."""
        found = await self._call(Committed((partition,)))
        assert isinstance(found, dict)
        offset = found.get(partition)
        assert offset is None or isinstance(offset, OffsetAndMetadata)
        return offset

    async def position(self, partition: Partition) -> int:
        """The offset of the next record that a poll returns of a partition that is held."""
        offset = await self._call(Position(partition))
        assert isinstance(offset, int)
        return self.unread().get(partition, offset)

    async def seek(self, partition: Partition, offset: int) -> None:
        """Go on at this offset of a partition that is held."""
        self.forget(partition)
        await self._call(Seek(partition, offset))

    async def seek_to_beginning(self, *partitions: Partition) -> None:
        """Go on at the first record that there is; of all partitions held where none are given."""
        await self._seek_to_end(partitions, EARLIEST)

    async def seek_to_end(self, *partitions: Partition) -> None:
        """Go on with the next record that comes; of all partitions held where none are given."""
        await self._seek_to_end(partitions, LATEST)

    async def pause(self, *partitions: Partition) -> None:
        """Return no records of these partitions until `resume`. They are still this member's."""
        await self._call(Pause(each_once(partitions)))

    async def resume(self, *partitions: Partition) -> None:
        """Go on with partitions that were paused."""
        await self._call(Resume(each_once(partitions)))

    async def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused, sorted."""
        return await self._partitions(Paused())

    async def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """The offset of the first record of each that there still is."""
        return {
            key: found.offset for key, found in await self._offsets(ends_call(partitions, EARLIEST))
        }

    async def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """The offset that the next record of each will have; with read_committed that of the first open transaction."""
        return {
            key: found.offset for key, found in await self._offsets(ends_call(partitions, LATEST))
        }

    async def offsets_for_times(
        self, timestamps_ms: Mapping[Partition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each at that time, in ms since the epoch, or later; None without one."""
        found = dict(await self._offsets(times_call(timestamps_ms)))
        return {key: found.get(key) for key in each_once(timestamps_ms)}

    # -- the node ----------------------------------------------------------------------------------

    async def _seek_to_end(self, partitions: tuple[TopicPartition, ...], timestamp: int) -> None:
        for key in (keys := each_once(partitions)) or list(self.unread()):
            self.forget(key)
        await self._call(SeekToEnd(keys, timestamp))

    async def _partitions(self, call: Call[object]) -> tuple[TopicPartition, ...]:
        partitions = await self._call(call)
        assert isinstance(partitions, tuple)
        return partitions

    async def _offsets(
        self, call: ListOffsets
    ) -> Iterable[tuple[TopicPartition, OffsetAndTimestamp]]:
        found = await self._call(call)
        assert isinstance(found, dict)
        return found.items()

    async def _call(self, call: Call[object]) -> object:
        return await (await self._live()).ask(call)

    async def _live(self) -> Driver:
        if self._closed:
            raise ClosedError("the consumer is closed")
        if self._driver is None:
            self._driver = Driver(
                self.make(), name="kafka-consumer", on_hand=self._on_hand, tls=self._tls
            )
            self._driver.start()
            for call in self._first:
                await self._driver.ask(call)
        return self._driver

    def _on_hand(self, ticket: int, handed: object) -> None:
        self._handed.append((ticket, handed))
        if self._caller is None or self._caller.done():
            self._caller = asyncio.get_running_loop().create_task(self._call_hooks())

    async def _call_hooks(self) -> None:
        """Hooks, and the callbacks of commits."""
        assert self._driver is not None
        while self._handed:
            ticket, handed = self._handed.popleft()
            try:
                if isinstance(handed, tuple):
                    callback, ended = handed
                    returned = callback(ended)
                else:
                    returned = self._hooks.call(handed)
                if isawaitable(returned):
                    await returned
            except Exception as error:  # whatever a user's function raises ends here
                self._hooks.failed(handed, error)
            if ticket:
                self._driver.handle(Handled(ticket, None))
