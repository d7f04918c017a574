"""A broker that does not answer is named, and the exit code says that something is missing; documents of `--json`.

Two brokers run; one of them advertises an address at which nobody listens, as behind a wrong `--advertise`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.admin.processes import NOBODY, start
from tests.api.conftest import Servers
from tests.waiting import until

from steelyard import Admin, Producer, PullConsumer
from steelyard.admin import exits
from steelyard.admin.main import main
from steelyard.config import BrokerConfig
from steelyard.types import MessageQueue

TOPIC, GROUP = "Reached", "reached"
HERE = MessageQueue(TOPIC, "broker-a", 0)
CLUSTER = ("-c", "DefaultCluster")


class Reached(NamedTuple):
    """Addresses, and the id of a message at the broker that answers."""

    nameserver: str
    broker: str
    message_id: str


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    data = tmp_path_factory.mktemp("brokers")
    servers = [start("nameserver", "--port", "0", "--json")]
    try:
        nameserver = _ready(servers[0])["nameserver"]
        common = ("--port", "0", "--json", "--nameserver", nameserver)
        servers.append(start("broker", "--name", "broker-a", "--data", str(data / "a"), *common))
        broker = _ready(servers[1])["broker"]
        created = ("-b", broker, "-t", TOPIC, "-r", "1", "-w", "1")
        assert main(["admin", "updateTopic", "-n", nameserver, *created]) == exits.SUCCESS
        with Producer("reaching", nameserver) as producer:
            sent = producer.send(TOPIC, b"one", keys="k")
        assert main(["admin", "updateSubGroup", "-n", nameserver, "-b", broker, "-g", GROUP]) == 0
        _commit(nameserver)
        servers.append(_lost(data, common))
        with Admin(nameserver) as admin:
            until(
                lambda: "broker-b" in admin.clusters().broker_addr_table, "broker-b's registration"
            )
        yield Reached(nameserver, broker, sent.message_id)
    finally:
        for server in servers:
            server.terminate()
            server.communicate(timeout=60)


def _ready(process: Any) -> dict[str, str]:
    ready: dict[str, str] = json.loads(process.stdout.readline())
    return ready


def _commit(nameserver: str) -> None:
    """Nothing is consumed: the group has the offset 0 of the only message."""
    with PullConsumer(GROUP, nameserver) as consumer:
        consumer.commit(HERE, 0)


def _lost(data: Path, common: tuple[str, ...]) -> Any:
    """A broker whose address leads nowhere."""
    process = start(
        *("broker", "--name", "broker-b", "--data", str(data / "b"), *common),
        *("--advertise", NOBODY),
    )
    _ready(process)
    return process


READS = {
    "clusterList": (),
    "brokerStatus": CLUSTER,
    "getBrokerConfig": CLUSTER,
    "topicStatus": ("-t", "TBW102"),
    "consumerProgress": (),
    "kafkaGroups": (),
    "kafkaGroup": ("-g", "nobody"),
    "statsAll": (),
    "getConsumerConfig": ("-g", GROUP),
}
"""Commands that ask all brokers, at least those of a topic that both have."""


@pytest.mark.parametrize("command", READS)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_a_broker_that_does_not_answer_is_named(
    reached: Reached, capsys: pytest.CaptureFixture[str], command: str, form: tuple[str, ...]
) -> None:
    capsys.readouterr()
    code = main(["admin", command, "-n", reached.nameserver, *READS[command], *form])
    printed = capsys.readouterr()
    assert code == exits.UNREACHABLE, printed
    (line,) = printed.err.splitlines()
    said = f"broker broker-b at {NOBODY} did not answer: cannot connect to {NOBODY}"
    assert said in line
    if command == "kafkaGroup":
        assert printed.out == ""  # the broker that is missing may coordinate the group
    elif form:
        (missing,) = json.loads(printed.out)["unreachable"]
        assert (missing["broker_name"], missing["address"]) == ("broker-b", NOBODY)
        assert missing["error"] in line
        assert not missing["refused"]
    else:
        assert printed.out


def test_a_broker_that_refuses_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever is not an administrator gets no figures."""
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts:\n- {accessKey: the-brokers, secretKey: theirs-is, admin: true}\n")
    accounts = BrokerConfig(acl_file=str(file), acl_access_key="the-brokers")
    servers = Servers(tmp_path, accounts)
    command = ["admin", "clusterList", "-n", servers.nameservers]
    assert main(command) == exits.UNREACHABLE
    printed = capsys.readouterr()
    first, second = printed.err.splitlines()
    assert " refused: code 16 from " in first
    assert "steelyard: broker broker-" in second
    assert "broker-a" in printed.out
    assert main([*command, "--json"]) == exits.UNREACHABLE
    document = json.loads(capsys.readouterr().out)
    address = document["brokers"][0]["address"]
    assert main(["admin", "brokerStatus", "-n", servers.nameservers, "-b", address]) == 1
    assert capsys.readouterr().err.endswith(
        "wants an AccessKey; set STEELYARD_ACCESS_KEY and STEELYARD_SECRET_KEY\n"
    )
    assert [broker["figures"] for broker in document["brokers"]] == [{}, {}]
    assert [broker["refused"] for broker in document["unreachable"]] == [True, True]
    servers.stop()


def test_what_the_others_said_is_printed(
    reached: Reached, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["admin", "brokerStatus", "-n", reached.nameserver, *CLUSTER, "--json"])
    (broker,) = json.loads(capsys.readouterr().out)["brokers"]
    assert broker["address"] == reached.broker
    assert broker["figures"]["brokerVersionDesc"] == "V4_9_8"


