"""The Kafka consumer node as a member of a KIP-848 group, against scripted brokers."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.kafka.rig import T0, T1, Rig, topic_id

from steelyard.errors import CommitFailedError, ConfigError, KafkaError
from steelyard.nodes.consumer.kafka import contract
from steelyard.nodes.consumer.kafka.contract import OffsetAndMetadata
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from steelyard.wire.kafka.messages.offsets import OffsetCommitRequest, OffsetFetchRequest

HEARTBEAT = "ConsumerGroupHeartbeat"


def make(*, hooks: bool = False, **settings: object) -> Rig:
    return Rig(hooks=hooks, group_protocol="consumer", **settings)


def heartbeats(rig: Rig) -> list[ConsumerGroupHeartbeatRequest]:
    found = [request.message for request in rig.cluster.requests(HEARTBEAT)]
    assert all(isinstance(message, ConsumerGroupHeartbeatRequest) for message in found)
    return found  # type: ignore[return-value]


@pytest.fixture
def rig() -> Rig:
    """A member that holds both partitions and has read nothing."""
    rig = make()
    assert rig.result(contract.Subscribe(("t",))) is None
    rig.run()
    assert rig.result(contract.Assignment()) == (T0, T1)
    return rig


def test_from_nothing_to_the_first_records(rig: Rig) -> None:
    """Offsets are asked for as the member in its epoch, and what it took is told."""
    rig.cluster.fill(T0, b"1")
    rig.pass_time(31_000)
    assert rig.poll() == [b"1"]
    first, second = heartbeats(rig)[:2]
    assert (first.member_epoch, first.subscribed_topic_names) == (0, ["t"])
    assert second.member_epoch == 1
    assert second.topic_partitions is not None
    assert [(one.topic_id, list(one.partitions)) for one in second.topic_partitions] == [
        (topic_id("t"), [0, 1])
    ]
    fetch = rig.cluster.requests("OffsetFetch")[0].message
    assert isinstance(fetch, OffsetFetchRequest)
    assert (fetch.groups[0].member_id, fetch.groups[0].member_epoch) == (first.member_id, 1)
    state = rig.result(contract.Describe())
    assert isinstance(state, contract.MemberState)
    assert (state.state, state.generation, state.member_id) == ("stable", 1, first.member_id)


def test_what_was_consumed_is_committed_before_it_is_given_up() -> None:
    """1. A poll returned records. 2. A partition goes: nothing happens while the application works.
    3. The next poll: commit in the member's epoch, hook, and only then the coordinator is told."""
    rig = make(hooks=True, auto_commit_interval_ms=60_000)
    rig.cluster.fill(T1, b"1", b"2")
    rig.ask(contract.Subscribe(("t",)))
    assert rig.poll() == [b"1", b"2"]
    rig.cluster.share = (0,)
    rig.pass_time(5_000)
    assert rig.cluster.requests("OffsetCommit") == []
    rig.hold_hooks = True
    before = len(heartbeats(rig))
    rig.begin_poll()
    assert rig.handed[-1] == contract.Revoked((T1,))
    assert rig.cluster.offsets[T1] == 2
    commit = rig.cluster.requests("OffsetCommit")[0].message
    assert isinstance(commit, OffsetCommitRequest)
    assert (commit.generation_id_or_member_epoch, commit.member_id) == (
        1,
        heartbeats(rig)[0].member_id,
    )
    assert len(heartbeats(rig)) == before
    rig.finish_hook()
    rig.run()
    (told,) = heartbeats(rig)[before:]
    assert told.topic_partitions is not None
    assert [list(one.partitions) for one in told.topic_partitions] == [[0]]


def test_a_member_that_is_fenced_has_lost_its_partitions_and_comes_back() -> None:
    rig = make(hooks=True, auto_commit_interval_ms=60_000)
    rig.ask(contract.Subscribe(("t",)))
    rig.poll()
    rig.cluster.errors[HEARTBEAT] = [ErrorCode.FENCED_MEMBER_EPOCH]
    rig.pass_time(5_000)
    rig.poll()
    rig.pass_time(500)
    rig.poll()
    both = (T0, T1)
    assert rig.handed == [contract.Assigned(both), contract.Lost(both), contract.Assigned(both)]
    assert rig.cluster.requests("OffsetCommit") == []


