"""The columns of a DataFrame that `df.write.format("rocketmq")` understands.

| column | type | |
|---|---|---|
| body (also value) | binary or string | needed; not null, not empty |
| topic | string | needed without the option `topic`, which takes precedence |
| keys (also key) | string or binary | rows of one key stay in order; messages are found by it |
| shardingKey | string | takes the place of `keys` in the choice of the queue |
| tags | string | what consumers filter by |
| properties | map<string, string> | empty and null values, and reserved names, are left out |
| queueId | int or bigint | the queue; null: chosen by the key |
| brokerName | string | the broker of `queueId`; needed where a topic has several |
| delayLevel | int or bigint | 1 to 18; null or 0: at once |

The other columns of the source (queueOffset, bornTimestamp, ...) are passed over, so that what was
read can be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from steelyard.errors import ConfigError
from steelyard.spark.options.writing import SinkOptions
from steelyard.spark.schema import SCHEMA
from steelyard.wording import nearest

_TEXT = (StringType, BinaryType)
_NUMBER = (IntegerType, LongType)

_COLUMNS: Mapping[str, tuple[tuple[type[DataType], ...], str, tuple[str, ...]]] = {
    "body": (_TEXT, "binary or string", ("value",)),
    "topic": ((StringType,), "string", ()),
    "keys": (_TEXT, "string or binary", ("key",)),
    "shardingKey": ((StringType,), "string", ()),
    "tags": ((StringType,), "string", ()),
    "properties": ((MapType,), "map<string, string>", ()),
    "queueId": (_NUMBER, "int or bigint", ()),
    "brokerName": ((StringType,), "string", ()),
    "delayLevel": (_NUMBER, "int or bigint", ()),
}
"""Types, their description, and other names."""

_WRITTEN = {
    name: column for column, (_, _, aliases) in _COLUMNS.items() for name in (column, *aliases)
}
_NAMES = {name.lower(): column for name, column in _WRITTEN.items()}
_PASSED_OVER = {name.lower() for name in SCHEMA.names} - _NAMES.keys()


def read_columns(schema: StructType, options: SinkOptions) -> dict[str, int]:
    """Return where each known column is. Raises ConfigError that names the wrong one."""
    found: dict[str, int] = {}
    for place, field in enumerate(schema.fields):
        name = field.name.lower()
        if name in _PASSED_OVER:
            continue
        if name not in _NAMES:
            _refuse_unknown(field.name)
        column = _NAMES[name]
        if column in found:
            both = f"{schema.names[found[column]]!r} and {field.name!r}"
            raise ConfigError(f"columns {both} mean the same; drop one of them")
        types, words, _ = _COLUMNS[column]
        if not isinstance(field.dataType, types) or not _is_text_map(field.dataType):
            raise ConfigError(
                f"column {field.name!r} is {field.dataType.simpleString()}; it must be {words}"
            )
        found[column] = place
    if "body" not in found:
        raise ConfigError("column 'body' is missing; call what is to be sent 'body' or 'value'")
    if "topic" not in found and not options.topic:
        raise ConfigError("option 'topic' is missing; give it, or a column 'topic'")
    if "brokerName" in found and "queueId" not in found:
        del found["brokerName"]
    if "delayLevel" in found and options.exactly_once:
        raise ConfigError(
            "column 'delayLevel' cannot be written with option 'exactlyOnce': transactions have no"
            " delayed messages"
        )
    if options.topic:
        found.pop("topic", None)
    return found


def _is_text_map(kind: DataType) -> bool:
    if not isinstance(kind, MapType):
        return True
    return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)


def _refuse_unknown(name: str) -> NoReturn:
    near = nearest(name, _WRITTEN)
    columns = ", ".join(_COLUMNS)
    hint = f"did you mean {near[0]!r}?" if near else f"the columns are {columns}."
    raise ConfigError(
        f"column {name!r} cannot be written; {hint} Drop it, or put it into 'body' or 'properties'"
    )
