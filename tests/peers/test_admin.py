"""Our administrator with Apache's brokers of both lines, and the real mqadmin's questions to our brokers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.peers.apache import NEW, OLD, OLD_SERVER, SEND_TIMEOUT_MS, Peer
from tests.peers.conftest import Running, create_topic
from tests.peers.series import message, numbers
from tests.waiting import until

from steelyard import Admin, ConsumerConfig, Message, Producer, PushConsumer, SendResult
from steelyard.errors import BrokerError, ConfigError, RouteError
from steelyard.groups.overview import MessageTrack, QueueReset, TrackKind
from steelyard.types import ConsumeFrom, MessageQueue
from steelyard.wire.remoting.bodies import SubscriptionGroupConfig
from steelyard.wire.remoting.message import MessageView

pytestmark = pytest.mark.peer

CLUSTER = "DefaultCluster"


class Scene:
    """A topic of two queues a broker with two messages in each."""

    def __init__(self, cluster: Running, admin: Admin, name: str) -> None:
        self.cluster = cluster
        self.admin = admin
        self.topic = name
        self.group = f"{name}g"
        self.got: list[MessageView] = []
        admin.create_topic(name, cluster=CLUSTER, queues=2)
        until(lambda: len(self._queues()) == 2 * len(cluster.brokers), "route to all brokers")
        self.queues = admin.queues(name)
        with Producer(f"{name}p", cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
            self.sent = [
                producer.send(Message(name, b"%d" % n, tags=f"t{n}", keys=f"k{n} all"), queue=queue)
                for queue in self.queues
                for n in range(2)
            ]

    def _queues(self) -> tuple[object, ...]:
        try:
            return self.admin.queues(self.topic)
        except RouteError:
            return ()

    def member(self) -> PushConsumer:
        config = ConsumerConfig(
            consume_from=ConsumeFrom.FIRST_OFFSET, commit_interval_ms=100, pull_hold_ms=1_000
        )
        consumer = PushConsumer(self.group, self.cluster.nameserver, self.got.append, config=config)
        consumer.subscribe(self.topic).start()
        until(self.caught_up, "everything consumed and committed")
        return consumer

    def caught_up(self) -> bool:
        try:
            rows = self.admin.consumer_progress(self.group, self.topic).queues
        except RouteError:
            return False
        return len(rows) == len(self.queues) and all(r.lag == 0 and r.client_id for r in rows)


@pytest.fixture
def scene(any_cluster: Running, name: str) -> Iterator[Scene]:
    with Admin(any_cluster.nameserver, timeout_ms=10_000) as admin:
        yield Scene(any_cluster, admin, name)


def test_topics_and_groups(scene: Scene) -> None:
    admin, topic = scene.admin, scene.topic
    assert topic in admin.topics()
    assert topic in admin.topics_of(CLUSTER)
    assert "TBW102" in admin.system_topics()
    until(
        lambda: (
            {queue: row.max_offset for queue, row in admin.topic_stats(topic).items()}
            == dict.fromkeys(scene.queues, 2)
        ),
        "Apache's broker has found what it stored",
    )
    admin.put_order_conf(topic, "broker-a:2")
    assert admin.order_conf(topic) == "broker-a:2"
    admin.delete_order_conf(topic)
    assert admin.order_conf(topic) is None
    config = SubscriptionGroupConfig(f"{topic}made", retry_max_times=3)
    addresses = admin.update_group(config, cluster=CLUSTER)
    assert set(addresses) == set(scene.cluster.brokers.values())
    for address in addresses:
        assert admin.group_configs(address)[config.group_name].retry_max_times == 3
    for address in addresses:
        admin.delete_group(config.group_name, broker=address, clean_offsets=True)
        assert config.group_name not in admin.group_configs(address)
    admin.delete_topic(topic, CLUSTER)
    until(lambda: topic not in admin.topics(), "topic deleted")


def test_brokers(scene: Scene) -> None:
    admin = scene.admin

    def version(address: str) -> str:
        try:
            return admin.runtime(address)["brokerVersionDesc"]
        except BrokerError:  # one of 4.9 cannot tell before it has taken its first sample
            return ""

    for name, address in scene.cluster.brokers.items():
        assert until(partial(version, address), "the broker's figures").startswith("V")
        assert admin.broker_config(address)["brokerName"] == name
    wiped = admin.wipe_write_permission("broker-a")
    assert admin.add_write_permission("broker-a") == wiped
    first, *_ = scene.cluster.brokers.values()

    def counted() -> bool:
        data = admin.stats(first, "TOPIC_PUT_NUMS", scene.topic)
        return data is not None and data.stats_minute.sum >= 0

    until(counted, "statistics of the topic")


def test_messages(scene: Scene) -> None:
    admin, topic, first = scene.admin, scene.topic, scene.sent[0]
    message = admin.message(first.offset_message_id)
    assert (message.body, message.queue, message.queue_offset) == (b"0", first.queue, 0)

    def indexed() -> bool:
        """Apache's brokers put one message after another into the index, some time after they have taken it."""
        return len(admin.messages_by_key(topic, "k1")) >= len(scene.sent) // 2

    until(indexed, "the messages in the index")
    found = admin.messages_by_key(topic, "k1")
    assert {m.message_id for m in found} == {result.message_id for result in scene.sent[1::2]}
    assert admin.messages_by_unique_key(topic, first.message_id) == [message]
    assert admin.messages_by_key(topic, "nope") == []
    assert admin.track(message) == []


