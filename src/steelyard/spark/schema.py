"""The columns of `format("rocketmq")`; a module of its own, as planning needs no Arrow or numpy."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("brokerName", StringType()),
        StructField("queueId", IntegerType()),
        StructField("queueOffset", LongType()),
        StructField("bornTimestamp", TimestampType()),
        StructField("storeTimestamp", TimestampType()),
        StructField("keys", StringType()),
        StructField("tags", StringType()),
        StructField("body", BinaryType()),
        StructField("properties", MapType(StringType(), StringType())),
        StructField("flag", IntegerType()),
        StructField("reconsumeTimes", IntegerType()),
        StructField("msgId", StringType()),
    ]
)
"""The schema; `keys` and `tags` are null in messages without any."""


def chosen(names: Sequence[str]) -> StructType:
    """Return the schema of these columns, in their order."""
    return StructType([SCHEMA[name] for name in names])
