"""Progress of groups: how far they have come, and how fast.

| code | request | answer |
|---|---|---|
| 43 | committed offsets of all groups | up to `ALL_MAX` |
| 208 | offsets of a group, in one topic or in all of its own | |
| 300 | groups that read a topic | |
| 303 | store times of what a group consumed last, per queue of a topic | 17 without that topic |
| 315 | messages of the last minute, hour and day: TOPIC_PUT_NUMS, GROUP_GET_NUMS | 1 for others |
| 317 | 208 for every group | |

The figures of a topic (315) are computed from the store times in its logs, so that they cost sends
nothing and outlive restarts. Those of a group, and the rate of consumption in 208, are counted by
`statistics`.
Source: broker/processor/AdminBrokerProcessor.java, store/stats/BrokerStatsManager.java.
"""

from __future__ import annotations

from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.remoting.admin import STEP_QUEUES
from steelyard.nodes.broker.remoting.offsets import CommittedOffsets
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect
from steelyard.store.log import Log
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    CommittedOffsetTable,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    GroupList,
    OffsetWrapper,
    QueueTimeSpan,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.names import GROUP_GET_NUMS, TOPIC_PUT_NUMS

ALL_MAX = 100_000
"""Most offsets in one answer to 43, which must fit a frame; further ones are left out."""

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


class _Work:
    """Counts the queues that were examined, and divides them into steps."""

    def __init__(self) -> None:
        self._done = 0

    def is_step(self) -> bool:
        """Count one more queue; return whether it completes a step."""
        self._done += 1
        return self._done % STEP_QUEUES == 0


