"""The real mqadmin, 4.9.8 and 5.3.3, asks `steelyard up`; `steelyard admin` prints what mqadmin 4.9.8 prints."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.peers.apache import NEW, OLD, Peer, java_environment
from tests.peers.conftest import STEELYARD, Running
from tests.waiting import PATIENCE_S, until

from steelyard import PullConsumer, aio
from steelyard.client.administration.apache_requests import ApacheCode
from steelyard.errors import BrokerError
from steelyard.types import MessageQueue
from steelyard.wire.remoting.codes import ResponseCode

pytestmark = pytest.mark.peer

_serial = count(1)


class Scene(NamedTuple):
    """A topic of two queues a broker with eight messages, all consumed by a group of one Java 4.9.8 member."""

    cluster: Running
    topic: str
    group: str
    client_id: str
    java: Peer


def play(cluster: Running, java: Peer) -> Scene:
    name = f"scene{next(_serial)}{cluster.kind.replace('.', '_')}"
    java.mqadmin(
        "updateTopic",
        "-n",
        cluster.nameserver,
        "-c",
        "DefaultCluster",
        "-t",
        name,
        "-r",
        2,
        "-w",
        2,
    )
    java.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    java.ask("send", f"{name}p", name, "s", 0, 8, 60)
    words = (
        "consumer",
        f"{name}c",
        cluster.nameserver,
        f"{name}g",
        name,
        "tag0||tag1||tag2",
    )
    client_id = java.ask(*words)["client_id"]
    scene = Scene(cluster, name, f"{name}g", client_id, java)

    def consumed() -> bool:
        answer = java.ask(
            "mqadmin", "consumerProgress", "-n", cluster.nameserver, "-g", scene.group
        )
        lines = [line.split() for line in answer["text"].splitlines() if line.startswith(name)]
        return len(lines) == 2 * len(cluster.brokers) and all(line[5] == "0" for line in lines)

    until(consumed, "offsets of all queues committed")
    return scene


@pytest.fixture(scope="module")
def scene(steelyard_cluster: Running, peers: dict[str, Peer]) -> Iterator[Scene]:
    scene = play(steelyard_cluster, peers[OLD])
    yield scene
    scene.java.ask("stop", f"{scene.topic}p")
    scene.java.ask("stop", f"{scene.topic}c")


@pytest.fixture(scope="module")
def apache_scene(apache_cluster: Running, peers: dict[str, Peer]) -> Iterator[Scene]:
    scene = play(apache_cluster, peers[OLD])
    yield scene
    scene.java.ask("stop", f"{scene.topic}p")
    scene.java.ask("stop", f"{scene.topic}c")


def rows(text: str, first: str) -> list[list[str]]:
    """The words of the lines that begin with `first`."""
    return [line.split() for line in text.splitlines() if line.startswith(first)]


# -- the real mqadmin, both versions ----------------------------------------------------------------


def test_topic_route(scene: Scene, peer: Peer) -> None:
    text = peer.mqadmin("topicRoute", "-n", scene.cluster.nameserver, "-t", scene.topic)
    route = json.loads(text.replace("{0:", '{"0":'))
    assert {data["brokerName"]: data["brokerAddrs"] for data in route["brokerDatas"]} == {
        name: {"0": address} for name, address in scene.cluster.brokers.items()
    }
    assert [
        (data["brokerName"], data["readQueueNums"], data["writeQueueNums"], data["perm"])
        for data in sorted(route["queueDatas"], key=lambda data: data["brokerName"])
    ] == [(name, 2, 2, 6) for name in sorted(scene.cluster.brokers)]


def test_topic_status(scene: Scene, peer: Peer) -> None:
    text = peer.mqadmin("topicStatus", "-n", scene.cluster.nameserver, "-t", scene.topic)
    lines = rows(text, "broker-")
    assert [line[:3] for line in lines] == [
        [name, str(queue), "0"] for name in sorted(scene.cluster.brokers) for queue in (0, 1)
    ]
    assert sum(int(line[3]) for line in lines) == 8
    assert all(line[4].startswith("20") for line in lines if line[3] != "0")


def test_consumer_connection(scene: Scene, peer: Peer) -> None:
    text = peer.mqadmin("consumerConnection", "-n", scene.cluster.nameserver, "-g", scene.group)
    (line,) = rows(text, scene.client_id)
    assert line[2:] == ["JAVA", "V4_9_8"]
    assert rows(text, scene.topic) == [[scene.topic, "tag0||tag1||tag2"]]
    assert rows(text, "%RETRY%") == [[f"%RETRY%{scene.group}", "*"]]
    assert "ConsumeType: CONSUME_PASSIVELY" in text
    assert "MessageModel: CLUSTERING" in text
    assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in text


def test_consumer_progress(scene: Scene, peer: Peer) -> None:
    text = peer.mqadmin("consumerProgress", "-n", scene.cluster.nameserver, "-g", scene.group)
    lines = rows(text, scene.topic)
    assert [line[1:3] for line in lines] == [
        [name, str(queue)] for name in sorted(scene.cluster.brokers) for queue in (0, 1)
    ]
    assert sum(int(line[3]) for line in lines) == sum(int(line[4]) for line in lines) == 8
    assert "Diff Total: 0" in text


def test_consumer_progress_of_all_groups(scene: Scene, peer: Peer) -> None:
    text = peer.mqadmin("consumerProgress", "-n", scene.cluster.nameserver)
    assert rows(text, f"{scene.group} ") == [
        [scene.group, "1", "V4_9_8", "PUSH", "CLUSTERING", "0", "0"]
    ]


def test_allocate_mq(scene: Scene, peer: Peer) -> None:
    words = ("allocateMQ", "-n", scene.cluster.nameserver, "-t", scene.topic, "-i", "c1,c2,c3")
    result = json.loads(peer.mqadmin(*words))["result"]
    every = [
        (queue["brokerName"], queue["queueId"]) for member in result.values() for queue in member
    ]
    assert sorted(map(len, result.values())) == [1, 1, 2]
    assert sorted(every) == [
        (name, queue) for name in sorted(scene.cluster.brokers) for queue in (0, 1)
    ]


def test_cluster_list(scene: Scene, peer: Peer) -> None:
    lines = rows(peer.mqadmin("clusterList", "-n", scene.cluster.nameserver), "DefaultCluster")
    assert [line[:4] for line in lines] == [
        ["DefaultCluster", name, "0", address]
        for name, address in sorted(scene.cluster.brokers.items())
    ]


def test_update_topic(scene: Scene, peer: Peer, name: str) -> None:
    for address in scene.cluster.brokers.values():
        words = ("updateTopic", "-n", scene.cluster.nameserver, "-b", address, "-t", name)
        assert f"create topic to {address} success." in peer.mqadmin(
            *words, "-r", 5, "-w", 4, "-p", 4
        )
    route = json.loads(
        peer.mqadmin("topicRoute", "-n", scene.cluster.nameserver, "-t", name).replace(
            "{0:", '{"0":'
        )
    )
    assert {
        (data["readQueueNums"], data["writeQueueNums"], data["perm"])
        for data in route["queueDatas"]
    } == {(5, 4, 4)}


def test_unknown_names_are_said_to_be_unknown(scene: Scene, peer: Peer) -> None:
    nameserver = ("-n", scene.cluster.nameserver)
    answer = peer.ask("mqadmin", "topicRoute", *nameserver, "-t", "NoSuchTopic")
    assert "No topic route info in name server for the topic: NoSuchTopic" in answer["errors"]
    answer = peer.ask("mqadmin", "consumerConnection", *nameserver, "-g", "NoSuchGroup")
    assert "name server for the topic: %RETRY%NoSuchGroup" in answer["errors"]


# -- `steelyard admin` beside mqadmin 4.9.8 ---------------------------------------------------------


def ours(*words: str) -> str:
    """What `steelyard admin` prints."""
    done = subprocess.run(
        [STEELYARD, "admin", *words],
        env=java_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


COMMANDS = {
    "topicRoute": ("topicRoute", "-t", "{topic}"),
    "topicStatus": ("topicStatus", "-t", "{topic}"),
    "consumerConnection": ("consumerConnection", "-g", "{group}"),
    "consumerProgress": ("consumerProgress", "-g", "{group}"),
    "consumerProgress of all": ("consumerProgress",),
    "allocateMQ": ("allocateMQ", "-t", "{topic}", "-i", "c1,c2,c3"),
    "clusterList": ("clusterList",),
    "updateTopic": ("updateTopic", "-c", "DefaultCluster", "-t", "{topic}", "-r", "2", "-w", "2"),
    "updateTopicPerm": ("updateTopicPerm", "-b", "{broker}", "-t", "{topic}", "-p", "6"),
    "updateTopicPerm of all": (
        *("updateTopicPerm", "-c", "DefaultCluster"),
        *("-t", "{topic}", "-p", "6"),
    ),
    "getConsumerConfig": ("getConsumerConfig", "-g", "{group}"),
    "queryMsgByOffset": (
        *("queryMsgByOffset", "-t", "{topic}", "-b", "broker-a"),
        *("-i", "0", "-o", "0"),
    ),
    "queryCq": ("queryCq", "-t", "{topic}", "-q", "1", "-i", "0", "-b", "{broker}"),
    "cleanUnusedTopic": ("cleanUnusedTopic", "-b", "{broker}"),
    "cleanExpiredCQ": ("cleanExpiredCQ", "-c", "DefaultCluster"),
    "deleteExpiredCommitLog": ("deleteExpiredCommitLog", "-b", "{broker}"),
}

OF_APACHE = ("queryCq", "cleanExpiredCQ", "deleteExpiredCommitLog")
"""Commands whose requests our brokers do not answer."""


LINE_PER_ENTRY = (
    *("consumerConnection", "consumerProgress", "updateTopic", "updateTopicPerm"),
    "getConsumerConfig",
)
"""Commands that print a line for each entry of a HashMap or HashSet."""

ONE_WORD = ("cleanUnusedTopic", "cleanExpiredCQ", "deleteExpiredCommitLog")
"""Commands with which mqadmin forgets the line feed."""

OF_THE_PULL = re.compile("(MIN|MAX)_OFFSET=")
"""Properties that Java's pull adds to a message and no broker has."""


