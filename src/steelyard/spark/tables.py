"""The ledger's tables from their declarations (`ledger.columns`): for Spark, Arrow and people."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from steelyard.decoding import prepared
from steelyard.ledger.columns import Column, ColumnKind, columns
from steelyard.spark.ownership import clock

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Row = TypeVar("Row", bound=msgspec.Struct)

SQL_TYPES = {
    ColumnKind.TEXT: "string",
    ColumnKind.TEXTS: "array<string>",
    ColumnKind.CLIENT: "string",
    ColumnKind.CLIENTS: "array<string>",
    ColumnKind.NUMBER: "int",
    ColumnKind.COUNT: "bigint",
    ColumnKind.COUNTS: "array<bigint>",
    ColumnKind.OFFSET: "bigint",
    ColumnKind.FACTOR: "double",
    ColumnKind.MOMENT: "timestamp",
    ColumnKind.MOMENT_MS: "bigint",
    ColumnKind.DURATION_MS: "bigint",
}
UNKNOWN = "–"


def ddl(table: type[msgspec.Struct]) -> str:
    """Return the schema of a table in Spark's DDL."""
    return ", ".join(f"{name} {SQL_TYPES[column.kind]}" for name, column in columns(table).items())


def to_arrow(table: type[msgspec.Struct]) -> Callable[[Iterable[msgspec.Struct]], pa.Table]:
    """Return a function that builds an Arrow table from rows.

    Call this in the process with Spark's session; the function works anywhere.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    declared = StructType.fromDDL(ddl(table))
    assert isinstance(declared, StructType)
    schema = to_arrow_schema(declared, timezone="UTC")
    moments = _moments(table)

    def convert(rows: Iterable[msgspec.Struct]) -> pa.Table:
        import pyarrow as pa

        found = list(rows)
        arrays = []
        for name, kind in zip(schema.names, schema.types, strict=True):
            values = [getattr(row, name) for row in found]
            # A bare number would be a timestamp in Spark's unit, microseconds.
            unit = pa.timestamp("ms", "UTC") if name in moments else kind
            arrays.append(pa.array(values, unit).cast(kind))
        return pa.Table.from_arrays(arrays, schema=schema)

    return convert


def arrow_schema(table: type[msgspec.Struct]) -> pa.Schema:
    """Return the schema of a table in Arrow's terms, for programs that need no Spark.

    Moments are numbers of milliseconds, as in the rows.
    """
    import pyarrow as pa

    sql = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "double": pa.float64()}
    types = {
        kind: pa.timestamp("ms", "UTC")
        if name == "timestamp"
        else pa.list_(sql[name[6:-1]])
        if name.startswith("array<")
        else sql[name]
        for kind, name in SQL_TYPES.items()
    }
    return pa.schema([(name, types[column.kind]) for name, column in columns(table).items()])


def collected(frame: DataFrame, table: type[Row]) -> list[Row]:
    """Collect the rows of a DataFrame with the columns of `table`."""
    moments = _moments(table)
    texts = [
        f"unix_millis({name}) as {name}" if name in moments else name for name in columns(table)
    ]
    return [
        msgspec.convert(row.asDict(), prepared(table)) for row in frame.selectExpr(*texts).collect()
    ]


def _moments(table: type[msgspec.Struct]) -> list[str]:
    """Columns that are milliseconds here and timestamps there."""
    return [name for name, column in columns(table).items() if column.kind is ColumnKind.MOMENT]


# -- for people ------------------------------------------------------------------------------------


def headed(table: type[msgspec.Struct]) -> dict[str, Column]:
    """Return the columns with a heading, which are shown to people."""
    return {name: column for name, column in columns(table).items() if column.heading}


def is_numeric(column: Column) -> bool:
    """Return whether its values are right-aligned."""
    return column.kind in (
        ColumnKind.NUMBER,
        ColumnKind.COUNT,
        ColumnKind.OFFSET,
        ColumnKind.FACTOR,
        ColumnKind.DURATION_MS,
    )


def shown(column: Column, value: Any) -> str:
    """Format a value of the column as text."""
    if value is None:
        return UNKNOWN
    match column.kind:
        case ColumnKind.MOMENT | ColumnKind.MOMENT_MS:
            return clock(value)
        case ColumnKind.DURATION_MS:
            return f"{value:,} ms" if value < 10_000 else f"{value / 1000:,.1f} s"
        case ColumnKind.FACTOR:
            return f"{value:,.1f}×"
        case ColumnKind.COUNT | ColumnKind.OFFSET:
            return f"{value:,}"
        case ColumnKind.TEXTS | ColumnKind.CLIENTS:
            return ", ".join(value)
        case ColumnKind.COUNTS:
            return ", ".join(f"{count:,}" for count in value)
    return str(value)
