"""Record batches that are encoded in bulk, read back one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from steelyard.spark.joining import varints
from steelyard.spark.writing import kafka_batches
from steelyard.spark.writing.rows import read_rows
from steelyard.wire.kafka.records import Record, crc_ok, read_header, read_records, read_varint

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
ROW = st.tuples(
    st.binary(min_size=1, max_size=300),
    st.none() | TEXT,
    st.none() | TEXT,
    st.none() | st.dictionaries(TEXT.map("p".__add__), TEXT, max_size=4),
)


@given(st.lists(ROW, min_size=1, max_size=30), st.integers(0, 3))
def test_what_is_encoded_in_bulk_is_read_one_by_one(
    rows: list[tuple[bytes, str | None, str | None, dict[str, str] | None]], skipped: int
) -> None:
    """Also of a batch that is a slice of a longer one, as Arrow's may be."""
    bodies, keys, tags, maps = zip(*rows[:1] * skipped, *rows, strict=True)
    columns = [
        pa.array(bodies, pa.binary()),
        pa.array(keys, pa.string()),
        pa.array(tags, pa.string()),
        pa.array([each and [*each.items()] for each in maps], pa.map_(pa.string(), pa.string())),
    ]
    names = ["body", "keys", "tags", "properties"]
    batch = pa.RecordBatch.from_arrays(columns, names=names).slice(skipped)
    found = read_rows(batch, {name: place for place, name in enumerate(names)})
    sealed = kafka_batches.seal(kafka_batches.encode(found), 1_700_000_000_000, 7, 2, 30)
    assert crc_ok(sealed)
    header = read_header(sealed)
    facts = (header.producer_id, header.producer_epoch, header.base_sequence, header.count)
    assert facts == (7, 2, 30, len(rows))
    assert (header.count_fits, header.is_transactional) == (True, True)
    assert read_records(sealed) == tuple(
        Record(
            place,
            1_700_000_000_000,
            None if key is None else key.encode(),
            body,
            tuple(
                (name, value.encode())
                for name, value in (*([("TAGS", tag)] if tag else []), *(props or {}).items())
            ),
        )
        for place, (body, key, tag, props) in enumerate(rows)
    )


@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1))
def test_varints(values: list[int]) -> None:
    encoded = varints(np.array(values)).to_pylist()
    assert [read_varint(each, 0) for each in encoded] == [
        (value, len(each)) for value, each in zip(values, encoded, strict=True)
    ]
