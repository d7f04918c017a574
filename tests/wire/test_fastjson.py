from __future__ import annotations

import re
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from steelyard.errors import ProtocolError
from steelyard.types import MessageQueue
from steelyard.wire.remoting import bodies, fastjson
from steelyard.wire.remoting.bodies import Body

QUEUE_3 = MessageQueue("TopicA", "broker-a", 3)
QUEUE_4 = MessageQueue("TopicA", "broker-a", 4)
SUBSCRIPTION = bodies.SubscriptionData(
    "TopicA", "TagA||TagB", ("TagA", "TagB"), (2598919, 2598920), 1700000000000
)
KINDS = sorted(Body.__subclasses__(), key=lambda kind: kind.__name__)


# -- golden: bodies that we write as Java does -----------------------------------------------------

CANONICAL: list[tuple[str, Body]] = [
    ("SubscriptionData *", bodies.SubscriptionData("%RETRY%cg", sub_version=1)),
    ("DataVersion", bodies.DataVersion(timestamp=1, counter=0)),
    ("KVTable", bodies.KVTable({"a": "b"})),
    ("GroupList", bodies.GroupList(("cg",))),
    ("TopicList", bodies.TopicList(("TopicA",))),
    ("GetConsumerListByGroupResponseBody", bodies.ConsumerListBody(("c1", "c2"))),
    ("LockBatchResponseBody", bodies.LockBatchResponseBody((QUEUE_3,))),
    (
        "ProducerConnection",
        bodies.ProducerConnection((bodies.Connection("cid", "127.0.0.1:5000", "PYTHON", 479),)),
    ),
    (
        "ConsumerConnection",
        bodies.ConsumerConnection(
            (bodies.Connection("cid", "127.0.0.1:5000", "PYTHON", 479),),
            {"TopicA": SUBSCRIPTION},
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_LAST_OFFSET",
        ),
    ),
    ("ResetOffsetBody", bodies.ResetOffsetBody({QUEUE_3: 100})),
    ("BrokerStatsData", bodies.BrokerStatsData(*(bodies.BrokerStatsItem(),) * 3)),
    (
        "ConsumeMessageDirectlyResult",
        bodies.ConsumeMessageDirectlyResult(order=False, consume_result="CR_SUCCESS"),
    ),
]


@pytest.mark.parametrize(("name", "body"), CANONICAL, ids=[row[0] for row in CANONICAL])
def test_golden_body_both_ways(golden: dict[str, str], name: str, body: Body) -> None:
    data = golden[name].encode()
    assert fastjson.read(type(body), data) == body
    assert fastjson.write(body) == data


# -- golden: bodies of which Java writes more than we say -----------------------------------------

