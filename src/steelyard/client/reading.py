"""What the blocking and the asyncio Kafka consumer share: their arguments, and what they are made into."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, TypedDict

from steelyard.checks import PLAIN_TOO
from steelyard.client.settings import check_address, tls_context
from steelyard.config import KafkaConsumerConfig, check
from steelyard.driver.logs import logger
from steelyard.errors import ClosedError, ConfigError
from steelyard.nodes.consumer.kafka.contract import (
    Assign,
    Assigned,
    Commit,
    ConsumerRecord,
    ListOffsets,
    Lost,
    OffsetAndMetadata,
    Poll,
    Revoked,
    Seek,
    Stop,
    Subscribe,
)
from steelyard.nodes.consumer.kafka.node import KafkaConsumerNode
from steelyard.nodes.seam import Call
from steelyard.types import TopicPartition
from steelyard.version import __version__

if TYPE_CHECKING:
    import ssl

PartitionHook = Callable[[tuple[TopicPartition, ...]], object]
"""Told of partitions that come or go."""

BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
"""Environment variable with the brokers to ask first, where a consumer is not told."""

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

CommitCallback = Callable[[Exception | None], object]
"""Told how a commit ended: None when the coordinator has it."""

Partition = Annotated[TopicPartition, PLAIN_TOO]

Offsets = Mapping[Partition, int | OffsetAndMetadata]


class KafkaSettings(TypedDict, total=False):
    """The fields of `KafkaConsumerConfig` that may be given by name."""

    client_id: str
    group_instance_id: str
    client_rack: str
    assignors: str | Sequence[str]
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    isolation_level: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    metadata_max_age_ms: int
    allow_auto_create_topics: bool
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


class Hooks:
    """What the application wants to be told. What goes wrong in a user's function is logged and ends here."""

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
        """Call the hook for this; gives what it returned, which may have to be awaited. Whatever it raises comes through."""
        assert isinstance(handed, Assigned | Revoked | Lost)
        hook = self._hooks[type(handed)]
        return None if hook is None else hook(handed.partitions)

    def failed(self, what: object, error: BaseException) -> None:
        self._log.error("%s failed", what, exc_info=error)


class Reading:
    """See the module's text. `config`: the settings in use."""

    def __init__(
        self,
        topics: tuple[str, ...],
        bootstrap_servers: str | Sequence[str] | None,
        group_id: str | None,
        hooks: Hooks,
        config: KafkaConsumerConfig | None,
        tls: bool | ssl.SSLContext | None,
        settings: KafkaSettings,
    ) -> None:
        self.config = kafka_config(bootstrap_servers, group_id, config, settings)
        self._hooks = hooks
        self._tls = tls_context(tls)
        self._first: list[Call[None]] = [subscription(topics, None)] if topics else []
        self._numbers = count(1)
        self._unread: deque[ConsumerRecord] = deque()
        """Records that an iteration has got and not passed on yet."""
        self._closed = False
        self.make()  # raises ConfigError now rather than later

    def make(self) -> KafkaConsumerNode:
        """The consumer's node."""
        if self._closed:
            raise ClosedError("the consumer is closed")
        return KafkaConsumerNode(
            self.config, SystemRandom(), software_version=__version__, hooks=self._hooks.any
        )

    def poll_call(self, timeout_ms: int, max_records: int | None) -> Poll:
        """What the node is told for a poll. What an iteration left unread is read from the partitions again."""
        records_max = self.config.max_poll_records if max_records is None else max_records
        return Poll(records_max, timeout_ms, next(self._numbers))

    def unread(self) -> dict[TopicPartition, int]:
        """Of each partition the first record that an iteration has not passed on."""
        first: dict[TopicPartition, int] = {}
        for record in self._unread:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return first

    def forget(self, partition: TopicPartition) -> None:
        """An iteration is not to go on with what it has of this partition."""
        kept = [record for record in self._unread if (record.topic, record.partition) != partition]
        self._unread.clear()
        self._unread.extend(kept)

    def rewinds(self) -> list[Call[None]]:
        """What the node is told so that records left unread by an iteration come again."""
        calls: list[Call[None]] = [Seek(partition, at) for partition, at in self.unread().items()]
        self._unread.clear()
        return calls

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


def kafka_config(
    bootstrap_servers: str | Sequence[str] | None,
    group_id: str | None,
    config: KafkaConsumerConfig | None,
    settings: KafkaSettings,
) -> KafkaConsumerConfig:
    """The configuration that the arguments of a consumer come to. Raises ConfigError.

    `bootstrap_servers`: a sequence, or text separated by commas; None means the variable KAFKA_BOOTSTRAP_SERVERS, or
    127.0.0.1:9092.
    """
    template = config or KafkaConsumerConfig()
    if not isinstance(template, KafkaConsumerConfig):
        raise ConfigError(f"config is a {type(config).__name__}; it must be a KafkaConsumerConfig")
    unknown = sorted(set(settings) - set(KafkaSettings.__annotations__))
    if unknown:
        known = ", ".join(KafkaSettings.__annotations__)
        raise ConfigError(f"no setting {', '.join(unknown)}; there are {known}")
    changes: dict[str, object] = dict(settings)
    if "assignors" in settings:
        names = settings["assignors"]
        changes["assignors"] = (names,) if isinstance(names, str) else tuple(names)
    if bootstrap_servers is not None or not template.bootstrap_servers:
        given = bootstrap_servers or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
        parts = given.split(",") if isinstance(given, str) else given
        changes["bootstrap_servers"] = tuple(check_address(part.strip()) for part in parts)
    if group_id is not None:
        changes["group_id"] = group_id
    made = replace(template, **changes)  # type: ignore[arg-type]  # the keys were looked at
    check(made)
    return made


def subscription(topics: str | Iterable[str] | None, pattern: str | None) -> Subscribe:
    """What the node is told of topics, or of a pattern. Raises ConfigError."""
    if pattern is not None:
        if topics:
            raise ConfigError("give either topics or a pattern, not both")
        if not pattern:
            raise ConfigError("the pattern is empty; '.*' matches every topic")
        return Subscribe((), pattern)
    names = (topics,) if isinstance(topics, str) else tuple(topics or ())
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"topics are {names!r}; give the names of one topic or more")
    return Subscribe(names)


def each_once(partitions: Iterable[Partition]) -> tuple[TopicPartition, ...]:
    """Each once, in their order."""
    return tuple(dict.fromkeys(partitions))


def assign_call(partitions: Iterable[TopicPartition]) -> Assign:
    return Assign(each_once(partitions))


def ends_call(partitions: Iterable[TopicPartition], timestamp: int) -> ListOffsets:
    return ListOffsets(dict.fromkeys(each_once(partitions), timestamp))


def times_call(timestamps_ms: Mapping[Partition, int]) -> ListOffsets:
    return ListOffsets(timestamps_ms)
