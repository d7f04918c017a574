"""What the doctor finds in streams groups (KIP-1071) and share groups (KIP-932), and that it leaves healthy ones alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from steelyard.allocate.assignors.sticky_tasks import TaskId
from steelyard.groups.doctor import Ailment, Diagnosis
from steelyard.groups.kafka.doctor import AWAITED_MS
from steelyard.groups.kafka.report import KafkaAwaited, KafkaGroupMember, KafkaGroupReport
from steelyard.types import TopicPartition
from steelyard.web.console.kafka.doctor import diagnose
from steelyard.web.console.kafka.facts import (
    KafkaGroupFacts,
    MemberFacts,
    ShareProgress,
    SubtopologyFacts,
    TasksFacts,
    TopologyFacts,
    of_report,
)

NOW = 1_700_000_000_000
TOPICS = ("lines", "words", "old")
LINES, WORDS = (
    [TopicPartition(topic, number) for number in (0, 1, 2)] for topic in ("lines", "words")
)
OLD = TopicPartition("old", 0)
ENDS = dict.fromkeys((*LINES, *WORDS, OLD), 9)


def reader(name: str, *places: TopicPartition, topics: Sequence[str] = ("lines",)) -> MemberFacts:
    """A member of a share group."""
    return MemberFacts(f"{name}-id", name, "/10.0.0.7", None, tuple(topics), places)


def thread(
    name: str, *places: TopicPartition, active: str = "", standby: str = "", warmup: str = ""
) -> MemberFacts:
    """A member of a streams group; tasks as Kafka Streams writes them: 0_1."""

    def tasks(text: str) -> tuple[TaskId, ...]:
        pairs = (word.split("_") for word in text.split())
        return tuple(TaskId(subtopology, int(number)) for subtopology, number in pairs)

    found = TasksFacts(f"{name}-process", tasks(active), tasks(standby), tasks(warmup))
    return MemberFacts(f"{name}-id", name, "/10.0.0.7", None, (), places, places, found)


APP = KafkaGroupFacts(
    *("app", "streams", "Stable", "", 4),
    (
        thread("a", LINES[0], WORDS[0], active="0_0 1_0"),
        thread("b", LINES[1], WORDS[1], active="0_1 1_1"),
        thread("c", standby="1_0"),
        thread("d", warmup="1_1"),
    ),
    {LINES[0]: 3, WORDS[1]: 9},
    topology=TopologyFacts(
        1, (SubtopologyFacts("0", ("lines",)), SubtopologyFacts("1", (), ("words",)))
    ),
)
TEAM = KafkaGroupFacts(
    *("team", "share", "Stable", "simple", 4),
    (reader("a", LINES[0], LINES[1]), reader("b", LINES[0]), reader("c", LINES[1])),
    {},
    shared={LINES[0]: ShareProgress(3, 6), LINES[1]: ShareProgress(9, 0)},
)


def found(group: KafkaGroupFacts, topics: Sequence[str] = TOPICS) -> list[Diagnosis]:
    return diagnose(group, topics, ENDS, NOW)


@pytest.mark.parametrize("group", [APP, TEAM])
def test_a_healthy_group(group: KafkaGroupFacts) -> None:
    """Who keeps only copies of state is not idle, and partitions may have several readers."""
    assert found(group) == []


def shares(**lags: int | None) -> Mapping[TopicPartition, ShareProgress]:
    places = {"first": LINES[0], "third": LINES[2], "old": OLD}
    return {places[name]: ShareProgress(0, lag) for name, lag in lags.items()}


@pytest.mark.parametrize(
    ("group", "ailment", "said"),
    [
        (replace(APP, members=(), state="Empty"), Ailment.NOBODY, "no member of group app is"),
        (replace(TEAM, members=(), state="Empty"), Ailment.NOBODY, "no member of group team is"),
        (
            replace(APP, members=(*APP.members, thread("e"), thread("f"))),
            Ailment.MEMBER_IDLE,
            "e, f run no task; the group has 6 members for 4 tasks",
        ),
        (
            replace(APP, committed={LINES[2]: 3, LINES[0]: 0}),
            Ailment.QUEUE_WITHOUT_MEMBER,
            "lines-2 have messages, but no member reads them",
        ),
        (
            replace(APP, committed={OLD: 3}),
            Ailment.TOPIC_NOT_READ,
            "the group has offsets of old, where messages wait",
        ),
        (
            replace(APP, committed={LINES[0]: 10}),
            Ailment.OFFSET_BEYOND_END,
            "committed offsets of lines-0 are beyond",
        ),
        (
            replace(TEAM, members=(*TEAM.members, reader("d", topics=("lines", "lisen")))),
            Ailment.MEMBER_IDLE,
            "d read no partition: topics to which they subscribe do not exist: lisen",
        ),
        (
            replace(TEAM, members=(*TEAM.members, reader("d"), reader("e"))),
            Ailment.MEMBER_IDLE,
            "d, e read no partition, though the topics exist",
        ),
        (
            replace(TEAM, shared=shares(first=6, third=2)),
            Ailment.QUEUE_WITHOUT_MEMBER,
            "lines-2 have messages, but no member reads them",
        ),
        (
            replace(TEAM, shared=shares(third=None, old=1)),
            Ailment.TOPIC_NOT_READ,
            "the group has offsets of old, where messages wait",
        ),
    ],
)
def test_ailments(group: KafkaGroupFacts, ailment: Ailment, said: str) -> None:
    (finding,) = found(group)
    assert finding.ailment is ailment
    assert said in finding.what


def test_nobody_and_messages_of_a_topic_that_is_not_read_are_one_finding() -> None:
    """Of a group without members, everything waits."""
    alone = replace(TEAM, members=(), shared=shares(first=6, old=1))
    assert [one.ailment for one in found(alone)] == [Ailment.NOBODY]


# -- applications without their topics --------------------------------------------------------------


@pytest.mark.parametrize(
    ("topics", "topology", "said"),
    [
        (("words",), APP.topology, "the application reads lines, which does not exist"),
        (("lines",), APP.topology, "or its internal topics do not exist"),
        (("lines", "words"), APP.topology, "do not fit together"),
        ((), None, "do not fit together"),
    ],
)
def test_an_application_that_is_not_ready(
    topics: Sequence[str], topology: TopologyFacts | None, said: str
) -> None:
    group = replace(APP, state="NotReady", members=(thread("a"), thread("b")), topology=topology)
    (finding,) = found(replace(group, committed={}), topics)
    assert finding.ailment is Ailment.TOPIC_NOT_READ
    assert said in finding.what


def report(state: str, *awaited: KafkaAwaited) -> KafkaGroupReport:
    """As a coordinator of ours reports the application."""
    members = tuple(
        KafkaGroupMember(one.member_id, one.client_id, one.host, None, one.assigned)
        for one in APP.members
    )
    began = NOW - AWAITED_MS - 2_000 if awaited else None
    return KafkaGroupReport(
        "app", "streams", state, "broker-a", 4, "sticky", "", members, (), began, awaited
    )


SILENT = KafkaAwaited("c-id", "c", "/10.0.0.7", "Heartbeat", NOW - AWAITED_MS - 2_000, None)


def test_reports_of_our_coordinators_are_read_with_descriptions() -> None:
    """They tell whom a rebalance waits for. It does not end while the application has no topics."""
    assert found(of_report(report("Stable"), APP)) == []
    (finding,) = found(of_report(report("Reconciling", SILENT), APP))
    assert finding.ailment is Ailment.MEMBER_AWAITED
    assert "waiting for c/10.0.0.7 for 12 s: Heartbeat" in finding.what
    late, missing = found(of_report(report("NotReady", SILENT), APP), ("words",))
    assert (late.ailment, missing.ailment) == (Ailment.MEMBER_AWAITED, Ailment.TOPIC_NOT_READ)
    assert missing.what.startswith("no member has a task: the application reads lines")


# -- rebalances of Apache's coordinators ------------------------------------------------------------


def test_a_group_that_rebalances_is_not_ill() -> None:
    """In a classic group nobody has an assignment then, as it is described."""
    members = (thread("a", *LINES, *WORDS, active="0_0 0_1 1_0 1_1"), thread("b"))
    for state in ("Assigning", "Reconciling"):
        assert found(replace(APP, state=state, members=members)) == []
    nothing = (reader("a"), reader("b"))
    classic = KafkaGroupFacts("g", "classic", "PreparingRebalance", "range", None, nothing, {})
    assert found(classic) == []
    (finding,) = found(replace(classic, state="Stable"))
    assert finding.ailment is Ailment.MEMBER_IDLE
