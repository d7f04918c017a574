"""Reports of streams groups for operators; see `groups.kafka.report`."""

from __future__ import annotations

from collections.abc import Iterator

from steelyard.groups.kafka.report import (
    KafkaAwaited,
    KafkaGroupMember,
    KafkaGroupReport,
    rebalances_of,
)
from steelyard.groups.kafka.streams.group import ASSIGNOR, StreamsGroup
from steelyard.groups.kafka.streams.member import StreamsGroupMember, StreamsMemberState


def report_streams(group: StreamsGroup, coordinator: str) -> KafkaGroupReport:
    """Return the report of a group, without offsets.

    The partitions of a member are those that its active tasks read.
    """
    return KafkaGroupReport(
        group.group_id,
        group.kind,
        group.state,
        coordinator,
        group.epoch,
        ASSIGNOR,
        "",
        tuple(
            KafkaGroupMember(
                one.member_id,
                one.client_id,
                one.host,
                None,
                tuple(group.partitions_of(one.active)),
            )
            for one in group.each()
        ),
        rebalances_of(group.bumps),
        group.began_at,
        tuple(_awaited(group)),
    )


def _awaited(group: StreamsGroup) -> Iterator[KafkaAwaited]:
    """Yield members with tasks to release, then those that lag behind the target.

    The latter have not sent a heartbeat since the target last changed.
    """
    for one in group.each():
        if one.revoking:
            tasks = sorted((*one.revoking.active, *one.revoking.standby))
            names = ", ".join(f"{name}_{partition}" for name, partition in tasks)
            yield _line(group, one, f"to give up tasks {names}")
    for one in group.each():
        if one.state is StreamsMemberState.STABLE and one.epoch != group.assignment_epoch:
            yield _line(group, one, "Heartbeat")


def _line(group: StreamsGroup, member: StreamsGroupMember, what: str) -> KafkaAwaited:
    until = group.revoke_deadline(member)
    return KafkaAwaited(
        member.member_id, member.client_id, member.host, what, group.began_at, until
    )
