"""Records with a header TIMER_*: which wait, when they come, and what an idempotent producer is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.nodes.broker.driver import START, TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig
from tests.nodes.broker.kafka.test_produce import send

from steelyard.config import BrokerConfig, FlushMode, KafkaConfig
from steelyard.nodes.broker.kafka.data import delayed
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.records import (
    TRANSACTIONAL,
    Record,
    read_header,
    read_headers,
    read_records,
    write_batch,
)

Header = tuple[str, bytes | None]


def records(*parts: tuple[bytes, Sequence[Header]]) -> list[Record]:
    return [
        Record(number, START + number, b"k", value, tuple(headers))
        for number, (value, headers) in enumerate(parts)
    ]


def found(rig: KafkaRig, topic: str = TOPIC) -> list[Record]:
    log = rig.store.log(topic, 0)
    if log is None or not log.max_offset:
        return []
    data = log.read_run(0, 1 << 20, None).data
    return [each for at, _ in read_headers(data) for each in read_records(data, at)]


def values(rig: KafkaRig) -> list[bytes | None]:
    return [record.value for record in found(rig)]


MIXED = records(
    (b"now", ()),
    (b"later", (("a", b"1"), ("TIMER_DELAY_MS", b"1500"))),
    (b"past", (("TIMER_DELIVER_MS", b"5"),)),
    (b"again", (("TIMER_DELAY_MS", b"1500"), ("TIMER_OUT_MS", b"5"))),
    (b"soon", (("TIMER_DELIVER_MS", b"%d" % (START + 900)),)),
)


@pytest.mark.parametrize("compression", range(5))
def test_records_with_the_header_wait_and_the_others_do_not(
    rig: KafkaRig, compression: int
) -> None:
    rig.create_topic()
    answer = send(rig, write_batch(MIXED, compression=compression))
    assert (answer.error_code, answer.base_offset) == (0, -1)
    assert values(rig) == [b"now", b"past", b"again"]
    assert read_header(rig.log().entry_at(0)).compression == compression
    rig.advance(899)
    assert len(found(rig)) == 3
    rig.restart()
    rig.advance(1)
    assert values(rig)[3:] == [b"soon"]
    rig.advance(600)
    assert found(rig)[4] == Record(
        4,
        START + 1,
        b"k",
        b"later",
        (
            ("a", b"1"),
            ("TIMER_DELAY_MS", b"1500"),
            ("TIMER_OUT_MS", b"%d" % (START + 1_500)),
        ),
    )


def test_a_topic_with_times_of_append_gets_the_time_when_the_record_is_due(rig: KafkaRig) -> None:
    rig.create_topic(settings={"message.timestamp.type": "LogAppendTime"})
    send(rig, write_batch(records((b"x", (("TIMER_DELAY_SEC", b"2"),)))))
    rig.advance(2_000)
    assert found(rig)[0].timestamp == START + 2_000


@pytest.mark.parametrize(
    ("header", "attributes", "text"),
    [
        (("TIMER_DELAY_MS", b"soon"), 0, "must be a number, not 'soon'"),
        (("TIMER_DELAY_MS", None), 0, "must be a number"),
        (("TIMER_DELAY_SEC", b"259201"), 0, "max delay 259200000ms"),
        (("TIMER_DELAY_MS", b"5"), TRANSACTIONAL, "a record of a transaction cannot be delayed"),
    ],
)
def test_what_is_refused(header: Header, attributes: int, text: str) -> None:
    kafka = KafkaConfig(transaction_partition_verification_enable=False)
    rig = KafkaRig(BrokerConfig(kafka=kafka))
    rig.create_topic()
    whole = records((b"now", ()), (b"x", (header,)))
    answer = send(
        rig,
        write_batch(whole, producer_id=7, producer_epoch=0, base_sequence=0, attributes=attributes),
    )
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.error_message is not None
    assert text in answer.error_message
    assert found(rig) == []


def test_a_value_that_only_looks_like_a_header_changes_nothing(rig: KafkaRig) -> None:
    rig.create_topic()
    sent = write_batch(records((b"TIMER_DELAY_MS", ())))
    assert send(rig, sent).base_offset == 0
    assert rig.log().entry_at(0)[16:] == sent[16:]


def test_a_batch_that_unpacks_to_too_much_is_not_searched(
    rig: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed, "SEARCHED_BYTES_MAX", 1_000)
    rig.create_topic()
    sent = write_batch(records((b"x" * 2_000, (("TIMER_DELAY_MS", b"5"),))), compression=4)
    assert send(rig, sent).base_offset == 0


def test_a_broker_can_leave_headers_alone() -> None:
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(delayed_records=False)))
    rig.create_topic()
    assert send(rig, write_batch(MIXED)).base_offset == 0
    assert len(found(rig)) == 5


@pytest.mark.parametrize("flush", ["async", "sync"])
@pytest.mark.parametrize("restarts", [False, True])
def test_an_idempotent_producer_goes_on_and_repeats_nothing(
    flush: FlushMode, restarts: bool
) -> None:
    rig = KafkaRig(replace(KafkaRig().config, flush=flush))
    rig.create_topic()
    three = records((b"a", (("TIMER_DELAY_MS", b"500"),)), (b"b", ()), (b"c", ()))
    alone = records((b"d", (("TIMER_DELAY_MS", b"500"),)))
    sequence = 0
    for whole, offset in ((three, -1), (alone, -1), (records((b"e", ())), 2)):
        sent = write_batch(whole, producer_id=7, producer_epoch=0, base_sequence=sequence)
        for _ in range(2):
            answer = send(rig, sent)
            assert (answer.error_code, answer.base_offset) == (0, offset)
            if restarts:
                rig.restart()
        sequence += len(whole)
    rig.advance(500)
    assert values(rig) == [b"b", b"c", b"e", b"a", b"d"]
