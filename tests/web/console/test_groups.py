"""Groups of both dialects as the console shows them, beside what their own clients know."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.waiting import until
from tests.web.console.asking import Events, ask, in_path, read
from tests.web.console.conftest import Consoles
from tests.web.test_cluster import told

from steelyard import Admin, Producer, PullConsumer, PushConsumer
from steelyard.errors import RouteError
from steelyard.types import MessageQueue
from steelyard.wire.remoting.message import MessageView


def member(consoles: Consoles, group: str, topic: str, protocol: str = "classic") -> Consumer:
    """A member that is in the group."""
    settings: dict[str, Any] = {
        "bootstrap.servers": consoles.servers.bootstrap,
        "group.id": group,
        "client.id": f"client-of-{group}",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.1) is not None and consumer.assignment())
    return consumer


def created(nameserver: str, topic: str) -> list[MessageQueue]:
    """The queues of a new topic, on both brokers."""
    with Admin(nameserver) as admin:
        brokers = admin.create_topic(topic, queues=4)

        def queues() -> list[MessageQueue]:
            try:
                return list(admin.queues(topic))
            except RouteError:
                return []

        until(lambda: len(queues()) == 4 * len(brokers))
        return queues()


def protocols(address: str, group: str) -> list[str]:
    return [one["protocol"] for one in read(address, "groups")["groups"] if one["name"] == group]


def state_in_list(address: str, group: str) -> str:
    """The state of a group; empty while the console does not know the group."""
    groups = read(address, "groups")["groups"]
    return next((str(one["state"]) for one in groups if one["name"] == group), "")


def has_ends(address: str, path: str) -> bool:
    return all(queue["end"] for queue in read(address, path)["queues"])


def shares(picture: Any) -> dict[str, set[str]]:
    """The keys of the queues that each member owns."""
    found: dict[str, set[str]] = {one["id"]: set() for one in picture["members"]}
    for queue in picture["queues"]:
        if queue["owner"] is not None:
            found[queue["owner"]].add(queue["key"])
    return found


@pytest.mark.parametrize(
    ("protocol", "shown"), [("classic", "classic: range"), ("consumer", "consumer: uniform")]
)
def test_a_kafka_group_is_what_its_members_say(
    consoles: Consoles, protocol: str, shown: str
) -> None:
    group = f"stock/{protocol} 100%"  # as hostile to paths as names may be
    topic = consoles.servers.topic(f"orders-{protocol}", 4)
    consoles.servers.fill(topic, range(80))
    consumer = member(consoles, group, topic, protocol)
    committed = {0: 3, 1: 20, 2: 0}
    consumer.commit(
        offsets=[TopicPartition(topic, number, at) for number, at in committed.items()],
        asynchronous=False,
    )
    for address in (consoles.http, consoles.kafka):
        path = f"groups/{in_path('kafka', group)}"
        # The console looks once a second who leads what, so that it may not know a new topic yet.
        until(partial(has_ends, address, path))
        picture = read(address, path)
        (one,) = picture["members"]
        mine = {f"{each.topic}/{each.partition}" for each in consumer.assignment()}
        assert shares(picture) == {consumer.memberid(): mine}
        assert one["client_id"] == f"client-of-{group}"
        assert (one["assigned"], one["state"], one["waited_for"]) == (4, "stable", False)
        assert (picture["state"], picture["protocol"]) == ("Stable", shown)
        assert picture["rebalance"] is None
        for queue in picture["queues"]:
            partition = TopicPartition(topic, queue["queue"])
            _, end = consumer.get_watermark_offsets(partition, 30)
            at = committed.get(queue["queue"])
            assert (queue["committed"], queue["end"]) == (at, end)
            assert queue["lag"] == end - (at or 0), "without a commit, from the first message"
        assert read(address, f"groups/{in_path('kafka', group)}/lag")["queues"].keys() <= mine
    waits = {
        queue["queue"]: queue["wait_ms"]
        for queue in read(consoles.http, f"groups/{in_path('kafka', group)}")["queues"]
    }
    assert waits[0] > 0
    assert waits[1] == 0  # all of it is committed
    lines = {
        (line["dialect"], line["name"]): line
        for line in until(lambda: read(consoles.http, "groups"))["groups"]
    }
    line = lines["kafka", group]
    assert (line["members"], line["topics"], line["lag"]) == (1, [topic], 17 + 0 + 20 + 20)
    assert line["oldest_wait_ms"] > 0
    consumer.close()


def test_a_rebalance_is_shown_while_it_lasts(consoles: Consoles) -> None:
    """A member that does not poll holds up the group: the console says that it waits for it, and why."""
    topic = consoles.servers.topic("slow", 2)
    consoles.servers.fill(topic, range(4), partitions=2)
    sleeper = member(consoles, "sleepy", topic)
    path = f"groups/{in_path('kafka', 'sleepy')}"
    with Events(consoles.http, "kafka/sleepy") as events:
        seen = iter(events)
        while next(seen)[0] != "group":
            pass
        other = Consumer(
            {
                "bootstrap.servers": consoles.servers.bootstrap,
                "group.id": "sleepy",
                "client.id": "newcomer",
                "auto.offset.reset": "earliest",
            }
        )
        other.subscribe([topic])
        other.poll(0.1)
        while True:
            event, picture = next(seen)
            if event == "group" and picture["rebalance"] is not None:
                break
        assert picture["state"] == "PreparingRebalance"
        rebalance = picture["rebalance"]
        assert rebalance["waits_for"] == [sleeper.memberid()]
        assert "newcomer" in rebalance["reason"]
        assert f"It waits for client-of-sleepy ({'127.0.0.1'}): JoinGroup" in rebalance["text"]
        states = {one["client_id"]: one["state"] for one in picture["members"]}
        assert states == {"client-of-sleepy": "joining", "newcomer": "waiting"}
        assert read(consoles.http, path)["state"] == "PreparingRebalance"

        def is_listed_as_rebalancing() -> bool:
            lines = read(consoles.http, "groups")["groups"]
            return any(one["rebalancing"] for one in lines if one["name"] == "sleepy")

        until(is_listed_as_rebalancing)  # a list may be a second old

        def both_have_some() -> bool:
            sleeper.poll(0.05)
            other.poll(0.05)
            return all(len(one.assignment()) == 1 for one in (sleeper, other))

        until(both_have_some)
        while True:
            event, picture = next(seen)
            if event == "group" and picture["state"] == "Stable" and len(picture["members"]) == 2:
                break
        assert picture["rebalance"] is None
        assert {len(keys) for keys in shares(picture).values()} == {1}
        while True:
            event, row = next(seen)
            if event == "rebalance" and len(row["members_after"]) == 2:
                break
        assert row["trigger"] == "joined"
    sleeper.close()
    other.close()


def test_a_rocketmq_group_is_what_its_members_say(consoles: Consoles) -> None:
    received: dict[bytes, dict[str, set[str]]] = {}
    nameserver = consoles.servers.nameservers

    def consumer(client_id: str) -> PushConsumer:
        def listener(one: MessageView) -> None:
            key = f"{one.topic}/{one.broker_name}/{one.queue_id}"
            received[one.body][client_id].add(key)

        return PushConsumer("buyers", nameserver, listener, client_id=client_id).subscribe("Goods")

    with (
        Producer("makers", nameserver) as producer,
        PullConsumer("auditors", nameserver) as auditor,
    ):
        queues = created(nameserver, "Goods")

        def agree() -> bool:
            """Send one message to each queue: who gets it is who the console says that has the queue."""
            body = b"round %d" % len(received)
            received[body] = {"10.0.0.1@x": set(), "10.0.0.2@y": set()}
            for queue in queues:
                producer.send("Goods", body, queue=queue)
            until(lambda: sum(map(len, received[body].values())) >= len(queues))
            picture = read(consoles.http, "groups/rocketmq/buyers")
            return picture["rebalance"] is None and shares(picture) == received[body]

        with consumer("10.0.0.1@x"), consumer("10.0.0.2@y"):
            until(lambda: agree() and all([*received.values()][-1].values()))
            picture = read(consoles.http, "groups/rocketmq/buyers")
            assert (picture["state"], picture["protocol"]) == ("Stable", "push concurrent")
            assert [one["version"] for one in picture["members"]] == ["PYTHON 4.9.8"] * 2

            def has_ends() -> bool:
                """Figures of the console may be half a second old."""
                return all(
                    one["end"]
                    == auditor.max_offset(MessageQueue("Goods", one["broker"], one["queue"]))
                    for one in read(consoles.http, "groups/rocketmq/buyers")["queues"]
                )

            until(has_ends)

            def is_consumed() -> bool:
                found = read(consoles.http, "groups/rocketmq/buyers")["queues"]
                return all(queue["lag"] == 0 for queue in found)

            until(is_consumed)
            line = next(
                line for line in read(consoles.http, "groups")["groups"] if line["name"] == "buyers"
            )
            assert (line["members"], line["lag"], line["topics"]) == (2, 0, ["Goods"])
            # A console that nobody has asked for the group learns its protocol by itself.
            until(lambda: "push concurrent" in protocols(consoles.changing, "buyers"))
        for _ in range(30):
            producer.send("Goods", b"late")  # nobody is there

    def waiting() -> int:
        found = read(consoles.http, "groups/rocketmq/buyers")
        return sum(queue["lag"] for queue in found["queues"])

    until(lambda: waiting() == 30)
    picture = read(consoles.http, "groups/rocketmq/buyers")
    assert (picture["state"], picture["members"], picture["protocol"]) == ("Empty", [], None)
    findings = read(consoles.http, "groups/rocketmq/buyers/doctor")["findings"]
    with Admin(nameserver) as admin:
        diagnoses = admin.diagnose("buyers")
    assert [(one["text"], one["what_to_do"]) for one in findings] == [
        (one.what, one.advice) for one in diagnoses
    ]
    assert [(one["severity"], one["title"]) for one in findings] == [("error", "Nobody")]


HUNG = """
import sys
from steelyard import PushConsumer
with PushConsumer(sys.argv[1], sys.argv[2], lambda _: None).subscribe(sys.argv[3]):
    sys.stdin.read()
