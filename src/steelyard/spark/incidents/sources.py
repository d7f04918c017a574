"""What `steelyard pipeline incident` reads: a topic of a cluster, or files of a folder."""

from __future__ import annotations

import gzip
import logging
import mmap
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.errors import ConfigError, ConnectError, ProtocolError
from steelyard.incident.kafka.broker_log import Evidence, read_broker_log
from steelyard.incident.kafka.offsets_topic import OffsetsTopic
from steelyard.incident.kafka.segments import SegmentEnd, SegmentScanner, segment_end
from steelyard.incident.remoting.logs import UTC_OFFSET_MS as ROCKETMQ_UTC_OFFSET_MS
from steelyard.incident.remoting.logs import LogEvent, read_rocketmq_log
from steelyard.spark.options.access import PLAIN, Access
from steelyard.spark.servers.wrong_port import check_kafka
from steelyard.types import TopicPartition
from steelyard.wording import counted

if TYPE_CHECKING:
    from steelyard.client.blocking.kafka import KafkaConsumer
    from steelyard.nodes.consumer.kafka.contract import ConsumerRecord

OFFSETS_TOPIC = "__consumer_offsets"
CONNECT_TIMEOUT_S = 10
POLL_MS, POLL_RECORDS = 2_000, 10_000


def untold(_: str) -> None:
    """Say nothing of the progress."""


_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")


def read_dump(
    folder: Path, found: OffsetsTopic, told: Callable[[str], None] = untold
) -> dict[TopicPartition, int]:
    """Read the segments of `__consumer_offsets` below a folder; return log ends of other topics.

    The folder is a broker's `log.dirs`, a copy of it, or has copies of several brokers'. Raises
    ConfigError if there are no such segments, ProtocolError if one is damaged.
    """
    logs: dict[TopicPartition, list[Path]] = defaultdict(list)
    for path in folder.rglob("*.log"):
        match = _FOLDER.fullmatch(path.parent.name)
        if match and path.stem.isdigit():
            logs[TopicPartition(match["topic"], int(match["partition"]))].append(path)
    offsets = {place: paths for place, paths in logs.items() if place.topic == OFFSETS_TOPIC}
    if not offsets:
        raise ConfigError(
            f"no folder {OFFSETS_TOPIC}-NUMBER with files *.log below {folder}; copy them from the"
            " brokers' log.dirs"
        )
    for place in sorted(offsets):
        scanner = SegmentScanner(found)
        for path in sorted(offsets[place], key=lambda path: (int(path.stem), path)):
            try:
                scanner.scan(path.read_bytes())
            except ProtocolError as error:
                raise ProtocolError(f"{path}: {error}") from error
            except OSError as error:
                raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
            told(f"{counted(found.commits, 'commit')} read, the last ones from {path.parent.name}")
    return {
        place: end
        for place, paths in sorted(logs.items())
        if place.topic != OFFSETS_TOPIC and (end := _end_of(paths)) is not None
    }


def _end_of(paths: Iterable[Path]) -> int | None:
    """Return the offset after the last message in the segments of a partition."""
    for path in sorted(paths, key=lambda path: -int(path.stem)):
        end = end_of_segment(path).offset
        if end is not None:
            return end
    return None


def end_of_segment(path: Path) -> SegmentEnd:
    """Return where the whole batches of a file end."""
    if not path.stat().st_size:
        return SegmentEnd(None, 0)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        view = memoryview(data)
        try:
            return segment_end(view)
        finally:
            view.release()


@contextmanager
def offsets_reader(bootstrap: str, access: Access = PLAIN) -> Iterator[KafkaConsumer]:
    """A consumer that is connected to a cluster. Raises ConnectError if no broker answers.

    Raises ConfigError at once if servers of RocketMQ do.
    """
    from steelyard.client.blocking.kafka import KafkaConsumer

    check_kafka(bootstrap, access)

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
        tls=access.context(),
        **access.consumer_login(),
    )
    logger = logging.getLogger("steelyard")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # the error says what the consumer would log
    try:
        with consumer.start(CONNECT_TIMEOUT_S):
            yield consumer
    finally:
        logger.setLevel(level)


def offsets_records(
    consumer: KafkaConsumer, bootstrap: str, starts: Mapping[TopicPartition, int] | None = None
) -> Iterator[list[ConsumerRecord]]:
    """Yield what `__consumer_offsets` has now, poll by poll.

    `starts`: where to begin, by partition; default: with the first record. Raises ConnectError if
    there is no such topic.
    """
    partitions = consumer.partitions_for_topic(OFFSETS_TOPIC)
    if not partitions:
        raise ConnectError(f"{bootstrap} has no topic {OFFSETS_TOPIC}: no group committed there")
    ends = consumer.end_offsets(partitions)
    at = consumer.beginning_offsets(partitions)
    at |= {place: max(at[place], start) for place, start in (starts or {}).items() if place in at}
    left = {place for place in partitions if at[place] < ends[place]}
    consumer.assign(sorted(left))
    for place in sorted(left):
        consumer.seek(place, at[place])
    while left:
        records = consumer.poll(POLL_MS, POLL_RECORDS)
        yield [one for one in records if one.offset < ends[_place(one)] and one.key is not None]
        left = {place for place in left if consumer.position(place) < ends[place]}


def _place(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


def read_kafka(
    bootstrap: str,
    found: OffsetsTopic,
    told: Callable[[str], None] = untold,
    access: Access = PLAIN,
) -> dict[TopicPartition, int]:
    """Read `__consumer_offsets` of a cluster to its present end; return the log ends of the topics.

    `told`: gets what was read so far, in words. Raises ConnectError if no broker answers.
    """
    with offsets_reader(bootstrap, access) as consumer:
        for records in offsets_records(consumer, bootstrap):
            for record in records:
                found.take(record.timestamp, record.key or b"", record.value)
            told(f"{counted(found.commits, 'commit')} read")
        topics = {place.topic for history in found.groups.values() for place in history.commits}
        read = [place for topic in sorted(topics) for place in consumer.partitions_for_topic(topic)]
        return consumer.end_offsets(read)


def read_logs(folder: Path, utc_offset_ms: int | None = None) -> list[Evidence]:
    """Return what the logs of Kafka brokers in a folder say, sorted by time; default: in UTC."""
    found: list[Evidence] = []
    for lines in _log_files(folder):
        found += read_broker_log(lines, utc_offset_ms or 0)
    return sorted(found)


def read_rocketmq_logs(folder: Path, utc_offset_ms: int | None = None) -> list[LogEvent]:
    """Return what logs of RocketMQ's brokers and clients say; default: in UTC+8.

    Raises ConfigError if they say nothing about groups.
    """
    found: list[LogEvent] = []
    offset = ROCKETMQ_UTC_OFFSET_MS if utc_offset_ms is None else utc_offset_ms
    for lines in _log_files(folder):
        found += read_rocketmq_log(lines, offset)
    if not found:
        raise ConfigError(
            f"no file below {folder} has lines of RocketMQ about consumer groups; logs of Kafka"
            " brokers only add reasons to what --dump or --kafka tells"
        )
    return found


def _log_files(folder: Path) -> Iterator[Iterable[str]]:
    """Yield the lines of each log, of rotated and compressed ones, too."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and re.search(r"\.(log|out|txt)([.-]|$)", path.name):
            yield _lines(path)


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a log. Raises ConfigError if it cannot be read."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", errors="replace") as lines:
            yield from lines
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
