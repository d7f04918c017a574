from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import ProtocolError
from steelyard.types import MessageQueue
from steelyard.wire.remoting.dialect import NODES_MAX, loads

QUEUE_3 = MessageQueue("TopicA", "broker-a", 3)


# -- golden ----------------------------------------------------------------------------------------


def test_every_golden_json_is_read(golden: dict[str, str]) -> None:
    texts = [text for text in golden.values() if text.startswith("{")]
    assert len(texts) == 34
    for text in texts:
        assert isinstance(loads(text.encode()), dict)


def test_golden_with_a_reference_as_key(golden: dict[str, str]) -> None:
    info = loads(golden["ConsumerRunningInfo"].encode())
    assert isinstance(info, dict)
    assert list(info["mqPopTable"]) == list(info["mqTable"]) == [QUEUE_3]
    assert info["mqTable"][QUEUE_3]["commitOffset"] == 3


def test_golden_with_a_reference_to_a_table(golden: dict[str, str]) -> None:
    assert loads(golden["GetConsumerStatusBody"].encode()) == {
        "consumerTable": {"cid": {QUEUE_3: 100}},
        "messageQueueTable": {QUEUE_3: 100},
    }


def test_golden_with_numbers_as_keys(golden: dict[str, str]) -> None:
    assert loads(golden["ConsumerOffsetSerializeWrapper"].encode()) == {
        "offsetTable": {"TopicA@cg": {0: 5, 1: 6}}
    }


# -- laws ------------------------------------------------------------------------------------------


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_standard_json_is_read_alike_by_both_ways(tree: object) -> None:
    data = msgspec.json.encode(tree)
    dialect = b"{0:" + data + b"}"
    if b'"$ref"' not in data:
        assert loads(data) == tree
        assert loads(dialect) == {0: tree}


# -- rule by rule ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        (' { 0 : "a" , -1 : [ 1.5 , -2e3, true, false, null ] } ', {0: "a", -1: [1.5, -2000.0, True, False, None]}),
        ('{{"queueId":3,"topic":"TopicA","brokerName":"broker-a"}:1}', {QUEUE_3: 1}),
        ('{0:"\\"\\\\\\u0001\\n€"}', {0: '"\\\x01\n€'}),
        ('{0:{},1:[]}', {0: {}, 1: []}),
        ('{"a":[{"x":1},{"$ref":"$.a[0]"}]}', {"a": [{"x": 1}, {"x": 1}]}),
        ('{0:{"x":1},"b":{"$ref":"$[0]"}}', {0: {"x": 1}, "b": {"x": 1}}),
        ('{"0":{"x":1},"b":{"$ref":"$[0]"}}', {"0": {"x": 1}, "b": {"x": 1}}),
        ('{123:{"x":1},"b":{"$ref":"$.123"}}', {123: {"x": 1}, "b": {"x": 1}}),
        ('{"a.b":{"x":1},"c":{"$ref":"$.a\\\\.b"}}', {"a.b": {"x": 1}, "c": {"x": 1}}),
        ('{"a":{"x":1},"b":{"$ref":"$.a"},"c":{"$ref":"$.b"}}', {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}}),
        ('{"a":{"$ref":1}}', {"a": {"$ref": 1}}),
        ("{,0:1,,'a':2,}", {0: 1, "a": 2}),
        ("[,1,,2,]", [1, 2]),
        ("{abc:1,null:2,true:3,$_9:4}", {"abc": 1, "null": 2, "true": 3, "$_9": 4}),
        ("{0:01,1:+2,2:3.,3:4L,4:5.5D,5:-006}", {0: 1, 1: 2, 2: 3, 3: 4, 4: 5.5, 5: -6}),
        ("[undefined,NaN]", [None, None]),
        ("/* a */[/**/1/***/,// b\n2]// c", [1, 2]),
        ("['a\"\\'b',\"\\x41\\v\\0\\7\\/\"]", ["a\"'b", "A\v\0\7/"]),
        ('{0:"\\uD83D\\uDE00\\ud800"}', {0: "\U0001f600\ufffd"}),
        ('{{"brokerName":"broker-a","queueId":"3","topic":"TopicA","x":1}:1}', {QUEUE_3: 1}),
    ],
)  # fmt: skip
def test_dialect(text: str, tree: object) -> None:
    assert loads(text.encode()) == tree


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{0}",
        "{0:}",
        "{0:1}x",
        "{0:--1}",
        "{0:1 1:2}",
        "[1 2]",
        "[1,2/*",
        "{0:tru}",
        "{0:a}",
        "{0:/}",
        "['a]",
        "{0:'\\q'}",
        "{0:nul}",
        "{[1]:1}",
        "{1.5:1}",
        '{{"topic":"t"}:1}',
        '{0:"a',
        '{0:"\\x"}',
        '{"a":{"$ref":"$"}}',
        '{"a":{"$ref":".."}}',
        '{"a":{"$ref":"$.b"}}',
        '{"a":{"$ref":"$.a"}}',
        '{"a":{"b":{"$ref":"$.a"}}}',
        '{"a":1,"b":{"$ref":"$.a.x"}}',
        '{"a":[],"b":{"$ref":"$.a[0]"}}',
        '{"a":{},"b":{"$ref":"$.a[0"}}',
        '{"$ref":"$"}',
        '{{"$ref":"$.x"}:1}',
        '{"a":{"x":{}},{"$ref":"$.a.x"}:1}',
        '{"a":{"x":1,"y":2},"b":{{"$ref":"$.a.null"}:1}}',
        "[" * 2000,
        "{0:" * 2000,
        '{"a":' * 2000,
        '{"a":{"$ref":"$.b"},"b":' + "[" * 100 + "]" * 100 + "}",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        loads(text.encode())


def test_not_utf8_is_refused() -> None:
    with pytest.raises(ProtocolError):
        loads(b'{0:"\xff"}')


def test_references_to_references_cannot_stand_for_billions() -> None:
    levels = ['"a0":[1,1]'] + [
        f'"a{n}":[{{"$ref":"$.a{n - 1}"}},{{"$ref":"$.a{n - 1}"}}]' for n in range(1, 60)
    ]
    with pytest.raises(ProtocolError, match="too many values"):
        loads(("{" + ",".join(levels) + "}").encode())


@pytest.mark.parametrize("item", ["1", "[]", "[[]]", "{}", '{"a":1}'])
@pytest.mark.parametrize("around", ["[%s]", "{0:[%s]}"])
def test_too_many_values_are_refused(item: str, around: str) -> None:
    text = around % ",".join([item] * (NODES_MAX + 1))
    with pytest.raises(ProtocolError, match="too many values"):
        loads(text.encode())