def _fields(line: str) -> list[str]:
    """The words of a line of a message, whose properties are in the order of a HashMap."""
    words = re.split("[ ,{}]+", line.strip())
    return sorted(word for word in words if not OF_THE_PULL.match(word))


def comparable(command: str, text: str) -> object:
    """The text without what depends on the order of a Java HashMap or HashSet."""
    if command in LINE_PER_ENTRY:
        return sorted(text.splitlines())
    if command == "allocateMQ":  # mqadmin, unlike a consumer, allocates a HashSet of queues
        members = sorted(json.loads(text)["result"].items())
        queues = [tuple(queue.items()) for _, share in members for queue in share]
        return [(member, len(share)) for member, share in members], sorted(queues)
    if command == "queryMsgByOffset":  # of tracks, a line for each group, mqadmin words the errors
        return [_fields(line) for line in text.partition("\n\n")[0].splitlines()]
    if command in ONE_WORD:
        return text.strip()
    return text


def same_text(scene: Scene, words: tuple[str, ...]) -> None:
    """Ask both until they say the same: rates, and which broker is asked, may differ between two runs."""
    broker = scene.cluster.brokers["broker-a"]
    command = [word.format(topic=scene.topic, group=scene.group, broker=broker) for word in words]
    command += ["-n", scene.cluster.nameserver]
    texts: list[object] = ["", "-"]

    def same() -> bool:
        texts[:] = [comparable(words[0], scene.java.mqadmin(*command))]
        texts.append(comparable(words[0], ours(*command)))
        return texts[0] == texts[1]

    try:
        until(same, "the same text")
    except AssertionError:
        assert texts[1] == texts[0]


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_steelyard_admin_prints_the_same_of_steelyard(scene: Scene, words: tuple[str, ...]) -> None:
    if words[0] in OF_APACHE:
        pytest.skip("the request is not answered by brokers of ours")
    same_text(scene, words)


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_steelyard_admin_prints_the_same_of_apache(
    apache_scene: Scene, words: tuple[str, ...]
) -> None:
    if words == COMMANDS["clusterList"]:
        lines = rows(ours(*words, "-n", apache_scene.cluster.nameserver), "DefaultCluster")
        address = apache_scene.cluster.brokers["broker-a"]
        assert [line[:5] for line in lines] == [
            ["DefaultCluster", "broker-a", "0", address, "V5_3_3"]
        ]
        return  # mqadmin 4.9.8 dies of a statistic that 5.x has renamed
    same_text(apache_scene, words)


