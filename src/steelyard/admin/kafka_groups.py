"""Our commands for Kafka groups: kafkaGroups lists them; kafkaGroup explains their rebalances."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from steelyard.admin.answers import CommandOutcome
from steelyard.admin.asking import add_asking_command
from steelyard.admin.clusters import NO_BROKER
from steelyard.admin.described_groups import (
    STREAMS,
    DescribedGroup,
    described_share_group,
    described_streams_group,
    member_name,
    member_tasks,
    partition_names,
    share_document,
    share_text,
    streams_document,
    topology_text,
)
from steelyard.admin.printing import date_milliseconds, in_seconds, shown
from steelyard.errors import RouteError
from steelyard.wording import counted

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.groups.kafka.report import KafkaGroupReport
    from steelyard.types import MessageQueue

REASONS = 5
"""Number of recent rebalances shown."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    add_asking_command(
        commands,
        "kafkaGroups",
        kafka_groups,
        "List the Kafka groups of all brokers: classic, consumer, streams and share groups",
        watched=True,
    )
    one = add_asking_command(
        commands,
        "kafkaGroup",
        kafka_group,
        "Show why a Kafka group rebalances, which members it waits for, and its progress",
        watched=True,
    )
    one.add_argument("-g", "--groupName", required=True, help="group id")


async def kafka_groups(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    if not (await admin.clusters()).broker_addr_table:
        raise RouteError(NO_BROKER)
    row = "{:<50}  {:<9}  {:<20}  {:<8}  {}\n"
    text = row.format("#Group", "#Type", "#State", "#Members", "#Coordinator")
    groups = await admin.kafka_groups()
    for one in groups:
        text += row.format(one.group, one.kind, one.state, one.members, one.coordinator)
    return CommandOutcome(text, {"groups": groups})


async def kafka_group(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    name = options.groupName.strip()
    try:
        report = await admin.kafka_group(name)
    except RouteError as unknown:
        group, coordinator = await described_share_group(admin, options, name, unknown)
        return CommandOutcome(share_text(group, coordinator), share_document(group, coordinator))
    import msgspec

    described = None
    if report.kind == STREAMS:
        described = await described_streams_group(admin, options, name)
    waits = await admin.oldest_waits(report)
    text = report_text(report, time.time_ns() // 1_000_000, waits, described)
    offsets = [
        {
            **msgspec.to_builtins(one),
            "lag": one.lag,
            "lag_seconds": in_seconds(waits.get(one.queue)),
        }
        for one in report.offsets
    ]
    document = {**msgspec.to_builtins(report), "offsets": offsets, "lag": report.lag}
    document["lag_seconds"] = in_seconds(max(waits.values(), default=None))
    if report.kind == STREAMS:
        document |= streams_document(described)
    return CommandOutcome(text, document)


def report_text(
    report: KafkaGroupReport,
    now: int,
    waits: Mapping[MessageQueue, int],
    described: DescribedGroup | None = None,
) -> str:
    """Format state, causes of rebalances, awaited members, members and offsets.

    `waits`: how old the oldest message is that the group has not consumed, in ms. `described`: of a
    streams group, whose tasks and topology are shown, too.
    """
    seconds = [waits.get(one.queue) for one in report.offsets]
    report = shown(report)
    generation = "generation" if report.kind == "classic" else "epoch"
    text = f"group {report.group}: {report.state}, {report.kind}, {generation} {report.generation}"
    facts = shown(described.facts) if described is not None else None
    if facts is not None:
        text += f", assignment epoch {facts.assignment_epoch}"
    text += f", {report.assignor or 'no assignor'}, coordinated by {report.coordinator}\n"
    if report.began_at is not None:
        text += f"rebalancing for {_seconds(now - report.began_at)}\n"
    if report.rebalances:
        text += "\nrecent rebalances and their causes, latest last:\n"
    else:
        text += f"\nno rebalance since {report.coordinator} started or became the coordinator"
        text += "; the ledger has those before\n"
    which = "after generation" if report.kind == "classic" else "epoch"
    for rebalance in report.rebalances[-REASONS:]:
        text += f"  {date_milliseconds(rebalance.at)}  {which} {rebalance.generation}"
        text += f"  {rebalance.cause}\n"
    text += "\nit waits for:\n" if report.awaited else "\nit waits for no member\n"
    for one in report.awaited:
        since = "" if one.since is None else f", for {_seconds(now - one.since)}"
        until = "" if one.until is None else f", will be removed in {_seconds(one.until - now)}"
        text += (
            f"  {member_name(one.member_id, one.client_id, one.host)}: {one.what}{since}{until}\n"
        )
    if report.flapping:
        text += "\nclients that join and go again and again, in the last half an hour:\n"
    for flapper in report.flapping:
        text += (
            f"  {flapper.name}: {flapper.flaps} times, last {date_milliseconds(flapper.last_at)}"
        )
        if flapper.until is not None:
            text += f"; it may return in {_seconds(flapper.until - now)}"
        text += "\n"
    text += f"\n{counted(len(report.members), 'member')}\n"
    tasks = {one.member_id: member_tasks(one) for one in facts.members} if facts else {}
    for member in report.members:
        static = f", static {member.instance_id}" if member.instance_id is not None else ""
        name = member_name(member.member_id, member.client_id, member.host)
        text += f"  {name}{static}: {partition_names(member.partitions)}\n"
        text += tasks.get(member.member_id, "")
    if facts is not None and facts.topology is not None:
        text += topology_text(facts.topology)
    return text + _offsets(report, seconds)


def _offsets(report: KafkaGroupReport, waits: Sequence[int | None]) -> str:
    row = "{:<32}  {:<10}  {:<16}  {:<5}  {:<14}  {:<14}  {:<10}  {:<10}  {}\n"
    names = ("#Topic", "#Partition", "#Broker Name", "#QID", "#Broker Offset", "#Group Offset")
    text = "\n" + row.format(*names, "#Diff", "#Seconds", "#Member")
    for one, wait in zip(report.offsets, waits, strict=True):
        numbers = (one.end_offset, one.offset, one.lag)
        shown = ["-" if number is None else number for number in numbers]
        place = (one.topic, one.partition, one.broker_name, one.queue_id)
        age = "-" if wait is None else f"{wait / 1000:.1f}"
        text += row.format(*place, *shown, age, one.member_id or "-")
    return text + f"\nDiff Total: {report.lag}\n"


def _seconds(milliseconds: int) -> str:
    return f"{max(0, milliseconds) / 1000:.1f} s"
