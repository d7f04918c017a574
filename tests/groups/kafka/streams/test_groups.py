"""Heartbeats of streams groups, and their absence."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec.structs import replace
from tests.groups.kafka.consumer.conftest import World
from tests.groups.kafka.streams.conftest import (
    ASKER,
    BEAT_MS,
    GROUP,
    INTERNAL,
    READS,
    WORD_COUNT,
    Rig,
    named,
    tasks,
)

from steelyard.errors import StorageError
from steelyard.groups.kafka.effects import Began, Ended, Joined, Left
from steelyard.groups.kafka.streams import requests
from steelyard.groups.kafka.streams.configuration import TASKS_MAX, StreamsStatus
from steelyard.groups.kafka.streams.group import StreamsGroupState
from steelyard.groups.kafka.streams.groups import SHORT_MS
from steelyard.groups.kafka.times import EqualStreamsSettings
from steelyard.store.memory import Killed
from steelyard.store.table_records import VALUE_BYTES_MAX
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol
from steelyard.wire.kafka.messages.streams_groups import (
    CopartitionGroup,
    Endpoint,
    EndpointToPartitions,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from steelyard.wire.kafka.messages.streams_groups import TopicPartition as Partitions

ALL = tasks("0_0 0_1 1_0 1_1")


def refused(response: StreamsGroupHeartbeatResponse) -> tuple[int, str | None]:
    assert response.error_code
    return response.error_code, response.error_message


# -- members come and go ---------------------------------------------------------------------------


def test_the_first_member_gets_all_tasks() -> None:
    rig = Rig()
    thread = rig.join("a.1")
    assert (thread.epoch, thread.active, thread.statuses) == (2, ALL, [])
    assert thread.last.heartbeat_interval_ms == BEAT_MS
    assert thread.last.warmup_tasks == ()
    assert rig.state() is StreamsGroupState.STABLE
    assert thread.beat().active_tasks is None  # it is told once
    kinds = [type(effect) for effect in rig.effects]
    assert kinds == [Joined, Began, Ended]
    assert rig.causes == ["a.1 (client/10.0.0.1) joined; its topics are there"]


def test_a_second_member_waits_for_what_the_first_one_gives_up() -> None:
    rig = Rig()
    first = rig.join("a.1")
    second = rig.join("b.1")
    assert (second.epoch, second.active) == (3, frozenset())
    assert second.last.heartbeat_interval_ms == SHORT_MS
    assert rig.state() is StreamsGroupState.RECONCILING
    first.beat()
    assert (first.epoch, len(first.active)) == (2, 2)
    assert second.beat().active_tasks is None  # the first one has not reported yet
    first.beat()
    assert first.epoch == 3
    second.beat()
    assert second.active == ALL - first.active
    assert rig.state() is StreamsGroupState.STABLE
    assert second.last.heartbeat_interval_ms == BEAT_MS


def test_who_leaves_frees_its_tasks_at_once() -> None:
    rig = Rig()
    first, second = rig.join("a.1"), rig.join("b.1")
    rig.settle()
    answer = second.leave()
    assert (answer.member_id, answer.member_epoch, answer.error_code) == ("b.1", -1, 0)
    del rig.threads["b.1"]
    first.beat()
    assert first.active == ALL
    first.leave()
    assert rig.state() is StreamsGroupState.EMPTY
    left = [effect for effect in rig.effects if isinstance(effect, Left)]
    assert [(one.member_id, one.cause) for one in left] == [("b.1", "left"), ("a.1", "left")]


def test_who_is_silent_is_removed() -> None:
    rig = Rig()
    first, second = rig.join("a.1"), rig.join("b.1")
    rig.settle()
    rig.wait(30_000)
    first.beat()
    rig.wait(30_000)
    assert rig.group.member_ids() == ("a.1",)
    first.beat()
    assert first.active == ALL
    assert second.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    (left,) = [effect for effect in rig.effects if isinstance(effect, Left)]
    assert (left.cause, left.heard_at) == ("expired", rig.now - 60_000)


def test_who_does_not_give_up_its_tasks_is_removed() -> None:
    rig = Rig()
    first, second = rig.join("a.1"), rig.join("b.1")
    first.beat()
    rig.wait(9_999)
    assert len(rig.group) == 2
    rig.wait(1)
    assert rig.group.member_ids() == ("b.1",)
    second.beat()
    assert second.active == ALL


def test_a_task_that_is_taken_back_before_the_member_has_changed_to_it() -> None:
    """It never ran the task, and would have nothing to report: others would wait for its time-out."""
    rig = Rig()
    slow, other = rig.join("a.1"), rig.join("b.1")
    rig.settle()
    held = slow.active
    other.leave()
    del rig.threads["b.1"]
    assert named(slow.beat().active_tasks or ()) == ALL
    slow.active = held  # it is still changing to them
    other = rig.join("c.1")
    assert slow.beat().active_tasks is None  # not told to go back to what it reported
    slow.active = ALL
    assert named(slow.beat().active_tasks or ()) == held
    rig.settle()
    assert (slow.active, other.active) == (held, ALL - held)
    assert rig.state() is StreamsGroupState.STABLE


def test_a_task_that_is_taken_back_while_the_member_reports_what_it_had_before() -> None:
    """It has begun to change to the task, and its report does not say so: nobody else may get it yet."""
    rig = Rig()
    slow, other = rig.join("a.1"), rig.join("b.1")
    rig.settle()
    held = slow.active
    other.leave()
    del rig.threads["b.1"]
    slow.beat()
    slow.active, slow.reported = held, None  # it is still changing to all
    other = rig.join("c.1")
    assert named(slow.beat().active_tasks or ()) == ALL  # its answer may have been lost
    other.beat()
    assert not other.active
    rig.settle()
    assert (len(slow.active), other.active) == (2, ALL - slow.active)
    assert rig.state() is StreamsGroupState.STABLE


def test_a_member_is_told_an_assignment_after_the_other() -> None:
    rig = Rig()
    slow = rig.join("a.1")
    assert slow.active == ALL
    slow.active = frozenset()  # it is still changing to all
    rig.join("b.1")
    rig.join("c.1")
    assert slow.beat().active_tasks is None
    slow.active = ALL
    assert len(named(slow.beat().active_tasks or ())) < len(ALL)
    rig.settle()
    assert {len(one.active) for one in rig.threads.values()} == {1, 2}


def test_a_member_that_is_fenced_begins_anew() -> None:
    rig = Rig()
    thread = rig.join("a.1")
    thread.epoch = 7
    code, text = refused(thread.beat())
    assert code == ErrorCode.FENCED_MEMBER_EPOCH
    assert text is not None
    assert "greater member epoch (7)" in text
    thread.beat()
    assert thread.active == ALL


def test_an_answer_that_is_lost_is_given_again() -> None:
    rig = Rig()
    first, second = rig.join("a.1"), rig.join("b.1")
    first.beat()
    first.beat()
    assert second.beat(lost=True).active_tasks  # with what the first one gave up
    assert (second.epoch, second.active) == (3, frozenset())
    second.beat()
    assert second.active == ALL - first.active


def test_the_previous_epoch_counts_for_who_owns_nothing_else() -> None:
    rig = Rig()
    first = rig.join("a.1")
    rig.join("b.1").leave()
    first.beat(lost=True)
    assert rig.group.member("a.1") is not None
    assert rig.group.each()[0].epoch > first.epoch
    assert first.beat().error_code == ErrorCode.NONE
    stale = StreamsGroupHeartbeatRequest(GROUP, "a.1", 2)
    assert refused(rig.ask(stale))[0] == ErrorCode.FENCED_MEMBER_EPOCH


def test_threads_of_a_process_do_not_share_a_task() -> None:
    """Its directory has one of each: the standby goes to another process, or nowhere."""
    rig = Rig(group_streams_num_standby_replicas=1)
    for name in ("a.1", "a.2"):
        rig.join(name)
    rig.settle()
    assert not any(thread.standby for thread in rig.threads.values())
    rig.join("b.1")
    rig.settle()
    on = {process: frozenset[object]() for process in "ab"}
    for name, thread in rig.threads.items():
        assert not thread.active & thread.standby
        on[name[0]] |= thread.active | thread.standby
    assert on["a"] & tasks("1_0 1_1") == on["b"] & tasks("1_0 1_1") == tasks("1_0 1_1")


def test_a_standby_becomes_active_where_it_is() -> None:
    rig = Rig(group_streams_num_standby_replicas=1)
    first, second = rig.join("a.1"), rig.join("b.1")
    rig.settle()
    assert first.standby == second.active & tasks("1_0 1_1")
    second.leave()
    del rig.threads["b.1"]
    rig.settle()
    assert (first.active, first.standby) == (ALL, frozenset())


def test_the_group_is_limited() -> None:
    rig = Rig(group_streams_max_size=1)
    thread = rig.join("a.1")
    assert refused(rig.thread("b.1").beat())[0] == ErrorCode.GROUP_MAX_SIZE_REACHED
    thread.epoch = 0
    assert thread.beat().error_code == ErrorCode.NONE


# -- when targets are computed ---------------------------------------------------------------------


def test_a_new_group_waits_for_more_members() -> None:
    rig = Rig(group_streams_initial_rebalance_delay_ms=3_000)
    first = rig.join("a.1")
    assert (first.epoch, first.active) == (1, frozenset())
    assert first.statuses == [StreamsStatus.ASSIGNMENT_DELAYED]
    assert first.last.heartbeat_interval_ms == 3_000
    assert rig.state() is StreamsGroupState.ASSIGNING
    rig.wait(2_000)
    second = rig.join("b.1")
    assert second.last.heartbeat_interval_ms == 1_000
    rig.wait(1_000)
    for thread in (first, second):
        thread.beat()
        assert (thread.statuses, len(thread.active)) == ([], 2)
    rig.join("c.1")
    assert rig.threads["c.1"].statuses == []  # only for a group that was empty


def test_targets_have_a_distance() -> None:
    rig = Rig(group_streams_assignment_interval_ms=1_000)
    first = rig.join("a.1")
    second = rig.join("b.1")
    assert second.statuses == [StreamsStatus.ASSIGNMENT_DELAYED]
    assert second.last.heartbeat_interval_ms == 1_000
    first.beat()
    assert (first.statuses, first.active) == ([], ALL)  # it goes on until there is a target
    rig.wait(1_000)
    assert rig.group.assignment_epoch == rig.group.epoch
    rig.settle()
    assert len(second.active) == 2


class Replicas(EqualStreamsSettings):
    """The broker's settings, but for the standbys, which can be changed."""

    replicas = 0

    def standby_replicas(self, group_id: str) -> int:
        return self.replicas


