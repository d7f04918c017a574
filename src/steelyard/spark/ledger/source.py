"""The source of the ledger's query: messages of a ledger, divided among buckets as they are read.

Records about brokers, which concern all groups, go to every bucket. A message is passed on as the
bytes of its records, cut up but not encoded again. The workers that read a queue do this: as a step
of its own, all records would go from Python to the JVM and back once more.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from steelyard.decoding import prepared
from steelyard.spark.options.reading import read_options
from steelyard.spark.reading.stream import RocketMQStreamReader
from steelyard.spark.source import RocketMQDataSource

if TYPE_CHECKING:
    import pyarrow as pa

BUCKETS = 16
"""How many parts of the ledger can be computed at once; stays what it is while there are tables."""

READ_COLUMNS = "brokerName,queueId,queueOffset,body"
SPLIT = (
    StructType()
    .add("bucket", IntegerType())
    .add("broker", StringType())
    .add("queue", IntegerType())
    .add("place", LongType())
    .add("at", LongType())
    .add("body", BinaryType())
)
"""The records of a message for a bucket: where the message is, the time of the latest of them."""


class LedgerSource(RocketMQDataSource):
    """`format("rocketmq-ledger")`: streams of `SPLIT`, with the options of `format("rocketmq")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "rocketmq-ledger"

    def schema(self) -> StructType:
        """Return the columns."""
        return SPLIT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a streaming query."""
        return _LedgerReader(read_options({**self.options, "columns": READ_COLUMNS}, "stream"))


class _LedgerReader(RocketMQStreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one partition, divided among buckets; called in the workers."""
        yield from split_batches(super().read(partition))


class _Head(msgspec.Struct):
    """What of a record decides where it goes, and when."""

    at: int
    group: str = ""


class _Part(msgspec.Struct):
    """Records of a message for one bucket. `at`: the time of the latest."""

    at: int
    records: list[msgspec.Raw]


_raws = msgspec.json.Decoder(prepared(list[msgspec.Raw]))
_heads = msgspec.json.Decoder(prepared(list[_Head]))


def bucket_of(group: str) -> int:
    """Return the bucket of a group."""
    return crc32(group.encode()) % BUCKETS


def split(body: bytes) -> dict[int, tuple[int, bytes]]:
    """Divide the records of a message among buckets; with each part the time of its latest."""
    parts: dict[str, _Part] = {}
    for raw, head in zip(_raws.decode(body), _heads.decode(body), strict=True):
        part = parts.get(head.group)
        if part is None:
            part = parts[head.group] = _Part(head.at, [])
        if head.at > part.at:
            part.at = head.at
        part.records.append(raw)
    about_brokers = parts.pop("", None)
    found: dict[int, _Part] = {}
    for group, part in parts.items():
        _extend(found, bucket_of(group), part)
    if about_brokers is not None:
        for bucket in range(BUCKETS):
            _extend(found, bucket, about_brokers)
    return {
        bucket: (part.at, b"[" + b",".join(part.records) + b"]") for bucket, part in found.items()
    }


def _extend(found: dict[int, _Part], bucket: int, part: _Part) -> None:
    before = found.get(bucket)
    if before is None:
        found[bucket] = part
    else:
        found[bucket] = _Part(max(before.at, part.at), [*before.records, *part.records])


def split_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Divide messages (`READ_COLUMNS`) into rows of `SPLIT`."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(SPLIT)
    for batch in batches:
        messages = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        rows = [
            (bucket, broker, queue, offset, at, part)
            for broker, queue, offset, body in messages
            for bucket, (at, part) in split(body).items()
        ]
        columns = [*zip(*rows, strict=True)] or [()] * len(schema)
        yield pa.record_batch(
            [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)],
            schema=schema,
        )
