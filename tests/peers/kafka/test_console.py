"""The console of a cluster that is reached by Kafka's protocol, Apache's and ours, beside what librdkafka's clients say."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.admin.processes import run
from tests.peers.kafka import builds
from tests.peers.kafka.servers import Running, run_apache
from tests.peers.kafka.share_members import ShareGroup
from tests.peers.kafka.streams_apps import WordCount, all_tasks
from tests.peers.kafka.test_tools import TOOLS, table, tool
from tests.waiting import until
from tests.web.console.asking import Events, ask, in_path, read
from tests.web.console.conftest import console
from tests.web.console.group_members import ShareReader, streams_threads

from steelyard.config import HttpConfig

pytestmark = pytest.mark.peer


@pytest.fixture
def address(cluster: Running) -> Iterator[str]:
    config = HttpConfig(allow_changes=True, timeout_ms=20_000)
    with console(config, cluster.bootstrap) as found:
        yield found


def topic_of(cluster: Running, name: str, partitions: int) -> str:
    """A new topic with 10 numbers in each partition."""
    client: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap}
    admin = AdminClient(client)
    (made,) = admin.create_topics([NewTopic(name, partitions, 1)]).values()
    made.result(60)
    fill(cluster, name, partitions)
    return name


def fill(cluster: Running, topic: str, partitions: int) -> None:
    """10 numbers in each partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(10 * partitions):
        producer.produce(topic, json.dumps(number), key=f"k{number}", partition=number % partitions)
    assert producer.flush(60) == 0


def member(cluster: Running, group: str, topic: str, protocol: str, client: str) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "client.id": client,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    return consumer


def shares(members: list[Consumer]) -> dict[str, set[str]]:
    return {
        one.memberid() or "": {f"{each.topic}/{each.partition}" for each in one.assignment()}
        for one in members
    }


def shown(picture: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {one["id"]: set() for one in picture["members"]}
    for queue in picture["queues"]:
        if queue["owner"] is not None:
            found[queue["owner"]].add(queue["key"])
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_its_rebalance_and_its_plans(
    cluster: Running, address: str, name: str, protocol: str
) -> None:
    topic = topic_of(cluster, name, 4)
    group = f"{name}-{protocol}"
    path = f"groups/{in_path('kafka', group)}"
    members = [member(cluster, group, topic, protocol, "first")]

    def settled() -> bool:
        for one in members:
            one.poll(0.1)
        found = shares(members)
        return (
            sum(map(len, found.values())) == 4
            and all(found.values())
            and shown(read(address, path)) == found
        )

    until(lambda: members[0].poll(0.1) is not None and members[0].assignment())
    until(settled, (shares(members), ask(address, path)))
    picture = read(address, path)
    assert picture["state"] == "Stable"
    assert picture["protocol"].startswith(f"{protocol}: ")
    assert [one["client_id"] for one in picture["members"]] == ["first"]
    members[0].commit(
        offsets=[TopicPartition(topic, number, number) for number in range(4)], asynchronous=False
    )

    def committed() -> list[int]:
        return [queue["committed"] for queue in read(address, path)["queues"]]

    until(lambda: committed() == [0, 1, 2, 3])  # a picture may be 0.2 s old,
    until(lambda: all(queue["end"] for queue in read(address, path)["queues"]))  # leaders 1 s
    queues = read(address, path)["queues"]
    for queue in queues:
        partition = TopicPartition(topic, queue["queue"])
        _, end = members[0].get_watermark_offsets(partition, 60)
        assert (queue["end"], queue["lag"]) == (end, end - queue["committed"])
    line = next(one for one in read(address, "groups")["groups"] if one["name"] == group)
    assert (line["members"], line["topics"], line["lag"]) == (1, [topic], 40 - 6)

    with Events(address, f"kafka/{group}") as events:
        seen = iter(events)
        members.append(member(cluster, group, topic, protocol, "second"))
        until(settled, "two shares")
        while True:
            event, row = next(seen)
            if event == "rebalance" and len(row["members_after"]) == 2:
                break
    assert row["trigger"] == "joined"
    (found,) = [
        one for one in read(address, f"{path}/rebalances")["rebalances"] if one["id"] == row["id"]
    ]
    assert found["moved"] == len(found["handoffs"]) >= 1
    assert (found["pause_ms"], found["reprocessed"]) == (None, None)

    plans = read(address, f"{path}/what-if", members=4)["results"]
    for plan in plans:
        assert [len(one["queues"]) for one in plan["members"]] == [1, 1, 1, 1], plan
    findings = read(address, f"{path}/doctor")["findings"]
    assert findings == []
    for one in members:
        one.close()
    until(lambda: read(address, path)["members"] == [])
    titles = [one["title"] for one in read(address, f"{path}/doctor")["findings"]]
    assert titles == ["Nobody"]


def test_topics_messages_and_changes(cluster: Running, address: str, name: str) -> None:
    made = ask(
        address, "topics", method="POST", body={"dialect": "kafka", "name": name, "queues": 3}
    )
    assert made.status == 200, made
    client: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap}
    admin = AdminClient(client)
    until(lambda: len(admin.list_topics(name, 60).topics[name].partitions) == 3)
    producer = Producer({**client, "compression.type": "lz4"})
    begun = time.time_ns() // 1_000_000
    for number in range(9):  # no two of the same time, by which the console sorts
        producer.produce(
            name,
            json.dumps({"n": number}),
            key=f"k{number}",
            partition=number % 3,
            timestamp=begun + number,
        )
        assert producer.flush(60) == 0
    lines = until(lambda: [one for one in read(address, "topics")["topics"] if one["name"] == name])
    assert [(one["queues"], one["internal"]) for one in lines] == [(3, False)]
    picture = until(
        lambda: (
            (found := read(address, f"topics/kafka/{name}"))
            and all(queue["end"] == 3 for queue in found["queues"])
            and found
        )
    )
    assert picture["settings"]["cleanup.policy"] == "delete"
    assert all(queue["first_at"] <= queue["last_at"] for queue in picture["queues"])
    found = read(address, "messages", dialect="kafka", topic=name, **{"from": "earliest"})
    assert [one["body"]["text"] for one in found["messages"]] == [
        json.dumps({"n": number}) for number in range(9)
    ]
    assert found["next"] is None
    by_key = read(address, "messages", dialect="kafka", topic=name, key="k4", limit=1)
    assert [one["offset"] for one in by_key["messages"]] == [1]

    group = f"{name}-group"
    consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(name, 0, 3)], asynchronous=False)
    path = f"groups/{in_path('kafka', group)}/reset-offsets"
    body = {"topic": name, "to": found["messages"][3]["stored_at"], "dry_run": False}
    done = ask(address, path, method="POST", body=body)
    assert done.status == 200, done
    places = [TopicPartition(name, number) for number in range(3)]
    committed = [place.offset for place in consumer.committed(places, 60)]
    assert committed == [row["after"] for row in done.body["offsets"]] == [1, 1, 1]
    consumer.close()
    assert ask(address, f"topics/kafka/{name}", method="DELETE").status == 200
    until(lambda: name not in admin.list_topics(timeout=60).topics)


def test_the_cluster(cluster: Running, address: str) -> None:
    view = read(address, "cluster")
    assert view["kind"] == "apache-kafka"
    assert [broker["kafka_address"] for broker in view["brokers"]] == cluster.bootstrap.split(",")
    assert [broker["error"] for broker in view["brokers"]] == [None] * cluster.brokers


# -- streams groups and share groups, of Java's clients --------------------------------------------


def test_a_streams_group(cluster: Running, address: str, name: str, tmp_path: Path) -> None:
    """Two instances of a word count with standbys: their tasks are those that they say they run."""
    setting = "streams.num.standby.replicas=1"
    words = ("--entity-type", "groups", "--entity-name", name, "--alter", "--add-config", setting)
    tool("kafka.admin.ConfigCommand", "--bootstrap-server", cluster.bootstrap, *words)
    path = f"groups/{in_path('kafka', name)}"
    with WordCount(cluster, name, tmp_path) as app:
        app.send()
        app.start("one")
        app.start("two")
        app.wait_shared(all_tasks(4), "one", "two")

        def told(member: Any, kind: str) -> frozenset[str]:
            return frozenset(
                f"{each['subtopology']}_{number}"
                for each in member["tasks"][kind]
                for number in each["partitions"]
            )

        def agree() -> bool:
            """A member is an instance here: each has one thread."""
            active, standby = app.tasks(), app.tasks("standby")
            found = ask(address, path)
            return found.status == 200 and {
                (told(one, "active"), told(one, "standby")) for one in found.body["members"]
            } == {(frozenset(active[each]), frozenset(standby[each])) for each in active}

        until(agree, (app, ask(address, path)))
        app.wait_counted()
        until(lambda: all(q["lag"] == 0 for q in read(address, path)["queues"]), "all committed")
        picture = read(address, path)
        assert (picture["kind"], picture["state"]) == ("streams", "Stable")
        assert picture["generation"] == picture["assignment_epoch"] > 0
        assert len({one["tasks"]["process_id"] for one in picture["members"]}) == 2
        for one in picture["members"]:
            assert one["client_id"].startswith(name)
            assert one["host"] == "127.0.0.1"
        first, second = picture["topology"]["subtopologies"]
        (between,) = first["repartition_sink_topics"]
        assert (first["id"], first["source_topics"]) == ("0", [app.source])
        assert (second["id"], second["repartition_source_topics"]) == ("1", [between])
        assert second["changelog_topics"] == [f"{name}-counts-changelog"]
        rows = {q["task"]: q for q in picture["queues"]}
        assert rows.keys() == all_tasks(4)
        assert {q["topic"] for q in rows.values()} == {app.source, between}
        for task, queue in rows.items():
            assert queue["owner"] is not None
            assert len(queue["standbys"]) == (1 if task.startswith("1_") else 0)
            assert queue["owner"] not in queue["standbys"]

        def listed() -> list[tuple[object, ...]]:
            groups = read(address, "groups")["groups"]
            return [(g["kind"], g["members"], g["lag"]) for g in groups if g["name"] == name]

        until(lambda: listed() == [("streams", 2, 0)])  # a list may be a second old
        app.leave("one")
        until(lambda: len(read(address, path)["members"]) == 1, "one leaves")


