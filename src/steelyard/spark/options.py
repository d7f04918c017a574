"""The options of `format("rocketmq")`, for batches and streams.

Names are those of Spark's Kafka source where the meaning is the same, and are case-insensitive.
JSON of offsets and times names topics, brokers and queues: `{"topic": {"broker-a": {"0": 23}}}`; an
offset of -2 is the earliest and -1 the latest. Queues that it does not name start at the earliest
and end at the latest. Times are those at which brokers stored messages, in milliseconds since 1970.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from steelyard.errors import ConfigError, ProtocolError
from steelyard.spark.access import PLAIN, Access
from steelyard.spark.offsets import QueueName
from steelyard.spark.option_table import DEFAULT_GROUP, NAMES, OPTIONS, Option, Reads, markdown
from steelyard.spark.positions import (
    COMMITTED,
    EARLIEST,
    FROM_EARLIEST,
    LATEST,
    UP_TO_LATEST,
    ReadPosition,
    offsets_option,
    times_option,
)
from steelyard.spark.schema import SCHEMA
from steelyard.sql92 import parser

__all__ = ["Options", "read_options"]

__doc__ = f"{__doc__}\n{markdown()}\n"

NUMBER_MAX = (1 << 63) - 1
DECLARED = frozenset(option.name for option in OPTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The validated options of a read.

    For defaults see the table above: `nameservers`, `starting` and `ending` (all options of that
    beginning), `fail_on_data_loss`, `partitions_min` (minPartitions), `partition_records_max`
    (maxRecordsPerPartition), `trigger_offsets_max` and `trigger_offsets_min`
    (maxOffsetsPerTrigger, minOffsetsPerTrigger), `trigger_delay_max_ms` (maxTriggerDelay),
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
    return _Given(given, reads).options()


class _Given:
    """The options as the user wrote them."""

    def __init__(self, given: Mapping[str, str], reads: Reads | None) -> None:
        self._texts: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self._reads = reads
        for label, text in given.items():
            self._take(label, str(text).strip())

    def _take(self, label: str, text: str) -> None:
        option = NAMES.get(label.lower())
        if option is None:
            near = difflib.get_close_matches(label.lower(), NAMES, 1)
            names = ", ".join(one.name for one in OPTIONS)
            hint = (
                f"did you mean {_label(near[0], NAMES[near[0]])!r}?" if near else f"known: {names}"
            )
            raise ConfigError(f"unknown option {label!r}; {hint}")
        if option.name in self._texts:
            both = f"{self._labels[option.name]!r} and {label!r}"
            raise ConfigError(f"options {both} are the same option; give one of them")
        if self._reads is not None and option.only not in (None, self._reads):
            verb = "readStream" if option.only == "stream" else "read"
            raise ConfigError(f"option {label!r} is for spark.{verb} only; leave it out here")
        self._labels[option.name] = _label(label, option)
        self._texts[option.name] = text

    def options(self) -> Options:
        topics, pattern, assigned = self._subscription()
        tags, condition = self._filter()
        group = self._text("consumerGroup")
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
            columns=self._columns(),
            tags=tags,
            condition=condition,
            consumer_group=group or DEFAULT_GROUP,
            commit_offsets=self._flag("commitOffsets", bool(group)) and self._reads == "stream",
            access=self._access(),
            pull_messages_max=self._number("pullBatchSize", 8_192, 65_536) or 0,
            timeout_ms=self._number("timeoutMs", 10_000, 600_000) or 0,
            retry_timeout_ms=self._number("retryTimeoutMs", 60_000, 86_400_000, least=0) or 0,
        )

    # -- what to read ------------------------------------------------------------------------------

    def _nameservers(self) -> tuple[str, ...]:
        addresses = _list(self._text("nameservers").replace(";", ","))
        if not addresses:
            raise ConfigError("option 'nameservers' is missing; give it as 'host:port;host:port'")
        for address in addresses:
            host, _, port = address.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
                self._refuse(
                    "nameservers",
                    f"has {address!r}; give each one as 'host:port', e.g. '127.0.0.1:9876'",
                )
        return tuple(addresses)

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
                topics = _list(self._text("subscribe"))
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
        for part in _list(self._text("queues")):
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
        names = _list(self._text("columns")) or SCHEMA.names
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
        stream = self._reads == "stream"
        allowed = {EARLIEST, COMMITTED} | (set() if self._reads == "batch" else {LATEST})
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

    # -- how to read -------------------------------------------------------------------------------

    def _access(self) -> Access:
        access = Access(
            tls=self._flag("tls", False),
            ca_file=self._text("tlsCaFile"),
            check_hostname=self._flag("tlsCheckHostname", True),
            cert_file=self._text("tlsCertFile"),
            key_file=self._text("tlsKeyFile"),
            access_key=self._text("accessKey"),
            secret_key=self._text("secretKey"),
            security_token=self._text("securityToken"),
        )
        if not access.tls:
            for name in ("tlsCaFile", "tlsCertFile", "tlsKeyFile", "tlsCheckHostname"):
                if self._text(name):
                    self._refuse(name, "is given, but 'tls' is not true")
        if access.key_file and not access.cert_file:
            self._refuse("tlsKeyFile", "needs the option 'tlsCertFile'")
        if bool(access.access_key) != bool(access.secret_key):
            given, missing = ("access", "secret") if access.access_key else ("secret", "access")
            self._refuse(f"{given}Key", f"needs the option '{missing}Key'")
        if access.security_token and not access.access_key:
            self._refuse("securityToken", "needs the options 'accessKey' and 'secretKey'")
        return access

    # -- values ------------------------------------------------------------------------------------

    def _text(self, name: str) -> str:
        assert name in DECLARED, f"{name} is not declared"
        return self._texts.get(name, "")

    def _flag(self, name: str, default: bool) -> bool:
        text = self._text(name).lower() or str(default).lower()
        if text not in ("true", "false"):
            self._refuse(name, f"is {text!r}; it must be true or false")
        return text == "true"

    def _one_of(self, name: str, *words: str) -> str:
        text = self._text(name).lower() or words[0]
        if text not in words:
            self._refuse(name, f"is {text!r}; it must be {' or '.join(words)}")
        return text

    def _number(
        self, name: str, default: int | None, most: int = NUMBER_MAX, *, least: int = 1
    ) -> int | None:
        text = self._texts.get(name)
        if text is None:
            return default
        if not text.isdecimal() or not text.isascii() or not least <= int(text) <= most:
            self._refuse(name, f"is {text!r}; it must be a number from {least} to {most}")
        return int(text)

    def _duration(self, name: str, default: str) -> int:
        text = self._text(name).lower() or default
        found = re.fullmatch(r"(\d{1,9}) ?(ms|s|m|min|h|d)", text)
        if found is None:
            self._refuse(name, f"is {text!r}; it must be a number with ms, s, m, h or d: '15m'")
        milliseconds = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}
        return int(found[1]) * milliseconds.get(found[2], 86_400_000)

    def _refuse(self, name: str, words: str) -> NoReturn:
        raise ConfigError(f"option {self._labels.get(name, name)!r} {words}")


def _label(label: str, option: Option) -> str:
    """Return the name that the user knows an option by; Spark passes names in lower case."""
    known = {name.lower(): name for name in (option.name, *option.aliases)}
    return known[label.lower()]


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _queue_id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError
    return value
