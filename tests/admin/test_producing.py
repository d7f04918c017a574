"""`steelyard produce`: what a message is given, and that what `consume --json` prints comes back whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.admin.processes import Ports, json_lines, run

from steelyard import Message, Producer
from steelyard.admin.ndjson import MessageLine
from steelyard.admin.producing import DELAYS, Delay, read_delay
from steelyard.admin.starts import seconds
from steelyard.errors import ConfigError
from steelyard.nodes.broker.remoting.schedule import SECONDS

WHERE_AND_WHEN = (
    *("topic", "broker", "queue_id", "queue_offset", "message_id"),
    *("born_timestamp", "store_timestamp", "system_properties"),
)
"""What a message that is sent again has anew."""


def read(ports: Ports, topic: str, count: int) -> str:
    done = run(
        *("consume", "-n", ports.nameserver, "-t", topic, "-g", f"of-{topic}", "--json"),
        *("--from", "earliest", "--count", str(count), "--timeout", "60"),
    )
    assert done.returncode == 0, done
    return done.stdout


def by_body(text: str) -> dict[str, dict[str, Any]]:
    """What a user had set of each message."""
    lines = json_lines(text)
    return {
        line.get("body", "") + line.get("body_base64", ""): {
            name: value for name, value in line.items() if name not in WHERE_AND_WHEN
        }
        for line in lines
    }


def test_a_round_trip_keeps_all_that_a_user_set(ports: Ports) -> None:
    """1. Messages with everything that a user can set. 2. consume --json | produce --input json. 3. They are the same."""
    messages = [
        Message("First", b"plain"),
        Message("First", 'größer\u2028\x00"\\'.encode(), tags="t", keys="a b", flag=-7),
        Message("First", bytes(range(256)), keys=("k1", "k2"), sharding_key="s 1"),
        Message("First", b"line\nline\r\n", properties={"a": "1", "größe": "\u0007x=\u2029"}),
        Message("First", b"unsure", wait_store_ok=False, properties={"DLQ": "x"}),
        Message("First", b"x" * 100_000, tags="big"),
    ]
    with Producer("round-trip", ports.nameserver) as producer:
        for message in messages:
            producer.send(message)
    printed = read(ports, "First", len(messages))
    bodies = {"body", "body_base64"}
    for line in json_lines(printed):
        assert line.keys() | bodies == set(MessageLine.__struct_fields__)
        assert len(line.keys() & bodies) == 1
    before = by_body(printed)
    assert before[messages[1].body.decode()]["keys"] == "a b"
    assert before[messages[1].body.decode()]["flag"] == -7
    assert before["line\nline\r\n"]["properties"] == dict(messages[3].properties)
    sent = run("produce", "-n", ports.nameserver, "-t", "Second", "--input", "json", text=printed)
    assert (sent.returncode, sent.stderr) == (0, "")
    assert sent.stdout.startswith(f"sent {len(messages)} messages to Second in ")
    after = by_body(read(ports, "Second", len(messages)))
    assert after == before


def test_messages_go_to_their_own_topics(ports: Ports, tmp_path: Path) -> None:
    file = tmp_path / "messages.ndjson"
    file.write_text('{"topic": "Own1", "body": "a"}\n{"topic": "Own2", "body_base64": "/w=="}')
    sent = run("produce", "-n", ports.nameserver, "--input", "json", "--file", str(file))
    assert sent.stdout.startswith("sent 2 messages in ")
    assert json_lines(read(ports, "Own1", 1))[0]["body"] == "a"
    assert json_lines(read(ports, "Own2", 1))[0]["body_base64"] == "/w=="


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "not a message in the format of `consume --json`"),
        ("[]", "Expected `object`"),
        ('{"body": 5}', "$.body"),
        ('{"topic": "Bad"}', "needs either body or body_base64"),
        ('{"body": "a", "body_base64": ""}', "needs either body or body_base64"),
        ('{"body_base64": "%"}', "body_base64 is not base64"),
        ('{"body": "a", "propertys": {}}', "propertys"),
        ('{"body": "a"}', "the topic is empty"),
        ('{"topic": "Bad", "body": ""}', "the body is empty"),
        ('{"topic": "a b", "body": "a"}', "topic 'a b'"),
        ('{"topic": "Bad", "body": "a", "properties": {"KEYS": "x"}}', "taken by the system"),
        ('{"topic":"T","partition":0,"offset":1,"value":"x"}', "partition"),
    ],
)
def test_a_line_that_is_wrong_is_named(ports: Ports, line: str, said: str) -> None:
    text = '{"topic": "Good", "body": "good"}\n' + line + "\n"
    done = run("produce", "-n", ports.nameserver, "--input", "json", text=text)
    assert (done.returncode, done.stdout) == (2, "")
    (told,) = done.stderr.splitlines()
    assert told.startswith("steelyard: message 2: ")
    assert said in told


def test_properties_and_more(ports: Ports) -> None:
    sent = run(
        *("produce", "-n", ports.nameserver, "-t", "Options", "--body", "b", "--tag", "t"),
        *("--key", "k1 k2", "--sharding-key", "s", "--property", "a=1", "--property", "b=x=y z"),
    )
    assert sent.returncode == 0, sent
    (line,) = json_lines(read(ports, "Options", 1))
    assert (line["tags"], line["keys"], line["sharding_key"]) == ("t", "k1 k2", "s")
    assert line["properties"] == {"a": "1", "b": "x=y z"}


def test_a_delay(ports: Ports) -> None:
    sent = run("produce", "-n", ports.nameserver, "-t", "Later", "--body", "b", "--delay", "1s")
    assert sent.returncode == 0, sent
    (line,) = json_lines(read(ports, "Later", 1))
    assert line["store_timestamp"] - line["born_timestamp"] >= 1_000


def test_delays_are_those_of_the_broker() -> None:
    assert tuple(map(seconds, DELAYS)) == SECONDS
    assert [read_delay(delay).level for delay in DELAYS] == list(range(1, 19))
    assert [read_delay(text) for text in ("", "3", "60s", "60m", "120m", "1000ms")] == [
        *(Delay(), Delay(3), Delay(5), Delay(17), Delay(18), Delay(1))
    ]
    assert [read_delay(text) for text in ("7s", "90m", "3h", "250ms")] == [
        *(Delay(ms=7_000), Delay(ms=5_400_000), Delay(ms=10_800_000), Delay(ms=250))
    ]
    for wrong in ("0", "19", "-1", "x", "1.5s", "0s", "0ms", "ms", "-5ms"):
        with pytest.raises(ConfigError, match="--delay is"):
            read_delay(wrong)


def test_any_delay(ports: Ports) -> None:
    """To the millisecond, as an option and as a field of a line."""
    sent = run(
        "produce", "-n", ports.nameserver, "-t", "AnyDelay", "--body", "b", "--delay", "700ms"
    )
    assert sent.returncode == 0, sent
    later = json.dumps({"topic": "AnyDelay", "body": "c", "delay_ms": 300})
    sent = run("produce", "-n", ports.nameserver, "--input", "json", text=later)
    assert sent.returncode == 0, sent
    for line in json_lines(read(ports, "AnyDelay", 2)):
        waited = line["store_timestamp"] - line["born_timestamp"]
        assert waited >= {"b": 700, "c": 300}[line["body"]]
