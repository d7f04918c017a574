"""From what brokers and members of a RocketMQ group answer to what the console shows. Pure.

Nobody coordinates a RocketMQ group: each member computes its own share. So the owners are those
that say that they hold a queue. What they should hold is computed here as they do it, where their
strategy needs nothing else; as long as the two differ, the group rebalances.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from steelyard.allocate.plan import Claim
from steelyard.allocate.registry import STRATEGIES
from steelyard.errors import SteelyardError
from steelyard.groups.doctor import ORDERLY, STRATEGY, strategy_name
from steelyard.types import MessageQueue
from steelyard.web.console.answers import GroupPicture, GroupQueue, MemberView, RebalanceNow
from steelyard.web.console.words import UNKNOWN
from steelyard.wire.remoting.bodies import Connection, ConsumerRunningInfo
from steelyard.wire.remoting.flags import java_string_key
from steelyard.wire.remoting.names import RETRY_PREFIX
from steelyard.wording import counted

PREDICTABLE = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")
"""Strategies whose plans follow from members and queues alone."""

BROADCASTING = "BROADCASTING"
"""Message model of groups in which every member reads every queue."""

STABLE, EMPTY, REBALANCING, DEGRADED = "Stable", "Empty", "Rebalancing", "Degraded"
"""States of a group. DEGRADED: a member does not answer; its queues are probably not read."""


SILENT_MS_MIN = 3_000
"""A member that answers later than this is slow; one that takes longer probably hangs."""


class QueueReach(msgspec.Struct, frozen=True):
    """How far a group came in a queue; None for what is unknown."""

    committed: int | None
    end: int | None
    lag: int | None
    wait_ms: int | None


class RemotingGroupFacts(msgspec.Struct, frozen=True):
    """What is known of a group.

    `members`: by client id; `infos`: what each says of itself, None for no answer. `queues`: the
    readable queues of each topic that it subscribes to. `silent_ms`: for how long members have not
    answered; those that cannot say anything of themselves are not among them.
    """

    name: str
    consume_type: str
    message_model: str
    members: Mapping[str, Connection]
    infos: Mapping[str, ConsumerRunningInfo | None]
    queues: Mapping[str, Sequence[MessageQueue]]
    progress: Mapping[MessageQueue, QueueReach]
    silent_ms: Mapping[str, int] = {}

    @property
    def is_broadcasting(self) -> bool:
        """Return whether every member reads every queue."""
        return self.message_model == BROADCASTING

    @property
    def protocol(self) -> str | None:
        """Return how members get messages, such as `push orderly`; None without members."""
        if not self.members:
            return None
        return protocol_of(self.consume_type, self.message_model, self.infos.values())


def protocol_of(
    consume_type: str, message_model: str, infos: Iterable[ConsumerRunningInfo | None]
) -> str:
    """Return how members get messages, by what brokers see of them and some say of themselves."""
    if consume_type == "CONSUME_ACTIVELY":
        return "pull"
    answered = [info for info in infos if info is not None]
    is_orderly = any(info.properties.get(ORDERLY) == "true" for info in answered)
    words = "push orderly" if is_orderly else "push concurrent"
    return f"{words}, broadcasting" if message_model == BROADCASTING else words


def key_of(queue: MessageQueue) -> str:
    """Return the key of a queue."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def picture(facts: RemotingGroupFacts, now: int) -> GroupPicture:
    """Return the picture of a group."""
    owners = _owners(facts)
    targets = _targets(facts)
    rows = _shown(facts, owners)
    moving = _moving(facts, rows, owners, targets)
    rebalance = _rebalance(facts, rows, moving, owners, now)
    warning = None if rebalance else _warning(facts, rows, owners)
    return GroupPicture(
        dialect="rocketmq",
        kind="rocketmq",
        name=facts.name,
        state=_group_state(facts, rebalance, warning),
        protocol=facts.protocol,
        generation=None,
        assignment_epoch=None,
        topology=None,
        members=_members(facts, owners, rebalance),
        queues=[
            GroupQueue(
                key=key_of(queue),
                topic=queue.topic,
                broker=queue.broker_name,
                queue=queue.queue_id,
                owner=owners.get(queue),
                next_owner=moving.get(queue),
                committed=progress.committed,
                end=progress.end,
                lag=progress.lag,
                wait_ms=progress.wait_ms,
                readers=[],
                share_start=None,
                task=None,
                standbys=[],
                warmups=[],
            )
            for queue in rows
            for progress in (facts.progress.get(queue, _NO_PROGRESS),)
        ],
        rebalance=rebalance,
        warning=warning,
    )


def _group_state(
    facts: RemotingGroupFacts, rebalance: RebalanceNow | None, warning: str | None
) -> str:
    if rebalance is not None:
        return REBALANCING
    if warning is not None:
        return DEGRADED
    return STABLE if facts.members else EMPTY


