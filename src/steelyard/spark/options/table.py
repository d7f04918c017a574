"""Every option of `format("rocketmq")`, declared once: of readers, and of writers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Reads = Literal["batch", "stream"]

DEFAULT_GROUP = "spark-rocketmq"


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, default and meaning for the table, and other names for it."""

    name: str
    default: str
    meaning: str
    aliases: tuple[str, ...] = ()
    only: Reads | None = None


NAMESERVERS = Option(
    "nameservers",
    "(needed)",
    "`host:port`, several separated by `;` or `,`",
    ("nameserver",),
)

ACCESS = (
    Option("tls", "false", "encrypt connections"),
    Option("tlsCaFile", "the system's", "certificates to trust, PEM"),
    Option("tlsCheckHostname", "true", "whether a certificate must name the address"),
    Option("tlsCertFile", "", "certificate of the client, PEM"),
    Option("tlsKeyFile", "in tlsCertFile", "its private key"),
    Option("accessKey", "", "sign requests (ACL) with this key"),
    Option("secretKey", "", "the secret for accessKey"),
    Option("securityToken", "", "token of temporary credentials"),
)

SASL = (
    Option("saslUsername", "", "log in at Kafka listeners as this user"),
    Option("saslPassword", "", "its password"),
    Option("saslMechanism", "SCRAM-SHA-512", "or SCRAM-SHA-256, or PLAIN"),
)
"""Of what speaks to Kafka listeners: moves, incidents, and the sink with exactlyOnce."""

TIMEOUT = Option("timeoutMs", "10000", "longest wait for a connection or a reply")

OPTIONS = (
    NAMESERVERS,
    Option(
        "subscribe",
        "",
        "the topics, separated by `,`; this, subscribePattern or assign is needed",
        ("topic", "topics"),
    ),
    Option("subscribePattern", "", "a regular expression that whole names of topics match"),
    Option("assign", "", 'the queues, as `{"topic": {"broker-a": [0, 1]}}`'),
    Option(
        "queues", "all", "of these topics only these queues: `broker-a:0,broker-b` (all of one)"
    ),
    Option(
        "startingOffsets",
        "earliest, for streams latest",
        "earliest, latest (streams), JSON, or committed: the progress of consumerGroup, queues"
        " without any at the earliest. A stream uses it only when it has no checkpoint",
    ),
    Option(
        "startingTimestamp",
        "",
        "time to start at, for all queues; takes precedence over startingOffsets",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "",
        "times to start at, JSON; takes precedence over startingOffsets",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "for a queue without a message of that time or later: error, or latest to start at its end",
    ),
    Option("endingOffsets", "latest", "latest, or JSON; exclusive", only="batch"),
    Option("endingTimestamp", "", "read messages stored before this time", only="batch"),
    Option("endingOffsetsByTimestamp", "", "the same for each queue, JSON", only="batch"),
    Option(
        "failOnDataLoss",
        "true",
        "fail if messages to be read no longer exist; false reads what is there",
    ),
    Option(
        "minPartitions", "one a queue", "minimum number of partitions; queues are split to reach it"
    ),
    Option(
        "maxRecordsPerPartition",
        "",
        "maximum number of offsets in a partition; longer queues are split",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "",
        "maximum number of offsets in a micro-batch, shared among the queues in proportion to their"
        " lag",
        only="stream",
    ),
    Option(
        "minOffsetsPerTrigger",
        "",
        "wait for that many offsets before the next micro-batch, but no longer than"
        " maxTriggerDelay",
        only="stream",
    ),
    Option("maxTriggerDelay", "15m", "see minOffsetsPerTrigger: `30s`, `15m`, `1h`", only="stream"),
    Option(
        "alignByTime",
        "false",
        "end a micro-batch that maxOffsetsPerTrigger limits at the same store time in all queues,"
        " for queries with a watermark",
        only="stream",
    ),
    Option("columns", "all", "the columns wanted, in order: `topic,queueOffset,body`"),
    Option("tags", "all", "only messages with one of these tags: `TagA || TagB`"),
    Option("sql", "", "only messages that meet this SQL92 condition over their properties"),
    Option("consumerGroup", DEFAULT_GROUP, "the group named to brokers", ("group",)),
    Option(
        "commitOffsets",
        "true with consumerGroup",
        "store the progress of a stream at the brokers, for `consumerProgress`",
        only="stream",
    ),
    *ACCESS,
    Option("pullBatchSize", "8192", "messages requested per pull; Apache brokers return up to 32"),
    TIMEOUT,
    Option(
        "retryTimeoutMs",
        "60000",
        "how long a broker or nameserver that is away is tried again before the read fails; a"
        " batch is planned without retries",
    ),
)
"""Every option of readers, in the order of the table."""

SINK_OPTIONS = (
    NAMESERVERS,
    Option("topic", "", "where all rows go; needed unless there is a column of that name"),
    Option(
        "exactlyOnce",
        "false",
        "write each row once, whatever is repeated; on brokers of Steelyard with a Kafka listener",
    ),
    Option(
        "sinkId",
        "",
        "a name for what is written, needed for exactlyOnce: it is written once, however often"
        " the job runs",
        only="batch",
    ),
    Option(
        "batchId",
        "0",
        "what is written is the part of sinkId with this number; parts are written in ascending"
        " order, and a number that is not above the last one is written already",
        only="batch",
    ),
    Option(
        "transactionTimeoutMs",
        "300000",
        "with exactlyOnce: longest time from the first row of a task to the end of the batch;"
        " brokers allow 900000",
    ),
    Option("producerGroup", DEFAULT_GROUP, "the group named to brokers", ("group",)),
    *ACCESS,
    *SASL,
    Option(
        "sendBatchSize",
        "1000",
        "maximum number of messages per request; has no effect with exactlyOnce",
    ),
    TIMEOUT,
    Option(
        "retryTimeoutMs",
        "60000",
        "how long a broker or nameserver that is away is tried again before the task fails; the"
        " checks before a batch are done without retries",
    ),
    Option("checkpointLocation", "", "Spark's: where a stream stores its progress", only="stream"),
    Option("queryName", "", "Spark's: the name of a stream, as from `.queryName()`", only="stream"),
)
"""Every option of writers, in the order of the table."""


def named(options: Sequence[Option]) -> Mapping[str, Option]:
    """Return options by every name that they have, in lower case."""
    return {name.lower(): option for option in options for name in (option.name, *option.aliases)}


def markdown(options: Sequence[Option]) -> str:
    """Return the table of options for the documentation."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for option in options:
        also = f" (also {', '.join(option.aliases)})" if option.aliases else ""
        only = {"batch": "; batches only", "stream": "; streams only", None: ""}[option.only]
        meaning = option.meaning.replace("|", "\\|")
        rows.append(f"| {option.name}{also} | {option.default} | {meaning}{only} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(markdown(SINK_OPTIONS if sys.argv[1:] == ["sink"] else OPTIONS))
