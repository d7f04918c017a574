"""One member of a consumer group, of `steelyard.KafkaConsumer`; see members.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized

from tests.peers.kafka.python import lines

from steelyard import KafkaConsumer, KafkaError, RemotingError, TopicPartition
from steelyard.client.keywords import KafkaSettings


def main() -> None:
    options = lines.options()
    settings: KafkaSettings = {
        "client_id": options["client"],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "max_poll_interval_ms": int(options["poll_ms"]),
        "metadata_max_age_ms": int(options["refresh_ms"]),
        "fetch_max_wait_ms": 200,
    }
    if options["assignor"] == "uniform":  # the servers' own: KIP-848
        settings["group_protocol"] = "consumer"
        settings["group_remote_assignor"] = "uniform"
    else:
        settings["assignors"] = (options["assignor"],)
        settings["session_timeout_ms"] = int(options["session_ms"])
        settings["heartbeat_interval_ms"] = int(options["heartbeat_ms"])
    if "instance" in options:
        settings["group_instance_id"] = options["instance"]
    consumer = KafkaConsumer(
        bootstrap_servers=options["bootstrap"],
        group_id=options["group"],
        on_assigned=tell("assigned"),
        on_revoked=tell("revoked"),
        on_lost=tell("lost"),
        **settings,
    )
    pattern = options.get("pattern")
    if pattern:
        consumer.subscribe(pattern=pattern)
    else:
        consumer.subscribe(options["topics"].split(","))

    def poll() -> Sized:
        records = consumer.poll(100)
        for record in records:
            lines.record(record.topic, record.partition, record.offset, record.value)
        return records

    lines.obey(poll, consumer.commit, consumer.close, KafkaError, RemotingError)


def tell(event: str) -> Callable[[Iterable[TopicPartition]], None]:
    return lambda places: lines.partitions(event, places)


if __name__ == "__main__":
    main()
