"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import TypeVar

import aiokafka
from aiokafka.errors import KafkaError
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

T = TypeVar("T")


class AioKafka(Library):
    name = "aiokafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self._runner.close()

    def run(self, main: Awaitable[T]) -> T:
        async def bounded() -> T:
            try:
                return await asyncio.wait_for(main, WAIT_S)
            except KafkaError as error:
                raise Refused(str(error) or type(error).__name__) from error

        return self._runner.run(bounded())

    def send(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        codec: str = "none",
        acks: int | str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        async def send() -> list[int]:
            chosen = producer_settings(self.bootstrap, codec, acks, idempotent)
            async with aiokafka.AIOKafkaProducer(**chosen) as producer:
                futures = []
                waiting = iter(records)
                while (record := await asyncio.to_thread(next, waiting, None)) is not None:
                    future = await producer.send(
                        topic,
                        record.value,
                        record.key,
                        record.partition,
                        record.timestamp,
                        list(record.headers),
                    )
                    futures.append(future)
                told = [await future for future in futures]
                return [-1 if one is None else one.offset for one in told]

        return self.run(send())

    def read(
        self, topic: str, starts: Mapping[int, int], count: int, *, committed_only: bool = False
    ) -> list[Record]:
        async def read() -> list[Record]:
            async with self._consumer(None, committed_only=committed_only) as consumer:
                consumer.assign([aiokafka.TopicPartition(topic, at) for at in starts])
                for at, start in starts.items():
                    consumer.seek(aiokafka.TopicPartition(topic, at), start)
                return await self._records(consumer, count)

        return self.run(read())

    async def _records(self, consumer: aiokafka.AIOKafkaConsumer, count: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < count:
            polled = await consumer.getmany(timeout_ms=1000, max_records=count - len(found))
            found += [record_of(one) for records in polled.values() for one in records]
        return found

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        place = aiokafka.TopicPartition(topic, partition)

        async def ends() -> tuple[int, int]:
            async with self._consumer(None) as consumer:
                first = await consumer.beginning_offsets([place])
                end = await consumer.end_offsets([place])
                return first[place], end[place]

        return self.run(ends())

    def at_time(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        place = aiokafka.TopicPartition(topic, partition)

        async def at_time() -> int | None:
            async with self._consumer(None) as consumer:
                found = (await consumer.offsets_for_times({place: timestamp}))[place]
                return None if found is None else found.offset

        return self.run(at_time())

    def consume(
        self, group: str, topic: str, count: int, *, reset: str = "earliest", auto: bool = False
    ) -> list[Record]:
        async def consume() -> list[Record]:
            async with self._consumer(group, reset, auto=auto) as consumer:
                consumer.subscribe([topic])
                records = await self._records(consumer, count)
                if not auto:
                    await consumer.commit()
                return records

        return self.run(consume())

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        async def committed() -> int | None:
            async with self._consumer(group) as consumer:
                place = aiokafka.TopicPartition(topic, partition)
                consumer.assign([place])
                found: int | None = await consumer.committed(place)
                return found

        return self.run(committed())

    def transaction(self, transactional_id: str) -> Transaction:
        return AioKafkaTransaction(self, transactional_id)

    def _consumer(
        self, group: str | None, reset: str = "earliest", **more: bool
    ) -> aiokafka.AIOKafkaConsumer:
        return aiokafka.AIOKafkaConsumer(**consumer_settings(self.bootstrap, group, reset, **more))


class AioKafkaTransaction(Transaction):
    def __init__(self, library: AioKafka, transactional_id: str) -> None:
        self._library = library
        self._run = library.run

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=library.bootstrap, transactional_id=transactional_id
            )
            await producer.start()
            return producer

        self._producer = self._run(start())

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, values: Iterable[bytes]) -> None:
        async def send() -> None:
            futures = [await self._producer.send(topic, one, partition=0) for one in values]
            for future in futures:
                await future

        self._run(send())

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def transform(self, group: str, source: str, sink: str, batch: int) -> int:
        async def transform() -> int:
            async with self._library._consumer(group, committed_only=True) as consumer:
                consumer.subscribe([source])
                records = await self._library._records(consumer, batch)
                await self._producer.begin_transaction()
                for record in records:
                    value = b"<%s>" % (record.value or b"")
                    await self._producer.send_and_wait(sink, value, partition=0)
                offsets = {place: await consumer.position(place) for place in consumer.assignment()}
                await self._producer.send_offsets_to_transaction(offsets, group)
                return len(records)

        return self._run(transform())

    def close(self) -> None:
        self._run(self._producer.stop())
