"""The writers of `format("rocketmq")`: rows of DataFrames and of streams become messages.

Spark calls them like this, for a batch or for each micro-batch of a stream:

    writer(schema, overwrite)     driver: options and columns are checked
    write(batches)                workers: once for each attempt of each task
    commit(messages, ...)         driver, when all tasks have succeeded: with what they returned
    abort(messages, ...)          driver, when one has failed for good; None for those that failed

- A task succeeds when the brokers have acknowledged all of its rows.
- Without exactlyOnce the rows are readable at once, and those of a task that is repeated are
  written again: at least once.
- With exactlyOnce they are readable when the driver has committed (`staging`). A writer is built
  anew for each micro-batch, and once more for its commit, so what commit needs to know comes with
  the messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from steelyard.errors import ConfigError, SteelyardError
from steelyard.spark.options.writing import SinkOptions, read_sink_options
from steelyard.spark.servers.kafka_cluster import KafkaCluster
from steelyard.spark.servers.patience import passes
from steelyard.spark.servers.server_links import ServerLinks
from steelyard.spark.shipping import Shipped
from steelyard.spark.writing.columns import read_columns
from steelyard.spark.writing.committing import Staged, abort_all, commit_all

if TYPE_CHECKING:
    import pyarrow as pa


def batch_writer(
    given: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """Return the writer of a DataFrame. Raises ConfigError, RouteError or RemotingError."""
    options = read_sink_options(given, "batch")
    columns = read_columns(schema, options)
    if overwrite:
        raise ConfigError("a topic cannot be overwritten; use .mode('append')")
    with ServerLinks(options.nameservers, options.timeout_ms, options.access) as servers:
        if options.topic:
            servers.route(options.topic)
        else:
            servers.cluster()
        if options.exactly_once:
            KafkaCluster(options, servers).refresh()
    return RocketMQWriter(options, columns)


def stream_writer(given: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    """Return the writer of a micro-batch. Raises ConfigError, and RouteError for an unknown topic.

    In the output mode `complete` each micro-batch sends all rows of the result.
    """
    options = read_sink_options(given, "stream")
    columns = read_columns(schema, options)
    if options.topic:
        with ServerLinks(options.nameservers, options.timeout_ms, options.access) as servers:
            try:
                servers.route(options.topic)
            except SteelyardError as error:
                if not passes(error):  # tasks try the others again
                    raise
    return RocketMQStreamWriter(options, columns)


class TaskWritten(WriterCommitMessage):
    """All rows of a task were acknowledged. `staged`: where they are if they are not readable."""

    def __init__(self, writer: str = "", staged: Staged | None = None) -> None:
        self.writer = writer
        self.staged = staged


class _Writing:
    """What batches and streams have in common."""

    def __init__(self, options: SinkOptions, columns: Mapping[str, int]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        # Only the workers need Arrow and numpy: planning works without them.
        from steelyard.spark.writing.rows import read_rows
        from steelyard.spark.writing.sending import Sender

        if self._options.exactly_once:
            return self._stage(iterator)
        with closing(Sender(self._options)) as sender:
            for batch in iterator:
                if batch.num_rows:
                    sender.send(read_rows(batch, self._columns))
            sender.flush()
        return TaskWritten()

    def _stage(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from steelyard.spark.writing.rows import read_rows
        from steelyard.spark.writing.staging import Stager

        context = TaskContext.get()
        assert context is not None, "Spark calls it in a task"
        writer = self._writer(context)
        task = f"{context.partitionId()}.{context.attemptNumber()}"
        with closing(Stager(self._options, writer, task)) as stager:
            try:
                for batch in iterator:
                    if batch.num_rows:
                        stager.send(read_rows(batch, self._columns))
                return TaskWritten(writer, stager.finish())
            except BaseException:
                stager.abort()
                raise

    def _writer(self, context: TaskContext) -> str:
        """Return the name under which the coordinator remembers what was committed."""
        raise NotImplementedError

    def _commit(self, messages: list[WriterCommitMessage | None], number: int) -> None:
        staged = _staged(messages)
        if staged:
            (writer,) = {each.writer for each in messages if isinstance(each, TaskWritten)}
            commit_all(self._options, writer, number, staged)

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = _staged(messages)
        if staged:
            abort_all(self._options, staged)


def _staged(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    return [each.staged for each in messages if isinstance(each, TaskWritten) and each.staged]


class RocketMQWriter(_Writing, DataSourceArrowWriter, metaclass=Shipped):
    """Writes a DataFrame."""

    def _writer(self, context: TaskContext) -> str:
        return f"spark-batch:{self._options.sink_id}"

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages, self._options.batch_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class RocketMQStreamWriter(_Writing, DataSourceStreamArrowWriter, metaclass=Shipped):
    """Writes a micro-batch."""

    def _writer(self, context: TaskContext) -> str:
        # The same as long as the query has its checkpoint.
        query_id = context.getLocalProperty("sql.streaming.queryId")
        if not query_id:
            raise SteelyardError(
                "Spark does not tell the id of the query, by which repeats are known"
            )
        return f"spark-stream:{query_id}"

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._abort(messages)
