"""The Kafka consumer node against scripted brokers."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.kafka.rig import T0, T1, Rig

from steelyard.errors import CommitFailedError, ConfigError, KafkaError, NoOffsetError
from steelyard.nodes.consumer.kafka import commits, contract
from steelyard.nodes.consumer.kafka.contract import OffsetAndMetadata
from steelyard.nodes.seam import Call
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import FetchRequest
from steelyard.wire.kafka.messages.logs import LATEST
from steelyard.wire.kafka.messages.offsets import OffsetCommitRequest


@pytest.fixture
def rig() -> Rig:
    """A member that holds both partitions and has read nothing."""
    rig = Rig()
    assert rig.result(contract.Subscribe(("t",))) is None
    rig.run()
    assert rig.result(contract.Assignment()) == (T0, T1)
    return rig


def test_from_nothing_to_the_first_records(rig: Rig) -> None:
    rig.cluster.fill(T0, b"1", b"2")
    rig.cluster.fill(T1, b"3")
    rig.pass_time(40_000)  # the fetches that wait for records time out, and are made again
    assert {*rig.poll(), *rig.poll()} == {b"1", b"2", b"3"}
    assert rig.cluster.names("Heartbeat", "OffsetCommit") == [
        "FindCoordinator",
        "JoinGroup",
        "SyncGroup",
        "OffsetFetch",
        "ListOffsets",
        "ListOffsets",
    ]


def test_it_begins_where_the_group_was() -> None:
    rig = Rig()
    rig.cluster.fill(T0, b"1", b"2", b"3")
    rig.cluster.offsets[T0] = 2
    rig.ask(contract.Subscribe(("t",)))
    assert rig.poll() == [b"3"]  # of a batch that begins before it


def test_offsets_are_committed_before_the_group_is_joined_again(rig: Rig) -> None:
    """1. A poll returned records. 2. The group rebalances: nothing is given up while the application works on them.
    3. The next poll: commit, then JoinGroup."""
    rig.cluster.fill(T0, b"1", b"2")
    rig.pass_time(31_000)
    assert rig.poll() == [b"1", b"2"]
    rig.cluster.errors["Heartbeat"] = [ErrorCode.REBALANCE_IN_PROGRESS] * 3
    before = len(rig.cluster.asked)
    rig.pass_time(9_500)
    assert rig.cluster.requests("JoinGroup")[1:] == []
    assert rig.cluster.offsets.get(T0, 0) == 0  # not consumed before the next poll
    rig.begin_poll()
    asked = [request.api.name for _, request in rig.cluster.asked[before:]]
    order = [name for name in asked if name in ("OffsetCommit", "JoinGroup", "SyncGroup")]
    assert order[-3:] == ["OffsetCommit", "JoinGroup", "SyncGroup"]
    assert rig.cluster.offsets[T0] == 2


def test_hooks_run_while_a_poll_waits_and_it_waits_for_them() -> None:
    rig = Rig(hooks=True)
    rig.cluster.fill(T0, b"1")
    rig.ask(contract.Subscribe(("t",)))
    rig.pass_time(1_000)
    assert rig.handed == []
    rig.hold_hooks = True
    poll = rig.begin_poll()
    assert rig.handed == [contract.Assigned((T0, T1))]
    assert rig.cluster.requests("Fetch") == []  # the hook may seek
    assert rig.result(contract.Seek(T0, 0)) is None
    rig.pass_time(5_000)
    assert poll not in rig.answers
    rig.finish_hook()
    rig.run()
    rig.pass_time(100)
    assert poll in rig.answers


def test_a_member_that_is_not_known_any_more_has_lost_its_partitions() -> None:
    rig = Rig(hooks=True)
    rig.ask(contract.Subscribe(("t",)))
    rig.poll()
    rig.cluster.errors["Heartbeat"] = [ErrorCode.UNKNOWN_MEMBER_ID]
    rig.pass_time(3_500)
    commits = len(rig.cluster.requests("OffsetCommit"))
    rig.poll()
    rig.pass_time(500)
    rig.poll()
    assert rig.handed == [
        contract.Assigned((T0, T1)),
        contract.Lost((T0, T1)),
        contract.Assigned((T0, T1)),
    ]
    assert len(rig.cluster.requests("OffsetCommit")) == commits


# -- versions and connections ----------------------------------------------------------------------


def test_a_broker_that_does_not_know_our_apiversions() -> None:
    """KIP-511: it answers in version 0 with what it knows, and is asked again."""
    rig = Rig()
    rig.cluster.versions[18] = (0, 2)
    rig.cluster.versions[1] = (4, 11)
    rig.cluster.fill(T0, b"1")
    rig.ask(contract.Subscribe(("t",)))
    assert rig.poll() == [b"1"]
    assert {request.version for request in rig.cluster.requests("ApiVersions")} == {2}
    assert {request.version for request in rig.cluster.requests("Fetch")} == {11}


def test_topics_go_by_name_though_the_broker_knows_ids(rig: Rig) -> None:
    rig.poll()
    assert {request.version for request in rig.cluster.requests("Fetch")} == {12}


def test_a_broker_without_a_version_that_we_know() -> None:
    rig = Rig()
    rig.cluster.versions[11] = (90, 99)
    rig.ask(contract.Subscribe(("t",)))
    with pytest.raises(KafkaError, match="JoinGroup") as caught:
        rig.poll()
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_an_answer_to_nothing_ends_the_connection_and_all_goes_on() -> None:
    rig = Rig()
    rig.cluster.fill(T0, b"1")
    rig.out_of_order = True
    rig.ask(contract.Subscribe(("t",)))
    assert rig.poll() == []
    assert rig.hung
    rig.out_of_order = False
    assert rig.poll(2_000) == [b"1"]


def test_a_broker_that_does_not_answer_is_hung_up_on() -> None:
    """Another one of the bootstrap servers is asked then."""
    rig = Rig(bootstrap_servers=("a:9092", "b:9092"), group_id="", request_timeout_ms=1_000)
    rig.cluster.fill(T1, b"1")
    rig.cluster.mute.add("Metadata")
    rig.ask(contract.Assign((T1,)))
    rig.poll(1_500)
    rig.poll(1_500)
    rig.cluster.mute.clear()
    asked = {node for node, request in rig.cluster.asked if request.api.name == "Metadata"}
    assert asked == {1, 2}
    assert rig.poll(3_000) == [b"1"]


def test_nobody_is_dialed_without_a_pause() -> None:
    rig = Rig()
    rig.cluster.up.clear()
    rig.ask(contract.Subscribe(("t",)))
    rig.poll(60_000)
    rig.cluster.up = {1, 2}
    rig.cluster.fill(T0, b"1")
    assert rig.poll(3_000) == [b"1"]


def test_a_broker_that_comes_back(rig: Rig) -> None:
    rig.poll()
    rig.cluster.up.remove(2)
    rig.cut(2)
    rig.cluster.fill(T1, b"1")
    assert rig.poll(5_000) == []
    rig.cluster.up.add(2)
    assert rig.poll(5_000) == [b"1"]


# -- fetches ---------------------------------------------------------------------------------------


def test_a_partition_that_moved_is_fetched_from_its_new_leader() -> None:
    rig = Rig(group_id="")
    rig.cluster.fill(T0, b"1", b"2")
    rig.ask(contract.Assign((T0,)))
    assert rig.poll(records_max=1) == [b"1"]
    rig.cluster.leaders[T0] = 2
    rig.cluster.fill(T0, b"3")
    assert rig.poll() == [b"2"]
    assert rig.poll(1_000) == [b"3"]
    asked = [node for node, request in rig.cluster.asked if request.api.name == "Fetch"]
    assert asked[:3] == [1, 1, 2]


def test_a_throttled_consumer_waits_before_it_fetches_again() -> None:
    """1. A leader tells to wait for longer than a request may take. 2. It gets no fetch meanwhile, the other one does.
    3. Then the consumer goes on, on the same connection."""
    rig = Rig(group_id="", request_timeout_ms=30_000)
    rig.cluster.throttles = {1: 60_000}
    rig.cluster.fill(T0, b"1")
    rig.ask(contract.Assign((T0, T1)))
    assert rig.poll(1_000) == [b"1"]
    rig.cluster.fill(T0, b"2")
    rig.cluster.fill(T1, b"3")
    assert rig.poll(50_000) == [b"3"]
    assert rig.poll(5_000) == []
    asked = [node for node, request in rig.cluster.asked if request.api.name == "Fetch"]
    assert asked.count(1) == 1
    assert asked.count(2) > 1
    assert rig.poll(6_000) == [b"2"]
    assert not [reason for reason in rig.hung if "a:9092" in reason]


def test_nothing_is_fetched_of_what_is_paused_or_not_polled() -> None:
    rig = Rig(group_id="")
    rig.cluster.fill(T0, *[b"x"] * 10)
    rig.ask(contract.Assign((T0, T1)))
    rig.pass_time(100)
    rig.cluster.asked.clear()
    assert len(rig.poll(records_max=4)) == 4
    assert len(rig.poll(records_max=4)) == 4
    assert all(T0.partition not in numbers for numbers in fetched(rig))
    assert rig.result(contract.Pause((T0,))) is None
    assert rig.poll() == []
    assert rig.result(contract.Paused()) == (T0,)
    assert all(T0.partition not in numbers for numbers in fetched(rig))
    rig.ask(contract.Resume((T0,)))
    assert len(rig.poll()) == 2
    assert rig.result(contract.Position(T0)) == 10


def fetched(rig: Rig) -> list[list[int]]:
    """The partitions of each fetch."""
    found = []
    for request in rig.cluster.requests("Fetch"):
        assert isinstance(request.message, FetchRequest)
        found.append([p.partition for topic in request.message.topics for p in topic.partitions])
    return found


def test_damage_is_told_and_can_be_passed_over() -> None:
    rig = Rig(group_id="")
    rig.cluster.fill(T0, b"1")
    rig.cluster.fill(T0, b"2")
    rig.cluster.fill(T0, b"3")
    broken = bytearray(rig.cluster.logs[T0][1])
    broken[-1] ^= 1
    rig.cluster.logs[T0][1] = bytes(broken)
    rig.ask(contract.Assign((T0,)))
    assert rig.poll() == [b"1"]
    for _ in range(2):  # and again: nothing is passed over by itself
        with pytest.raises(KafkaError, match="t-0 at offset 1") as caught:
            rig.poll(500)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    rig.ask(contract.Seek(T0, 2))
    assert rig.poll() == [b"3"]


def test_damage_is_told_though_other_partitions_have_records() -> None:
    rig = Rig(group_id="")
    rig.cluster.fill(T0, b"1")
    broken = bytearray(rig.cluster.logs[T0][0])
    broken[-1] ^= 1
    rig.cluster.logs[T0][0] = bytes(broken)
    rig.cluster.fill(T1, *[b"x"] * 100)
    rig.ask(contract.Assign((T0, T1)))
    rig.pass_time(50)

    def polls() -> None:
        for _ in range(4):
            assert rig.poll(records_max=1) == [b"x"]

    with pytest.raises(KafkaError, match="t-0"):
        polls()


def test_a_fetch_is_decoded_as_polls_want_it() -> None:
    """What lies behind damage in a fetch does not keep back what lies before it, and markers at its end are passed."""
    rig = Rig(group_id="")
    for value in (b"1", b"2", b"3"):
        rig.cluster.fill(T0, value)
    rig.ask(contract.Assign((T0,)))
    assert rig.poll(records_max=1) == [b"1"]
    assert rig.result(contract.Position(T0)) == 1
    assert rig.poll(records_max=5) == [b"2", b"3"]
    assert rig.result(contract.Position(T0)) == 3


def test_what_nobody_saw_comes_again() -> None:
    rig = Rig(group_id="")
    rig.cluster.fill(T0, b"1", b"2")
    rig.ask(contract.Assign((T0,)))
    number = rig.begin_poll()
    assert number in rig.answers
    assert rig.result(contract.GiveBack(number)) is None
    assert rig.poll() == [b"1", b"2"]


def test_without_a_group_and_a_reset_the_application_must_seek() -> None:
    rig = Rig(group_id="", auto_offset_reset="none")
    rig.cluster.fill(T0, b"1", b"2")
    rig.ask(contract.Assign((T0,)))
    with pytest.raises(NoOffsetError, match=r"t-0 has no position, .* seek to one"):
        rig.poll(60_000)
    rig.ask(contract.Seek(T0, 1))
    assert rig.poll() == [b"2"]


def test_an_offset_that_is_not_there_any_more() -> None:
    rig = Rig(group_id="", auto_offset_reset="none")
    rig.cluster.fill(T0, b"1")
    rig.ask(contract.Assign((T0,)))
    rig.ask(contract.Seek(T0, 5))
    rig.cluster.errors["Fetch"] = [ErrorCode.OFFSET_OUT_OF_RANGE]
    with pytest.raises(NoOffsetError, match="offset 5 of t-0"):
        rig.poll(60_000)


# -- commits ---------------------------------------------------------------------------------------


def test_a_lookup_is_tried_again_at_one_broker_while_another_is_silent() -> None:
    rig = Rig(group_id="")
    rig.result(contract.PartitionsFor("t"))
    rig.cluster.mute = {"Metadata"}
    rig.cluster.silent = {1: {"ListOffsets"}}
    rig.cluster.errors["ListOffsets"] = [ErrorCode.LEADER_NOT_AVAILABLE]
    rig.ask(contract.ListOffsets({T0: LATEST, T1: LATEST}))
    rig.pass_time(1_000)
    asked = [node for node, request in rig.cluster.asked if request.api.name == "ListOffsets"]
    assert asked == [1, 2, 2]


@pytest.mark.parametrize(
    "code", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_nobody_looks_up_where_to_begin_in_what_is_not_held_any_more(code: ErrorCode) -> None:
    """As after the topic's deletion: the metadata that each attempt wants might make it again."""
    rig = Rig(group_id="")
    rig.cluster.errors["ListOffsets"] = [code] * 1_000
    for _ in range(3):
        rig.result(contract.Assign((T0,)))
        rig.pass_time(1_000)
        rig.result(contract.Assign(()))
    rig.pass_time(1_000)
    before = len(rig.cluster.asked)
    rig.pass_time(60_000)
    assert rig.cluster.asked[before:] == []