def test_the_number_of_standbys_may_change() -> None:
    rig = Rig()
    settings = rig.streams._settings = Replicas(rig.config)
    first, second = rig.join("a.1"), rig.join("b.1")
    rig.settle()
    epoch = rig.group.epoch
    settings.replicas = 1
    rig.settle()
    assert (rig.group.epoch, rig.causes[-1]) == (epoch + 1, "each task has 1 standby now")
    assert first.standby | second.standby == tasks("1_0 1_1")


# -- topics ----------------------------------------------------------------------------------------


def test_internal_topics_that_are_missing() -> None:
    rig = Rig(World(**{"in": 2}))
    thread = rig.join("a.1")
    assert thread.statuses == [StreamsStatus.MISSING_INTERNAL_TOPICS]
    assert (sorted(rig.missing), thread.active) == (sorted(INTERNAL), frozenset())
    assert rig.state() is StreamsGroupState.NOT_READY
    for topic in INTERNAL:
        rig.world.set(topic, 2)
    thread.beat()
    assert (thread.active, thread.statuses, rig.missing) == (ALL, [], {})
    assert rig.state() is StreamsGroupState.STABLE


def test_source_topics_that_are_missing() -> None:
    rig = Rig(World())
    thread = rig.join("a.1")
    assert thread.statuses == [StreamsStatus.MISSING_SOURCE_TOPICS]
    assert thread.last.heartbeat_interval_ms == BEAT_MS
    assert rig.missing == {}


