"""The shared part of the blocking and the asyncio Kafka consumer."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple

from steelyard.addresses import KAFKA_PORT
from steelyard.checks import PLAIN_TOO
from steelyard.client.interceptors import Interception, Interceptor
from steelyard.client.serialization import RecordDeserializers
from steelyard.client.settings import check_address, configured, tls_context
from steelyard.config import KafkaConsumerConfig, check
from steelyard.driver.logs import logger
from steelyard.errors import ClosedError, ConfigError
from steelyard.nodes.consumer.kafka.contract import (
    Assign,
    Assigned,
    Commit,
    ConsumerRecord,
    Key,
    Lost,
    OffsetAndMetadata,
    Poll,
    Revoked,
    Seek,
    Stop,
    Subscribe,
    Value,
)
from steelyard.nodes.consumer.kafka.node import KafkaConsumerNode
from steelyard.nodes.seam import Call
from steelyard.sasl.login import Login, login_of
from steelyard.types import TopicPartition
from steelyard.version import __version__

if TYPE_CHECKING:
    import ssl

PartitionHook = Callable[[tuple[TopicPartition, ...]], object]
"""Called with partitions that are assigned, revoked or lost."""

BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
"""Environment variable with the default bootstrap servers."""

DEFAULT_BOOTSTRAP = f"127.0.0.1:{KAFKA_PORT}"

CommitCallback = Callable[[Exception | None], object]
"""Called with the outcome of a commit: None if it succeeded."""

Partition = Annotated[TopicPartition, PLAIN_TOO]

Offsets = Mapping[Partition, int | OffsetAndMetadata]


class CommitEnded(NamedTuple):
    """The outcome of an asynchronous commit, for its callback."""

    callback: CommitCallback
    error: BaseException | None


class RebalanceHooks:
    """The application: what it wants to be told."""

    def __init__(
        self,
        on_assigned: PartitionHook | None,
        on_revoked: PartitionHook | None,
        on_lost: PartitionHook | None,
    ) -> None:
        hooks = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        for name, hook in hooks.items():
            if hook is not None and not callable(hook):
                raise ConfigError(f"{name} is {hook!r}; it must be a function")
        self.any = any(hook is not None for hook in hooks.values())
        self._hooks: Mapping[type, PartitionHook | None] = {
            Assigned: on_assigned,
            Revoked: on_revoked,
            Lost: on_lost or on_revoked,  # as Java's ConsumerRebalanceListener.onPartitionsLost
        }
        self._log = logger("steelyard.consumer")

    def call(self, handed: object) -> object:
        if isinstance(handed, CommitEnded):
            return handed.callback(handed.error)  # type: ignore[arg-type]  # it is a SteelyardError
        assert isinstance(handed, Assigned | Revoked | Lost)
        hook = self._hooks[type(handed)]
        return None if hook is None else hook(handed.partitions)

    def verdict(self, handed: object, returned: object) -> None:
        return None

    def failure(self, handed: object, error: BaseException) -> None:
        """Log an exception of a user's function."""
        self._log.error("%s failed", handed, exc_info=error)

    def abandoned(self, handed: object) -> None:
        """Nothing is to be done."""