def test_a_commit_is_tried_again_while_that_may_help(rig: Rig) -> None:
    rig.cluster.errors["OffsetCommit"] = [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    ]
    number = rig.ask(contract.Commit({T0: OffsetAndMetadata(7)}))
    assert number not in rig.answers
    rig.pass_time(2_000)
    assert rig.answers[number] is None
    assert rig.cluster.offsets == {T0: 7}
    assert len(rig.cluster.requests("FindCoordinator")) == 2


def test_offsets_of_quiet_partitions_are_committed_again(rig: Rig) -> None:
    """Brokers forget an offset so long after its last commit (offsets.retention.minutes)."""
    rig.poll()
    rig.pass_time(6_000)
    assert rig.cluster.offsets == {T0: 0, T1: 0}
    rig.cluster.offsets.clear()
    for _ in range(4):
        rig.poll()
        rig.pass_time(200_000)
    assert rig.cluster.offsets == {T0: 0, T1: 0}
    assert len(rig.cluster.requests("OffsetCommit")) == 2, "but not at every interval"


def test_a_commit_that_the_group_has_gone_past(rig: Rig) -> None:
    rig.cluster.errors["OffsetCommit"] = [ErrorCode.REBALANCE_IN_PROGRESS]
    result = rig.result(contract.Commit({T0: OffsetAndMetadata(7)}))
    assert isinstance(result, CommitFailedError)
    assert result.code == ErrorCode.REBALANCE_IN_PROGRESS
    rig.poll()
    assert len(rig.cluster.requests("JoinGroup")) == 2
    (sent,) = rig.cluster.requests("OffsetCommit")[:1]
    assert isinstance(sent.message, OffsetCommitRequest)
    assert (sent.message.generation_id_or_member_epoch, sent.message.member_id) == (1, "me")


