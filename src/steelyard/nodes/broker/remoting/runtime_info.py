"""28 GET_BROKER_RUNTIME_INFO: figures of the running broker, by the names of Apache's.

clusterList and brokerStatus print them, and Apache's exporter for Prometheus wants all of them.
What does not exist here is 0: thread pools with queues (their sizes are those of the requests that
wait, where there are such), and a common log with its dispatching and its page cache. Times of
puts are not measured, because a put is one write. Steelyard's own figures have names of their own;
`wire/figures` has many more.
Source: broker/processor/AdminBrokerProcessor.prepareRuntimeInfo, store/StoreStatsService.java.
"""

from __future__ import annotations

from steelyard.errors import StorageError
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.remoting.pull import Pulls
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.broker.skipped import PassedOver
from steelyard.nodes.broker.turns import WAITING_MAX
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import KVTable
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import VERSION, Command

VERSION_NAME = "V4_9_8"
"""The name of `VERSION` in MQVersion."""

PUT_TIMES = (
    *("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s"),
    *("1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~"),
)
"""The spans of `putMessageDistributeTime`."""


class RuntimeInfo:
    """The handler of 28."""

    def __init__(self, parts: Parts, pulls: Pulls, passed: PassedOver) -> None:
        self._parts = parts
        self._store = parts.store
        self._pulls = pulls
        self._passed = passed

    @serves(RequestCode.GET_BROKER_RUNTIME_INFO)
    def runtime_info(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        statistics = self._parts.statistics
        seconds = (now - statistics.started_at) // 1000
        minutes, hours, days = seconds // 60 % 60, seconds // 3600 % 24, seconds // 86400
        free, size = self._space()
        used = str(round((size - free) / size, 4)) if size else "0.0"
        average = statistics.put_bytes / statistics.put_messages if statistics.put_messages else 0.0
        table = {
            "bootTimestamp": str(statistics.started_at),
            "brokerActive": "true",
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": VERSION_NAME,
            "commitLogDirCapacity": f"Total : {_readable(size)}, Free : {_readable(free)}.",
            "commitLogDiskRatio": used,
            "commitLogMaxOffset": str(statistics.put_bytes),
            "commitLogMinOffset": "0",
            "consumeQueueDiskRatio": used,
            "dispatchBehindBytes": "0",
            "dispatchMaxBuffer": "0",
            "earliestMessageTimeStamp": str(self._earliest()),
            "getMessageEntireTimeMax": "0",
            "msgGetTotalTodayMorning": "0",
            "msgGetTotalTodayNow": str(statistics.got_messages),
            "msgGetTotalYesterdayMorning": "0",
            "msgPutTotalTodayMorning": "0",
            "msgPutTotalTodayNow": str(statistics.put_messages),
            "msgPutTotalYesterdayMorning": "0",
            "messagesPassedOver": str(self._passed.count),
            "pageCacheLockTimeMills": "0",
            "pullThreadPoolQueueCapacity": str(self._parts.config.hold_waiting_max),
            "pullThreadPoolQueueHeadWaitTimeMills": "0",
            "pullThreadPoolQueueSize": str(len(self._pulls.parked)),
            "putMessageAverageSize": str(average),
            "putMessageDistributeTime": "".join(f"[{span}]:0 " for span in PUT_TIMES),
            "putMessageEntireTimeMax": "0",
            "putMessageSizeTotal": str(statistics.put_bytes),
            "putMessageTimesTotal": str(statistics.put_messages),
            "queryThreadPoolQueueCapacity": str(WAITING_MAX),
            "queryThreadPoolQueueHeadWaitTimeMills": "0",
            "queryThreadPoolQueueSize": str(len(self._parts.turns)),
            "remainHowManyDataToFlush": "0 B",
            "remainTransientStoreBufferNumbs": "0",
            "runtime": (
                f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"
            ),
            "sendThreadPoolQueueCapacity": "0",
            "sendThreadPoolQueueHeadWaitTimeMills": "0",
            "sendThreadPoolQueueSize": "0",
            "startAcceptSendRequestTimeStamp": str(statistics.started_at),
            **statistics.rates(now),
            "compactionPasses": str(statistics.compactions),
            "compactionBytesBefore": str(statistics.compacted_bytes),
            "compactionBytesAfter": str(statistics.compacted_bytes_left),
            **self._parts.damage.runtime_info(),
            **self._parts.scrubbing.runtime_info(),
        }
        return request.reply(body=fastjson.write(KVTable(table)))

    def _space(self) -> tuple[int, int]:
        """Return the free bytes and the size of the data directory's disk; 0 if unknown."""
        try:
            return self._store.space()
        except StorageError:
            return 0, 0

    def _earliest(self) -> int:
        """Return the store time of the oldest message of all queues, -1 without any."""
        oldest = [
            log.stored_at(log.min_offset)
            for topic in self._parts.topics.all()
            for log in self._store.logs(topic)
            if log.min_offset < log.max_offset
        ]
        return min(oldest, default=-1)


def _readable(count: int) -> str:
    """Format bytes as Apache's brokers do: `12.3 GiB`."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
