"""The sink without Spark: its writer is given what Spark's workers give it, and writes to real brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)
from tests.api.conftest import Servers
from tests.spark.conftest import Peer, stores
from tests.waiting import until

from steelyard import Admin, Producer
from steelyard.errors import BrokerError, ConfigError, MessageError, RemotingError, RouteError
from steelyard.spark.options.reading import read_options
from steelyard.spark.options.table import SINK_OPTIONS, markdown
from steelyard.spark.options.writing import read_sink_options
from steelyard.spark.reading.planning import plan
from steelyard.spark.reading.pull import batches
from steelyard.spark.schema import SCHEMA
from steelyard.spark.writing.columns import read_columns
from steelyard.spark.writing.sink import batch_writer, stream_writer
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import ClusterInfo
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.flags import tag_code
from steelyard.wire.remoting.message import batch_entries

GUIDE = Path(__file__).parents[2] / "docs" / "SPARK_SINK.md"

TYPES: dict[str, tuple[DataType, pa.DataType]] = {
    "string": (StringType(), pa.string()),
    "binary": (BinaryType(), pa.binary()),
    "int": (IntegerType(), pa.int32()),
    "map<string,string>": (
        MapType(StringType(), StringType()),
        pa.map_(pa.string(), pa.string()),
    ),
    "map<string,int>": (MapType(StringType(), IntegerType()), pa.map_(pa.string(), pa.int32())),
}
"""Types of columns in Spark's schemas, and what Spark gives to writers for them."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("sink"))
    yield servers
    servers.stop()


def struct(types: dict[str, str]) -> StructType:
    return StructType([StructField(name, TYPES[kind][0]) for name, kind in types.items()])


def write(address: str, types: dict[str, str], *rows: dict[str, Any], **options: str) -> None:
    """Write the rows as one batch, in one task."""
    given = {"nameservers": address, "retryTimeoutMs": "0"} | options
    writer = batch_writer(given, struct(types), overwrite=False)
    columns = [
        pa.array([row.get(name) for row in rows], TYPES[kind][1]) for name, kind in types.items()
    ]
    writer.write(iter([pa.RecordBatch.from_arrays(columns, names=[*types])]))


def read(address: str, topic: str) -> list[dict[str, Any]]:
    """All messages of a topic, by broker, queue and offset."""
    options = read_options({"nameservers": address, "topic": topic})
    return [row for part in plan(options) for found in batches(part, options) for row in found.to_pylist()]  # fmt: skip


def topic_of(cluster: Servers, name: str, queues: int = 2) -> str:
    with Admin(cluster.nameservers) as admin:
        admin.create_topic(name, queues=queues)
    return name


def test_every_column_arrives(cluster: Servers) -> None:
    topic = topic_of(cluster, "EveryColumn")
    types = {
        "topic": "string",
        "value": "string",
        "key": "string",
        "shardingKey": "string",
        "tags": "string",
        "properties": "map<string,string>",
        "queueId": "int",
        "brokerName": "string",
    }
    properties = {"a": "1", "KEYS": "not this", "empty": "", "é": "ü"}
    write(
        cluster.nameservers,
        types,
        {
            "topic": topic,
            "value": "first",
            "key": "k",
            "shardingKey": "s",
            "tags": "t",
            "properties": list(properties.items()),
            "queueId": 1,
            "brokerName": "broker-b",
        },
        {"topic": topic, "value": "second", "queueId": 1, "brokerName": "broker-b"},
    )
    first, second = read(cluster.nameservers, topic)
    assert (first["brokerName"], first["queueId"]) == ("broker-b", 1)
    assert (first["body"], first["keys"], first["tags"]) == (b"first", "k", "t")
    kept = {"a": "1", "é": "ü", "KEYS": "k", "TAGS": "t", "__SHARDINGKEY": "s"}
    assert kept.items() <= dict(first["properties"]).items()
    assert "empty" not in dict(first["properties"])
    assert (second["body"], second["keys"], second["tags"]) == (b"second", None, None)
    assert len({first["msgId"], second["msgId"]}) == 2
    assert all(len(row["msgId"]) == 32 for row in (first, second))


def test_rows_of_a_key_are_in_order_in_the_queue_that_java_clients_choose(
    cluster: Servers,
) -> None:
    topic = topic_of(cluster, "Ordered", 3)
    keys = ["", "a", "order-17", "é€😀", "x" * 50, None]
    rows = [{"body": b"%d" % n, "keys": keys[n % len(keys)]} for n in range(6_000)]
    types = {"body": "binary", "keys": "string"}
    write(cluster.nameservers, types, *rows, topic=topic, sendBatchSize="70")
    found = read(cluster.nameservers, topic)
    assert sorted(int(row["body"]) for row in found) == [*range(6_000)]
    for key in filter(None, keys):
        of_key = [row for row in found if row["keys"] == key]
        place = abs(tag_code(key)) % 6
        queue = [("broker-a", 0), ("broker-a", 1), ("broker-a", 2), ("broker-b", 0), ("broker-b", 1), ("broker-b", 2)][place]  # fmt: skip
        assert {(row["brokerName"], row["queueId"]) for row in of_key} == {queue}
        numbers = [int(row["body"]) for row in of_key]
        assert numbers == sorted(numbers)


