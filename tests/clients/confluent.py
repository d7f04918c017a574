"""confluent-kafka, over librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition
from tests.clients.libraries import (
    LARGEST,
    WAIT_S,
    Library,
    Record,
    Refused,
    Sent,
    Transaction,
)


class Confluent(Library):
    name = "confluent-kafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def send(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        codec: str = "none",
        acks: int | str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        producer = confluent_kafka.Producer(
            self._config(
                **{
                    "compression.type": codec,
                    "acks": acks,
                    "enable.idempotence": idempotent,
                    "message.max.bytes": LARGEST,
                    "linger.ms": 20,
                }
            )
        )
        got: dict[int, int] = {}
        errors: list[str] = []

        def told(number: int) -> Callable[[object, confluent_kafka.Message], None]:
            def tell(error: object, message: confluent_kafka.Message) -> None:
                if error is not None:
                    errors.append(str(error))
                got[number] = message.offset() or 0

            return tell

        for number, record in enumerate(records):
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                told(number),
                timestamp=record.timestamp or 0,
                headers=list(record.headers),
            )
        assert producer.flush(WAIT_S) == 0
        if errors:
            raise Refused(errors[0])
        return [got[number] for number in range(len(got))]

    def read(
        self, topic: str, starts: Mapping[int, int], count: int, *, committed_only: bool = False
    ) -> list[Record]:
        consumer = self._consumer("nobody", committed_only=committed_only)
        consumer.assign([TopicPartition(topic, at, start) for at, start in starts.items()])
        try:
            return self._records(consumer, count)
        finally:
            consumer.close()

    def _records(self, consumer: confluent_kafka.Consumer, count: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), WAIT_S)
            assert messages, f"{len(found)} of {count} came"
            for message in messages:
                if message.error():
                    raise Refused(str(message.error()))
                found.append(
                    Record(
                        message.offset() or 0,
                        message.value(),
                        message.key(),
                        tuple(_pairs(message.headers())),
                        message.timestamp()[1],
                        message.partition() or 0,
                    )
                )
        return found

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self._consumer("nobody")
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), WAIT_S)
        consumer.close()
        return first, end

    def at_time(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        consumer = self._consumer("nobody")
        (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp)], WAIT_S)
        consumer.close()
        return found.offset if found.offset >= 0 else None

    def consume(
        self, group: str, topic: str, count: int, *, reset: str = "earliest", auto: bool = False
    ) -> list[Record]:
        consumer = self._consumer(group, reset, auto=auto)
        consumer.subscribe([topic])
        try:
            records = self._records(consumer, count)
            if not auto:
                consumer.commit(asynchronous=False)
            return records
        finally:
            consumer.close()

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        consumer = self._consumer(group)
        (found,) = consumer.committed([TopicPartition(topic, partition)], WAIT_S)
        consumer.close()
        return found.offset if found.offset >= 0 else None

    def transaction(self, transactional_id: str) -> Transaction:
        return ConfluentTransaction(self, transactional_id)

    def _consumer(
        self,
        group: str,
        reset: str = "earliest",
        *,
        auto: bool = False,
        committed_only: bool = False,
    ) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            self._config(
                **{
                    "group.id": group,
                    "auto.offset.reset": reset,
                    "enable.auto.commit": auto,
                    "isolation.level": "read_committed" if committed_only else "read_uncommitted",
                }
            )
        )

    def close(self) -> None:
        """Nothing is left open."""

    def _config(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, **more}


def _pairs(headers: Any) -> Iterable[tuple[str, bytes | None]]:
    """Headers as they come from the broker; the type stub has every form in which they may be given, too."""
    return headers or ()


class ConfluentTransaction(Transaction):
    def __init__(self, library: Confluent, transactional_id: str) -> None:
        self._library = library
        self._producer = confluent_kafka.Producer(
            library._config(**{"transactional.id": transactional_id})
        )
        self._ask(self._producer.init_transactions, WAIT_S)

    def _ask(self, method: Callable[..., None], *arguments: object) -> None:
        try:
            method(*arguments)
        except KafkaException as error:
            raise Refused(str(error)) from error

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Iterable[bytes]) -> None:
        errors: list[object] = []
        for value in values:
            self._ask(
                lambda one: self._producer.produce(
                    topic, one, partition=0, on_delivery=lambda error, _: errors.append(error)
                ),
                value,
            )
        assert self._producer.flush(WAIT_S) == 0
        for error in filter(None, errors):
            raise Refused(str(error))

    def commit(self) -> None:
        self._ask(self._producer.commit_transaction, WAIT_S)

    def abort(self) -> None:
        self._ask(self._producer.abort_transaction, WAIT_S)

    def transform(self, group: str, source: str, sink: str, batch: int) -> int:
        consumer = self._library._consumer(group, committed_only=True)
        consumer.subscribe([source])
        records = self._library._records(consumer, batch)
        self.begin()
        self.send(sink, [b"<%s>" % (record.value or b"") for record in records])
        self._ask(
            self._producer.send_offsets_to_transaction,
            consumer.position(consumer.assignment()),
            consumer.consumer_group_metadata(),
            WAIT_S,
        )
        consumer.close()
        return len(records)

    def close(self) -> None:
        """A producer of confluent-kafka has no close."""
