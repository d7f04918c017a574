"""What requests of groups and about groups need, and what their answers hide.

Source: core/kafka/server/KafkaApis.scala.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from steelyard.acl.bindings import AclOperation
from steelyard.groups.kafka.streams.topology import topics_of
from steelyard.nodes.broker.kafka.access.guard import AccessVerdict, Check, Need
from steelyard.nodes.broker.kafka.access.verdicts import (
    GROUP,
    GROUP_DENIED,
    TEXT,
    TOPIC,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    TRANSACTIONAL_ID,
    before_refusals,
    failed,
    filtered,
    may_topic,
    refuse_all,
    refused,
    serve_some,
)
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages import (
    cluster,
    consumer_groups,
    offsets,
    share_groups,
    streams_groups,
)
from steelyard.wire.kafka.schema import NO_ID, ApiMessage

_CODES = {TOPIC: TOPIC_DENIED, GROUP: GROUP_DENIED, TRANSACTIONAL_ID: TRANSACTION_DENIED}


def _offsets(item: Any, code: ErrorCode) -> offsets.OffsetResponseTopic:
    return offsets.OffsetResponseTopic(
        item.name,
        getattr(item, "topic_id", NO_ID),
        [offsets.OffsetResponsePartition(each.partition_index, code) for each in item.partitions],
    )


def offset_commit(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, offsets.OffsetCommitRequest | offsets.TxnOffsetCommitRequest)
    if isinstance(message, offsets.TxnOffsetCommitRequest) and not check.needs(
        AclOperation.WRITE, TRANSACTIONAL_ID, message.transactional_id
    ):
        return refuse_all(
            check, "topics", "topics", lambda item: _offsets(item, TRANSACTION_DENIED)
        )
    if not check.needs(AclOperation.READ, GROUP, message.group_id):
        return refuse_all(check, "topics", "topics", lambda item: _offsets(item, GROUP_DENIED))
    return serve_some(
        check,
        "topics",
        lambda item: may_topic(check, AclOperation.READ, item),
        "topics",
        lambda item: _offsets(item, TOPIC_DENIED),
    )


def offset_delete(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, offsets.OffsetDeleteRequest)
    if not check.needs(AclOperation.DELETE, GROUP, message.group_id):
        return failed(check, GROUP_DENIED)
    return serve_some(
        check,
        "topics",
        lambda item: check.needs(AclOperation.READ, TOPIC, item.name),
        "topics",
        lambda item: _offsets(item, TOPIC_DENIED),
    )


def offset_fetch(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, offsets.OffsetFetchRequest)
    if check.version >= 8:
        return _offset_fetch_of_groups(check, message)
    if not check.needs(AclOperation.DESCRIBE, GROUP, message.group_id):
        if check.version >= 2:
            return failed(check, GROUP_DENIED)
        return refuse_all(check, "topics", "topics", lambda item: _unfetched(item, GROUP_DENIED))
    if message.topics is None:
        return AccessVerdict(message, lambda answer: _seen(check, answer))
    return serve_some(
        check,
        "topics",
        lambda item: check.needs(AclOperation.DESCRIBE, TOPIC, item.name),
        "topics",
        lambda item: _unfetched(item, TOPIC_DENIED),
    )


def _unfetched(
    item: offsets.OffsetFetchRequestTopic, code: ErrorCode
) -> offsets.OffsetFetchResponseTopic:
    return offsets.OffsetFetchResponseTopic(
        item.name,
        item.topic_id,
        [
            offsets.OffsetFetchResponsePartition(each, -1, error_code=code)
            for each in item.partition_indexes
        ],
    )


def _seen(check: Check, answer: Any) -> Any:
    """Leave out topics that may not be described."""
    found = [
        each
        for each in answer.topics
        if check.may(AclOperation.DESCRIBE, TOPIC, check.topic_name(each.name, each.topic_id) or "")
    ]
    return replace(answer, topics=found)


def _offset_fetch_of_groups(check: Check, message: offsets.OffsetFetchRequest) -> AccessVerdict:
    kept: list[offsets.OffsetFetchRequestGroup] = []
    refused: list[offsets.OffsetFetchResponseGroup] = []
    hidden: dict[str, list[offsets.OffsetFetchResponseTopic]] = {}
    whole: set[str] = set()
    for group in message.groups:
        if not check.needs(AclOperation.DESCRIBE, GROUP, group.group_id):
            answer = offsets.OffsetFetchResponseGroup(group.group_id, (), GROUP_DENIED)
            refused.append(answer)
        elif group.topics is None:
            whole.add(group.group_id)
            kept.append(group)
        else:
            allowed: list[offsets.OffsetFetchRequestTopic] = []
            denied: list[offsets.OffsetFetchRequestTopic] = []
            for item in group.topics:
                (allowed if may_topic(check, AclOperation.DESCRIBE, item) else denied).append(item)
            if denied:
                hidden[group.group_id] = [_unfetched(item, TOPIC_DENIED) for item in denied]
                group = replace(group, topics=allowed)
            kept.append(group)
    if not (refused or hidden or whole):
        return AccessVerdict(message)

    def complete(answer: ApiMessage) -> ApiMessage:
        assert isinstance(answer, offsets.OffsetFetchResponse)
        found = []
        for group in answer.groups:
            if group.group_id in whole:
                group = _seen(check, group)
            if group.group_id in hidden and not group.error_code:
                group = replace(group, topics=[*group.topics, *hidden[group.group_id]])
            found.append(group)
        return replace(answer, groups=found + refused)

    return AccessVerdict(replace(message, groups=kept) if kept else None, complete)


def find_coordinator(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, cluster.FindCoordinatorRequest)
    kind = TRANSACTIONAL_ID if message.key_type == 1 else GROUP
    code = _CODES[kind]
    if check.version >= 4:
        return serve_some(
            check,
            "coordinator_keys",
            lambda key: check.needs(AclOperation.DESCRIBE, kind, key),
            "coordinators",
            lambda key: cluster.Coordinator(key, -1, "", -1, code, TEXT),
        )
    if check.needs(AclOperation.DESCRIBE, kind, message.key):
        return AccessVerdict(message)
    return refused(cluster.FindCoordinatorResponse(0, code, TEXT, node_id=-1, host="", port=-1))


def describe_groups(array: str, refuse: Callable[[str], Any]) -> Need:
    """Each group needs DESCRIBE; the answer says what else may be done with it."""

    def need(check: Check) -> AccessVerdict:
        verdict = serve_some(
            check,
            array,
            lambda name: check.needs(AclOperation.DESCRIBE, GROUP, name),
            "groups",
            refuse,
        )

        def complete(answer: Any) -> Any:
            found = [_described(check, group) for group in answer.groups]
            return replace(answer, groups=found)

        return before_refusals(verdict, complete)

    return need


def _described(check: Check, group: Any) -> Any:
    if group.error_code:
        return group
    if check.message.include_authorized_operations:  # type: ignore[attr-defined]
        group = replace(group, authorized_operations=check.operations(GROUP, group.group_id))
    if isinstance(group, streams_groups.DescribedGroup):
        return _described_streams(check, group)
    if not all(check.needs(AclOperation.DESCRIBE, TOPIC, name) for name in _topics_in(group)):
        text = "The group has described topic(s) that the client is not authorized to describe."
        return replace(group, error_code=TOPIC_DENIED, error_message=text, members=())
    return group


def _topics_in(group: Any) -> list[str]:
    """Return the topics that the description of a group tells of, but for classic groups."""
    if isinstance(group, consumer_groups.DescribedGroup):
        named = {name for member in group.members for name in member.subscribed_topic_names} | {
            part.topic_name
            for member in group.members
            for assigned in (member.assignment, member.target_assignment)
            for part in assigned.topic_partitions
        }
    elif isinstance(group, share_groups.DescribedShareGroup):
        named = {
            part.topic_name
            for member in group.members
            for part in member.assignment.topic_partitions
        }
    else:
        named = set()
    return sorted(named)


def _described_streams(
    check: Check, group: streams_groups.DescribedGroup
) -> streams_groups.DescribedGroup:
    subtopologies = () if group.topology is None else group.topology.subtopologies or ()
    named = {topic for each in subtopologies for topic in topics_of(each)}
    if all(check.needs(AclOperation.DESCRIBE, TOPIC, name) for name in sorted(named)):
        return group
    text = "The described group uses topics that the client is not authorized to describe."
    return streams_groups.DescribedGroup(TOPIC_DENIED, text, group.group_id)


def list_groups(check: Check) -> AccessVerdict:
    if check.may_cluster(AclOperation.DESCRIBE):
        return AccessVerdict(check.message)
    return _LISTED_GROUPS(check)


_LISTED_GROUPS = filtered(
    "groups", lambda check, each: check.may(AclOperation.DESCRIBE, GROUP, each.group_id)
)


def heartbeat(check: Check) -> AccessVerdict:
    """The group needs READ, and each topic subscribed to DESCRIBE."""
    message = check.message
    assert isinstance(
        message,
        consumer_groups.ConsumerGroupHeartbeatRequest | share_groups.ShareGroupHeartbeatRequest,
    )
    if not check.needs(AclOperation.READ, GROUP, message.group_id):
        return failed(check, GROUP_DENIED)
    names = message.subscribed_topic_names or ()
    if not all(check.needs(AclOperation.DESCRIBE, TOPIC, name) for name in names):
        return failed(check, TOPIC_DENIED)
    return AccessVerdict(message)


def streams_heartbeat(check: Check) -> AccessVerdict:
    message = check.message
    assert isinstance(message, streams_groups.StreamsGroupHeartbeatRequest)
    if not check.needs(AclOperation.READ, GROUP, message.group_id):
        return failed(check, GROUP_DENIED)
    subtopologies = () if message.topology is None else message.topology.subtopologies
    named = {topic for each in subtopologies for topic in topics_of(each)}
    if not all(check.needs(AclOperation.DESCRIBE, TOPIC, name) for name in sorted(named)):
        return failed(check, TOPIC_DENIED)
    return AccessVerdict(message)
