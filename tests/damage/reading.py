"""Reads everything that consumers and tools of both dialects can read from a broker, as plain data.

Every topic is read twice: as RocketMQ's consumers read it and as Kafka's do, whatever dialect wrote it. What cannot be
read is noted under `faults`, by offset, and reading goes on behind it. What a client would refuse because of a wrong
checksum is a fault, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.damage.both import BothRig
from tests.nodes.broker.conftest import pull_ext

from steelyard.errors import ProtocolError
from steelyard.types import joined
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import MetadataRequest, MetadataResponse
from steelyard.wire.kafka.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from steelyard.wire.kafka.messages.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from steelyard.wire.kafka.messages.logs import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from steelyard.wire.kafka.messages.offsets import OffsetFetchRequest, OffsetFetchResponse
from steelyard.wire.kafka.messages.transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from steelyard.wire.kafka.records import crc_ok, read_headers, read_records
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import TopicConfigTable
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.message import decode_records

TOPICS = {"orders": 2, "events": 2, "mixed": 1}
"""What `filling` made and clients read, and the number of queues."""

SYSTEM = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX")
GROUPS = ("readers", "others")
KAFKA_GROUPS = ("app-1", "app-2", "members", "new-members")

_PULL_MAX = 5
_FETCH_BYTES = 600
_STEPS_MAX = 2_000

Plain = dict[str, object]


def read_everything(rig: BothRig) -> Plain:
    """See the module's text; the same for the same data."""
    queues = [(topic, n) for topic, count in TOPICS.items() for n in range(count)]
    return {
        "topics": topics_of(rig),
        "remoting": {f"{topic}/{n}": pulled(rig, topic, n) for topic, n in queues},
        "kafka": {f"{topic}/{n}": fetched(rig, topic, n) for topic, n in queues},
        "committed": {f"{topic}/{n}": fetched(rig, topic, n, 1) for topic, n in queues},
        "times": {f"{topic}/{n}": times_of(rig, topic, n) for topic, n in queues},
        "offsets": offsets_of(rig),
        "system": {
            f"{topic}/{log.queue_id}": pulled(rig, topic, log.queue_id)
            for topic in SYSTEM
            for log in rig.store.logs(topic)
        },
        "groups": groups_of(rig),
        "transactions": transactions_of(rig),
    }


def faults_of(reading: Mapping[str, object]) -> list[str]:
    """All faults in what `read_everything` gave."""
    found = []
    for part in ("remoting", "kafka", "committed", "system"):
        logs = reading[part]
        assert isinstance(logs, dict)
        for name, log in logs.items():
            found += [f"{part} {name} {at}: {text}" for at, text in log["faults"].items()]
    return found


def topics_of(rig: BothRig) -> Plain:
    answer = rig.ask(rig.remoting_link, RequestCode.GET_ALL_TOPIC_CONFIG)
    table = fastjson.read(TopicConfigTable, answer.body).topic_config_table
    known = {
        name: [topic.read_queue_nums, topic.write_queue_nums, topic.perm]
        for name, topic in table.items()
        if name in TOPICS
    }
    metadata = rig.kafka(MetadataRequest(None), 12, MetadataResponse)
    theirs = [topic for topic in metadata.topics if topic.name in TOPICS]
    ids = {str(topic.name): topic.topic_id.hex() for topic in theirs}
    partitions = {str(topic.name): len(topic.partitions) for topic in theirs}
    return {"known": known, "kafka ids": ids, "partitions": partitions}


def pulled(rig: BothRig, topic: str, queue_id: int) -> Plain:
    """A queue as RocketMQ's consumers get it."""
    queue = {"topic": topic, "queueId": queue_id}
    link = rig.remoting_link
    low = int(rig.ask(link, RequestCode.GET_MIN_OFFSET, queue).ext.get("offset", -1))
    high = int(rig.ask(link, RequestCode.GET_MAX_OFFSET, queue).ext.get("offset", -1))
    messages: dict[str, object] = {}
    faults: dict[str, str] = {}
    offset = low
    for _ in range(_STEPS_MAX):
        if offset >= high or offset < 0:
            break
        ext = pull_ext(offset, **queue, maxMsgNums=_PULL_MAX, sysFlag=4, subscription="*")
        answer = rig.ask(link, RequestCode.PULL_MESSAGE, ext)
        if answer.code == ResponseCode.SUCCESS:
            _take(answer.body, offset, messages, faults)
            offset = max(offset + 1, int(answer.ext["nextBeginOffset"]))
        elif answer.code in (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED):
            offset = max(offset + 1, int(answer.ext["nextBeginOffset"]))
        elif answer.code == ResponseCode.PULL_NOT_FOUND:
            break
        else:
            faults[str(offset)] = f"code {answer.code}: {answer.remark}"
            offset += 1
    return {"low": low, "high": high, "messages": messages, "faults": faults}


