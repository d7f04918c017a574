"""The metrics of `/metrics`, each declared once: the series, the documents and the tests go by it.

Names follow Prometheus' habits: base units, `_total` for counters. Labels are those of Kafka's and
RocketMQ's exporters: `broker`, `group`, `topic`, `queue_id` or `partition`. docs/METRICS.md is
written from here (`./dev generate`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

PREFIX = "steelyard_"


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """A metric. `name`: as Prometheus stores it, a histogram's without `_bucket`."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str


def _metric(kind: MetricKind, name: str, labels: str, text: str) -> Metric:
    return Metric(PREFIX + name, kind, tuple(labels.split()), text)


def _gauge(name: str, labels: str, text: str) -> Metric:
    return _metric(MetricKind.GAUGE, name, labels, text)


def _counter(name: str, labels: str, text: str) -> Metric:
    return _metric(MetricKind.COUNTER, f"{name}_total", labels, text)


def _histogram(name: str, labels: str, text: str) -> Metric:
    return _metric(MetricKind.HISTOGRAM, name, labels, text)


# -- the cluster -----------------------------------------------------------------------------------

NAMESERVER_UP = _gauge("nameserver_up", "nameserver", "Whether the nameserver answers: 1, else 0.")
BROKER_UP = _gauge(
    "broker_up",
    "broker",
    "Whether the broker answers: 1, else 0. A broker that has gone is listed for an hour.",
)
BROKER_INFO = _gauge("broker_info", "broker cluster address", "Who the broker is; always 1.")
KAFKA_READY = _gauge(
    "kafka_listener_ready", "broker", "Whether the broker serves Kafka's clients: 1, else 0."
)
ORPHANS = _gauge(
    "kafka_groups_without_coordinator",
    "broker",
    "Kafka groups whose coordinator, this broker, does not answer: those that it named when it last"
    " did. Their members can neither join nor commit.",
)
ANSWER_SECONDS = _gauge(
    "broker_answer_seconds", "broker", "How long the broker took to answer for these figures."
)
LEFT_OUT = _gauge(
    "series_left_out",
    "kind",
    "Queues, group offsets and groups that have no series, because of the limits in the settings.",
)

# -- brokers ---------------------------------------------------------------------------------------

START_TIME = _gauge(
    "broker_start_time_seconds", "broker", "When the broker started, since the epoch."
)
MESSAGES_IN = _counter("broker_messages_in", "broker", "Messages stored, of both protocols.")
BYTES_IN = _counter("broker_bytes_in", "broker", "Bytes of the messages stored, as stored.")
MESSAGES_OUT = _counter(
    "broker_messages_out", "broker", "Messages that consumers were given, of both protocols."
)
REQUESTS = _counter(
    "broker_requests",
    "broker dialect request",
    "Requests that came, by name; `OTHERS` are those between brokers, and unknown ones.",
)
REFUSED = _counter(
    "broker_refused_requests",
    "broker dialect error",
    "Requests, and batches of Kafka's producers, that were refused, by the error they were told:"
    " among them bodies that are too large, damaged or not to be understood.",
)
LOGINS = _counter(
    "broker_kafka_logins",
    "broker mechanism outcome",
    "Logins of Kafka clients (SASL): `accepted` or `refused`; mechanisms that are not enabled are"
    " `other`.",
)
PARKED = _gauge(
    "broker_parked_requests",
    "broker kind",
    "Requests that wait: `pull` and `fetch` for messages, `turn` for their turn in long work.",
)
SKIPPED = _counter(
    "broker_skipped_messages",
    "broker",
    "Messages skipped for RocketMQ consumers: too large for them, or of Kafka's and unreadable.",
)
DAMAGED = _counter(
    "broker_damaged_entries", "broker", "Entries of logs that were found damaged on the disk."
)
DISK_FREE = _gauge("broker_disk_free_bytes", "broker", "Free space on the data directory's disk.")
DISK_SIZE = _gauge("broker_disk_size_bytes", "broker", "Size of the data directory's disk.")
LOOP_DELAY = _histogram(
    "broker_event_loop_delay_seconds",
    "broker",
    "How late the event loop called back, sampled every 100 ms: every client waits as long.",
)
STOOD_STILL = _counter(
    "broker_stood_still_seconds",
    "broker",
    "Time in which the broker did not run at all, in pauses of 1.5 s and more: it was stopped, or"
    " its machine was suspended or overloaded.",
)
FSYNC = _histogram(
    "broker_fsync_seconds", "broker", "How long the disk took to have what was written."
)
CONNECTIONS = _gauge("broker_connections", "broker dialect", "Connections of clients.")
RECEIVED_BYTES = _counter("broker_received_bytes", "broker dialect", "Bytes received from clients.")
SENT_BYTES = _counter("broker_sent_bytes", "broker dialect", "Bytes sent to clients.")
CONNECTIONS_REFUSED = _counter(
    "broker_connections_refused", "broker", "Connections refused for lack of room."
)
CONNECTIONS_DISPLACED = _counter(
    "broker_connections_displaced",
    "broker",
    "Connections that never sent a request and were closed because others needed their places.",
)
INTERNAL_ERRORS = _counter(
    "broker_internal_errors", "broker", "Bugs of the broker met so far; its log has them."
)
CPU = _counter("broker_cpu_seconds", "broker", "Processor time of the broker's process.")
MEMORY = _gauge(
    "broker_resident_memory_bytes", "broker", "Memory of the broker's process that is in use."
)

