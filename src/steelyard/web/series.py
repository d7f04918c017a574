"""From what a cluster answered to the series of `/metrics`: names, labels, values, and limits.

Topics and groups come from clients, so that their number is limited: `queue_series_max` and
`group_series_max`. What is beyond has no series; `steelyard_series_left_out` counts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import msgspec

from steelyard.config import HttpConfig
from steelyard.types import MessageQueue
from steelyard.web import metrics
from steelyard.web.metrics import Metric
from steelyard.web.reading import BrokerReading, ClusterReading
from steelyard.wire.figures import (
    DURATION_BOUNDS,
    BrokerFigures,
    Durations,
    KafkaFigures,
    OffsetRow,
    PartitionRow,
    ProcessFigures,
    QueueRow,
)

PAUSE_BOUNDS = (*DURATION_BOUNDS, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets of `Pauses`, in seconds: a member is dead after 10 s to minutes."""


class Pauses(Durations):
    """How often queues paused for how long."""

    bounds: ClassVar[tuple[float, ...]] = PAUSE_BOUNDS
    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(PAUSE_BOUNDS) + 1))


class Sample(NamedTuple):
    """A series and its value. `labels`: the values of the metric's labels, in their order."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Durations


def samples(reading: ClusterReading, config: HttpConfig) -> Iterator[Sample]:
    """Yield the samples of a cluster, without those of its rebalances."""
    for nameserver, error in reading.nameservers.items():
        yield Sample(metrics.NAMESERVER_UP, (nameserver,), not error)
    for each in reading.brokers:
        yield from _broker(each)
    left_out = {
        "brokers": reading.left_out,
        "queues": 0,
        "groups": 0,
        "answers": sum(_left_out(each) for each in reading.brokers),
    }
    kinds = {"queues": (_queues(reading), config.queue_series_max)}
    kinds["groups"] = (_groups(reading), config.group_series_max)
    for kind, (rows, rows_max) in kinds.items():
        for number, row in enumerate(rows):
            if number < rows_max:
                yield from row
            else:
                left_out[kind] += 1
    for kind, count in left_out.items():
        yield Sample(metrics.LEFT_OUT, (kind,), count)


def _left_out(reading: BrokerReading) -> int:
    answers = (reading.figures, reading.kafka)
    return sum(answer.left_out for answer in answers if answer is not None)


# -- brokers ---------------------------------------------------------------------------------------


def _broker(reading: BrokerReading) -> Iterator[Sample]:
    name = reading.name
    yield Sample(metrics.BROKER_UP, (name,), not reading.error)
    yield Sample(metrics.ORPHANS, (name,), len(reading.orphans))
    if reading.error:
        return
    yield Sample(metrics.ANSWER_SECONDS, (name,), reading.seconds)
    if reading.figures is not None:
        yield from _counters(reading.figures)
        if reading.figures.process is not None:
            yield from _process(name, reading.figures.process)
    if reading.kafka is not None:
        yield from _listener(reading.kafka)


def _counters(figures: BrokerFigures) -> Iterator[Sample]:
    name = figures.name
    yield Sample(metrics.BROKER_INFO, (name, figures.cluster, figures.address), 1)
    for metric, value in (
        (metrics.START_TIME, figures.started_at / 1000),
        (metrics.MESSAGES_IN, figures.messages_in),
        (metrics.BYTES_IN, figures.bytes_in),
        (metrics.MESSAGES_OUT, figures.messages_out),
        (metrics.SKIPPED, figures.skipped),
        (metrics.DAMAGED, figures.damaged),
        (metrics.STOOD_STILL, figures.stood_still_ms / 1000),
        (metrics.DISK_FREE, figures.disk_free),
        (metrics.DISK_SIZE, figures.disk_size),
    ):
        yield Sample(metric, (name,), value)
    yield from _requests(name, "rocketmq", figures)


def _requests(name: str, dialect: str, figures: BrokerFigures | KafkaFigures) -> Iterator[Sample]:
    for request, count in sorted(figures.requests.items()):
        yield Sample(metrics.REQUESTS, (name, dialect, request), count)
    for error, count in sorted(figures.refused.items()):
        yield Sample(metrics.REFUSED, (name, dialect, error), count)
    for kind, count in sorted(figures.parked.items()):
        yield Sample(metrics.PARKED, (name, kind), count)


def _process(name: str, process: ProcessFigures) -> Iterator[Sample]:
    for metric, value in (
        (metrics.LOOP_DELAY, process.loop_delay),
        (metrics.FSYNC, process.syncs),
        (metrics.CONNECTIONS_REFUSED, process.refused),
        (metrics.CONNECTIONS_DISPLACED, process.displaced),
        (metrics.INTERNAL_ERRORS, process.failures),
        (metrics.CPU, process.cpu_seconds),
        (metrics.MEMORY, process.resident_bytes),
    ):
        yield Sample(metric, (name,), value)
    for listener, figures in process.listeners.items():
        dialect = "kafka" if listener == "kafka" else "rocketmq"
        yield Sample(metrics.CONNECTIONS, (name, dialect), figures.connections)
        yield Sample(metrics.RECEIVED_BYTES, (name, dialect), figures.received_bytes)
        yield Sample(metrics.SENT_BYTES, (name, dialect), figures.sent_bytes)


def _listener(kafka: KafkaFigures) -> Iterator[Sample]:
    yield Sample(metrics.KAFKA_READY, (kafka.name,), kafka.ready)
    yield from _requests(kafka.name, "kafka", kafka)
    for mechanism, outcomes in sorted(kafka.logins.items()):
        for outcome, count in sorted(outcomes.items()):
            yield Sample(metrics.LOGINS, (kafka.name, mechanism, outcome), count)


# -- queues and groups: the samples of each row, since the number of rows is limited ---------------


def _queues(reading: ClusterReading) -> Iterator[tuple[Sample, ...]]:
    for each in reading.brokers:
        rows = () if each.figures is None else each.figures.queues
        partitions = {
            (row.topic, row.queue_id): str(row.partition)
            for row in (() if each.kafka is None else each.kafka.partitions)
        }
        for row in rows:
            partition = partitions.get((row.topic, row.queue_id), "")
            yield _queue(row, (each.name, row.topic, str(row.queue_id), partition))


def _queue(row: QueueRow, labels: tuple[str, ...]) -> tuple[Sample, ...]:
    return (
        Sample(metrics.BEGIN_OFFSET, labels, row.begin),
        Sample(metrics.END_OFFSET, labels, row.end),
        Sample(metrics.QUEUE_BYTES, labels, row.size_bytes),
    )


def _groups(reading: ClusterReading) -> Iterator[tuple[Sample, ...]]:
    queues = {
        (each.name, row.topic, row.queue_id): (row, each.figures.now)
        for each in reading.brokers
        if each.figures is not None
        for row in each.figures.queues
    }
    for each in reading.brokers:
        if each.figures is not None:
            for group in each.figures.groups:
                labels = (each.name, group.group)
                yield (Sample(metrics.MEMBERS, labels, group.members),)
                for row in group.offsets:
                    yield _offset(row, labels, each.figures.now)
        for theirs in () if each.kafka is None else each.kafka.groups:
            state = (theirs.group, each.name, theirs.kind, theirs.state)
            yield (
                Sample(metrics.KAFKA_MEMBERS, (theirs.group,), theirs.members),
                Sample(metrics.KAFKA_STATE, state, 1),
            )
            for place in theirs.offsets:
                found = queues.get((place.broker, place.topic, place.queue_id))
                yield _partition(theirs.group, place, found, reading)


def _offset(row: OffsetRow, group: tuple[str, str], now: int) -> tuple[Sample, ...]:
    labels = (*group, row.topic, str(row.queue_id))
    return (
        Sample(metrics.OFFSET, labels, max(row.offset, 0)),
        Sample(metrics.LAG, labels, row.lag),
        Sample(metrics.LAG_SECONDS, labels, _age(row.waiting_since, now)),
    )


def _partition(
    group: str,
    row: PartitionRow,
    found: tuple[QueueRow, int] | None,
    reading: ClusterReading,
) -> tuple[Sample, ...]:
    """Return the samples of a group in a partition; no lag while its broker does not answer."""
    labels = (group, row.topic, str(row.partition))
    offset = Sample(metrics.KAFKA_OFFSET, labels, row.reached)
    if found is None:
        return (offset,)
    queue, now = found
    lag = max(0, queue.end - max(row.reached, queue.begin))
    lag_sample = Sample(metrics.KAFKA_LAG, labels, lag)
    place = (MessageQueue(row.topic, row.broker, row.queue_id), row.reached)
    since = reading.waiting.get(place)
    if lag and since is None:
        return offset, lag_sample
    age = _age(since or 0, now) if lag else 0.0
    return offset, lag_sample, Sample(metrics.KAFKA_LAG_SECONDS, labels, age)


def _age(since: int, now: int) -> float:
    return max(0, now - since) / 1000 if since else 0.0