def _take(data: bytes, offset: int, messages: dict[str, object], faults: dict[str, str]) -> None:
    try:
        views = decode_records(data, "broker-a")
    except ProtocolError as error:
        faults[str(offset)] = f"the client cannot read it: {error}"
        return
    for view in views:
        try:
            view.verify()
        except ProtocolError as error:
            faults[str(view.queue_offset)] = f"the client refuses it: {error}"
            continue
        messages[str(view.queue_offset)] = [
            view.topic,
            view.queue_id,
            view.flag,
            view.physical_offset,
            view.sys_flag,
            view.born_timestamp,
            view.born_host,
            view.store_timestamp,
            view.store_host,
            view.reconsume_times,
            view.prepared_transaction_offset,
            view.body.decode("latin-1"),
            view.property_bytes.decode("latin-1"),
        ]


def fetched(rig: BothRig, topic: str, partition: int, isolation: int = 0) -> Plain:
    """A partition as Kafka's consumers get it. `isolation` 1: read committed."""
    ends = [_listed(rig, topic, partition, timestamp)[1] for timestamp in (-2, -1)]
    records: dict[str, object] = {}
    faults: dict[str, str] = {}
    aborted: list[list[int]] = []
    offset, high = ends
    for _ in range(_STEPS_MAX):
        if offset >= high or offset < 0:
            break
        part = _fetch(rig, topic, partition, offset, isolation)
        if part.error_code:
            faults[str(offset)] = f"error {ErrorCode(part.error_code).name}"
            offset += 1
            continue
        for transaction in part.aborted_transactions or ():
            found = [transaction.producer_id, transaction.first_offset]
            if found not in aborted:
                aborted.append(found)
        data = joined([part.records or b""])
        if not data:
            break
        before = offset
        for at, header in read_headers(data):
            offset = max(offset, header.next_offset)
            if not crc_ok(data, at, header.size):
                faults[str(header.base_offset)] = "the client refuses the checksum"
                continue
            for record in read_records(data, at):
                records[str(record.offset)] = [
                    record.timestamp,
                    _text(record.key),
                    _text(record.value),
                    [[name, _text(value)] for name, value in record.headers],
                    header.attributes,
                    header.producer_id,
                ]
        if offset == before:
            faults[str(offset)] = "the client finds no whole batch"
            offset += 1
    return {"low": ends[0], "high": high, "records": records, "faults": faults, "aborted": aborted}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


def _fetch(rig: BothRig, topic: str, partition: int, offset: int, isolation: int) -> PartitionData:
    asked = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=10_000,
        isolation_level=isolation,
        topics=[FetchTopic(topic, partitions=[asked])],
    )
    return rig.kafka(request, 12, FetchResponse).responses[0].partitions[0]


def _listed(rig: BothRig, topic: str, partition: int, timestamp: int) -> tuple[int, int, int]:
    part = ListOffsetsPartition(partition, -1, timestamp)
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [part])])
    found = rig.kafka(request, 7, ListOffsetsResponse).topics[0].partitions[0]
    return found.error_code, found.offset, found.timestamp


def times_of(rig: BothRig, topic: str, queue_id: int) -> Plain:
    """What a search by time finds."""
    begin = 1_700_000_000_000
    found: Plain = {}
    for timestamp in (begin, begin + 100, begin + 400, begin + 10_000_000):
        ext = {"topic": topic, "queueId": queue_id, "timestamp": timestamp}
        answer = rig.ask(rig.remoting_link, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
        code, offset, at = _listed(rig, topic, queue_id, timestamp)
        found[str(timestamp - begin)] = [answer.ext.get("offset", answer.code), code, offset, at]
    return found


def offsets_of(rig: BothRig) -> Plain:
    """Committed offsets of both dialects."""
    found: Plain = {}
    for group in GROUPS:
        for queue_id in range(2):
            ext = {"consumerGroup": group, "topic": "orders", "queueId": queue_id}
            answer = rig.ask(rig.remoting_link, RequestCode.QUERY_CONSUMER_OFFSET, ext)
            found[f"{group} orders/{queue_id}"] = answer.ext.get("offset", str(answer.code))
    for group in KAFKA_GROUPS:
        kept = rig.kafka(OffsetFetchRequest(group, None), 7, OffsetFetchResponse)
        for topic in kept.topics:
            for part in topic.partitions:
                found[f"{group} {topic.name}/{part.partition_index}"] = part.committed_offset
        if kept.error_code:
            found[group] = f"error {kept.error_code}"
    return found


def groups_of(rig: BothRig) -> Plain:
    """Kafka's groups and their members."""
    listed = rig.kafka(ListGroupsRequest(), 4, ListGroupsResponse).groups
    described = rig.kafka(DescribeGroupsRequest(["members"]), 5, DescribeGroupsResponse).groups
    return {
        "listed": sorted(f"{group.group_id} {group.group_state}" for group in listed),
        "members": [
            [member.member_id, member.client_id, member.member_assignment.hex()]
            for group in described
            for member in group.members
        ],
    }


def transactions_of(rig: BothRig) -> Plain:
    """Kafka's transactions, and the open ones of RocketMQ."""
    listed = rig.kafka(ListTransactionsRequest(), 0, ListTransactionsResponse)
    return {
        "kafka": sorted(
            f"{each.transactional_id} {each.producer_id} {each.transaction_state}"
            for each in listed.transaction_states
        ),
        "open": sorted(key for key, _ in rig.store.table("transactions").items()),
    }
