"""Planning of a read: the ranges of offsets to read, looked up once before anything is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from steelyard.errors import ConfigError, RouteError
from steelyard.spark.offsets import QueueName, Range, split
from steelyard.spark.options.given import NUMBER_MAX
from steelyard.spark.options.positions import COMMITTED, EARLIEST, LATEST, ReadPosition
from steelyard.spark.options.reading import Options
from steelyard.spark.reading.catalog import Catalog, KnownQueues

PARTITIONS_MAX = 100_000
"""Most partitions of a batch; Spark keeps and schedules a task for each."""


@dataclass(frozen=True)
class QueueRange(InputPartition):
    """One queue from `start` up to, not including, `end`, and the address to read it from."""

    topic: str
    broker_name: str
    queue_id: int
    address: str
    start: int
    end: int

    @property
    def queue(self) -> QueueName:
        """The name of the queue."""
        return self.topic, self.broker_name, self.queue_id


@dataclass(frozen=True)
class Bounds:
    """The queues of a read when it was planned, and the offsets that their brokers had."""

    known: KnownQueues
    earliest: Mapping[QueueName, int]
    latest: Mapping[QueueName, int]


def plan(options: Options) -> list[QueueRange]:
    """Return the partitions of a batch: ranges of queues that have any messages in them."""
    with Catalog(options) as catalog:
        bounds = look(catalog, options)
        starting = starts(catalog, options, bounds)
        ending = ends(catalog, options, bounds)
    ranges = []
    for queue in sorted(bounds.known.addresses):
        start, end = starting[queue], ending[queue]
        if options.fail_on_data_loss:
            _check_range(queue, start, end, bounds)
        start, end = max(start, bounds.earliest[queue]), min(end, bounds.latest[queue])
        if start < end:
            ranges.append(Range(queue, start, end))
    return partitions(options, ranges, bounds.known.addresses)


def partitions(
    options: Options, ranges: list[Range], addresses: Mapping[QueueName, str]
) -> list[QueueRange]:
    """Return the partitions that read these ranges. Raises ConfigError for too many."""
    records_max = options.partition_records_max or NUMBER_MAX
    count = sum(-(-(one.end - one.start) // records_max) for one in ranges)
    if count > PARTITIONS_MAX:
        raise ConfigError(
            f"option 'maxRecordsPerPartition' is {records_max}, which makes {count} partitions;"
            f" {PARTITIONS_MAX} are allowed"
        )
    pieces = split(
        ranges,
        partitions_min=options.partitions_min,
        records_max=options.partition_records_max,
    )
    return [
        QueueRange(*piece.queue, addresses[piece.queue], piece.start, piece.end) for piece in pieces
    ]


def first_offsets(catalog: Catalog, options: Options) -> dict[QueueName, int]:
    """Return where a stream begins. Raises ConfigError for offsets that do not exist."""
    bounds = look(catalog, options)
    found = starts(catalog, options, bounds)
    for queue, start in found.items():
        if options.fail_on_data_loss:
            _check_range(queue, start, start, bounds)
        found[queue] = min(max(start, bounds.earliest[queue]), bounds.latest[queue])
    return found


def look(catalog: Catalog, options: Options) -> Bounds:
    """Look up queues and offsets. Raises RouteError and ConfigError for names that do not exist."""
    known = _known(catalog, options)
    addresses = known.addresses
    return Bounds(known, catalog.earliest(addresses), catalog.latest(addresses))


def check_names(options: Options) -> None:
    """Ask nameservers for the topics and queues that the options name; brokers are not asked.

    Raises RouteError or ConfigError for those that do not exist, RemotingError if none answers.
    """
    with Catalog(options) as catalog:
        _known(catalog, options)


def _known(catalog: Catalog, options: Options) -> KnownQueues:
    known = catalog.queues()
    for topic in sorted(known.missing):
        nameservers = ", ".join(options.nameservers)
        raise RouteError(f"option 'subscribe': {nameservers} knows no topic {topic!r}")
    _check_names(options, known.readable)
    return known


# -- start and end ---------------------------------------------------------------------------------


def starts(catalog: Catalog, options: Options, bounds: Bounds) -> dict[QueueName, int]:
    """Return where each queue starts by the options; not checked against what brokers have.

    Raises ConfigError for a time without messages, with the strategy 'error'.
    """
    position, addresses = options.starting, bounds.known.addresses
    found = _placed(position, bounds)
    if position.otherwise == COMMITTED:
        committed = catalog.committed(
            {queue: address for queue, address in addresses.items() if found[queue] == COMMITTED}
        )
        for queue in addresses:
            if found[queue] == COMMITTED:
                found[queue] = committed.get(queue, bounds.earliest[queue])
    for queue, offset in _at_times(catalog, position, bounds).items():
        if offset >= bounds.latest[queue] and not options.latest_if_no_later:
            topic, broker, queue_id = queue
            raise ConfigError(
                f"queue {queue_id} of topic {topic!r} on broker {broker!r} has no message stored at"
                " or after the time to start at; set option 'startingOffsetsByTimestampStrategy' to"
                " 'latest' to start such queues at their end"
            )
        found[queue] = offset
    return found


def ends(catalog: Catalog, options: Options, bounds: Bounds) -> dict[QueueName, int]:
    """Return where each queue ends by the options; not checked against what brokers have."""
    return _placed(options.ending, bounds) | _at_times(catalog, options.ending, bounds)


def _placed(position: ReadPosition, bounds: Bounds) -> dict[QueueName, int]:
    words = {EARLIEST: bounds.earliest, LATEST: bounds.latest}
    found = {}
    for queue in bounds.known.addresses:
        offset = position.offsets.get(queue, position.otherwise)
        found[queue] = words[offset][queue] if offset in words else offset
    return found


def _at_times(catalog: Catalog, position: ReadPosition, bounds: Bounds) -> dict[QueueName, int]:
    addresses, time = bounds.known.addresses, position.time
    if time is not None:
        times = dict.fromkeys(addresses, time)
    else:
        times = {queue: at for queue, at in position.times.items() if queue in addresses}
    return catalog.first_at_time(addresses, times, bounds.earliest, bounds.latest)


# -- checks ----------------------------------------------------------------------------------------


def _check_names(options: Options, found: Collection[QueueName]) -> None:
    known = ", ".join(f"{broker}:{queue_id}" for _, broker, queue_id in sorted(found)[:20])
    named = {
        "assign": options.assigned,
        "startingOffsets": options.starting.offsets,
        "startingOffsetsByTimestamp": options.starting.times,
        "endingOffsets": options.ending.offsets,
        "endingOffsetsByTimestamp": options.ending.times,
    }
    for name, queues in named.items():
        for topic, broker, queue_id in sorted(queues):
            if (topic, broker, queue_id) not in found:
                raise ConfigError(
                    f"option {name!r} names queue {queue_id} of broker {broker!r} for topic"
                    f" {topic!r}; its queues are {known}"
                )
    present: set[tuple[str, int | None]] = {(broker, None) for _, broker, _ in found}
    present |= {(broker, queue_id) for _, broker, queue_id in found}
    for wanted in sorted(options.queues, key=str):
        if wanted not in present:
            broker, number = wanted
            text = broker if number is None else f"{broker}:{number}"
            raise ConfigError(f"option 'queues' names {text}; the queues are {known}")


def _check_range(queue: QueueName, start: int, end: int, bounds: Bounds) -> None:
    earliest, latest = bounds.earliest[queue], bounds.latest[queue]
    if start < earliest:
        raise data_loss(queue, f"starts at {earliest}, but {start} was asked for")
    if max(start, end) > latest:
        raise data_loss(queue, f"ends at {latest}, but {max(start, end)} was asked for")


def data_loss(queue: QueueName, words: str) -> ConfigError:
    """Return the error for messages of a queue that no longer exist."""
    topic, broker, queue_id = queue
    return ConfigError(
        f"data loss: queue {queue_id} of topic {topic!r} on broker {broker!r} {words}."
        " Set option 'failOnDataLoss' to false to read what is there."
    )
