"""What bodies become: the fields of a schema, or the reason why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from steelyard.errors import ConfigError
from steelyard.spark.table.avro_types import spark_type
from steelyard.spark.table.payloads import AvroPayload, JsonPayload, Payload, json_fields

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
]  # on a busy machine; an interrupted call is the end of the session


def decoded(spark: SparkSession, payload: Payload, *bodies: bytes) -> list[Any]:
    """The values, or the reasons."""
    frame = spark.createDataFrame([(bytearray(body),) for body in bodies], "body binary")
    rows = frame.select(payload.decoded(frame.body).alias("d")).select("d.*").collect()
    for row in rows:
        assert (row.value is None) is (row.reason is not None)
    return [row.reason or tuple(row.value) for row in rows]


JSON = [
    (b'{"id": 1, "name": "a"}', (1, "a")),
    (b'{"id": 2, "name": "b", "more": [1]}', (2, "b")),
    (b' {"id": 3}\n', (3, None)),
    (b'{"name": {"a": [1]}}', (None, '{"a":[1]}')),
    (b'{"id": "x", "name": "c"}', "id is not bigint"),
    (b'{"id": 1.5}', "id is not bigint"),
    (b'{"id": 99999999999999999999}', "id is not bigint"),
    (b'{"id": 4} {"id": 5}', "not JSON"),
    (b'{"id": 4},{"id": 5}', "not JSON"),
    (b'{"id": 4} rubbish', "not JSON"),
    (b'{"id": ', "not JSON"),
    (b"", "not JSON"),
    (b"[1]", "not a JSON object"),
    (b"12", "not a JSON object"),
    (b"null", "not a JSON object"),
    (b'{"name": "\xff"}', "not UTF-8"),
]


@pytest.mark.spark_long
def test_json(spark: SparkSession) -> None:
    payload = JsonPayload(json_fields("id bigint, name string"))
    assert decoded(spark, payload, *(body for body, _ in JSON)) == [found for _, found in JSON]


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


@pytest.mark.spark_long
def test_avro(spark: SparkSession) -> None:
    pytest.importorskip("fastavro", reason="pip install 'steelyard[avro]'")
    # by the specification: zigzag numbers, the branch of the union, a length
    good = b"\x0e" + b"\x02\x06one" + b"\x80\x89\x0f"
    bodies = (good, b"\x0d\x00\x02", good + b"x", b"\x0e", b"", b"\x0e\x04")
    first, second, *wrong = decoded(spark, AvroPayload(AVRO), *bodies)
    assert first[:2] == (7, "one")
    assert first[2].timestamp() == 123.456
    assert second[:2] == (-7, None)
    assert wrong[0] == "not Avro of the schema: 1 bytes follow the datum"
    assert all(reason.startswith("not Avro of the schema: ") for reason in wrong)


TYPES = [
    ({"type": "array", "items": "string"}, "array<string>"),
    ({"type": "map", "values": ["null", "long"]}, "map<string,bigint>"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
    ({"type": "fixed", "name": "F", "size": 2}, "binary"),
    ({"type": "int", "logicalType": "date"}, "date"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)"),
    ({"type": "record", "name": "R", "fields": []}, "struct<>"),
]


def record(kind: object) -> dict[str, object]:
    return {"type": "record", "name": "n.T", "fields": [{"name": "f", "type": kind}]}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("kind", "name"), TYPES)
def test_types_of_avro(kind: object, name: str) -> None:
    pytest.importorskip("pyspark")
    assert spark_type(record(kind))["f"].dataType.simpleString() == name


@pytest.mark.usefixtures("spark")
def test_a_named_type_of_avro_is_known_from_then_on() -> None:
    point = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
    two = record(point)
    assert isinstance(two["fields"], list)
    two["fields"].append({"name": "g", "type": "P"})
    assert spark_type(two)["g"].dataType.simpleString() == "struct<x:int>"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("string", "must be that of a record"),
        (record(["int", "string"]), "must be of null and one other type"),
        (record("Unknown"), "type 'Unknown' of the Avro schema is not defined"),
        (record("T"), "type 'T' of the Avro schema refers to itself"),
        (record({"type": "int", "logicalType": "time-millis"}), "'time-millis' of Avro is not"),
    ],
)
def test_schemas_of_avro_without_a_type_in_spark(schema: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        spark_type(schema)
