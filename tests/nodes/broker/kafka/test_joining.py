"""Who may join a cluster: names, node ids and addresses are one broker's at a time."""

from __future__ import annotations

import msgspec
import pytest
from tests.nodes.broker.kafka.brokers import Brokers

from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.broker.peers.joining import (
    LOOK_AGAIN_MS,
    SUSPECTS_MAX,
    AwaitRefusal,
    BrokerIdentity,
    clash,
)
from steelyard.nodes.broker.peers.requests import IDENTIFY
from steelyard.nodes.seam import Answer, Asked
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import ClusterInfo
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.names import MASTER_ID


def node(brokers: Brokers, place: str) -> BrokerNode:
    found = brokers.processes[place].node
    assert isinstance(found, BrokerNode)
    return found


def refusal(brokers: Brokers, place: str) -> str:
    """Why the broker was refused, empty where it was not."""
    effects = node(brokers, place).handle(Asked(1, AwaitRefusal()), brokers.now)
    return "".join(str(effect.result) for effect in effects if isinstance(effect, Answer))


def listed(brokers: Brokers) -> dict[str, str]:
    """Where the nameserver says that each broker is."""
    reply = brokers.command("nameserver", RequestCode.GET_BROKER_CLUSTER_INFO, {})
    table = fastjson.read(ClusterInfo, reply.body).broker_addr_table
    return {name: data.broker_addrs[MASTER_ID] for name, data in sorted(table.items())}


def has_joined(brokers: Brokers, place: str) -> bool:
    reply = brokers.command(
        place, IDENTIFY, {}, msgspec.json.encode(BrokerIdentity("x", "x", "x:1"))
    )
    return msgspec.json.decode(reply.body, type=BrokerIdentity).joined


@pytest.mark.parametrize(
    ("name", "node_id", "kafka", "text"),
    [
        ("broker-b", 9, "", "the broker name broker-b is in use by the broker at broker-b:10911"),
        ("other", 2, "", "the Kafka node id 2 is in use by the broker broker-b at broker-b:10911"),
        ("other", 9, "broker-b:9092", "the Kafka address broker-b:9092 is in use by the broker"),
    ],
    ids=["name", "node id", "Kafka address"],
)
def test_a_double_is_refused_and_never_listed(
    name: str, node_id: int, kafka: str, text: str
) -> None:
    """1. A cluster runs. 2. A broker starts with what is another's: it is refused before anybody hears of it."""
    brokers = Brokers("broker-a", "broker-b")
    brokers.advance(LOOK_AGAIN_MS)
    before = listed(brokers)
    brokers.start(name, node_id, place="double", kafka=kafka)
    assert refusal(brokers, "double").startswith(text)
    assert "stop the other" in refusal(brokers, "double")
    brokers.advance(90_000)
    assert listed(brokers) == before
    assert (refusal(brokers, "broker-a"), refusal(brokers, "broker-b")) == ("", "")
    told = brokers.metadata("broker-a").brokers
    assert [(each.node_id, each.host) for each in told] == [(1, "broker-a"), (2, "broker-b")]


def test_a_remoting_address_in_use_is_refused() -> None:
    """The double's own listener is elsewhere: what it tells clients is the other's."""
    brokers = Brokers("broker-a")
    brokers.advance(LOOK_AGAIN_MS)
    brokers.start("other", 9, place="double", remoting="broker-a:10911")
    assert refusal(brokers, "double").startswith(
        "the address broker-a:10911 is in use by the broker broker-a: give this one another --port"
    )
    assert listed(brokers) == {"broker-a": "broker-a:10911"}


def test_a_killed_broker_is_let_in_again_at_another_address_while_its_old_one_is_listed() -> None:
    """1. broker-b dies, and the nameserver has not heard of it. 2. It starts elsewhere: nobody is at the old address."""
    brokers = Brokers("broker-a", "broker-b")
    process = brokers.processes["broker-b"]
    process.addresses.clear()  # nobody listens any more, and no link was closed
    brokers.processes["gone"] = brokers.processes.pop("broker-b")
    process.timers.clear()
    assert listed(brokers)["broker-b"] == "broker-b:10911"
    brokers.start("broker-b", 2, place="elsewhere")
    assert refusal(brokers, "elsewhere") == ""
    assert listed(brokers)["broker-b"] == "elsewhere:10911"
    brokers.advance(2 * LOOK_AGAIN_MS)
    assert has_joined(brokers, "elsewhere")


def test_a_restart_at_the_same_address_is_no_double() -> None:
    brokers = Brokers("broker-a", "broker-b")
    brokers.kill("broker-b")
    brokers.start("broker-b")
    brokers.advance(2 * LOOK_AGAIN_MS)
    assert refusal(brokers, "broker-b") == ""
    assert has_joined(brokers, "broker-b")


def test_a_broker_that_accepts_connections_and_does_not_answer_is_there() -> None:
    brokers = Brokers("broker-a")
    brokers.advance(LOOK_AGAIN_MS)
    brokers.lost = lambda command: command.code == IDENTIFY
    brokers.start("broker-a", 9, place="double")
    assert refusal(brokers, "double") == ""
    brokers.advance(6_000)
    assert "broker-a is in use" in refusal(brokers, "double")
    assert listed(brokers) == {"broker-a": "broker-a:10911"}


