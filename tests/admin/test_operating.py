"""Commands that look into groups and messages, on the command line against a cluster in this process."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from tests.waiting import until

from steelyard import Admin, ConsumerConfig, Message, Producer, PushConsumer, SendResult
from steelyard.admin import exits
from steelyard.admin.main import main
from steelyard.nodes.broker.remoting import relays
from steelyard.types import ConsumeFrom, MessageQueue
from steelyard.wire.remoting.message import MessageView

TOPIC, GROUP = "Operated", "operated"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)

Run = Callable[..., list[str]]


@pytest.fixture(scope="module")
def sent(nameservers: str) -> list[SendResult]:
    main(
        [
            "admin",
            "updateTopic",
            "-n",
            nameservers,
            "-c",
            "DefaultCluster",
            "-t",
            TOPIC,
            "-r1",
            "-w1",
        ]
    )
    with Producer("operated-producers", nameservers) as producer:
        return [producer.send(Message(TOPIC, b"%d" % n, keys="k"), queue=QUEUE) for n in range(3)]


@pytest.fixture
def member(nameservers: str, sent: list[SendResult], run: Run) -> Iterator[PushConsumer]:
    """A member that has consumed and committed everything."""
    got: list[MessageView] = []
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, commit_interval_ms=50)
    consumer = PushConsumer(GROUP, nameservers, got.append, config=config)
    with consumer.subscribe(TOPIC):
        until(
            lambda: (  # before it holds anything, no broker may know the group
                consumer.state().offsets
                and doctor(nameservers)[0] == exits.SUCCESS
                and run("consumerProgress", "-g", GROUP, "-t", TOPIC)[-1] == "Diff Total: 0"
            ),
            "the member has consumed and committed everything",
        )
        yield consumer


def columns(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


HUNG = """
import sys
from steelyard import PushConsumer
with PushConsumer(sys.argv[1], sys.argv[2], lambda _: None).subscribe(sys.argv[3]):
    sys.stdin.read()
