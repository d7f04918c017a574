"""Each ailment found, and a healthy group left alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from steelyard.groups.doctor import Ailment, Diagnosis, Observed, diagnose, strategy_name
from steelyard.types import MessageQueue
from steelyard.wire.remoting.bodies import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProcessQueueInfo,
    SubscriptionData,
)

NOW = 1_700_000_000_000
TOPIC, RETRY = "T", "%RETRY%g"
QUEUES = [MessageQueue(TOPIC, broker, number) for broker in "ab" for number in range(2)]
RETRIES = [MessageQueue(RETRY, broker, 0) for broker in "ab"]
BOTH = (SubscriptionData(RETRY), SubscriptionData(TOPIC, "x || y", ("x", "y")))
JAVA = "org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely@2c79ff9e"
FRESH = ProcessQueueInfo(3, last_pull_timestamp=NOW - 1_000, last_consume_timestamp=NOW - 500)


def info(
    *queues: MessageQueue,
    state: ProcessQueueInfo = FRESH,
    subscriptions: tuple[SubscriptionData, ...] = BOTH,
    **properties: str,
) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        {"messageModel": "CLUSTERING"} | properties, subscriptions, dict.fromkeys(queues, state)
    )


def connection(*clients: str, model: str = "CLUSTERING") -> ConsumerConnection:
    return ConsumerConnection(
        tuple(Connection(c, f"10.0.0.{n}:1", "JAVA", 409) for n, c in enumerate(clients)),
        {item.topic: item for item in BOTH},
        "CONSUME_PASSIVELY",
        model,
        "CONSUME_FROM_LAST_OFFSET",
    )


HEALTHY = Observed(
    "g",
    NOW,
    {"a": connection("c1", "c2"), "b": connection("c2", "c1")},
    {
        "c1": info(*QUEUES[:2], RETRIES[0], allocateMessageQueueStrategy=JAVA),
        "c2": info(*QUEUES[2:], RETRIES[1], allocateMessageQueueStrategy="AVG"),
    },
    {TOPIC: QUEUES, RETRY: RETRIES},
)


def found(seen: Observed) -> list[Ailment]:
    return [finding.ailment for finding in diagnose(seen)]


def with_infos(**infos: ConsumerRunningInfo | None) -> Observed:
    return replace(HEALTHY, infos=dict(HEALTHY.infos) | infos)


def test_a_healthy_group() -> None:
    assert diagnose(HEALTHY) == []
    other_order = (BOTH[0], SubscriptionData(TOPIC, "y||x", ("y", "x")))
    same = info(*QUEUES[2:], RETRIES[1], subscriptions=other_order)
    assert diagnose(with_infos(c2=same)) == []


def test_nobody() -> None:
    (finding,) = diagnose(replace(HEALTHY, connections={"a": None, "b": None}, infos={}))
    assert finding == Diagnosis(
        Ailment.NOBODY,
        "no member of group g is online",
        "start a consumer, and check that it uses this group's name and these nameservers",
    )


def test_readers_that_choose_their_queues_themselves_divide_nothing() -> None:
    reader = replace(connection("c1"), subscription_table={}, consume_type="CONSUME_ACTIVELY")
    seen = Observed("steelyard-metrics", NOW, {"a": reader, "b": None}, {"c1": None}, {})
    assert diagnose(seen) == []


def test_two_processes_under_one_client_id() -> None:
    twice = replace(
        HEALTHY, connections={"a": connection("c1", "c2", "c1"), "b": connection("c1", "c2")}
    )
    (finding,) = diagnose(twice)
    assert finding.ailment is Ailment.CLIENT_ID_SHARED
    assert finding.what == ("client id c1 is connected 2 times to a: from 10.0.0.0:1, 10.0.0.2:1")


@pytest.mark.parametrize(("seen", "unknown"), [(connection("c1"), "c2"), (None, "c1, c2")])
def test_a_broker_that_members_do_not_reach(seen: ConsumerConnection | None, unknown: str) -> None:
    (finding,) = diagnose(replace(HEALTHY, connections={"a": connection("c1", "c2"), "b": seen}))
    assert finding.ailment is Ailment.MEMBER_UNKNOWN_TO_A_BROKER
    assert finding.what == f"broker b does not know {unknown}"


def test_members_that_do_not_agree() -> None:
    other = (SubscriptionData(TOPIC, "z", ("z",)),)
    seen = with_infos(
        c2=info(
            *QUEUES[2:],
            RETRIES[1],
            subscriptions=other,
            allocateMessageQueueStrategy="AVG_BY_CIRCLE",
            messageModel="BROADCASTING",
        )
    )
    assert [finding.what for finding in diagnose(seen)] == [
        "subscriptions differ: %RETRY%g [*], T [x || y]: c1; T [z]: c2",
        "allocation strategies differ: AVG: c1; AVG_BY_CIRCLE: c2",
        "message models differ: BROADCASTING: c2; CLUSTERING: c1",
    ]


def test_queues_that_nobody_or_two_hold() -> None:
    overlapping = info(*QUEUES[1:3], RETRIES[1])
    assert [(f.ailment, f.what) for f in diagnose(with_infos(c2=overlapping))] == [
        (Ailment.QUEUE_WITHOUT_MEMBER, "1 of 6 queues are held by no member: T/b/1"),
        (Ailment.QUEUE_WITH_TWO_MEMBERS, "1 queue with two members: T/a/1, by c1, c2"),
    ]


def test_a_queue_being_given_up_is_not_held() -> None:
    given_up = info(*QUEUES[2:], RETRIES[1], state=replace(FRESH, dropped=True))
    assert found(with_infos(c2=given_up)) == [Ailment.QUEUE_WITHOUT_MEMBER]


def test_who_keeps_silent_may_hold_the_rest() -> None:
    (finding,) = diagnose(with_infos(c2=None))
    assert (finding.ailment, finding.what) == (Ailment.MEMBER_SILENT, "no answer from c2")


def test_members_without_a_queue() -> None:
    everything = info(*QUEUES, *RETRIES)
    (finding,) = diagnose(with_infos(c1=everything, c2=info()))
    assert finding.what == "c2 hold no queue; the group has 2 members for 4 queues"
    assert "findings above" in finding.advice
    few = replace(
        HEALTHY,
        infos={"c1": info(QUEUES[0], RETRIES[0]), "c2": info(RETRIES[1])},
        queues={TOPIC: QUEUES[:1], RETRY: RETRIES},
    )
    (finding,) = diagnose(few)
    assert finding.advice == (
        "members beyond the number of queues have nothing to do: give the topic more queues"
    )


@pytest.mark.parametrize(
    ("state", "properties", "ailments"),
    [
        (replace(FRESH, last_pull_timestamp=NOW - 121_000), {}, [Ailment.QUEUE_NOT_PULLED]),
        (replace(FRESH, last_pull_timestamp=0), {}, []),
        (FRESH, {"PROP_CONSUMEORDERLY": "true"}, [Ailment.QUEUE_NOT_LOCKED]),
        (replace(FRESH, locked=True), {"PROP_CONSUMEORDERLY": "true"}, []),
        (
            replace(FRESH, last_consume_timestamp=NOW - 61_000, cached_msg_count=1),
            {},
            [Ailment.LISTENER_HANGS],
        ),
        (replace(FRESH, last_consume_timestamp=NOW - 61_000), {}, []),
    ],
)
def test_members_that_do_not_work(
    state: ProcessQueueInfo, properties: dict[str, str], ailments: list[Ailment]
) -> None:
    second = info(*QUEUES[2:], RETRIES[1], state=state)
    second = replace(second, properties=second.properties | properties)
    assert found(with_infos(c2=second)) == ailments


def test_broadcasting_members_all_hold_everything() -> None:
    everything = info(*QUEUES)
    broadcast = connection("c1", "c2", model="BROADCASTING")
    seen = replace(
        HEALTHY,
        connections={"a": broadcast, "b": broadcast},
        infos={"c1": everything, "c2": everything},
    )
    assert diagnose(seen) == []


def test_long_lists_are_cut() -> None:
    names = [f"c{number}" for number in range(9)]
    seen = replace(HEALTHY, connections={"a": connection(*names), "b": None})
    assert "c0, c1, c2, c3, c4 and 4 more" in diagnose(seen)[0].what


@pytest.mark.parametrize(
    ("text", "name"),
    [(JAVA, "AVG"), ("AVG", "AVG"), ("com.example.Mine@1f", "Mine"), ("EVEN", "EVEN")],
)
def test_strategy_names(text: str, name: str) -> None:
    assert strategy_name(text) == name
