"""One member of a consumer group, of kafka-python; see members.py."""

from __future__ import annotations

from collections.abc import Iterable

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from tests.peers.kafka.python import lines

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Told(ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        lines.partitions("assigned", assigned)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        lines.partitions("revoked", revoked)

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        lines.partitions("lost", lost)


def main() -> None:
    options = lines.options()
    consumer = KafkaConsumer(
        bootstrap_servers=options["bootstrap"],
        group_id=options["group"],
        group_instance_id=options.get("instance"),
        client_id=options["client"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[ASSIGNORS[options["assignor"]]],
        session_timeout_ms=int(options["session_ms"]),
        heartbeat_interval_ms=int(options["heartbeat_ms"]),
        max_poll_interval_ms=int(options["poll_ms"]),
        metadata_max_age_ms=int(options["refresh_ms"]),
        fetch_max_wait_ms=200,
    )
    if "pattern" in options:
        consumer.subscribe(pattern=options["pattern"], listener=Told())
    else:
        consumer.subscribe(topics=options["topics"].split(","), listener=Told())
    commands = lines.commands()
    command = ""
    while command != "leave":
        if command == "stall":
            commands.get()
        try:
            # Longer than a rebalance takes: 3.0.12 forgets one that ends after its poll, when metadata come meanwhile.
            batches = consumer.poll(timeout_ms=2000)
            for records in batches.values():
                for record in records:
                    lines.record(record.topic, record.partition, record.offset, record.value)
            if batches:
                consumer.commit()
                lines.emit("committed")
        except KafkaError as error:
            lines.emit("error", error=str(error))
        command = "" if commands.empty() else commands.get()
    consumer.close()
    lines.emit("left")


if __name__ == "__main__":
    main()
