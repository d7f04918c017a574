"""kafka-python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import kafka
from kafka.errors import KafkaError
from tests.clients.libraries import (
    WAIT_S,
    Library,
    Record,
    Refused,
    Sent,
    Transaction,
    consumer_settings,
    producer_settings,
    record_of,
)


class KafkaPython(Library):
    name = "kafka-python"
    codecs = ("none", "gzip", "lz4", "zstd")  # snappy needs a package that builds against libsnappy

    def send(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        codec: str = "none",
        acks: int | str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        producer = kafka.KafkaProducer(**producer_settings(self.bootstrap, codec, acks, idempotent))
        try:
            futures = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    record.partition,
                    record.timestamp,
                )
                for record in records
            ]
            return [future.get(WAIT_S).offset for future in futures]
        except KafkaError as error:
            raise Refused(str(error)) from error
        finally:
            producer.close()

    def read(
        self, topic: str, starts: Mapping[int, int], count: int, *, committed_only: bool = False
    ) -> list[Record]:
        consumer = self._consumer(None, committed_only=committed_only)
        consumer.assign([kafka.TopicPartition(topic, at) for at in starts])
        for at, start in starts.items():
            consumer.seek(kafka.TopicPartition(topic, at), start)
        try:
            return self._records(consumer, count)
        finally:
            consumer.close()

    def _records(self, consumer: kafka.KafkaConsumer, count: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < count:
            polled = consumer.poll(int(WAIT_S * 1000), max_records=count - len(found))
            assert polled, f"{len(found)} of {count} came"
            found += [record_of(one) for records in polled.values() for one in records]
        return found

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        place = kafka.TopicPartition(topic, partition)
        consumer = self._consumer(None)
        first, end = consumer.beginning_offsets([place]), consumer.end_offsets([place])
        consumer.close()
        return first[place], end[place]

    def at_time(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        place = kafka.TopicPartition(topic, partition)
        consumer = self._consumer(None)
        found = consumer.offsets_for_times({place: timestamp})[place]
        consumer.close()
        return None if found is None else found.offset

    def consume(
        self, group: str, topic: str, count: int, *, reset: str = "earliest", auto: bool = False
    ) -> list[Record]:
        consumer = self._consumer(group, reset, auto=auto)
        consumer.subscribe([topic])
        try:
            records = self._records(consumer, count)
            if not auto:
                consumer.commit()
            return records
        finally:
            consumer.close()

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        consumer = self._consumer(group)
        found: int | None = consumer.committed(kafka.TopicPartition(topic, partition))
        consumer.close()
        return found

    def transaction(self, transactional_id: str) -> Transaction:
        return KafkaPythonTransaction(self, transactional_id)

    def close(self) -> None:
        """Nothing is left open."""

    def _consumer(
        self, group: str | None, reset: str = "earliest", **more: bool
    ) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(**consumer_settings(self.bootstrap, group, reset, **more))


class KafkaPythonTransaction(Transaction):
    def __init__(self, library: KafkaPython, transactional_id: str) -> None:
        self._library = library
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=library.bootstrap, transactional_id=transactional_id
        )
        self._ask(self._producer.init_transactions)

    def _ask(self, method: Callable[..., object], *arguments: object) -> None:
        try:
            method(*arguments)
        except KafkaError as error:
            raise Refused(str(error) or type(error).__name__) from error

    def begin(self) -> None:
        self._ask(self._producer.begin_transaction)

    def send(self, topic: str, values: Iterable[bytes]) -> None:
        futures = [self._producer.send(topic, value, partition=0) for value in values]
        for future in futures:
            self._ask(future.get, WAIT_S)

    def commit(self) -> None:
        self._ask(self._producer.commit_transaction)

    def abort(self) -> None:
        self._ask(self._producer.abort_transaction)

    def transform(self, group: str, source: str, sink: str, batch: int) -> int:
        consumer = self._library._consumer(group, committed_only=True)
        consumer.subscribe([source])
        records = self._library._records(consumer, batch)
        self.begin()
        self.send(sink, [b"<%s>" % (record.value or b"") for record in records])
        offsets = {
            place: kafka.OffsetAndMetadata(consumer.position(place), "", -1)
            for place in consumer.assignment()
        }
        self._ask(self._producer.send_offsets_to_transaction, offsets, consumer.group_metadata())
        consumer.close()
        return len(records)

    def close(self) -> None:
        self._producer.close()