ROUTE = bodies.TopicRouteData(
    queue_datas=(bodies.QueueData("broker-a", 8, 8, 6),),
    broker_datas=(
        bodies.BrokerData("C", "broker-a", {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}),
    ),
)
OFFSETS = bodies.OffsetWrapper(10, 7, 1700000000000, 8)
LOCKS = bodies.LockBatchBody("cg", "cid", (QUEUE_3,))
READ: list[tuple[str, Body]] = [
    (
        "HeartbeatData",
        bodies.HeartbeatData(
            "10.0.0.1@123#456",
            (bodies.ProducerData("pg"),),
            (bodies.ConsumerData("cg", subscription_data_set=(SUBSCRIPTION,)),),
        ),
    ),
    ("TopicRouteData default encode (old clients)", ROUTE),
    ("TopicRouteData standard json (>=4.9.4)", ROUTE),
    ("ClusterInfo", bodies.ClusterInfo({"broker-a": ROUTE.broker_datas[0]}, {"C": ("broker-a",)})),
    (
        "RegisterBrokerBody",
        bodies.RegisterBrokerBody(
            bodies.TopicConfigTable(
                {"TopicA": bodies.TopicConfig("TopicA", 8, 8)}, bodies.DataVersion(1, 0)
            )
        ),
    ),
    ("ConsumeStats", bodies.ConsumeStats({QUEUE_3: OFFSETS, QUEUE_4: OFFSETS}, 1.5)),
    ("TopicStatsTable", bodies.TopicStatsTable({QUEUE_3: bodies.TopicOffset(0, 5, 9)})),
    ("LockBatchRequestBody", LOCKS),
    ("UnlockBatchRequestBody", LOCKS),
    ("SubscriptionGroupConfig", bodies.SubscriptionGroupConfig("cg")),
    (
        "SubscriptionGroupWrapper",
        bodies.SubscriptionGroupTable(
            {"cg": bodies.SubscriptionGroupConfig("cg")}, bodies.DataVersion(1, 0)
        ),
    ),
    (
        "QueryConsumeTimeSpanBody",
        bodies.ConsumeTimeSpans((bodies.QueueTimeSpan(QUEUE_3, 0, 0, 0),)),
    ),
    ("GetConsumerStatusBody", bodies.ConsumerStatusBody({QUEUE_3: 100}, {"cid": {QUEUE_3: 100}})),
    (
        "ConsumerRunningInfo",
        bodies.ConsumerRunningInfo(
            {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
            (SUBSCRIPTION,),
            {QUEUE_3: bodies.ProcessQueueInfo(commit_offset=3, locked=True)},
            {"TopicA": bodies.ConsumeStatusInfo()},
            {},
            "js",
        ),
    ),
]


@pytest.mark.parametrize(("name", "body"), READ, ids=[row[0] for row in READ])
def test_golden_body_read(golden: dict[str, str], name: str, body: Body) -> None:
    assert fastjson.read(type(body), golden[name].encode()) == body


@pytest.mark.parametrize(("name", "body"), READ, ids=[row[0] for row in READ])
def test_what_we_write_is_part_of_what_java_writes(
    golden: dict[str, str], name: str, body: Body
) -> None:
    """Same names, same values; Java's newer fields are missing, and nothing is there that Java does not know."""
    java = fastjson.loads(golden[name].encode())
    ours = fastjson.loads(fastjson.write(body, int_keys_quoted="standard" in name))
    assert_part(ours, java)


def assert_part(ours: object, java: object) -> None:
    if isinstance(ours, dict):
        assert isinstance(java, dict)
        for key in ours:
            assert_part(ours[key], java[key])
    elif isinstance(ours, list):
        assert isinstance(java, list)
        assert len(ours) == len(java)
        for our_item, java_item in zip(ours, java, strict=True):
            assert_part(our_item, java_item)
    else:
        assert ours == java


# -- captures --------------------------------------------------------------------------------------

REQUEST_BODIES: dict[int, type[Body]] = {
    34: bodies.HeartbeatData,
    41: bodies.LockBatchBody,
    42: bodies.LockBatchBody,
    103: bodies.RegisterBrokerBody,
    200: bodies.SubscriptionGroupConfig,
    220: bodies.ResetOffsetBody,
}
RESPONSE_BODIES: dict[int, type[Body]] = {
    28: bodies.KVTable,
    38: bodies.ConsumerListBody,
    41: bodies.LockBatchResponseBody,
    105: bodies.TopicRouteData,
    106: bodies.ClusterInfo,
    202: bodies.TopicStatsTable,
    203: bodies.ConsumerConnection,
    204: bodies.ProducerConnection,
    206: bodies.TopicList,
    208: bodies.ConsumeStats,
    222: bodies.ResetOffsetBody,
    300: bodies.GroupList,
    315: bodies.BrokerStatsData,
}


def test_captured_bodies_are_read_and_written(captures: list[Any]) -> None:
    met: set[tuple[str, int]] = set()
    for frame in captures:
        if not frame.body.startswith("{"):
            continue
        assert isinstance(fastjson.loads(frame.body_bytes), dict)
        direction = "response" if frame.kind == "RESP" else "request"
        kinds = RESPONSE_BODIES if direction == "response" else REQUEST_BODIES
        kind = kinds.get(frame.request)
        if kind is not None:
            body = fastjson.read(kind, frame.body_bytes)
            assert fastjson.read(kind, fastjson.write(body)) == body
            met.add((direction, frame.request))
    assert met == {("request", code) for code in REQUEST_BODIES} | {
        ("response", code) for code in RESPONSE_BODIES
    }


# -- laws ------------------------------------------------------------------------------------------


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type as the bodies use them."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind, include_extras=True)
        return st.builds(kind, **{name: values_of(hints[name]) for name in kind.__struct_fields__})
    if kind is MessageQueue:
        return st.builds(MessageQueue, st.text(max_size=5), st.text(max_size=5), st.integers(0, 9))
    if origin is Annotated:
        (meta,) = kind.__metadata__
        if meta.extra is not None:
            return st.sampled_from(meta.extra["names"])
        return st.integers(meta.ge, meta.le)
    if kind is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=3)
    if arguments:
        return st.one_of([values_of(argument) for argument in arguments])
    return st.from_type(kind)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), quoted=st.booleans())