# -- commands that cannot be asked twice, or that change something ----------------------------------


@pytest.fixture(params=["scene", "apache_scene"])
def any_scene(request: pytest.FixtureRequest) -> Scene:
    found: Scene = request.getfixturevalue(request.param)
    return found


def test_the_backlogs_of_a_broker(any_scene: Scene, peers: dict[str, Peer]) -> None:
    """A JVM of mqadmin can run it once: it keeps the client that it has shut down."""
    cluster = any_scene.cluster
    command = ["brokerConsumeStats", "-n", cluster.nameserver, "-b", cluster.brokers["broker-a"]]
    java = peers[OLD if cluster.kind == "steelyard" else NEW]
    text = java.mqadmin(*command)
    assert rows(text, any_scene.topic)
    until(lambda: sorted(ours(*command).splitlines()) == sorted(text.splitlines()), "the same text")


def test_offsets_are_cloned_to_the_same_places(any_scene: Scene) -> None:
    nameserver = ("-n", any_scene.cluster.nameserver)
    targets = [f"{any_scene.group}{name}" for name in ("theirs", "ours")]
    for target in targets:  # without settings 5.x refuses what mqadmin commits
        words = ("updateSubGroup", *nameserver, "-c", "DefaultCluster", "-g", target)
        any_scene.java.mqadmin(*words)
    clone = ("cloneGroupOffset", *nameserver, "-s", any_scene.group, "-t", any_scene.topic, "-d")
    texts = [any_scene.java.mqadmin(*clone, targets[0]), ours(*clone, targets[1])]
    assert texts[0].strip().replace(targets[0], targets[1]) == texts[1].strip()

    def committed(group: str) -> dict[MessageQueue, int | None]:
        with PullConsumer(group, any_scene.cluster.nameserver) as consumer:
            return {queue: consumer.committed(queue) for queue in consumer.queues(any_scene.topic)}

    assert committed(targets[1]) == committed(targets[0])
    assert sum(offset or 0 for offset in committed(targets[1]).values()) == 8


