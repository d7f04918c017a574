"""Rows as records of Kafka's record batches.

Keys are keys; tags, the sharding key and properties are headers, as RocketMQ consumers expect them
of a Kafka record (`nodes.broker.conversion`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.spark.joining import blank, contiguous, grouped, joined, sizes, varints
from steelyard.spark.writing.rows import Rows
from steelyard.wire.kafka.packing import VARINTS, field, pack_batch
from steelyard.wire.kafka.records import TRANSACTIONAL

_NULL = -1


def encode(rows: Rows) -> pa.Array:
    """Return each row's record from its key on; what comes before depends on its place."""
    parts: list[pa.Array | bytes] = []
    if rows.keys is None:
        parts.append(VARINTS[_NULL])
    else:
        valid = np.asarray(pc.is_valid(rows.keys))
        parts += [varints(np.where(valid, sizes(rows.keys), _NULL)), blank(rows.keys)]
    parts += [varints(sizes(rows.body)), rows.body]
    count = np.zeros(rows.count, np.int64)
    headers: list[pa.Array] = []
    for name, column in rows.pairs():
        count += np.asarray(pc.is_valid(column))
        text = joined(field(name), varints(sizes(column)), column)
        headers.append(blank(text))
    if rows.names is not None and rows.values is not None and rows.property_starts is not None:
        kept = np.concatenate(([0], np.cumsum(np.asarray(pc.is_valid(rows.names)))))
        count += np.diff(kept[rows.property_starts])
        entries = joined(
            varints(sizes(rows.names)), rows.names, varints(sizes(rows.values)), rows.values
        )
        headers.append(grouped(entries, rows.property_starts))
    return joined(*parts, varints(count), *headers)


def seal(
    encoded: pa.Array, now: int, producer_id: int, producer_epoch: int, sequence: int
) -> bytes:
    """Return encoded rows as a batch of a transaction."""
    count = len(encoded)
    places = varints(np.arange(count))
    record_sizes = 2 + sizes(places) + sizes(encoded)
    # Attributes and the difference in time, which are 0, are a byte each.
    records = joined(varints(record_sizes), b"\0\0", places, encoded)
    return pack_batch(
        contiguous(records),
        base_offset=0,
        count=count,
        last_offset_delta=count - 1,
        base_timestamp=now,
        max_timestamp=now,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )
