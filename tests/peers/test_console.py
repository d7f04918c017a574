"""The console of a cluster with nameservers, Apache's of both lines and ours, with a Java consumer and ours in the group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.peers.apache import NEW, OLD, SEND_TIMEOUT_MS, Peer
from tests.peers.conftest import Running, create_topic
from tests.waiting import until
from tests.web.console.asking import Events, ask, read
from tests.web.console.conftest import console

from steelyard import Admin, Message, Producer, PullConsumer, PushConsumer
from steelyard.config import ConsumerConfig, HttpConfig
from steelyard.types import ConsumeFrom, MessageQueue

pytestmark = pytest.mark.peer


@pytest.fixture
def address(any_cluster: Running) -> Iterator[str]:
    config = HttpConfig(
        nameservers=(any_cluster.nameserver,), allow_changes=True, timeout_ms=20_000
    )
    with console(config) as found:
        yield found


def shown(picture: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {one["id"]: set() for one in picture["members"]}
    for queue in picture["queues"]:
        if queue["owner"] is not None:
            found[queue["owner"]].add(queue["key"])
    return found


def key_of(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def test_a_group_its_messages_and_changes(any_cluster: Running, address: str, name: str) -> None:
    nameserver = any_cluster.nameserver
    kind = "steelyard" if any_cluster.kind == "steelyard" else "apache-rocketmq"
    view = until(lambda: (v := read(address, "cluster")) and v["kind"] == kind and v)
    assert {broker["name"]: broker["address"] for broker in view["brokers"]} == any_cluster.brokers
    assert [broker["error"] for broker in view["brokers"]] == [None] * len(any_cluster.brokers)
    made = ask(
        address, "topics", method="POST", body={"dialect": "rocketmq", "name": name, "queues": 4}
    )
    assert made.status == 200, made
    group = f"{name}g"
    path = f"groups/rocketmq/{group}"
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, commit_interval_ms=100)

    def consumer(number: int) -> PushConsumer:
        return PushConsumer(
            group, nameserver, lambda _: None, config=config, client_id=f"10.0.0.{number}@{name}"
        ).subscribe(name)

    with (
        Admin(nameserver, timeout_ms=20_000) as admin,
        PullConsumer(f"{name}r", nameserver) as reader,
        Producer(f"{name}p", nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer,
    ):
        until(lambda: name in admin.topics() and len(admin.queues(name)) >= 4)
        queues = admin.queues(name)
        for number, queue in enumerate(queues * 3):
            message = Message(name, b'{"n": %d}' % number, tags=f"t{number % 2}", keys=f"k{number}")
            producer.send(message, queue=queue)

        def caught_up() -> bool:
            found = ask(address, path)
            return found.status == 200 and all(
                queue["lag"] == 0 and queue["owner"] and queue["end"] == 3
                for queue in found.body["queues"]
            )

        def holds(count: int) -> bool:
            """The console shows what each member reports."""
            picture = read(address, path)
            if len(picture["members"]) != count or picture["rebalance"] is not None:
                return False
            infos = {one["id"]: admin.running_info(group, one["id"]) for one in picture["members"]}
            held = {
                client: {
                    key_of(queue)
                    for queue, each in info.mq_table.items()
                    if queue.topic == name and not each.dropped
                }
                for client, info in infos.items()
            }
            return shown(picture) == held and all(held.values())

        with consumer(1):
            until(caught_up, ask(address, path))
            until(lambda: holds(1))
            assert read(address, path)["protocol"] == "push concurrent"
            with Events(address, f"rocketmq/{group}") as events, consumer(2):
                seen = iter(events)
                until(lambda: holds(2))
                while True:
                    event, row = next(seen)
                    if event == "rebalance" and len(row["members_after"]) == 2:
                        break
            assert set(row["members_after"]) == {f"10.0.0.{n}@{name}" for n in (1, 2)}
            history = read(address, f"{path}/rebalances")
            assert history["source"] == ("ledger" if kind == "steelyard" else "observed")
            assert history["rebalances"]
            for plan in read(address, f"{path}/what-if", members=2)["results"]:
                if plan["strategy"] in ("AVG", "AVG_BY_CIRCLE", "EVEN"):
                    sizes = {len(one["queues"]) for one in plan["members"]}
                    assert sizes == {len(queues) // 2}, plan
        until(lambda: read(address, path)["members"] == [])
        titles = [one["title"] for one in read(address, f"{path}/doctor")["findings"]]
        assert titles == ["Nobody"]

        query = {"dialect": "rocketmq", "topic": name}
        found: list[Any] = []
        where: object = "earliest"
        while where is not None:
            answer = read(address, "messages", **query, limit=5, **{"from": where})
            found += answer["messages"]
            where = answer["next"]
        assert sorted(one["body"]["text"] for one in found) == sorted(
            f'{{"n": {number}}}' for number in range(3 * len(queues))
        )
        assert [one["stored_at"] for one in found] == sorted(one["stored_at"] for one in found)

        def by_key() -> list[Any]:
            found: list[Any] = read(address, "messages", **query, key="k5")["messages"]
            return found

        (indexed,) = until(by_key)  # Apache's brokers index messages a moment later
        assert indexed["body"]["text"] == '{"n": 5}'
        tagged = read(address, "messages", **query, tag="t1", limit=200, **{"from": "earliest"})
        assert {one["tag"] for one in tagged["messages"]} == {"t1"}
        assert len(tagged["messages"]) == 3 * len(queues) // 2

        def listed() -> list[tuple[object, ...]]:
            return [
                (one["members"], one["lag"], one["topics"])
                for one in read(address, "groups")["groups"]
                if one["name"] == group
            ]

        until(lambda: listed() == [(0, 0, [name])])  # a list may be a second old
        body = {"topic": name, "to": "earliest", "dry_run": False}
        done = ask(address, f"{path}/reset-offsets", method="POST", body=body)
        assert done.status == 200, done
        until(lambda: sum(q["lag"] for q in read(address, path)["queues"]) == 3 * len(queues))
        assert {reader.max_offset(queue) for queue in queues} == {3}

        def topics() -> dict[str, Any]:
            return {one["name"]: one for one in read(address, "topics")["topics"]}

        until(lambda: topics()[name]["groups"] == [group])
        assert topics()[name]["messages"] == 3 * len(queues)
        assert topics()["TBW102"]["internal"]
        assert ask(address, f"topics/rocketmq/{name}", method="DELETE").status == 200
        until(lambda: name not in admin.topics())


def test_java_members(
    any_cluster: Running, address: str, peers: dict[str, Peer], name: str
) -> None:
    """Consumers of both Java lines: the console shows what each of them says that it holds."""
    create_topic(any_cluster, peers[NEW], name)
    group = f"{name}g"
    words = (any_cluster.nameserver, group, name, "*")
    members = {
        peers[version].ask("consumer", f"{name}{version}", *words)["client_id"]: version
        for version in (OLD, NEW)
    }

    def agree() -> bool:
        held = {
            client_id: {
                f"{name}/{broker}/{queue}"
                for broker, queue in peers[version].held(f"{name}{version}", name)
            }
            for client_id, version in members.items()
        }
        found = ask(address, f"groups/rocketmq/{group}")
        return (
            found.status == 200
            and found.body["rebalance"] is None
            and shown(found.body) == held
            and all(held.values())
        )

    until(agree, (members, ask(address, f"groups/rocketmq/{group}")))
    picture = read(address, f"groups/rocketmq/{group}")
    assert {one["id"]: one["version"] for one in picture["members"]} == {
        client_id: f"JAVA {version}" for client_id, version in members.items()
    }
    plan = read(address, f"groups/rocketmq/{group}/what-if", strategy="AVG")["results"][0]
    assert plan["moved"] == 0  # AVG is their strategy
    for version in members.values():
        peers[version].ask("stop", f"{name}{version}")
    until(lambda: read(address, f"groups/rocketmq/{group}")["members"] == [])
