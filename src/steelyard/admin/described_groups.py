"""Streams and share groups for kafkaGroup: what coordinators tell of them by Kafka's own requests.

Reports of Kafka groups (`groups.kafka.report`) have neither the tasks and the topology of a streams
group (KIP-1071) nor anything of a share group (KIP-932): StreamsGroupDescribe, ShareGroupDescribe
and DescribeShareGroupOffsets do.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from steelyard.admin.kafka_commands import TIMEOUT_MS
from steelyard.admin.printing import shown
from steelyard.client.environment import kafka_login
from steelyard.wording import counted

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.types import TopicPartition
    from steelyard.web.console.kafka.facts import (
        KafkaGroupFacts,
        MemberFacts,
        SubtopologyFacts,
        TopologyFacts,
    )


class DescribedGroup(NamedTuple):
    """A group. `ends`: the offsets after the last messages of its partitions."""

    facts: KafkaGroupFacts
    ends: Mapping[TopicPartition, int]


async def described_group(admin: Admin, options: argparse.Namespace, group: str) -> DescribedGroup:
    """Return a group as its coordinator describes it.

    Raises RouteError if there is no such group, and KafkaError or RemotingError if its coordinator
    does not answer.
    """
    from steelyard.client.settings import tls_context
    from steelyard.driver.awaited_links import KafkaRequester
    from steelyard.web.console.kafka.groups import describe_one
    from steelyard.web.console.kafka.servers import KafkaBrokers
    from steelyard.web.console.listeners import kafka_listeners
    from steelyard.wire.kafka.messages.logs import LATEST

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
        servers = KafkaBrokers(bootstrap, requester)
        facts = await describe_one(servers, group)
        places = {*facts.held, *facts.shared}
        ends = await servers.offsets_at(dict.fromkeys(places, LATEST))
        return DescribedGroup(facts, {place: offset for place, (offset, _) in ends.items()})
    finally:
        await requester.close()


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
    for place in sorted({*facts.held, *facts.shared}):
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
        "lag": sum(row.lag or 0 for row in rows),
    }


def share_text(group: DescribedGroup, coordinator: str) -> str:
    """Format state, members and offsets. `coordinator`: the name of its broker."""
    rows = share_rows(group)
    facts = shown(group.facts)
    text = (
        f"group {facts.name}: {facts.state}, {facts.kind}, epoch {facts.generation}, assignment"
        f" epoch {facts.assignment_epoch}, {facts.assignor}, coordinated by {shown(coordinator)}\n"
    )
    text += f"\n{counted(len(facts.members), 'member')}\n"
    for one in facts.members:
        name = member_name(one.member_id, one.client_id, one.host)
        text += f"  {name}: {partition_names(one.assigned)}\n"
    line = "{:<32}  {:<10}  {:<14}  {:<14}  {:<10}  {}\n"
    names = ("#Topic", "#Partition", "#Broker Offset", "#Start Offset", "#Diff", "#Members")
    text += "\n" + line.format(*names)
    for row in map(shown, rows):
        numbers = ["-" if n is None else n for n in (row.end_offset, row.start_offset, row.lag)]
        text += line.format(row.topic, row.partition, *numbers, ", ".join(row.members) or "-")
    return text + f"\nDiff Total: {sum(row.lag or 0 for row in rows)}\n"


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