def _warning(
    facts: RemotingGroupFacts, rows: Sequence[MessageQueue], owners: Mapping[MessageQueue, str]
) -> str | None:
    """Return a sentence about members that do not answer; None if all do."""
    silent = sorted(each for each, ms in facts.silent_ms.items() if ms >= SILENT_MS_MIN)
    if not silent:
        return None
    others = len(silent) - 1
    who = f"{silent[0]} and {others} more have" if others else f"{silent[0]} has"
    seconds = max(facts.silent_ms[each] for each in silent) // 1_000
    text = f"{who} not answered for {seconds} s"
    unread = [queue for queue in rows if queue not in owners]
    if not unread:
        return f"{text}."
    are = "are" if len(unread) > 1 else "is"
    return f"{text}; {len(unread)} of {counted(len(rows), 'queue')} {are} probably not read."


_NO_PROGRESS = QueueReach(None, None, None, None)


def _owners(facts: RemotingGroupFacts) -> dict[MessageQueue, str]:
    """Return who says that it holds each queue; the first of several by client id."""
    owners: dict[MessageQueue, str] = {}
    for client_id in sorted(facts.infos):
        info = facts.infos[client_id]
        for queue, held in () if info is None else info.mq_table.items():
            if not held.dropped:
                owners.setdefault(queue, client_id)
    return owners


def _shown(facts: RemotingGroupFacts, owners: Mapping[MessageQueue, str]) -> list[MessageQueue]:
    """Return the queues to show: of retry topics only those with messages."""
    found = {queue for queues in facts.queues.values() for queue in queues}
    found |= facts.progress.keys() | owners.keys()
    return sorted(
        queue
        for queue in found
        if not queue.topic.startswith(RETRY_PREFIX) or facts.progress.get(queue, _NO_PROGRESS).lag
    )


def _targets(facts: RemotingGroupFacts) -> dict[MessageQueue, str]:
    """Return who should hold each queue; empty if that cannot be known."""
    infos = facts.infos.values()
    if facts.is_broadcasting or not facts.infos or facts.consume_type == "CONSUME_ACTIVELY":
        return {}
    names = {strategy_name(info.properties.get(STRATEGY, "")) for info in infos if info is not None}
    if len(names) != 1 or not names <= {*PREDICTABLE}:
        return {}
    strategy = STRATEGIES[names.pop()]
    claims: list[Claim[MessageQueue]] = [
        Claim(member) for member in sorted(facts.members, key=java_string_key)
    ]
    targets: dict[MessageQueue, str] = {}
    for queues in facts.queues.values():
        try:
            plan = strategy(claims, sorted(queues))
        except SteelyardError:
            return {}
        for member, share in zip(plan.members, plan.shares, strict=True):
            targets.update(dict.fromkeys(share, member))
    return targets


def _moving(
    facts: RemotingGroupFacts,
    rows: Sequence[MessageQueue],
    owners: Mapping[MessageQueue, str],
    targets: Mapping[MessageQueue, str],
) -> dict[MessageQueue, str]:
    """Return the queues whose owner is not yet who it should be, with the latter.

    Members that did not answer may hold any queue, so that their queues are left out.
    """
    silent = {client_id for client_id, info in facts.infos.items() if info is None}
    return {
        queue: targets[queue]
        for queue in rows
        if queue in targets and owners.get(queue) != targets[queue] and targets[queue] not in silent
    }


def _rebalance(
    facts: RemotingGroupFacts,
    rows: Sequence[MessageQueue],
    moving: Mapping[MessageQueue, str],
    owners: Mapping[MessageQueue, str],
    now: int,
) -> RebalanceNow | None:
    if not moving:
        return None
    holders = sorted({owners[queue] for queue in moving if queue in owners})
    text = f"{counted(len(moving), 'queue')} of {len(rows)} are not with their next owner yet."
    if holders:
        first, others = holders[0], len(holders) - 1
        more = f" and {others} more" if others else ""
        text += f" {first}{more} still hold{'' if others else 's'} some of them."
    else:
        text += " Nobody holds them, so that their next owners take them."
    return RebalanceNow(since=now, trigger=UNKNOWN, reason="unknown", waits_for=holders, text=text)


def _members(
    facts: RemotingGroupFacts, owners: Mapping[MessageQueue, str], rebalance: RebalanceNow | None
) -> list[MemberView]:
    waits = set(rebalance.waits_for) if rebalance else set()
    shares: dict[str, int] = {}
    for queue, owner in owners.items():
        if not queue.topic.startswith(RETRY_PREFIX):
            shares[owner] = shares.get(owner, 0) + 1
    return [
        MemberView(
            id=client_id,
            client_id=client_id,
            host=member.client_addr,
            version=_version(member, facts.infos.get(client_id)),
            state=_state(facts.infos.get(client_id), client_id, waits, rebalance),
            waited_for=client_id in waits,
            since=None,
            assigned=shares.get(client_id, 0),
            tasks=None,
        )
        for client_id, member in sorted(facts.members.items())
    ]


def _state(
    info: ConsumerRunningInfo | None, client_id: str, waits: set[str], rebalance: object
) -> str:
    if info is None:
        return "silent"
    if client_id in waits:
        return "revoking"
    return "stable" if rebalance is None else "waiting"


def _version(member: Connection, info: ConsumerRunningInfo | None) -> str:
    """Return the language of a client, and the version that it says."""
    version = "" if info is None else info.properties.get("PROP_CLIENT_VERSION", "")
    number = version.removeprefix("V").replace("_", ".")
    return f"{member.language} {number}".strip()