class ProgressHandlers:
    """Handlers of the requests above."""

    def __init__(self, parts: Parts, committed: CommittedOffsets) -> None:
        self._config = parts.config
        self._store = parts.store
        self._topics = parts.topics
        self._committed = committed
        self._registry = parts.registry
        self._statistics = parts.statistics

    @serves(RequestCode.GET_CONSUME_STATS)
    def consume_stats(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Steps[Command]:
        header = request.header(headers.ConsumeStatsRequestHeader)
        group = header.consumer_group
        topics = [header.topic] if header.topic else self._topics_of(group)
        stats = yield from self._stats(group, topics, now, _Work())
        return request.reply(body=fastjson.write(stats))

    @serves(RequestCode.GET_BROKER_CONSUME_STATS)
    def all_stats(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Steps[Command]:
        listed = []
        total = 0
        work = _Work()
        for group in self._committed.groups():
            stats: list[ConsumeStats] = []
            for topic in self._topics_of(group):
                item = yield from self._stats(group, [topic], now, work)
                if item.offset_table:
                    stats.append(item)
            if stats:
                listed.append({group: tuple(stats)})
            total += sum(
                offsets.broker_offset - offsets.consumer_offset
                for item in stats
                for offsets in item.offset_table.values()
            )
        body = ConsumeStatsList(tuple(listed), self._config.address, total)
        return request.reply(body=fastjson.write(body))

    @serves(RequestCode.GET_ALL_CONSUMER_OFFSET)
    def all_offsets(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Steps[Command]:
        table: dict[str, dict[int, int]] = {}
        work, left = _Work(), ALL_MAX
        for group in self._committed.groups():
            for (topic, queue_id), offset in self._committed.of_group(group).items():
                left -= 1
                if left < 0:
                    break
                table.setdefault(f"{topic}@{group}", {})[queue_id] = offset
                if work.is_step():
                    yield
        body = fastjson.write(CommittedOffsetTable(table), int_keys_quoted=False)
        return request.reply(body=body)

    def _topics_of(self, group: str) -> list[str]:
        read = {topic for topic, _ in self._committed.of_group(group)}
        return sorted(read | self._registry.subscriptions(group).keys())

    def _stats(self, group: str, topics: list[str], now: int, work: _Work) -> Steps[ConsumeStats]:
        """Return a group's offsets in those topics that exist here.

        If the group has members, only topics that they subscribe to are included.
        """
        offsets = self._committed.of_group(group)
        subscribed = self._registry.subscriptions(group)
        table: dict[MessageQueue, OffsetWrapper] = {}
        rate = 0.0
        for topic in topics:
            config = self._topics.get(topic)
            if config is None or (subscribed and topic not in subscribed):
                continue
            rate += self._statistics.group_get(group, topic, now, MINUTE_MS).tps
            for queue_id in range(config.read_queue_nums):
                queue = MessageQueue(topic, self._config.name, queue_id)
                table[queue] = self._offsets(topic, queue_id, offsets.get((topic, queue_id), 0))
                if work.is_step():
                    yield
        return ConsumeStats(table, rate)

    def _offsets(self, topic: str, queue_id: int, offset: int) -> OffsetWrapper:
        log = self._store.log(topic, queue_id)
        if log is None:
            return OffsetWrapper(0, offset, 0, offset)
        consumed = max(0, _stored_at(log, offset - 1))
        return OffsetWrapper(log.max_offset, offset, consumed, offset)

    @serves(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
    def groups_of_topic(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        header = request.header(headers.TopicRequestHeader)
        groups = self._committed.groups_of(header.topic) | set(
            self._registry.groups_of(header.topic)
        )
        return request.reply(body=fastjson.write(GroupList(tuple(sorted(groups)))))

    @serves(RequestCode.QUERY_CONSUME_TIME_SPAN)
    def time_spans(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Steps[Command]:
        header = request.header(headers.TopicGroupRequestHeader)
        config = self._topics.get(header.topic)
        if config is None:
            remark = f"topic[{header.topic}] not exist"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        spans = []
        work = _Work()
        for queue_id in range(config.read_queue_nums):
            spans.append(self._span(header.group, header.topic, queue_id, now))
            if work.is_step():
                yield
        return request.reply(body=fastjson.write(ConsumeTimeSpans(tuple(spans))))

    def _span(self, group: str, topic: str, queue_id: int, now: int) -> QueueTimeSpan:
        queue = MessageQueue(topic, self._config.name, queue_id)
        log = self._store.log(topic, queue_id)
        if log is None:
            return QueueTimeSpan(queue, -1, -1, -1)
        offset = self._committed.get(group, topic, queue_id) or 0
        first = _stored_at(log, log.min_offset)
        consumed = _stored_at(log, offset - 1) if offset else first
        upcoming = _stored_at(log, max(offset, log.min_offset))
        delay = now - upcoming if upcoming >= 0 else 0
        return QueueTimeSpan(queue, first, _stored_at(log, log.max_offset - 1), consumed, delay)

    @serves(RequestCode.VIEW_BROKER_STATS_DATA)
    def stats_data(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        header = request.header(headers.ViewBrokerStatsDataRequestHeader)
        items: list[BrokerStatsItem] = []
        if header.stats_name == TOPIC_PUT_NUMS and self._topics.get(header.stats_key) is not None:
            items = [
                self._put(header.stats_key, now, span) for span in (MINUTE_MS, HOUR_MS, DAY_MS)
            ]
        elif header.stats_name == GROUP_GET_NUMS and "@" in header.stats_key:
            topic, _, group = header.stats_key.partition("@")
            items = [
                self._statistics.group_get(group, topic, now, span)
                for span in (MINUTE_MS, HOUR_MS, DAY_MS)
            ]
        if not items:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        return request.reply(body=fastjson.write(BrokerStatsData(*items)))

    def _put(self, topic: str, now: int, span_ms: int) -> BrokerStatsItem:
        """Return the messages of a topic stored in the last `span_ms` that still exist."""
        logs = self._store.logs(topic)
        count = sum(log.max_offset - log.offset_at_time(now - span_ms) for log in logs)
        return BrokerStatsItem(count, count * 1000 / span_ms, 0.0)


def _stored_at(log: Log, offset: int) -> int:
    """Return when the message at an offset was stored, -1 if it does not exist."""
    return log.stored_at(offset) if log.min_offset <= offset < log.max_offset else -1
