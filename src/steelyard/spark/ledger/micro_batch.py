"""A micro-batch of the ledger's query, collected: from rows of `query.MADE` to rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from steelyard.decoding import prepared
from steelyard.ledger.tables import TABLES
from steelyard.spark.ledger.query import DROPS, GROUPS, Drops
from steelyard.spark.tables import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

OPEN = "open"


class MicroBatch(NamedTuple):
    """The rows of a micro-batch.

    `rows` has the columns group, table, day, row (encoded) and batch: `number`, or `OPEN` for rows
    that may still change. All open rows of `groups` are among them.
    """

    number: int
    rows: pa.Table
    groups: frozenset[str]
    drops: Drops

    def of_other_groups(self, rows: pa.Table) -> pa.Table:
        """Return those of `rows` whose groups are not in this batch."""
        import pyarrow as pa
        import pyarrow.compute as pc

        mine = pa.array(self.groups, pa.string())
        return rows.filter(pc.invert(pc.is_in(rows.column("group"), mine)))


def micro_batch(made: DataFrame, number: int) -> MicroBatch | None:
    """Run a micro-batch and collect its rows; None if there was nothing new."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = made.toArrow()
    tables = found.column("table")
    drops = found.filter(pc.equal(tables, DROPS)).column("row").to_pylist()
    if not drops:
        return None
    each = [msgspec.msgpack.decode(row, type=prepared(Drops)) for row in drops]
    groups = found.filter(pc.equal(tables, GROUPS)).column("group").to_pylist()
    rows = found.filter(pc.is_in(tables, pa.array(TABLES, pa.string())))
    batch = pc.if_else(rows.column("is_open"), OPEN, str(number))
    return MicroBatch(
        number,
        rows.append_column("batch", batch).drop_columns(["is_open"]),
        frozenset(groups),
        Drops(sum(one.late for one in each), sum(one.repeated for one in each)),
    )


def decoder(table: str) -> Callable[[pa.Table], pa.Table]:
    """Return a function that makes rows of a table, with `day` and `batch`, from encoded ones.

    Call this in the process with Spark's session.
    """
    kind = TABLES[table].rows
    convert = to_arrow(kind)
    decode = msgspec.msgpack.Decoder(prepared(kind)).decode

    def decoded(rows: pa.Table) -> pa.Table:
        encoded: Iterable[bytes] = rows.column("row").to_pylist()
        found = convert(map(decode, encoded))
        for column in ("day", "batch"):
            found = found.append_column(column, rows.column(column))
        return found

    return decoded