def test_tasks_stop_when_a_topic_is_deleted() -> None:
    rig = Rig()
    thread = rig.join("a.1")
    rig.world.set("in", 0)
    rig.settle()
    assert (thread.active, thread.statuses) == (frozenset(), [StreamsStatus.MISSING_SOURCE_TOPICS])
    assert rig.causes[-1] == "Source topics in are missing."
    rig.world.set("in", 2)
    rig.settle()
    assert (thread.active, thread.statuses) == (ALL, [])


def test_a_topic_with_more_partitions_does_not_fit_any_more() -> None:
    rig = Rig()
    thread = rig.join("a.1")
    rig.world.set("in", 3)
    thread.beat()
    assert thread.statuses == [StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS]


def test_other_topics_are_of_no_interest() -> None:
    rig = Rig()
    thread = rig.join("a.1")
    rig.world.set("other", 3)
    thread.beat()
    assert len(rig.causes) == 1


# -- topologies ------------------------------------------------------------------------------------


def test_another_topology_is_refused() -> None:
    rig = Rig()
    rig.join("a.1")
    for other in (Topology(1, WORD_COUNT.subtopologies), Topology(0, [READS])):
        rig.topology = other
        code, text = refused(rig.thread("b.1").beat())
        assert (code, text) == (
            ErrorCode.INVALID_REQUEST,
            "Topology updates are not supported yet.",
        )
    assert len(rig.group) == 1


