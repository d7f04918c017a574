"""The ledger of groups whose partitions are on several brokers: put together, the brokers' records tell everything."""

from __future__ import annotations

import msgspec
import pytest
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.conftest import batch
from tests.nodes.broker.kafka.requests import (
    committing,
    fetching,
    joining,
    producing,
    share,
    syncing,
)

from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.ledger import cost
from steelyard.ledger.events import (
    LEDGER_TOPIC,
    Backlog,
    Committed,
    Delivered,
    Record,
    decode,
)
from steelyard.nodes.broker.kafka.groups import announcing, readers
from steelyard.nodes.broker.kafka.groups.readers import Readers
from steelyard.nodes.broker.kafka.service import KafkaService
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.broker.peers.requests import (
    NAME_MAX,
    READERS,
    GroupReaders,
    ReaderEntry,
    ReaderNews,
)
from steelyard.store.store import Store
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.cluster import FindCoordinatorRequest
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from steelyard.wire.kafka.messages.consumer_groups import (
    TopicPartitions as OwnedPartitions,
)
from steelyard.wire.kafka.messages.data import (
    FetchResponse,
    ProduceResponse,
)
from steelyard.wire.kafka.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupResponse,
)
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitResponse,
)
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import decode_records

NAMES = ("broker-a", "broker-b")
TOPIC = "orders"
PARTITIONS = range(4)
CLIENT = ("client", "/10.0.0.9")


