"""The rows of a DataFrame, checked without a loop per row: columns of bytes and of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.errors import MessageError
from steelyard.produce.rules import RESERVED_PROPERTIES
from steelyard.spark.joining import Integers
from steelyard.wire.remoting.names import DELAY_LEVEL_MAX
from steelyard.wire.remoting.properties import (
    TIMER_DEL_UNIQKEY,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_PROPERTIES,
)

_RESERVED_NAMES = RESERVED_PROPERTIES | {
    *TIMER_PROPERTIES,
    TIMER_OUT_MS,
    TIMER_ENQUEUE_MS,
    TIMER_DEQUEUE_MS,
    TIMER_DEL_UNIQKEY,
    "TIMER_ROLL_TIMES",
    "TIMER_DELAY_LEVEL",
}
"""Also of 5.x (MessageConst.STRING_HASH_SET): a message that was delivered late keeps them."""
_RESERVED = pa.array([name.encode() for name in sorted(_RESERVED_NAMES)], pa.binary())
_SEPARATORS = (b"\x01", b"\x02")


@dataclass(frozen=True, slots=True)
class Rows:
    """Checked rows; columns that the DataFrame does not have are None."""

    count: int
    body: pa.Array
    topic: pa.Array | None
    keys: pa.Array | None
    sharding_key: pa.Array | None
    tags: pa.Array | None
    names: pa.Array | None
    """Names of all properties of all rows, null if it is left out."""
    values: pa.Array | None
    property_starts: Integers | None
    """Where the properties of each row begin, and the end of the last."""
    queue_id: Integers | None
    """-1: to be chosen."""
    broker_name: pa.Array | None
    delay_level: Integers | None

    def pairs(self) -> list[tuple[bytes, pa.Array]]:
        """Return the names and columns of what becomes a property or header of its own."""
        found = ((b"TAGS", self.tags), (b"__SHARDINGKEY", self.sharding_key))
        return [(name, column) for name, column in found if column is not None]


def read_rows(batch: pa.RecordBatch, columns: Mapping[str, int]) -> Rows:
    """Check the rows of a batch. Raises MessageError that names the column."""

    def binary(name: str) -> pa.Array | None:
        if name not in columns:
            return None
        return _text(name, batch.column(columns[name]))

    def number(name: str, least: int, most: int, none: int) -> Integers | None:
        if name not in columns:
            return None
        column = batch.column(columns[name]).cast(pa.int64())
        wrong = pc.or_(pc.less(column, least), pc.greater(column, most))
        if pc.any(wrong).as_py():
            value = column.filter(wrong)[0].as_py()
            raise MessageError(f"column {name!r} has {value}; it must be {least} to {most}")
        return np.asarray(pc.fill_null(column, none), np.int64)

    body = batch.column(columns["body"]).cast(pa.binary())
    if body.null_count:
        raise MessageError("column 'body' has a null; a message needs a body")
    if batch.num_rows and not pc.min(pc.binary_length(body)).as_py():
        raise MessageError("column 'body' has an empty value; a message needs a body")
    topic = binary("topic")
    if topic is not None and topic.null_count:
        raise MessageError("column 'topic' has a null; give every row a topic, or option 'topic'")
    names = values = starts = None
    if "properties" in columns:
        names, values, starts = _properties(batch.column(columns["properties"]))
    return Rows(
        count=batch.num_rows,
        body=body,
        topic=topic,
        keys=binary("keys"),
        sharding_key=binary("shardingKey"),
        tags=binary("tags"),
        names=names,
        values=values,
        property_starts=starts,
        queue_id=number("queueId", 0, (1 << 31) - 1, -1),
        broker_name=binary("brokerName"),
        delay_level=number("delayLevel", 0, DELAY_LEVEL_MAX, 0),
    )


def _text(name: str, column: pa.Array) -> pa.Array:
    """Return a column of texts as UTF-8, null where it is empty."""
    column = column.cast(pa.binary())
    _check_text(name, column)
    return pc.if_else(pc.equal(pc.binary_length(column), 0), None, column)


def _check_text(name: str, column: pa.Array) -> None:
    """Check UTF-8: Spark does not, if it casts bytes to a string; and RocketMQ's separators."""
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        raise MessageError(f"column {name!r} has a value that is not UTF-8") from None
    if any(pc.any(pc.match_substring(column, each)).as_py() for each in _SEPARATORS):
        raise MessageError(f"column {name!r} has a value with a separator, U+0001 or U+0002")


def _properties(column: pa.MapArray) -> tuple[pa.Array, pa.Array, Integers]:
    """Return names and values of a column of maps, and where each row's begin."""
    starts = np.asarray(column.offsets, np.int64)
    if column.null_count:
        sizes = np.where(np.asarray(pc.is_valid(column)), np.diff(starts), 0)
        taken = np.repeat(starts[:-1] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
        starts = np.concatenate(([0], np.cumsum(sizes)))
        names, values = column.keys.take(pa.array(taken)), column.items.take(pa.array(taken))
    else:
        first, last = int(starts[0]), int(starts[-1])
        names, values = (
            column.keys.slice(first, last - first),
            column.items.slice(first, last - first),
        )
        starts = starts - first
    names, values = names.cast(pa.binary()), values.cast(pa.binary())
    _check_text("properties", names)
    _check_text("properties", values)
    left_out = pc.or_(
        pc.or_(pc.is_null(values), pc.equal(pc.fill_null(pc.binary_length(values), 0), 0)),
        pc.or_(pc.equal(pc.binary_length(names), 0), pc.is_in(names, _RESERVED)),
    )
    return pc.if_else(left_out, None, names), values, starts