def test_a_group_at_work(scene: Scene) -> None:
    admin, topic, group = scene.admin, scene.topic, scene.group
    member = scene.member()
    client = member.config.client_id
    try:
        (connection,) = admin.members(group).connection_set
        assert (connection.client_id, connection.language) == (client, "PYTHON")
        info = admin.running_info(group, client)
        assert set(scene.queues) <= set(info.mq_table)
        offsets = admin.member_offsets(group, topic)[client]
        assert {queue: offsets[queue] for queue in offsets if queue.topic == topic}
        assert group in admin.groups_of(topic)
        assert group in admin.groups()
        message = admin.message(scene.sent[0].offset_message_id)
        assert MessageTrack(group, TrackKind.CONSUMED) in admin.track(message)
        scene.got.clear()
        result = admin.consume_directly(group, client, message)
        assert result.consume_result == "CR_SUCCESS"
        assert [m.message_id for m in scene.got] == [message.message_id]
        until(lambda: admin.diagnose(group) == [], "a group in good health")
        spans = admin.time_spans(group, topic)
        assert [span.message_queue for span in spans] == list(scene.queues)
    finally:
        member.stop()


def test_a_group_is_reset_while_it_is_online(scene: Scene) -> None:
    admin, topic, group = scene.admin, scene.topic, scene.group
    member = scene.member()
    try:
        scene.got.clear()
        resets = admin.reset_offset(group, topic, timestamp=0)
        assert [(reset.queue, reset.offset) for reset in resets] == [(q, 0) for q in scene.queues]
        until(lambda: len(scene.got) >= len(scene.sent), "everything consumed again")
        until(scene.caught_up, "and committed")
        scene.got.clear()
        queue = scene.queues[0]
        if scene.cluster.kind.startswith("apache-4"):
            with pytest.raises(ConfigError, match="cannot reset a single queue"):
                admin.reset_offset(group, topic, queue=queue, offset=1)
            return
        assert admin.reset_offset(group, topic, queue=queue, offset=1) == (QueueReset(queue, 1),)
        until(lambda: len(scene.got) >= 1, "one message consumed again")
        assert {(m.queue, m.queue_offset) for m in scene.got} == {(queue, 1)}
    finally:
        member.stop()


def test_a_group_is_moved_while_it_is_offline(scene: Scene) -> None:
    admin, topic, group = scene.admin, scene.topic, scene.group
    scene.member().stop()
    resets = admin.reset_offset(group, topic, timestamp=0)
    assert [(reset.queue, reset.offset) for reset in resets] == [(q, 0) for q in scene.queues]
    queue = scene.queues[0]
    admin.reset_offset(group, topic, queue=queue, offset=1)
    scene.got.clear()
    member = scene.member()
    try:
        until(lambda: len(scene.got) == len(scene.sent) - 1, "the rest consumed again")
    finally:
        member.stop()


