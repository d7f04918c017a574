"""Streams and share groups: what coordinators tell of them by Kafka's own requests.

Reports of Kafka groups (`groups.kafka.report`) have neither the tasks and the topology of a streams
group (KIP-1071) nor anything of a share group (KIP-932): StreamsGroupDescribe, ShareGroupDescribe
and DescribeShareGroupOffsets do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from steelyard.admin.kafka_commands import TIMEOUT_MS
from steelyard.admin.printing import shown
from steelyard.client.environment import kafka_login
from steelyard.errors import RouteError, SteelyardError
from steelyard.wording import counted

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.groups.doctor import Diagnosis
    from steelyard.groups.kafka.report import KafkaGroup
    from steelyard.types import TopicPartition
    from steelyard.web.console.kafka.facts import (
        KafkaGroupFacts,
        MemberFacts,
        ShareProgress,
        SubtopologyFacts,
        TopologyFacts,
    )
    from steelyard.web.console.kafka.servers import KafkaBrokers

STREAMS, SHARE = "streams", "share"
"""Kinds of groups that Kafka's own requests tell more of."""


class DescribedGroup(NamedTuple):
    """A group.

    `ends`: the offsets after the last messages of its partitions. `topics`: those that exist.
    """

    facts: KafkaGroupFacts
    ends: Mapping[TopicPartition, int]
    topics: Collection[str]


@asynccontextmanager
async def _listeners(admin: Admin, options: argparse.Namespace) -> AsyncIterator[KafkaBrokers]:
    """Connect to the Kafka listeners that the nameservers know."""
    from steelyard.client.settings import tls_context
    from steelyard.driver.awaited_links import KafkaRequester
    from steelyard.web.console.kafka.servers import KafkaBrokers
    from steelyard.web.console.listeners import kafka_listeners

    async def bootstrap() -> list[str]:
        return [entry.address for entry in (await kafka_listeners(admin)).values()]

    requester = KafkaRequester(
        "steelyard-admin",
        timeout_ms=TIMEOUT_MS,
        tls=tls_context(options.tls),
        address_translation=admin.config.address_translation,
        login=kafka_login(),
    )
    try:
        yield KafkaBrokers(bootstrap, requester)
    finally:
        await requester.close()


async def described_group(admin: Admin, options: argparse.Namespace, group: str) -> DescribedGroup:
    """Return a group as its coordinator describes it.

    Raises RouteError if there is no such group, and KafkaError or RemotingError if its coordinator
    does not answer.
    """
    from steelyard.web.console.kafka.groups import describe_one
    from steelyard.wire.kafka.messages.logs import LATEST

    async with _listeners(admin, options) as servers:
        facts = await describe_one(servers, group)
        ends = await servers.offsets_at(dict.fromkeys(facts.places, LATEST))
        return DescribedGroup(
            facts,
            {place: offset for place, (offset, _) in ends.items()},
            (await servers.topics()).keys(),
        )


async def described_share_group(
    admin: Admin, options: argparse.Namespace, name: str, unknown: RouteError
) -> tuple[DescribedGroup, str]:
    """Return a share group, of which there is no report, and the name of its coordinator.

    Raises `unknown` if it is none.
    """
    listed = {one.group: one for one in await admin.kafka_groups()}
    if name not in listed or listed[name].kind != SHARE:
        raise unknown
    return await described_group(admin, options, name), listed[name].coordinator


async def described_streams_group(
    admin: Admin, options: argparse.Namespace, name: str
) -> DescribedGroup | None:
    """Return a streams group; None if its coordinator's Kafka listener does not answer."""
    try:
        found = await described_group(admin, options, name)
    except SteelyardError:
        return None
    return found if found.facts.kind == STREAMS else None


