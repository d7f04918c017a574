"""The real mqadmin, 4.9.8 and 5.3.3, asks `steelyard up`; `steelyard admin` prints what mqadmin 4.9.8 prints."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import pytest
from tests.peers.apache import OLD, Peer, java_environment
from tests.peers.conftest import STEELYARD, Running
from tests.waiting import PATIENCE_S, until

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
}


def comparable(command: str, text: str) -> object:
    """The text without what depends on the order of a Java HashMap or HashSet."""
    if command in ("consumerConnection", "consumerProgress", "updateTopic"):  # a line per entry
        return sorted(text.splitlines())
    if (
        command == "allocateMQ"
    ):  # mqadmin, unlike a consumer, allocates the queues as its HashSet has them
        members = sorted(json.loads(text)["result"].items())
        queues = [tuple(queue.items()) for _, share in members for queue in share]
        return [(member, len(share)) for member, share in members], sorted(queues)
    return text


def same_text(scene: Scene, words: tuple[str, ...]) -> None:
    """Ask both until they say the same: rates, and which broker is asked, may differ between two runs."""
    command = [word.format(topic=scene.topic, group=scene.group) for word in words]
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