def test_rows_without_a_key_use_all_queues(cluster: Servers) -> None:
    topic = topic_of(cluster, "Spread", 1)
    write(cluster.nameservers, {"body": "binary"}, *[{"body": b"x"}] * 4_000, topic=topic)
    found = read(cluster.nameservers, topic)
    assert [row["brokerName"] for row in found] == ["broker-a"] * 2_000 + ["broker-b"] * 2_000


def test_delayed_rows_go_through_the_schedule(cluster: Servers) -> None:
    topic = topic_of(cluster, "Delayed")
    types = {"body": "string", "delayLevel": "int"}
    write(cluster.nameservers, types, {"body": "now"}, {"body": "late", "delayLevel": 18}, topic=topic)  # fmt: skip
    assert [row["body"] for row in read(cluster.nameservers, topic)] == [b"now"]
    late = [row for row in read(cluster.nameservers, "SCHEDULE_TOPIC_XXXX") if row["body"] == b"late"]  # fmt: skip
    assert [(row["queueId"], dict(row["properties"])["REAL_TOPIC"]) for row in late] == [(17, topic)]  # fmt: skip


def test_large_rows_have_requests_of_their_own(cluster: Servers) -> None:
    topic = topic_of(cluster, "Large")
    bodies = [b"%d" % n * (600 << 10) for n in range(5)]
    write(cluster.nameservers, {"body": "binary"}, *({"body": body} for body in bodies), topic=topic)  # fmt: skip
    assert sorted(row["body"] for row in read(cluster.nameservers, topic)) == bodies


def test_what_was_read_can_be_written(cluster: Servers) -> None:
    source, copy = topic_of(cluster, "Original"), topic_of(cluster, "Copied")
    write(cluster.nameservers, {"body": "string", "keys": "string", "tags": "string"}, *({"body": f"{n}", "keys": f"{n}", "tags": "t"} for n in range(9)), topic=source)  # fmt: skip
    options = read_options({"nameservers": cluster.nameservers, "topic": source})
    given = {"nameservers": cluster.nameservers, "topic": copy}
    writer = batch_writer(given, SCHEMA, overwrite=False)
    for part in plan(options):
        writer.write(batches(part, options))
    names = ("brokerName", "queueId", "queueOffset", "body", "keys", "tags")
    first, second = (
        [[row[name] for name in names] for row in read(cluster.nameservers, topic)]
        for topic in (source, copy)
    )
    assert first == second


def test_what_was_delivered_late_can_be_written(cluster: Servers) -> None:
    """Its properties of the timer are left out: the copy is readable at once."""
    topic, copy = topic_of(cluster, "Late"), topic_of(cluster, "LateCopy")
    with Producer("p", cluster.nameservers) as producer:
        producer.send(topic, b"a", delay_ms=100, properties={"n": "1"})
    until(lambda: len(read(cluster.nameservers, topic)) == 1)
    (row,) = read(cluster.nameservers, topic)
    assert "TIMER_OUT_MS" in dict(row["properties"])
    types = {"body": "binary", "properties": "map<string,string>"}
    write(cluster.nameservers, types, {name: row[name] for name in types}, topic=copy)
    (copied,) = read(cluster.nameservers, copy)
    names = [name for name, _ in copied["properties"]]
    assert "n" in names
    assert not [name for name in names if name.startswith("TIMER_")]


def test_a_broker_that_comes_back_gets_what_is_left(cluster: Servers) -> None:
    topic = topic_of(cluster, "Returns", 1)
    types = {"body": "string", "queueId": "int", "brokerName": "string"}
    given = {"nameservers": cluster.nameservers, "topic": topic, "retryTimeoutMs": "60000"}
    writer = batch_writer(given, struct(types), overwrite=False)
    arrays = [
        pa.array([f"{n}" for n in range(10)]),
        pa.array([0] * 10, pa.int32()),
        pa.array(["broker-b"] * 10),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=[*types])

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch
        port = cluster.stop_broker("broker-b")
        start = Thread(target=cluster.start_broker, args=("broker-b", port))
        start.start()
        yield batch
        start.join()

    writer.write(rows())
    bodies = [row["body"] for row in read(cluster.nameservers, topic)]
    assert bodies in ([*map(b"%d".__mod__, range(10))] * 2, [*map(b"%d".__mod__, range(10))] * 3)