def test_a_share_group(cluster: Running, address: str, name: str, tmp_path: Path) -> None:
    """Three members on two partitions: who reads what, start offsets and lag are as Kafka's own tool tells them."""
    topic = topic_of(cluster, name, 2)
    command, server = f"{TOOLS}.consumer.group.ShareGroupCommand", cluster.bootstrap
    with ShareGroup(cluster, topic, tmp_path, settings="share.auto.offset.reset:earliest") as group:
        described = ("--bootstrap-server", server, "--group", group.group, "--describe")
        path = f"groups/{in_path('kafka', group.group)}"
        for each in ("one", "two", "three"):
            group.start(each)
        group.until_all(20)

        def members() -> dict[str, int]:
            head, *rows = [
                line.split()
                for line in tool(command, *described, "--members").splitlines()
                if line.strip()
            ]
            name, count = head.index("CLIENT-ID"), head.index("#PARTITIONS")
            return {row[name]: int(row[count]) for row in rows}

        def agree() -> bool:
            found = read(address, path)
            told = {one["client_id"]: one["assigned"] for one in found["members"]}
            return len(told) == 3 and found["state"] == "Stable" and told == members()

        until(agree, (members(), ask(address, path)))
        until(lambda: sum(len(m.taken) for m in group.members) >= 20, "all are accepted")

        def offsets() -> dict[str, tuple[str, str]]:
            found = table(tool(command, *described, "--offsets"))
            return {row["PARTITION"]: (row["START-OFFSET"], row["LAG"]) for row in found}

        def progress() -> dict[str, tuple[str, str]]:
            return {
                str(queue["queue"]): (str(queue["share_start"]), str(queue["lag"]))
                for queue in read(address, path)["queues"]
            }

        until(lambda: offsets() == progress(), (offsets(), progress()))
        if cluster.nameserver:
            asked = ("consumerProgress", "-n", cluster.nameserver, "-g", group.group, "--json")
            rows = json.loads(run("admin", *asked).stdout)["queues"]
            assert offsets() == {
                str(row["partition"]): (str(row["start_offset"]), str(row["lag"])) for row in rows
            }
        picture = read(address, path)
        assert (picture["kind"], picture["protocol"]) == ("share", "share: simple")
        assert picture["generation"] == picture["assignment_epoch"] > 0
        readers = [queue["readers"] for queue in picture["queues"]]
        assert {len(each) for each in readers} > {1} or all(len(each) > 1 for each in readers)
        assert sum(map(len, readers)) == sum(one["assigned"] for one in picture["members"])
        assert {(q["owner"], q["committed"]) for q in picture["queues"]} == {(None, None)}

        def listed() -> list[tuple[object, ...]]:
            groups = read(address, "groups")["groups"]
            of_group = [one for one in groups if one["name"] == group.group]
            return [(one["kind"], one["members"], one["topics"]) for one in of_group]

        until(lambda: listed() == [("share", 3, [topic])])
        for one in group.members:
            one.leave()
        until(lambda: read(address, path)["state"] == "Empty", "nobody is left")
        body = {"topic": topic, "to": "earliest", "dry_run": False}
        done = ask(address, f"{path}/reset-offsets", method="POST", body=body)
        assert done.status == 200, done
        until(lambda: {q["share_start"] for q in read(address, path)["queues"]} == {0}, "reset")


