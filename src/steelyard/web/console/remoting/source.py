"""The groups and topics of RocketMQ's dialect: by figures of our brokers, or Apache's answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec.structs import replace

from steelyard.client.administration.asking import broker_addresses
from steelyard.client.aio.admin import Admin
from steelyard.client.aio.pull import PullConsumer
from steelyard.client.together import at_once
from steelyard.errors import BrokerError, RemotingError, RouteError, SteelyardError
from steelyard.groups.doctor import Diagnosis
from steelyard.groups.overview import group_progress
from steelyard.types import MessageQueue
from steelyard.web.console.answers import (
    FlappingView,
    GroupLine,
    GroupPicture,
    MessagesAnswer,
    OffsetChange,
    TopicLine,
    TopicPicture,
    TopicQueue,
)
from steelyard.web.console.contract import GroupsFound, TopicsFound
from steelyard.web.console.fresh import Fresh, FreshByKey
from steelyard.web.console.questions import CreateTopic, MessagesQuestion, ResetOffsets
from steelyard.web.console.rates import Rates
from steelyard.web.console.remoting import changes
from steelyard.web.console.remoting.figures import ClusterFigures, has_figures, kept_messages
from steelyard.web.console.remoting.members import GROUPS_MAX, Members
from steelyard.web.console.remoting.messages import browse
from steelyard.web.console.remoting.picture import (
    DEGRADED,
    EMPTY,
    STABLE,
    QueueReach,
    RemotingGroupFacts,
    key_of,
    picture,
)
from steelyard.web.reading import ClusterReader
from steelyard.wire.remoting.bodies import ConsumerConnection
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.names import RETRY_PREFIX, retry_topic

TOPICS_MAX = 2_000
"""Most topics that are listed."""

NAMES_FRESH_MS = 900
ROUTE_FRESH_MS = 3_000
TOPICS_FRESH_MS = 5_000
SYSTEM_FRESH_MS = 60_000

OWN_GROUPS = frozenset(
    ("steelyard-console", "steelyard-metrics", "STEELYARD_LEDGER_READER", "CID_RMQ_SYS_TRANS")
)
"""Groups that only tools and servers use; they are not listed."""

SYSTEM_PREFIXES = ("RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC", "__")
"""What names of topics begin with that servers use themselves, besides those that they list."""


OpenConsumer = Callable[[], Awaitable[PullConsumer]]
"""Returns a running consumer."""


class RemotingSource:
    """A `contract.DialectSource`. `reader`: of the figures that our brokers have, not Apache's."""

    def __init__(self, admin: Admin, consumer: OpenConsumer, reader: ClusterReader) -> None:
        self._admin = admin
        self._consumer = consumer
        self._reader = reader
        self._queues = FreshByKey(self._queues_of, ROUTE_FRESH_MS, keys_max=TOPICS_MAX)
        self._names = Fresh(admin.topics, NAMES_FRESH_MS)
        self._system = Fresh(self._system_topics, SYSTEM_FRESH_MS)
        self._lines = Fresh(self._all_topics, TOPICS_FRESH_MS)
        self._rates = Rates()
        self._internal: frozenset[str] = frozenset()
        self._members = Members(admin, self._connection)

    # -- groups ------------------------------------------------------------------------------------

    async def groups(self) -> GroupsFound:
        names = [name for name in await self._group_names() if name not in OWN_GROUPS]
        reading = await self._reader.read()
        wanted = names[:GROUPS_MAX]
        figures = ClusterFigures(reading)
        known = [name for name in wanted if figures.knows(name)]
        others = [name for name in wanted if not figures.knows(name)]
        asked = [each for each in await at_once(self._asked, others) if each is not None]
        lines = [figures.line(name, self._members.protocol(name)) for name in known]
        lines += [line for line, _ in asked]
        lines = [self._with_hung(line) for line in lines]
        found: dict[str, Mapping[MessageQueue, QueueReach]] = {
            **{name: figures.reach(name) for name in known},
            **{line.name: progress for line, progress in asked},
        }
        lags = {
            name: {key_of(queue): row.lag for queue, row in progress.items()}
            for name, progress in found.items()
        }
        self._members.begin_round([line.name for line in lines if line.members])
        return GroupsFound(lines, len(names) - len(wanted), lags)

    def _with_hung(self, line: GroupLine) -> GroupLine:
        """Return a line with the state of a group in which a member hangs, if one does."""
        is_degraded = line.members and self._members.hangs(line.name)
        return replace(line, state=DEGRADED) if is_degraded else line

    async def _group_names(self) -> list[str]:
        """Return the groups that have ever had a member, sorted."""
        found = [name for name in await self._names.get() if name.startswith(RETRY_PREFIX)]
        return sorted(name.removeprefix(RETRY_PREFIX) for name in found)

    async def _check_group(self, name: str) -> None:
        """Raise RouteError unless there is such a group; it may be newer than the last list."""
        topic = retry_topic(name)
        if topic not in await self._names.get() and topic not in await self._names.renewed():
            raise RouteError(f"there is no RocketMQ group {name}")

    async def _asked(self, name: str) -> tuple[GroupLine, Mapping[MessageQueue, QueueReach]] | None:
        """Return a group's line by what brokers answer; None if it has gone.

        Apache's brokers have no figures, and ours none of groups that have committed nothing.
        """
        try:
            connection = await self._connection(name)
            progress = await self._committed(name)
        except RouteError:
            return None
        line = GroupLine(
            dialect="rocketmq",
            kind="rocketmq",
            name=name,
            state=STABLE if connection else EMPTY,
            protocol=self._members.protocol(name),
            members=0 if connection is None else len(connection.connection_set),
            topics=sorted({q.topic for q in progress if not q.topic.startswith(RETRY_PREFIX)}),
            lag=sum(row.lag or 0 for row in progress.values()),
            oldest_wait_ms=None,
            rebalancing=False,
            last_rebalance_at=None,
        )
        return line, progress

    async def group(self, name: str) -> GroupPicture:
        return picture(await self._facts(name), now_ms())

    async def _facts(self, name: str) -> RemotingGroupFacts:
        connection = await self._connection(name)
        members = {} if connection is None else {c.client_id: c for c in connection.connection_set}
        reading, infos = await asyncio.gather(
            self._reader.read(), self._members.ask(name, connection)
        )
        figures = ClusterFigures(reading)
        progress: Mapping[MessageQueue, QueueReach]
        if has_figures(reading):
            progress = figures.reach(name)
        else:
            progress = await self._committed(name, waits=True)
        topics = {queue.topic for queue in progress}
        if connection is not None:
            topics |= connection.subscription_table.keys()
        queues = dict(
            zip(sorted(topics), await at_once(self._queues.get, sorted(topics)), strict=True)
        )
        idle = {
            queue: QueueReach(None, figures.ends.get(queue), None, None)
            for found in queues.values()
            for queue in found
            if queue not in progress
        }
        return RemotingGroupFacts(
            name,
            "" if connection is None else connection.consume_type,
            "" if connection is None else connection.message_model,
            members,
            infos,
            queues,
            {**idle, **progress},
            self._members.silent_ms(name),
        )

    async def _connection(self, name: str) -> ConsumerConnection | None:
        """Return the members of a group that all its brokers see; None if there are none.

        Raises RouteError for a group that has never had one.
        """
        try:
            route = await self._admin.route(retry_topic(name))
        except RouteError:
            raise RouteError(f"there is no RocketMQ group {name}") from None
        answers = await at_once(
            lambda address: self._seen_at(name, address), broker_addresses(route).values()
        )
        seen = [each for each in answers if isinstance(each, ConsumerConnection)]
        if not seen:
            for answer in answers:
                if isinstance(answer, RemotingError):
                    raise answer
            return None
        members = {one.client_id: one for each in seen for one in each.connection_set}
        found = seen[0]
        return ConsumerConnection(
            tuple(members.values()),
            found.subscription_table,
            found.consume_type,
            found.message_model,
            found.consume_from_where,
        )

    async def _seen_at(self, name: str, address: str) -> ConsumerConnection | RemotingError | None:
        """Return the members that a broker sees; None if it sees none."""
        try:
            return await self._admin.members(name, address)
        except BrokerError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            return None
        except RemotingError as error:
            return error

    async def _committed(self, name: str, *, waits: bool = False) -> dict[MessageQueue, QueueReach]:
        """Return the progress of a group as its brokers tell it; empty if it has none."""
        try:
            stats = await self._admin.consume_stats(name)
        except RouteError:
            return {}
        ages: Mapping[MessageQueue, int] = {}
        if waits:
            rows = group_progress(name, stats.offset_table, stats.consume_tps, {})
            ages = await self._admin.oldest_waits(rows)
        return {
            queue: QueueReach(
                row.consumer_offset,
                row.broker_offset,
                max(0, row.broker_offset - row.consumer_offset),
                ages.get(queue),
            )
            for queue, row in stats.offset_table.items()
        }

    async def _queues_of(self, topic: str) -> tuple[MessageQueue, ...]:
        try:
            return await self._admin.queues(topic)
        except RouteError:
            return ()

    async def flapping(self, name: str) -> Sequence[FlappingView] | None:
        return None

    async def diagnose(self, name: str) -> Sequence[Diagnosis]:
        await self._check_group(name)
        return await self._admin.diagnose(name)

    # -- topics ------------------------------------------------------------------------------------

    async def topics(self) -> TopicsFound:
        return await self._lines.get()

    async def _all_topics(self) -> TopicsFound:
        names = [name for name in await self._admin.topics() if not name.startswith("%")]
        self._internal = await self._system.get()
        reading = await self._reader.read()
        wanted = sorted(set(names))[:TOPICS_MAX]
        if has_figures(reading):
            kept = kept_messages(reading)
            found = await at_once(self._queues.get, wanted)
            lines = [
                self._topic_line(name, len(queues), *kept.get(name, (0, 0, 0)))
                for name, queues in zip(wanted, found, strict=True)
            ]
        else:
            lines = await at_once(self._asked_topic, wanted)
        return TopicsFound(lines, len(set(names)) - len(wanted))

    async def _system_topics(self) -> frozenset[str]:
        """Return the topics of the servers themselves, as far as they tell."""
        try:
            return frozenset(await self._admin.system_topics())
        except SteelyardError:
            return frozenset()

    async def _asked_topic(self, name: str) -> TopicLine:
        try:
            reach = await self._admin.topic_stats(name)
        except SteelyardError:
            return self._topic_line(name, 0, None, None, None)
        messages = sum(row.max_offset - row.min_offset for row in reach.values())
        end = sum(row.max_offset for row in reach.values())
        return self._topic_line(name, len(reach), messages, None, end)

    def _topic_line(
        self, name: str, queues: int, messages: int | None, size: int | None, end: int | None
    ) -> TopicLine:
        rate = None if end is None else self._rates.rate(name, end, time.monotonic())
        return TopicLine(
            dialect="rocketmq",
            name=name,
            queues=queues,
            messages=messages,
            bytes=size,
            in_per_second=rate,
            groups=[],
            internal=name in self._internal or name.startswith(SYSTEM_PREFIXES),
        )

    async def topic(self, name: str) -> TopicPicture:
        route = await self._admin.route(name)
        reach = await self._admin.topic_stats(name)
        settings = {
            f"{data.broker_name}: read/write queues, permission": (
                f"{data.read_queue_nums}/{data.write_queue_nums}, {data.perm}"
            )
            for data in route.queue_datas
        }
        if route.order_topic_conf:
            settings["order configuration"] = route.order_topic_conf
        return TopicPicture(
            dialect="rocketmq",
            name=name,
            queues=[
                TopicQueue(
                    key=key_of(queue),
                    broker=queue.broker_name,
                    queue=queue.queue_id,
                    first=row.min_offset,
                    end=row.max_offset,
                    first_at=None,
                    last_at=row.last_update_timestamp or None,
                )
                for queue, row in sorted(reach.items())
            ],
            groups=[],
            settings=settings,
        )

    # -- messages and changes ----------------------------------------------------------------------

    async def messages(self, question: MessagesQuestion) -> MessagesAnswer:
        return await browse(self._admin, await self._consumer(), question)

    async def reset_offsets(self, group: str, reset: ResetOffsets) -> Sequence[OffsetChange]:
        await self._check_group(group)
        return await changes.reset(self._admin, await self._consumer(), group, reset)

    async def create_topic(self, topic: CreateTopic) -> str:
        done = await changes.create(self._admin, topic)
        self._lines.forget()
        return done

    async def delete_topic(self, name: str) -> str:
        done = await changes.delete(self._admin, name)
        self._lines.forget()
        return done


def now_ms() -> int:
    """Return the time in ms since the epoch."""
    return time.time_ns() // 1_000_000