def test_a_java_member(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    # The client of the broker's line, as far as mqadmin's own versions go together.
    peer = peers[OLD if any_cluster.kind == f"apache-{OLD_SERVER}" else NEW]
    create_topic(any_cluster, peer, name)
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        results = [producer.send(message(name, "s", index, 60)) for index in range(8)]
    words = (f"{name}c", any_cluster.nameserver, f"{name}g", name, "*")
    client_id = peer.ask("consumer", *words)["client_id"]
    until(lambda: len(peer.numbers(f"{name}c")) == 8, "the messages")
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

        until(is_done, "all is committed")
        progress = admin.consumer_progress(f"{name}g", name)
        assert {(row.queue, row.client_id) for row in progress.queues} == {
            (queue, client_id) for queue in queues
        }
        assert sum(row.consumer_offset for row in progress.queues) == 8

        found = admin.message(results[3].offset_message_id)
        assert numbers([found]) == [3]
        until(lambda: admin.messages_by_key(name, "s-key-3"), "the index has the message")
        assert numbers(admin.messages_by_key(name, "s-key-3")) == [3]
        by_unique_key = partial(admin.messages_by_unique_key, name, results[4].message_id)
        until(by_unique_key, "and the next one")
        assert numbers(by_unique_key()) == [4]
        tracks = [track for track in admin.track(found) if track.group == f"{name}g"]
        assert [track.kind for track in tracks] == [TrackKind.CONSUMED]

        said = admin.consume_directly(f"{name}g", client_id, found)
        assert (said.order, said.consume_result) == (False, "CR_SUCCESS")
        until(lambda: peer.numbers(f"{name}c").count(3) == 2, "it is consumed once more")

        resets = admin.reset_offset(f"{name}g", name, timestamp=0)
        assert {(reset.queue, reset.offset) for reset in resets} == {(queue, 0) for queue in queues}
        until(lambda: {*Counter(peer.numbers(f"{name}c")).values()} >= {2, 3}, "everything again")
    peer.ask("stop", f"{name}c")


# -- the real mqadmin, both versions, asks our brokers -------------------------------------------------


@pytest.fixture
def ours(steelyard_cluster: Running, name: str) -> Iterator[Scene]:
    with Admin(steelyard_cluster.nameserver) as admin:
        yield Scene(steelyard_cluster, admin, name)


Ask = Callable[..., list[str]]


@pytest.fixture
def ask(steelyard_cluster: Running, peer: Peer) -> Ask:
    """What mqadmin prints, without empty lines."""

    def run(command: str, *options: object) -> list[str]:
        text = peer.mqadmin(command, "-n", steelyard_cluster.nameserver, *options)
        return [line for line in text.splitlines() if line.strip()]

    return run


def with_topic(ours: Scene, peer: Peer) -> tuple[str, ...]:
    """What queryMsgById of 5.x insists on, and that of 4.x does not know."""
    return ("-t", ours.topic) if peer.version == NEW else ()


def test_mqadmin_finds_messages(ours: Scene, ask: Ask, peer: Peer) -> None:
    first: SendResult = ours.sent[0]
    by_key = [line.split() for line in ask("queryMsgByKey", "-t", ours.topic, "-k", "k0")]
    wanted = {result.message_id for result in ours.sent[::2]}
    assert {line[0] for line in by_key if line[0] in wanted} == wanted
    unique = ask("queryMsgByUniqueKey", "-t", ours.topic, "-i", first.message_id)
    assert any(line.split() == ["Queue", "Offset:", "0"] for line in unique)
    by_id = ask("queryMsgById", *with_topic(ours, peer), "-i", first.offset_message_id)
    assert any(line.endswith(first.offset_message_id) for line in by_id)


def test_mqadmin_looks_into_a_member_of_ours(ours: Scene, ask: Ask, peer: Peer) -> None:
    member = ours.member()
    client = member.config.client_id
    try:
        status = ask("consumerStatus", "-g", ours.group, "-i", client)
        assert any(line.startswith(ours.topic) and "ProcessQueueInfo" in line for line in status)
        ours.got.clear()
        ids = ("-i", ours.sent[0].offset_message_id)
        to_member = ("-g", ours.group, "-d", client)
        (line,) = ask("queryMsgById", *with_topic(ours, peer), *ids, *to_member)
        assert "consumeResult=CR_SUCCESS" in line
        assert [m.message_id for m in ours.got] == [ours.sent[0].message_id]
        stats = [line.split() for line in ask("statsAll", "-t", ours.topic)]
        assert [ours.topic, ours.group, "0"] in [line[:3] for line in stats]
    finally:
        member.stop()


def test_mqadmin_lists_producers_and_cleans_topics(ours: Scene, ask: Ask, peer: Peer) -> None:
    broker = ours.cluster.brokers["broker-a"]
    with Producer(f"{ours.topic}pg", ours.cluster.nameserver) as producer:
        producer.send(ours.topic, b"x")
        if peer.version == NEW:  # 4.x has no such command

            def listed() -> bool:
                lines = ask("producer", "-b", broker)
                return any(f"producer group ({ours.topic}pg) instance" in line for line in lines)

            until(listed, "mqadmin lists the producer")
    assert ask("cleanUnusedTopic", "-b", broker) == ["success"]


@pytest.mark.parametrize("by_the_broker", [False, True], ids=["by mqadmin", "by the broker"])
def test_mqadmin_gives_a_group_the_offsets_of_another(
    ours: Scene, ask: Ask, peer: Peer, by_the_broker: bool
) -> None:
    """mqadmin itself reads and writes them one by one; its library has the brokers do it (314)."""
    ours.member().stop()
    other = f"{ours.topic}other"
    if by_the_broker:
        peer.ask("clone", ours.cluster.nameserver, ours.topic, ours.group, other)
    else:
        lines = ask("cloneGroupOffset", "-s", ours.group, "-d", other, "-t", ours.topic)
        assert lines == [
            f"clone group offset success. srcGroup[{ours.group}], destGroup=[{other}], "
            f"topic[{ours.topic}]"
        ]
    ours.group = other
    ours.got.clear()
    ours.member().stop()
    assert ours.got == [], "it goes on where the other group was"


def test_mqadmin_resets_a_group_of_ours(ours: Scene, ask: Ask) -> None:
    member = ours.member()
    options = ("-g", ours.group, "-t", ours.topic, "-s", 0)
    try:
        ours.got.clear()
        lines = [line.split() for line in ask("resetOffsetByTime", *options)]
        assert [line for line in lines if line[0].startswith("broker-")]
        until(lambda: len(ours.got) == len(ours.sent), "everything consumed again")
        until(ours.caught_up, "and committed")
    finally:
        member.stop()
    ours.got.clear()
    ask("resetOffsetByTime", *options)
    member = ours.member()
    try:
        until(lambda: len(ours.got) == len(ours.sent), "everything consumed once more")
    finally:
        member.stop()


def test_a_broker_without_writers_stays_so(ours: Scene, ask: Ask, peer: Peer) -> None:
    """What wipeWritePerm took from a broker's topics does not come back with the next topic that it makes."""
    nameserver = ours.cluster.nameserver

    def writable() -> dict[str, bool]:
        route = json.loads("".join(ask("topicRoute", "-t", ours.topic)).replace("{0:", '{"0":'))
        return {data["brokerName"]: bool(data["perm"] & 2) for data in route["queueDatas"]}

    ask("wipeWritePerm", "-b", "broker-a")
    try:
        assert writable() == {"broker-a": False, "broker-b": True}
        create_topic(ours.cluster, peer, f"{ours.topic}next")
        assert writable() == {"broker-a": False, "broker-b": True}
        peer.ask("producer", f"{ours.topic}j", nameserver, f"{ours.topic}jg")
        results = peer.ask("send", f"{ours.topic}j", ours.topic, "s", 0, 4, 60)["results"]
        peer.ask("stop", f"{ours.topic}j")
        assert {result["broker"] for result in results} == {"broker-b"}
    finally:
        ask("addWritePerm", "-b", "broker-a")
    assert writable() == {"broker-a": True, "broker-b": True}
