"""Decoding of pull replies to Arrow batches, without a Python object per message.

A record is what `wire.remoting.message` encodes (MessageDecoder.java): fixed fields up to the body,
then topic and properties, each after its length. A loop over the sizes finds where records begin;
numpy gathers the fields of all records at once; Arrow cuts bodies, topics and properties out of the
bytes. Only compressed bodies, and ids of messages without one, are processed one by one.

The values are those of `wire.remoting.message.MessageView`; the tests compare the two.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from steelyard.errors import ProtocolError
from steelyard.spark import schema
from steelyard.spark.joining import contiguous, cut, texts
from steelyard.wire.remoting.flags import SysFlag, decompress
from steelyard.wire.remoting.ids import offset_message_id
from steelyard.wire.remoting.message import MAGIC, MAGIC_LONG_TOPIC
from steelyard.wire.remoting.properties import KEYS, TAGS, UNIQ_KEY, decode_properties

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Octets = NDArray[np.uint8]

SCHEMA = to_arrow_schema(schema.SCHEMA, timezone="UTC")
"""`schema.SCHEMA` for Arrow."""

RECORD_BYTES_MIN = 91
"""Size of a record's fixed fields with two IPv4 hosts, and empty body, topic and properties."""
IPV6_EXTRA_BYTES = 12
HEAD = np.dtype(
    [
        ("size", ">u4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
"""The fields from the start of a record to the first host."""
STORE_TIMESTAMP = np.dtype([("store_timestamp", ">i8")])
TAIL = np.dtype([("reconsume_times", ">i4"), ("prepared_offset", ">i8"), ("body_size", ">i4")])
"""The fields between the second host and the body."""
_SIZE = struct.Struct(">I")
MILLISECONDS_MAX = (1 << 63) // 1000 - 1
"""Largest timestamp; a peer's clock can be anything, and more would not fit into microseconds."""


def decode(
    data: bytes, broker_name: str, names: Sequence[str] = tuple(SCHEMA.names)
) -> pa.RecordBatch:
    """Decode contiguous records to one batch of the columns `names` of `SCHEMA`.

    Raises ProtocolError on damage.
    """
    octets = np.frombuffer(data, np.uint8)
    starts = _starts(data)
    head = _gather(data, HEAD, starts)
    if not ((head["magic"] == MAGIC) | (head["magic"] == MAGIC_LONG_TOPIC)).all():
        raise ProtocolError("a record with an unknown magic number")
    # Each IPv6 host shifts the fields after it.
    sys_flag = head["sys_flag"]
    born_end = starts + np.where(sys_flag & SysFlag.BORN_HOST_V6, IPV6_EXTRA_BYTES, 0)
    store_end = born_end + np.where(sys_flag & SysFlag.STORE_HOST_V6, IPV6_EXTRA_BYTES, 0)
    ends = starts + head["size"]
    if (store_end + RECORD_BYTES_MIN > ends).any():
        raise ProtocolError(f"a record of less than {RECORD_BYTES_MIN} bytes")
    tail = _gather(data, TAIL, store_end + 72)
    body, topic, properties = _variable_parts(data, octets, head, tail, store_end, ends)
    flat = cache(lambda: _PropertyColumns(octets, *properties))
    count = len(starts)
    columns: dict[str, Callable[[], pa.Array]] = {
        "topic": lambda: texts(data, *topic),
        "brokerName": lambda: pa.repeat(broker_name, count),
        "queueId": lambda: pa.array(head["queue_id"].astype(np.int32)),
        "queueOffset": lambda: pa.array(head["queue_offset"].astype(np.int64)),
        "bornTimestamp": lambda: times(head["born_timestamp"]),
        "storeTimestamp": lambda: times(
            _gather(data, STORE_TIMESTAMP, born_end + 56)["store_timestamp"]
        ),
        "keys": lambda: flat().values_of(KEYS),
        "tags": lambda: flat().values_of(TAGS),
        "body": lambda: _bodies(data, *body, sys_flag),
        "properties": lambda: flat().map(),
        "flag": lambda: pa.array(head["flag"].astype(np.int32)),
        "reconsumeTimes": lambda: pa.array(tail["reconsume_times"].astype(np.int32)),
        "msgId": lambda: _ids(data, flat().values_of(UNIQ_KEY), head, born_end, store_end),
    }
    return pa.RecordBatch.from_arrays(
        [columns[name]() for name in names],
        schema=pa.schema([SCHEMA.field(name) for name in names]),
    )


def with_tags(batch: pa.RecordBatch, tags: Collection[str]) -> pa.RecordBatch:
    """Return the rows with one of these tags; brokers compare hash codes only."""
    wanted = pa.array(sorted(tags), pa.string())
    return batch.filter(pc.is_in(batch.column("tags"), value_set=wanted))


# -- where things are ------------------------------------------------------------------------------


def _starts(data: bytes) -> Ints:
    """Return the positions of the records, found one after the other by their sizes.

    A search for magic numbers in numpy takes longer, because it looks at the bodies, too.
    """
    starts = []
    position, end = 0, len(data)
    size_at = _SIZE.unpack_from
    try:
        while position < end:
            starts.append(position)
            (size,) = size_at(data, position)
            if size < RECORD_BYTES_MIN:
                raise ProtocolError(f"a record of {size} bytes; {RECORD_BYTES_MIN} is the least")
            position += size
    except struct.error:
        raise ProtocolError(f"{end - position} bytes after the last record") from None
    if position != end:
        raise ProtocolError(f"the last record ends {position - end} bytes after the data")
    return np.array(starts, np.int64)


def _gather(data: bytes, kind: np.dtype[np.void], positions: Ints) -> NDArray[np.void]:
    """Return the fields of `kind` at each position, aligned or not, with one copy per position."""
    width = kind.itemsize
    if not len(positions):
        return np.empty(0, kind)
    everywhere: NDArray[np.void] = np.ndarray(
        (len(data) - width + 1,), f"V{width}", data, strides=(1,)
    )
    return everywhere[positions].view(kind)


_Spans = tuple["Ints", "Ints"]
"""The first position, and one past the last, of a part of each record."""


def _variable_parts(
    data: bytes,
    octets: Octets,
    head: NDArray[np.void],
    tail: NDArray[np.void],
    store_end: Ints,
    ends: Ints,
) -> tuple[_Spans, _Spans, _Spans]:
    """Locate body, topic and properties of each record."""

    def following(position: Ints, length: Ints | int, least: int) -> Ints:
        """Return the position after a part, checked to leave `least` bytes in the record."""
        after: Ints = position + length
        if (after < position).any() or (after + least > ends).any():
            raise ProtocolError("a part of a record reaches beyond its end")
        return after

    body = store_end + 88
    body_end = following(body, tail["body_size"].astype(np.int64), 3)
    length = octets[body_end].astype(np.int64)
    topic = body_end + 1
    wide = head["magic"] == MAGIC_LONG_TOPIC  # two bytes for the size of the topic
    if wide.any():
        length = np.where(wide, length << 8 | octets[topic], length)
        topic = topic + wide
    topic_end = following(topic, length, 2)
    properties = topic_end + 2
    size = octets[topic_end].astype(np.int64) << 8 | octets[topic_end + 1]
    if (properties + size != ends).any():
        raise ProtocolError("the parts of a record do not add up to its size")
    return (body, body_end), (topic, topic_end), (properties, ends)


# -- columns ---------------------------------------------------------------------------------------


def times(milliseconds: Ints) -> pa.TimestampArray:
    """Return times in ms since the epoch as timestamps, cut off where they would not fit."""
    milliseconds = milliseconds.astype(np.int64)
    fitting = np.clip(milliseconds, -MILLISECONDS_MAX, MILLISECONDS_MAX)
    return pa.array(fitting * 1000, pa.int64()).cast(SCHEMA.field("bornTimestamp").type)


def _bodies(data: bytes, firsts: Ints, ends: Ints, sys_flag: Ints) -> pa.BinaryArray:
    bodies = cut(data, pa.binary(), firsts, ends)
    if not (sys_flag & SysFlag.COMPRESSED).any():
        return bodies
    flags = sys_flag.tolist()
    plain = [decompress(one, flag) for one, flag in zip(bodies.to_pylist(), flags, strict=True)]
    return pa.array(plain, pa.binary())


def _ids(
    data: bytes,
    unique: pa.StringArray,
    head: NDArray[np.void],
    born_end: Ints,
    store_end: Ints,
) -> pa.StringArray:
    """Return UNIQ_KEY if there is one, otherwise the offset message id."""
    if not unique.null_count:
        return unique
    ids = unique.to_pylist()
    physical = head["physical_offset"].tolist()
    firsts, ends = (born_end + 64).tolist(), (store_end + 72).tolist()
    return pa.array(
        [
            one or offset_message_id(data[firsts[row] : ends[row]], physical[row])
            for row, one in enumerate(ids)
        ],
        pa.string(),
    )


class _PropertyColumns:
    """The properties of all messages as flat names and values, and where each row begins.

    The rules are those of `decode_properties`: segments without a name or a value are ignored, and
    the last of two equal names wins.
    """

    def __init__(self, octets: Octets, firsts: Ints, ends: Ints) -> None:
        self._rows = len(firsts)
        # Copied together first, so that only properties are searched for separators, not bodies.
        packed = cut(octets, pa.binary(), firsts, ends)
        borders = np.concatenate(([0], np.cumsum(ends - firsts)))
        text = np.frombuffer(contiguous(packed), np.uint8)
        self._row, names, values = _segments(text, borders)
        self._names = texts(text, *names)
        self._values = texts(text, *values)
        self._number()
        if self._has_equal_names():
            self._keep_last(packed)
            self._number()

    def _number(self) -> None:
        """Number the names, so that numbers can be compared afterwards."""
        encoded = self._names.dictionary_encode()
        self._codes = encoded.indices.to_numpy()
        self._code_of = {name: code for code, name in enumerate(encoded.dictionary.to_pylist())}

    def _has_equal_names(self) -> bool:
        widest = int(np.bincount(self._row).max(initial=0))
        codes, row = self._codes, self._row
        return any(
            ((codes[apart:] == codes[:-apart]) & (row[apart:] == row[:-apart])).any()
            for apart in range(1, widest)
        )

    def _keep_last(self, packed: pa.BinaryArray) -> None:
        maps = [decode_properties(one) for one in packed.to_pylist()]
        self._row = np.repeat(np.arange(self._rows), [len(one) for one in maps])
        self._names = pa.array([name for one in maps for name in one], pa.string())
        self._values = pa.array([value for one in maps for value in one.values()], pa.string())

    def values_of(self, name: str) -> pa.StringArray:
        """Return the value of one name per row; null in rows without it."""
        found = np.flatnonzero(self._codes == self._code_of.get(name, -1))
        rows = self._row[found]
        if len(rows) == self._rows:
            return self._values.take(pa.array(found))
        positions = np.zeros(self._rows, np.int64)
        absent = np.ones(self._rows, np.bool_)
        positions[rows] = found
        absent[rows] = False
        return self._values.take(pa.array(positions, mask=absent))

    def map(self) -> pa.MapArray:
        offsets = np.searchsorted(self._row, np.arange(self._rows + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets), self._names, self._values)


def _segments(text: Octets, borders: Ints) -> tuple[Ints, _Spans, _Spans]:
    """Return the valid segments: the row of each, and the spans of their names and values."""
    separators = np.flatnonzero(text == 2)
    last = borders[1:][borders[1:] > borders[:-1]] - 1
    if (text[last] == 2).all():
        # As written by 5.x: segments end at separators, and nowhere else.
        begins = np.concatenate(([0], separators[:-1] + 1)) if len(separators) else separators
        limits = separators
        row = np.repeat(np.arange(len(borders) - 1), np.diff(separators.searchsorted(borders)))
    else:
        begins = np.sort(np.concatenate((borders[:-1], separators + 1)), kind="stable")
        limits = np.sort(np.concatenate((separators, borders[1:])), kind="stable")
        row = borders.searchsorted(begins, "right") - 1
    name_ends = np.flatnonzero(text == 1)
    if len(name_ends) != len(begins) or (name_ends < begins).any() or (name_ends >= limits).any():
        name_ends = np.append(name_ends, len(text))[name_ends.searchsorted(begins)]
    kept = (name_ends > begins) & (name_ends + 1 < limits)
    if not kept.all():
        row, begins, limits, name_ends = row[kept], begins[kept], limits[kept], name_ends[kept]
    return row, (begins, name_ends), (name_ends + 1, limits)
