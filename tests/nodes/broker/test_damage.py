"""Damage on the disk as clients, operators and the broker's own readers meet it."""

from __future__ import annotations

import pytest
from tests.damage.both import SMALL, BothRig
from tests.damage.filling import fill
from tests.damage.reading import faults_of, read_everything
from tests.nodes.broker.conftest import pull_ext
from tests.nodes.broker.driver import START
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.test_produce import request as producing

from steelyard.config import BrokerConfig, StoreConfig
from steelyard.nodes.broker.damage import PLACES_MAX, REPEAT_MS, DamageReports
from steelyard.nodes.broker.remoting.pull import REFUSED_MS
from steelyard.nodes.broker.scrubbing import FIRST_PASS_MS, LOGS_MAX, PIECE_BYTES
from steelyard.nodes.seam import Effect
from steelyard.store.findings import FINDINGS_MAX, Finding, Findings
from steelyard.store.log import Log
from steelyard.store.memory import MemoryDisk
from steelyard.types import joined
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ProduceResponse,
)
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import KVTable
from steelyard.wire.remoting.codes import RequestCode, ResponseCode

ALL = {"sysFlag": 4, "subscription": "*"}


@pytest.fixture(scope="module")
def folder() -> MemoryDisk:
    """A data directory with both dialects' data, after a clean stop."""
    rig = BothRig()
    fill(rig)
    rig.stop()
    return rig.disk


def the_log(rig: BothRig | KafkaRig, topic: str, queue_id: int = 0) -> Log:
    log = rig.store.log(topic, queue_id)
    assert log is not None
    return log


def flip(rig: BothRig | KafkaRig, topic: str, offset: int, byte: int, queue_id: int = 0) -> str:
    """Flip a bit of the entry that holds an offset: in which file."""
    log = the_log(rig, topic, queue_id)
    segment = log.find_run(offset, 0, log.max_offset).segment
    path = segment.log_path
    rig.disk.files[path].data[segment.row(offset)[0] - segment.base_position + byte] ^= 2
    return path


def errors(rig: BothRig) -> list[str]:
    return [tell.text for tell in rig.told if tell.level == "ERROR"]


def fetched(rig: BothRig, topic: str, offset: int) -> tuple[int, bytes]:
    part = FetchPartition(0, fetch_offset=offset, partition_max_bytes=100_000)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic, b"", [part])])
    answer = rig.kafka(request, 11, FetchResponse).responses[0].partitions[0]
    return answer.error_code, joined([answer.records or b""])


def fetching(
    *places: tuple[str, int], wait_ms: int = 0, session: tuple[int, int] = (0, -1)
) -> FetchRequest:
    """From an offset of partition 0 of each topic on."""
    topics = [
        FetchTopic(topic, bytes(16), [FetchPartition(0, -1, offset, partition_max_bytes=100_000)])
        for topic, offset in places
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
    )


def codes(answer: FetchResponse) -> dict[str, int]:
    """The error code of each topic's partition."""
    return {topic.topic: topic.partitions[0].error_code for topic in answer.responses}


def info(rig: BothRig) -> dict[str, str]:
    answer = rig.ask(rig.remoting_link, RequestCode.GET_BROKER_RUNTIME_INFO)
    return dict(fastjson.read(KVTable, answer.body).table)


def test_a_damaged_message_is_an_error_of_both_protocols_and_is_named_once(
    folder: MemoryDisk,
) -> None:
    """The bit is in the properties, which no checksum of RocketMQ's covers."""
    rig = BothRig(folder.copy())
    entry = the_log(rig, "orders").entry_at(3)
    path = flip(rig, "orders", 3, len(entry) - 4)
    found = rig.ask(rig.remoting_link, RequestCode.PULL_MESSAGE, pull_ext(1, topic="orders", **ALL))
    assert (found.code, found.ext["nextBeginOffset"]) == (0, "3")
    for _ in range(3):
        answer = rig.ask(
            rig.remoting_link, RequestCode.PULL_MESSAGE, pull_ext(3, topic="orders", **ALL)
        )
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (
            f"the message at offset 3 of queue 0 of topic 'orders' is damaged on the disk ({path}"
            in answer.remark
        )
        assert fetched(rig, "orders", 3) == (ErrorCode.CORRUPT_MESSAGE, b"")
    (error,) = errors(rig)
    assert f"{path}, byte " in error
    assert "topic 'orders', queue 0, offset 3)" in error
    assert "reset the groups' offsets to 4" in error
    assert info(rig)["damagedEntries"] == "1"
    assert int(info(rig)["damagedReadsRefused"]) >= 6
    assert fetched(rig, "orders", 4)[0] == 0
    rig.now += REPEAT_MS
    assert fetched(rig, "orders", 3)[0] == ErrorCode.CORRUPT_MESSAGE
    assert errors(rig) == [error, error]