def test_a_commit_in_an_old_epoch_is_sent_again(rig: Rig) -> None:
    """STALE_MEMBER_EPOCH: the answer with the next epoch is on its way."""
    rig.cluster.errors["OffsetCommit"] = [ErrorCode.STALE_MEMBER_EPOCH]
    call = rig.ask(contract.Commit({T0: OffsetAndMetadata(5)}))
    assert call not in rig.answers
    rig.pass_time(100)
    assert rig.answers[call] is None
    assert rig.cluster.offsets[T0] == 5


def test_offsets_asked_for_in_an_old_epoch_are_asked_for_again() -> None:
    rig = make()
    rig.cluster.fill(T0, b"1")
    rig.cluster.errors["OffsetFetch"] = [ErrorCode.STALE_MEMBER_EPOCH]
    rig.ask(contract.Subscribe(("t",)))
    rig.pass_time(1_000)
    assert rig.poll() == [b"1"]


def test_a_commit_of_a_member_that_is_not_known_fails_and_costs_the_membership(rig: Rig) -> None:
    rig.cluster.errors["OffsetCommit"] = [ErrorCode.UNKNOWN_MEMBER_ID]
    error = rig.result(contract.Commit({T0: OffsetAndMetadata(5)}))
    assert isinstance(error, CommitFailedError)
    rig.poll()
    assert heartbeats(rig)[-1].member_epoch != 0  # after a moment
    rig.pass_time(200)
    assert [one.member_epoch for one in heartbeats(rig)].count(0) == 2


@pytest.mark.parametrize(
    ("instance", "epoch"), [("", -1), ("i", -2)], ids=["dynamic", "static, for now"]
)
def test_a_member_that_closes_commits_and_leaves(instance: str, epoch: int) -> None:
    rig = make(group_instance_id=instance)
    rig.cluster.fill(T0, b"1")
    rig.ask(contract.Subscribe(("t",)))
    assert rig.poll() == [b"1"]
    call = rig.ask(contract.Stop())
    rig.pass_time(100)
    assert rig.answers[call] is None
    assert rig.cluster.offsets[T0] == 1
    assert heartbeats(rig)[-1].member_epoch == epoch
    assert heartbeats(rig)[-1].instance_id == (instance or None)


def test_a_consumer_that_unsubscribes_may_subscribe_again() -> None:
    """It is the same member (KIP-1082), and knows the topics' names as before."""
    rig = make()
    rig.ask(contract.Subscribe(("t",)))
    rig.poll()
    call = rig.ask(contract.Subscribe())
    rig.run()
    assert rig.answers[call] is None
    asked = len(rig.cluster.requests("Metadata"))
    rig.ask(contract.Subscribe(("t",)))
    rig.run()
    assert rig.result(contract.Assignment()) == (T0, T1)
    assert len(rig.cluster.requests("Metadata")) == asked
    joins = [one.member_id for one in heartbeats(rig) if one.member_epoch == 0]
    assert len(joins) == 2
    assert len(set(joins)) == 1


def test_a_topic_without_a_name_is_looked_up_until_there_is_one() -> None:
    """The coordinator knows a new topic before the broker that is asked for metadata does."""
    rig = make()
    leaders, rig.cluster.leaders = rig.cluster.leaders, {}
    rig.ask(contract.Subscribe(("t",)))
    rig.pass_time(1_000)
    assert rig.result(contract.Assignment()) == ()
    rig.cluster.leaders = leaders
    rig.pass_time(2_000)
    assert rig.result(contract.Assignment()) == (T0, T1)


@pytest.mark.parametrize("known", [None, (0, 0)], ids=["no such request", "refused"])
def test_a_broker_without_the_protocol(known: tuple[int, int] | None) -> None:
    """The error says what to do; a later poll tries again."""
    rig = make()
    if known is None:
        rig.cluster.versions.pop(68)
    else:
        rig.cluster.errors[HEARTBEAT] = [ErrorCode.UNSUPPORTED_VERSION]
    rig.ask(contract.Subscribe(("t",)))
    with pytest.raises(KafkaError, match="does not support group_protocol='consumer'") as caught:
        rig.poll()
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
    rig.cluster.versions[68] = (0, 1)
    rig.cut(1)
    rig.cluster.fill(T0, b"1")
    rig.pass_time(1_000)
    assert [*rig.poll(), *rig.poll()] == [b"1"]


def test_nobody_but_the_coordinator_makes_the_group_rebalance(rig: Rig) -> None:
    error = rig.result(contract.Rejoin("why"))
    assert isinstance(error, ConfigError)
    assert "the coordinator decides" in str(error)
