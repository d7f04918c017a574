"""`format("rocketmq")`, for batches and streams: the messages of topics as rows.

    orders = {"nameservers": "127.0.0.1:9876", "subscribe": "Orders"}
    spark.read.format("rocketmq").options(**orders).load()
    spark.readStream.format("rocketmq").options(**orders).load()

The options are those of `options.reading`, the columns those of `schema`. Spark finds the format
through the package `pyspark_rocketmq`; if another, broken `pyspark_*` package prevents that,
`register(spark)` does the same.

- There is a partition for each queue, unless options ask for more.
- Queues and offsets of a batch are looked up once, when it is planned, so that it has an end and a
  retried task reads the same messages again; those of a stream at each trigger (`stream`).
- No member is registered, and nothing is committed but the progress of a stream with a
  consumerGroup.
- Reads from the master of each broker name, or from its lowest replica if there is none.
- Also works with Apache RocketMQ 4.9 and 5.x, whose brokers return 32 messages per pull.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from steelyard.errors import ConfigError
from steelyard.spark.options.reading import Options, read_options
from steelyard.spark.reading.planning import QueueRange, plan
from steelyard.spark.reading.stream import RocketMQStreamReader
from steelyard.spark.schema import chosen
from steelyard.spark.shipping import Shipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RocketMQDataSource", "register"]


class RocketMQDataSource(DataSource, metaclass=Shipped):
    """The data source behind `format("rocketmq")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "rocketmq"

    def schema(self) -> StructType:
        """Return the columns; wrong options raise ConfigError here, at `load()`."""
        return chosen(read_options(self.options, None).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader that plans and executes a read."""
        options = read_options(self.options)
        _check_schema(schema, options)
        return RocketMQReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a streaming query."""
        options = read_options(self.options, "stream")
        _check_schema(schema, options)
        return RocketMQStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a DataFrame."""
        from steelyard.spark.writing.sink import batch_writer  # needs more packages than reading

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Return the writer of a streaming query."""
        from steelyard.spark.writing.sink import stream_writer  # needs more packages than reading

        return stream_writer(self.options, schema)


def _check_schema(schema: StructType, options: Options) -> None:
    own = chosen(options.columns)
    if schema != own:
        raise ConfigError(
            "format rocketmq has its own schema, so leave .schema(...) out, and choose columns with"
            f" option 'columns'; it is {own.simpleString()}"
        )


def register(spark: SparkSession) -> None:
    """Register the format with a session, without Spark's search for it."""
    spark.dataSource.register(RocketMQDataSource)


class RocketMQReader(DataSourceReader, metaclass=Shipped):
    """Plans on the driver, reads in the workers."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return [*plan(self._options)]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        # Only the workers need Arrow and numpy: planning works without them.
        from steelyard.spark.reading.pull import batches

        # otherwise Spark's placeholder for an empty list of them
        if isinstance(partition, QueueRange):
            yield from batches(partition, self._options)