# -- answers of brokers ----------------------------------------------------------------------------


def answers(peer: Peer, *codes: int) -> list[Command]:
    """Let the peer answer batches with these codes, then SEND_OK; what it was sent."""
    peer.queues["T"] = [[]]
    waiting = list(codes)
    sent: list[Command] = []

    def answer(request: Command) -> Command:
        sent.append(request)
        code = waiting.pop(0) if waiting else 0
        return Command(code, ext={"msgId": "m", "queueId": "0", "queueOffset": "0"}, remark="so")

    peer.replies[RequestCode.SEND_BATCH_MESSAGE] = answer
    return sent


def test_a_busy_broker_gets_the_same_again(peer: Peer) -> None:
    sent = answers(peer, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)
    rows = ({"body": "a"}, {"body": "b"})
    write(peer.address, {"body": "string"}, *rows, topic="T", retryTimeoutMs="60000")
    assert len(sent) == 3
    assert len({request.body for request in sent}) == 1
    assert [body for _, body, _ in batch_entries(sent[0].body)] == [b"a", b"b"]


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    ],
)
def test_stored_is_not_acknowledged(peer: Peer, code: ResponseCode) -> None:
    sent = answers(peer, code, code)
    write(peer.address, {"body": "string"}, {"body": "a"}, topic="T")
    assert len(sent) == 3
    sent = answers(peer, code, code, code)
    with pytest.raises(BrokerError) as raised:
        write(peer.address, {"body": "string"}, {"body": "a"}, topic="T")
    assert (raised.value.code, len(sent)) == (code, 3)


def test_a_refusal_is_final(peer: Peer) -> None:
    sent = answers(peer, ResponseCode.NO_PERMISSION)
    with pytest.raises(BrokerError, match="so"):
        write(peer.address, {"body": "string"}, {"body": "a"}, topic="T", retryTimeoutMs="60000")
    assert len(sent) == 1


# -- wrong input -----------------------------------------------------------------------------------


def wrong_schema(types: dict[str, str], **options: str) -> Callable[[], object]:
    given = {"nameservers": "h:1"} | options
    return lambda: read_columns(struct(types), read_sink_options(given, "batch"))


@pytest.mark.parametrize(
    ("types", "options", "words"),
    [
        ({"keys": "string"}, {"topic": "T"}, "column 'body' is missing"),
        ({"body": "string"}, {}, "option 'topic' is missing; give it, or a column 'topic'"),
        ({"body": "int"}, {"topic": "T"}, "column 'body' is int; it must be binary or string"),
        ({"body": "string", "value": "string"}, {"topic": "T"}, "'body' and 'value' mean the same"),
        ({"body": "string", "tag": "string"}, {"topic": "T"}, "'tag' cannot be written; did you mean 'tags'"),
        ({"body": "string", "queueld": "int"}, {"topic": "T"}, "'queueld' cannot be written; did you mean 'queueId'? Drop it"),
        ({"body": "string", "price": "int"}, {"topic": "T"}, "'price' cannot be written; the columns are body, topic, keys, shardingKey, tags, properties, queueId, brokerName, delayLevel. Drop it"),
        ({"body": "string", "properties": "map<string,int>"}, {"topic": "T"}, "must be map<string, string>"),
        ({"body": "string"}, {"topic": "a b"}, "option 'topic' cannot be written to"),
        ({"body": "string"}, {"topic": "T", "sinkid": "x"}, "'sinkId' is given, but 'exactlyOnce' is not true"),
        ({"body": "string"}, {"topic": "T", "exactlyOnce": "true"}, "needs the option 'sinkId'"),
        ({"body": "string"}, {"topic": "T", "saslUsername": "a"}, "'saslUsername' is given, but 'exactlyOnce' is not true"),
        ({"body": "string"}, {"topic": "T", "exactlyOnce": "true", "sinkId": "x", "saslUsername": "a"}, "needs sasl_username and sasl_password"),
        ({"body": "string"}, {"topic": "T", "checkpointLocation": "x"}, "is for df.writeStream only"),
        ({"body": "string"}, {"topik": "T"}, "unknown option 'topik'; did you mean 'topic'"),
        ({"body": "string", "delayLevel": "int"}, {"topic": "T", "exactlyOnce": "true", "sinkId": "x"}, "no delayed messages"),
    ],
)  # fmt: skip
def test_wrong_options_and_columns(
    types: dict[str, str], options: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        wrong_schema(types, **options)()
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("types", "row", "words"),
    [
        ({"body": "string"}, {}, "column 'body' has a null"),
        ({"body": "string"}, {"body": ""}, "column 'body' has an empty value"),
        ({"body": "string", "tags": "string"}, {"body": "a", "tags": "a\x02b"}, "'tags' has a value with a separator"),
        ({"body": "string", "keys": "binary"}, {"body": "a", "keys": b"\xff"}, "'keys' has a value that is not UTF-8"),
        ({"body": "string", "properties": "map<string,string>"}, {"body": "a", "properties": [("a\x01", "b")]}, "'properties' has a value with"),
        ({"body": "string", "properties": "map<string,string>"}, {"body": "a", "properties": [("a", "b" * 33_000)]}, "at most 32767"),
        ({"body": "string", "delayLevel": "int"}, {"body": "a", "delayLevel": 19}, "'delayLevel' has 19; it must be 0 to 18"),
        ({"body": "string", "queueId": "int"}, {"body": "a", "queueId": -1}, "'queueId' has -1"),
        ({"body": "string", "queueId": "int"}, {"body": "a", "queueId": 7}, "queue 7 of broker 'broker-a', which topic 'T' does not have"),
    ],
)  # fmt: skip
def test_wrong_rows(peer: Peer, types: dict[str, str], row: dict[str, Any], words: str) -> None:
    sent = answers(peer)
    with pytest.raises(MessageError) as raised:
        write(peer.address, types, row, topic="T")
    assert words in str(raised.value)
    assert not sent


