"""The asyncio Kafka consumer."""

from __future__ import annotations

from asyncio import Future, Lock
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from steelyard.checks import Positive
from steelyard.client.aio.running import Running
from steelyard.client.arguments import checked
from steelyard.client.keywords import KafkaSettings
from steelyard.client.reading import (
    CommitCallback,
    CommitEnded,
    Offsets,
    Partition,
    PartitionHook,
    Reading,
    RebalanceHooks,
    assign_call,
    each_once,
    subscription,
)
from steelyard.client.settings import Seconds, begin_call
from steelyard.config import KafkaConsumerConfig
from steelyard.errors import ClosedError, SteelyardError
from steelyard.nodes.consumer.kafka.contract import (
    Assignment,
    ConsumerRecord,
    Describe,
    FetchCommitted,
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
from steelyard.nodes.seam import Call
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.logs import EARLIEST, LATEST

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

_ITERATION_MS = 60_000
"""How long one poll of an iteration waits."""


@checked
class KafkaConsumer(Reading):
    """Reads topics of Apache Kafka, or of anything that speaks its protocol, alone or as a member of a group.

    >>> async with KafkaConsumer("Orders", bootstrap_servers="127.0.0.1:9092", group_id="g") as consumer:  # doctest: +SKIP
    ...     async for record in consumer:
    ...         print(record.partition, record.offset, record.value)

    Or poll by poll:

    >>> records = await consumer.poll(timeout_ms=1000)                                   # doctest: +SKIP
    >>> await consumer.commit()                                                          # doctest: +SKIP

    What a poll returned counts as consumed when the next poll begins, and is committed every
    `auto_commit_interval_ms`, before partitions go to another member, and by `close`. With
    `enable_auto_commit=False` only `commit` and `commit_async` commit.

    A member has a share of the partitions, which changes as members come and go. Heartbeats go by themselves, but partitions
    are taken away only while a poll waits; a consumer that does not poll for `max_poll_interval_ms` leaves its group.
    `on_assigned(partitions)` is called before anything is read of partitions that are new: the place for a seek;
    `on_revoked(partitions)` before they go: the place for a commit; `on_lost(partitions)` when others may have them already
    (without it `on_revoked` is called). They may be coroutine functions, and one is called after the other; the poll waits
    for them.

    - `bootstrap_servers`: brokers to ask first, host:port, several separated by commas, or a list of them; the variable
      KAFKA_BOOTSTRAP_SERVERS unless given, or 127.0.0.1:9092.
    - `group_id`: members of one group share the partitions, and the committed offsets; none: only `assign` gives partitions.
    - `tls`: True encrypts connections and trusts the certificates of the system's authorities (or those in the file
      SSL_CERT_FILE); an ssl.SSLContext does as it is made.
    - `config`: settings as one object, a KafkaConsumerConfig, whose names are Kafka's. Each may be given by its name instead.

    The consumer starts with its first call, or with `async with`. Any task may call it, but one polls at a time. A poll that
    is cancelled, by `asyncio.timeout` for instance, loses nothing: what it would have returned comes with the next one. Calls
    raise KafkaError, RemotingError, ConfigError or ClosedError.
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
        given = {"bootstrap_servers": bootstrap_servers, "group_id": group_id, **settings}
        super().__init__(
            topics, config, given, RebalanceHooks(on_assigned, on_revoked, on_lost), tls
        )
        self._starting = Lock()
        self._running: Running | None = None

    # -- life --------------------------------------------------------------------------------------

    async def start(self, timeout: Seconds | None = None) -> Self:
        """Begin to read; any other call does so, too. `async with` does it.

        The start waits a moment for the first news of the servers. While they cannot be reached a warning says so, and they
        are tried on. With `timeout`, in seconds, it waits until they are reached, and raises ConnectError with the cause where
        they are not. After an error the consumer is closed.
        """
        running = await self._live()
        try:
            await running.ask(begin_call(timeout))
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Commit what polls returned, where that is automatic, leave the group and close. `async with` does it. May be called
        again."""
        await self._close(returned=True)

    stop = close

    async def _close(self, *, returned: bool) -> None:
        if self._running is not None and not self._closed:
            await self._running.close(self._stop_call(returned=returned), cancel=False)
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
        await self._ask(subscription(topics, pattern))
        return self

    async def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group."""
        await self._ask(Subscribe())

    async def assign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions and no others, without a share of the group's."""
        await self._ask(assign_call(partitions))

    async def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read now, sorted."""
        return await self._ask(Assignment())

    async def partitions_for_topic(self, topic: str) -> tuple[TopicPartition, ...]:
        """All partitions of a topic, sorted; none of one that does not exist."""
        return await self._ask(PartitionsFor(topic))

    async def enforce_rebalance(self, reason: str = "the application wants a rebalance") -> None:
        """Have the group share out its partitions again, soon."""
        await self._ask(Rejoin(reason))

    async def member(self) -> MemberState:
        """This consumer as a member of its group, at this moment."""
        return await self._ask(Describe())

    @property
    async def member_id(self) -> str:
        """What the coordinator calls this member; empty while it is none."""
        return (await self.member()).member_id

    @property
    async def generation(self) -> int:
        """The generation of the group that this member is in; -1 for none."""
        return (await self.member()).generation

    # -- records -----------------------------------------------------------------------------------

    async def poll(
        self, timeout_ms: int = 1_000, max_records: Positive | None = None
    ) -> list[ConsumerRecord]:
        """Records of the partitions held, in the order of each; none when nothing came within `timeout_ms`.

        `max_records`: `max_poll_records` unless given. Joins the group again where that is needed.
        """
        for rewind in self.rewinds():
            with suppress(SteelyardError):  # the partition went away: another reads it
                await self._ask(rewind)
        call = self.poll_call(timeout_ms, max_records)
        running = await self._live()
        return list(await running.poll(call, GiveBack(call.number)))

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
        await self._ask(self._commit_call(offsets))

    async def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> Future[None]:
        """As `commit`, without waiting for its end; `callback(error)` is called then, in turn with the hooks, with None
        after a success."""
        running = await self._live()
        future = running.ask_later(self._commit_call(offsets))
        if callback is not None:
            future.add_done_callback(
                lambda done: running.hand(CommitEnded(callback, done.exception()))
            )
        return future

    async def committed(self, partition: Partition) -> OffsetAndMetadata | None:
        """The group's committed offset of any partition; None without one."""
        return (await self._ask(FetchCommitted((partition,)))).get(partition)

    async def position(self, partition: Partition) -> int:
        """The offset of the next record that a poll returns of a partition that is held."""
        offset = await self._ask(Position(partition))
        return self.unread().get(partition, offset)

    async def seek(self, partition: Partition, offset: int) -> None:
        """Go on at this offset of a partition that is held."""
        self.forget(partition)
        await self._ask(Seek(partition, offset))

    async def seek_to_beginning(self, *partitions: Partition) -> None:
        """Go on at the first record that there is; of all partitions held where none are given."""
        await self._seek_to_end(partitions, EARLIEST)

    async def seek_to_end(self, *partitions: Partition) -> None:
        """Go on with the next record that comes; of all partitions held where none are given."""
        await self._seek_to_end(partitions, LATEST)

    async def pause(self, *partitions: Partition) -> None:
        """Return no records of these partitions until `resume`. They are still this member's."""
        await self._ask(Pause(each_once(partitions)))

    async def resume(self, *partitions: Partition) -> None:
        """Go on with partitions that were paused."""
        await self._ask(Resume(each_once(partitions)))

    async def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused, sorted."""
        return await self._ask(Paused())

    async def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """The offset of the first record of each that there still is."""
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """The offset that the next record of each will have; with read_committed that of the first open transaction."""
        return await self._ends(partitions, LATEST)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[Partition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each at that time, in ms since the epoch, or later; None without one."""
        found = await self._ask(ListOffsets(timestamps_ms))
        return {key: found.get(key) for key in each_once(timestamps_ms)}

    # -- the node ----------------------------------------------------------------------------------

    async def _seek_to_end(self, partitions: tuple[TopicPartition, ...], timestamp: int) -> None:
        for key in (keys := each_once(partitions)) or list(self.unread()):
            self.forget(key)
        await self._ask(SeekToEnd(keys, timestamp))

    async def _ends(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        call = ListOffsets(dict.fromkeys(each_once(partitions), timestamp))
        return {key: found.offset for key, found in (await self._ask(call)).items()}

    async def _ask(self, call: Call[T]) -> T:
        running = await self._live()
        return await running.ask(call)

    async def _live(self) -> Running:
        self._check_open()
        if self._running is None:
            async with self._starting:
                self._running = self._running or await self._begun()
        return self._running

    async def _begun(self) -> Running:
        running = Running(self.make(), "kafka-consumer", self._hooks, 1, tls=self._tls)
        await running.start()
        for call in self._first:
            await running.ask(call)
        return running
