"""Pictures of groups from what servers and members answer: who should hold what, and whom a rebalance waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from steelyard.groups.kafka.report import KafkaAwaited, KafkaGroupReport, KafkaRebalance
from steelyard.types import MessageQueue, TopicPartition
from steelyard.web.console.kafka import picture as kafka_picture
from steelyard.web.console.kafka.facts import KafkaGroupFacts, MemberFacts, as_report, of_report
from steelyard.web.console.kafka.shares import of_share, progress_of
from steelyard.web.console.kafka.streams import of_streams
from steelyard.web.console.remoting import picture as remoting_picture
from steelyard.web.console.remoting.picture import QueueReach, RemotingGroupFacts
from steelyard.wire.kafka.messages.share_groups import (
    DescribedShareGroup,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from steelyard.wire.kafka.messages.streams_groups import DescribedGroup as StreamsDescription
from steelyard.wire.kafka.messages.streams_groups import (
    DescribedMember,
    DescribedSubtopology,
    DescribedTopology,
    TaskAssignment,
    TaskIds,
    TopicInfo,
)
from steelyard.wire.remoting.bodies import Connection, ConsumerRunningInfo, ProcessQueueInfo

QUEUES = [MessageQueue("T", "b", number) for number in range(4)]
RETRY = MessageQueue("%RETRY%g", "b", 0)


def facts(
    held: Mapping[str, Sequence[int] | None],
    *,
    strategy: str = "AVG",
    model: str = "CLUSTERING",
    consume_type: str = "CONSUME_PASSIVELY",
    retry_lag: int = 0,
) -> RemotingGroupFacts:
    """A group whose members hold these queues of T; None: it does not answer."""
    properties = {"allocateMessageQueueStrategy": strategy, "PROP_CLIENT_VERSION": "V5_3_3"}
    return RemotingGroupFacts(
        "g",
        consume_type,
        model,
        {name: Connection(name, f"{name}:1", "JAVA") for name in held},
        {
            name: None
            if numbers is None
            else ConsumerRunningInfo(
                properties,
                mq_table={QUEUES[number]: ProcessQueueInfo(commit_offset=0) for number in numbers},
            )
            for name, numbers in held.items()
        },
        {"T": QUEUES, "%RETRY%g": [RETRY]},
        {
            **{queue: QueueReach(3, 5, 2, 100) for queue in QUEUES},
            RETRY: QueueReach(0, retry_lag, retry_lag, 0),
        },
    )


def test_a_settled_rocketmq_group() -> None:
    found = remoting_picture.picture(facts({"a": [0, 1], "b": [2, 3]}), 1_000)
    assert (found.state, found.protocol, found.rebalance) == ("Stable", "push concurrent", None)
    assert [(one.id, one.assigned, one.state, one.version) for one in found.members] == [
        ("a", 2, "stable", "JAVA 5.3.3"),
        ("b", 2, "stable", "JAVA 5.3.3"),
    ]
    assert [(one.key, one.owner, one.next_owner, one.lag) for one in found.queues] == [
        ("T/b/0", "a", None, 2),
        ("T/b/1", "a", None, 2),
        ("T/b/2", "b", None, 2),
        ("T/b/3", "b", None, 2),
    ]


@pytest.mark.parametrize(
    ("silent_ms", "state", "warning"),
    [
        ({"b": 2_000}, "Stable", None),
        (
            {"b": 12_345},
            "Degraded",
            "b has not answered for 12 s; 2 of 4 queues are probably not read.",
        ),
    ],
)
def test_a_member_that_hangs(silent_ms: dict[str, int], state: str, warning: str | None) -> None:
    group = msgspec.structs.replace(facts({"a": [0, 1], "b": None}), silent_ms=silent_ms)
    found = remoting_picture.picture(group, 1_000)
    assert (found.state, found.warning, found.rebalance) == (state, warning, None)
    everything = msgspec.structs.replace(
        facts({"a": [0, 1, 2, 3], "b": None, "c": None}), silent_ms={"b": 3_000, "c": 9_000}
    )
    assert remoting_picture.picture(everything, 1_000).warning == (
        "b and 1 more have not answered for 9 s."
    )


def test_a_newcomer_waits_for_the_others_queues() -> None:
    found = remoting_picture.picture(facts({"a": [0, 1, 2, 3], "b": []}), 1_000)
    assert found.state == "Rebalancing"
    assert found.rebalance is not None
    assert found.rebalance.waits_for == ["a"]
    assert found.rebalance.text == (
        "2 queues of 4 are not with their next owner yet. a still holds some of them."
    )
    assert [(one.owner, one.next_owner) for one in found.queues] == [
        ("a", None),
        ("a", None),
        ("a", "b"),
        ("a", "b"),
    ]
    assert [(one.state, one.waited_for) for one in found.members] == [
        ("revoking", True),
        ("waiting", False),
    ]


def test_queues_that_nobody_holds() -> None:
    found = remoting_picture.picture(facts({"a": [0, 1], "b": []}), 1_000)
    assert found.rebalance is not None
    assert found.rebalance.waits_for == []
    assert found.rebalance.text.endswith("Nobody holds them, so that their next owners take them.")


@pytest.mark.parametrize(
    "group",
    [
        facts({"a": [0, 1, 2, 3], "b": []}, strategy="EVEN"),
        facts({"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}, model="BROADCASTING"),
        facts({"a": [0], "b": []}, consume_type="CONSUME_ACTIVELY"),
        facts({"a": [0, 1], "b": None}),
        facts({}),
    ],
    ids=["no plan is known", "broadcasting", "pull", "silent", "nobody"],
)
def test_groups_that_are_not_said_to_rebalance(group: RemotingGroupFacts) -> None:
    found = remoting_picture.picture(group, 1_000)
    assert found.rebalance is None
    if group.infos.get("b", 1) is None:
        assert [one.state for one in found.members] == ["stable", "silent"]


@pytest.mark.parametrize("lag", [0, 3])
def test_retry_topics_are_shown_when_something_waits(lag: int) -> None:
    found = remoting_picture.picture(facts({"a": [0, 1, 2, 3]}, retry_lag=lag), 1_000)
    assert ("%RETRY%g/b/0" in [one.key for one in found.queues]) == bool(lag)


# -- Kafka -----------------------------------------------------------------------------------------

PLACES = [TopicPartition("t", number) for number in range(3)]


def member(name: str, assigned: Sequence[int], target: Sequence[int] | None = None) -> MemberFacts:
    return MemberFacts(
        f"{name}-id",
        name,
        "/10.0.0.1",
        None,
        ("t",),
        tuple(PLACES[number] for number in assigned),
        None if target is None else tuple(PLACES[number] for number in target),
    )


def test_a_consumer_group_that_reconciles() -> None:
    group = KafkaGroupFacts(
        *("g", "consumer", "Reconciling", "uniform", 7),
        (member("a", [0, 1, 2], [0, 1]), member("b", [], [2])),
        {PLACES[0]: 5, PLACES[1]: 9},
    )
    ends = dict.fromkeys(PLACES, 8)
    found = kafka_picture.picture(group, PLACES, {}, ends, None, 1_000)
    assert (found.generation, found.protocol) == (7, "consumer: uniform")
    assert [(one.owner, one.next_owner) for one in found.queues] == [
        ("a-id", None),
        ("a-id", None),
        ("a-id", "b-id"),
    ]
    # A committed offset beyond the end is no lag; without one it counts from the first message.
    assert [one.lag for one in found.queues] == [3, 0, None]
    known = kafka_picture.picture(group, PLACES, {PLACES[2]: 2}, ends, None, 1_000)
    assert [one.lag for one in known.queues] == [3, 0, 6]
    assert known.queues[2].committed is None
    assert kafka_picture.line(group, {PLACES[2]: 2}, ends, None).lag == 9
    assert [(one.state, one.host) for one in found.members] == [
        ("revoking", "10.0.0.1"),
        ("waiting", "10.0.0.1"),
    ]
    assert found.rebalance is not None
    assert found.rebalance.waits_for == ["a-id"]
    line = kafka_picture.line(group, {}, ends, None)
    assert (line.lag, line.rebalancing, line.oldest_wait_ms) == (3, True, None)


def test_a_classic_group_of_apache_tells_no_reason() -> None:
    group = KafkaGroupFacts(
        "g", "classic", "PreparingRebalance", "range", None, (member("a", []),), {}
    )
    found = kafka_picture.picture(group, PLACES, {}, {}, None, 1_000)
    assert found.rebalance is not None
    assert (found.rebalance.trigger, found.rebalance.waits_for) == ("unknown", [])
    assert "do not tell for which members it waits" in found.rebalance.text


def test_a_report_of_ours_tells_whom_and_why() -> None:
    report = KafkaGroupReport(
        group="g",
        kind="classic",
        state="PreparingRebalance",
        coordinator="broker-a",
        generation=4,
        assignor="range",
        leader="",
        members=(),
        rebalances=(KafkaRebalance(900, 4, "joined", "c joined"),),
        began_at=1_000,
        awaited=(
            KafkaAwaited("a-id", "a", "/10.0.0.1", "JoinGroup", 1_000, None),
            KafkaAwaited("b-id", "", "", "Heartbeat", None, None),
        ),
    )
    found = kafka_picture.picture(of_report(report, None), PLACES, {}, {}, {}, 3_500)
    assert found.rebalance is not None
    assert found.rebalance.text == (
        "The group has been rebalancing for 2.5 s: c joined."
        " It waits for a (10.0.0.1): JoinGroup, and for 1 more."
    )
    assert (found.rebalance.since, found.rebalance.trigger) == (1_000, "joined")
    assert as_report(of_report(report, None), {}, 3_500) is report


# -- streams groups and share groups ---------------------------------------------------------------

TOPOLOGY = DescribedTopology(
    3,
    [
        DescribedSubtopology("0", ["lines"], ["words"]),
        DescribedSubtopology("1", [], [], [TopicInfo("counts")], [TopicInfo("words")]),
    ],
)


def thread(
    name: str, active: str, standby: str = "", warmup: str = "", target: str | None = None
) -> DescribedMember:
    """A member with tasks as Kafka Streams writes them: 0_1."""

    def told(text: str) -> list[TaskIds]:
        pairs = [word.split("_") for word in text.split()]
        return [TaskIds(subtopology, [int(number)]) for subtopology, number in pairs]

    return DescribedMember(
        member_id=f"{name}-id",
        client_id=name,
        client_host="/10.0.0.1",
        process_id="p",
        assignment=TaskAssignment(told(active), told(standby), told(warmup)),
        target_assignment=TaskAssignment(told(active if target is None else target)),
    )


def test_a_streams_group_of_apache() -> None:
    """A task may move, and some members only have copies of its state; topics may have fewer partitions than others."""
    group = StreamsDescription(
        group_id="g",
        group_state="Reconciling",
        group_epoch=8,
        assignment_epoch=7,
        topology=TOPOLOGY,
        members=[
            thread("b", "0_1", standby="1_0", warmup="1_1"),
            thread("a", "0_0 1_0 1_1", target="0_0 1_0"),
        ],
    )
    facts = of_streams(group, {"lines": 2, "words": 2})
    places = [TopicPartition(topic, number) for topic in ("lines", "words") for number in (0, 1)]
    found = kafka_picture.picture(facts, places, {}, {}, None, 1_000)
    assert (found.kind, found.protocol) == ("streams", "streams")
    assert (found.generation, found.assignment_epoch) == (8, 7)
    assert found.topology is not None
    assert [one.id for one in found.topology.subtopologies] == ["0", "1"]
    rows = [(q.key, q.task, q.owner, q.standbys, q.warmups) for q in found.queues]
    assert rows == [
        ("lines/0", "0_0", "a-id", [], []),
        ("lines/1", "0_1", "b-id", [], []),
        ("words/0", "1_0", "a-id", ["b-id"], []),
        ("words/1", "1_1", "a-id", [], ["b-id"]),
    ]
    assert [one.state for one in found.members] == ["revoking", "waiting"]
    assert found.rebalance is not None
    assert found.rebalance.waits_for == ["a-id"]
    assert of_streams(group, {"lines": 1}).members[1].assigned == ()
    without = DescribedTopology(-1, None)
    for topology in (None, without):
        bare = of_streams(msgspec.structs.replace(group, topology=topology), {})
        assert bare.topics == ()


@pytest.mark.parametrize(("lag", "told"), [(5, 5), (-1, None)])
def test_a_share_group_whose_broker_tells_no_lag(lag: int, told: int | None) -> None:
    group = DescribedShareGroup(group_id="g", group_state="Stable", assignor_name="simple")
    progress = DescribeShareGroupOffsetsResponseGroup(
        "g",
        [
            DescribeShareGroupOffsetsResponseTopic(
                "t",
                partitions=[
                    DescribeShareGroupOffsetsResponsePartition(0, 4, lag=lag),
                    DescribeShareGroupOffsetsResponsePartition(1, -1),
                    DescribeShareGroupOffsetsResponsePartition(2, 9, error_code=3),
                ],
            )
        ],
    )
    facts = msgspec.structs.replace(of_share(group), shared=progress_of(progress))
    found = kafka_picture.picture(facts, PLACES, {}, dict.fromkeys(PLACES, 9), None, 1_000)
    assert [(q.share_start, q.lag) for q in found.queues] == [(4, told), (None, None), (None, None)]
    assert kafka_picture.line(facts, {}, {}, None).lag == told