def test_a_member_with_an_older_topology_is_told() -> None:
    rig = Rig()
    rig.topology = Topology(3, WORD_COUNT.subtopologies)
    rig.join("a.1")
    rig.topology = Topology(2, [READS])
    assert rig.join("b.1").statuses == [StreamsStatus.STALE_TOPOLOGY]


def test_a_topology_that_cannot_run_makes_no_group() -> None:
    rig = Rig()
    rig.topology = Topology(
        0,
        [
            Subtopology("0", ["in"], repartition_sink_topics=["r"]),
            Subtopology("1", repartition_source_topics=[TopicInfo("s")]),
        ],
    )
    code, _ = refused(rig.thread("a.1").beat())
    assert code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert rig.groups.get(GROUP) is None


def test_a_topology_that_cannot_run_once_its_topics_are_there() -> None:
    rig = Rig(World())
    rig.topology = Topology(
        0, [Subtopology("0", ["in"]), Subtopology("1", repartition_source_topics=[TopicInfo("s")])]
    )
    thread = rig.join("a.1")
    rig.world.set("in", 1)
    assert refused(thread.beat())[0] == ErrorCode.STREAMS_INVALID_TOPOLOGY
    rig.restart()
    assert refused(thread.beat())[0] == ErrorCode.STREAMS_INVALID_TOPOLOGY


# -- requests that are wrong -----------------------------------------------------------------------

