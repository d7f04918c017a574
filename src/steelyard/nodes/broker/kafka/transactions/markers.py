"""Transaction markers in the logs of this broker: control batches that commit or abort."""

from __future__ import annotations

from steelyard.errors import StorageError
from steelyard.groups.kafka.transactional_ids import Marking
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.writer import Writer
from steelyard.nodes.seam import Effect
from steelyard.store.store import Store
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.records import ABORT, COMMIT, Marker, read_header, write_marker


class Markers:
    """Writes transaction markers."""

    def __init__(self, producers: Producers, store: Store, writer: Writer, faults: Faults) -> None:
        self._producers = producers
        self._store = store
        self._writer = writer
        self._faults = faults

    def write(
        self,
        topic: str,
        queue_id: int,
        marking: Marking,
        coordinator_epoch: int,
        now: int,
        effects: list[Effect],
    ) -> ErrorCode:
        """End a producer's transaction in one queue; a second marker does no harm.

        Returns INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if a newer producer or
        coordinator was here, KAFKA_STORAGE_ERROR if the disk refuses the marker.
        """
        producer_id, epoch, commit = marking.producer_id, marking.producer_epoch, marking.commit
        try:
            log = self._store.create_log(topic, queue_id)
            fault = self._producers.marker_fault(
                log, producer_id, epoch, coordinator_epoch, now, version=marking.version
            )
            if fault:
                return fault
            self._producers.prepare(log)
            kind = COMMIT if commit else ABORT
            batch = write_marker(
                Marker(kind, coordinator_epoch),
                base_offset=log.max_offset,
                producer_id=producer_id,
                producer_epoch=epoch,
                timestamp=now,
            )
            offset = self._writer.write_batch(log, batch, 1, now)
            header = read_header(batch)
            self._producers.ended(log, header, coordinator_epoch, offset, now, abort=not commit)
        except StorageError as error:
            self._faults.tell(f"a marker in {topic} was not written: {error}", now, effects)
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._writer.wrote(log, offset, now, effects)
        return ErrorCode.NONE