def test_a_pull_that_may_wait_is_refused_after_a_second(folder: MemoryDisk) -> None:
    """The C++ client asks again at once. What is appended meanwhile is no reason to answer."""
    rig = BothRig(folder.copy())
    flip(rig, "orders", 3, len(the_log(rig, "orders").entry_at(3)) - 4)
    waits = {"sysFlag": 6, "subscription": "*", "suspendTimeoutMillis": 15_000}
    asked = rig.post(
        rig.remoting_link, RequestCode.PULL_MESSAGE, pull_ext(3, topic="orders", **waits)
    )
    rig.advance(REFUSED_MS - 100)
    sender = rig.connect("10.0.0.3:5000")
    rig.send(sender, topic="orders")
    assert rig.reply_to(rig.remoting_link, asked) is None
    rig.advance(150)
    answer = rig.reply_to(rig.remoting_link, asked)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("byte", [2, 9, 13, 16, 18, 70])
def test_a_damaged_batch_is_given_to_nobody(folder: MemoryDisk, byte: int) -> None:
    """Also where the bit is in what the batch's own checksum does not cover: offset, size, epoch, magic."""
    rig = BothRig(folder.copy())
    flip(rig, "events", 8, byte)
    code, records = fetched(rig, "events", 8)
    assert (code, records) == (ErrorCode.CORRUPT_MESSAGE, b"")
    answer = rig.ask(
        rig.remoting_link, RequestCode.PULL_MESSAGE, pull_ext(8, topic="events", **ALL)
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert len(errors(rig)) == 1


def test_a_fetch_of_damage_alone_is_answered_when_its_time_is_over(folder: MemoryDisk) -> None:
    """aiokafka and kafka-python ask again at once, as often as they are answered. The damaged log grows: no news for them."""
    rig = KafkaRig(SMALL, folder.copy())
    flip(rig, "events", 8, 70)
    rig.create_topic("whole")
    reader, writer = rig.link, rig.connect()
    begun = rig.ask(fetching(("events", 8), ("whole", 0), session=(0, 0)), 12, FetchResponse)
    session = begun.session_id
    for epoch, names in ((-1, [("events", 8), ("whole", 0)]), (1, [])):
        asked = fetching(*names, wait_ms=500, session=(session if epoch > 0 else 0, epoch))
        number = rig.post(asked, 12, link=reader)
        rig.advance(480)
        rig.ask(producing(batch(), topic="events"), 9, ProduceResponse, link=writer)
        assert rig.answer_to(number, FetchResponse) is None
        rig.advance(20)
        answer = rig.answer_to(number, FetchResponse)
        assert answer is not None
        assert codes(answer)["events"] == ErrorCode.CORRUPT_MESSAGE


def test_a_fetch_that_waits_beside_damage_hears_of_the_others(folder: MemoryDisk) -> None:
    rig = KafkaRig(SMALL, folder.copy())
    flip(rig, "events", 8, 70)
    rig.create_topic("whole")
    reader, writer = rig.link, rig.connect()
    number = rig.post(fetching(("events", 8), ("whole", 0), wait_ms=500), 12, link=reader)
    rig.ask(producing(batch(), topic="whole"), 9, ProduceResponse, link=writer)
    answer = rig.answer_to(number, FetchResponse)
    assert answer is not None
    assert codes(answer) == {"events": ErrorCode.CORRUPT_MESSAGE, "whole": 0}


def test_a_damaged_index_row_costs_nothing_and_is_a_warning(folder: MemoryDisk) -> None:
    expected = read_everything(BothRig(folder.copy()))
    disk = folder.copy()
    path = min(
        path for path in disk.files if path.startswith("logs/orders/0") and path.endswith(".rows")
    )
    disk.files[path].data[30:34] = b"oops"
    rig = BothRig(disk)
    assert read_everything(rig) == expected
    texts = [
        tell.text for tell in rig.told if tell.level == "WARNING" and "was repaired" in tell.text
    ]
    assert len(texts) == 1
    assert path in texts[0]
    assert info(rig)["indexRowsMended"] == "1"
    assert info(rig)["damagedEntries"] == "0"


@pytest.mark.proof
def test_the_brokers_own_readers_go_on_behind_damage(folder: MemoryDisk) -> None:
    """Half messages, operations, delayed messages, and batches of producers whose state is learned anew."""
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"):
        for number in range(3):
            disk = folder.copy()
            rig = BothRig(disk)
            queue = 4 if topic.startswith("SCHEDULE") else 0
            log = the_log(rig, topic, queue)
            if number < log.max_offset:
                flip(rig, topic, number, 50, queue)
                for state in (BothRig(disk.copy()), BothRig(disk)):
                    state.advance(300_000)
                    assert any(topic in text for text in errors(state)), topic
                    assert not faults_of(read_everything(state)) or topic in str(
                        faults_of(read_everything(state))
                    )


def test_after_a_clean_stop_no_operation_is_needed_to_know_which_transactions_are_open() -> None:
    rig = BothRig()
    fill(rig)
    rig.stop()
    expected = read_everything(BothRig(rig.disk.copy()))["transactions"]
    log = the_log(BothRig(rig.disk.copy()), "RMQ_SYS_TRANS_OP_HALF_TOPIC")
    assert log.max_offset > 1
    for offset in range(log.max_offset):
        segment = log.find_run(offset, 0, log.max_offset).segment
        disk = rig.disk.copy()  # as the stop left it: no broker has been there since
        at = segment.row(offset)[0] - segment.base_position
        disk.files[segment.log_path].data[at + 60] ^= 2
        again = BothRig(disk)
        assert read_everything(again)["transactions"] == expected


@pytest.mark.parametrize(
    ("topic", "queue_id", "word"),
    [
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, b"OUTCOME"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"REAL_QID"),
        ("SCHEDULE_TOPIC_XXXX", 4, b"REAL_QID"),
    ],
)
def test_nonsense_in_what_the_broker_wrote_for_itself_is_passed_over(
    topic: str, queue_id: int, word: bytes
) -> None:
    """The index was lost with a kill, so that no checksum covers the properties."""
    rig = BothRig()
    fill(rig)
    disk = rig.disk.copy()
    log = the_log(rig, topic, queue_id)
    for path in [path for path in disk.files if path.startswith(log.folder)]:
        data = disk.files[path].data
        if path.endswith(".rows"):
            disk.remove(path)
        else:
            assert word in data
            data[:] = data.replace(word, word.swapcase())
    again = BothRig(disk)
    again.advance(120_000)
    texts = [tell.text for tell in again.told if tell.level in ("WARNING", "ERROR")]
    assert any("damaged" in text for text in texts), texts


