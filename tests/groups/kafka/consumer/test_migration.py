"""Groups that change between the classic protocol and KIP-848 while they have members."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import examples
from tests.groups.kafka.consumer.classic_client import SESSION_MS, ClassicClient
from tests.groups.kafka.consumer.conftest import BEAT_MS, GROUP, Client, Rig, World, of

from steelyard.errors import StorageError
from steelyard.groups.kafka.consumer import classic_members
from steelyard.groups.kafka.consumer.group import ConsumerGroup
from steelyard.groups.kafka.effects import Effects
from steelyard.groups.kafka.waiting import SLOT_MS
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_protocol import TopicPartitions
from steelyard.wire.kafka.messages.groups import LeaveGroupRequest, MemberIdentity

Member = Client | ClassicClient


def settle(rig: Rig, *members: Member, rounds: int = 12) -> None:
    for _ in range(rounds):
        for member in members:
            member.beat()
        rig.pass_time(1_000)


def classic(rig: Rig, count: int = 2) -> list[ClassicClient]:
    """A classic group of so many members that share topic t."""
    members = [ClassicClient(rig, f"c{n}", ["t"]) for n in range(count)]
    settle(rig, *members)
    assert rig.groups.get(GROUP).kind == "classic"  # type: ignore[union-attr]
    assert shared(*members)
    return members


def shared(*members: Member, partitions: int = 4) -> bool:
    """Whether they have all partitions of topic t, each one reader, in shares that differ by one."""
    held = [partition for member in members for partition in member.owned]
    sizes = [len(member.owned) for member in members]
    return sorted(held) == sorted(of("t", *range(partitions))) and max(sizes) - min(sizes) <= 1


def kind(rig: Rig) -> str:
    group = rig.groups.get(GROUP)
    assert group is not None
    return group.kind


# -- upgrades --------------------------------------------------------------------------------------


def test_a_rolling_upgrade() -> None:
    """Members are replaced one by one; at the end all use the new protocol."""
    rig = Rig()
    members: list[Member] = [*classic(rig)]
    for number in range(2):
        old = members[0]
        assert isinstance(old, ClassicClient)
        members.append(Client(rig, f"m{number}", ["t"]))
        settle(rig, *members)
        assert kind(rig) == "consumer"
        assert shared(*members)
        old.leave()
        members.remove(old)
        settle(rig, *members)
        assert shared(*members)
    described = rig.consumers.describe(GROUP)
    assert [member.member_type for member in described.members] == [1, 1]


def test_members_keep_their_partitions_and_generation() -> None:
    rig = Rig()
    one, two = classic(rig)
    before = {one.member_id: one.owned, two.member_id: two.owned}
    generation = one.generation
    rig.join("m1", topic_partitions=[])
    group = rig.group
    assert {name: {*member.assigned} for name in before if (member := group.member(name))} == before
    assert group.epoch == generation + 1
    assert one.heartbeat(generation) is ErrorCode.REBALANCE_IN_PROGRESS
    described = {one.member_id: one.member_type for one in rig.consumers.describe(GROUP).members}
    assert described == {one.member_id: 0, two.member_id: 0, "m1": 1}


def test_who_waits_for_a_generation_joins_again() -> None:
    """The join phase of a classic group ends with REBALANCE_IN_PROGRESS for all that wait in it."""
    rig = Rig()
    members = classic(rig)
    late = ClassicClient(rig, "late", ["t"])
    late.beat()
    assert late.handle is not None, "it waits for the others to join again"
    new = Client(rig, "m1", ["t"])
    new.beat()
    late.beat()
    assert late.errors == [ErrorCode.REBALANCE_IN_PROGRESS]
    settle(rig, *members, late, new)
    assert shared(*members, late, new)


def test_who_waits_for_the_leader_joins_again() -> None:
    """In the sync phase, too."""
    rig = Rig()
    leader, follower = classic(rig)
    leader.phase = "join"
    for _ in range(4):  # both join; the follower sends SyncGroup, the leader has yet to
        follower.beat()
        if leader.phase == "join":
            leader._join()
    assert (leader.phase, follower.phase) == ("sync", "sync")
    assert follower.handle is not None
    new = Client(rig, "m1", ["t"])
    new.beat()
    follower.beat()
    assert follower.errors[-1] is ErrorCode.REBALANCE_IN_PROGRESS
    settle(rig, leader, follower, new)
    assert shared(leader, follower, new)


def test_an_upgrade_while_the_assignor_changes() -> None:
    """Who joins may lack the protocol of the generation that ends; all have another in common."""
    rig = Rig()
    members = [ClassicClient(rig, "c", ["t"], protocols=("range", "sticky"))]
    settle(rig, *members)
    members.append(ClassicClient(rig, "d", ["t"], protocol="sticky"))
    members[1].beat()
    assert members[1].handle is not None, "it waits for the other to join again"
    new = Client(rig, "m1", ["t"])
    new.beat()
    assert new.codes == [ErrorCode.NONE]
    members[0].protocol, members[0].protocols = "sticky", ("sticky",)
    settle(rig, *members, new)
    assert kind(rig) == "consumer"
    assert shared(*members, new)


def test_a_static_member_is_upgraded_in_its_place() -> None:
    """A classic static member sends no LeaveGroup: its successor need not wait for one."""
    rig = Rig()
    old = ClassicClient(rig, "c", ["t"], instance="i")
    other = ClassicClient(rig, "d", ["t"])
    settle(rig, old, other)
    new = Client(rig, "m1", ["t"], instance="i")
    settle(rig, new, other)
    assert old.member_id not in rig.group.member_ids()
    assert shared(new, other)
    assert old.heartbeat(old.generation) is ErrorCode.FENCED_INSTANCE_ID


def test_a_topic_that_has_grown_since_the_leader_assigned() -> None:
    """The static member that is upgraded in its place changes nothing else that would begin a rebalance."""
    rig = Rig()
    old = ClassicClient(rig, "c", ["t"], instance="i")
    settle(rig, old)
    rig.world.set("t", 6)
    new = Client(rig, "m1", ["t"], instance="i")
    settle(rig, new)
    assert shared(new, partitions=6)


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_upgrades_that_are_not_allowed(policy: str) -> None:
    rig = Rig(group_consumer_migration_policy=policy)
    members = classic(rig)
    answer = rig.join("m1")
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "online upgrades are disabled" in (answer.error_message or "")
    settle(rig, *members)
    assert kind(rig) == "classic"
    assert shared(*members)


def test_a_group_that_is_too_large() -> None:
    rig = Rig(group_consumer_max_size=1)
    classic(rig)
    answer = rig.join("m1")
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "too many members" in (answer.error_message or "")


def test_an_upgrade_that_cannot_be_stored() -> None:
    """The classic group goes on as if nothing had happened; the next attempt succeeds."""
    rig = Rig()
    members = classic(rig)
    rig.disk.room_bytes = 0
    with pytest.raises(StorageError):
        rig.join("m1")
    assert kind(rig) == "classic"
    rig.disk.room_bytes = None
    settle(rig, *members)
    assert not any(member.errors[1:] for member in members)
    new = Client(rig, "m1", ["t"])
    settle(rig, *members, new)
    assert shared(*members, new)


# -- members of the classic protocol in consumer groups --------------------------------------------


def test_a_classic_member_joins_a_consumer_group() -> None:
    rig = Rig()
    new = Client(rig, "m1", ["t"])
    settle(rig, new)
    old = ClassicClient(rig, "c", ["t"])
    settle(rig, new, old)
    assert kind(rig) == "consumer"
    assert shared(new, old)


def test_a_classic_member_that_is_silent() -> None:
    """Its own session timeout counts."""
    rig = Rig()
    new = Client(rig, "m1", ["t"])
    old = ClassicClient(rig, "c", ["t"])
    settle(rig, new, old)
    rig.pass_time(SESSION_MS)
    assert rig.group.member_ids() == ("m1",)
    assert f"sent no heartbeat for {SESSION_MS} ms" in rig.last_cause.text


def test_a_classic_member_that_was_removed_and_claims_partitions() -> None:
    """Others may have them by now: it must give them up first. Kafka would take it for a new member."""
    rig = Rig()
    new, old = Client(rig, "m1", ["t"]), ClassicClient(rig, "c", ["t"])
    settle(rig, new, old)
    settle(rig, new, rounds=SESSION_MS // 1_000 + 1)
    claims = [TopicPartitions("t", [0, 1])]
    answer = old.join_group(old.member_id, claims=claims)
    assert answer is not None
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    answer = old.join_group("")
    assert answer is not None
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    answer = old.join_group(answer.member_id, claims=claims)  # whatever it claims as a new one
    assert answer is not None
    assert answer.error_code == ErrorCode.NONE
    assert len(new.owned) == 4


def test_member_ids_that_were_issued_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_members, "ISSUED_MAX", 2)
    issued = classic_members.IssuedIds()
    for member_id in ("a", "b", "c"):
        issued.add(member_id)
    assert [issued.taken(each) for each in ("a", "b", "b", "c")] == [False, True, False, True]


def test_a_classic_member_that_does_not_join_again() -> None:
    """It sends heartbeats but does not rejoin, as a client whose application does not poll."""
    rig = Rig()
    new, old = Client(rig, "m1", ["t"]), ClassicClient(rig, "c", ["t"])
    settle(rig, new, old)
    third = Client(rig, "m2", ["t"])
    generation = old.generation
    for _ in range(40):
        for client in (new, third):
            client.beat()
        if old.heartbeat(generation) is ErrorCode.UNKNOWN_MEMBER_ID:
            break
        rig.pass_time(1_000)
    assert rig.group.member_ids() == ("m1", "m2")
    assert "did not join again within its rebalance timeout" in str(rig.causes)


def test_a_classic_member_that_does_not_sync() -> None:
    rig = Rig()
    new, old = Client(rig, "m1", ["t"]), ClassicClient(rig, "c", ["t"])
    settle(rig, new)
    old._join()
    assert old.phase == "sync"
    for _ in range(40):
        new.beat()
        if old.heartbeat(old.generation) is ErrorCode.UNKNOWN_MEMBER_ID:
            break
        rig.pass_time(1_000)
    assert "did not send SyncGroup within its rebalance timeout" in str(rig.causes)


def test_other_protocols_are_refused() -> None:
    rig = Rig()
    settle(rig, Client(rig, "m1", ["t"]), ClassicClient(rig, "c", ["t"]))
    other = ClassicClient(rig, "d", ["t"], protocol="roundrobin")
    answer = other.join_group("")
    assert answer is not None
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_requests_of_members_that_use_the_other_protocol() -> None:
    """A member of the consumer protocol sends neither Heartbeat nor SyncGroup."""
    rig = Rig()
    new, old = Client(rig, "m1", ["t"]), ClassicClient(rig, "c", ["t"])
    settle(rig, new, old)
    old.member_id = "m1"
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert old.heartbeat(new.epoch) is unknown
    answer = old.sync_group(new.epoch)
    assert answer is not None
    assert answer.error_code == unknown


def remove(rig: Rig, *leavers: tuple[str, str | None]) -> list[ErrorCode]:
    """What an operator is told who removes members, named by member id and instance id."""
    named = tuple(MemberIdentity(*leaver) for leaver in leavers)
    effects: Effects = []
    request = LeaveGroupRequest(GROUP, "", named)
    answer = rig.consumers.classic.leave(rig.group, request, 5, rig.now, effects)
    rig.took(effects)
    assert [(one.member_id, one.group_instance_id) for one in answer.members] == [*leavers]
    return [ErrorCode(one.error_code) for one in answer.members]


def test_an_operator_removes_members_of_the_consumer_protocol() -> None:
    """A static one that is away gives its partitions up before its session ends."""
    rig = Rig()
    stays, goes = Client(rig, "m1", ["t"]), Client(rig, "m2", ["t"])
    settle(rig, stays, goes)
    rig.join("m3", instance_id="i")
    settle(rig, stays, goes)
    rig.beat("m3", -2, instance_id="i")
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert remove(rig, ("m2", None), ("", "i"), ("", "j"), ("m4", None)) == [
        *(ErrorCode.NONE, ErrorCode.NONE, unknown, unknown)
    ]
    assert rig.group.member_ids() == ("m1",)
    settle(rig, stays, rounds=2)
    assert shared(stays)
    goes.beat()
    assert goes.codes[-1] is unknown, "its client joins again"


def test_an_operator_removes_members_of_both_protocols() -> None:
    """The last one of the consumer protocol makes the group a classic one, which has only who stays."""
    rig = Rig()
    members = classic(rig, 3)
    new = Client(rig, "m1", ["t"])
    settle(rig, *members, new)
    goes, *stay = members
    asked = ("m1", None), (goes.member_id, None), ("m1", None)
    assert remove(rig, *asked) == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert kind(rig) == "classic"
    group = rig.groups.get(GROUP)
    assert group is not None
    assert group.member_ids() == tuple(sorted(one.member_id for one in stay))


def test_commits_of_both() -> None:
    rig = Rig()
    new, old = Client(rig, "m1", ["t"]), ClassicClient(rig, "c", ["t"])
    settle(rig, new, old)

    def commit(member_id: str, generation: int, version: int) -> ErrorCode:
        words = (member_id, None, generation)
        return rig.group.check_commit(*words, version=version, transactional=False, now=rig.now)

    assert commit(old.member_id, old.generation, 8) is ErrorCode.NONE
    assert commit(old.member_id, old.generation - 1, 8) is ErrorCode.ILLEGAL_GENERATION
    assert commit("m1", new.epoch, 8) is ErrorCode.UNSUPPORTED_VERSION
    assert rig.group.check_fetch(old.member_id, old.generation) is ErrorCode.NONE
    wrong = rig.group.check_fetch(old.member_id, old.generation - 1)
    assert wrong is ErrorCode.ILLEGAL_GENERATION


# -- downgrades ------------------------------------------------------------------------------------


def test_a_rolling_downgrade() -> None:
    rig = Rig()
    members: list[Member] = [Client(rig, "m1", ["t"]), Client(rig, "m2", ["t"])]
    settle(rig, *members)
    for number in range(2):
        old = members[0]
        assert isinstance(old, Client)
        members.append(ClassicClient(rig, f"c{number}", ["t"]))
        settle(rig, *members)
        assert shared(*members)
        old.leave()
        members.remove(old)
        settle(rig, *members)
        assert shared(*members)
    assert kind(rig) == "classic"


def test_the_last_one_of_the_consumer_protocol_dies() -> None:
    rig = Rig()
    new, old = Client(rig, "m1", ["t"]), ClassicClient(rig, "c", ["t"])
    settle(rig, new, old)
    settle(rig, old, rounds=60)
    assert kind(rig) == "classic"
    assert shared(old)


def test_a_static_member_is_downgraded_in_its_place() -> None:
    rig = Rig()
    new = Client(rig, "m1", ["t"], instance="i")
    other = ClassicClient(rig, "d", ["t"])
    settle(rig, new, other)
    old = ClassicClient(rig, "c", ["t"], instance="i")
    settle(rig, old, other)
    assert kind(rig) == "classic"
    assert shared(old, other)


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_downgrades_that_are_not_allowed(policy: str) -> None:
    """The group stays one of the new protocol, and serves its members."""
    rig = Rig(group_consumer_migration_policy=policy)
    new, old = Client(rig, "m1", ["t"]), ClassicClient(rig, "c", ["t"])
    settle(rig, new, old)
    new.leave()
    settle(rig, old)
    assert kind(rig) == "consumer"
    assert shared(old)


def test_an_upgrade_before_members_have_heard_of_the_downgrade() -> None:
    """1. A member is to give up half of its partitions. 2. The group is downgraded. 3. Another member upgrades it.

    The first member, which has heard of nothing, goes on reading what it has.
    """
    rig = Rig(World(a=1, t=4))
    new, old = Client(rig, "m1", ["a"]), ClassicClient(rig, "c", ["t"])
    settle(rig, new, old)
    held = set(old.owned)
    second = ClassicClient(rig, "d", ["t"])
    second.beat()
    second.leave()
    new.leave()
    assert kind(rig) == "classic"
    third = Client(rig, "m2", ["t"])
    third.beat()
    assert kind(rig) == "consumer"
    assert held == old.owned
    assert not held & third.owned
    settle(rig, old, third, rounds=60)
    assert len(old.owned) == len(third.owned) == 2


def test_members_behind_the_group_keep_their_partitions_in_a_downgrade() -> None:
    """They are told to rejoin in the epoch that they know, and may commit until they have done so."""
    rig = Rig()
    new, old = Client(rig, "m1", ["t"]), ClassicClient(rig, "c", ["t"])
    settle(rig, new, old)
    second = Client(rig, "m2", ["t"])
    second.beat()
    second.leave()
    assert old.generation < rig.group.epoch
    new.leave()
    assert kind(rig) == "classic"
    group = rig.groups.get(GROUP)
    assert group is not None

    def may_commit(generation: int) -> ErrorCode:
        return group.check_commit(
            old.member_id, None, generation, version=9, transactional=False, now=rig.now
        )

    known = old.generation
    assert may_commit(known) is ErrorCode.NONE
    assert may_commit(known - 1) is ErrorCode.ILLEGAL_GENERATION
    errors = len(old.errors)
    settle(rig, old)
    assert old.errors[errors:] == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert shared(old)
    assert may_commit(known) is ErrorCode.ILLEGAL_GENERATION


def test_a_restart_before_a_downgraded_group_has_rebalanced() -> None:
    """Nobody would read the partitions of the member that left."""
    rig = Rig()
    new, old = Client(rig, "m1", ["t"]), ClassicClient(rig, "c", ["t"])
    settle(rig, new, old)
    new.leave()
    assert kind(rig) == "classic"
    rig.restart()
    settle(rig, old)
    assert kind(rig) == "classic"
    assert shared(old)


def test_a_restart_in_between() -> None:
    """Members of both kinds go on after a restart, and after a kill between the two rows."""
    rig = Rig()
    new, old = Client(rig, "m1", ["t"]), ClassicClient(rig, "c", ["t"])
    settle(rig, new, old)
    before = rig.group.epoch
    rig.restart()
    settle(rig, new, old)
    assert rig.group.epoch == before, "nobody had to join again"
    assert shared(new, old)


def test_a_kill_between_the_two_rows() -> None:
    rig = Rig()
    members = classic(rig)
    saved = [(key, value) for key, value in rig.store.table("kafka_groups").items()]
    new = Client(rig, "m1", ["t"])
    new.beat()
    for key, value in saved:
        rig.store.table("kafka_groups").put(key, value)
    rig.restart()
    assert kind(rig) == "consumer"
    assert not list(rig.store.table("kafka_groups").items())
    settle(rig, *members, new)
    assert shared(*members, new)


# -- heartbeats that wait --------------------------------------------------------------------------


def mixed(rig: Rig) -> tuple[ClassicClient, Client]:
    """A consumer group of a member of each protocol."""
    old = ClassicClient(rig, "c", ["t"])
    new = Client(rig, "m1", ["t"])
    new.beat()
    settle(rig, old, new)
    assert kind(rig) == "consumer"
    assert shared(old, new)
    return old, new


def test_a_classic_member_hears_at_once_of_a_newcomer_and_of_what_others_give_up() -> None:
    rig = Rig()
    old, new = mixed(rig)
    waiting = old.send_heartbeat(old.generation)
    assert old.told(waiting) is None
    third = Client(rig, "m2", ["t"])
    third.beat()
    assert old.told(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    settle(rig, old, new, third)
    third.leave()
    for _ in range(3):  # what the newcomer had goes to the two others
        new.beat()
        old.beat()
    assert shared(old, new)


def test_a_classic_member_waits_for_what_others_have_yet_to_give_up() -> None:
    rig = Rig(World(t=2))
    new = Client(rig, "m1", ["t"], lazy=True)
    new.beat()
    new.finish()
    old = ClassicClient(rig, "c", ["t"])
    old.beat()
    new.beat()
    assert (old.phase, old.owned) == ("stable", set())
    waiting = old.send_heartbeat(old.generation)
    assert old.told(waiting) is None
    new.finish()
    new.beat()
    assert old.told(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    settle(rig, old, new, rounds=2)
    assert shared(old, new, partitions=2)


def test_a_classic_member_waits_less_than_a_third_of_its_session() -> None:
    rig = Rig(group_heartbeat_wait_max_ms=60_000)
    old, _ = mixed(rig)
    waiting = old.send_heartbeat(old.generation)
    rig.pass_time(SESSION_MS // 3 - 2 * SLOT_MS)
    assert old.told(waiting) is None
    rig.pass_time(2 * SLOT_MS)
    assert old.told(waiting) is ErrorCode.NONE


def test_a_classic_member_that_waits_hears_of_a_downgrade() -> None:
    rig = Rig()
    old, new = mixed(rig)
    waiting = old.send_heartbeat(old.generation)
    new.leave()
    assert kind(rig) == "classic"
    assert old.told(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    settle(rig, old)
    assert shared(old)


def test_a_classic_member_that_waits_hears_of_a_downgrade_in_place() -> None:
    """The last member of the consumer protocol, a static one, comes back as one of the classic protocol."""
    rig = Rig()
    old = ClassicClient(rig, "c", ["t"])
    static = Client(rig, "m1", ["t"], instance="i")
    static.beat()
    settle(rig, old, static)
    assert kind(rig) == "consumer"
    waiting = old.send_heartbeat(old.generation)
    back = ClassicClient(rig, "d", ["t"], instance="i")
    back.beat()
    assert kind(rig) == "classic"
    assert old.told(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    settle(rig, old, back)
    assert shared(old, back)


def test_classic_members_that_must_not_wait() -> None:
    """kafkajs, which fetches only after the answer, has no flexible version of Heartbeat."""
    rig = Rig()
    old, _ = mixed(rig)
    assert old.told(old.send_heartbeat(old.generation, version=3)) is ErrorCode.NONE


# -- laws ------------------------------------------------------------------------------------------

CLIENTS_MAX = 5
ROUNDS_MAX = 90
TOPICS = ["a", "t"]
picks = st.integers(0, CLIENTS_MAX - 1)
topics = st.lists(st.sampled_from(TOPICS), unique=True, min_size=1).map(sorted)


class Mixed(RuleBasedStateMachine):
    """Members of both protocols come and go as they like; a partition has one reader at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(World(a=2, t=4))
        self.clients: list[Member] = []
        self.names = 0

    def one(self, pick: int) -> Member:
        return self.clients[pick % len(self.clients)]

    @rule(wanted=topics, is_classic=st.booleans())
    def join(self, wanted: list[str], is_classic: bool) -> None:
        if len(self.clients) < CLIENTS_MAX:
            self.names += 1
            kind = ClassicClient if is_classic else Client
            self.clients.append(kind(self.rig, f"m{self.names}", wanted))
            self.clients[-1].beat()

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def beat(self, pick: int) -> None:
        self.one(pick).beat()

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def wait(self, pick: int) -> None:
        self.one(pick).wait()

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def read(self, pick: int) -> None:
        self.one(pick).read()

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        client = self.one(pick)
        self.clients.remove(client)
        if not isinstance(client, ClassicClient) or client.member_id:
            client.leave()

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def die(self, pick: int) -> None:
        self.clients.remove(self.one(pick))

    @rule(ms=st.sampled_from([1_000, BEAT_MS, 20_000, 50_000]))
    def pass_time(self, ms: int) -> None:
        self.rig.pass_time(ms)

    @rule(topic=st.sampled_from(TOPICS))
    def grow(self, topic: str) -> None:
        self.rig.world.set(topic, min(8, self.rig.world.partitions(topic) + 1))

    @rule()
    def restart(self) -> None:
        self.rig.restart()
        for client in self.clients:
            if isinstance(client, ClassicClient):
                client.reset()
            else:
                client.reconnect(known=False)

    @rule()
    def get_quiet(self) -> None:
        for _ in range(ROUNDS_MAX):
            for client in self.clients:
                client.beat()
            self.rig.pass_time(1_000)
        group = self.rig.groups.get(GROUP)
        if not self.clients:
            return
        assert group is not None
        assert group.state == "Stable"
        assert len(group.member_ids()) == len(self.clients)
        everyone = all(isinstance(client, ClassicClient) for client in self.clients)
        if not everyone:
            assert group.kind == "consumer"
        held = [partition for client in self.clients for partition in client.owned]
        assert len(held) == len(set(held))
        if isinstance(group, ConsumerGroup):
            wanted = {topic for client in self.clients for topic in client.topics}
            counts = {topic: self.rig.world.partitions(topic) for topic in wanted}
            assert set(held) == {
                TopicPartition(topic, number)
                for topic, count in counts.items()
                for number in range(count)
            }
        for client in self.clients:
            assert {topic for topic, _ in client.owned} <= set(client.topics)

    @invariant()
    def one_reader(self) -> None:
        group = self.rig.groups.get(GROUP)
        counted = group.member_ids() if group is not None else ()
        readers: dict[TopicPartition, str] = {}
        for client in self.clients:
            if client.member_id in counted:
                for partition in client.owned:
                    assert partition not in readers, f"{readers[partition]}, {client.member_id}"
                    readers[partition] = client.member_id

    @invariant()
    def is_whole(self) -> None:
        self.rig.took([])

    def teardown(self) -> None:
        self.get_quiet()


Mixed.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=30)
TestMixed = Mixed.TestCase