def test_commits_that_wait_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "WAITING_MAX", 2)
    rig.cluster.mute.add("OffsetCommit")
    for _ in range(2):
        assert rig.ask(contract.Commit({T0: OffsetAndMetadata(1)})) not in rig.answers
    refused = rig.result(contract.Commit({T0: OffsetAndMetadata(1)}))
    assert isinstance(refused, KafkaError)
    assert refused.retriable


def test_commits_go_out_in_their_order(rig: Rig) -> None:
    numbers = [rig.ask(contract.Commit({T0: OffsetAndMetadata(offset)})) for offset in (1, 2, 3)]
    assert [rig.answers[number] for number in numbers] == [None] * 3
    assert rig.cluster.offsets == {T0: 3}


def test_offsets_that_a_transaction_may_still_change_are_waited_for() -> None:
    rig = Rig(isolation_level="read_committed")
    rig.cluster.offsets[T0] = 1
    rig.cluster.fill(T0, b"1", b"2")
    rig.cluster.errors["OffsetFetch"] = [ErrorCode.UNSTABLE_OFFSET_COMMIT]
    rig.ask(contract.Subscribe(("t",)))
    assert rig.poll(1_000) == [b"2"]


# -- errors that end it ----------------------------------------------------------------------------


def test_a_group_that_nobody_may_coordinate_for_it() -> None:
    rig = Rig()
    rig.cluster.errors["FindCoordinator"] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    rig.ask(contract.Subscribe(("t",)))
    with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
        rig.poll()