def test_a_pass_of_the_scrubber_finds_what_nobody_reads(folder: MemoryDisk) -> None:
    rig = BothRig(folder.copy())
    assert info(rig)["scrubPasses"] == "0"
    path = flip(rig, "mixed", 5, 60)
    rig.advance(FIRST_PASS_MS - 1)
    assert not errors(rig)
    rig.advance(10_000)
    (error,) = errors(rig)
    assert path in error
    after = info(rig)
    logs = sum(len(rig.store.logs(topic)) for topic in rig.store.topics())
    assert after["scrubPasses"] == "1"
    assert after["scrubbedLogs"] == f"{logs} of {logs}"
    size = sum(log.size() for topic in rig.store.topics() for log in rig.store.logs(topic))
    assert 0.8 * size < int(after["scrubbedBytes"]) <= size
    assert int(after["scrubPassEndedAt"]) >= START + FIRST_PASS_MS


def test_the_scrubber_keeps_to_its_rate_and_can_be_switched_off() -> None:
    rates = {}
    for rate in (0, 1_000_000):
        store = StoreConfig(retention_ms=0, scrub_bytes_per_second=rate)
        config = BrokerConfig(kafka=SMALL.kafka, ledger=False, store=store)
        rig = BothRig(config=config)
        for number in range(60):
            assert rig.send(rig.remoting_link, bytes([number]) * 50_000).code == 0
        before = rig.now
        rig.advance(FIRST_PASS_MS + 1_000)
        rates[rate] = int(info(rig)["scrubbedBytes"])
        assert rig.now - before >= FIRST_PASS_MS
    assert rates[0] == 0
    assert 900_000 <= rates[1_000_000] <= 1_000_000 + 2 * PIECE_BYTES
    assert LOGS_MAX == 100


def test_reports_and_findings_are_bounded() -> None:
    findings = Findings()
    reports = DamageReports(findings)
    effects: list[Effect] = []
    for start in range(0, PLACES_MAX + 1, FINDINGS_MAX):
        for number in range(start, start + FINDINGS_MAX + 5):
            findings.note(Finding("a.log", number, 1, "t", 0, number, 1, "bad"))
        assert len(findings.waiting) == FINDINGS_MAX
        reports.report(START, effects)
    assert reports.entries == len(effects) > PLACES_MAX
    findings.note(Finding("a.log", 0, 1, "t", 0, 0, 1, "bad"))  # it was forgotten
    reports.report(START, effects)
    assert len(effects) == reports.entries
