"""Commands that look into queues: single messages, index rows, backlogs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from steelyard import Admin, Message, Producer, PullConsumer, PushConsumer, SendResult
from steelyard.admin import exits, messages
from steelyard.types import MessageQueue
from steelyard.wire.remoting.flags import tag_code

Run = Callable[..., list[str]]
Refused = Callable[..., str]

TOPIC = "Queued"
QUEUE = MessageQueue(TOPIC, "broker-a", 1)
GROUP = "queued"


@pytest.fixture
def admin(nameservers: str) -> Iterator[Admin]:
    with Admin(nameservers) as admin:
        yield admin


@pytest.fixture(scope="module")
def sent(nameservers: str) -> list[SendResult]:
    """Three messages in one queue; a group has consumed the first."""
    with Admin(nameservers) as admin:
        admin.create_topic(TOPIC, queues=2)
    with Producer("queued-producers", nameservers) as producer:
        results = [
            producer.send(Message(TOPIC, f"body {n}".encode(), tags=f"tag{n}"), queue=QUEUE)
            for n in range(3)
        ]
    with PullConsumer(GROUP, nameservers) as consumer:
        consumer.commit(QUEUE, 1)
    return results


@pytest.fixture(autouse=True)
def bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(messages, "BODIES", tmp_path)
    return tmp_path


# -- queryMsgByOffset ------------------------------------------------------------------------------

AT = ("-t", TOPIC, "-b", "broker-a", "-i", "1")


def test_a_message_is_found_by_its_offset(run: Run, sent: list[SendResult], bodies: Path) -> None:
    by_offset = run("queryMsgByOffset", *AT, "-o", "2")
    assert by_offset == run("queryMsgById", "-i", sent[2].offset_message_id)
    assert (bodies / sent[2].message_id).read_bytes() == b"body 2"
    with_body = run("queryMsgByOffset", *AT, "-o", "2", "-f", "UTF-8")
    assert [line for line in with_body if line not in by_offset] == ["Message Body:        body 2"]
    document = json.loads("".join(run("queryMsgByOffset", *AT, "-o", "1", "-f", "utf-8", "--json")))
    (message,) = document["messages"]
    assert (message["queue_offset"], message["body"]) == (1, "body 1")
    assert message["message_id"] == sent[1].message_id


def test_messages_that_do_not_exist(refused: Refused, sent: list[SendResult]) -> None:
    def said(*options: str, code: int = exits.FAILED) -> str:
        return refused("queryMsgByOffset", *options, code=code)

    assert said(*AT, "-o", "3").endswith("has no message at offset 3; it has messages from 0 to 2")
    empty = ("-t", TOPIC, "-b", "broker-a", "-i", "0")
    assert said(*empty, "-o", "0").endswith("has no message at offset 0; it has no messages")
    nowhere = said("-t", TOPIC, "-b", "broker-a", "-i", "7", "-o", "0")
    assert nowhere == f"steelyard: queue 7 of topic {TOPIC} on broker-a does not exist"
    reset = ("-g", "g", "-t", TOPIC, "-b", "broker-a", "-q", "7", "-o", "0")
    assert refused("resetOffsetByTime", *reset) == nowhere
    assert "has no broker broker-x" in said("-t", TOPIC, "-b", "broker-x", "-i", "0", "-o", "0")
    assert "no route for topic No" in said("-t", "No", "-b", "broker-a", "-i", "0", "-o", "0")
    assert "offset is -1; it must be 0 or more" in said(*AT, "-o=-1", code=exits.WRONG)
    for encoding in ("nonsense", "base64", "idna"):
        words = said(*AT, "-o", "0", "-f", encoding, code=exits.WRONG)
        assert f"bodyFormat is {encoding!r}, which is no encoding of text" in words


# -- queryCq ---------------------------------------------------------------------------------------


def test_the_rows_of_a_queue(run: Run, sent: list[SendResult], admin: Admin) -> None:
    stored = [admin.message(result.offset_message_id) for result in sent]
    lines = run("queryCq", "-t", TOPIC, "-q", "1", "-i", "1")
    line = "======================================"
    assert lines[:3] == ["Queue data: ", "max: 3, min: 0", line]
    sizes = stored[2].physical_offset - stored[1].physical_offset
    assert lines[3:] == [
        part
        for n in (1, 2)
        for part in (
            f"idx: {n}",
            f"ConsumeQueueData{{physicOffset={stored[n].physical_offset}, physicSize={sizes},"
            f" tagsCode={tag_code(f'tag{n}')}, extendDataJson='null', bitMap='null', eval=false,"
            " msg='null'}",
            line,
        )
    ]
    document = json.loads("".join(run("queryCq", "-t", TOPIC, "-q", "1", "-i", "0", "--json")))
    assert (document["min_offset"], document["max_offset"]) == (0, 3)
    assert [one["queue_offset"] for one in document["rows"]] == [0, 1, 2]
    limited = run("queryCq", "-t", TOPIC, "-q", "1", "-i", "0", "-c", "1")
    assert len(limited) == 6


def test_the_subscription_of_a_group(
    run: Run, sent: list[SendResult], admin: Admin, nameservers: str
) -> None:
    query = ("queryCq", "-t", TOPIC, "-q", "1", "-i", "2", "-g")
    assert run(*query, "nobody")[:2] == ["Filter data: ", f"nobody@{TOPIC} is not online!"]
    first, _ = admin.masters("DefaultCluster")
    with PushConsumer("subscribed", nameservers, lambda _: None).subscribe(TOPIC, "tag1"):
        until(lambda: run(*query, "subscribed")[0] == "Subscription data: ", "a member")
        lines = run(*query, "subscribed", "-b", first)
    end = lines.index("======================================")
    subscription = json.loads("".join(lines[1:end]))
    assert (subscription["topic"], subscription["subString"]) == (TOPIC, "tag1")


def test_rows_that_do_not_exist(refused: Refused, sent: list[SendResult]) -> None:
    def said(*options: str, code: int = exits.FAILED) -> str:
        return refused("queryCq", "-t", TOPIC, *options, code=code)

    assert said("-q", "1", "-i", "3").endswith(
        "has no row 3; it has the offsets from 0 to before 3"
    )
    assert f"queue 9 of topic {TOPIC} does not exist" in said("-q", "9", "-i", "0")
    assert "count is 0; it must be from 1 to" in said(
        "-q", "1", "-i", "0", "-c", "0", code=exits.WRONG
    )
    assert "queue is -1" in said("-q=-1", "-i", "0", code=exits.WRONG)


# -- brokerConsumeStats ----------------------------------------------------------------------------


def test_the_backlogs_of_a_broker(run: Run, sent: list[SendResult], admin: Admin) -> None:
    first, second = admin.masters("DefaultCluster")
    lines = run("brokerConsumeStats", "-b", first)
    assert lines[0].split("#")[1:3] == ["Topic".ljust(65), "Group".ljust(65)]
    (line,) = (line.split() for line in lines if f" {GROUP} " in line)
    assert line[:7] == [TOPIC, GROUP, "broker-a", "1", "3", "1", "2"]
    document = json.loads("".join(run("brokerConsumeStats", "-b", first, "--json")))
    (queue,) = (one for one in document["queues"] if one["group"] == GROUP and one["queue_id"] == 1)
    assert (queue["broker_offset"], queue["consumer_offset"], queue["lag"]) == (3, 1, 2)
    assert document["lag"] == sum(one["lag"] for one in document["queues"])
    total = f"Diff Total: {document['lag']}"
    assert lines[-2:] == ["", total]
    assert run("brokerConsumeStats", "-b", first, "-l", "4") == [lines[0], "", total]
    assert run("brokerConsumeStats", "-b", second)[-1] == "Diff Total: 0"


def test_backlogs_that_nobody_tells(refused: Refused) -> None:
    said = refused("brokerConsumeStats", "-b", "127.0.0.1:1", code=exits.UNREACHABLE)
    assert "broker 127.0.0.1:1 did not answer: cannot connect" in said
    assert "timeoutMillis is 0" in refused("brokerConsumeStats", "-b", "127.0.0.1:1", "-t", "0")