class Cluster:
    """Two brokers, a topic on both, and a group that broker-a coordinates. `leader[partition]`: the name of its broker."""

    def __init__(self) -> None:
        # Members beat only when the test says so: no answer waits for another.
        self.brokers = brokers = Brokers(
            *NAMES, group_join_window_max_ms=0, group_heartbeat_wait_max_ms=0
        )
        brokers.create("broker-a", TOPIC, len(PARTITIONS))
        brokers.post("broker-a", FindCoordinatorRequest("x", 0), 3)  # makes __consumer_offsets
        brokers.advance(5_000)
        self.group, self.other = self.groups_of_a()
        self.leader = [NAMES[node_id - 1] for node_id in brokers.leaders("broker-a", TOPIC)]
        assert sorted(self.leader) == ["broker-a", "broker-a", "broker-b", "broker-b"]
        self.links: dict[tuple[str, str], int] = {}
        self.told: list[Command] = []
        brokers.lost = self._listen

    def _listen(self, command: Command) -> bool:
        if command.code == READERS:
            self.told.append(command)
        return False

    def groups_of_a(self, prefix: str = "group-") -> list[str]:
        names = [f"{prefix}{number}" for number in range(20)]
        coordinator_of = self.side("broker-a").cluster.coordinator_of
        return [name for name in names if coordinator_of(name) == 1][:2]

    def node(self, name: str) -> BrokerNode:
        node = self.brokers.processes[name].node
        assert isinstance(node, BrokerNode)
        return node

    def side(self, name: str) -> KafkaService:
        side = self.node(name)._kafka
        assert side is not None
        return side

    def known(self, name: str = "broker-b") -> dict[int, dict[str, str]]:
        """What a broker knows of the groups of others: the member by group, of each partition."""
        others: Readers = self.side(name).groups.readers
        found = {
            number: {name: one.member_id for name, one in others.of(TopicPartition(TOPIC, number))}
            for number in PARTITIONS
        }
        return {partition: groups for partition, groups in found.items() if groups}

    def of_b(self, shares: dict[str, list[int]]) -> dict[int, dict[str, str]]:
        """What broker-b should know."""
        return {
            partition: {self.group: member}
            for member, share in sorted(shares.items(), key=lambda item: item[1])
            for partition in share
            if self.leader[partition] == "broker-b"
        }

    def produce(self) -> None:
        """Three records into each partition."""
        for partition in PARTITIONS:
            request = producing(TOPIC, partition, batch(b"1", b"2", b"3"))
            answer = self.brokers.ask(self.leader[partition], request, 9, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0

    def fetch(self, member: str, partition: int, offset: int) -> None:
        """A member fetches one batch, each from each broker on a connection of its own."""
        name = self.leader[partition]
        if (member, name) not in self.links:
            self.links[member, name] = self.brokers.connect(name)
        link = self.links[member, name]
        request = fetching(TOPIC, partition, offset, 1)
        answer = self.brokers.ask(name, request, 11, FetchResponse, link)
        assert answer.responses[0].partitions[0].error_code == 0

    def commit(self, member: str, generation: int, offsets: dict[int, int]) -> None:
        request = committing(self.group, TOPIC, offsets, member, generation)
        answer = self.brokers.ask("broker-a", request, 9, OffsetCommitResponse)
        assert {part.error_code for part in answer.topics[0].partitions} == {0}

    def ledger(self) -> list[Record]:
        """The records of both brokers, as their ledgers tell them."""
        self.brokers.advance(2_000)
        records: list[Record] = []
        for name in NAMES:
            store = Store(self.brokers.disks[name], self.node(name)._config.store)
            store.open(self.brokers.now)
            log = store.log(LEDGER_TOPIC, 0)
            assert log is not None
            data = log.read(0, 10_000, 1 << 24).data
            records += [record for view in decode_records(data) for record in decode(view.body)]
        return records


class Classic:
    """A classic group: its members agree on shares that the test gives out."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.generation = 0

    def rebalance(self, shares: dict[str, list[int]], new: int = 0) -> dict[str, list[int]]:
        """The members join and take their shares; the members of `new` shares get their ids here."""
        brokers = self.cluster.brokers
        ids = list(shares)
        for number in range(new):
            answer = brokers.ask("broker-a", self._join(""), 9, JoinGroupResponse)
            ids[number] = answer.member_id
        posts = [brokers.post("broker-a", self._join(one), 9) for one in ids]
        brokers.advance(0)
        answers = [brokers.answer(post, JoinGroupResponse) for post in posts]
        assert not any(one.error_code for one in answers)
        self.generation = answers[0].generation_id
        given = dict(zip(ids, shares.values(), strict=True))
        leader = answers[0].leader
        for one in [leader, *sorted(set(ids) - {leader})]:
            self._sync(one, given if one == leader else {})
        return given

    def _join(self, member: str) -> JoinGroupRequest:
        return joining(self.cluster.group, TOPIC, member, 30_000)

    def _sync(self, member: str, shares: dict[str, list[int]]) -> None:
        given = {one: share(TOPIC, numbers) for one, numbers in shares.items()}
        request = syncing(self.cluster.group, self.generation, member, given)
        answer = self.cluster.brokers.ask("broker-a", request, 5, SyncGroupResponse)
        assert answer.error_code == 0

    def start(self) -> dict[str, list[int]]:
        """Two members with two partitions each, of both brokers; the second one has all of broker-b's but one."""
        leader = self.cluster.leader
        of_a = [number for number in PARTITIONS if leader[number] == "broker-a"]
        of_b = [number for number in PARTITIONS if leader[number] == "broker-b"]
        return self.rebalance({"1": [of_a[0], of_b[0]], "2": [of_a[1], of_b[1]]}, new=2)

    def leave(self, member: str) -> None:
        request = LeaveGroupRequest(self.cluster.group, "", (MemberIdentity(member),))
        answer = self.cluster.brokers.ask("broker-a", request, 5, LeaveGroupResponse)
        assert answer.error_code == 0

    def shrink(self, stays: str, leaves: str) -> None:
        """One of two leaves; the other one takes everything."""
        self.leave(leaves)
        self.rebalance({stays: list(PARTITIONS)})


def test_groups_without_members_are_not_asked_who_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be thousands, of past runs. They would be searched for each partition after each rebalance."""
    cluster = Cluster()
    request = committing(cluster.other, TOPIC, {0: 1})
    cluster.brokers.ask("broker-a", request, 9, OffsetCommitResponse)
    classic = Classic(cluster)
    members = classic.start()
    cluster.produce()
    asked: list[str] = []
    member_at = ClassicGroup.member_at

    def noted(
        group: ClassicGroup, client_id: str, host: str, partition: TopicPartition
    ) -> str | None:
        asked.append(group.group_id)
        return member_at(group, client_id, host, partition)

    monkeypatch.setattr(ClassicGroup, "member_at", noted)
    for member, partitions in members.items():
        for partition in partitions:
            cluster.fetch(member, partition, 0)
    assert set(asked) == {cluster.group}


class Consumer:
    """A group of the new protocol: the coordinator gives out the partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.shares: dict[str, list[int]] = {}
        self.epochs: dict[str, int] = {}

    @property
    def generation(self) -> int:
        return max(self.epochs.values())

    def beat(self, member: str, epoch: int | None = None) -> None:
        brokers = self.cluster.brokers
        topic_id = self.cluster.side("broker-a").cluster.id_of(TOPIC)
        owned = [OwnedPartitions(topic_id, self.shares[member])] if self.shares.get(member) else []
        request = ConsumerGroupHeartbeatRequest(
            self.cluster.group,
            member,
            self.epochs[member] if epoch is None else epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[] if epoch == 0 else owned,
        )
        answer = brokers.ask("broker-a", request, 1, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        self.epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            self.shares[member] = [number for topic in topics for number in topic.partitions]

    def start(self) -> dict[str, list[int]]:
        self.beat("m1", 0)
        self.beat("m2", 0)
        for _ in range(3):
            for member in ("m1", "m2"):
                self.beat(member)
        assert sorted(map(len, self.shares.values())) == [2, 2]
        return self.shares

    def leave(self, member: str) -> None:
        self.beat(member, -1)
        del self.shares[member], self.epochs[member]

    def shrink(self, stays: str, leaves: str) -> None:
        self.leave(leaves)
        self.beat(stays)
        assert sorted(self.shares[stays]) == list(PARTITIONS)


Kind = type[Classic] | type[Consumer]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.mark.parametrize("kind", [Classic, Consumer])
def test_both_brokers_together_tell_everything(cluster: Cluster, kind: Kind) -> None:
    group = kind(cluster)
    shares = group.start()
    owner = {partition: member for member in shares for partition in shares[member]}
    second = owner[cluster.leader.index("broker-b")]
    (first,) = shares.keys() - {second}
    cluster.produce()
    for partition in PARTITIONS:
        cluster.fetch(owner[partition], partition, 0)
    for member in (first, second):
        cluster.commit(member, group.generation, dict.fromkeys(shares[member], 3))
    cluster.brokers.advance(2_000)
    moved = list(shares[second])
    group.shrink(first, second)
    cluster.produce()
    cluster.brokers.advance(500)
    for partition in PARTITIONS:
        cluster.fetch(first, partition, 3)

    records = cluster.ledger()
    queue_of = cluster.side("broker-a").cluster.queue_of
    queues = {partition: queue_of(TopicPartition(TOPIC, partition)) for partition in PARTITIONS}
    delivered = sorted(
        (one.broker, one.queue, one.first, one.next, one.client)
        for one in records
        if isinstance(one, Delivered)
    )
    expected = []
    for partition, queue in queues.items():
        assert queue is not None
        expected += [(*queue, 0, 3, owner[partition]), (*queue, 3, 6, first)]
    assert delivered == sorted(expected)
    committed = [one for one in records if isinstance(one, Committed)]
    assert sorted((one.broker, one.queue, one.offset, one.client) for one in committed) == sorted(
        (*queue, 3, owner[partition]) for partition, queue in queues.items() if queue is not None
    )
    assert {(one.broker, one.writer) for one in committed} == {
        ("broker-a", ""),
        ("broker-b", "broker-a"),
    }
    handoffs = [row for row in cost.handoffs(records) if row.kind == "moved"]
    assert {(one.broker, one.queue) for one in handoffs} == {queues[one] for one in moved}
    assert "broker-b" in {one.broker for one in handoffs}
    assert {(one.from_client, one.to_client, one.redelivered) for one in handoffs} == {
        (second, first, 0)
    }
    assert all(500 <= one.pause_ms <= 2_000 for one in handoffs)


@pytest.mark.parametrize("kind", [Classic, Consumer])
def test_a_broker_that_starts_again_is_told_again(cluster: Cluster, kind: Kind) -> None:
    shares = kind(cluster).start()
    expected = cluster.of_b(shares)
    assert cluster.known() == expected
    assert cluster.known("broker-a") == {}
    cluster.brokers.kill("broker-b")
    cluster.brokers.start("broker-b")
    cluster.brokers.advance(500)
    assert cluster.known() == expected
    # Its coordinator is gone, and then starts again.
    cluster.brokers.kill("broker-a")
    cluster.brokers.advance(10_000)
    assert cluster.known() == {}
    cluster.brokers.start("broker-a")
    cluster.brokers.advance(10_000)
    assert cluster.known() == expected


@pytest.mark.parametrize("kind", [Classic, Consumer])
def test_what_waits_is_known_as_soon_as_the_coordinator_is_back(
    cluster: Cluster, kind: Kind
) -> None:
    """Nobody fetches then; it goes on where the group had committed."""
    group = kind(cluster)
    shares = group.start()
    cluster.produce()
    for member, partitions in shares.items():
        cluster.commit(member, group.generation, dict.fromkeys(partitions, 1))
    cluster.brokers.kill("broker-a")
    cluster.brokers.start("broker-a")
    back = cluster.brokers.now
    waiting = [
        (one.topic, one.waiting)
        for one in cluster.ledger()
        if isinstance(one, Backlog) and one.broker == "broker-a" and one.at >= back
    ]
    assert waiting == [(TOPIC, (2, 2))]


@pytest.mark.parametrize("kind", [Classic, Consumer])
def test_a_group_that_ends_is_forgotten(cluster: Cluster, kind: Kind) -> None:
    group = kind(cluster)
    first, second = sorted(group.start())
    group.shrink(first, second)
    assert cluster.known() == cluster.of_b({first: list(PARTITIONS)})
    group.leave(first)
    assert cluster.known() == {}
    cluster.told.clear()
    delete = DeleteGroupsRequest((cluster.group,))
    cluster.brokers.ask("broker-a", delete, 2, DeleteGroupsResponse)
    assert not cluster.told  # broker-b knows nothing of it that it could forget


def test_what_changes_while_a_request_is_under_way_goes_with_the_next(cluster: Cluster) -> None:
    brokers = cluster.brokers
    group = Classic(cluster)
    shares = group.start()
    first, second = sorted(shares)
    brokers.late = lambda command: command.code == READERS
    cluster.told.clear()
    group.shrink(first, second)
    group.leave(first)
    assert len(brokers.held) == 1
    brokers.release()
    assert cluster.known() == {}
    assert len(cluster.told) == 1  # and the one that was held


def test_many_groups_take_several_requests(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "MESSAGE_BYTES", 1)
    shares = Classic(cluster).start()
    expected = cluster.of_b(shares)
    one, cluster.group = cluster.group, cluster.other
    more = Classic(cluster).start()
    cluster.brokers.kill("broker-b")
    cluster.told.clear()
    cluster.brokers.start("broker-b")
    cluster.brokers.advance(500)
    bodies = [msgspec.json.decode(told.body, type=ReaderNews) for told in cluster.told]
    sizes = [(len(body.groups), body.complete) for body in bodies if body.broker == "broker-a"]
    assert sizes == [(1, True), (1, False)]
    both = cluster.of_b(more)
    assert cluster.known() == {
        partition: {one: expected[partition][one], cluster.other: both[partition][cluster.other]}
        for partition in expected
    }


def test_readers_that_do_not_fit_are_not_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Classic(cluster)
    first, second = sorted(group.start())
    monkeypatch.setattr(announcing, "GROUP_BYTES_MAX", 10)
    group.shrink(first, second)
    assert cluster.known() == {}


def test_a_broker_that_did_not_answer_is_told_again(cluster: Cluster) -> None:
    brokers = cluster.brokers
    brokers.lost = lambda command: command.code == READERS
    shares = Classic(cluster).start()
    assert cluster.known() == {}
    brokers.lost = lambda command: False
    brokers.advance(9_000)
    assert cluster.known() == cluster.of_b(shares)


def test_a_broker_that_knows_nothing_any_more_is_told_of_all_groups(cluster: Cluster) -> None:
    """1. broker-b believes that broker-a is gone, and forgets its groups. 2. broker-a, which saw nothing of that, tells
    of one group that changed. 3. broker-b asks for all of them."""
    group = Classic(cluster)
    shares = group.start()
    expected = cluster.of_b(shares)
    one, cluster.group = cluster.group, cluster.other
    more = Classic(cluster).start()
    side = cluster.side("broker-b")
    for live in (False, True):
        side.cluster.meet(cluster.side("broker-a").cluster.entry, live=live)
        cluster.brokers.connect("broker-b")
    assert cluster.known() == {}
    first, second = sorted(more)
    Classic(cluster).shrink(first, second)
    both = cluster.of_b({first: list(PARTITIONS)})
    assert cluster.known() == {number: expected[number] | both[number] for number in expected}
    assert one != cluster.group


def test_a_group_with_a_long_name_is_not_told(cluster: Cluster) -> None:
    cluster.group = cluster.groups_of_a("g" * NAME_MAX)[0]
    Classic(cluster).start()
    assert cluster.known() == {}
    assert len(cluster.told) == 0


# -- what the receiver does --------------------------------------------------------------------------


def entry(*partitions: int, member: str = "m", client: str = "client") -> ReaderEntry:
    return ReaderEntry(member, client, CLIENT[1], {TOPIC: partitions})


def tell(
    cluster: Cluster, *groups: GroupReaders, complete: bool = False, broker: str = "broker-a"
) -> int:
    body = msgspec.json.encode(ReaderNews(broker, groups, complete))
    return cluster.brokers.command("broker-b", READERS, {}, body).code


def test_news_of_one_group_say_nothing_of_the_others(cluster: Cluster) -> None:
    assert tell(cluster, GroupReaders("x", (entry(0, 1),)), GroupReaders("y", (entry(1),))) == 0
    assert cluster.known() == {0: {"x": "m"}, 1: {"x": "m", "y": "m"}}
    assert tell(cluster, GroupReaders("x", (entry(2, member="n"),))) == 0
    assert cluster.known() == {1: {"y": "m"}, 2: {"x": "n"}}
    assert tell(cluster, GroupReaders("z", (entry(3),)), complete=True) == 0
    assert cluster.known() == {3: {"z": "m"}}


def test_who_has_not_told_everything_is_asked_to(cluster: Cluster) -> None:
    assert tell(cluster, broker="broker-x") == ResponseCode.QUERY_NOT_FOUND
    cluster.brokers.kill("broker-a")
    cluster.brokers.advance(10_000)
    told = GroupReaders("x", (entry(0),))
    assert tell(cluster, told, complete=True) == ResponseCode.QUERY_NOT_FOUND  # it is down
    assert cluster.known() == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"groups": []}',
        b'{"broker": "broker-a", "groups": [{"readers": []}]}',
        b'{"broker": "broker-a", "groups": [{"group": "g", "readers": [{"member": "m"}]}]}',
        msgspec.json.encode(ReaderNews("broker-b", complete=True)),
        msgspec.json.encode(ReaderNews("broker-a")).replace(b"[]", b'[{"group": "%s"}]')
        % (b"x" * (NAME_MAX + 1)),
        msgspec.json.encode({
            "broker": "broker-a",
            "groups": [{
                "group": "g",
                "readers": [
                    {"member": "m", "client": "c", "host": "x" * (NAME_MAX + 1), "partitions": {}}
                ],
            }],
        }),
    ],
)  # fmt: skip
def test_bad_news_are_refused(cluster: Cluster, body: bytes) -> None:
    tell(cluster, GroupReaders("x", (entry(0),)), complete=True)
    answer = cluster.brokers.command("broker-b", READERS, {}, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert cluster.known() == {0: {"x": "m"}}


def test_what_is_kept_has_a_bound(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "KEPT_MAX", 5)
    for number in range(10):
        tell(cluster, GroupReaders(f"g{number}", (entry(0, 1), entry(2, member="n"))))
    assert cluster.known() == {
        0: {"g0": "m", "g1": "m"},
        1: {"g0": "m", "g1": "m"},
        2: {"g0": "n"},
    }
    tell(cluster, GroupReaders("g9", (entry(3),)), complete=True)
    assert cluster.known() == {3: {"g9": "m"}}


def test_of_two_groups_a_connection_is_the_one_that_was_delivered_as_far(cluster: Cluster) -> None:
    partition = cluster.leader.index("broker-b")
    for _ in range(5):
        cluster.produce()
    two = (
        GroupReaders("far", (entry(partition, member="f"),)),
        GroupReaders("near", (entry(partition, member="n"),)),
    )
    tell(cluster, two[0])
    cluster.fetch("first", partition, 9)
    tell(cluster, two[1])
    cluster.fetch("second", partition, 3)
    tell(cluster, GroupReaders("far", (entry(partition, member="g"),)))
    cluster.fetch("first", partition, 12)
    cluster.brokers.advance(2_000)
    clients = [
        (one.group, one.client, one.first) for one in cluster.ledger() if isinstance(one, Delivered)
    ]
    assert sorted(clients) == [("far", "f", 9), ("far", "g", 12), ("near", "n", 3)]


def test_others_clients_and_other_hosts_are_no_members(cluster: Cluster) -> None:
    partition = cluster.leader.index("broker-b")
    cluster.produce()
    tell(cluster, GroupReaders("x", (entry(partition, client="somebody"),)))
    cluster.fetch("first", partition, 0)
    assert not any(isinstance(one, Delivered) for one in cluster.ledger())
