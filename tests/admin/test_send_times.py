"""Commands that send messages to measure, and commands that make brokers clean up."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest
from tests.admin.processes import COMMAND

from steelyard import Admin
from steelyard.admin import exits

Run = Callable[..., list[str]]
Refused = Callable[..., str]

CLUSTER = ("-c", "DefaultCluster")


@pytest.fixture
def admin(nameservers: str) -> Iterator[Admin]:
    with Admin(nameservers) as admin:
        yield admin


def test_sends_to_one_broker(run: Run, refused: Refused, admin: Admin) -> None:
    lines = run("sendMsgStatus", "-b", "broker-b", "-c", "3", "-s", "12")
    assert len(lines) == 3
    for number, line in enumerate(lines, 1):
        assert re.fullmatch(
            r"rt=\d+ms, SendResult=SendResult \[sendStatus=SEND_OK, msgId=[0-9A-F]{32},"
            r" offsetMsgId=[0-9A-F]{32}, messageQueue=MessageQueue \[topic=broker-b,"
            rf" brokerName=broker-b, queueId=0\], queueOffset={number}\]",
            line,
        )
    message = admin.message(lines[0].partition("offsetMsgId=")[2][:32])
    assert message.body == b"hello jodiehello jodie"
    document = json.loads("".join(run("sendMsgStatus", "-b", "broker-b", "-c", "1", "--json")))
    (send,) = document["sends"]
    assert (document["broker_name"], send["result"]["status"]) == ("broker-b", "SEND_OK")
    assert send["ms"] > 0
    said = refused("sendMsgStatus", "-b", "broker-x", code=exits.FAILED)
    assert "knows no broker broker-x; it knows: broker-a, broker-b" in said
    assert "count is 0; it must be from 1 to" in refused("sendMsgStatus", "-b", "b", "-c", "0")
    assert "messageSize is 0" in refused("sendMsgStatus", "-b", "b", "-s", "0")


def test_sends_to_the_queues_of_a_topic(run: Run, refused: Refused, admin: Admin) -> None:
    admin.create_topic("Timed", queues=1)
    lines = run("checkMsgSendRT", "-t", "Timed", "-a", "4")
    assert lines[0] == f"{'#Broker Name':<32}  #QID  {'#Send Result':<20}    #RT"
    assert [line.split()[:3] for line in lines[1:-1]] == [
        ["broker-a", "0", "true"],
        ["broker-b", "0", "true"],
    ] * 2
    assert re.fullmatch(r"Avg RT: \d+\.\d\d", lines[-1])
    document = json.loads("".join(run("checkMsgSendRT", "-t", "Timed", "-a", "2", "--json")))
    assert document["average_ms"] == document["sends"][1]["ms"]
    assert sum(each.max_offset for each in admin.topic_stats("Timed").values()) == 6
    said = refused("checkMsgSendRT", "-t", "NoSuch", code=exits.FAILED)
    assert "no route for topic NoSuch" in said
    assert "amount is 1; it must be from 2 to" in refused("checkMsgSendRT", "-t", "T", "-a", "1")
    assert "size is -1; it must be from 1 to" in refused("checkMsgSendRT", "-t", "T", "-s=-1")
    admin.create_topic("Unwritable", queues=1, perm=4)
    said = refused("checkMsgSendRT", "-t", "Unwritable", code=exits.FAILED)
    assert "topic Unwritable has no queue to send to" in said


def test_sends_to_every_broker(run: Run, refused: Refused) -> None:
    lines = run("clusterRT", "-a", "3")
    assert lines[0].split("  ")[0] == "#Cluster Name"
    rows = [line.split() for line in lines[1:]]
    assert [[*row[:2], *row[3:]] for row in rows] == [
        ["DefaultCluster", "broker-a", "3", "0"],
        ["DefaultCluster", "broker-b", "3", "0"],
    ]
    assert all(re.fullmatch(r"\d+\.\d\d", row[2]) for row in rows)
    logged = run("clusterRT", "-a", "2", "-p", "true", "-m", "here", *CLUSTER)
    assert all(
        re.fullmatch(rf"[-0-9]{{10}} [:0-9]{{8}}\|here\|DefaultCluster\|{name}\|\d+", line)
        for name, line in zip(("broker-a", "broker-b"), logged, strict=True)
    )
    document = json.loads("".join(run("clusterRT", "-a", "2", "--json")))
    assert [
        (one["cluster"], one["broker_name"], one["succeeded"], one["failed"], one["error"])
        for one in document["brokers"]
    ] == [
        ("DefaultCluster", "broker-a", 2, 0, None),
        ("DefaultCluster", "broker-b", 2, 0, None),
    ]
    said = refused("clusterRT", "-c", "Other", code=exits.FAILED)
    assert "knows no cluster Other" in said


def test_sends_repeated(nameservers: str) -> None:
    with subprocess.Popen(
        [*COMMAND, "admin", "clusterRT", "-n", nameservers, "-a", "2", "-i", "0.1", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        twice = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.terminate()
    assert twice[0]["at"] < twice[1]["at"]
    assert all(len(one["brokers"]) == 2 for one in twice)


# -- cleaning --------------------------------------------------------------------------------------


def test_unused_topics(run: Run, refused: Refused, admin: Admin) -> None:
    first, second = admin.masters("DefaultCluster")
    assert run("cleanUnusedTopic") == ["success"]
    assert run("cleanUnusedTopic", *CLUSTER) == ["success"]
    document = json.loads("".join(run("cleanUnusedTopic", "-b", first, "--json")))
    assert document == {"brokers": [first], "unreachable": []}
    both = json.loads("".join(run("cleanUnusedTopic", "--json")))
    assert both["brokers"] == [first, second]
    assert "knows no cluster Other" in refused("cleanUnusedTopic", "-c", "Other", code=exits.FAILED)


@pytest.mark.parametrize("command", ["cleanExpiredCQ", "deleteExpiredCommitLog"])
def test_brokers_here_clean_up_by_themselves(refused: Refused, admin: Admin, command: str) -> None:
    first, _ = admin.masters("DefaultCluster")
    assert refused(command, code=exits.FAILED) == (
        f"steelyard: code 3 from {first}: this broker does not support {command};"
        " Steelyard's delete what has expired by themselves"
    )
    said = refused(command, "-b", "127.0.0.1:1", code=exits.UNREACHABLE)
    assert "broker 127.0.0.1:1 did not answer" in said
