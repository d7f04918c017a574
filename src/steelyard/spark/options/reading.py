"""The options of `format("rocketmq")`, for batches and streams.

Names are those of Spark's Kafka source where the meaning is the same, and are case-insensitive.
JSON of offsets and times names topics, brokers and queues: `{"topic": {"broker-a": {"0": 23}}}`; an
offset of -2 is the earliest and -1 the latest. Queues that it does not name start at the earliest
and end at the latest. Times are those at which brokers stored messages, in milliseconds since 1970.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from steelyard.errors import ConfigError, ProtocolError
from steelyard.spark.offsets import QueueName
from steelyard.spark.options.access import PLAIN, Access
from steelyard.spark.options.given import Given, listed
from steelyard.spark.options.positions import (
    COMMITTED,
    EARLIEST,
    FROM_EARLIEST,
    LATEST,
    UP_TO_LATEST,
    ReadPosition,
    offsets_option,
    times_option,
)
from steelyard.spark.options.table import DEFAULT_GROUP, OPTIONS, Reads, markdown
from steelyard.spark.schema import SCHEMA
from steelyard.sql92 import parser

__all__ = ["Options", "read_options"]

__doc__ = f"{__doc__}\n{markdown(OPTIONS)}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The validated options of a read.

    For defaults see the table above: `nameservers`, `starting` and `ending` (all options of that
    beginning), `fail_on_data_loss`, `partitions_min` (minPartitions), `partition_records_max`
    (maxRecordsPerPartition), `trigger_offsets_max` and `trigger_offsets_min`
    (maxOffsetsPerTrigger, minOffsetsPerTrigger), `trigger_delay_max_ms` (maxTriggerDelay),
    `align_by_time` (alignByTime),
    `columns`, `consumer_group`, `commit_offsets`, `access` (TLS and ACL), `pull_messages_max`
    (pullBatchSize), `timeout_ms`, `retry_timeout_ms`, and `pattern` (subscribePattern).
    """

    nameservers: tuple[str, ...]
    topics: tuple[str, ...] = ()
    """Of subscribe or assign; empty with subscribePattern."""
    pattern: str = ""
    assigned: frozenset[QueueName] = frozenset()
    """Of assign; empty: all queues."""
    queues: frozenset[tuple[str, int | None]] = frozenset()
    """(broker, queue id or None for all of its queues); empty: every queue."""
    starting: ReadPosition = FROM_EARLIEST
    latest_if_no_later: bool = False
    """startingOffsetsByTimestampStrategy is latest."""
    ending: ReadPosition = UP_TO_LATEST
    fail_on_data_loss: bool = True
    partitions_min: int | None = None
    partition_records_max: int | None = None
    trigger_offsets_max: int | None = None
    trigger_offsets_min: int | None = None
    trigger_delay_max_ms: int = 15 * 60_000
    align_by_time: bool = False
    columns: tuple[str, ...] = tuple(SCHEMA.names)
    tags: frozenset[str] = frozenset()
    """Empty: all messages, also those without a tag."""
    condition: str = ""
    """Of sql."""
    consumer_group: str = DEFAULT_GROUP
    commit_offsets: bool = False
    access: Access = PLAIN
    pull_messages_max: int = 8_192
    timeout_ms: int = 10_000
    retry_timeout_ms: int = 60_000


def read_options(given: Mapping[str, str], reads: Reads | None = "batch") -> Options:
    """Validate the options. Raises ConfigError that names the wrong one and what is expected.

    `reads`: None while it is not known which of the two it will be; options of both are accepted.
    """
    return _Given(given, OPTIONS, reads, "spark.read").options()


