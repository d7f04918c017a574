"""A folder with everything in it that a broker keeps: messages and batches, offsets, groups, transactions, delays.

    python -m tests.damage.filling tests/golden/store-format-N.zip

writes such a folder as a zip, with `expected.json`, what consumers of both dialects read from it. Run it once with the
last version that writes a format, before the format changes; `test_formats` opens it for ever after.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Sequence

from tests.damage.both import BothRig
from tests.damage.reading import read_everything
from tests.nodes.broker.conftest import send_ext
from tests.nodes.broker.kafka.conftest import batch
from tests.nodes.broker.kafka.requests import committing, joining, share, syncing

from steelyard.store.memory import MemoryDisk
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from steelyard.wire.kafka.messages.data import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from steelyard.wire.kafka.messages.groups import JoinGroupResponse, SyncGroupResponse
from steelyard.wire.kafka.messages.logs import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from steelyard.wire.kafka.messages.offsets import OffsetCommitResponse
from steelyard.wire.kafka.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from steelyard.wire.kafka.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from steelyard.wire.kafka.records import TRANSACTIONAL
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command

ORDERS, EVENTS, MIXED = "orders", "events", "mixed"
COMMIT, ROLLBACK = 8, 12


def fill(rig: BothRig) -> None:
    """Write it all, through the protocols."""
    _rocketmq_messages(rig)
    _rocketmq_transactions(rig)
    _kafka_batches(rig)
    _mixed(rig)
    _kafka_transactions(rig)
    _offsets(rig)
    _groups(rig)
    _deletions(rig)


def _send(rig: BothRig, topic: str, queue_id: int, body: bytes, **properties: str) -> Command:
    wanted = {props.UNIQ_KEY: f"{topic}{queue_id}{len(body):04}", props.WAIT: "true", **properties}
    text = props.encode_properties(wanted).removesuffix("\x02")
    flag = 4 if props.TRAN_MSG in properties else 0
    ext = send_ext(topic, queue_id, i=text, f=flag, d=2)
    answer = rig.ask(rig.remoting_link, RequestCode.SEND_MESSAGE_V2, ext, body)
    assert answer.code == 0, answer
    rig.now += 7
    return answer


def _rocketmq_messages(rig: BothRig) -> None:
    for number in range(40):
        body = b"order %03d " % number + b"x" * (number * 7 % 150)
        _send(rig, ORDERS, number % 2, body, TAGS=f"Tag{number % 3}", KEYS=f"key{number}")
    _send(rig, ORDERS, 0, b"later", DELAY="5")


def _rocketmq_transactions(rig: BothRig) -> None:
    properties = {props.TRAN_MSG: "true", props.PGROUP: "tx-group"}
    for state in (COMMIT, ROLLBACK, 0):
        sent = _send(rig, ORDERS, 1, b"half %d" % state, **properties)
        if state:
            ext = {
                "producerGroup": "tx-group",
                "tranStateTableOffset": sent.ext["queueOffset"],
                "commitLogOffset": int(sent.ext["msgId"][-16:], 16),
                "commitOrRollback": state,
                "fromTransactionCheck": "false",
                "msgId": sent.ext["transactionId"],
            }
            assert rig.ask(rig.remoting_link, RequestCode.END_TRANSACTION, ext).code == 0


def produce(rig: BothRig, topic: str, partition: int, data: bytes, tx: str | None = None) -> None:
    """One batch, which must be taken."""
    part = PartitionProduceData(partition, data)
    request = ProduceRequest(tx, -1, 1000, [TopicProduceData(topic, partition_data=[part])])
    answer = rig.kafka(request, 9, ProduceResponse).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NONE, answer
    rig.now += 7


def _values(first: int, count: int) -> Sequence[bytes]:
    return [b"event %03d " % n + b"y" * (n * 11 % 90) for n in range(first, first + count)]


def _kafka_batches(rig: BothRig) -> None:
    topic = CreatableTopic(EVENTS, 2, 1)
    answer = rig.kafka(CreateTopicsRequest([topic], 1000), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer
    for number in range(15):
        data = batch(*_values(number * 3, number % 4 + 1), compression=number % 5)
        produce(rig, EVENTS, number % 2, data)
    for sequence in range(3):
        data = batch(b"once %d" % sequence, producer_id=77_000, epoch=0, sequence=sequence)
        produce(rig, EVENTS, 0, data)


def _mixed(rig: BothRig) -> None:
    """Both kinds of entry in one log, in turn."""
    for number in range(12):
        _send(rig, MIXED, 0, b"message %d" % number, TAGS="mixed")
        produce(rig, MIXED, 0, batch(*_values(number, 2)))


def _kafka_transactions(rig: BothRig) -> None:
    rig.kafka(FindCoordinatorRequest("tx-0", 1), 3, FindCoordinatorResponse)
    for number, outcome in enumerate((True, False, None)):
        name = f"tx-{number}"
        begun = rig.kafka(InitProducerIdRequest(name, 60_000), 4, InitProducerIdResponse)
        assert begun.error_code == 0, begun
        ids = (begun.producer_id, begun.producer_epoch)
        added = rig.kafka(
            AddPartitionsToTxnRequest(name, *ids, [AddPartitionsToTxnTopic(EVENTS, [1])]),
            3,
            AddPartitionsToTxnResponse,
        )
        assert added.results_by_topic[0].results_by_partition[0].partition_error_code == 0
        data = batch(
            b"in a transaction",
            producer_id=ids[0],
            epoch=ids[1],
            sequence=0,
            attributes=TRANSACTIONAL,
        )
        produce(rig, EVENTS, 1, data, name)
        if outcome is not None:
            ended = rig.kafka(EndTxnRequest(name, *ids, outcome), 3, EndTxnResponse)
            assert ended.error_code == 0, ended
            rig.advance(100)
        produce(rig, EVENTS, 1, batch(b"after %d" % number))


def _offsets(rig: BothRig) -> None:
    for group in ("readers", "others"):
        for offset in (3, 5, 8):
            for queue_id in (0, 1):
                rig.ask(
                    rig.remoting_link,
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    {
                        "consumerGroup": group,
                        "topic": ORDERS,
                        "queueId": queue_id,
                        "commitOffset": offset + queue_id,
                    },
                )
    for group in ("app-1", "app-2"):
        for offset in (2, 4, 6):
            answer = rig.kafka(
                committing(group, EVENTS, {0: offset, 1: offset + 1}), 8, OffsetCommitResponse
            )
            assert answer.topics[0].partitions[0].error_code == 0, answer


def _groups(rig: BothRig) -> None:
    first = rig.kafka(joining("members", EVENTS, session_ms=1_800_000), 4, JoinGroupResponse)
    again = joining("members", EVENTS, first.member_id, 1_800_000)
    joined = rig.kafka(again, 4, JoinGroupResponse)
    assert joined.error_code == 0, joined
    shares = {joined.member_id: share(EVENTS, (0, 1))}
    sync = syncing("members", joined.generation_id, joined.member_id, shares)
    assert rig.kafka(sync, 3, SyncGroupResponse).error_code == 0
    commit = committing("members", EVENTS, {0: 9, 1: 9}, joined.member_id, joined.generation_id)
    assert rig.kafka(commit, 7, OffsetCommitResponse).topics[0].partitions[0].error_code == 0
    beat = ConsumerGroupHeartbeatRequest(
        "new-members",
        "m1",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[EVENTS],
        topic_partitions=[],
    )
    assert rig.kafka(beat, 1, ConsumerGroupHeartbeatResponse).error_code == 0


def _deletions(rig: BothRig) -> None:
    """A log that begins in the middle of a segment, and a topic that is no more."""
    gone = [DeleteRecordsTopic(EVENTS, [DeleteRecordsPartition(0, 5)])]
    answer = rig.kafka(DeleteRecordsRequest(gone, 1000), 2, DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].error_code == 0, answer
    _send(rig, "deleted", 0, b"gone")
    rig.ask(rig.remoting_link, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "deleted"})


def filled() -> MemoryDisk:
    """Such a folder, after a clean stop."""
    rig = BothRig()
    fill(rig)
    rig.stop()
    return rig.disk


def main(path: str) -> None:
    disk = filled()
    expected = read_everything(BothRig(disk.copy()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, file in sorted(disk.files.items()):
            _put(archive, f"data/{name}", bytes(file.data))
        _put(archive, "expected.json", json.dumps(expected, indent=1, sort_keys=True).encode())


def _put(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """A member without a date, so that the same folder gives the same archive."""
    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main(sys.argv[1])