@pytest.mark.parametrize("name", ["topic", "keys", "shardingKey", "tags", "properties"])
def test_bytes_that_spark_cast_to_a_string_are_checked(peer: Peer, name: str) -> None:
    """`cast(x'ff' as string)`, which Spark passes on as it is."""
    sent = answers(peer)
    text: pa.Array = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    if name == "properties":
        text = pa.MapArray.from_arrays([0, 1], pa.array(["a"]), text)
    types = {"body": "string", name: "map<string,string>" if name == "properties" else "string"}
    given = {"nameservers": peer.address} | ({} if name == "topic" else {"topic": "T"})
    writer = batch_writer(given, struct(types), overwrite=False)
    with pytest.raises(MessageError, match=f"column '{name}' has a value that is not UTF-8"):
        writer.write(iter([pa.RecordBatch.from_arrays([pa.array(["a"]), text], names=[*types])]))
    assert not sent


def test_options_that_spark_itself_gives_to_a_stream() -> None:
    given = {"nameservers": "h:1", "topic": "T", "checkpointlocation": "c", "queryname": "orders"}
    stream_writer(given, struct({"body": "string"}))


def test_what_is_checked_before_a_batch(peer: Peer) -> None:
    with pytest.raises(RouteError, match="knows no topic 'T'"):
        write(peer.address, {"body": "string"}, topic="T")
    with pytest.raises(RemotingError, match=r"127\.0\.0\.1:1"):
        write("127.0.0.1:1", {"body": "string"}, topic="T")
    with pytest.raises(ConfigError, match="cannot be overwritten"):
        batch_writer({"nameservers": "h:1", "topic": "T"}, struct({"body": "string"}), True)
    with pytest.raises(ConfigError, match=r"is for df\.write only"):
        stream_writer({"nameservers": "h:1", "sinkId": "T"}, struct({"body": "string"}))
    with pytest.raises(RouteError, match="knows no topic 'T'"):
        stream_writer({"nameservers": peer.address, "topic": "T"}, struct({"body": "string"}))


def test_a_nameserver_that_has_just_started_is_asked_again(peer: Peer) -> None:
    """It knows no topic before brokers have registered; a stream's driver leaves it to the tasks."""
    bodies = stores(peer, "T")

    def knows_nothing(request: Command) -> Command:
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return Command(0, body=fastjson.write(ClusterInfo({}, {})))
        return Command(ResponseCode.TOPIC_NOT_EXIST, remark="no topic")

    for code in (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO):
        peer.replies[code] = knows_nothing
    given = {"nameservers": peer.address, "topic": "T"}
    with pytest.raises(RemotingError, match=r"no broker has registered with 127\.0\.0\.1:\d+ yet"):
        batch_writer(given, struct({"body": "string"}), False)
    writer = stream_writer(given, struct({"body": "string"}))
    stream_writer(given | {"nameservers": "127.0.0.1:1"}, struct({"body": "string"}))

    def registered() -> None:
        peer.replies.pop(RequestCode.GET_BROKER_CLUSTER_INFO)
        peer.replies.pop(RequestCode.GET_ROUTEINFO_BY_TOPIC)

    threading.Timer(0.3, registered).start()
    writer.write(iter([pa.RecordBatch.from_pylist([{"body": "a"}])]))
    assert bodies == [b"a"]


def test_the_documentation_has_the_table() -> None:
    """Generated: paste the output of `python -m steelyard.spark.options.table sink`."""
    assert markdown(SINK_OPTIONS) in GUIDE.read_text()
