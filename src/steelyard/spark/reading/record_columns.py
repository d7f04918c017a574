"""The columns of many Kafka records at once: numpy reads their fields, Arrow cuts out their values.

What a record becomes is told in `conversion.messages`. Records that would need another
rule than most are not decoded here but refused as `Irregular`: damaged ones, those with two headers
of one name or with very many, and those with so large properties that some would be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.conversion.messages import is_text, property_name
from steelyard.spark.joining import Integers, Octets, contiguous, cut
from steelyard.spark.reading.columns import SCHEMA, times
from steelyard.wire.remoting.frame import ANSWER_BYTES_MAX
from steelyard.wire.remoting.properties import KEYS, PROPERTIES_BYTES_MAX, TAGS, UNIQ_KEY

HEADERS_MAX = 100
"""Maximum headers of a record: they are read one after the other, in all records at once."""

_OVERHEAD_BYTES = 70_000
"""More than a message has beside its body and its properties without the UNIQ_KEY."""
_UNIQ_KEY_BYTES = 100
_VARINT_BYTES_MAX = 8
_TIMESTAMP_MAX = 1 << 62
_DIGITS = np.frombuffer("".join(f"{each:02X}" for each in range(256)).encode(), np.uint16)
"""The hexadecimal digits of each byte."""


class Irregular(Exception):  # noqa: N818
    """Records that must be decoded one by one."""


class RecordOrigin(NamedTuple):
    """Where records come from. `unique_prefix`: what their UNIQ_KEYs begin with."""

    topic: str
    broker_name: str
    queue_id: int
    unique_prefix: str


class RowSpans(NamedTuple):
    """Records in `data`, from `starts` to before `ends`, with what their batches say of them.

    `base_timestamp`: the timestamp of records that have that of their append (`appended`).
    """

    data: bytes
    starts: Integers
    ends: Integers
    offsets: Integers
    stored: Integers
    base_timestamp: Integers
    appended: npt.NDArray[np.bool_]


def decode_rows(rows: RowSpans, origin: RecordOrigin, names: Sequence[str]) -> pa.RecordBatch:
    """Decode records to a batch of the columns `names` of `SCHEMA`. Raises Irregular."""
    count = len(rows.starts)
    found = _Records(rows, origin)
    made: dict[str, Callable[[], pa.Array]] = {
        "topic": lambda: pa.repeat(origin.topic, count),
        "brokerName": lambda: pa.repeat(origin.broker_name, count),
        "queueId": lambda: pa.array(np.full(count, origin.queue_id, np.int32)),
        "queueOffset": lambda: pa.array(rows.offsets),
        "bornTimestamp": lambda: times(found.born),
        "storeTimestamp": lambda: times(rows.stored),
        "keys": lambda: found.keys,
        "tags": lambda: found.tags,
        "body": lambda: cut(rows.data, pa.binary(), *found.body),
        "properties": lambda: found.properties,
        "flag": lambda: pa.array(np.zeros(count, np.int32)),
        "reconsumeTimes": lambda: pa.array(np.zeros(count, np.int32)),
        "msgId": lambda: found.unique,
    }
    return pa.RecordBatch.from_arrays(
        [made[name]() for name in names],
        schema=pa.schema([SCHEMA.field(name) for name in names]),
    )


_Spans = tuple[Integers, Integers]


class _Records:
    """The fields of records, checked; columns are made when they are asked for."""

    def __init__(self, rows: RowSpans, origin: RecordOrigin) -> None:
        self._rows = rows
        self._origin = origin
        octets = np.frombuffer(rows.data, np.uint8)
        try:
            _, at = _varints(octets, rows.starts)
            timestamp, at = _varints(octets, at + 1)
            _, at = _varints(octets, at)
            self._key, _ = _field(octets, at)
            self.body, _ = _field(octets, self._key[1])
            self._headers = _Headers(octets, self.body[1])
        except IndexError:
            raise Irregular from None
        if (self._headers.end != rows.ends).any():
            raise Irregular
        size = rows.ends - rows.starts
        others = size - (self.body[1] - self.body[0])
        if (
            others.max() + _UNIQ_KEY_BYTES > PROPERTIES_BYTES_MAX
            or size.max() + _OVERHEAD_BYTES > ANSWER_BYTES_MAX
        ):
            raise Irregular
        self.born = self._born(timestamp)
        self._named = self._headers.named(rows.data)

    def _born(self, timestamp: Integers) -> Integers:
        rows = self._rows
        base = rows.base_timestamp
        odd = (base > _TIMESTAMP_MAX) | (base < -_TIMESTAMP_MAX)
        if (odd & ~rows.appended).any():
            raise Irregular
        given = np.where(rows.appended, base, base + timestamp)
        return np.where(given < 0, rows.stored, given)

    @cached_property
    def unique(self) -> pa.StringArray:
        """The UNIQ_KEYs: 14 digits of the offset after the prefix."""
        count = len(self._rows.offsets)
        prefix = self._origin.unique_prefix.encode()
        width = len(prefix) + 14
        text = np.empty((count, width), np.uint8)
        text[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
        octets = self._rows.offsets.astype(">i8").view(np.uint8).reshape(count, 8)
        text[:, len(prefix) :] = _DIGITS[octets[:, 1:]].view(np.uint8)
        borders = np.arange(0, (count + 1) * width, width, dtype=np.int32)
        buffers = [None, pa.py_buffer(borders), pa.py_buffer(text)]
        return pa.Array.from_buffers(pa.string(), count, buffers)

    @cached_property
    def keys(self) -> pa.StringArray:
        """The keys that are text; null for others."""
        firsts, ends = self._key
        if (firsts == ends).all():
            return pa.nulls(len(firsts), pa.string())
        return _texts(cut(self._rows.data, pa.binary(), firsts, ends))

    @cached_property
    def tags(self) -> pa.StringArray:
        found = self._named
        is_tag = found.is_tag
        if not is_tag.any():
            return pa.nulls(len(self.born), pa.string())
        index = np.zeros(len(self.born), np.int64)
        absent = np.ones(len(self.born), np.bool_)
        index[found.row[is_tag]] = np.flatnonzero(is_tag)
        absent[found.row[is_tag]] = False
        return found.values.take(pa.array(index, mask=absent))

    @cached_property
    def properties(self) -> pa.MapArray:
        """UNIQ_KEY, TAGS, KEYS and the other headers, in this order."""
        count, found = len(self.born), self._named
        has_key = np.asarray(pc.is_valid(self.keys))
        keyed = np.flatnonzero(has_key)
        tagged = np.flatnonzero(found.is_tag)
        other = np.flatnonzero(~found.is_tag)
        has_tag = np.zeros(count, np.int64)
        has_tag[found.row[tagged]] = 1
        front = 1 + has_tag + has_key
        sizes = front + np.bincount(found.row[other], minlength=count)
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        begins = offsets[:-1]
        names = np.zeros(offsets[-1], np.int32)
        values = np.empty(offsets[-1], np.int64)
        values[begins] = np.arange(count)
        places = begins[found.row[tagged]] + 1
        names[places] = 1
        values[places] = count + tagged
        places = (begins + has_tag)[keyed] + 1
        names[places] = 2
        values[places] = count + len(found.row) + keyed
        row = found.row[other]
        places = (begins + front)[row] + np.arange(len(row)) - row.searchsorted(row)
        names[places] = 3 + found.name[other]
        values[places] = count + other
        all_names = pa.array([UNIQ_KEY, TAGS, KEYS, *found.names], pa.string())
        all_values = pa.concat_arrays([self.unique, found.values, self.keys])
        return pa.MapArray.from_arrays(
            pa.array(offsets.astype(np.int32)),
            all_names.take(pa.array(names)),
            all_values.take(pa.array(values)) if len(values) > count else self.unique,
        )


class _Named(NamedTuple):
    """Headers that become properties, in order: row, number of the name, and value of each."""

    row: Integers
    name: Integers
    values: pa.StringArray
    names: list[str]
    is_tag: npt.NDArray[np.bool_]


class _Headers:
    """The headers of all records, in order. `end`: where those of each record end."""

    def __init__(self, octets: Octets, at: Integers) -> None:
        counts, at = _varints(octets, at)
        if counts.min() < 0 or counts.max() > HEADERS_MAX:
            raise Irregular
        self.end = at
        total = int(counts.sum())
        self._row = np.repeat(np.arange(len(counts)), counts)
        self._names = np.empty(total, np.int64), np.empty(total, np.int64)
        self._values = np.empty(total, np.int64), np.empty(total, np.int64)
        firsts = np.cumsum(counts) - counts
        left = np.flatnonzero(counts)
        for number in range(int(counts.max())):
            left = left[counts[left] > number]
            places = firsts[left] + number
            name, is_null = _field(octets, at[left])
            if is_null.any():
                raise Irregular
            value, _ = _field(octets, name[1])
            for spans, (begin, end) in ((self._names, name), (self._values, value)):
                spans[0][places], spans[1][places] = begin, end
            at[left] = value[1]

    def named(self, data: bytes) -> _Named:
        """Return those that become properties. Raises Irregular if a row has two of one name."""
        nothing = pa.array([], pa.string())
        if not len(self._row):
            none = np.empty(0, np.int64)
            return _Named(none, none, nothing, [], np.empty(0, np.bool_))
        names = cut(data, pa.string(), *self._names)
        try:
            names.validate(full=True)
        except pa.ArrowInvalid:
            raise Irregular from None
        encoded = names.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        known = np.array([bool(property_name(name)) for name in distinct])
        values = _texts(cut(data, pa.binary(), *self._values))
        number = np.asarray(encoded.indices, np.int64)
        kept = np.flatnonzero(known[number] & np.asarray(pc.is_valid(values)))
        row, number = self._row[kept], number[kept]
        if len(np.unique(row * len(distinct) + number)) < len(row):
            raise Irregular
        is_tag = number == (distinct.index(TAGS) if TAGS in distinct else -1)
        return _Named(row, number, values.take(pa.array(kept)), distinct, is_tag)


def _varints(octets: Octets, at: Integers) -> tuple[Integers, Integers]:
    """Read a zigzag varint at each position; return the numbers and the positions after them.

    Raises IndexError beyond the end, and Irregular for more than 8 bytes.
    """
    value = octets[at].astype(np.int64)
    after = at + 1
    longer = np.flatnonzero(value > 0x7F)
    if len(longer):
        value &= 0x7F
        for place in range(1, _VARINT_BYTES_MAX):
            byte = octets[after[longer]].astype(np.int64)
            value[longer] |= (byte & 0x7F) << 7 * place
            after[longer] += 1
            longer = longer[byte > 0x7F]
            if not len(longer):
                break
        else:
            raise Irregular
    return (value >> 1) ^ -(value & 1), after


def _field(octets: Octets, at: Integers) -> tuple[_Spans, npt.NDArray[np.bool_]]:
    """Read the size of a field at each position; return where its value is, and which are null."""
    size, first = _varints(octets, at)
    is_null = size < 0
    if is_null.any():
        if size.min() < -1:
            raise Irregular
        size[is_null] = 0
    return (first, first + size), is_null


def _texts(values: pa.BinaryArray) -> pa.StringArray:
    """Return values as texts; null for what a property cannot have, and for empty ones."""
    octets = np.frombuffer(contiguous(values), np.uint8)
    found = values.view(pa.string())
    try:
        found.validate(full=True)
        are_texts = not (octets - np.uint8(1) < 2).any()
    except pa.ArrowInvalid:
        are_texts = False
    if not are_texts:
        each = [one.decode() if one and is_text(one) else None for one in values.to_pylist()]
        return pa.array(each, pa.string())
    is_empty = pc.equal(pc.binary_length(found), 0)
    return pc.if_else(is_empty, None, found) if pc.any(is_empty).as_py() else found