"""


def test_a_member_that_hangs_makes_its_group_degraded(consoles: Consoles) -> None:
    """It counts as a member for two minutes, and nobody reads its queues."""
    nameserver, group = consoles.servers.nameservers, "sleepers"
    queues = created(nameserver, "Pillows")

    def picture() -> Any:
        return read(consoles.http, f"groups/rocketmq/{group}")

    command = [sys.executable, "-c", HUNG, group, nameserver, "Pillows"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            consumer = PushConsumer(group, nameserver, lambda _: None, client_id="10.0.0.1@awake")
            with consumer.subscribe("Pillows"):
                half = len(queues) // 2
                until(lambda: sorted(map(len, shares(picture()).values())) == [half, half])
                process.send_signal(signal.SIGSTOP)
                # Nobody has asked this console for the group: it learns it for its list.
                until(lambda: state_in_list(consoles.changing, group) == "Degraded")
                until(lambda: picture()["state"] == "Degraded")
                until(lambda: state_in_list(consoles.http, group) == "Degraded")
                told = picture()
                assert told["rebalance"] is None
                states = {one["id"]: one["state"] for one in told["members"]}
                assert states.pop("10.0.0.1@awake") == "stable"
                ((hung, state),) = states.items()
                assert state == "silent"
                assert re.fullmatch(
                    rf"{re.escape(hung)} has not answered for \d+ s;"
                    rf" {half} of {len(queues)} queues are probably not read\.",
                    told["warning"],
                )
                process.send_signal(signal.SIGCONT)
                until(lambda: state_in_list(consoles.changing, group) == "Stable")
                until(lambda: (picture()["state"], picture()["warning"]) == ("Stable", None))
        finally:
            process.kill()  # a stopped process does not end otherwise


def test_members_that_have_nothing_to_commit_are_counted(consoles: Consoles) -> None:
    nameserver = consoles.servers.nameservers
    created(nameserver, "Silence")
    consumer = PushConsumer("listeners", nameserver, lambda one: None)
    with consumer.subscribe("Silence"):

        def members() -> list[int]:
            groups = read(consoles.http, "groups")["groups"]
            return [one["members"] for one in groups if one["name"] == "listeners"]

        until(lambda: members() == [1])


def test_the_history_is_that_of_the_ledger(consoles: Consoles) -> None:
    """Each figure of each rebalance is what the ledger's job computes from all records."""
    nameserver = consoles.servers.nameservers
    read_by: list[set[MessageQueue]] = [set(), set()]

    def consumer(number: int) -> PushConsumer:
        return PushConsumer(
            "crew",
            nameserver,
            lambda one: read_by[number].add(one.queue),
            client_id=f"10.0.0.{number}@crew",
        ).subscribe("Tasks")

    with (
        Producer("makers", nameserver) as producer,
        PullConsumer("auditors", nameserver) as auditor,
    ):
        queues = created(nameserver, "Tasks")

        def reads(number: int, count: int) -> bool:
            for queue in queues:
                producer.send("Tasks", b"more", queue=queue)
            time.sleep(0.1)
            return len(read_by[number]) >= count

        def agree() -> bool:
            truth = told(auditor, "crew")
            shown = read(consoles.http, "groups/rocketmq/crew/rebalances")
            return bool(truth) and [figures(one) for one in shown["rebalances"]] == [
                (
                    *(row.rebalance, row.started_at, row.trigger, row.reason),
                    *(list(row.members_before), list(row.members_after), row.queues_moved),
                    *(row.pause_max_ms, row.pause_p50_ms, row.reprocessed_min),
                    *(row.reprocessed_max, row.rebalance_ms),
                )
                for row in reversed(truth)
            ]

        with consumer(0):
            until(lambda: reads(0, len(queues)))
            with consumer(1):
                until(lambda: reads(1, len(queues) // 2))
                until(agree)
        until(agree)
    shown = read(consoles.http, "groups/rocketmq/crew/rebalances")
    assert shown["source"] == "ledger"
    assert shown["note"].startswith("Since 20")
    assert any(one["moved"] for one in shown["rebalances"])
    keys = {f"Tasks/{queue.broker_name}/{queue.queue_id}" for queue in queues}
    for one in shown["rebalances"]:
        assert {each["queue"] for each in one["handoffs"]} <= keys
        assert len(one["handoffs"]) >= one["moved"]
    latest = read(consoles.http, "groups/rocketmq/crew/rebalances", limit=1)["rebalances"]
    assert latest == shown["rebalances"][:1]

    def listed_at() -> list[int]:
        groups = read(consoles.http, "groups")["groups"]
        return [one["last_rebalance_at"] for one in groups if one["name"] == "crew"]

    until(lambda: listed_at() == [latest[0]["at"]])


def figures(one: Any) -> tuple[object, ...]:
    names = ("id", "at", "trigger", "reason", "members_before", "members_after", "moved")
    costs = ("pause_ms", "pause_p50_ms", "reprocessed", "reprocessed_upper", "took_ms")
    return tuple(one[name] for name in (*names, *costs))


def test_what_is_seen_through_kafkas_protocol_alone(consoles: Consoles) -> None:
    topic = consoles.servers.topic("watched", 2)
    consoles.servers.fill(topic, range(4), partitions=2)
    path = "groups/kafka/seen/rebalances"
    first = member(consoles, "seen", topic)
    assert read(consoles.kafka, path)["rebalances"] == []
    second = Consumer(
        {
            "bootstrap.servers": consoles.servers.bootstrap,
            "group.id": "seen",
            "auto.offset.reset": "earliest",
        }
    )
    second.subscribe([topic])

    def both_have_some() -> bool:
        first.poll(0.05)
        second.poll(0.05)
        return all(len(one.assignment()) == 1 for one in (first, second))

    until(both_have_some)
    found = until(lambda: read(consoles.kafka, path)["rebalances"])
    assert found[0]["trigger"] == "joined"
    assert set(found[0]["members_after"]) == {first.memberid(), second.memberid()}
    assert (found[0]["pause_ms"], found[0]["confidence"]) == (None, "observed")
    answer = read(consoles.kafka, path)
    assert answer["source"] == "observed"
    assert "keeps no ledger" in answer["note"]
    assert read(consoles.kafka, "cluster")["kind"] == "apache-kafka"
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("groups/kafka/nobody", "nobody"),
        ("groups/rocketmq/nobody", "there is no RocketMQ group nobody"),
        ("groups/rocketmq/nobody/doctor", "there is no RocketMQ group nobody"),
        ("groups/kafka/nobody/doctor", "nobody"),
        ("groups/kafka/nobody/rebalances", "nobody"),
        ("groups/kafka/nobody/lag", "nobody"),
        ("groups/kafka/nobody/what-if", "nobody"),
        ("topics/kafka/nothing", "there is no topic nothing"),
        ("topics/rocketmq/nothing", "nothing"),
        ("messages?dialect=kafka&topic=nothing", "there is no topic nothing"),
        ("messages?dialect=rocketmq&topic=nothing", "nothing"),
    ],
)
def test_what_does_not_exist(consoles: Consoles, path: str, words: str) -> None:
    found = ask(consoles.http, path)
    assert found.status == 404, found
    assert words in found.body["error"]


def test_a_cluster_without_nameservers_has_one_dialect(consoles: Consoles) -> None:
    found = ask(consoles.kafka, "groups/rocketmq/g")
    assert found.status == 404
    assert "Kafka's protocol" in found.body["error"]
