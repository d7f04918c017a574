# Written by tools/shells.py from client/aio/kafka.py: change that one, then `./dev generate`.
"""The blocking Kafka consumer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from steelyard.checks import Positive
from steelyard.client.arguments import checked
from steelyard.client.blocking.running import Running
from steelyard.client.interceptors import Interceptor
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
from steelyard.client.serialization import Deserialize, RecordDeserializers
from steelyard.client.settings import Seconds, begin_call
from steelyard.config import KafkaConsumerConfig
from steelyard.errors import ClosedError, SteelyardError
from steelyard.nodes.consumer.kafka.contract import (
    Assignment,
    ConsumerRecord,
    Describe,
    FetchCommitted,
    GiveBack,
    Key,
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
    Value,
)
from steelyard.nodes.seam import Call
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.logs import EARLIEST, LATEST

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

_ITERATION_MS = 60_000
"""Time that one poll of an iteration waits."""


@checked
class KafkaConsumer(Reading[Key, Value]):
    """Reads topics from Kafka brokers, on its own or as a member of a group.

    >>> consumer = KafkaConsumer("Orders", bootstrap_servers="127.0.0.1:9092", group_id="g")
    >>> with consumer:  # doctest: +SKIP
    ...     for record in consumer:
    ...         print(record.partition, record.offset, record.value)

    Or poll by poll:

    >>> records = consumer.poll(timeout_ms=1000)  # doctest: +SKIP
    >>> consumer.commit()  # doctest: +SKIP

    What a poll returned counts as consumed when the next poll begins, and is committed every
    `auto_commit_interval_ms`, before partitions go to another member, and by `close`. With
    `enable_auto_commit=False` only `commit` and `commit_async` commit.

    The members of a group share the partitions; the shares change as members join and leave.
    Heartbeats are sent in the background, but partitions are revoked only during a poll; a consumer
    that does not poll for `max_poll_interval_ms` leaves its group. `on_assigned(partitions)` is
    called before newly assigned partitions are read, for seeks; `on_revoked(partitions)` before
    partitions are given up, for commits; `on_lost(partitions)` when other members may already have
    them (without it `on_revoked` is called). They may be coroutine functions and are called one at
    a time; the poll waits for them.

    - `bootstrap_servers`: brokers to contact first, host:port, several separated by commas, or a
      list; default: the variable KAFKA_BOOTSTRAP_SERVERS, or 127.0.0.1:9092.
    - `group_id`: members of one group share the partitions and the committed offsets; without it,
      only `assign` can be used.
    - `group_protocol`: "consumer" for the protocol of KIP-848, in which the coordinator assigns.
    - `tls`: True encrypts connections and trusts the certificates of the system's authorities (or
      those in the file SSL_CERT_FILE); an ssl.SSLContext is used as configured.
    - `sasl_mechanism`, `sasl_username`, `sasl_password`: log in at the brokers.
    - `sasl_oauth_token`: for the mechanism OAUTHBEARER: called for an access token whenever a
      connection logs in; it must return quickly.
    - `key_deserializer`, `value_deserializer`: functions of bytes, or objects with a method
      `deserialize(topic, headers, data)`; records then have what they return as `key` and `value`.
      They are not called for None. If one raises, `poll` returns the records before that one, and
      the next poll raises DeserializationError, again and again until `seek` passes the record:
      `consumer.seek(error.queue, error.offset + 1)`.
    - `interceptors`: are told of every record that a poll returns, in this order, with keys and
      values as bytes.
    - `config`: settings as a KafkaConsumerConfig, whose names are Kafka's. Each may be given by
      name instead.

    The consumer starts with its first call, or with `with`. Any thread may call it, but only
    one may poll at a time. A poll that is interrupted, by Ctrl-C for instance, loses
    nothing: its records are returned by the next one. Calls raise KafkaError, RemotingError,
    AuthenticationError, ConfigError or ClosedError.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] | None = None,
        group_id: str | None = None,
        on_assigned: PartitionHook | None = None,
        on_revoked: PartitionHook | None = None,
        on_lost: PartitionHook | None = None,
        key_deserializer: Deserialize[Key] | None = None,
        value_deserializer: Deserialize[Value] | None = None,
        interceptors: Sequence[Interceptor] | None = None,
        config: KafkaConsumerConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
        sasl_oauth_token: Callable[[], str] | None = None,
        **settings: Unpack[KafkaSettings],
    ) -> None:
        given = {"bootstrap_servers": bootstrap_servers, "group_id": group_id, **settings}
        hooks = RebalanceHooks(on_assigned, on_revoked, on_lost)
        deserializers = RecordDeserializers(key_deserializer, value_deserializer)
        super().__init__(
            topics, config, given, hooks, interceptors, deserializers, tls, sasl_oauth_token
        )
        self._starting = Lock()
        self._running: Running | None = None

    # -- life --------------------------------------------------------------------------------------

    def start(self, timeout: Seconds | None = None) -> Self:
        """Start to read; any other call does so, too. `with` calls this.

        Waits up to a second for a first response from the servers. While they are unreachable, a
        warning is logged and the client keeps trying. With `timeout`, in seconds, waits until they
        are reached, or raises ConnectError with the cause. After an error the consumer is closed.
        """
        running = self._live()
        try:
            running.ask(begin_call(timeout))
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Commit what polls returned (if commits are automatic), leave the group and close.

        `with` calls this. May be called again.
        """
        self._close(returned=True)

    stop = close

    def _close(self, *, returned: bool) -> None:
        if self._running is None:
            self._closed = True
        elif not self._closed:
            stop = self._stop_call(returned=returned)
            self._closed = self._running.close(stop, cancel=False)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close.

        After an error without a commit, because the last poll may not have been processed.
        """
        self._close(returned=kind is None)

    # -- topics and partitions ---------------------------------------------------------------------

    def subscribe(
        self, topics: str | Iterable[str] | None = None, pattern: str | None = None
    ) -> Self:
        """Subscribe to these topics, or to a `pattern`, in place of earlier subscriptions.

        A `pattern` is a regular expression that must match the whole name of a topic; topics
        created later are included.
        """
        self._ask(subscription(topics, pattern))
        return self

    def unsubscribe(self) -> None:
        """Give up all partitions and leave the group."""
        self._rewind()
        self._ask(Subscribe())

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions and no others, without group assignment."""
        call = assign_call(partitions)
        self._rewind()
        self._ask(call)

    def assignment(self) -> tuple[TopicPartition, ...]:
        """Return the partitions read at present, sorted."""
        return self._ask(Assignment())

    def partitions_for_topic(self, topic: str) -> tuple[TopicPartition, ...]:
        """Return all partitions of a topic, sorted; none if it does not exist."""
        return self._ask(PartitionsFor(topic))

    def enforce_rebalance(self, reason: str = "the application wants a rebalance") -> None:
        """Make the group reassign its partitions soon.

        Raises ConfigError with `group_protocol="consumer"`: the coordinator decides then.
        """
        self._ask(Rejoin(reason))

    def member(self) -> MemberState:
        """Return this consumer's current state as a member of its group."""
        return self._ask(Describe())

    @property
    def member_id(self) -> str:
        """The coordinator's id for this member; empty if it is not a member."""
        return (self.member()).member_id

    @property
    def generation(self) -> int:
        """The generation of the group in which this member is; -1 for none.

        With `group_protocol="consumer"`, the member's epoch.
        """
        return (self.member()).generation

    # -- records -----------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: int = 1_000, max_records: Positive | None = None
    ) -> list[ConsumerRecord[Key, Value]]:
        """Return records of the assigned partitions, in order within each; none after `timeout_ms`.

        `max_records`: default: the setting `max_poll_records`. Rejoins the group if necessary.
        Raises DeserializationError for the first record only; without deserializers never.
        """
        records, began_at_ns = self._fetched(timeout_ms, max_records)
        return self._deserialized(records, began_at_ns)

    def _fetched(
        self, timeout_ms: int, max_records: int | None
    ) -> tuple[list[ConsumerRecord], int]:
        """Return records as they were fetched, and when that began, if interceptors ask."""
        self._rewind()
        call = self.poll_call(timeout_ms, max_records)
        running = self._live()
        began_at_ns = self._interception.is_on and time.time_ns()
        return list(running.poll(call, GiveBack(call.number))), began_at_ns

    def _rewind(self, partitions: Iterable[Partition] | None = None) -> None:
        """Let the node read again what was not returned of these partitions, by default of all."""
        for rewind in self.rewinds(partitions):
            with suppress(SteelyardError):  # the partition was revoked: another member reads it
                self._ask(rewind)

    def __iter__(self) -> Self:
        """Return the consumer: it yields records one by one until it is closed.

        Records that were not yielded are not consumed.
        """
        return self

    def __next__(self) -> ConsumerRecord[Key, Value]:
        """Return the next record of an iteration, which goes on after an error or a time-out.

        Raises DeserializationError, again and again until `seek` continues after the record.
        """
        while not self._closed:
            if self._unread:
                record = self._deserializers.record(self._unread[0])
                self._unread.popleft()
                return record
            try:
                records, began_at_ns = self._fetched(_ITERATION_MS, None)
            except ClosedError:
                break
            self._unread.extend(records)
            self._intercept(records, began_at_ns)
        raise StopIteration

    # -- offsets -----------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit everything that polls returned, or `offsets`: the next offsets to read.

        Waits for the coordinator. Raises CommitFailedError if the group has removed this member.
        """
        self._ask(self._commit_call(offsets))

    def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> Future[None]:
        """As `commit`, without waiting; `callback(error)` gets the outcome, None for success.

        It is called in turn with the hooks.
        """
        running = self._live()
        future = running.ask_later(self._commit_call(offsets))
        if callback is not None:

            def ended(done: Future[None]) -> None:
                if not done.cancelled():
                    running.hand(CommitEnded(callback, done.exception()))

            future.add_done_callback(ended)
        return future

    def committed(self, partition: Partition) -> OffsetAndMetadata | None:
        """Return the group's committed offset of any partition; None without one."""
        return (self._ask(FetchCommitted((partition,)))).get(partition)

    def position(self, partition: Partition) -> int:
        """Return the offset of the next record that a poll returns for an assigned partition."""
        offset = self._ask(Position(partition))
        return self.unread().get(partition, offset)

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at this offset of an assigned partition."""
        self.forget(partition)
        self._ask(Seek(partition, offset))

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Continue at the first existing record; in all assigned partitions if none are given."""
        self._seek_to_end(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Continue with the next new record; in all assigned partitions if none are given."""
        self._seek_to_end(partitions, LATEST)

    def pause(self, *partitions: Partition) -> None:
        """Return no records of these partitions until `resume`. They stay assigned."""
        keys = each_once(partitions)
        self._ask(Pause(keys))
        self._rewind(keys)

    def resume(self, *partitions: Partition) -> None:
        """Resume paused partitions."""
        self._ask(Resume(each_once(partitions)))

    def paused(self) -> tuple[TopicPartition, ...]:
        """Return the paused partitions, sorted."""
        return self._ask(Paused())

    def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the offset of the first existing record of each partition."""
        return self._ends(partitions, EARLIEST)

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the next offset of each.

        With read_committed that of the first open transaction.
        """
        return self._ends(partitions, LATEST)

    def offsets_for_times(
        self, timestamps_ms: Mapping[Partition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Find the first record of each at that time (ms since the epoch) or later.

        None without one.
        """
        found = self._ask(ListOffsets(timestamps_ms))
        return {key: found.get(key) for key in each_once(timestamps_ms)}

    # -- the node ----------------------------------------------------------------------------------

    def _seek_to_end(self, partitions: tuple[TopicPartition, ...], timestamp: int) -> None:
        for key in (keys := each_once(partitions)) or list(self.unread()):
            self.forget(key)
        self._ask(SeekToEnd(keys, timestamp))

    def _ends(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        call = ListOffsets(dict.fromkeys(each_once(partitions), timestamp))
        return {key: found.offset for key, found in (self._ask(call)).items()}

    def _ask(self, call: Call[T]) -> T:
        running = self._live()
        return running.ask(call)

    def _live(self) -> Running:
        self._check_open()
        if self._running is None:
            with self._starting:
                self._running = self._running or self._begun()
        return self._running

    def _begun(self) -> Running:
        running = Running(
            self.make(),
            "kafka-consumer",
            self._hooks,
            1,
            tls=self._tls,
            address_translation=self.config.address_translation,
        )
        try:
            running.start()
            for call in self._first:
                running.ask(call)
        except BaseException:
            running.close(self._stop_call(returned=False))
            raise
        return running