JOIN = StreamsGroupHeartbeatRequest(
    GROUP,
    "a.1",
    0,
    rebalance_timeout_ms=1_000,
    topology=WORD_COUNT,
    active_tasks=(),
    standby_tasks=(),
    warmup_tasks=(),
    process_id="a",
)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"instance_id": "i"}, "Static membership is not yet supported."),
        ({"task_offsets": [TaskOffset()]}, "TaskOffsets are not supported yet."),
        ({"task_end_offsets": ()}, "TaskEndOffsets are not supported yet."),
        ({"warmup_tasks": [TaskIds("0", [0])]}, "WarmupTasks are not supported yet."),
        (
            {"topology": Topology(0, [Subtopology("0", (), ["a.*"])])},
            "Regular expressions for source topics are not supported yet.",
        ),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"active_tasks": [TaskIds("0", [0])]}, "ActiveTasks must be empty when (re-)joining."),
        ({"standby_tasks": [TaskIds("0", [0])]}, "StandbyTasks must be empty when (re-)joining."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        ({"member_epoch": 1}, "Topology can only be provided when (re-)joining."),
        ({"member_epoch": -2, "topology": None}, "InstanceId can't be null."),
        (
            {"member_epoch": -3, "topology": None},
            "MemberEpoch is -3, but must be greater than or equal to -2.",
        ),
        ({"standby_tasks": None}, "If one task-type is non-null, all must be non-null."),
        (
            {
                "member_epoch": 1,
                "topology": None,
                "active_tasks": [TaskIds("0", [*range(TASKS_MAX)]), TaskIds("1", [0])],
            },
            f"A member has at most {TASKS_MAX} tasks.",
        ),
    ],
)
def test_invalid_requests(changes: dict[str, object], text: str) -> None:
    rig = Rig()
    assert refused(rig.ask(replace(JOIN, **changes))) == (ErrorCode.INVALID_REQUEST, text)
    assert len(rig.groups) == 0


def test_a_request_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    size = requests._characters(JOIN)
    monkeypatch.setattr(requests, "CHARACTERS_MAX", size)
    assert not rig.ask(JOIN).error_code
    tagged = replace(JOIN, client_tags=[KeyValue("k", "")])
    text = f"The request is longer than {size} characters."
    assert refused(rig.ask(tagged)) == (ErrorCode.INVALID_REQUEST, text)


def test_everything_that_is_stored_counts() -> None:
    counted = requests._characters(JOIN)
    group = CopartitionGroup([0], (), [])
    topic = TopicInfo("abc", topic_configs=[KeyValue("de", "f")])
    more = Subtopology("x", ["yz"], (), [topic], ["s"], [topic], [group])
    bigger = replace(
        JOIN,
        topology=Topology(0, [*WORD_COUNT.subtopologies, more]),
        user_endpoint=Endpoint("host"),
        rack_id="r",
        client_tags=[KeyValue("k", "v")],
    )
    assert requests._characters(bigger) == counted + 17 + 4 + 1 + 2


def test_tasks_that_do_not_exist() -> None:
    rig = Rig()
    thread = rig.join("a.1")
    for owned, text in (
        ("7_0", "Subtopology 7 does not exist in the topology."),
        ("0_2", "Task 2 for subtopology 0 is invalid. Number of tasks for this subtopology: 2"),
    ):
        answer = rig.ask(replace(thread.request(), active_tasks=told_of(owned)))
        assert refused(answer) == (ErrorCode.INVALID_REQUEST, text)


def told_of(text: str) -> list[TaskIds]:
    return [TaskIds(name, [number]) for name, number in tasks(text)]


def test_topics_that_changed_in_a_refused_heartbeat_are_not_forgotten() -> None:
    rig = Rig()
    thread = rig.join("a.1")
    rig.world.set("in", 0)
    rig.world.set("in", 2)  # another topic of that name
    rig.ask(replace(thread.request(), active_tasks=told_of("7_0")))
    epoch = rig.group.epoch
    thread.beat()
    assert rig.group.epoch == epoch + 1


def test_unknown_groups_and_members() -> None:
    rig = Rig()
    beat = StreamsGroupHeartbeatRequest(GROUP, "a.1", 3)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID, "Member a.1 is not a member of group app."
    assert refused(rig.ask(beat)) == unknown, "it joins again; GROUP_ID_NOT_FOUND would end it"
    text = "Streams group app not found."
    assert refused(rig.thread("a.1").leave()) == (ErrorCode.GROUP_ID_NOT_FOUND, text)
    assert rig.streams.describe("App").error_message == "Group App not found."
    rig.join("b.1")
    assert refused(rig.ask(beat)) == unknown
    assert refused(rig.thread("a.1").leave()) == unknown


