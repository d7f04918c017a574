"""What fastjson takes, we take, and we make the same of it: each row of the golden file was asked of Java."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from steelyard.errors import ProtocolError
from steelyard.types import MessageQueue
from steelyard.wire.remoting import bodies, fastjson, values
from steelyard.wire.remoting.bodies import Body

GOLDEN = Path(__file__).parent.parent / "golden" / "fastjson-1.2.83.jsonl"
KINDS: dict[str, type[Body]] = {kind.__name__: kind for kind in Body.__subclasses__()}


class Row(NamedTuple):
    kind: str
    text: str
    java: str | None


ROWS = [Row(**json.loads(line)) for line in GOLDEN.read_text().splitlines()]


def made_of(kind: type[Body], text: str) -> object:
    """The body, lists in one order: Java's sets have none. None where it is refused."""
    try:
        return _ordered(fastjson.read(kind, text.encode()))
    except ProtocolError:
        return None


def _ordered(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, MessageQueue):
        return value
    if isinstance(value, dict):
        return {key: _ordered(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return sorted((_ordered(item) for item in value), key=repr)
    return value


def test_the_golden_file_has_all_kinds_and_both_outcomes() -> None:
    assert len(ROWS) > 170
    assert {row.kind for row in ROWS} <= KINDS.keys()
    assert sum(row.java is None for row in ROWS) > 30


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.kind} {row.text}"[:100])
def test_a_text_is_read_as_java_reads_it(row: Row) -> None:
    """The same as what we read from Java's own full text of what it made."""
    expected = None if row.java is None else made_of(KINDS[row.kind], row.java)
    assert made_of(KINDS[row.kind], row.text) == expected


def test_the_heartbeat_of_the_cpp_client() -> None:
    """Byte for byte from PyPI rocketmq 0.4.4: ordinals, the version as a text, absent sets."""
    text = (
        b'{"clientID":"127.0.0.1@i1","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"g","messageModel":1,'
        b'"subscriptionDataSet":[{"subString":"*","subVersion":"1795353995411","topic":"t"},'
        b'{"subString":"*","subVersion":"1795353995412","topic":"%RETRY%g"}]}]}\n'
    )
    assert fastjson.read(bodies.HeartbeatData, text) == bodies.HeartbeatData(
        "127.0.0.1@i1",
        (),
        (
            bodies.ConsumerData(
                "g",
                "CONSUME_PASSIVELY",
                "CLUSTERING",
                "CONSUME_FROM_LAST_OFFSET",
                (
                    bodies.SubscriptionData("t", sub_version=1795353995411),
                    bodies.SubscriptionData("%RETRY%g", sub_version=1795353995412),
                ),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (bodies.HeartbeatData, "{}", "clientID missing"),
        (bodies.HeartbeatData, '{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":9}]}',
         "HeartbeatData: consumerDataSet: consumeType: expected one of CONSUME_ACTIVELY, .* or its ordinal, not 9"),
        (bodies.TopicConfig, '{"topicName":"t","perm":2147483648}', "perm: 2147483648 does not fit into 32 bits"),
        (bodies.TopicConfig, '{"topicName":"t","order":"maybe"}', "order: expected true or false, not 'maybe'"),
        (bodies.ConsumeStats, '{"offsetTable":{},"consumeTps":"fast"}', "consumeTps: expected a number, not 'fast'"),
        (bodies.LockBatchBody, '{"consumerGroup":"g","clientId":"c","mqSet":[7]}', "mqSet: expected a message queue, not 7"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field_and_what_would_be_right(
    kind: type[Body], text: str, words: str
) -> None:
    with pytest.raises(ProtocolError, match=words):
        fastjson.read(kind, text.encode())


@pytest.mark.parametrize(
    "value", [Decimal("1e101"), Decimal("1e-102"), Decimal("1e999999999"), "9" * 41]
)
def test_numbers_of_a_billion_digits_are_refused_before_they_are_made(value: object) -> None:
    for cast in (values.integer, values.long):
        with pytest.raises(ProtocolError):
            cast(value)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (Decimal("1.5"), 1.5),
        ("1,000.5", 1000.5),
        (True, 1.0),
        ("", None),
        ("null", None),
        (None, None),
    ],
)
def test_real(value: object, number: float | None) -> None:
    assert values.real(value) == number


@pytest.mark.parametrize("value", ["nan", "1_0", "0x1", " 1", [], {}])
def test_no_real(value: object) -> None:
    with pytest.raises(ProtocolError):
        values.real(value)


def test_what_an_enumeration_shows_is_cut() -> None:
    with pytest.raises(ProtocolError) as caught:
        values.integer("9" * 1000)
    assert len(str(caught.value)) < 200


def test_a_queue_stays_a_queue() -> None:
    queue = MessageQueue("t", "b", 1)
    assert values.queue(queue) is queue
    assert values.queue("") is None