def test_one_poll_at_a_time(rig: Rig) -> None:
    rig.begin_poll()
    assert isinstance(rig.result(contract.Poll(1, 0, 99)), ConfigError)


def test_stop_commits_and_leaves(rig: Rig) -> None:
    rig.cluster.fill(T0, b"1")
    rig.pass_time(31_000)
    assert rig.poll() == [b"1"]
    assert rig.result(contract.Stop()) is None
    assert rig.cluster.names("Heartbeat")[-2:] == ["OffsetCommit", "LeaveGroup"]
    assert rig.cluster.offsets[T0] == 1
    assert rig.links == {}


@pytest.mark.parametrize(
    ("call", "end"),
    [
        (contract.Subscribe(("t",)), contract.Stop()),
        (contract.Subscribe(("t",)), contract.Subscribe()),
        (contract.Assign((T0, T1)), contract.Stop()),
    ],
)
def test_whoever_leaves_waits_for_commits_that_are_under_way(
    call: Call[None], end: Call[None]
) -> None:
    """As of `commit_async`. Java's consumer waits, too."""
    rig = Rig(enable_auto_commit=False)
    rig.result(call)
    rig.cluster.errors["OffsetCommit"] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    numbers = [rig.ask(contract.Commit({T0: OffsetAndMetadata(offset)})) for offset in (7, 8)]
    last = rig.ask(end)
    rig.pass_time(1_000)
    assert [rig.answers.get(number, "none") for number in (*numbers, last)] == [None] * 3
    assert rig.cluster.offsets == {T0: 8}


