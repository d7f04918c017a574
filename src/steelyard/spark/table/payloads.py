"""What is in the bodies of messages: `raw`, `json` or `avro`, as columns, or the reason why not.

`payload.decoded(body)` is a column with a struct `value` and a text `reason`, of which one is null.

JSON is parsed by Spark (`from_json`), which would accept text after the first value. It is
therefore parsed as the only element of an array: text that follows breaks it, or adds an element.

Avro is decoded by fastavro in the Python workers: spark-avro has no release for Spark 4.3. A body
is one datum in Avro's binary encoding, without a header.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

from steelyard.errors import ConfigError, SteelyardError
from steelyard.spark.extras import imported
from steelyard.spark.table.avro_types import spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

Kind = Literal["raw", "json", "avro"]

CORRUPT = "_steelyard_corrupt"
REASON_MAX = 500
"""Characters of a reason that are kept."""


class JsonPayload:
    """Bodies that are JSON objects with the fields of a schema; others are left out."""

    def __init__(self, fields: StructType) -> None:
        self.fields = fields

    def decoded(self, body: Column) -> Column:
        """Return a struct of `value` and `reason`."""
        from pyspark.sql import functions as f

        value = _element(body, self.fields)
        fits = (
            f.is_valid_utf8(body.cast("string")) & value[CORRUPT].isNull() & (f.size(value.v) == 1)
        )
        found = f.when(fits, value.v[0])
        return f.struct(
            found.alias("value"),
            f.when(found.isNull(), self._reason(body)).alias("reason"),
        )

    def _reason(self, body: Column) -> Column:
        from pyspark.sql import functions as f
        from pyspark.sql.types import StringType, StructType

        text = _element(body, StringType())
        wrong = [
            f.when(
                _element(body, StructType([field]))[CORRUPT].isNotNull(),
                f.lit(f"{field.name} is not {field.dataType.simpleString()}"),
            )
            for field in self.fields
        ]
        is_json = text[CORRUPT].isNull() & (f.size(text.v) == 1)
        return (
            f.when(~f.is_valid_utf8(body.cast("string")), "not UTF-8")
            .when(~is_json, "not JSON")
            .when(~f.coalesce(text.v[0], f.lit("null")).startswith("{"), "not a JSON object")
            .otherwise(f.left(f.concat_ws("; ", *wrong), f.lit(REASON_MAX)))
        )


def _element(body: Column, kind: Any) -> Column:
    """Parse the body as the only element of an array `v`."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    whole = StructType([StructField("v", ArrayType(kind)), StructField(CORRUPT, StringType())])
    text = f.concat(f.lit('{"v":['), body.cast("string"), f.lit("]}"))
    return f.from_json(text, whole, {"columnNameOfCorruptRecord": CORRUPT})


class AvroPayload:
    """Bodies that are one datum of an Avro record each."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self.fields: StructType = spark_type(schema)

    def decoded(self, body: Column) -> Column:
        """Return a struct of `value` and `reason`."""
        from pyspark.sql.pandas.functions import arrow_udf
        from pyspark.sql.pandas.types import to_arrow_type
        from pyspark.sql.types import StringType, StructField, StructType

        kind = StructType([StructField("value", self.fields), StructField("reason", StringType())])
        decode = _avro_decoder(self._schema, to_arrow_type(self.fields, timezone="UTC"))
        make: Any = arrow_udf  # whose annotation leaves out structs
        column: Column = make(decode, kind)(body)
        return column


def _avro_decoder(schema: Any, kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    import pyarrow as pa

    def decode(bodies: pa.Array) -> pa.Array:
        import fastavro

        parsed = fastavro.parse_schema(schema)

        def decode_one(body: bytes) -> tuple[Any, str | None]:
            data = BytesIO(body)
            try:
                value = fastavro.schemaless_reader(data, parsed, None)
                rest = len(body) - data.tell()
                if rest:
                    raise ValueError(f"{rest} bytes follow the datum")
            except Exception as error:  # of fastavro, one for each way in which data can be wrong
                return None, _avro_reason(error)
            return value, None

        found = [decode_one(body) for body in bodies.to_pylist()]
        try:
            values = pa.array([value for value, _ in found], kind)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            # e.g. a date that only Avro can express
            found = [_fitting(value, reason, kind) for value, reason in found]
            values = pa.array([value for value, _ in found], kind)
        reasons = pa.array([reason for _, reason in found], pa.string())
        return pa.StructArray.from_arrays([values, reasons], ["value", "reason"])

    # Spark evaluates them, and does not know a module that is imported for types only.
    decode.__annotations__ = {"bodies": pa.Array, "return": pa.Array}
    return decode


def _fitting(value: Any, reason: str | None, kind: pa.DataType) -> tuple[Any, str | None]:
    import pyarrow as pa

    try:
        pa.array([value], kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        return None, _avro_reason(error)
    return value, reason


def _avro_reason(error: Exception) -> str:
    return f"not Avro of the schema: {str(error) or type(error).__name__}"[:REASON_MAX]


Payload = JsonPayload | AvroPayload


def payload_of(spark: SparkSession, kind: Kind, text: str) -> Payload | None:
    """Return the decoder of a schema's text; None for `raw`. Raises ConfigError for a wrong one."""
    match kind:
        case "raw":
            return None
        case "json":
            return JsonPayload(json_fields(text))
    fastavro = imported("fastavro", "avro", "Avro")
    try:
        schema = json.loads(text)
        fastavro.parse_schema(json.loads(text))
    except Exception as error:  # of fastavro, one for each way in which a schema can be wrong
        raise ConfigError(f"the schema is not Avro's: {error}") from None
    return AvroPayload(schema)


def json_fields(text: str) -> StructType:
    """Return the fields of a schema in DDL, `id bigint, name string`, or in Spark's JSON."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        if text.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(text))
        found = StructType.fromDDL(text)
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        words = str(error).strip().partition("\n")[0]
        raise ConfigError(f"the schema is neither Spark's DDL nor its JSON: {words}") from None
    if not isinstance(found, StructType) or not found.fields:
        raise ConfigError("the schema has no fields; give them as 'id bigint, name string'")
    return found


def inferred_json(spark: SparkSession, source: dict[str, str], count: int) -> str:
    """Return the schema of the first messages of a topic, as Spark infers it, in its JSON."""
    sample = spark.read.format("rocketmq").options(**source).option("columns", "body").load()
    bodies = sample.selectExpr("cast(body as string) as value").limit(count).collect()
    texts = spark.sparkContext.parallelize([row.value for row in bodies], 1)
    options = {"columnNameOfCorruptRecord": CORRUPT}
    found = spark.read.options(**options).json(texts).schema
    fields = [field for field in found.fields if field.name != CORRUPT]
    if not fields:
        raise SteelyardError(
            f"none of the first {len(bodies)} messages is a JSON object, so no schema can be"
            " inferred; give one with --schema-ddl or --schema-file"
        )
    return str(type(found)(fields).json())
