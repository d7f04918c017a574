"""Pulls of Java's consumers that wait at the broker while an operator, or the consumer itself, changes what they may get."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from tests.peers.apache import NEW, NEW_SERVER, OLD, OLD_SERVER, Peer, free_port
from tests.peers.conftest import Running, create_topic
from tests.peers.kafka import servers
from tests.peers.ours import now_ms
from tests.waiting import until

from steelyard import Admin

pytestmark = pytest.mark.peer


class Alone(NamedTuple):
    """One broker of ours at which nobody pulls but the consumers of one test."""

    cluster: Running
    admin: Admin

    def wait_parked(self, number: int) -> None:
        """Until so many pulls wait. A push consumer has one for each queue, and one for that of its retry topic."""
        (address,) = self.cluster.brokers.values()

        def parked() -> bool:
            return int(self.admin.runtime(address)["pullThreadPoolQueueSize"]) == number

        until(parked, f"{number} pulls wait")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    port = free_port()
    with (
        servers.run_steelyard(
            tmp_path_factory.mktemp("alone"), "--broker-port", str(port)
        ) as running,
        Admin(running.nameserver) as admin,
    ):
        brokers = {"broker-a": f"127.0.0.1:{port}"}
        yield Alone(Running("steelyard", running.nameserver, brokers), admin)


@pytest.mark.parametrize(
    ("old", "new", "options"),
    [("tag0", "tag1", {}), ("number = 0", "number = 1 OR number > 3", {"sql": True})],
    ids=["TAG", "SQL92"],
)
def test_a_new_expression_gets_what_came_while_the_old_one_waited(
    alone: Alone, peer: Peer, name: str, old: str, new: str, options: dict[str, object]
) -> None:
    """1. A pull waits for what the old expression wants. 2. It passes over what comes. 3. The new one wants that.

    Apache's brokers lose it: they read again by the new expression, and Java drops what does not fit the old one.
    """
    create_topic(alone.cluster, peer, name, queues=1)
    peer.ask("producer", f"{name}p", alone.cluster.nameserver, f"{name}pg")
    peer.ask("consumer", f"{name}c", alone.cluster.nameserver, f"{name}g", name, old, **options)
    alone.wait_parked(2)
    peer.ask("send", f"{name}p", name, "s", 1, 1, 60)
    alone.wait_parked(2)
    peer.ask("subscribe", f"{name}c", name, new, **options)
    until(lambda: peer.numbers(f"{name}c") == [1], "what the old expression did not want")
    peer.ask("send", f"{name}p", name, "s", 3, 2, 60)
    until(lambda: 4 in peer.numbers(f"{name}c"), "what the new expression wants")
    peer.ask("stop", f"{name}c")
    peer.ask("stop", f"{name}p")
    assert peer.numbers(f"{name}c") == [1, 4]
    alone.wait_parked(0)


# -- operators -------------------------------------------------------------------------------------


class Change(NamedTuple):
    """What an operator forbids and allows again by mqadmin, and the queues that it is about."""

    command: str
    forbid: tuple[object, ...]
    allow: tuple[object, ...]
    queues: frozenset[int] = frozenset(range(4))

    def words(self, cluster: Running, name: str, options: tuple[object, ...]) -> tuple[object, ...]:
        of = ("-g", f"{name}g") if self.command == "updateSubGroup" else ("-t", name)
        return (self.command, "-n", cluster.nameserver, "-c", "DefaultCluster", *of, *options)


FOUR = ("-r", 4, "-w", 4)
CHANGES = {
    "group": Change("updateSubGroup", ("-s", "false"), ("-s", "true")),
    "permission": Change("updateTopic", (*FOUR, "-p", 2), (*FOUR, "-p", 6)),
    "queues": Change("updateTopic", ("-r", 1, "-w", 4), FOUR, frozenset({1, 2, 3})),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_forbidden_while_pulls_wait_comes_when_it_is_allowed_again(
    cluster: Running, peer: Peer, name: str, change: str
) -> None:
    """1. A consumer has read all, and its pulls wait. 2. mqadmin forbids it to read. 3. Messages come. 4. It may again."""
    asked = CHANGES[change]
    create_topic(cluster, peer, name)
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    peer.ask("consumer", f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    each = len(cluster.brokers) * 4
    peer.ask("send", f"{name}p", name, "s", 0, each, 60)
    until(lambda: {*peer.numbers(f"{name}c")} == {*range(each)}, "what was sent before")
    peer.mqadmin(*asked.words(cluster, name, asked.forbid))
    peer.ask("send", f"{name}p", name, "s", each, 2 * each, 60)
    peer.mqadmin("topicStatus", "-n", cluster.nameserver, "-t", name)  # longer than an answer takes
    allowed_at = now_ms()
    peer.mqadmin(*asked.words(cluster, name, asked.allow))
    until(lambda: {*peer.numbers(f"{name}c")} == {*range(3 * each)}, "all that was sent")
    early = [
        event
        for event in peer.received(f"{name}c")
        if int(event["properties"]["number"]) >= each
        and event["queue"] in asked.queues
        and event["began"] < allowed_at
    ]
    peer.ask("stop", f"{name}c")
    peer.ask("stop", f"{name}p")
    assert early == []


def test_a_topic_is_deleted_and_made_again_while_pulls_wait(
    cluster: Running, peer: Peer, name: str
) -> None:
    """The consumer goes on without being started again; its offsets are beyond the end at first."""
    create_topic(cluster, peer, name)
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    peer.ask("consumer", f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    peer.ask("send", f"{name}p", name, "s", 0, 40, 60)
    until(lambda: {*peer.numbers(f"{name}c")} == {*range(40)}, "what was sent before")
    peer.mqadmin("deleteTopic", "-n", cluster.nameserver, "-c", "DefaultCluster", "-t", name)
    create_topic(cluster, peer, name)
    sent = 40

    def goes_on() -> bool:
        nonlocal sent
        peer.ask("send", f"{name}p", name, "s", sent, 8, 60)
        sent += 8
        places = {
            (event["broker"], event["queue"])
            for event in peer.received(f"{name}c")
            if int(event["properties"]["number"]) >= 40
        }
        return len(places) == len(cluster.brokers) * 4

    until(goes_on, "messages of all queues of the new topic")
    peer.ask("send", f"{name}p", name, "s", sent, 16, 60)
    until(
        lambda: {*peer.numbers(f"{name}c")} >= {*range(sent, sent + 16)},
        "each message of the new topic",
    )
    peer.ask("stop", f"{name}c")
    peer.ask("stop", f"{name}p")


def test_a_group_is_deleted_while_its_pulls_wait(cluster: Running, peer: Peer, name: str) -> None:
    """Its members register it again; nothing is lost, and nothing comes twice."""
    create_topic(cluster, peer, name)
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    peer.ask("consumer", f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    peer.ask("send", f"{name}p", name, "s", 0, 20, 60)
    until(lambda: {*peer.numbers(f"{name}c")} == {*range(20)}, "what was sent before")
    peer.mqadmin(
        *("deleteSubGroup", "-n", cluster.nameserver, "-c", "DefaultCluster"),
        *("-g", f"{name}g", "-r", "true"),
    )
    peer.ask("send", f"{name}p", name, "s", 20, 20, 60)
    until(lambda: {*peer.numbers(f"{name}c")} >= {*range(40)}, "what was sent after")
    peer.ask("stop", f"{name}c")
    peer.ask("stop", f"{name}p")
    assert sorted(peer.numbers(f"{name}c")) == list(range(40))


@pytest.mark.parametrize("removes", [False, True], ids=["keeps", "removes"])
@pytest.mark.parametrize(
    ("kind", "version"),
    [("apache_old", OLD), ("apache", NEW), ("steelyard", OLD), ("steelyard", NEW)],
    ids=[f"apache-{OLD_SERVER}", f"apache-{NEW_SERVER}", f"steelyard-{OLD}", f"steelyard-{NEW}"],
)
def test_a_group_is_deleted_with_its_offsets(
    request: pytest.FixtureRequest,
    peers: dict[str, Peer],
    name: str,
    kind: str,
    version: str,
    *,
    removes: bool,
) -> None:
    """`mqadmin deleteSubGroup -r true`; 4.9 and 5.x call it by different names, and each of Apache's knows its own only."""
    cluster: Running = request.getfixturevalue(f"{kind}_cluster")
    java = peers[version]
    create_topic(cluster, java, name)
    java.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    java.ask("send", f"{name}p", name, "s", 0, 12, 60)

    def read(consumer: str, done: Callable[[], bool]) -> None:
        java.ask("consumer", consumer, cluster.nameserver, f"{name}g", name, "*")
        until(done, f"{consumer} reads")
        java.ask("stop", consumer)

    read(f"{name}c", lambda: sorted(java.numbers(f"{name}c")) == list(range(12)))
    words = ("deleteSubGroup", "-n", cluster.nameserver, "-c", "DefaultCluster", "-g", f"{name}g")
    java.mqadmin(*words, *(("-r", "true") if removes else ()))
    java.ask("send", f"{name}p", name, "s", 12, 8, 60)
    expected = list(range(0 if removes else 12, 20))
    read(f"{name}d", lambda: {*java.numbers(f"{name}d")} >= {*expected})
    java.ask("stop", f"{name}p")
    assert sorted(java.numbers(f"{name}d")) == expected
