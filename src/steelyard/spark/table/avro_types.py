"""Spark's types for Avro's schemas. Source: Avro specification 1.12, Spark's SchemaConverters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steelyard.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Names = dict[str, Any]
"""Named types by their full names."""

PRIMITIVE = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}
LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}
"""Other logical types, but for decimal, are refused."""


def spark_type(schema: Any) -> StructType:
    """Return the fields of a record. Raises ConfigError for what has no type in Spark."""
    from pyspark.sql.types import StructType

    found = _converted(schema, {}, "")
    if not isinstance(found, StructType):
        raise ConfigError("the Avro schema must be that of a record")
    return found


def _converted(schema: Any, names: Names, namespace: str) -> DataType:
    from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType

    if isinstance(schema, list):
        kinds = [one for one in schema if one != "null"]
        if len(kinds) != 1:
            raise ConfigError("a union in the Avro schema must be of null and one other type")
        return _converted(kinds[0], names, namespace)
    if isinstance(schema, str):
        if schema in PRIMITIVE:
            return DataType.fromDDL(PRIMITIVE[schema])
        return _named(schema, names, namespace)
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _converted(kind, names, namespace)
    logical = schema.get("logicalType")
    if logical == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if logical is not None:
        if logical not in LOGICAL:
            raise ConfigError(f"logical type {logical!r} of Avro is not supported")
        return DataType.fromDDL(LOGICAL[logical])
    match kind:
        case "record":
            return _record(schema, names, namespace)
        case "array":
            return ArrayType(_converted(schema["items"], names, namespace))
        case "map":
            return MapType(StringType(), _converted(schema["values"], names, namespace))
        case "enum" | "fixed":
            names[_full_name(schema, namespace)] = schema
    return _converted(kind, names, namespace)


def _record(schema: Any, names: Names, namespace: str) -> StructType:
    from pyspark.sql.types import StructField, StructType

    name = _full_name(schema, namespace)
    names[name] = None  # until it is complete
    within = name.rpartition(".")[0]
    fields = [
        StructField(one["name"], _converted(one["type"], names, within)) for one in schema["fields"]
    ]
    names[name] = schema
    return StructType(fields)


def _named(name: str, names: Names, namespace: str) -> DataType:
    full = name if "." in name or not namespace else f"{namespace}.{name}"
    known = names.get(full, names.get(name))
    if known is None:
        is_open = full in names
        words = "refers to itself" if is_open else "is not defined"
        raise ConfigError(f"type {name!r} of the Avro schema {words}")
    return _converted(known, names, namespace)


def _full_name(schema: Any, namespace: str) -> str:
    name: str = schema["name"]
    if "." in name:
        return name
    within = schema.get("namespace", namespace)
    return f"{within}.{name}" if within else name
