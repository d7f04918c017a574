"""The public administrator against a cluster in this process, with members of groups that are at work."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from tests.waiting import until

from steelyard import Admin, ConsumerConfig, Message, Producer, PushConsumer, SendResult, aio
from steelyard.errors import BrokerError, ClosedError, ConfigError, RouteError
from steelyard.groups.doctor import Ailment
from steelyard.groups.overview import MessageTrack, QueueReset, TrackKind
from steelyard.types import ConsumeFrom, MessageQueue
from steelyard.wire.remoting.bodies import SubscriptionGroupConfig, TopicOffset
from steelyard.wire.remoting.message import MessageView

CLUSTER = "DefaultCluster"
_numbers = count(1)


@pytest.fixture(scope="module")
def admin(nameservers: str) -> Iterator[Admin]:
    with Admin(nameservers) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    """A new topic with two queues on each of the two brokers."""
    name = f"AdminTopic{next(_numbers)}"
    admin.create_topic(name, queues=2)
    return name


@pytest.fixture
def group() -> str:
    return f"admin-group-{next(_numbers)}"


@pytest.fixture
def sent(nameservers: str, admin: Admin, topic: str) -> list[SendResult]:
    """Three messages in each queue, with keys k0, k1 and k2."""
    with Producer("admin-producers", nameservers) as producer:
        return [
            producer.send(Message(topic, b"%d" % n, tags=f"t{n}", keys=f"k{n} all"), queue=queue)
            for queue in admin.queues(topic)
            for n in range(3)
        ]


class Member:
    """A push consumer that remembers what it got."""

    def __init__(self, nameservers: str, group: str, topic: str, tags: str = "*") -> None:
        config = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, commit_interval_ms=50)
        self.got: list[MessageView] = []
        self.consumer = PushConsumer(group, nameservers, self.listen, config=config)
        self.consumer.subscribe(topic, tags)
        self.consumer.start()

    def listen(self, message: MessageView) -> None:
        self.got.append(message)


@pytest.fixture
def join(nameservers: str) -> Iterator[Callable[..., Member]]:
    members: list[Member] = []

    def start(*words: str) -> Member:
        members.append(Member(nameservers, *words))
        return members[-1]

    yield start
    for member in members:
        member.consumer.stop()


def caught_up(admin: Admin, group: str, topic: str, client: str) -> bool:
    """The group has committed all and holds every queue."""
    try:
        rows = admin.consumer_progress(group, topic).queues
    except (RouteError, BrokerError):
        return False
    return len(rows) == 4 and all(row.lag == 0 and row.client_id == client for row in rows)


def test_both_administrators_have_the_same_methods() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")} - {"config", "nameservers"}

    assert public(Admin) == public(aio.Admin)
    for name in public(Admin) - {"start", "stop"}:
        assert inspect.getdoc(getattr(Admin, name)), name


def test_topics(admin: Admin, topic: str, sent: list[SendResult]) -> None:
    assert topic in admin.topics()
    assert topic in admin.topics_of(CLUSTER)
    queues = tuple(MessageQueue(topic, f"broker-{b}", q) for b in "ab" for q in range(2))
    assert admin.queues(topic) == queues
    stats = admin.topic_stats(topic)
    assert {queue: (o.min_offset, o.max_offset) for queue, o in stats.items()} == dict.fromkeys(
        queues, (0, 3)
    )
    assert {"TBW102", CLUSTER, "broker-a"} <= set(admin.system_topics())
    addresses = admin.create_topic(topic, cluster=CLUSTER, queues=3, write_queues=2, perm=4)
    assert addresses == tuple(admin.masters(CLUSTER))
    (data,) = {
        (q.read_queue_nums, q.write_queue_nums, q.perm) for q in admin.route(topic).queue_datas
    }
    assert data == (3, 2, 4)
    admin.delete_topic(topic)
    with pytest.raises(RouteError, match=topic):
        admin.route(topic)


def test_a_topic_on_one_broker(admin: Admin, group: str) -> None:
    first, _ = admin.masters(CLUSTER)
    name = f"on-one-{group}"
    assert admin.create_topic(name, broker=first, queues=1) == (first,)
    assert admin.topic_stats(name) == {MessageQueue(name, "broker-a", 0): TopicOffset(0, 0, 0)}


def test_ordered_topics(admin: Admin, topic: str) -> None:
    assert admin.order_conf(topic) is None
    admin.put_order_conf(topic, "broker-a:2;broker-b:2")
    assert admin.order_conf(topic) == "broker-a:2;broker-b:2"
    admin.delete_order_conf(topic)
    assert admin.order_conf(topic) is None


def test_settings_of_a_group(admin: Admin, group: str) -> None:
    config = SubscriptionGroupConfig(group, retry_max_times=3)
    addresses = admin.update_group(config, cluster=CLUSTER)
    assert [admin.group_configs(address)[group] for address in addresses] == [config, config]
    assert admin.delete_group(group, broker=addresses[0]) == addresses[:1]
    assert [group in admin.group_configs(address) for address in addresses] == [False, True]
    admin.delete_group(group, cluster=CLUSTER, clean_offsets=True)
    assert group not in admin.group_configs(addresses[1])


def test_a_group_at_work(
    admin: Admin,
    topic: str,
    group: str,
    sent: list[SendResult],
    join: Callable[..., Member],
) -> None:
    with pytest.raises(RouteError, match="has had no member yet"):
        admin.members(group)
    member = join(group, topic)
    client = member.consumer.config.client_id
    until(lambda: caught_up(admin, group, topic, client))
    progress = admin.consumer_progress(group, topic)
    assert [(row.queue, row.broker_offset, row.consumer_offset) for row in progress.queues] == [
        (queue, 3, 3) for queue in admin.queues(topic)
    ]
    assert progress.lag == 0
    connection = admin.members(group)
    assert [c.client_id for c in connection.connection_set] == [client]
    assert set(connection.subscription_table) == {topic, f"%RETRY%{group}"}
    info = admin.running_info(group, client)
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert set(admin.queues(topic)) <= set(info.mq_table)
    (offsets,) = admin.member_offsets(group, topic).values()
    assert {queue: offsets[queue] for queue in admin.queues(topic)} == dict.fromkeys(
        admin.queues(topic), 3
    )
    assert group in admin.groups()
    assert group in admin.groups_of(topic)
    assert [s.message_queue for s in admin.time_spans(group, topic)] == list(admin.queues(topic))
    member.consumer.stop()
    with pytest.raises(BrokerError) as failure:
        admin.members(group)
    assert failure.value.code == 206


def test_producers(nameservers: str, admin: Admin, topic: str, group: str) -> None:
    assert admin.producers(group, topic) == ()
    with Producer(group, nameservers) as producer:
        producer.send(topic, b"x")
        (found,) = admin.producers(group, topic)
        assert found.client_id == producer.config.client_id


# -- messages ----------------------------------------------------------------------------------------


def test_messages_are_found_by_all_their_names(
    admin: Admin, topic: str, sent: list[SendResult]
) -> None:
    first = sent[0]
    message = admin.message(first.offset_message_id)
    assert (message.body, message.queue, message.queue_offset) == (b"0", first.queue, 0)
    assert message.message_id == first.message_id
    assert admin.messages_by_unique_key(topic, first.message_id) == [message]
    assert admin.messages_by_unique_key(topic, "no such id") == []
    found = admin.messages_by_key(topic, "k0")
    assert {m.message_id for m in found} == {r.message_id for r in sent[::3]}
    assert [m.store_timestamp for m in found] == sorted(m.store_timestamp for m in found)
    assert len(admin.messages_by_key(topic, "all")) == 12
    assert len(admin.messages_by_key(topic, "all", count_max=2)) == 4
    now = time.time_ns() // 1_000_000
    assert admin.messages_by_key(topic, "all", begin=now + 60_000) == []
    assert admin.messages_by_key(topic, "no such key") == []
    with pytest.raises(ConfigError, match="32 or 56 hex digits"):
        admin.message("no id")
    with pytest.raises(BrokerError) as failure:
        admin.message(first.offset_message_id[:-16] + "00000000FFFFFFFF")
    assert failure.value.code == 1


def test_what_became_of_a_message(
    admin: Admin,
    topic: str,
    group: str,
    sent: list[SendResult],
    join: Callable[..., Member],
) -> None:
    message = admin.message(sent[0].offset_message_id)
    assert admin.track(message) == []
    members = [join(f"{group}-{tags}", topic, tags) for tags in ("t0", "t1")]
    configs = [member.consumer.config for member in members]
    until(lambda: all(caught_up(admin, c.group, topic, c.client_id) for c in configs))
    assert admin.track(message) == [
        MessageTrack(f"{group}-t0", TrackKind.CONSUMED),
        MessageTrack(f"{group}-t1", TrackKind.CONSUMED_BUT_FILTERED),
    ]
    members[0].consumer.stop()
    offline, _ = admin.track(message)
    assert (offline.kind, offline.description) == (
        TrackKind.NOT_ONLINE,
        f"CODE:206 DESC:the consumer group[{group}-t0] not online",
    )


def test_a_member_consumes_a_message_again(
    admin: Admin,
    topic: str,
    group: str,
    sent: list[SendResult],
    join: Callable[..., Member],
) -> None:
    member = join(group, topic)
    client = member.consumer.config.client_id
    until(lambda: caught_up(admin, group, topic, client))
    member.got.clear()
    result = admin.consume_directly(group, client, sent[4].offset_message_id)
    assert (result.consume_result, result.order) == ("CR_SUCCESS", False)
    (again,) = member.got
    assert again.message_id == sent[4].message_id
    with pytest.raises(BrokerError) as failure:
        admin.consume_directly(group, "nobody", again)
    assert failure.value.code == 1


# -- resets ------------------------------------------------------------------------------------------


def test_a_group_that_is_online_starts_again(
    admin: Admin,
    topic: str,
    group: str,
    sent: list[SendResult],
    join: Callable[..., Member],
) -> None:
    member = join(group, topic)
    client = member.consumer.config.client_id
    until(lambda: caught_up(admin, group, topic, client))
    member.got.clear()
    queues = admin.queues(topic)
    assert admin.reset_offset(group, topic, timestamp=0) == tuple(QueueReset(q, 0) for q in queues)
    until(lambda: len(member.got) == 12)
    until(lambda: caught_up(admin, group, topic, client))
    member.got.clear()
    assert admin.reset_offset(group, topic, queue=queues[3], offset=1) == (
        QueueReset(queues[3], 1),
    )
    until(lambda: len(member.got) == 2)
    assert [(m.queue, m.queue_offset) for m in member.got] == [(queues[3], 1), (queues[3], 2)]
    ends = tuple(QueueReset(q, 3) for q in queues)
    assert admin.reset_offset(group, topic, timestamp=-1) == ends


def test_a_group_that_is_offline_is_moved(
    admin: Admin,
    topic: str,
    group: str,
    sent: list[SendResult],
    join: Callable[..., Member],
) -> None:
    queues = admin.queues(topic)
    new = tuple(QueueReset(queue, 3, 0, 3) for queue in queues)
    assert admin.reset_offset(group, topic, timestamp=-1) == new, "a group that never was"
    back = tuple(QueueReset(queue, 0, 3, 3) for queue in queues)
    assert admin.reset_offset(group, topic, timestamp=0) == back
    stays = tuple(QueueReset(queue, 0, 0, 3) for queue in queues)
    assert admin.reset_offset(group, topic, timestamp=-1, force=False) == stays
    one = admin.reset_offset(group, topic, queue=queues[0], offset=2)
    assert one == (QueueReset(queues[0], 2, 0, 3),)
    member = join(group, topic)
    until(lambda: len(member.got) == 10)
    assert sum(m.queue == queues[0] for m in member.got) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "either timestamp"),
        ({"timestamp": 1, "offset": 1}, "either timestamp"),
        ({"offset": 1}, "needs a queue"),
        ({"offset": 1, "queue": MessageQueue("other", "broker-a", 0)}, "needs a queue"),
        ({"timestamp": 1, "queue": MessageQueue("T", "broker-a", 0)}, "all queues"),
    ],
)
def test_resets_that_make_no_sense(admin: Admin, arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        admin.reset_offset("g", "T", **arguments)  # type: ignore[arg-type]


def test_resets_to_where_nothing_is(
    admin: Admin, topic: str, group: str, sent: list[SendResult]
) -> None:
    queue = admin.queues(topic)[0]
    with pytest.raises(ConfigError, match="the broker has 0 to 3"):
        admin.reset_offset(group, topic, queue=queue, offset=4)
    with pytest.raises(ConfigError, match="no broker nowhere"):
        admin.reset_offset(group, topic, queue=MessageQueue(topic, "nowhere", 0), offset=0)
    with pytest.raises(RouteError):
        admin.reset_offset(group, "nowhere", timestamp=0)


# -- the doctor --------------------------------------------------------------------------------------


def test_the_doctor(
    admin: Admin,
    topic: str,
    group: str,
    sent: list[SendResult],
    join: Callable[..., Member],
) -> None:
    with pytest.raises(RouteError):
        admin.diagnose(group)
    first = join(group, topic)
    until(lambda: caught_up(admin, group, topic, first.consumer.config.client_id))
    until(lambda: admin.diagnose(group) == [])
    second = join(group, topic, "t1")
    clients = sorted([first, second], key=lambda member: member.consumer.config.client_id)
    names = [member.consumer.config.client_id for member in clients]

    def differs() -> bool:
        """Nothing else is left of the join, and the finding names both."""
        findings = admin.diagnose(group)
        ailments = [finding.ailment for finding in findings]
        return ailments == [Ailment.SUBSCRIPTIONS_DIFFER] and all(
            name in findings[0].what for name in names
        )

    until(differs)
    second.consumer.stop()
    until(lambda: admin.diagnose(group) == [])
    first.consumer.stop()
    until(lambda: [f.ailment for f in admin.diagnose(group)] == [Ailment.NOBODY])


# -- brokers -----------------------------------------------------------------------------------------


def test_brokers(admin: Admin, topic: str, sent: list[SendResult]) -> None:
    info = admin.clusters()
    assert info.cluster_addr_table == {CLUSTER: ("broker-a", "broker-b")}
    address = admin.masters(CLUSTER)[0]
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: address}
    assert admin.runtime(address)["brokerVersionDesc"] == "V4_9_8"
    assert admin.broker_config(address)["brokerName"] == "broker-a"
    data = admin.stats(address, "TOPIC_PUT_NUMS", topic)
    assert data is not None
    assert data.stats_minute.sum == 6
    assert admin.stats(address, "NO_SUCH_NUMS", topic) is None
    with pytest.raises(BrokerError) as failure:
        admin.update_broker_config(address, {"a": "b"})
    assert failure.value.code == 3
    with pytest.raises(RouteError, match=f"it knows: {CLUSTER}"):
        admin.masters("nowhere")
    with pytest.raises(ConfigError, match="either the name of a cluster or"):
        admin.create_topic(topic, cluster=CLUSTER, broker=address)


def test_write_permission(nameservers: str, admin: Admin, topic: str) -> None:
    wiped = admin.wipe_write_permission("broker-b")
    assert list(wiped) == [nameservers]
    assert wiped[nameservers] > 0
    perms = {data.broker_name: data.perm for data in admin.route(topic).queue_datas}
    assert perms == {"broker-a": 6, "broker-b": 4}
    assert admin.add_write_permission("broker-b") == wiped
    assert {data.perm for data in admin.route(topic).queue_datas} == {6}


# -- life --------------------------------------------------------------------------------------------


def test_an_administrator_that_does_not_run(nameservers: str) -> None:
    admin = Admin(nameservers)
    with pytest.raises(ClosedError, match="not running"):
        admin.topics()
    with admin:
        admin.topics()
    with pytest.raises(ClosedError):
        admin.topics()
    with pytest.raises(ClosedError):
        admin.start()


def test_half_of_a_credential(nameservers: str) -> None:
    with pytest.raises(ConfigError, match="secret_key"):
        Admin(nameservers, access_key="a")


def test_requests_that_are_signed_are_understood(nameservers: str, topic: str) -> None:
    """Our brokers check nobody; they must not stumble over the fields either."""
    with Admin(nameservers, access_key="a", secret_key="b", security_token="c") as admin:
        assert admin.messages_by_unique_key(topic, "7F" * 16) == []
