"""Our printed output for the replies that mqadmin 4.9.8 got, against what mqadmin printed.

Three peers on free ports replay the capture's replies, byte for byte but for the ports; the real command line
asks them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from steelyard.admin import printing
from steelyard.admin.groups import allocation_json, progress_table
from steelyard.admin.main import main
from steelyard.admin.topics import route_table, topic_config_line
from steelyard.driver.driver import Driver
from steelyard.driver.listening import advertised, bind
from steelyard.driver.loops import Background
from steelyard.groups.overview import group_progress
from steelyard.nodes.seam import Effect, Event, Received, Send
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import (
    BrokerData,
    OffsetWrapper,
    QueueData,
    TopicConfig,
    TopicRouteData,
)
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command
from steelyard.wire.remoting.ids import host_bytes

CAPTURES = json.loads((Path(__file__).parent / "mqadmin-4.9.8.json").read_text())
ROLES = ("127.0.0.1:40016", "127.0.0.1:40034", "127.0.0.1:40061")
"""The nameserver and the two brokers of the capture."""


class Reply(msgspec.Struct):
    """A captured reply to a request, where it had these fields. `body`: hex where it is no JSON."""

    address: str
    request: int
    body: str
    code: int = 0
    ext: dict[str, str] = {}


class Replay:
    """A node that answers requests as captured: those to another broker too, where only one was asked."""

    def __init__(self, role: str, replies: list[Reply], moved: Callable[[str], str]) -> None:
        self.role = role
        self.replies = replies
        self.moved = moved

    def start(self, now: int) -> list[Effect]:
        return []

    def handle(self, event: Event, now: int) -> list[Effect]:
        if not isinstance(event, Received) or not isinstance(event.message, Command):
            return []
        request = event.message
        fitting = [
            reply
            for reply in self.replies
            if reply.request == request.code and reply.ext.items() <= request.ext.items()
        ]
        own = [reply for reply in fitting if reply.address == self.role]
        found = (own or fitting or [Reply(self.role, request.code, "", 1)])[0]
        binary = found.body and not found.body.startswith("{")
        text = self.moved(found.body)
        body = bytes.fromhex(text) if binary else text.encode()
        ext = {"offset": "0"}
        return [
            Send(
                event.link,
                Command(found.code, request.opaque, RESPONSE_FLAG, ext, body, "captured"),
            )
        ]

    def check(self) -> None:
        """Nothing to assert."""


@pytest.fixture
def replay() -> Iterator[Callable[[str], tuple[str, str]]]:
    """Starts peers for one captured command; gives the nameserver's address and the expected text."""
    background = Background()
    drivers: list[Driver] = []

    async def serve(role: str, replies: list[Reply], moved: Callable[[str], str]) -> str:
        driver = Driver(Replay(role, replies, moved), name="replay")
        driver.start()
        listener = bind("127.0.0.1", 0)
        await driver.listen(listener)
        drivers.append(driver)
        return advertised("127.0.0.1", listener)

    def start(command: str) -> tuple[str, str]:
        captured = CAPTURES[command]["replies"] + CAPTURES["topicRoute"]["replies"]
        replies = msgspec.convert(captured, list[Reply])
        addresses: dict[str, str] = {}

        def moved(text: str) -> str:
            """The captured text with the ports of this run, also where they are part of a record."""
            for role, address in addresses.items():
                text = text.replace(role, address)
                text = text.replace(host_bytes(role).hex(), host_bytes(address).hex())
                text = text.replace(
                    host_bytes(role).hex().upper(), host_bytes(address).hex().upper()
                )
            return text

        for role in ROLES:
            addresses[role] = background.wait(serve(role, replies, moved))
        return addresses[ROLES[0]], moved(CAPTURES[command]["printed"])

    yield start
    for driver in drivers:
        background.wait(driver.close())
    background.loop.call_soon_threadsafe(background.loop.stop)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("topicRoute", ["-t", "AdmTopic"]),
        ("topicStatus", ["-t", "AdmTopic"]),
        ("consumerProgress", ["-g", "admg"]),
        ("clusterList", []),
        ("updateSubGroup", ["-c", "DefaultCluster", "-g", "admg2"]),
        ("updateTopic", ["-c", "DefaultCluster", "-t", "AdmT2"]),
        ("deleteTopic", ["-c", "DefaultCluster", "-t", "AdmT2"]),
        ("updateOrderConf", ["-m", "put", "-t", "AdmTopic", "-v", "a:4"]),
        ("producerConnection", ["-g", "admpg", "-t", "AdmTopic"]),
        ("queryMsgByKey", ["-t", "AdmTopic", "-k", "k3"]),
        ("statsAll", ["-t", "AdmTopic"]),
    ],
)
def test_as_mqadmin_prints(
    command: str,
    options: list[str],
    replay: Callable[[str], tuple[str, str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nameserver, printed = replay(command)
    captured_at = 1_795_227_450_000
    monkeypatch.setattr("steelyard.admin.clusters.time.time_ns", lambda: captured_at * 1_000_000)
    assert main(["admin", command, "-n", nameserver, *options]) == 0
    assert lines(capsys.readouterr().out) == lines(printed)


def lines(text: str) -> list[str]:
    """Some commands of mqadmin forget the last line feed; the capture lost the last spaces."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


def test_a_reset_as_mqadmin_prints(
    replay: Callable[[str], tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """mqadmin prints queues in the order of Java's hashes."""
    nameserver, printed = replay("resetOffsetByTime")
    options = ["-n", nameserver, "-g", "admg", "-t", "AdmTopic", "-s", "1700000000000"]
    assert main(["admin", "resetOffsetByTime", *options]) == 0
    ours, theirs = lines(capsys.readouterr().out), lines(printed)
    assert ours[:2] == theirs[:2]
    assert ours[2:] == sorted(theirs[2:])


@pytest.mark.parametrize("command", ["queryMsgById", "queryMsgByUniqueKey"])
def test_a_message_as_mqadmin_prints(
    command: str,
    replay: Callable[[str], tuple[str, str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """All but the order of properties, which is that of Java's hashes, and the folder of bodies."""
    monkeypatch.setattr("steelyard.admin.messages.BODIES", tmp_path)
    nameserver, printed = replay(command)
    theirs = lines(printed.replace("/tmp/rocketmq/msgbodys", str(tmp_path)))
    if command == "queryMsgById":
        options = ["-i", theirs[0].split()[-1]]
    else:
        options = ["-t", "AdmTopic", "-i", "C00002024F615FFD2B27677C15230000"]
    assert main(["admin", command, "-n", nameserver, *options]) == 0
    ours = lines(capsys.readouterr().out)
    for text in (ours, theirs):
        (place,) = (n for n, line in enumerate(text) if line.startswith("Properties:"))
        text[place] = str(sorted(re.split(r"[{}, ]+", text[place])))
    assert ours == theirs
    assert (tmp_path / "C00002024F615FFD2B27677C15230000").read_bytes() == b"b0"


def test_a_members_queues_as_mqadmin_prints(
    replay: Callable[[str], tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    nameserver, printed = replay("consumerStatus")
    options = ["-n", nameserver, "-g", "admg", "-i", "192.0.2.2@20321#2797810206825"]
    assert main(["admin", "consumerStatus", *options]) == 0
    ours, theirs = lines(capsys.readouterr().out), lines(printed)
    assert len([line for line in ours if "ProcessQueueInfo [" in line]) == 9
    assert [line for line in ours if line not in theirs] == []


def test_consumer_connection_as_mqadmin_prints(
    replay: Callable[[str], tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """mqadmin asks a broker of its choice; the capture's answer came from the second."""
    nameserver, printed = replay("consumerConnection")
    broker = _second_broker(nameserver, capsys)
    assert main(["admin", "consumerConnection", "-n", nameserver, "-g", "admg", "-b", broker]) == 0
    assert capsys.readouterr().out == printed


def _second_broker(nameserver: str, capsys: pytest.CaptureFixture[str]) -> str:
    main(["admin", "topicRoute", "-n", nameserver, "-t", "AdmTopic", "-l"])
    lines = capsys.readouterr().out.splitlines()
    return lines[2].split("{0=")[1].split("}")[0]


def test_broker_status_as_mqadmin_prints(
    replay: Callable[[str], tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    nameserver, printed = replay("brokerStatus")
    broker = _second_broker(nameserver, capsys)
    assert main(["admin", "brokerStatus", "-n", nameserver, "-b", broker]) == 0
    lines = [line[25:] for line in printed.splitlines() if line.startswith(broker)]
    assert capsys.readouterr().out.splitlines() == lines


def test_allocation_has_mqadmins_shape_and_real_members_shares() -> None:
    capture = CAPTURES["allocateMQ"]
    route = fastjson.read(TopicRouteData, capture["replies"][0]["body"].encode())
    ours = allocation_json("AdmTopic", route, ["c2", "c1"])
    theirs = json.loads(capture["printed"])["result"]
    result = json.loads(ours)["result"]
    assert [len(result[client]) for client in ("c1", "c2")] == [len(theirs["c1"]), 4]
    assert list(result["c1"][0]) == list(theirs["c1"][0])
    assert ours == (
        '{"result":{'
        + ",".join(
            f'"{client}":['
            + ",".join(
                f'{{"brokerName":"{broker}","queueId":{queue},"topic":"AdmTopic"}}'
                for queue in range(4)
            )
            + "]"
            for client, broker in (("c1", "TestBrokerName_0"), ("c2", "TestBrokerName_1"))
        )
        + "}}\n"
    )


def one_broker(queues: int) -> TopicRouteData:
    return TopicRouteData(
        queue_datas=(QueueData("broker-c", queues, queues, 6),),
        broker_datas=(BrokerData("DefaultCluster", "broker-c", {0: "127.0.0.1:10911"}),),
    )


@pytest.mark.parametrize(
    ("queues", "clients", "sizes"),
    [
        (16, 1, [16]),
        (16, 2, [8, 8]),
        (16, 3, [6, 5, 5]),
        (10, 3, [4, 3, 3]),
        (5, 2, [3, 2]),
        (2, 4, [1, 1, 0, 0]),
    ],
)
def test_allocations_of_the_seeds(queues: int, clients: int, sizes: list[int]) -> None:
    names = [f"ip{number}" for number in range(clients)]
    result = json.loads(allocation_json("T", one_broker(queues), names))["result"]
    assert [len(result[name]) for name in names] == sizes
    held = [queue["queueId"] for name in names for queue in result[name]]
    assert held == list(range(queues))


def test_progress_with_client_ips() -> None:
    """The table of seed 001, whose columns are those of an mqadmin with -s true."""
    offsets = {("%RETRY%group_X", 0): 0} | {
        ("Topic_S", queue): offset for queue, offset in enumerate((3, 1, 5, 3))
    }
    table = {
        MessageQueue(topic, "broker-c", queue): OffsetWrapper(offset, offset)
        for (topic, queue), offset in offsets.items()
    }
    holders = {MessageQueue("Topic_S", "broker-c", 2): "10.0.0.1@7#8"}
    progress = group_progress("group_X", table, 1.005, holders)
    lines = progress_table(progress, show_client_ip=True).splitlines()
    assert lines[0] == (
        f"{'#Topic':<64}  {'#Broker Name':<32}  #QID  {'#Broker Offset':<20}  "
        f"{'#Consumer Offset':<20}  {'#Client IP':<20} {'#Diff':<20}  #LastTime"
    )
    assert [line.split() for line in lines[1:6]] == [
        ["%RETRY%group_X", "broker-c", "0", "0", "0", "N/A", "0", "N/A"],
        ["Topic_S", "broker-c", "0", "3", "3", "N/A", "0", "N/A"],
        ["Topic_S", "broker-c", "1", "1", "1", "N/A", "0", "N/A"],
        ["Topic_S", "broker-c", "2", "5", "5", "10.0.0.1", "0", "N/A"],
        ["Topic_S", "broker-c", "3", "3", "3", "N/A", "0", "N/A"],
    ]
    assert lines[6:] == ["", "Consume TPS: 1.01", "Diff Total: 0"]


def test_route_list() -> None:
    row = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}"
    assert route_table(one_broker(4)).splitlines() == [
        row.format(
            "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"
        ),
        row.format("DefaultCluster", "broker-c", "{0=127.0.0.1:10911}", 4, 4, 6),
        "-" * 158,
        row.format("Total:", 1, "", 4, 4, ""),
    ]


def test_topic_config() -> None:
    assert topic_config_line(TopicConfig("AdmT2", 8, 8)) == (
        "TopicConfig [topicName=AdmT2, readQueueNums=8, writeQueueNums=8, perm=RW-, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false]"
    )


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (0, "V3_0_0_SNAPSHOT"),
        (15, "V3_0_0_FINAL"),
        (37, "V3_0_11"),
        (121, "V3_4_9"),
        (232, "V4_1_0_SNAPSHOT"),
        (401, "V4_9_4"),
        (409, "V4_9_8"),
        (413, "V5_0_0"),
        (479, "V5_3_3"),
        (612, "HIGHER_VERSION"),
        (100_000, "HIGHER_VERSION"),
        (-1, "HIGHER_VERSION"),
    ],
)
def test_version_names(ordinal: int, name: str) -> None:
    assert printing.version_name(ordinal) == name


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.0, 2, "0.00"),
        (1.005, 2, "1.01"),
        (0.3, 4, "0.3000"),
        (1e-9, 2, "0.00"),
        (123456.789, 1, "123456.8"),
    ],
)
def test_java_decimals(value: float, digits: int, text: str) -> None:
    assert printing.fixed(value, digits) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ([], "[]"),
        ({"a": []}, '{\n\t"a":[]\n}'),
        ({0: "x", 1: "y"}, '{0:"x",1:"y"\n}'),
        ({"a": ["x", "y"]}, '{\n\t"a":[\n\t\t"x",\n\t\t"y"\n\t]\n}'),
        ({"a": True, "b": "ü"}, '{\n\t"a":true,\n\t"b":"ü"\n}'),
    ],
)
def test_pretty(value: object, text: str) -> None:
    assert printing.pretty(value) == text
