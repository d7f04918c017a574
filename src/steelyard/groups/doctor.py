"""The group doctor: what keeps a consumer group from working, and how to fix it.

It evaluates what the brokers see of a group and what its members report, at about the same time. It
looks for the ways in which groups fail in practice. Most of them are silent: if members compute
different allocations, each holds queues that others believe to own, and some queues are read twice
or not at all.

A group in the middle of a rebalance seems faulty: repeat the diagnosis after some seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from steelyard.types import MessageQueue
from steelyard.wire.remoting.bodies import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ProcessQueueInfo,
    SubscriptionData,
)
from steelyard.wire.remoting.names import RETRY_PREFIX
from steelyard.wording import counted

JAVA_STRATEGIES = {
    "AllocateMessageQueueAveragely": "AVG",
    "AllocateMessageQueueAveragelyByCircle": "AVG_BY_CIRCLE",
    "AllocateMessageQueueConsistentHash": "CONSISTENT_HASH",
    "AllocateMessageQueueByConfig": "CONFIG",
    "AllocateMessageQueueByMachineRoom": "MACHINE_ROOM",
    "AllocateMachineRoomNearby": "MACHINE_ROOM_NEARBY",
}
"""Names of the strategies in org.apache.rocketmq.client.consumer.rebalance."""

STRATEGY = "allocateMessageQueueStrategy"
ORDERLY = "PROP_CONSUMEORDERLY"
MODEL = "messageModel"

PULL_IDLE_MS = 120_000
"""Time without pull after which a held queue counts as not consumed.

