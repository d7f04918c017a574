"""Answers the operations of the API, each by a method of its name (`operations`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from msgspec.structs import replace

from steelyard.client.together import at_once
from steelyard.driver.logs import logger
from steelyard.errors import RouteError, SteelyardError
from steelyard.groups.doctor import Ailment
from steelyard.web.console import answers, questions
from steelyard.web.console.answers import Dialect, GroupLine, GroupPicture, TopicLine
from steelyard.web.console.contract import DialectSource, GroupId, WatchedCluster
from steelyard.web.console.fresh import Fresh, FreshByKey
from steelyard.web.console.history import KeyOf, LedgerHistory, kafka_key, remoting_key
from steelyard.web.console.lag import LagRings
from steelyard.web.console.observed import Observer
from steelyard.web.console.what_if import what_if
from steelyard.web.console.writers import Writers

VIEW_FRESH_MS = 400
"""Age up to which it is not asked again how the servers are."""

GROUPS_FRESH_MS = 900
"""The same of the list of groups, so that each second has one reading."""

PICTURE_FRESH_MS = 200
"""The same of the picture of one group."""

TOPICS_FRESH_MS = 2_000

ERRORS = frozenset(
    (
        Ailment.NOBODY,
        Ailment.SUBSCRIPTIONS_DIFFER,
        Ailment.STRATEGIES_DIFFER,
        Ailment.MODELS_DIFFER,
        Ailment.CLIENT_ID_SHARED,
        Ailment.QUEUE_WITHOUT_MEMBER,
        Ailment.QUEUE_WITH_TWO_MEMBERS,
        Ailment.LISTENER_HANGS,
        Ailment.OFFSET_BEYOND_END,
    )
)
"""Findings that mean that messages wait, are lost, or are consumed twice."""

NOTES = frozenset((Ailment.MEMBER_IDLE,))
"""Findings that need not be wrong."""


T = TypeVar("T")

_log = logger("steelyard.console")


class Console:
    """The console of one cluster. `cluster` must be started.

    `ledger`: what Steelyard's brokers recorded, None for a cluster without nameservers.
    """

    def __init__(
        self, cluster: WatchedCluster, ledger: LedgerHistory | None, *, allow_changes: bool
    ) -> None:
        self.allow_changes = allow_changes
        self.observer = Observer(now_ms())
        self.lags = LagRings()
        self._cluster = cluster
        self._ledger = ledger
        self._writers = Writers()
        self._view = Fresh(lambda: cluster.view(allow_changes=allow_changes), VIEW_FRESH_MS)
        self._groups = Fresh(self._all_groups, GROUPS_FRESH_MS)
        self._pictures = FreshByKey(self._picture, PICTURE_FRESH_MS)
        self._topics = Fresh(self._all_topics, TOPICS_FRESH_MS)

    async def source(self, dialect: Dialect) -> DialectSource:
        """Return the source of a dialect. Raises RouteError if the cluster has none."""
        found = (await self._cluster.sources()).get(dialect)
        if found is None:
            has = "is reached by Kafka's protocol" if dialect == "rocketmq" else "has no listener"
            names = {"rocketmq": "RocketMQ", "kafka": "Kafka"}
            raise RouteError(f"the cluster has no groups and topics of {names[dialect]}: it {has}")
        return found

    # -- the cluster and its groups ----------------------------------------------------------------

    async def cluster(self, question: questions.NoQuestion) -> answers.ClusterView:
        return await self._view.get()

    async def groups(self, question: questions.NoQuestion) -> answers.GroupsAnswer:
        lines, left_out, _ = await self._groups.get()
        return answers.GroupsAnswer(groups=list(lines), left_out=left_out)

    async def sample(self) -> None:
        """Read all groups, and add a sample of their lag."""
        lines, _, lags = await self._groups.get()
        now = now_ms()
        for line in lines:
            group = (line.dialect, line.name)
            self.lags.add(group, now, line.lag, line.oldest_wait_ms, lags.get(group, {}))

    async def _all_groups(
        self,
    ) -> tuple[Sequence[GroupLine], int, Mapping[GroupId, Mapping[str, int | None]]]:
        sources = await self._cluster.sources()
        found = await _answered({dialect: source.groups() for dialect, source in sources.items()})
        is_ours = await self._has_ledger()
        lines: list[GroupLine] = []
        lags: dict[GroupId, Mapping[str, int | None]] = {}
        for dialect, each in found.items():
            for picture in each.pictures:
                self._look(picture)
            lines += [self._completed(line, is_ours=is_ours) for line in each.lines]
            lags |= {(dialect, name): of_group for name, of_group in each.lags.items()}
        lines.sort(key=lambda line: (line.name, line.dialect))
        return lines, sum(each.left_out for each in found.values()), lags

    def _completed(self, line: GroupLine, *, is_ours: bool) -> GroupLine:
        """Return a line with what is remembered of its group."""
        group = (line.dialect, line.name)
        last = self.observer.last_at(group)
        if is_ours and self._ledger is not None and line.kind != "share":
            last = self._ledger.last_at(line.name)
        rebalancing = line.rebalancing or self.observer.is_rebalancing(group, now_ms())
        return replace(line, last_rebalance_at=last, rebalancing=rebalancing)

    async def group(self, question: questions.GroupQuestion) -> GroupPicture:
        return await self._pictures.get((question.dialect, question.group))

    async def _picture(self, group: GroupId) -> GroupPicture:
        source = await self.source(group[0])
        return self._look(await source.group(group[1]))

    def _look(self, picture: GroupPicture) -> GroupPicture:
        return self.observer.look(picture, now_ms())

    async def _has_ledger(self) -> bool:
        return self._ledger is not None and await self._cluster.kind() == "steelyard"

    # -- history, lag, findings, what if -----------------------------------------------------------

    async def rebalances(self, question: questions.RebalancesQuestion) -> answers.RebalancesAnswer:
        return await self.history(await self.group(question), question.limit)

    async def history(self, picture: GroupPicture, limit: int) -> answers.RebalancesAnswer:
        """Return the latest rebalances of the group that a picture shows."""
        dialect, name = group = (picture.dialect, picture.name)
        flapping = await (await self.source(dialect)).flapping(name)
        now = now_ms()
        if self._ledger is None or picture.kind == "share" or not await self._has_ledger():
            return answers.RebalancesAnswer(
                rebalances=self.observer.rebalances(group, limit),
                flapping=self.observer.flapping(group, now),
                source="observed",
                note=_observed_since(self.observer.since, picture.kind),
                incomplete=None,
            )
        key_of: KeyOf = remoting_key
        if dialect == "kafka":
            key_of = kafka_key(await self._cluster.partitions())
        return answers.RebalancesAnswer(
            rebalances=self._ledger.rebalances(name, limit, key_of),
            flapping=self._ledger.flapping(name, now) if flapping is None else list(flapping),
            source="ledger",
            note=f"Since {_moment(self._ledger.since)}. The setting console_history_ms shows more.",
            incomplete=self._ledger.incomplete,
        )

    async def lag(self, question: questions.LagQuestion) -> answers.LagHistory:
        await self.group(question)
        since = now_ms() - question.minutes * 60_000
        return self.lags.history((question.dialect, question.group), since)

    async def doctor(self, question: questions.GroupQuestion) -> answers.FindingsAnswer:
        source = await self.source(question.dialect)
        found = await source.diagnose(question.group)
        return answers.FindingsAnswer(
            findings=[
                answers.FindingView(
                    severity=(
                        "error"
                        if one.ailment in ERRORS
                        else "info"
                        if one.ailment in NOTES
                        else "warning"
                    ),
                    title=one.ailment.value.replace("_", " ").capitalize(),
                    text=one.what,
                    what_to_do=one.advice,
                    queues=[],
                )
                for one in found
            ]
        )

    async def what_if(self, question: questions.WhatIfQuestion) -> answers.WhatIf:
        picture = await self.group(question)
        return await asyncio.to_thread(what_if, picture, question.members, question.strategy)

    # -- topics and messages -----------------------------------------------------------------------

    async def topics(self, question: questions.NoQuestion) -> answers.TopicsAnswer:
        return await self._topics.get()

    async def _all_topics(self) -> answers.TopicsAnswer:
        sources = await self._cluster.sources()
        found = await _answered({dialect: source.topics() for dialect, source in sources.items()})
        readers = await self._readers()
        lines = {(d, line.name): line for d, each in found.items() for line in each.lines}
        both = [
            name for dialect, name in lines if dialect == "kafka" and ("rocketmq", name) in lines
        ]
        dialects = await at_once(
            lambda name: self._dialect(sources["rocketmq"], name, readers.get(name, set())), both
        )
        for name, dialect in zip(both, dialects, strict=True):
            other = lines.pop(("rocketmq" if dialect == "kafka" else "kafka", name))
            lines[dialect, name] = _merged(lines[dialect, name], other)
        complete = [
            replace(line, groups=sorted({group for _, group in readers.get(line.name, ())}))
            for line in lines.values()
        ]
        complete.sort(key=lambda line: (line.name, line.dialect))
        return answers.TopicsAnswer(
            topics=complete, left_out=sum(each.left_out for each in found.values())
        )

    async def _dialect(
        self, remoting: DialectSource, topic: str, readers: Collection[GroupId]
    ) -> Dialect:
        """Return the dialect of a topic that both know: of its producers, else of its groups."""
        written = await self._writers.dialect(remoting, topic)
        if written is not None:
            return written
        return "kafka" if {dialect for dialect, _ in readers} == {"kafka"} else "rocketmq"

    async def _readers(self) -> dict[str, set[GroupId]]:
        """Return the groups of each topic."""
        lines, _, _ = await self._groups.get()
        readers: dict[str, set[GroupId]] = {}
        for line in lines:
            for topic in line.topics:
                readers.setdefault(topic, set()).add((line.dialect, line.name))
        return readers

    async def topic(self, question: questions.TopicQuestion) -> answers.TopicPicture:
        source = await self.source(question.dialect)
        found = await source.topic(question.topic)
        readers = await self._readers()
        groups = sorted({group for _, group in readers.get(question.topic, ())})
        return replace(found, groups=groups)

    async def messages(self, question: questions.MessagesQuestion) -> answers.MessagesAnswer:
        source = await self.source(question.dialect)
        return await source.messages(question)

    # -- changes -----------------------------------------------------------------------------------

    async def reset_offsets(
        self, question: questions.GroupQuestion, body: questions.ResetOffsets
    ) -> answers.ResetResult:
        source = await self.source(question.dialect)
        offsets = await source.reset_offsets(question.group, body)
        return answers.ResetResult(dry_run=body.dry_run, offsets=list(offsets))

    async def create_topic(
        self, question: questions.NoQuestion, body: questions.CreateTopic
    ) -> answers.Done:
        source = await self.source(body.dialect)
        done = answers.Done(text=await source.create_topic(body))
        self._topics.forget()
        return done

    async def delete_topic(self, question: questions.TopicQuestion) -> answers.Done:
        source = await self.source(question.dialect)
        done = answers.Done(text=await source.delete_topic(question.topic))
        self._topics.forget()
        return done


async def _answered(asked: Mapping[Dialect, Awaitable[T]]) -> dict[Dialect, T]:
    """Return what the sources of both dialects answer; raises only if none does."""
    answered = await asyncio.gather(*asked.values(), return_exceptions=True)
    found: dict[Dialect, T] = {}
    failed: SteelyardError | None = None
    for dialect, answer in zip(asked, answered, strict=True):
        if isinstance(answer, SteelyardError):
            _log.info("the cluster does not answer for %s: %s", dialect, answer)
            failed = failed or answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found[dialect] = answer
    if not found and failed is not None:
        raise failed
    return found


def _merged(line: TopicLine, other: TopicLine) -> TopicLine:
    """Return the line of a topic that both dialects know, with what only the other one tells."""
    return replace(
        line,
        messages=other.messages if line.messages is None else line.messages,
        bytes=other.bytes if line.bytes is None else line.bytes,
        in_per_second=other.in_per_second if line.in_per_second is None else line.in_per_second,
        internal=line.internal or other.internal,
    )


def _observed_since(since: int, kind: answers.GroupKind) -> str:
    if kind == "share":
        return (
            "Members of a share group read partitions together, so that none changes hands: these"
            f" are the joins and leaves that the console has seen since {_moment(since)}."
        )
    return (
        "This cluster keeps no ledger: these are the rebalances that the console has seen since"
        f" {_moment(since)}, without pauses and repetitions, which it cannot see."
    )


def _moment(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def now_ms() -> int:
    """Return the time in ms since the epoch."""
    return time.time_ns() // 1_000_000