class Reading(Generic[Key, Value]):
    """Arguments and calls of a Kafka consumer. `config`: the settings in use."""

    def __init__(
        self,
        topics: tuple[str, ...],
        config: KafkaConsumerConfig | None,
        given: Mapping[str, object],
        hooks: RebalanceHooks,
        interceptors: Sequence[Interceptor] | None,
        deserializers: RecordDeserializers[Key, Value],
        tls: bool | ssl.SSLContext | None,
        token: Callable[[], str] | None = None,
    ) -> None:
        self.config = kafka_config(config, given)
        self._hooks = hooks
        self._interception = Interception(interceptors)
        self._deserializers = deserializers
        self._tls = tls_context(_encryption(self.config, tls))
        self._login = _login(self.config, token)
        self._first: list[Call[None]] = [subscription(topics, None)] if topics else []
        self._numbers = count(1)
        self._unread: deque[ConsumerRecord] = deque()
        """Records fetched by an iteration but not yielded yet, or by a poll that did not return
        them: the next poll reads them again."""
        self._closed = False
        self.make()  # raises ConfigError now rather than later

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the KafkaConsumer is closed; create a new one")

    def make(self) -> KafkaConsumerNode:
        """Create the consumer's node."""
        return KafkaConsumerNode(
            self.config,
            SystemRandom(),
            software_version=__version__,
            hooks=self._hooks.any,
            login=self._login,
        )

    def poll_call(self, timeout_ms: int, max_records: int | None) -> Poll:
        """Return the node's call for a poll."""
        records_max = self.config.max_poll_records if max_records is None else max_records
        return Poll(records_max, timeout_ms, next(self._numbers))

    def _intercept(self, records: Sequence[ConsumerRecord], began_at_ns: int) -> None:
        """Tell the interceptors of records that are about to be returned."""
        if records and self._interception.is_on:
            config = self.config
            self._interception.received(records, config.group_id, config.client_id, began_at_ns)

    def _deserialized(
        self, records: list[ConsumerRecord], began_at_ns: int
    ) -> list[ConsumerRecord[Key, Value]]:
        """Return what a poll returns of these records: those before one that fails.

        The others stay unread. Raises DeserializationError if the first one fails.
        """
        try:
            whole, error = self._deserializers.records(records)
            self._intercept(records[: len(whole)], began_at_ns)
        except BaseException:  # Ctrl-C, for instance: the poll returns none of them
            self._unread.extend(records)
            raise
        if error is not None:
            self._unread.extend(records[len(whole) :])
            if not whole:
                raise error
        return whole

    def unread(self) -> dict[TopicPartition, int]:
        """Return the offset of the first unread record of each partition that has any."""
        first: dict[TopicPartition, int] = {}
        for record in list(self._unread):  # another thread may iterate
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return first

    def forget(self, partition: TopicPartition) -> None:
        """Discard unread records of this partition."""
        kept = [record for record in self._unread if (record.topic, record.partition) != partition]
        self._unread.clear()
        self._unread.extend(kept)

    def rewinds(self, partitions: Iterable[TopicPartition] | None = None) -> list[Call[None]]:
        """Return the node's calls to fetch the unread records again, those of all by default."""
        unread = self.unread()
        chosen = unread if partitions is None else [key for key in partitions if key in unread]
        for key in chosen:
            self.forget(key)
        return [Seek(key, unread[key]) for key in chosen]

    def _commit_call(self, offsets: Offsets | None) -> Commit:
        if offsets is None:
            return Commit(None, self.unread())
        return Commit(
            {
                partition: offset
                if isinstance(offset, OffsetAndMetadata)
                else OffsetAndMetadata(offset)
                for partition, offset in offsets.items()
            }
        )

    def _stop_call(self, *, returned: bool) -> Stop:
        return Stop(self.unread(), returned)


def _encryption(
    config: KafkaConsumerConfig, tls: bool | ssl.SSLContext | None
) -> bool | ssl.SSLContext | None:
    """Return `tls`, or what `security_protocol` says of it. Raises ConfigError if they differ."""
    protocol = config.security_protocol
    if not protocol:
        return tls
    if protocol.endswith("SSL"):
        if tls is False:
            raise ConfigError(f"tls is False, but security_protocol is {protocol!r}")
        return True if tls is None else tls
    if tls:
        raise ConfigError(
            f"tls is given, but security_protocol is {protocol!r}; expected 'SSL' or 'SASL_SSL'"
        )
    return None


def _login(config: KafkaConsumerConfig, token: Callable[[], str] | None) -> Login | None:
    """Return the login that the settings describe. Raises ConfigError."""
    if not config.sasl_mechanism:
        if token is not None:
            raise ConfigError("sasl_oauth_token needs sasl_mechanism='OAUTHBEARER'")
        return None
    return login_of(config.sasl_mechanism, config.sasl_username, config.sasl_password, token)


def kafka_config(
    config: KafkaConsumerConfig | None, given: Mapping[str, Any]
) -> KafkaConsumerConfig:
    """Build the configuration from a consumer's arguments, as `settings.configured`.

    `bootstrap_servers`: a sequence, or text separated by commas; None means the variable
    KAFKA_BOOTSTRAP_SERVERS, or 127.0.0.1:9092. Raises ConfigError.
    """
    changes = dict(given)
    servers = changes["bootstrap_servers"]
    if servers is not None or config is None or not config.bootstrap_servers:
        servers = servers or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
        parts = servers.split(",") if isinstance(servers, str) else servers
        changes["bootstrap_servers"] = tuple(
            check_address(part.strip(), KAFKA_PORT) for part in parts
        )
    if isinstance(changes.get("assignors"), str):
        changes["assignors"] = (changes["assignors"],)
    made = configured(KafkaConsumerConfig, config, changes)
    check(made)
    return made


def subscription(topics: str | Iterable[str] | None, pattern: str | None) -> Subscribe:
    """Return the node's call for topics or a pattern. Raises ConfigError."""
    if pattern is not None:
        if topics:
            raise ConfigError("give either topics or a pattern, not both")
        if not pattern:
            raise ConfigError("the pattern is empty; '.*' matches every topic")
        return Subscribe((), pattern)
    names = (topics,) if isinstance(topics, str) else tuple(topics or ())
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"topics are {names!r}; give one or more topic names")
    return Subscribe(names)


def each_once(partitions: Iterable[Partition]) -> tuple[TopicPartition, ...]:
    """Return the distinct partitions in order."""
    return tuple(dict.fromkeys(partitions))


def assign_call(partitions: Iterable[TopicPartition]) -> Assign:
    return Assign(each_once(partitions))