@settings(max_examples=examples(15))
def test_round_trip(kind: type[Body], data: st.DataObject, quoted: bool) -> None:
    body = data.draw(values_of(kind))
    text = fastjson.write(body, int_keys_quoted=quoted)
    assert fastjson.read(kind, text) == body
    assert b": " not in re.sub(rb'"(?:[^"\\]|\\.)*"', b"", text)


@pytest.mark.parametrize(
    "body", [row[1] for row in CANONICAL + READ], ids=lambda body: type(body).__name__
)
def test_cut_at_every_length(body: Body) -> None:
    text = fastjson.write(body, int_keys_quoted=False)
    for size in range(len(text)):
        with pytest.raises(ProtocolError):
            fastjson.read(type(body), text[:size])


# -- typed reading ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ('{"timestamp":"1","counter":2,"stateVersion":null}', bodies.DataVersion(1, 2)),
        ('{"clientID":"c","producerDataSet":null,"consumerDataSet":[{"groupName":"g","subscriptionDataSet":null}]}',
         bodies.HeartbeatData("c", (), (bodies.ConsumerData("g"),))),
        ('{"brokers":1,"cluster":"c","brokerName":"b","brokerAddrs":{0:"a","1":"b"}}',
         bodies.BrokerData("c", "b", {0: "a", 1: "b"})),
        ('{"connectionSet":[],"consumeType":"","messageModel":"","consumeFromWhere":"","subscriptionTable":{"a":{"topic":"t"},"b":{"$ref":"$.subscriptionTable.a"}}}',
         bodies.ConsumerConnection((), {"a": bodies.SubscriptionData("t"), "b": bodies.SubscriptionData("t")})),
    ],
)  # fmt: skip
def test_read_is_lenient_where_peers_are_loose(text: str, body: Body) -> None:
    assert fastjson.read(type(body), text.encode()) == body


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (bodies.DataVersion, '{"counter":1}', "timestamp"),
        (bodies.DataVersion, "[]", "DataVersion"),
        (bodies.DataVersion, '{"counter":1,"timestamp":"soon"}', "timestamp"),
        (bodies.LockBatchBody, '{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"t"}]}', "mqSet: .* without topic or broker name"),
        (bodies.LockBatchBody, '{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"t","brokerName":"b","queueId":"x"}]}', "mqSet: expected a number, not 'x'"),
        (bodies.TopicStatsTable, '{"offsetTable":{"TopicA":{"minOffset":0,"maxOffset":1,"lastUpdateTimestamp":2}}}', "offsetTable"),
        (bodies.KVTable, "", "JSON"),
    ],
)  # fmt: skip
def test_read_says_what_is_wrong(kind: type[Body], text: str, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        fastjson.read(kind, text.encode())


def test_none_is_not_written() -> None:
    assert b"orderTopicConf" not in fastjson.write(ROUTE)
    assert b'"orderTopicConf":"b:1"' in fastjson.write(
        msgspec.structs.replace(ROUTE, order_topic_conf="b:1")
    )


def test_keys_of_tables_are_written_in_order() -> None:
    table = bodies.TopicStatsTable(
        {queue: bodies.TopicOffset(0, 1, 2) for queue in (QUEUE_4, QUEUE_3)}
    )
    assert list(fastjson.read(bodies.TopicStatsTable, fastjson.write(table)).offset_table) == [
        QUEUE_3,
        QUEUE_4,
    ]
    broker = bodies.BrokerData("c", "b", {10: "x", 9: "y"})
    assert fastjson.write(broker, int_keys_quoted=False) == (
        b'{"brokerAddrs":{9:"y",10:"x"},"brokerName":"b","cluster":"c"}'
    )