# -- queues ----------------------------------------------------------------------------------------

_QUEUE = "broker topic queue_id partition"

BEGIN_OFFSET = _gauge(
    "queue_begin_offset",
    _QUEUE,
    "Offset of the first message that is left. `partition`: of Kafka's clients, or empty.",
)
END_OFFSET = _gauge(
    "queue_end_offset", _QUEUE, "Offset that the next message gets; its rate is that of messages."
)
QUEUE_BYTES = _gauge("queue_size_bytes", _QUEUE, "Bytes of the queue's log on the disk.")

# -- groups ----------------------------------------------------------------------------------------

_GROUP_QUEUE = "broker group topic queue_id"
_GROUP_PARTITION = "group topic partition"

MEMBERS = _gauge(
    "consumer_group_members",
    "broker group",
    "Members of a RocketMQ group that this broker knows; each member tells every broker.",
)
OFFSET = _gauge(
    "consumer_group_offset", _GROUP_QUEUE, "Offset that a RocketMQ group has committed."
)
LAG = _gauge(
    "consumer_group_lag_messages",
    _GROUP_QUEUE,
    "Messages of the queue that the RocketMQ group has not committed.",
)
LAG_SECONDS = _gauge(
    "consumer_group_lag_seconds",
    _GROUP_QUEUE,
    "How long ago the oldest of these messages was stored; 0 without any.",
)
KAFKA_MEMBERS = _gauge("kafka_consumer_group_members", "group", "Members of a Kafka group.")
KAFKA_STATE = _gauge(
    "kafka_consumer_group_info",
    "group coordinator kind state",
    "The coordinator, kind (classic, consumer, share or streams) and state of a Kafka group;"
    " always 1.",
)
KAFKA_OFFSET = _gauge(
    "kafka_consumer_group_offset", _GROUP_PARTITION, "Offset that a Kafka group has committed."
)
KAFKA_LAG = _gauge(
    "kafka_consumer_group_lag_messages",
    _GROUP_PARTITION,
    "Offsets of the partition that the Kafka group has not committed, markers of transactions"
    " included, as in Kafka.",
)
KAFKA_LAG_SECONDS = _gauge(
    "kafka_consumer_group_lag_seconds",
    _GROUP_PARTITION,
    "How long ago the oldest of these was stored; 0 without any.",
)

# -- rebalances ------------------------------------------------------------------------------------

REBALANCES = _counter(
    "rebalances",
    "group trigger",
    "Rebalances by what triggered them: the codes of the ledger's column `trigger`.",
)
PAUSE = _histogram(
    "rebalance_pause_seconds",
    "group kind",
    "Pause of each queue in a rebalance, while messages waited: `moved` to another member, or"
    " `stalled` with the same one. Buckets up to 300 s.",
)
REDELIVERED = _counter(
    "rebalance_redelivered_messages",
    "group",
    "Deliveries, because of rebalances, of messages that had been delivered to the group before.",
)
REPROCESSED_MIN = _counter(
    "rebalance_reprocessed_messages_min",
    "group",
    "How many of these an application had been passed before, at least.",
)
REPROCESSED_MAX = _counter(
    "rebalance_reprocessed_messages_max",
    "group",
    "The same, at most; equal where members report what they passed on.",
)
LEDGER_LATE = _counter(
    "ledger_late_records",
    "",
    "Records of the ledger that came too late: the figures are incomplete until it is read again.",
)
LEDGER_ERRORS = _counter(
    "ledger_read_errors", "", "Failed attempts to read the ledger; each is repeated."
)

METRICS: tuple[Metric, ...] = tuple(
    each for each in list(globals().values()) if isinstance(each, Metric)
)
"""All metrics, in the order of the documents."""

HEAD = """\
# Metrics

Written by `./dev generate` from the declarations in
[web/metrics.py](../src/steelyard/web/metrics.py); do not edit.
[How to serve and watch them](OPERATIONS.md#metrics-and-health).

A broker's counters start at 0 when it starts; rebalance counters when the HTTP server does. A
rebalance is counted half a minute after it began, when it is clear what triggered it and which
queues moved. [LEDGER.md](LEDGER.md) defines pause, redelivered and reprocessed. The label `dialect`
is the protocol, `rocketmq` or `kafka`.

| metric | kind | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """Return docs/METRICS.md."""
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {each.help} |\n"
        for each in METRICS
    ]
    return HEAD + "".join(rows)
