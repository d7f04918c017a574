"""Every option of `format("rocketmq")`, declared once."""

from __future__ import annotations

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


OPTIONS = (
    Option(
        "nameservers",
        "(needed)",
        "`host:port`, several separated by `;` or `,`",
        ("nameserver",),
    ),
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
    Option("tls", "false", "encrypt connections"),
    Option("tlsCaFile", "the system's", "certificates to trust, PEM"),
    Option("tlsCheckHostname", "true", "whether a certificate must name the address"),
    Option("tlsCertFile", "", "certificate of the client, PEM"),
    Option("tlsKeyFile", "in tlsCertFile", "its private key"),
    Option("accessKey", "", "sign requests (ACL) with this key"),
    Option("secretKey", "", "the secret for accessKey"),
    Option("securityToken", "", "token of temporary credentials"),
    Option("pullBatchSize", "8192", "messages requested per pull; Apache brokers return up to 32"),
    Option("timeoutMs", "10000", "longest wait for a connection or a reply"),
    Option(
        "retryTimeoutMs",
        "60000",
        "how long a broker or nameserver that is away is tried again before the read fails; a"
        " batch is planned without retries",
    ),
)
"""Every option, in the order of the table."""

NAMES = {name.lower(): option for option in OPTIONS for name in (option.name, *option.aliases)}
"""The options by every name that they have, in lower case."""


def markdown() -> str:
    """Return the table of options for the documentation."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for option in OPTIONS:
        also = f" (also {', '.join(option.aliases)})" if option.aliases else ""
        only = {"batch": "; batches only", "stream": "; streams only", None: ""}[option.only]
        meaning = option.meaning.replace("|", "\\|")
        rows.append(f"| {option.name}{also} | {option.default} | {meaning}{only} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(markdown())
