"""Disturbances of consumer groups, by the requests of ordinary clients.

- Kafka, a lost member: LeaveGroup for a member of a classic group, ConsumerGroupHeartbeat or
  StreamsGroupHeartbeat with epoch -1 for others, as its own client sends them. The member learns of
  it from its next request and joins again.
- Kafka, a forced rebalance: a member joins that wants no partition, and leaves at once.
- RocketMQ, a forced rebalance: a member joins at every broker and leaves at once; brokers notify
  the others of both. RocketMQ brokers unregister a member only on its own connection, so that no
  other client can make them lose one.
"""

from __future__ import annotations

import os
import uuid

from steelyard.checks import unknown
from steelyard.client.administration.asking import masters_of
from steelyard.embedded.administrator import OperatorAccess, administrator
from steelyard.embedded.kafka_connection import KafkaConnection
from steelyard.errors import ArgumentError, BrokerError, RouteError
from steelyard.groups.kafka.report import KafkaGroupMember, KafkaGroupReport
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from steelyard.wire.kafka.messages.consumer_groups import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from steelyard.wire.kafka.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    write_subscription,
)
from steelyard.wire.kafka.messages.groups import (
    JOIN_GROUP,
    LEAVE_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from steelyard.wire.kafka.messages.streams_groups import (
    STREAMS_GROUP_HEARTBEAT,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import ConsumerData, HeartbeatData
from steelyard.wire.remoting.codes import RequestCode

JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2
"""Epochs of the consumer protocol with these meanings (KIP-848); static members use the last."""

REBALANCE_MS = 60_000
"""Time-outs of the member that joins and leaves."""

REASON = "a test wants a rebalance"
LOST = "a test wants the group to lose this member"


def lose_member(access: OperatorAccess, bootstrap: str, group: str, member: str | None) -> str:
    """Make the coordinator of a Kafka group forget a member; return its id.

    `member`: its member id, or a client or instance id that only one has; None: the first by id.
    Raises ArgumentError for another, RouteError if there is no such Kafka group.
    """
    report = _kafka_group(access, bootstrap, group)
    if report is None:
        raise RouteError(f"no broker coordinates a Kafka group {group} with members")
    lost = _member(report, member)
    with _coordinator(access, bootstrap, group) as link:
        if report.kind == "consumer":
            epoch = LEAVES if lost.instance_id is None else LEAVES_FOR_A_WHILE
            _heartbeat(link, group, lost.member_id, epoch, instance_id=lost.instance_id)
        elif report.kind == "streams":
            _leave_streams(link, group, lost.member_id)
        else:
            _leave(link, group, MemberIdentity(lost.member_id, lost.instance_id, LOST))
    return lost.member_id


def _member(report: KafkaGroupReport, name: str | None) -> KafkaGroupMember:
    members = sorted(report.members, key=lambda each: each.member_id)
    if name is None:
        return members[0]
    found = [each for each in members if name in (each.member_id, each.client_id, each.instance_id)]
    if not found:
        raise unknown("member", name, [each.member_id for each in members])
    if len(found) > 1:
        ids = ", ".join(each.member_id for each in found)
        raise ArgumentError(f"member is {name!r}, which {len(found)} have; give one of: {ids}")
    return found[0]


def force_rebalance(access: OperatorAccess, bootstrap: str, group: str) -> None:
    """Make a group rebalance. Raises RouteError if it has no members.

    Raises ArgumentError for a Kafka Streams group, which only members with its topology can join.
    """
    report = _kafka_group(access, bootstrap, group)
    if report is None:
        _visit_brokers(access, group)
    elif report.kind == "streams":
        raise ArgumentError(f"{group} is a Kafka Streams group; make it lose a member instead")
    elif report.kind == "consumer":
        member_id = str(uuid.uuid4())
        with _coordinator(access, bootstrap, group) as link:
            _heartbeat(link, group, member_id, JOINS)
            _heartbeat(link, group, member_id, LEAVES)
    else:
        _visit_coordinator(access, bootstrap, report)


def _kafka_group(access: OperatorAccess, bootstrap: str, group: str) -> KafkaGroupReport | None:
    """Return the report of a Kafka group with members; None without one."""
    if not bootstrap:
        return None
    with administrator(access) as admin:
        try:
            report = admin.kafka_group(group)
        except RouteError:
            return None
    return report if report.members else None


def _coordinator(access: OperatorAccess, bootstrap: str, group: str) -> KafkaConnection:
    with KafkaConnection(bootstrap.partition(",")[0], access) as link:
        asked = FindCoordinatorRequest(coordinator_keys=(group,))
        (found,) = link.call(FIND_COORDINATOR, asked, FindCoordinatorResponse).coordinators
        link.check(found.error_code, f"FindCoordinator for group {group}")
    return KafkaConnection(f"{found.host}:{found.port}", access)


def _heartbeat(
    link: KafkaConnection, group: str, member_id: str, epoch: int, *, instance_id: str | None = None
) -> None:
    is_first = epoch == JOINS
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=instance_id,
        rebalance_timeout_ms=REBALANCE_MS if is_first else -1,
        subscribed_topic_names=() if is_first else None,
        topic_partitions=() if is_first else None,
    )
    reply = link.call(CONSUMER_GROUP_HEARTBEAT, request, ConsumerGroupHeartbeatResponse)
    link.check(reply.error_code, f"ConsumerGroupHeartbeat of group {group}")


def _leave_streams(link: KafkaConnection, group: str, member_id: str) -> None:
    request = StreamsGroupHeartbeatRequest(group, member_id, LEAVES)
    reply = link.call(STREAMS_GROUP_HEARTBEAT, request, StreamsGroupHeartbeatResponse)
    link.check(reply.error_code, f"StreamsGroupHeartbeat of group {group}")


def _leave(link: KafkaConnection, group: str, member: MemberIdentity) -> None:
    request = LeaveGroupRequest(group_id=group, members=(member,))
    reply = link.call(LEAVE_GROUP, request, LeaveGroupResponse)
    for code in (reply.error_code, *(each.error_code for each in reply.members)):
        link.check(code, f"LeaveGroup of group {group}")


def _visit_coordinator(access: OperatorAccess, bootstrap: str, report: KafkaGroupReport) -> None:
    """Join a classic group, for which all others must join again, and leave while they do."""
    group = report.group
    protocol = JoinGroupRequestProtocol(
        report.assignor, write_subscription(ConsumerProtocolSubscription())
    )

    def join(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=REBALANCE_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=(protocol,),
            reason=REASON,
        )

    with _coordinator(access, bootstrap, group) as link:
        reply = link.call(JOIN_GROUP, join(""), JoinGroupResponse)
        if reply.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            link.check(reply.error_code, f"JoinGroup of group {group}")
        # Its response waits for the others, but the next request does not wait for the response.
        link.send(JOIN_GROUP, join(reply.member_id))
        _leave(link, group, MemberIdentity(reply.member_id, None, REASON))


def _visit_brokers(access: OperatorAccess, group: str) -> None:
    """Join a RocketMQ group at all its brokers and leave again."""
    client = f"rebalance@{os.getpid()}"
    data = HeartbeatData(client_id=client, consumer_data_set=(ConsumerData(group),))
    leave = headers.UnregisterClientRequestHeader(client_id=client, consumer_group=group)
    with administrator(access) as admin:
        try:
            admin.members(group)
        except BrokerError:
            raise RouteError(f"group {group} has no members") from None
        addresses = list(masters_of(admin.clusters()).values())
        for address in addresses:
            admin.ask(address, RequestCode.HEART_BEAT, body=fastjson.write(data))
        for address in addresses:
            admin.ask(address, RequestCode.UNREGISTER_CLIENT, leave)
