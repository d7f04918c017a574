"""Proofs that the coordinator of a transaction knows of a partition, before its first record there.

A leader that wrote transactional records unknown to the coordinator could wait for their marker for
ever (a hanging transaction). So it asks the coordinator first, and a verification that it began
before the question has to be there still when it writes: a marker that came meanwhile, of the
transaction that was asked about, has ended it. The first batch ends it, too, because from then on
the log itself shows that the transaction is open.

While there is one, no batch is written before the lowest sequence that was asked for: an earlier
batch may have been refused for a while, and will be sent again.
Source: KIP-890; storage/internals/log/VerificationStateEntry.java, UnifiedLog.java,
ProducerAppendInfo.checkSequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.store.log import Log
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.records import BatchHeader

VERIFICATIONS_MAX = 100_000
"""Most of them; the oldest are forgotten first, and their producers have to ask again."""


class Verified(NamedTuple):
    """What was found out about the partitions of a Produce request.

    `serials`: of the verifications that were begun; `refused`: partitions that must not be written.
    """

    serials: Mapping[TopicPartition, int] = {}
    refused: Mapping[TopicPartition, RequestRefused] = {}


class _Verification(msgspec.Struct):
    """`bumps`: whether each end of a transaction bumps the epoch (transaction.version 2)."""

    serial: int
    epoch: int
    lowest_sequence: int
    bumps: bool


class Verifications:
    """Those of all logs, by topic, queue id and producer id."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], _Verification] = {}
        self._serial = 0

    def begin(self, topic: str, queue_id: int, header: BatchHeader, *, bumps: bool) -> int:
        """Begin the verification of a producer in a log, or continue it; return its serial."""
        key = (topic, queue_id, header.producer_id)
        epoch, sequence = header.producer_epoch, header.base_sequence
        found = self._known.pop(key, None)
        if found is None:
            self._serial += 1
            found = _Verification(self._serial, epoch, sequence, bumps)
        elif epoch > found.epoch:
            found.epoch, found.lowest_sequence = epoch, sequence
        elif epoch == found.epoch:
            found.lowest_sequence = min(found.lowest_sequence, sequence)
        found.bumps = bumps
        self._known[key] = found
        if len(self._known) > VERIFICATIONS_MAX:
            del self._known[next(iter(self._known))]
        return found.serial

    def fault(
        self, log: Log, header: BatchHeader, serial: int | None, *, is_known: bool
    ) -> ErrorCode:
        """Return why the first batch of a transaction must not be written; NONE if it may.

        `serial`: of the verification that was begun for it. `is_known`: whether the log has
        batches of the producer.
        """
        found = self._known.get((log.topic, log.queue_id, header.producer_id))
        if found is None or found.serial != serial:
            return ErrorCode.INVALID_TXN_STATE
        begins_anew = found.bumps and not is_known
        if header.base_sequence > (0 if begins_anew else found.lowest_sequence):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return ErrorCode.NONE

    def wrote(self, log: Log, producer_id: int) -> None:
        """Note that a transactional batch was written."""
        self._known.pop((log.topic, log.queue_id, producer_id), None)

    def ended(self, log: Log, producer_id: int, epoch: int) -> None:
        """Note that a marker was written.

        With transaction.version 2, a marker with the epoch of the verification is that of the
        transaction before.
        """
        key = (log.topic, log.queue_id, producer_id)
        found = self._known.get(key)
        if found is not None and not (found.bumps and found.epoch == epoch):
            del self._known[key]
