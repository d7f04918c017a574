"""Figures of the running broker, as Apache's tools read them (28)."""

from __future__ import annotations

import json
import re

import pytest
from tests.nodes.broker.conftest import Rig
from tests.nodes.broker.driver import START

from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import KVTable
from steelyard.wire.remoting.codes import RequestCode


def test_the_running_broker_says_what_mqadmin_prints(rig: Rig) -> None:
    link = rig.connect()
    for _ in range(10):
        rig.send(link, bytes(100))
    rig.advance(65_000)
    body = rig.ask(link, RequestCode.GET_BROKER_RUNTIME_INFO).body
    table = fastjson.read(KVTable, body).table
    assert json.loads(body) == {"table": table}
    assert table["brokerVersionDesc"] == "V4_9_8"
    assert table["brokerActive"] == "true"
    assert table["runtime"] == "[ 0 days, 0 hours, 1 minutes, 5 seconds ]"
    assert table["earliestMessageTimeStamp"] == str(START)
    assert float(table["commitLogDiskRatio"]) >= 0
    assert int(table["msgPutTotalTodayNow"]) == int(table["putMessageTimesTotal"]) == 11
    for name in ("putTps", "getTransferedTps", "getTransferredTps", "getTotalTps"):
        assert len([float(rate) for rate in table[name].split(" ")]) == 3
    ten_seconds, _, ten_minutes = (float(rate) for rate in table["putTps"].split(" "))
    assert ten_seconds == 0.0
    assert ten_minutes == pytest.approx(11 / 65, rel=0.2)


def test_everything_that_apaches_exporter_reads_is_there(rig: Rig) -> None:
    """The keys that its BrokerRuntimeStats reads without a default, in the formats that it takes apart."""
    rig.advance(10)
    body = rig.ask(rig.connect(), RequestCode.GET_BROKER_RUNTIME_INFO).body
    table = fastjson.read(KVTable, body).table
    numbers = (
        "bootTimestamp brokerVersion commitLogMaxOffset commitLogMinOffset dispatchBehindBytes"
        " dispatchMaxBuffer earliestMessageTimeStamp getMessageEntireTimeMax"
        " msgGetTotalTodayMorning msgGetTotalTodayNow msgGetTotalYesterdayMorning"
        " msgPutTotalTodayMorning msgPutTotalTodayNow msgPutTotalYesterdayMorning"
        " pageCacheLockTimeMills pullThreadPoolQueueCapacity"
        " pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize putMessageEntireTimeMax"
        " putMessageSizeTotal putMessageTimesTotal queryThreadPoolQueueCapacity"
        " queryThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize"
        " remainTransientStoreBufferNumbs sendThreadPoolQueueCapacity"
        " sendThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize"
        " startAcceptSendRequestTimeStamp"
    )
    for name in numbers.split():
        int(table[name])
    for name in ("commitLogDiskRatio", "consumeQueueDiskRatio", "putMessageAverageSize"):
        assert float(table[name]) >= 0
    for name in ("putTps", "getMissTps", "getTransferedTps", "getTotalTps", "getFoundTps"):
        assert len([float(part) for part in table[name].split(" ")]) == 3
    spans = table["putMessageDistributeTime"].split()
    assert len(spans) == 13
    assert all(re.fullmatch(r"\[[^]:]+\]:\d+", span) for span in spans)
    size = r"\d+(\.\d)? [KMGTPE]?i?B"
    assert re.fullmatch(f"Total : {size}, Free : {size}[.]", table["commitLogDirCapacity"])
    assert re.fullmatch(r"\d+(\.\d+)? [KMGTPE]?B", table["remainHowManyDataToFlush"])