RocketMQ: rocketmq.client.pull.pullMaxIdleTime.
"""
CONSUME_IDLE_MS = 60_000
"""Time after which a listener with messages hangs (ConsumerRunningInfo.analyzeProcessQueue)."""

NAMES_MAX = 5
"""Most queues or clients named in one finding."""


class Ailment(Enum):
    NOBODY = "NOBODY"
    SUBSCRIPTIONS_DIFFER = "SUBSCRIPTIONS_DIFFER"
    STRATEGIES_DIFFER = "STRATEGIES_DIFFER"
    MODELS_DIFFER = "MODELS_DIFFER"
    CLIENT_ID_SHARED = "CLIENT_ID_SHARED"
    MEMBER_UNKNOWN_TO_A_BROKER = "MEMBER_UNKNOWN_TO_A_BROKER"
    MEMBER_SILENT = "MEMBER_SILENT"
    MEMBER_IDLE = "MEMBER_IDLE"
    QUEUE_WITHOUT_MEMBER = "QUEUE_WITHOUT_MEMBER"
    QUEUE_WITH_TWO_MEMBERS = "QUEUE_WITH_TWO_MEMBERS"
    QUEUE_NOT_PULLED = "QUEUE_NOT_PULLED"
    QUEUE_NOT_LOCKED = "QUEUE_NOT_LOCKED"
    LISTENER_HANGS = "LISTENER_HANGS"
    MEMBER_AWAITED = "MEMBER_AWAITED"
    """Only Kafka groups have this finding and those below."""
    MEMBERS_EXPIRE = "MEMBERS_EXPIRE"
    MEMBER_FLAPS = "MEMBER_FLAPS"
    TOPIC_NOT_READ = "TOPIC_NOT_READ"
    OFFSET_BEYOND_END = "OFFSET_BEYOND_END"


class Diagnosis(msgspec.Struct, frozen=True):
    """Something that is wrong: what it is, and what to change."""

    ailment: Ailment
    what: str
    advice: str


class Observed(msgspec.Struct, frozen=True):
    """The facts about a group.

    `connections`: members by broker name, None for a broker that knows none. `infos`: the members'
    reports by client id, None for one that did not respond. `queues`: the readable queues of every
    topic to which a member subscribes.
    """

    group: str
    now: int
    connections: Mapping[str, ConsumerConnection | None]
    infos: Mapping[str, ConsumerRunningInfo | None]
    queues: Mapping[str, Sequence[MessageQueue]]


def diagnose(seen: Observed) -> list[Diagnosis]:
    """Return all findings, those that explain others first; none for a group in good health."""
    if not any(seen.connections.values()):
        return [
            Diagnosis(
                Ailment.NOBODY,
                f"no member of group {seen.group} is online",
                "start a consumer, and check that it uses this group's name and these nameservers",
            )
        ]
    if _is_undivided(seen):
        return [*_work(seen)]
    findings = [*_clients(seen), *_settings(seen)]
    if _broadcasting(seen):
        return findings  # every member reads every queue
    return [*findings, *_shares(seen), *_work(seen)]


# -- who is in -------------------------------------------------------------------------------------


def _clients(seen: Observed) -> Iterable[Diagnosis]:
    members = sorted(
        {c.client_id for found in _present(seen).values() for c in found.connection_set}
    )
    for name, found in sorted(_present(seen).items()):
        for client_id, times in sorted(Counter(c.client_id for c in found.connection_set).items()):
            if times > 1:
                addresses = [
                    c.client_addr for c in found.connection_set if c.client_id == client_id
                ]
                yield Diagnosis(
                    Ailment.CLIENT_ID_SHARED,
                    f"client id {client_id} is connected {times} times to {name}: from"
                    f" {some(addresses)}",
                    "two processes use one client id and read the same share: give each its own"
                    " client id"
                    " (instanceName); containers often share ip and process id",
                )
        missing = sorted(set(members) - {c.client_id for c in found.connection_set})
        if missing:
            yield _unknown(name, missing)
    for name in sorted(seen.connections.keys() - _present(seen).keys()):
        yield _unknown(name, members)
    silent = sorted(client_id for client_id, info in seen.infos.items() if info is None)
    if silent:
        yield Diagnosis(
            Ailment.MEMBER_SILENT,
            f"no answer from {some(silent)}",
            "it hangs, is unreachable, or its client is too old to report what it holds; check its"
            " process",
        )


def _unknown(broker_name: str, members: Sequence[str]) -> Diagnosis:
    return Diagnosis(
        Ailment.MEMBER_UNKNOWN_TO_A_BROKER,
        f"broker {broker_name} does not know {some(members)}",
        "members count who is in by asking any one broker: let each reach every broker of its"
        " topics",
    )


def _present(seen: Observed) -> dict[str, ConsumerConnection]:
    return {name: found for name, found in seen.connections.items() if found is not None}


# -- what they agree on ----------------------------------------------------------------------------


def _settings(seen: Observed) -> Iterable[Diagnosis]:
    infos = _answered(seen)
    subscriptions = {
        client_id: ", ".join(sorted(map(_subscription, info.subscription_set)))
        for client_id, info in infos.items()
    }
    yield from _differing(
        Ailment.SUBSCRIPTIONS_DIFFER,
        "subscriptions differ",
        subscriptions,
        "all members of a group must subscribe to the same topics with the same expressions: use"
        " another group for"
        " another subscription",
    )
    strategies = {
        c: strategy_name(i.properties[STRATEGY])
        for c, i in infos.items()
        if STRATEGY in i.properties
    }
    yield from _differing(
        Ailment.STRATEGIES_DIFFER,
        "allocation strategies differ",
        strategies,
        "members that divide the queues differently leave some unassigned: set the same strategy"
        " everywhere",
    )
    models = {c: info.properties[MODEL] for c, info in infos.items() if MODEL in info.properties}
    yield from _differing(
        Ailment.MODELS_DIFFER,
        "message models differ",
        models,
        "a group is either CLUSTERING or BROADCASTING: use another group for the other",
    )


def _differing(
    ailment: Ailment, what: str, values: Mapping[str, str], advice: str
) -> Iterable[Diagnosis]:
    if len(set(values.values())) > 1:
        by_value = {
            value: sorted(client for client, other in values.items() if other == value)
            for value in sorted(set(values.values()))
        }
        parts = "; ".join(f"{value}: {some(clients)}" for value, clients in by_value.items())
        yield Diagnosis(ailment, f"{what}: {parts}", advice)


def _subscription(item: SubscriptionData) -> str:
    """Return a topic and its expression; the order of tags does not matter."""
    expression = " || ".join(sorted(item.tags_set)) or item.sub_string
    return f"{item.topic} [{expression}]"


def strategy_name(text: str) -> str:
    """Return `AVG` for `org.apache...AllocateMessageQueueAveragely@2c79ff9e` of Java clients.

    Our clients report the name.
    """
    class_name = text.partition("@")[0].rpartition(".")[2]
    return JAVA_STRATEGIES.get(class_name, class_name)


def _is_undivided(seen: Observed) -> bool:
    """Return whether the members choose their queues themselves, as the reader of metrics does.

    They divide nothing among each other, and consumers of single pulls have nothing to report.
    """
    return not any(
        found.subscription_table or found.consume_type != "CONSUME_ACTIVELY"
        for found in _present(seen).values()
    )


def _broadcasting(seen: Observed) -> bool:
    return all(found.message_model == "BROADCASTING" for found in _present(seen).values())


def _answered(seen: Observed) -> dict[str, ConsumerRunningInfo]:
    return {client_id: info for client_id, info in sorted(seen.infos.items()) if info is not None}


# -- who holds what --------------------------------------------------------------------------------


def _shares(seen: Observed) -> Iterable[Diagnosis]:
    holders = _holders(seen)
    queues = sorted(queue for found in seen.queues.values() for queue in found)
    orphans = [queue for queue in queues if queue not in holders]
    if orphans and not any(info is None for info in seen.infos.values()):
        yield Diagnosis(
            Ailment.QUEUE_WITHOUT_MEMBER,
            f"{len(orphans)} of {len(queues)} queues are held by no member: {_queues(orphans)}",
            "their messages wait; the findings above explain why, otherwise restart the member to"
            " which they are allocated",
        )
    twice = [queue for queue in queues if len(holders.get(queue, ())) > 1]
    if twice:
        clients = sorted({client_id for queue in twice for client_id in holders[queue]})
        yield Diagnosis(
            Ailment.QUEUE_WITH_TWO_MEMBERS,
            f"{counted(len(twice), 'queue')} with two members: {_queues(twice)}, by"
            f" {some(clients)}",
            "their messages are consumed twice; the findings above explain why, unless the group"
            " is rebalancing",
        )
    topics = {topic for topic in seen.queues if not topic.startswith(RETRY_PREFIX)}
    idle = [
        client_id
        for client_id, info in _answered(seen).items()
        if not any(queue.topic in topics for queue in info.mq_table)
    ]
    most = max((len(seen.queues[topic]) for topic in topics), default=0)
    if idle:
        enough = most >= len(seen.infos)
        yield Diagnosis(
            Ailment.MEMBER_IDLE,
            f"{some(idle)} hold no queue; the group has {counted(len(seen.infos), 'member')}"
            f" for {counted(most, 'queue')}",
            "the findings above explain why, unless the group is rebalancing"
            if enough
            else "members beyond the number of queues have nothing to do:"
            " give the topic more queues",
        )


def _holders(seen: Observed) -> dict[MessageQueue, list[str]]:
    holders: dict[MessageQueue, list[str]] = {}
    for client_id, info in _answered(seen).items():
        for queue, held in info.mq_table.items():
            if not held.dropped:
                holders.setdefault(queue, []).append(client_id)
    return holders


# -- whether they work -----------------------------------------------------------------------------


def _work(seen: Observed) -> Iterable[Diagnosis]:
    for client_id, info in _answered(seen).items():
        orderly = info.properties.get(ORDERLY) == "true"
        held = {queue: state for queue, state in info.mq_table.items() if not state.dropped}
        unpulled = [
            q for q, s in held.items() if _since(seen, s.last_pull_timestamp) > PULL_IDLE_MS
        ]
        if unpulled:
            yield Diagnosis(
                Ailment.QUEUE_NOT_PULLED,
                f"{client_id} holds {_queues(unpulled)} and has not pulled for two minutes",
                "it is paused, or waits for its listener; resume it, or inspect its threads"
                f" (consumerStatus -g {seen.group} -i {client_id} -s)",
            )
        unlocked = [queue for queue, state in held.items() if orderly and not state.locked]
        if unlocked:
            yield Diagnosis(
                Ailment.QUEUE_NOT_LOCKED,
                f"{client_id} consumes in order but has no lock of {_queues(unlocked)}",
                "another member has it, perhaps one that was killed less than a minute ago; see"
                " who else holds the queue",
            )
        hanging = [q for q, s in held.items() if _hangs(seen, s)]
        if hanging:
            yield Diagnosis(
                Ailment.LISTENER_HANGS,
                f"{client_id} has messages of {_queues(hanging)} and finished none for a minute",
                "its listener is blocked; inspect its threads"
                f" (consumerStatus -g {seen.group} -i {client_id} -s)",
            )


def _since(seen: Observed, timestamp: int) -> int:
    """Return how long ago this was in ms; 0 for never, as of a new member."""
    return seen.now - timestamp if timestamp > 0 else 0


def _hangs(seen: Observed, held: ProcessQueueInfo) -> bool:
    waiting = held.cached_msg_count > 0 or held.transaction_msg_count > 0
    return waiting and _since(seen, held.last_consume_timestamp) > CONSUME_IDLE_MS


# -- words -----------------------------------------------------------------------------------------


def _queues(queues: Sequence[MessageQueue]) -> str:
    return some([f"{q.topic}/{q.broker_name}/{q.queue_id}" for q in sorted(queues)])


def some(names: Sequence[str]) -> str:
    """Return the first names, and the number of others."""
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more