# -- other kinds of groups -------------------------------------------------------------------------


def classic_join(rig: Rig) -> ErrorCode:
    request = JoinGroupRequest(
        GROUP, 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]
    )
    rig.effects.clear()
    rig.coordinator.join(request, 9, ASKER, None, rig.now, rig.effects)
    code: ErrorCode = next(
        effect.message.error_code for effect in rig.effects if hasattr(effect, "message")
    )
    return code


def test_an_empty_classic_group_becomes_one_and_back() -> None:
    rig = Rig()
    rig.groups.add(rig.coordinator._classic(GROUP, rig.now))
    thread = rig.join("a.1")
    assert classic_join(rig) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    thread.leave()
    assert classic_join(rig) is ErrorCode.MEMBER_ID_REQUIRED
    thread.epoch = 0
    text = "Group app is not a streams group."
    group = rig.groups.get(GROUP)
    assert group is not None
    assert group.kind == "classic"
    assert rig.streams.describe(GROUP).error_message == text
    rig.restart()
    assert len(rig.groups) == 0


# -- commits and fetches of offsets ----------------------------------------------------------------


def commit(rig: Rig, member: str, epoch: int, topic: str = "in", version: int = 9) -> ErrorCode:
    code = rig.group.check_commit(
        member, None, epoch, version=version, transactional=False, now=rig.now
    )
    return code or rig.group.check_commit_partition(member, epoch, TopicPartition(topic, 0))