DOCUMENTS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "topicRoute": (
        ("-t", TOPIC),
        {"topic", "queue_datas", "broker_datas", "order_topic_conf", "filter_server_table"},
    ),
    "topicStatus": (("-t", TOPIC), {"queues"}),
    "topicList": (("-c",), {"topics"}),
    "topicClusterList": (("-t", TOPIC), {"topic", "clusters"}),
    "consumerProgress": (
        ("-g", GROUP),
        {"group", "consume_tps", "lag", "lag_seconds", "queues"},
    ),
    "allocateMQ": (("-t", TOPIC, "-i", "one"), {"topic", "shares"}),
    "queryMsgByKey": (("-t", TOPIC, "-k", "k"), {"messages"}),
    "queryMsgByUniqueKey": (("-t", TOPIC, "-i", "ID"), {"messages"}),
    "wipeWritePerm": (("-b", "broker-b"), {"broker_name", "nameservers"}),
    "addWritePerm": (("-b", "broker-b"), {"broker_name", "nameservers"}),
    "updateTopic": (("-b", "BROKER", "-t", "Made"), {"brokers", "config"}),
    "updateSubGroup": (("-b", "BROKER", "-g", "made"), {"brokers", "config"}),
    "deleteSubGroup": (("-b", "BROKER", "-g", "made"), {"group", "cluster", "brokers"}),
    "updateOrderConf": (
        ("-m", "put", "-t", TOPIC, "-v", "broker-a:1"),
        {"topic", "order_conf"},
    ),
    "resetOffsetByTime": (("-g", GROUP, "-t", TOPIC, "-s", "0"), {"group", "queues"}),
    "getBrokerConfig": (("-b", "BROKER"), {"brokers"}),
    "updateTopicPerm": (
        ("-b", "BROKER", "-t", TOPIC, "-p", "6"),
        {"topic", "perm", "brokers"},
    ),
    "brokerConsumeStats": (("-b", "BROKER"), {"address", "lag", "queues"}),
    "queryMsgByOffset": (
        ("-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "0"),
        {"messages"},
    ),
    "queryCq": (
        ("-t", TOPIC, "-q", "0", "-i", "0"),
        {
            *("broker", "topic", "queue_id", "min_offset", "max_offset", "subscription", "filter"),
            "rows",
        },
    ),
    "cloneGroupOffset": (
        ("-s", GROUP, "-d", "cloned", "-t", TOPIC),
        {"source", "group", "topic", "queues"},
    ),
    "cleanUnusedTopic": (("-b", "BROKER"), {"brokers"}),
    "sendMsgStatus": (("-b", "broker-a", "-c", "1"), {"broker_name", "sends"}),
    "checkMsgSendRT": (("-t", "broker-a", "-a", "2"), {"topic", "average_ms", "sends"}),
    "exportMetadata": (("-b", "BROKER", "-f", "FOLDER"), {"path", "topics", "groups"}),
}


@pytest.mark.parametrize("command", DOCUMENTS)
def test_a_document(
    reached: Reached, capsys: pytest.CaptureFixture[str], command: str, tmp_path: Path
) -> None:
    """Stable names, and no broker missing that was not needed."""
    options, names = DOCUMENTS[command]
    places = {"BROKER": reached.broker, "ID": reached.message_id, "FOLDER": str(tmp_path)}
    given = [places.get(option, option) for option in options]
    capsys.readouterr()
    code = main(["admin", command, "-n", reached.nameserver, *given, "--json"])
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document.keys() == names | {"unreachable"}
    if command != "topicList":  # it asks for the groups of TBW102, which both brokers have
        assert (code, printed.err, document["unreachable"]) == (exits.SUCCESS, "", [])


def test_sends_that_fail_are_counted(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    """The measurement goes on; the exit code tells of them."""
    capsys.readouterr()
    command = ["admin", "clusterRT", "-n", reached.nameserver, "-a", "2"]
    assert main([*command, "--json"]) == exits.FAILED
    first, second = json.loads(capsys.readouterr().out)["brokers"]
    assert (first["broker_name"], first["succeeded"], first["failed"]) == ("broker-a", 2, 0)
    assert (second["broker_name"], second["succeeded"], second["failed"]) == ("broker-b", 0, 2)
    assert NOBODY in second["error"]
    command = ["admin", "checkMsgSendRT", "-n", reached.nameserver, "-t", "DefaultCluster"]
    assert main([*command, "-a", "32"]) == exits.FAILED
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:-1]]
    assert {(row[0], row[2]) for row in rows} == {("broker-a", "true"), ("broker-b", "false")}


def test_how_old_the_oldest_message_is(
    reached: Reached, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    main(["admin", "consumerProgress", "-n", reached.nameserver, "-g", GROUP, "--json"])
    document = json.loads(capsys.readouterr().out)
    (queue,) = (queue for queue in document["queues"] if queue["topic"] == TOPIC)
    assert (queue["broker_name"], queue["queue_id"], queue["lag"]) == ("broker-a", 0, 1)
    assert 0 < queue["lag_seconds"] == document["lag_seconds"] < 600
    main(["admin", "consumerProgress", "-n", reached.nameserver, "-g", GROUP, "--seconds"])
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[-2:] == ["#LastTime", "#Seconds"]
    (line,) = (line for line in lines if line.startswith(f"{TOPIC} "))
    assert float(line.split()[-1]) >= queue["lag_seconds"] - 0.1


@pytest.mark.parametrize(
    "command", ["topicList", "clusterList", "consumerProgress", "kafkaGroups", "statsAll"]
)
def test_no_broker_at_all_is_no_empty_table(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start("nameserver", "--port", "0", "--json")
    try:
        address = _ready(server)["nameserver"]
        assert main(["admin", command, "-n", address]) == exits.FAILED
    finally:
        server.terminate()
        server.communicate(timeout=60)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "steelyard: no broker is registered with the nameserver\n"
