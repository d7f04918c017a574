"""What an operator asks and orders: mqadmin of our members, and our Admin of Apache's brokers and Java's members."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from tests.peers.apache import NEW, OLD, OLD_SERVER, Peer, eventually
from tests.peers.conftest import Running, create_topic
from tests.peers.ours import Member
from tests.peers.series import message, numbers

from steelyard import Admin, BrokerError, Producer
from steelyard.groups.overview import TrackKind
from steelyard.types import MessageQueue, SendResult
from steelyard.wire.remoting.bodies import SubscriptionGroupConfig

pytestmark = pytest.mark.peer


def send(cluster: Running, topic: str, count: int) -> list[SendResult]:
    with Producer(f"{topic}pg", cluster.nameserver) as producer:
        return [producer.send(message(topic, "s", index, 60)) for index in range(count)]


# -- mqadmin, which asks our members ----------------------------------------------------------------


def test_mqadmin_sees_our_member(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """consumerStatus, of all and of one; queryMsgById has a message consumed directly."""
    mqadmin = peers[OLD].mqadmin
    create_topic(any_cluster, peers[OLD], name)
    results = send(any_cluster, name, 8)
    at = ("-n", any_cluster.nameserver)
    client_id = f"{name}@1"
    with Member(any_cluster.nameserver, f"{name}g", name, client_id=client_id) as member:
        eventually(lambda: len(member.views) == 8, member.views)
        text = mqadmin("consumerStatus", *at, "-g", f"{name}g")
        assert "Same subscription in the same group of consumer" in text
        assert "Rebalance OK" in text

        text = mqadmin("consumerStatus", *at, "-g", f"{name}g", "-i", client_id)
        for place in member.held():
            assert re.search(rf"^{name} +{place[0]} +{place[1]} ", text, re.MULTILINE), text
        assert re.search(r"^PROP_CONSUME_TYPE +: CONSUME_PASSIVELY", text, re.MULTILINE), text

        words = ("-i", results[3].offset_message_id, "-g", f"{name}g", "-d", client_id)
        text = mqadmin("queryMsgById", *at, *words)
        assert "consumeResult=CR_SUCCESS" in text
    assert Counter(member.numbers()) == Counter([*range(8), 3])


def test_mqadmin_resets_our_member(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """To the beginning, while it runs: it gets everything again, and goes on with what comes."""
    create_topic(any_cluster, peers[OLD], name)
    send(any_cluster, name, 8)
    config = Member.config(commit_interval_ms=500)
    with Member(any_cluster.nameserver, f"{name}g", name, config=config) as member:
        eventually(lambda: len(member.views) == 8, "the messages")
        # A broker of 4.x resets only what was committed.
        with Admin(any_cluster.nameserver) as admin:
            eventually(lambda: admin.consumer_progress(f"{name}g", name).lag == 0, "all committed")
        words = ("-g", f"{name}g", "-t", name, "-s", 0)
        text = peers[OLD].mqadmin("resetOffsetByTime", "-n", any_cluster.nameserver, *words)
        lines = [line.split() for line in text.splitlines() if line.startswith("broker-")]
        assert {(broker, int(queue)) for broker, queue, _ in lines} == set(member.held()), text
        eventually(lambda: len(member.views) >= 16, lambda: Counter(member.numbers()))
        with Producer(f"{name}pg", any_cluster.nameserver) as producer:
            producer.send(message(name, "s", 8, 60))
        eventually(lambda: 8 in member.numbers(), "what came afterwards")
    assert Counter(member.numbers()) == Counter([*range(8), *range(8), 8])


# -- our Admin, which asks Apache's brokers and Java's members --------------------------------------


def test_admin_sees_a_java_member(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    # The client of the broker's line, as far as mqadmin's own versions go together.
    peer = peers[OLD if any_cluster.kind == f"apache-{OLD_SERVER}" else NEW]
    create_topic(any_cluster, peer, name)
    results = send(any_cluster, name, 8)
    words = (f"{name}c", any_cluster.nameserver, f"{name}g", name, "*")
    client_id = peer.ask("consumer", *words)["client_id"]
    eventually(lambda: len(peer.numbers(f"{name}c")) == 8, "the messages")
    queues = {
        MessageQueue(name, broker, queue) for broker in any_cluster.brokers for queue in range(4)
    }
    with Admin(any_cluster.nameserver) as admin:
        (member,) = admin.members(f"{name}g").connection_set
        assert (member.client_id, member.language) == (client_id, "JAVA")
        info = admin.running_info(f"{name}g", client_id)
        assert {queue for queue in info.mq_table if queue.topic == name} == queues

        def is_done() -> bool:
            return admin.consumer_progress(f"{name}g", name).lag == 0

        eventually(is_done, "all is committed")
        progress = admin.consumer_progress(f"{name}g", name)
        assert {(row.queue, row.client_id) for row in progress.queues} == {
            (queue, client_id) for queue in queues
        }
        assert sum(row.consumer_offset for row in progress.queues) == 8

        found = admin.message(results[3].offset_message_id)
        assert numbers([found]) == [3]
        eventually(lambda: admin_finds(admin, name, "s-key-3"), "the index has the message")
        assert numbers(admin.messages_by_key(name, "s-key-3")) == [3]
        assert numbers(admin.messages_by_unique_key(name, results[4].message_id)) == [4]
        tracks = [track for track in admin.track(found) if track.group == f"{name}g"]
        assert [track.kind for track in tracks] == [TrackKind.CONSUMED]

        said = admin.consume_directly(f"{name}g", client_id, found)
        assert (said.order, said.consume_result) == (False, "CR_SUCCESS")
        eventually(lambda: peer.numbers(f"{name}c").count(3) == 2, "it is consumed once more")

        resets = admin.reset_offset(f"{name}g", name, timestamp=0)
        assert {(reset.queue, reset.offset) for reset in resets} == {(queue, 0) for queue in queues}
        eventually(
            lambda: {*Counter(peer.numbers(f"{name}c")).values()} >= {2, 3}, "everything again"
        )
    peer.ask("stop", f"{name}c")


def admin_finds(admin: Admin, topic: str, key: str) -> bool:
    return bool(admin.messages_by_key(topic, key))


def test_admin_looks_after_a_cluster(any_cluster: Running, name: str) -> None:
    """Topics, groups, settings and figures; what was made is gone at the end."""
    with Admin(any_cluster.nameserver) as admin:
        info = admin.clusters()
        assert {b: d.broker_addrs for b, d in info.broker_addr_table.items()} == {
            broker: {0: address} for broker, address in any_cluster.brokers.items()
        }
        made = admin.create_topic(name, cluster="DefaultCluster", queues=3)
        assert set(made) == set(any_cluster.brokers.values())
        queues = [(broker, queue) for broker in sorted(any_cluster.brokers) for queue in range(3)]
        eventually(lambda: name in admin.topics(), "the nameserver knows the topic")
        assert [(q.broker_name, q.queue_id) for q in admin.queues(name)] == queues
        send(any_cluster, name, 6)
        stats = admin.topic_stats(name)
        assert sum(reach.max_offset - reach.min_offset for reach in stats.values()) == 6
        assert len(stats) == len(queues)

        group = f"{name}g"
        admin.update_group(
            SubscriptionGroupConfig(group_name=group, retry_max_times=3), cluster="DefaultCluster"
        )
        for address in any_cluster.brokers.values():
            assert admin.group_configs(address)[group].retry_max_times == 3
            assert admin.runtime(address)["brokerVersionDesc"].startswith("V")
            assert admin.broker_config(address)["brokerName"] in any_cluster.brokers
        admin.delete_group(group, cluster="DefaultCluster")
        for address in any_cluster.brokers.values():
            assert group not in admin.group_configs(address)

        assert admin.setting("Tests", name) is None
        admin.put_setting("Tests", name, "a value")
        assert admin.setting("Tests", name) == "a value"
        admin.delete_setting("Tests", name)
        assert admin.setting("Tests", name) is None

        admin.delete_topic(name, "DefaultCluster")
        eventually(lambda: name not in admin.topics(), "the topic is gone")
        with pytest.raises(BrokerError):
            admin.members(f"{name}nobody", next(iter(any_cluster.brokers.values())))