"""


@pytest.fixture
def hung(nameservers: str, member: PushConsumer) -> Iterator[None]:
    """A second member, in a process that does not go on."""
    command = [sys.executable, "-c", HUNG, GROUP, nameservers, TOPIC]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process, Admin(nameservers) as admin:
        until(lambda: len(admin.members(GROUP).connection_set) == 2)
        client = member.config.client_id
        until(lambda: None not in admin.running_infos(GROUP, [client]).values())
        process.send_signal(signal.SIGSTOP)
        yield
        process.kill()


def test_a_member_that_hangs_is_named_and_the_others_are_shown(
    nameservers: str,
    member: PushConsumer,
    hung: None,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(relays, "RELAY_TIMEOUT_MS", 500)
    capsys.readouterr()
    status = ["admin", "consumerStatus", "-n", nameservers, "-g", GROUP]
    assert main(status) == exits.UNREACHABLE
    lines = capsys.readouterr().out.splitlines()
    (file,) = tmp_path.glob("*/*")
    assert file.name == member.config.client_id
    ends = sorted(line.split(maxsplit=3)[3] for line in lines[1:3])
    assert ends == sorted([f"{file.parent.name}/{file.name}", "no answer"])
    assert lines[-1] == "1 of 2 members did not answer"
    assert main([*status, "--json"]) == exits.UNREACHABLE
    (silent,) = json.loads(capsys.readouterr().out)["silent"]
    assert silent != member.config.client_id
    code, said = doctor(nameservers)
    assert code == exits.FAILED
    assert said.startswith(f"1. no answer from {silent}")


def test_a_member_is_looked_into(
    run: Run, member: PushConsumer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    client = member.config.client_id
    lines = run("consumerStatus", "-g", GROUP)
    (file,) = tmp_path.glob("*/*")
    assert lines[1].split() == ["1", client, "V4_9_8", f"{file.parent.name}/{client}"]
    assert lines[-3:] == ["Same subscription in the same group of consumer", "", "Rebalance OK"]
    one = run("consumerStatus", "-g", GROUP, "-i", client)
    assert "#Consumer Properties#" in one
    assert file.read_text().splitlines()[0] == one[0]
    assert any(
        line.startswith(TOPIC) and "ProcessQueueInfo [commitOffset=3," in line for line in one
    )
    threads = run("consumerStatus", "-g", GROUP, "-i", client, "-s")
    assert "#Consumer jstack#" in threads
    table = columns(run("getConsumerStatus", "-g", GROUP, "-t", TOPIC))
    assert [client, "broker-a", "0", "3"] in table
    progress = columns(run("consumerProgress", "-g", GROUP, "-t", TOPIC, "-s", "true"))
    assert progress[1][:6] == [TOPIC, "broker-a", "0", "3", "3", client.split("@")[0]]


def test_a_message_is_found_and_consumed_again(
    run: Run, refused: Callable[..., str], sent: list[SendResult], member: PushConsumer
) -> None:
    by_id = run("queryMsgById", "-i", sent[1].offset_message_id)
    assert by_id[0] == f"OffsetID:            {sent[1].offset_message_id}"
    assert (
        by_id[-1] == f"MessageTrack [consumerGroup={GROUP}, trackType=CONSUMED, exceptionDesc=null]"
    )
    by_unique = run("queryMsgByUniqueKey", "-t", TOPIC, "-i", sent[1].message_id)
    assert by_unique == by_id[1:]
    by_key = columns(run("queryMsgByKey", "-t", TOPIC, "-k", "k"))
    assert by_key[1:] == [[result.message_id, "0", str(result.queue_offset)] for result in sent]
    to_member = ("-g", GROUP, "-d", member.config.client_id)
    (line,) = run("queryMsgById", "-i", sent[1].offset_message_id, *to_member)
    assert line.startswith(
        "ConsumeMessageDirectlyResult [order=false, autoCommit=true, consumeResult=CR_SUCCESS,"
    )
    assert "must be given together" in refused(
        "queryMsgById", "-i", sent[1].offset_message_id, "-g", GROUP
    )
    assert "no message with the id nope" in refused(
        "queryMsgByUniqueKey", "-t", TOPIC, "-i", "nope", code=exits.FAILED
    )


def test_offsets_are_reset(run: Run, refused: Callable[..., str], member: PushConsumer) -> None:
    lines = run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "now")
    assert lines[0] == (
        f"rollback consumer offset by specified group[{GROUP}], topic[{TOPIC}], force[true],"
        " timestamp(string)[now], timestamp(long)[-1]"
    )
    assert columns(lines[1:]) == [
        ["#brokerName", "#queueId", "#offset"],
        ["broker-a", "0", "3"],
        ["broker-b", "0", "0"],
    ]
    one = ("-b", "broker-a", "-q", "0")
    moved = run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, *one, "-o", "3")
    assert columns(moved)[1] == ["broker-a", "0", "N/A", "3"]
    member.stop()
    moved = run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, *one, "-o", "1")
    assert columns(moved)[1] == ["broker-a", "0", "3", "1"]
    early = run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "2020-01-01#00:00:00:000")
    assert columns(early)[-2:] == [["broker-a", "0", "0"], ["broker-b", "0", "0"]]
    said = refused("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "yesterday")
    assert "'yesterday' is not a time" in said
    assert "give a time" in refused("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, *one)
    said = refused("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0", "-q", "0")
    assert "cannot be combined with -s" in said


def test_groups_are_set_and_deleted(run: Run, refused: Callable[..., str]) -> None:
    lines = run("updateSubGroup", "-c", "DefaultCluster", "-g", "made", "-r", "3", "-d", "true")
    assert len(lines) == 3
    assert "consumeBroadcastEnable=true, retryQueueNums=1, retryMaxTimes=3," in lines[-1]
    lines = run("deleteSubGroup", "-c", "DefaultCluster", "-g", "made", "-r", "true")
    assert lines[1].endswith("in cluster [DefaultCluster] success.")
    assert lines[-1] == "delete topic [%DLQ%made] from NameServer success."
    assert "retryMaxTimes is -1" in refused(
        "updateSubGroup", "-b", "127.0.0.1:1", "-g", "g", "-r=-1"
    )


def test_ordered_topics(run: Run, refused: Callable[..., str], sent: list[SendResult]) -> None:
    order = ("-t", TOPIC)
    assert "no order conf" in refused("updateOrderConf", "-m", "get", *order, code=exits.FAILED)
    assert "-v brokerName" in refused("updateOrderConf", "-m", "put", *order)
    run("updateOrderConf", "-m", "put", "-v", "broker-a:1", *order)
    (line,) = run("updateOrderConf", "-m", "get", *order)
    assert line == f"get orderConf success. topic=[{TOPIC}], orderConf=[broker-a:1] "
    assert run("updateOrderConf", "-m", "delete", *order) == [
        f"delete orderConf success. topic=[{TOPIC}]"
    ]
    assert run("topicClusterList", *order) == ["DefaultCluster"]


def test_rates(run: Run, member: PushConsumer) -> None:
    heading, line = columns(run("statsAll", "-t", TOPIC))
    assert heading[-1] == "#OutMsg24Hour"
    assert line[:3] == [TOPIC, GROUP, "0"]
    assert line[5] == "3"
    assert int(line[6]) >= 3, "more where a test before sent the group back"
    (quiet,) = [row for row in columns(run("statsAll")) if row[0] == "SELF_TEST_TOPIC"]
    assert quiet[-1] == "NO_CONSUMER"
    active = [row[0] for row in columns(run("statsAll", "-a"))]
    assert TOPIC in active
    assert "SELF_TEST_TOPIC" not in active


def test_a_unique_id_is_not_an_offset_message_id(
    refused: Callable[..., str], sent: list[SendResult]
) -> None:
    said = refused("queryMsgById", "-i", sent[1].message_id)
    assert "is the unique id that the producer has made" in said
    assert "use queryMsgByUniqueKey" in said


def test_a_broker_that_does_not_exist(refused: Callable[..., str]) -> None:
    for command in ("wipeWritePerm", "addWritePerm"):
        said = refused(command, "-b", "broker-z", code=exits.FAILED)
        assert said == (
            "steelyard: the nameserver knows no broker broker-z; it knows: broker-a, broker-b"
        )


def test_brokers(run: Run, sent: list[SendResult]) -> None:
    lines = run("getBrokerConfig", "-c", "DefaultCluster")
    assert lines[0].startswith("============Master: 127.0.0.1:")
    assert ["brokerName", "=", "broker-b"] in [line.replace("=", " = ").split() for line in lines]
    (wiped,) = run("wipeWritePerm", "-b", "broker-b")
    assert wiped.startswith("wipe write perm of broker[broker-b] in name server[127.0.0.1:")
    (added,) = run("addWritePerm", "-b", "broker-b")
    assert added.rpartition(" ")[2] == wiped.rpartition(" ")[2]


def test_producers(
    run: Run, refused: Callable[..., str], nameservers: str, sent: list[SendResult]
) -> None:
    with Producer("watched", nameservers) as producer:
        producer.send(TOPIC, b"x", queue=QUEUE._replace(broker_name="broker-b"))
        (line,) = run("producerConnection", "-g", "watched", "-t", TOPIC)
        assert line.split()[:2] == ["0001", producer.config.client_id]
        assert line.split()[3:] == ["PYTHON", "V4_9_8"]
    assert "no producer of group watched" in refused(
        "producerConnection", "-g", "watched", "-t", TOPIC, code=exits.FAILED
    )


def doctor(nameservers: str) -> tuple[int, str]:
    """Its exit code, and what it says."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = main(["admin", "doctor", "-n", nameservers, "-g", GROUP])
    return code, out.getvalue()


def test_the_doctor(nameservers: str, member: PushConsumer) -> None:
    assert doctor(nameservers) == (0, f"group {GROUP}: nothing is wrong\n")
    member.stop()
    assert doctor(nameservers) == (
        1,
        f"1. no member of group {GROUP} is online\n"
        "   start a consumer, and check that it uses this group's name and these nameservers\n",
    )


def test_credentials_come_from_the_environment(
    run: Run, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEELYARD_ACCESS_KEY", "a")
    assert refused("topicList").endswith(
        "STEELYARD_ACCESS_KEY is set without STEELYARD_SECRET_KEY; set both, or neither"
    )
    monkeypatch.setenv("STEELYARD_SECRET_KEY", "hidden")
    assert "TBW102" in run("topicList")
