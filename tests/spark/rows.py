"""Arrow batches as rows, for comparison."""

from __future__ import annotations

import pyarrow as pa


def rows_of(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """Times are microseconds, maps are lists of pairs."""
    batch.validate(full=True)
    times = {"bornTimestamp", "storeTimestamp"}
    lists = {
        field.name: (
            batch.column(field.name).cast(pa.int64())
            if field.name in times
            else batch.column(field.name)
        ).to_pylist()
        for field in batch.schema
    }
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