async def findings(admin: Admin, options: argparse.Namespace, group: str) -> list[Diagnosis]:
    """Return what keeps a group from working, as `Admin.diagnose`, of share groups as well.

    A streams group is diagnosed with its description: its report has no standbys.
    """
    described = await _described_for_the_doctor(admin, options, group)
    if described is None:
        return await admin.diagnose(group)
    from steelyard.web.console.kafka.doctor import diagnose

    return diagnose(described.facts, described.topics, described.ends, time.time_ns() // 1_000_000)


async def _described_for_the_doctor(
    admin: Admin, options: argparse.Namespace, name: str
) -> DescribedGroup | None:
    """Return a streams or a share group; None if it is neither, or a RocketMQ group as well."""
    from steelyard.web.console.kafka.facts import of_report
    from steelyard.wire.remoting.names import retry_topic

    with suppress(RouteError):
        await admin.route(retry_topic(name))
        return None
    kinds = {one.group: one.kind for one in await admin.kafka_groups()}
    if kinds.get(name) == SHARE:
        return await described_group(admin, options, name)
    if kinds.get(name) == STREAMS:
        report = await admin.kafka_group(name)
        described = await described_streams_group(admin, options, name)
        if described is not None:
            return described._replace(facts=of_report(report, described.facts))
    return None


# -- share groups ----------------------------------------------------------------------------------


class ShareRow(NamedTuple):
    """A share partition.

    `start_offset`: everything before it is done; None if the group has not begun. `lag`: records
    yet to be delivered or acknowledged, None if the broker does not tell. `members`: those that
    read it.
    """

    topic: str
    partition: int
    start_offset: int | None
    end_offset: int | None
    lag: int | None
    members: tuple[str, ...]


def share_rows(group: DescribedGroup) -> list[ShareRow]:
    """Return the partitions that a share group reads or has begun, sorted."""
    facts = group.facts
    rows = []
    for place in sorted(facts.places):
        progress = facts.shared.get(place)
        rows.append(
            ShareRow(
                *place,
                None if progress is None else progress.start,
                group.ends.get(place),
                None if progress is None else progress.lag,
                tuple(one.member_id for one in facts.members if place in one.assigned),
            )
        )
    return rows


def share_document(group: DescribedGroup, coordinator: str) -> dict[str, object]:
    """Return a share group with the names that reports of other groups have.

    `coordinator`: the name of its broker.
    """
    facts = group.facts
    rows = share_rows(group)
    return {
        "group": facts.name,
        "kind": facts.kind,
        "state": facts.state,
        "coordinator": coordinator,
        "generation": facts.generation,
        "assignment_epoch": facts.assignment_epoch,
        "assignor": facts.assignor,
        "members": [
            {
                "member_id": one.member_id,
                "client_id": one.client_id,
                "host": one.host,
                "instance_id": one.instance_id,
                "partitions": [list(place) for place in one.assigned],
            }
            for one in facts.members
        ],
        "offsets": rows,
        "lag": share_lag(rows),
    }


def share_text(group: DescribedGroup, coordinator: str) -> str:
    """Format state, members and offsets. `coordinator`: the name of its broker."""
    facts = shown(group.facts)
    text = (
        f"group {facts.name}: {facts.state}, {facts.kind}, epoch {facts.generation}, assignment"
        f" epoch {facts.assignment_epoch}, {facts.assignor}, coordinated by {shown(coordinator)}\n"
    )
    text += f"\n{counted(len(facts.members), 'member')}\n"
    for one in facts.members:
        name = member_name(one.member_id, one.client_id, one.host)
        text += f"  {name}: {partition_names(one.assigned)}\n"
    return text + "\n" + share_table(share_rows(group))


def share_table(rows: Sequence[ShareRow]) -> str:
    """Format the offsets of a share group, and its lag."""
    line = "{:<32}  {:<10}  {:<14}  {:<14}  {:<10}  {}\n"
    names = ("#Topic", "#Partition", "#Broker Offset", "#Start Offset", "#Diff", "#Members")
    text = line.format(*names)
    for row in map(shown, rows):
        numbers = ["-" if n is None else n for n in (row.end_offset, row.start_offset, row.lag)]
        text += line.format(row.topic, row.partition, *numbers, ", ".join(row.members) or "-")
    return text + f"\nDiff Total: {share_lag(rows)}\n"


def share_lag(partitions: Iterable[ShareRow | ShareProgress]) -> int:
    """Return how many records are yet to be delivered or acknowledged, as far as it is known."""
    return sum(one.lag or 0 for one in partitions)


async def share_lags(
    admin: Admin, options: argparse.Namespace, groups: Iterable[KafkaGroup]
) -> dict[str, int]:
    """Return the lag of share groups by name, without those whose coordinators do not answer.

    `groups`: of all kinds.
    """
    by_coordinator: dict[str, list[str]] = {}
    for one in groups:
        if one.kind == SHARE:
            by_coordinator.setdefault(one.coordinator, []).append(one.group)
    if not by_coordinator:
        return {}
    from steelyard.web.console.kafka.groups import AT_ONCE, shares_of
    from steelyard.web.console.listeners import kafka_listeners

    lags: dict[str, int] = {}
    listeners = await kafka_listeners(admin)
    async with _listeners(admin, options) as servers:
        for coordinator in sorted(by_coordinator.keys() & listeners.keys()):
            address, names = listeners[coordinator].address, by_coordinator[coordinator]
            for at in range(0, len(names), AT_ONCE):
                with suppress(SteelyardError):
                    found = await shares_of(servers, address, names[at : at + AT_ONCE])
                    for name, progress in found.items():
                        lags[name] = share_lag(progress.values())
    return lags


# -- streams groups --------------------------------------------------------------------------------


def streams_document(group: DescribedGroup | None) -> dict[str, object]:
    """Return what a report lacks of a streams group; null while nobody described it.

    `tasks`: of each member, by its id.
    """
    if group is None:
        return {"assignment_epoch": None, "topology": None, "tasks": None}
    from steelyard.web.console.kafka.streams import tasks_view, topology_view

    facts = group.facts
    return {
        "assignment_epoch": facts.assignment_epoch,
        "topology": None if facts.topology is None else topology_view(facts.topology),
        "tasks": {
            one.member_id: tasks_view(one.tasks) for one in facts.members if one.tasks is not None
        },
    }


def member_tasks(member: MemberFacts) -> str:
    """Format the tasks of a member on a line of their own."""
    from steelyard.web.console.kafka.streams import task_name

    if member.tasks is None:
        return ""
    kinds = {
        "active": member.tasks.active,
        "standby": member.tasks.standby,
        "warm-up": member.tasks.warmup,
    }
    told = [f"{kind} {', '.join(map(task_name, tasks))}" for kind, tasks in kinds.items() if tasks]
    tasks = "; ".join(told) or "none"
    return f"    process {member.tasks.process_id}, tasks: {tasks}\n"


def topology_text(topology: TopologyFacts) -> str:
    """Format the subtopologies and their topics."""
    text = f"\ntopology, epoch {topology.epoch}\n"
    for one in topology.subtopologies:
        text += f"  subtopology {one.name}: {'; '.join(_topics(one))}\n"
    return text


def _topics(one: SubtopologyFacts) -> Iterator[str]:
    for what, topics in (
        ("reads", one.sources),
        ("reads of other subtopologies", one.repartition_sources),
        ("writes for other subtopologies", one.repartition_sinks),
        ("keeps its state in", one.changelogs),
    ):
        if topics:
            yield f"{what} {', '.join(topics)}"


# -- what all groups have --------------------------------------------------------------------------


def member_name(member_id: str, client_id: str, host: str) -> str:
    """Return a name; of those that were only assigned an id nothing else is known."""
    return f"{member_id} ({client_id}{host})" if client_id or host else member_id


def partition_names(partitions: Iterable[tuple[str, int]]) -> str:
    """Return the partitions of a member in words."""
    return ", ".join(f"{topic}-{number}" for topic, number in partitions) or "no partition"
