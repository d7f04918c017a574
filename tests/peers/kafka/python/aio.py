"""One member of a consumer group, of aiokafka; see members.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError
from tests.peers.kafka.python import lines

ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Told(ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        lines.partitions("assigned", assigned)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        lines.partitions("revoked", revoked)


async def main() -> None:
    options = lines.options()
    consumer = AIOKafkaConsumer(
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
    await consumer.start()
    commands = lines.commands()
    while commands.empty():
        try:
            batches = await consumer.getmany(timeout_ms=100)
            for records in batches.values():
                for record in records:
                    lines.record(record.topic, record.partition, record.offset, record.value or b"")
            if batches:
                await consumer.commit()
                lines.emit("committed")
        except KafkaError as error:
            lines.emit("error", error=str(error))
    await consumer.stop()
    lines.emit("left")


if __name__ == "__main__":
    asyncio.run(main())