def findings(cluster: Running, address: str, group: str) -> dict[str, str]:
    """What the doctor says of a group, by the titles; of our brokers, once the command says the same."""
    found = read(address, f"groups/{in_path('kafka', group)}/doctor")["findings"]
    if cluster.nameserver:
        done = run("admin", "doctor", "-n", cluster.nameserver, "-g", group, "--json")
        told = [(one["what"], one["advice"]) for one in json.loads(done.stdout)["findings"]]
        if told != [(one["text"], one["what_to_do"]) for one in found]:
            return {"They differ": f"{told}, {found}"}  # as just before and after a change
    return {one["title"]: one["text"] for one in found}


def test_the_doctor_of_a_streams_group(
    cluster: Running, address: str, name: str, tmp_path: Path
) -> None:
    """1. Two instances run the two tasks. 2. A third has none. 3. They go. 4. The next one has no topic to read: it only sends
    a heartbeat, because Kafka Streams would end."""
    with WordCount(cluster, name, tmp_path, partitions=1) as app:
        app.start("one")
        app.start("two")
        app.wait_shared(all_tasks(1), "one", "two")
        until(lambda: findings(cluster, address, name) == {}, "nothing is wrong")
        app.start("three")

        def idle() -> bool:
            said = findings(cluster, address, name).get("Member idle", "")
            return "run no task; the group has 3 members for 2 tasks" in said

        until(idle, "one is idle")
        for each in list(app.instances):
            app.leave(each)

        def is_alone() -> bool:
            return list(findings(cluster, address, name)) == ["Nobody"]

        until(is_alone, "nobody is left")
    with streams_threads(cluster.bootstrap, f"{name}-2", "nowhere", "one") as (one,):

        def is_told() -> bool:
            one.beat()
            return findings(cluster, address, f"{name}-2") == {
                "Topic not read": "no member has a task: the application reads nowhere, which does"
                " not exist"
            }

        until(is_told, "not ready")
        one.leave()


def test_the_doctor_of_a_share_group(
    cluster: Running, address: str, name: str, tmp_path: Path
) -> None:
    """1. Three members read two partitions. 2. Another, which does nothing but join, subscribes to what does not exist. 3. The
    three go, and messages come. 4. The last one goes."""
    topic = topic_of(cluster, name, 2)
    with ShareGroup(cluster, topic, tmp_path, settings="share.auto.offset.reset:earliest") as group:
        readers = [group.start(each) for each in ("one", "two", "three")]
        group.until_all(20)

        def found() -> dict[str, str]:
            return findings(cluster, address, group.group)

        until(lambda: found() == {}, "nothing is wrong")
        until(lambda: sum(len(one.taken) for one in readers) >= 20, "all are accepted")
        with ShareReader(cluster.bootstrap, group.group, "four") as four:
            four.beat("nowhere")

            def found_later() -> dict[str, str]:
                four.beat()
                return found()

            idle = "four read no partition: topics to which they subscribe do not exist: nowhere"
            wrong = {"Member idle": idle}
            until(lambda: found_later() == wrong, "one is idle")
            for one in readers:
                one.leave()
            until(lambda: found_later() == wrong, "nothing waits")
            fill(cluster, topic, 2)
            wrong["Topic not read"] = (
                f"the group has offsets of {topic}, where messages wait, and no member reads it"
            )
            until(lambda: found_later() == wrong, "messages wait")
            four.leave()
        until(lambda: list(found()) == ["Nobody"], "nobody is left")


def test_brokers_without_streams_and_share_groups(tmp_path: Path, name: str) -> None:
    """Apache Kafka 3.9 knows neither: its groups are there as before."""
    with (
        run_apache(tmp_path, version=builds.OLD) as old,
        console(HttpConfig(timeout_ms=20_000), old.bootstrap) as address,
    ):
        topic = topic_of(old, name, 2)
        reader = member(old, name, topic, "classic", "reader")
        until(lambda: reader.poll(0.1) is not None and reader.assignment())
        until(lambda: shown(read(address, f"groups/kafka/{name}")) == shares([reader]))
        assert read(address, f"groups/kafka/{name}")["protocol"] == "classic: range"

        def kinds() -> dict[str, str]:
            return {one["name"]: one["kind"] for one in read(address, "groups")["groups"]}

        until(lambda: kinds() == {name: "classic"})  # a list may be a second old
        assert ask(address, "groups/kafka/nobody").status == 404
        reader.close()