def test_who_may_commit() -> None:
    rig = Rig()
    first = rig.join("a.1")
    rig.join("b.1").leave()
    first.beat()
    assert (first.epoch, rig.group.epoch) == (4, 4)
    assert commit(rig, "a.1", 4) is ErrorCode.NONE
    assert commit(rig, "a.1", 2) is ErrorCode.NONE  # it has had the task since then
    assert commit(rig, "a.1", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(rig, "a.1", 2, "other") is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(rig, "a.1", 5) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(rig, "a.1", 4, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(rig, "b.1", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(rig, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    transactional = rig.group.check_commit("", None, -1, version=5, transactional=True, now=rig.now)
    assert transactional is ErrorCode.NONE
    first.leave()
    assert commit(rig, "", -1) is ErrorCode.NONE


def test_who_may_fetch_offsets() -> None:
    rig = Rig()
    thread = rig.join("a.1")
    for member, epoch, code in (
        (None, -1, ErrorCode.NONE),
        ("a.1", thread.epoch, ErrorCode.NONE),
        ("a.1", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert rig.group.check_fetch(member, epoch) is code


def test_which_member_reads_a_partition() -> None:
    rig = Rig()
    rig.join("a.1")
    partition = TopicPartition("in", 1)
    assert rig.group.owner_of(partition) == "a.1"
    assert rig.group.owner_of(TopicPartition("app-counts-changelog", 1)) is None
    assert rig.group.member_at("client", "/10.0.0.1", partition) == "a.1"
    assert rig.group.member_at("other", "/10.0.0.1", partition) is None
    (reader,) = rig.group.readers()
    assert reader.partitions == tuple(
        TopicPartition(topic, number)
        for topic in ("app-words-repartition", "in")
        for number in range(2)
    )
    assert rig.group.subscribes_to("in")
    assert not rig.group.subscribes_to("app-counts-changelog")
    rig.threads["a.1"].leave()
    assert not rig.group.subscribes_to("in")
    assert rig.group.readers() == []


# -- interactive queries, and the end of an application --------------------------------------------


def test_endpoints_are_told_to_all() -> None:
    rig = Rig()
    endpoint = Endpoint("host", 99)
    first = rig.join("a.1", endpoint)
    everything = [Partitions("app-words-repartition", [0, 1]), Partitions("in", [0, 1])]
    assert first.last.partitions_by_user_endpoint == [
        EndpointToPartitions(endpoint, everything, [])
    ]
    epoch = first.last.endpoint_information_epoch
    assert first.beat(endpoint_information_epoch=epoch).partitions_by_user_endpoint is None
    second = rig.join("b.1")
    rig.settle()
    told = second.beat(endpoint_information_epoch=epoch).partitions_by_user_endpoint
    assert told is not None
    ((one),) = told
    assert {(each.topic, *each.partitions) for each in one.active_partitions} == {
        (partition.topic, partition.partition)
        for partition in rig.group.partitions_of(first.active)
    }


def test_threads_of_a_process_share_an_endpoint() -> None:
    rig = Rig()
    endpoint = Endpoint("host", 99)
    for name in ("a.1", "a.2"):
        rig.join(name, endpoint)
    rig.settle()
    told = rig.threads["a.1"].beat(endpoint_information_epoch=-1).partitions_by_user_endpoint
    everything = [Partitions("app-words-repartition", [0, 1]), Partitions("in", [0, 1])]
    assert told == [EndpointToPartitions(endpoint, everything, [])]


def test_a_member_can_end_the_application() -> None:
    rig = Rig()
    first, second = rig.join("a.1"), rig.join("b.1")
    rig.settle()
    first.beat(shutdown_application=True)
    second.beat(shutdown_application=True)
    for thread in (first, second):
        thread.beat()
        assert thread.statuses == [StreamsStatus.SHUTDOWN_APPLICATION]
        (status,) = thread.last.status or ()
        assert "member a.1 encountered a fatal error" in status.status_detail
    first.leave()
    second.leave(shutdown_application=True)
    first.epoch = 0
    assert rig.join("a.1").statuses == []


# -- descriptions ----------------------------------------------------------------------------------


def test_a_group_is_described() -> None:
    rig = Rig(group_streams_num_standby_replicas=1)
    first, second = rig.join("a.1", Endpoint("host", 1)), rig.join("b.1")
    rig.settle()
    told = rig.streams.describe(GROUP)
    assert (told.group_state, told.group_epoch, told.assignment_epoch) == ("Stable", 3, 3)
    assert told.topology is not None
    _, counts = told.topology.subtopologies or ()
    assert [topic.partitions for topic in counts.repartition_source_topics] == [2]
    assert [topic.name for topic in counts.state_changelog_topics] == ["app-counts-changelog"]
    for member, thread in zip(told.members, (first, second), strict=True):
        assert named(member.assignment.active_tasks) == thread.active
        assert named(member.assignment.standby_tasks) == thread.standby
        assert member.assignment == member.target_assignment
        assert (member.process_id, member.topology_epoch) == (thread.process, 0)
    assert told.members[0].user_endpoint == Endpoint("host", 1)
    rig.world.set("in", 0)
    first.beat()
    told = rig.streams.describe(GROUP)
    assert told.group_state == "NotReady"
    assert told.topology is not None
    _, counts = told.topology.subtopologies or ()
    assert [topic.partitions for topic in counts.repartition_source_topics] == [0]


# -- what is stored --------------------------------------------------------------------------------


def test_members_go_on_after_a_restart() -> None:
    rig = Rig(group_streams_num_standby_replicas=1)
    first, second = rig.join("a.1"), rig.join("b.1")
    first.beat()  # it has to give up tasks, and the second one waits for them
    assert rig.state() is StreamsGroupState.RECONCILING
    before = (rig.group.epoch, rig.group.each())
    rig.restart()
    assert (rig.group.epoch, rig.group.each()) == before
    rig.settle()
    assert rig.group.epoch == before[0]
    assert first.active | second.active == ALL
    rig.restart()
    assert rig.state() is StreamsGroupState.STABLE
    rig.wait(45_000)
    assert rig.group.is_empty


def test_who_leaves_right_after_a_restart_costs_the_others_nothing() -> None:
    rig = Rig()
    first, second = rig.join("a.1"), rig.join("b.1")
    rig.settle()
    rig.restart()
    second.leave()
    assert rig.state() is StreamsGroupState.ASSIGNING
    epoch = rig.group.epoch
    del rig.threads["b.1"]
    first.beat()
    assert (first.epoch, rig.group.epoch, first.active) == (epoch, epoch, ALL)


def test_large_groups_are_told_longer_intervals() -> None:
    rig = Rig()
    threads = [rig.join(f"p.{number}") for number in range(100)]
    assert threads[-1].last.heartbeat_interval_ms == BEAT_MS  # it gets no task, and waits for none
    assert threads[1].last.heartbeat_interval_ms == SHORT_MS
    threads[0].beat()
    assert threads[0].last.heartbeat_interval_ms == 300


def test_a_deleted_group_leaves_nothing() -> None:
    rig = Rig()
    rig.join("a.1").leave()
    assert len(rig.table) == 1
    assert rig.coordinator.listing.delete(GROUP) is ErrorCode.NONE
    assert len(rig.table) == 0
    rig.wait(10**6)
    rig.restart()
    assert len(rig.groups) == 0


def test_rows_that_cannot_be_read_are_ignored() -> None:
    rig = Rig()
    thread = rig.join("a.1")
    rig.table.put('["app"]', b"?")
    rig.table.put("?", b"?")
    rig.restart()
    assert len(rig.groups) == 0
    assert [key for key, _ in rig.table.items()] == ["?"]
    assert refused(thread.beat())[0] == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_are_ahead_of_their_group() -> None:
    """A kill between the two rows: the members keep what they have until there is a target."""
    rig = Rig()
    first = rig.join("a.1")
    older = rig.table.get('["app"]')
    assert older is not None
    rig.join("b.1")
    rig.settle()
    rig.table.put('["app"]', older)
    rig.restart()
    rig.streams.check()
    rig.settle()
    assert {len(thread.active) for thread in rig.threads.values()} == {2}
    assert first.epoch > 3


def test_a_clock_that_was_set_back_before_a_restart_delays_no_target() -> None:
    """Until the restart the coordinator's time went on from where it was, ahead of the clock."""
    rig = Rig(group_streams_assignment_interval_ms=1_000)
    rig.join("a.1")
    rig.now -= 3_600_000
    rig.restart()
    rig.join("b.1")
    rig.wait(1_000)
    rig.settle()
    assert [len(thread.active) for thread in rig.threads.values()] == [2, 2]


@pytest.mark.parametrize("size", range(0, 3_000, 50))
def test_tasks_of_a_newcomer_run_wherever_the_broker_is_killed(size: int) -> None:
    """The group's row may know of a member without a row, and that member may never come again."""
    rig = Rig()
    rig.join("a.1")
    rig.settle()
    rig.disk.kill_after_bytes = size
    with suppress(Killed):
        rig.thread("b.1").beat(lost=True)
    del rig.threads["b.1"]
    rig.restart()
    for _ in range(10):
        rig.settle()
        rig.wait(10_000)
    assert rig.state() == "Stable"
    assert len(rig.threads["a.1"].active) == 4


def test_two_rows_that_claim_a_task() -> None:
    rig = Rig()
    rig.join("a.1")
    row = rig.table.get('["app","a.1"]')
    assert row is not None
    rig.table.put('["app","b.1"]', row)
    rig.restart()
    assert rig.group.member_ids() == ("a.1",)
    rig.settle()
    assert rig.table.get('["app","b.1"]') is None


def test_what_was_not_stored_is_stored_with_the_next_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    put_many = rig.table.put_many

    def broken(_: object) -> None:
        raise StorageError("full")

    monkeypatch.setattr(rig.table, "put_many", broken)
    thread = rig.thread("a.1")
    with pytest.raises(StorageError):
        thread.beat()
    rig.wait(45_000)  # the session ends, and that cannot be stored either
    assert any("not stored: full" in str(effect) for effect in rig.effects)
    monkeypatch.setattr(rig.table, "put_many", put_many)
    rig.join("a.1")
    rig.restart()
    assert rig.group.member_ids() == ("a.1",)
    assert VALUE_BYTES_MAX > requests.CHARACTERS_MAX
