"""A broker that compacts small segments soon, and what a consumer of committed records reads of a topic."""

from __future__ import annotations

from collections.abc import Mapping

from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig
from tests.nodes.broker.kafka.test_fetch import request

from steelyard.config import BrokerConfig, KafkaConfig, StoreConfig
from steelyard.store.memory import MemoryDisk
from steelyard.types import joined
from steelyard.wire.kafka.messages.data import FetchResponse
from steelyard.wire.kafka.records import ABORT, Record, read_headers, read_marker, read_records

SOON = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "100000",
}
INTERVAL_MS = 1_000


def small_rig(
    disk: MemoryDisk | None = None, segment_bytes: int = 600, **settings: object
) -> KafkaRig:
    store = StoreConfig(
        segment_bytes=segment_bytes,
        retention_ms=0,
        compaction_interval_ms=INTERVAL_MS,
        index_flush_rows=4,
        **settings,  # type: ignore[arg-type]
    )
    return KafkaRig(
        BrokerConfig(
            store=store, kafka=KafkaConfig(transaction_partition_verification_enable=False)
        ),
        disk,
    )


def ready_rig(settings: Mapping[str, str] = SOON, **others: object) -> KafkaRig:
    """A broker with a compacted topic."""
    rig = small_rig(**others)  # type: ignore[arg-type]
    rig.create_topic(settings=dict(settings))
    return rig


def compact(rig: KafkaRig) -> int:
    """Let time pass until nothing is left to do; how many passes there were."""
    statistics = rig.node._parts.statistics
    before = statistics.compactions
    for _ in range(200):
        done = statistics.compactions
        rig.advance(INTERVAL_MS + 200)
        if rig.node._compaction.is_idle and statistics.compactions == done:
            return statistics.compactions - before
    raise AssertionError("compaction goes on for ever")


def records(rig: KafkaRig, start: int = 0, *, committed: bool = True) -> list[Record]:
    """What a consumer reads from an offset on, by the rules that Java's follows for aborted transactions."""
    found: list[Record] = []
    offset = start
    while True:
        asked = request(offset, topic=TOPIC, part_bytes=300, isolation=int(committed))
        answer = rig.ask(asked, 11, FetchResponse)
        part = answer.responses[0].partitions[0]
        assert part.error_code == 0
        data = joined([part.records or b""])
        aborted = sorted(part.aborted_transactions or (), key=lambda each: each.first_offset)
        hidden: set[int] = set()
        following = offset
        for at, header in read_headers(data):
            while aborted and aborted[0].first_offset <= header.last_offset:
                hidden.add(aborted.pop(0).producer_id)
            following = header.next_offset
            if header.is_control:
                marker = read_marker(data, at)
                if marker is not None and marker.kind == ABORT:
                    hidden.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in hidden):
                found += [each for each in read_records(data, at) if each.offset >= offset]
        if following == offset:
            return found
        offset = following


def state(found: list[Record]) -> dict[bytes | None, bytes]:
    """The table that a reader makes of a changelog."""
    table: dict[bytes | None, bytes] = {}
    for record in found:
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table