def test_commits_that_are_under_way_come_before_partitions_are_given_up() -> None:
    """Of two asynchronous commits the second is not sent yet when the group rebalances."""
    rig = Rig(enable_auto_commit=False)
    rig.result(contract.Subscribe(("t",)))
    rig.poll()
    rig.cluster.errors["Heartbeat"] = [ErrorCode.REBALANCE_IN_PROGRESS]
    rig.pass_time(4_000)
    rig.cluster.errors["OffsetCommit"] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    numbers = [rig.ask(contract.Commit({T0: OffsetAndMetadata(offset)})) for offset in (7, 8)]
    rig.poll(1_000)
    assert [rig.answers[number] for number in numbers] == [None, None]
    order = [name for name in rig.cluster.names() if name in ("OffsetCommit", "JoinGroup")]
    assert order == ["JoinGroup", *["OffsetCommit"] * 3, "JoinGroup"]


def test_who_leaves_in_the_middle_of_a_rebalance_commits() -> None:
    """A member with a cooperative assignor reads on while its JoinGroup waits for others."""
    rig = Rig(group_protocol="classic", assignors=("cooperative-sticky",))
    rig.cluster.protocol = "cooperative-sticky"
    rig.result(contract.Subscribe(("t",)))
    rig.cluster.fill(T0, b"1", b"2")
    rig.pass_time(31_000)
    assert rig.poll(records_max=1) == [b"1"]
    rig.cluster.mute.add("JoinGroup")
    rig.cluster.errors["Heartbeat"] = [ErrorCode.REBALANCE_IN_PROGRESS]
    rig.pass_time(4_000)
    assert rig.poll() == [b"2"]
    last = rig.ask(contract.Stop())
    assert rig.answers.get(last, "it waits") is None
    assert rig.cluster.names("Heartbeat")[-3:] == ["JoinGroup", "OffsetCommit", "LeaveGroup"]
    assert rig.cluster.offsets[T0] == 2