def test_a_broker_that_does_not_know_the_question_is_there() -> None:
    """As Apache's: 9007 is answered with `not supported`."""
    brokers = Brokers("broker-a")
    brokers.advance(LOOK_AGAIN_MS)
    del node(brokers, "broker-a")._remoting._handlers[IDENTIFY]
    brokers.start("broker-a", 9, place="double")
    assert "broker-a is in use" in refusal(brokers, "double")


@pytest.mark.parametrize("later_ms", [0, 300])
def test_of_two_that_start_together_the_first_stays(later_ms: int) -> None:
    """1. Both look before either is registered: what the nameserver answers is held up. 2. Both register; each finds
    the other a second later. 3. The one that started first stays, of the same millisecond the lower address."""
    brokers = Brokers()
    brokers.late = lambda command: command.code == RequestCode.GET_BROKER_CLUSTER_INFO
    brokers.start("broker-a", 1, place="first")
    brokers.advance(later_ms)
    brokers.start("broker-a", 2, place="second")
    assert listed(brokers) == {}
    brokers.release()
    assert len(listed(brokers)) == 1
    brokers.advance(3 * LOOK_AGAIN_MS)
    assert refusal(brokers, "first") == ""
    assert "broker-a is in use by the broker at first:10911" in refusal(brokers, "second")
    assert listed(brokers) == {"broker-a": "first:10911"}
    assert has_joined(brokers, "first")


def test_of_two_node_ids_that_start_together_the_first_stays() -> None:
    brokers = Brokers()
    brokers.late = lambda command: command.code == RequestCode.GET_BROKER_CLUSTER_INFO
    brokers.start("broker-a", 7)
    brokers.start("broker-b", 7)
    brokers.release()
    brokers.advance(3 * LOOK_AGAIN_MS)
    assert refusal(brokers, "broker-a") == ""
    assert "node id 7 is in use by the broker broker-a" in refusal(brokers, "broker-b")


def test_a_restarted_nameserver_stops_nobody() -> None:
    brokers = Brokers("broker-a", "broker-b")
    brokers.advance(LOOK_AGAIN_MS)
    brokers.kill("nameserver")
    brokers.advance(10_000)
    brokers.start_nameserver()
    brokers.advance(60_000)
    assert listed(brokers) == {"broker-a": "broker-a:10911", "broker-b": "broker-b:10911"}
    assert (refusal(brokers, "broker-a"), refusal(brokers, "broker-b")) == ("", "")


def test_a_double_that_started_without_a_nameserver_stops_when_there_is_one() -> None:
    """1. A broker runs, its nameserver dies. 2. A double starts: it cannot know, and serves. 3. The nameserver is back:
    whoever registers first, the one that had joined stays."""
    brokers = Brokers("broker-a")
    brokers.advance(LOOK_AGAIN_MS)
    assert has_joined(brokers, "broker-a")
    brokers.kill("nameserver")
    brokers.start("broker-a", 1, place="double")
    brokers.advance(5_000)
    assert refusal(brokers, "double") == ""
    brokers.start_nameserver()
    brokers.advance(120_000)
    assert refusal(brokers, "broker-a") == ""
    assert "broker-a is in use by the broker at broker-a:10911" in refusal(brokers, "double")


def test_a_claim_stops_nobody_who_has_joined() -> None:
    """Anybody may send 9007: it changes nothing."""
    brokers = Brokers("broker-a")
    brokers.advance(LOOK_AGAIN_MS)
    claim = BrokerIdentity("broker-a", "DefaultCluster", "broker-x:10911", 1, "broker-x:9092", 0)
    for _ in range(2 * SUSPECTS_MAX):
        brokers.command("broker-a", IDENTIFY, {}, msgspec.json.encode(claim))
    brokers.advance(60_000)
    assert refusal(brokers, "broker-a") == ""


def test_claims_of_nobody_stop_no_broker_that_starts() -> None:
    """1. While a broker starts, more claims come than it keeps, for addresses where nobody is. 2. It joins."""
    brokers = Brokers("broker-a")
    brokers.kill("broker-a")
    brokers.start("broker-a")
    for number in range(2 * SUSPECTS_MAX):
        claim = BrokerIdentity("broker-a", "DefaultCluster", f"broker-{number}:10911")
        brokers.command("broker-a", IDENTIFY, {}, msgspec.json.encode(claim))
    brokers.advance(3 * LOOK_AGAIN_MS)
    assert refusal(brokers, "broker-a") == ""
    assert has_joined(brokers, "broker-a")


def test_nonsense_is_an_error_of_the_one_who_asks() -> None:
    brokers = Brokers("broker-a")
    assert brokers.command("broker-a", IDENTIFY, {}, b"{").code != 0


ME = BrokerIdentity("a", "c", "h:1", 1, "h:2")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (BrokerIdentity("b", "c", "h:3", 2, "h:4"), ""),
        (BrokerIdentity("a", "d", "h:3", 2, "h:4"), "broker name a"),
        (BrokerIdentity("b", "d", "h:1", 2, "h:4"), "address h:1"),
        (BrokerIdentity("b", "c", "h:3", 1, "h:4"), "node id 1"),
        (BrokerIdentity("b", "c", "h:3", 2, "h:2"), "Kafka address h:2"),
        (BrokerIdentity("b", "d", "h:3", 1, "h:2"), ""),
        (BrokerIdentity("b", "c", "h:3", 1), ""),
        (BrokerIdentity("b", "c", "h:3"), ""),
    ],
)
def test_what_two_brokers_may_not_share(other: BrokerIdentity, words: str) -> None:
    text = clash(ME, other)
    assert words in text
    assert bool(text) == bool(words)