class Refused(aio.Admin):
    """Asks brokers as if they did not have the request for the rows of a queue."""

    async def ask(self, address: str, code: int, *rest: Any, **options: Any) -> Any:
        if code == ApacheCode.QUERY_CONSUME_QUEUE:
            raise BrokerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "", address)
        return await super().ask(address, code, *rest, **options)


def test_rows_computed_from_messages_are_those_of_apaches_index(apache_scene: Scene) -> None:
    async def rows_of(kind: type[aio.Admin]) -> object:
        broker = apache_scene.cluster.brokers["broker-a"]
        async with kind(apache_scene.cluster.nameserver) as admin:
            return await admin.consume_queue(apache_scene.topic, 1, 1, broker=broker, count=3)

    found = [asyncio.run(rows_of(kind)) for kind in (aio.Admin, Refused)]
    assert found[0] == found[1]


def test_exports_have_the_same_tables(any_scene: Scene, tmp_path: Path) -> None:
    tables = []
    for name in ("theirs", "ours"):
        folder = str(tmp_path / name)
        words = ("exportMetadata", "-n", any_scene.cluster.nameserver, "-c", "DefaultCluster")
        ask = any_scene.java.mqadmin if name == "theirs" else ours
        text = ask(*words, "-f", folder)
        assert text.strip() == f"export {folder}/metadata.json success"
        tables.append(json.loads((tmp_path / name / "metadata.json").read_text()))
        del tables[-1]["exportTime"]
    for config in tables[1]["topicConfigTable"].values():
        del config["attributes"]  # of 5.x
    assert tables[1] == tables[0]


def test_sends_are_reported_alike(any_scene: Scene) -> None:
    nameserver = ("-n", any_scene.cluster.nameserver)
    for command in (
        ("sendMsgStatus", *nameserver, "-b", "broker-a", "-c", "3", "-s", "100"),
        ("checkMsgSendRT", *nameserver, "-t", any_scene.topic, "-a", "4", "-s", "10"),
    ):
        texts = [any_scene.java.mqadmin(*command), ours(*command)]
        theirs, own = (re.sub(r"[0-9A-F]{32,}|\d+(\.\d\d)?", "0", text) for text in texts)
        assert sorted(own.split()) == sorted(theirs.split())


def test_lists_reach_brokers_of_both_lines(
    any_cluster: Running, peers: dict[str, Peer], name: str, tmp_path: Path
) -> None:
    """Those of 4.9 do not take them: each entry is sent by itself."""
    where = ("-n", any_cluster.nameserver, "-c", "DefaultCluster", "-f")
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text(json.dumps([{"topicName": name, "readQueueNums": 3, "writeQueueNums": 2}]))
    groups.write_text(json.dumps([{"groupName": name, "retryMaxTimes": 7}]))
    masters = sorted(any_cluster.brokers.values())
    for command, file in (("updateTopicList", topics), ("updateSubGroupList", groups)):
        lines = ours(command, *where, str(file)).splitlines()
        assert sorted(line.split()[-7] for line in lines) == masters
    java = peers[OLD]

    def made() -> bool:
        table = java.mqadmin("topicRoute", "-n", any_cluster.nameserver, "-t", name, "-l")
        return [line.split()[-3:] for line in table.splitlines() if " broker-" in line] == [
            ["3", "2", "6"] for _ in masters
        ]

    until(made, "the topic's route")
    text = java.mqadmin("getConsumerConfig", "-n", any_cluster.nameserver, "-g", name)
    assert [line.split()[-1] for line in rows_of_setting(text, "retryMaxTimes")] == ["7"] * len(
        masters
    )


def rows_of_setting(text: str, setting: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"{setting} ")]


def test_consume_modes(apache_scene: Scene, peers: dict[str, Peer]) -> None:
    words = (
        *("setConsumeMode", "-n", apache_scene.cluster.nameserver, "-c", "DefaultCluster"),
        *("-t", apache_scene.topic, "-g", apache_scene.group, "-q", "2", "-m"),
    )
    for mode in ("POP", "PULL"):
        text = ours(*words, mode)
        assert text.strip() == peers[NEW].mqadmin(*words, mode).strip()
