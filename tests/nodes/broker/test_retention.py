"""What is kept and for how long, and a disk that fills up: producers are refused in time, or the oldest messages go."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import GROUP, Rig, pull_ext
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.test_produce import send

from steelyard.config import BrokerConfig, StoreConfig
from steelyard.nodes.broker import retention
from steelyard.store.memory import DISK_BYTES, MemoryDisk
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.message import BatchEntry, encode_batch

GIB = 1 << 30


def told(rig: Rig | KafkaRig, words: str) -> list[str]:
    """The levels of the log lines with these words."""
    return [each.level for each in rig.told if isinstance(each, LogLine) and words in each.text]


def rig_on(disk: MemoryDisk, **settings: object) -> Rig:
    store = StoreConfig(retention_ms=0, **settings)  # type: ignore[arg-type]
    return Rig(BrokerConfig(store=store), disk)


def test_producers_are_refused_before_the_disk_is_full_and_taken_again() -> None:
    disk = MemoryDisk()
    rig = rig_on(disk)
    link = rig.connect()
    assert rig.send(link).code == ResponseCode.SUCCESS
    rig.advance(5_000)  # until all index rows are written
    disk.room_bytes = 3 * GIB + 500_000
    rig.advance(retention.SPACE_INTERVAL_MS)
    answer = rig.send(link)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark == (
        "the disk of the data directory is full: 3072 MiB of 1048576 MiB are free;"
        " free some space, or shorten the retention"
    )
    rig.advance(10 * retention.SPACE_INTERVAL_MS)
    assert told(rig, "producers are refused") == ["ERROR"]
    assert rig.ask(link, RequestCode.PULL_MESSAGE, pull_ext(sysFlag=0)).code != 14
    commit = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0, "commitOffset": 1}
    assert rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
    disk.room_bytes = 5 * GIB
    rig.advance(retention.SPACE_INTERVAL_MS)
    assert told(rig, "producers are accepted again") == ["WARNING"]
    assert rig.send(link).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("topic", ["New", f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"])
def test_what_is_refused_on_a_full_disk_creates_no_topic(topic: str) -> None:
    disk = MemoryDisk()
    rig = rig_on(disk)
    link = rig.connect()
    rig.send(link)
    (view,) = rig.messages(TOPIC)
    disk.room_bytes = 3 * GIB
    rig.advance(retention.SPACE_INTERVAL_MS)
    level = -1 if topic.startswith("%DLQ%") else 0
    back = {"offset": view.physical_offset, "group": GROUP, "delayLevel": level}
    if topic == "New":
        answers = [
            rig.send(link, topic=topic),
            rig.send(link, encode_batch([BatchEntry(0, b"x", b"")]), topic=topic, m="true"),
        ]
    else:
        answers = [rig.ask(link, RequestCode.CONSUMER_SEND_MSG_BACK, back)]
    assert {answer.code for answer in answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}
    told = rig.ask(link, RequestCode.GET_ALL_TOPIC_CONFIG).body.decode()
    assert TOPIC in told
    assert topic not in told


def test_kafkas_producers_are_refused_too() -> None:
    disk = MemoryDisk()
    rig = KafkaRig(disk=disk)
    rig.create_topic()
    send(rig, batch())
    disk.room_bytes = 3 * GIB
    rig.advance(retention.SPACE_INTERVAL_MS)
    assert send(rig, batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.room_bytes = None
    rig.advance(retention.SPACE_INTERVAL_MS)
    assert send(rig, batch()).error_code == 0


@pytest.mark.parametrize(
    ("free", "settings", "refused"),
    [
        (DISK_BYTES // 5, {}, False),  # a fifth is free
        (DISK_BYTES // 50, {}, False),  # 98 % are in use, but 20 GiB are free
        (4 * GIB + 100_000, {}, False),
        (4 * GIB - 1, {}, True),
        (DISK_BYTES // 50, {"disk_free_bytes_enough": DISK_BYTES}, True),
        (100_000, {"disk_full_ratio": 1.0}, False),
    ],
)
def test_what_counts_as_full(free: int, settings: dict[str, object], refused: bool) -> None:
    disk = MemoryDisk()
    disk.room_bytes = free
    rig = rig_on(disk, **settings)
    assert (rig.send(rig.connect()).code == ResponseCode.SERVICE_NOT_AVAILABLE) == refused


def test_where_asked_for_the_oldest_messages_go_before_producers_are_refused() -> None:
    disk = MemoryDisk()
    small = {"segment_bytes": 2_000, "disk_free_bytes_enough": 10_000}
    rig = rig_on(disk, clean_forcibly=True, **small)
    link = rig.connect()
    for number in range(60):
        rig.send(link, bytes(500), queue_id=number % 2)
        rig.advance(1)
    disk.room_bytes = 2_000
    rig.advance(retention.SPACE_INTERVAL_MS)
    assert told(rig, "were deleted early") == ["WARNING"]
    assert disk.room_bytes >= 10_000
    ends = [(rig.messages(TOPIC, q)[0].queue_offset, rig.messages(TOPIC, q)[-1]) for q in (0, 1)]
    assert all(0 < first < 20 and last.queue_offset == 29 for first, last in ends)
    assert rig.send(link).code == ResponseCode.SUCCESS


def test_many_logs_are_looked_at_a_thousand_at_a_time() -> None:
    rig = Rig(BrokerConfig(store=StoreConfig(retention_ms=5_000)))
    link = rig.connect()
    rig.send(link)  # this log is looked at last
    for number in range(2 * retention.LOGS_MAX):
        rig.store.create_log(f"topic-{number}", 0)
    rig.advance(9_000)
    assert rig.messages(TOPIC)
    rig.advance(1_000 + retention.LOGS_PAUSE_MS)
    assert rig.messages(TOPIC)
    rig.advance(retention.LOGS_PAUSE_MS)
    assert not rig.messages(TOPIC)
    assert told(rig, "messages past their retention were deleted") == ["INFO"]