class _Given(Given):
    """The options of a read as the user wrote them."""

    def options(self) -> Options:
        topics, pattern, assigned = self._subscription()
        tags, condition = self._filter()
        group = self._group("consumerGroup")
        if self._flag("commitOffsets", bool(group)) and not group:
            self._refuse("commitOffsets", "is true, but needs the option 'consumerGroup'")
        return Options(
            nameservers=self._nameservers(),
            topics=topics,
            pattern=pattern,
            assigned=assigned,
            queues=self._queues(),
            starting=self._starting(topics),
            latest_if_no_later=self._one_of("startingOffsetsByTimestampStrategy", "error", "latest")
            == "latest",
            ending=self._ending(topics),
            fail_on_data_loss=self._flag("failOnDataLoss", True),
            partitions_min=self._number("minPartitions", None, 100_000),
            partition_records_max=self._number("maxRecordsPerPartition", None),
            trigger_offsets_max=self._number("maxOffsetsPerTrigger", None),
            trigger_offsets_min=self._trigger_offsets_min(),
            trigger_delay_max_ms=self._duration("maxTriggerDelay", "15m"),
            align_by_time=self._flag("alignByTime", False),
            columns=self._columns(),
            tags=tags,
            condition=condition,
            consumer_group=group or DEFAULT_GROUP,
            commit_offsets=self._flag("commitOffsets", bool(group)) and self._use == "stream",
            access=self._access(),
            pull_messages_max=self._number("pullBatchSize", 8_192, 65_536) or 0,
            timeout_ms=self._number("timeoutMs", 10_000, 600_000) or 0,
            retry_timeout_ms=self._number("retryTimeoutMs", 60_000, 86_400_000, least=0) or 0,
        )

    # -- what to read ------------------------------------------------------------------------------

    def _subscription(self) -> tuple[tuple[str, ...], str, frozenset[QueueName]]:
        ways = ("subscribe", "subscribePattern", "assign")
        chosen = [way for way in ways if self._text(way)]
        if not chosen:
            raise ConfigError(
                "option 'subscribe' is missing; give the topics to read, or 'subscribePattern' or"
                " 'assign'"
            )
        if len(chosen) > 1:
            labels = " and ".join(repr(self._labels[way]) for way in chosen)
            raise ConfigError(f"options {labels} exclude each other; give one of them")
        match chosen[0]:
            case "subscribe":
                topics = listed(self._text("subscribe"))
                if not topics:
                    self._refuse("subscribe", "names no topic")
                return tuple(dict.fromkeys(topics)), "", frozenset()
            case "subscribePattern":
                try:
                    re.compile(self._text("subscribePattern"))
                except re.error as error:
                    self._refuse("subscribePattern", f"is no regular expression: {error}")
                return (), self._text("subscribePattern"), frozenset()
        return self._assigned()

    def _assigned(self) -> tuple[tuple[str, ...], str, frozenset[QueueName]]:
        text = self._text("assign")
        right = 'it must be JSON like {"topic": {"broker-a": [0, 1]}}'
        try:
            tree = json.loads(text)
            assigned = frozenset(
                (str(topic), str(broker), _queue_id(queue_id))
                for topic, brokers in tree.items()
                for broker, queue_ids in brokers.items()
                for queue_id in queue_ids
            )
        except (ValueError, AttributeError, TypeError):
            self._refuse("assign", f"is {text!r}; {right}")
        if not assigned:
            self._refuse("assign", f"names no queue; {right}")
        if self._text("queues"):
            self._refuse("queues", "is for topics; 'assign' names the queues")
        return tuple(sorted({topic for topic, _, _ in assigned})), "", assigned

    def _queues(self) -> frozenset[tuple[str, int | None]]:
        wanted: set[tuple[str, int | None]] = set()
        for part in listed(self._text("queues")):
            broker, colon, number = part.partition(":")
            if not broker or (colon and not number.isdecimal()):
                self._refuse(
                    "queues",
                    f"has {part!r}; give each one as 'broker:0', or 'broker' for all of its queues",
                )
            wanted.add((broker, int(number) if colon else None))
        return frozenset(wanted)

    def _columns(self) -> tuple[str, ...]:
        known = {name.lower(): name for name in SCHEMA.names}
        names = listed(self._text("columns")) or SCHEMA.names
        for name in names:
            if name.lower() not in known:
                self._refuse(
                    "columns", f"has {name!r}; the columns are {', '.join(known.values())}"
                )
        if len({name.lower() for name in names}) < len(names):
            self._refuse("columns", "names a column twice")
        return tuple(known[name.lower()] for name in names)

    def _filter(self) -> tuple[frozenset[str], str]:
        tags = {tag for part in self._text("tags").split("||") if (tag := part.strip())}
        condition = self._text("sql")
        if condition and self._text("tags"):
            raise ConfigError("options 'tags' and 'sql' exclude each other; give one of them")
        if self._text("tags") and not tags:
            self._refuse("tags", "names no tag; give it as 'TagA || TagB'")
        try:
            if condition:
                parser.parse(condition)
        except ProtocolError as error:
            self._refuse("sql", f"is {condition!r}: {error}")
        return frozenset(tags - {"*"}) if "*" not in tags else frozenset(), condition

    # -- where to start and end --------------------------------------------------------------------

    def _starting(self, topics: tuple[str, ...]) -> ReadPosition:
        stream = self._use == "stream"
        allowed = {EARLIEST, COMMITTED} | (set() if self._use == "batch" else {LATEST})
        text = self._text("startingOffsets") or ("latest" if stream else "earliest")
        label = self._labels.get("startingOffsets", "startingOffsets")
        starting = offsets_option(label, text, allowed, topics)
        if starting.otherwise == COMMITTED and not self._text("consumerGroup"):
            self._refuse("startingOffsets", "is 'committed', but needs the option 'consumerGroup'")
        return self._timed("starting", starting, topics)

    def _ending(self, topics: tuple[str, ...]) -> ReadPosition:
        text = self._text("endingOffsets") or "latest"
        label = self._labels.get("endingOffsets", "endingOffsets")
        return self._timed("ending", offsets_option(label, text, {LATEST}, topics), topics)

    def _timed(self, end: str, position: ReadPosition, topics: tuple[str, ...]) -> ReadPosition:
        name = f"{end}OffsetsByTimestamp"
        times = {}
        if self._text(name):
            times = times_option(self._labels[name], self._text(name), topics)
        time = self._number(f"{end}Timestamp", None, least=0)
        return ReadPosition(position.otherwise, position.offsets, times, time)

    def _trigger_offsets_min(self) -> int | None:
        least = self._number("minOffsetsPerTrigger", None)
        most = self._number("maxOffsetsPerTrigger", None)
        if least is not None and most is not None and least > most:
            self._refuse(
                "minOffsetsPerTrigger",
                f"is {least}; it must not be more than maxOffsetsPerTrigger, which is {most}",
            )
        return least


def _queue_id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError
    return value
