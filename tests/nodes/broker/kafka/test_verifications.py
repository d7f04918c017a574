"""Proofs that a coordinator knows of a partition: what ends them, and in which order batches are written."""

from __future__ import annotations

import pytest
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch

from steelyard.nodes.broker.kafka.data import verifications
from steelyard.nodes.broker.kafka.data.verifications import Verifications
from steelyard.store.log import Log
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.records import TRANSACTIONAL, BatchHeader, read_header

E = ErrorCode


@pytest.fixture
def log(rig: KafkaRig) -> Log:
    rig.create_topic()
    return rig.store.create_log(TOPIC, 0)


def header(sequence: int = 0, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return read_header(
        batch(producer_id=producer_id, epoch=epoch, sequence=sequence, attributes=TRANSACTIONAL)
    )


def begun(proofs: Verifications, sequence: int = 0, epoch: int = 0, *, bumps: bool = False) -> int:
    return proofs.begin(TOPIC, 0, header(sequence, epoch), bumps=bumps)


def test_a_verification_is_used_once(log: Log) -> None:
    proofs = Verifications()
    serial = begun(proofs)
    assert begun(proofs) == serial
    assert proofs.fault(log, header(), serial, is_known=False) == E.NONE
    assert proofs.fault(log, header(), None, is_known=False) == E.INVALID_TXN_STATE
    proofs.wrote(log, 7)
    assert proofs.fault(log, header(), serial, is_known=False) == E.INVALID_TXN_STATE
    assert begun(proofs) != serial


@pytest.mark.parametrize(
    ("bumps", "epoch", "is_left"),
    [(False, 3, False), (False, 4, False), (True, 3, True), (True, 4, False)],
)
def test_a_marker_ends_it(log: Log, bumps: bool, epoch: int, is_left: bool) -> None:
    """But not, with version 2, that of the transaction before, which has the epoch of this one."""
    proofs = Verifications()
    serial = begun(proofs, epoch=3, bumps=bumps)
    proofs.ended(log, 7, epoch)
    fault = proofs.fault(log, header(epoch=3), serial, is_known=False)
    assert fault == (E.NONE if is_left else E.INVALID_TXN_STATE)


def test_no_batch_comes_before_the_lowest_that_was_asked_for(log: Log) -> None:
    proofs = Verifications()
    serial = begun(proofs, 5)
    begun(proofs, 3)
    begun(proofs, 4)
    found = [proofs.fault(log, header(each), serial, is_known=True) for each in (3, 4, 5)]
    assert found == [E.NONE, E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    begun(proofs, 0, epoch=1)
    found = [proofs.fault(log, header(each, 1), serial, is_known=True) for each in (0, 3)]
    assert found == [E.NONE, E.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_version_2_begins_at_0(log: Log) -> None:
    proofs = Verifications()
    serial = begun(proofs, 2, bumps=True)
    late = E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert proofs.fault(log, header(2), serial, is_known=False) == late
    assert proofs.fault(log, header(2), serial, is_known=True) == E.NONE


def test_the_oldest_are_forgotten(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifications, "VERIFICATIONS_MAX", 3)
    proofs = Verifications()
    serials = {
        number: proofs.begin(TOPIC, 0, header(producer_id=number), bumps=False)
        for number in range(5)
    }
    faults = [
        proofs.fault(log, header(producer_id=number), serial, is_known=False)
        for number, serial in serials.items()
    ]
    assert faults == [E.INVALID_TXN_STATE] * 2 + [E.NONE] * 3