@pytest.mark.parametrize("call", [contract.Subscribe(("t",)), contract.Assign((T0, T1))])
def test_whoever_leaves_does_not_wait_for_them_for_ever(call: Call[None]) -> None:
    rig = Rig(enable_auto_commit=False)
    rig.result(call)
    rig.cluster.mute.add("OffsetCommit")
    rig.ask(contract.Commit({T0: OffsetAndMetadata(7)}))
    last = rig.ask(contract.Stop())
    rig.pass_time(commits.LEAVE_MS_MAX - 1)
    assert last not in rig.answers
    rig.pass_time(1)
    assert rig.answers[last] is None
    assert ("LeaveGroup" in rig.cluster.names()) == isinstance(call, contract.Subscribe)


def test_the_stop_of_a_consumer_without_a_group_waits_for_the_automatic_commit() -> None:
    rig = Rig()
    rig.cluster.fill(T0, b"1")
    rig.result(contract.Assign((T0, T1)))
    rig.pass_time(31_000)
    rig.poll()
    rig.cluster.mute.add("OffsetCommit")
    last = rig.ask(contract.Stop())
    rig.pass_time(20_000)
    assert last not in rig.answers
    rig.pass_time(20_000)
    assert rig.answers[last] is None


def test_a_coordinator_that_was_refused_is_looked_for_again_once_the_application_knows() -> None:
    """1. FindCoordinator is answered with an error that is no matter of time. 2. One poll raises it. 3. The brokers
    answer as they should: further polls read, without a new subscription."""
    rig = Rig()
    rig.cluster.fill(T0, b"1")
    rig.cluster.errors["FindCoordinator"] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    rig.ask(contract.Subscribe(("t",)))
    with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
        rig.poll()
    assert len(rig.cluster.requests("FindCoordinator")) == 1, "nobody asks before somebody knows"
    found: list[bytes | None] = []
    for _ in range(50):
        found += rig.poll(1_000)
    assert found == [b"1"]


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup", "Heartbeat"])
def test_a_refusal_is_raised_once_and_the_next_poll_joins_again(api: str) -> None:
    """1. The coordinator answers with an error that no member can act on. 2. One poll raises it; nothing is asked until
    the next one. 3. That joins the group again, and reads."""
    rig = Rig()
    if api == "Heartbeat":
        rig.ask(contract.Subscribe(("t",)))
        for _ in range(20):
            rig.poll()
    rig.cluster.errors[api] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    rig.ask(contract.Subscribe(("t",)))
    if api == "Heartbeat":
        rig.pass_time(3_000)
    joins = len(rig.cluster.requests("JoinGroup"))
    with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED") as raised:
        rig.poll(1_000)
    assert raised.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    joins = joins if api == "Heartbeat" else 1
    rig.pass_time(10_000)
    assert len(rig.cluster.requests("JoinGroup")) == joins
    rig.cluster.fill(T0, b"1")
    found: list[bytes | None] = []
    for _ in range(50):
        found += rig.poll(1_000)
    assert found == [b"1"]
    assert len(rig.cluster.requests("JoinGroup")) == joins + 1


def test_a_fenced_consumer_hears_so_at_every_poll() -> None:
    rig = Rig(group_instance_id="i")
    rig.cluster.errors["JoinGroup"] = [ErrorCode.FENCED_INSTANCE_ID]
    rig.ask(contract.Subscribe(("t",)))
    for _ in range(3):
        with pytest.raises(KafkaError, match="FENCED_INSTANCE_ID"):
            rig.poll(1_000)
    assert len(rig.cluster.requests("JoinGroup")) == 1
