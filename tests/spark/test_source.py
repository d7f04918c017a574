"""The data source: planning and reading without Spark, against a peer that answers as Apache's servers do."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import STORED_MS, hang_up, pull_ext, stored

from steelyard.errors import (
    BrokerError,
    CallTimeoutError,
    ConfigError,
    ConnectError,
    ProtocolError,
    RemotingError,
    RouteError,
    SteelyardError,
)
from steelyard.spark.options.reading import read_options
from steelyard.spark.reading import columns, planning, pull
from steelyard.spark.reading.planning import QueueRange
from steelyard.spark.schema import SCHEMA
from steelyard.spark.source import RocketMQDataSource, RocketMQReader
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import BrokerData, QueueData, TopicRouteData
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

if TYPE_CHECKING:
    from tests.spark.conftest import Peer

Rows = list[tuple[int, int]]
OWN_TOPICS = ["TBW102", "%RETRY%g", "%DLQ%g", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"]
OWN_TOPICS += ["__consumer_offsets", "__transaction_state"]


def reader(peer: Peer, **options: str) -> RocketMQReader:
    given = {"nameservers": peer.address, "subscribe": "T", "retryTimeoutMs": "0"}
    return RocketMQReader(read_options(given | options))


def ranges(peer: Peer, **options: str) -> list[tuple[int, int, int]]:
    found = []
    for one in reader(peer, **options).partitions():
        assert isinstance(one, QueueRange)
        found.append((one.queue_id, one.start, one.end))
    return found


def rows(peer: Peer, **options: str) -> Rows:
    """(queue, offset) of everything that a read gives, in the order it comes."""
    read = reader(peer, **options)
    batches = [batch for one in read.partitions() for batch in read.read(one)]
    return [
        (queue, offset)
        for batch in batches
        for queue, offset in zip(
            batch.column("queueId").to_pylist(),  # type: ignore[attr-defined]  # Arrow batches stand for rows here
            batch.column("queueOffset").to_pylist(),  # type: ignore[attr-defined]
            strict=True,
        )
    ]


def test_the_schema() -> None:
    assert SCHEMA.simpleString() == (
        "struct<topic:string,brokerName:string,queueId:int,queueOffset:bigint,bornTimestamp:timestamp,storeTimestamp:timestamp,"
        "keys:string,tags:string,body:binary,properties:map<string,string>,flag:int,reconsumeTimes:int,msgId:string>"
    )
    assert columns.SCHEMA.names == SCHEMA.names


def test_a_schema_of_the_users_own_is_refused(peer: Peer) -> None:
    source = RocketMQDataSource({"nameservers": peer.address, "topic": "T"})
    with pytest.raises(ConfigError, match=r"leave \.schema\(\.\.\.\) out, and choose columns"):
        source.reader(type(SCHEMA)(SCHEMA.fields[:1]))


# -- planning ---------------------------------------------------------------------------------------


def test_one_partition_per_queue_that_has_messages(peer: Peer) -> None:
    peer.fill("T", 3, 10)
    peer.queues["T"][1] = []
    peer.least = 100
    assert ranges(peer) == [(0, 100, 110), (2, 100, 110)]


OFFSETS = [
    ({"startingOffsets": '{"T": {"broker-a": {"0": 103}}}'}, [(0, 103, 110), (1, 100, 110)]),
    ({"startingOffsets": '{"T": {"broker-a": {"0": -2}}}'}, [(0, 100, 110), (1, 100, 110)]),
    ({"endingOffsets": '{"T": {"broker-a": {"1": 101}}}'}, [(0, 100, 110), (1, 100, 101)]),
    ({"endingOffsets": '{"T": {"broker-a": {"1": -1}}}'}, [(0, 100, 110), (1, 100, 110)]),
    ({"endingOffsets": '{"T": {"broker-a": {"1": 100}}}'}, [(0, 100, 110)]),
    ({"queues": "broker-a:1"}, [(1, 100, 110)]),
    ({"subscribe": "", "assign": '{"T": {"broker-a": [1]}}'}, [(1, 100, 110)]),
    ({"subscribe": "", "subscribePattern": "T|U"}, [(0, 100, 110), (1, 100, 110)]),
    ({"startingTimestamp": "1700000000504"}, [(0, 104, 110), (1, 104, 110)]),
    (
        {"startingOffsetsByTimestamp": '{"T": {"broker-a": {"1": 1700000000509}}}'},
        [(0, 100, 110), (1, 109, 110)],
    ),
    ({"startingTimestamp": "1800000000000", "startingOffsetsByTimestampStrategy": "latest"}, []),
    ({"endingTimestamp": "1700000000502"}, [(0, 100, 102), (1, 100, 102)]),
    (
        {"endingOffsetsByTimestamp": '{"T": {"broker-a": {"0": 1700000000501}}}'},
        [(0, 100, 101), (1, 100, 110)],
    ),
    (
        {
            "queues": "broker-a:1",
            "startingOffsetsByTimestamp": '{"T": {"broker-a": {"0": 1700000000509, "1": 1700000000507}}}',
        },
        [(1, 107, 110)],
    ),
    ({"startingOffsets": "committed", "consumerGroup": "g"}, [(0, 100, 110), (1, 107, 110)]),
    ({"minPartitions": "3"}, [(0, 100, 105), (0, 105, 110), (1, 100, 110)]),
    ({"maxRecordsPerPartition": "6"}, [(0, 100, 105), (0, 105, 110), (1, 100, 105), (1, 105, 110)]),
    ({"queues": "broker-a"}, [(0, 100, 110), (1, 100, 110)]),
    (
        {"startingOffsets": '{"T": {"broker-a": {"0": 7}}}', "failOnDataLoss": "false"},
        [(0, 100, 110), (1, 100, 110)],
    ),
    (
        {"endingOffsets": '{"T": {"broker-a": {"0": 700}}}', "failOnDataLoss": "false"},
        [(0, 100, 110), (1, 100, 110)],
    ),
]


@pytest.mark.parametrize(("options", "expected"), OFFSETS)
def test_offsets(peer: Peer, options: dict[str, str], expected: list[tuple[int, int, int]]) -> None:
    peer.fill("T", 2, 10)
    peer.fill("%RETRY%g", 1, 10)
    peer.least = 100
    peer.committed["T", 1] = 107
    assert ranges(peer, **options) == expected


def nearest(times: list[int], wanted: int) -> int:
    """The place that a broker of 4.9 finds (ConsumeQueue.java, getOffsetInQueueByTime)."""
    low, high = 0, len(times) - 1
    left = right = -1
    while low <= high:
        middle = (low + high) // 2
        if times[middle] == wanted:
            return middle
        if times[middle] > wanted:
            high, right = middle - 1, middle
        else:
            low, left = middle + 1, middle
    if left < 0 or right < 0:
        return max(left, right)
    return right if abs(wanted - times[left]) > abs(wanted - times[right]) else left


@pytest.mark.parametrize("least", [0, 100])
def test_a_time_is_exact_though_the_broker_finds_the_nearest_message(
    peer: Peer, least: int
) -> None:
    times = [0, 2, 2, 2, 2, 2, 3, 9, 9, 9, 15, 15]
    peer.queues["T"] = [[stored("T", 0, least + n, b"", at) for n, at in enumerate(times)]]
    peer.least = least

    def search(request: Command) -> Command:
        found = least + nearest(times, int(request.ext["timestamp"]) - STORED_MS)
        return Command(0, ext={"offset": str(found)})

    peer.replies[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = search
    end = least + len(times)
    for time in range(-1, 18):
        place = least + bisect_left(times, time)
        text = str(STORED_MS + time)
        latest = {"startingOffsetsByTimestampStrategy": "latest"}
        assert ranges(peer, startingTimestamp=text, **latest) == [(0, place, end)][: end - place]
        assert ranges(peer, endingTimestamp=text) == [(0, least, place)][: place - least]
    with pytest.raises(ConfigError, match="no message stored at or after the time"):
        ranges(peer, startingTimestamp=str(STORED_MS + 16))


REFUSED = [
    ({"subscribe": "U"}, RouteError, "knows no topic 'U'"),
    ({"queues": "broker-b"}, ConfigError, "option 'queues' names broker-b; the queues are broker-a:0, broker-a:1"),
    ({"queues": "broker-a:2"}, ConfigError, "option 'queues' names broker-a:2"),
    (
        {"subscribe": "", "assign": '{"T": {"broker-a": [1, 7]}}'},
        ConfigError,
        "option 'assign' names queue 7 of broker 'broker-a' for topic 'T'; its queues are broker-a:0, broker-a:1",
    ),
    (
        {"startingTimestamp": "1800000000000"},
        ConfigError,
        "queue 0 of topic 'T' on broker 'broker-a' has no message stored at or after the time to start at; set option",
    ),
    (
        {"startingOffsets": '{"T": {"broker-a": {"2": 1}}}'},
        ConfigError,
        "option 'startingOffsets' names queue 2 of broker 'broker-a' for topic 'T'; its queues are broker-a:0, broker-a:1",
    ),
    (
        {"startingOffsets": '{"T": {"broker-a": {"0": 7}}}'},
        ConfigError,
        "data loss: queue 0 of topic 'T' on broker 'broker-a' starts at 100, but 7 was asked for",
    ),
    (
        {"endingOffsets": '{"T": {"broker-a": {"0": 111}}}'},
        ConfigError,
        "ends at 110, but 111 was asked for. Set option 'failOnDataLoss' to false",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("options", "kind", "words"), REFUSED)
def test_what_cannot_be_planned_says_why(
    peer: Peer, options: dict[str, str], kind: type[SteelyardError], words: str
) -> None:
    peer.fill("T", 2, 10)
    peer.least = 100
    with pytest.raises(kind) as caught:
        ranges(peer, **options)
    assert words in str(caught.value)


def test_partitions_have_a_limit(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "PARTITIONS_MAX", 20)
    peer.fill("T", 2, 10)
    assert len(ranges(peer, maxRecordsPerPartition="1")) == 20
    peer.fill("T", 2, 11)
    with pytest.raises(
        ConfigError,
        match="option 'maxRecordsPerPartition' is 1, which makes 22 partitions; 20 are allowed",
    ):
        ranges(peer, maxRecordsPerPartition="1")


def test_a_pattern_leaves_out_the_topics_of_the_servers(peer: Peer) -> None:
    for topic in ("Orders", "Orders2", "Others", *OWN_TOPICS):
        peer.fill(topic, 1, 1)
    for pattern, topics in (
        (".*", ["Orders", "Orders2", "Others"]),
        ("Orders.?", ["Orders", "Orders2"]),
    ):
        found = reader(peer, subscribe="", subscribePattern=pattern).partitions()
        assert [one.topic for one in found if isinstance(one, QueueRange)] == topics


def test_the_next_nameserver_is_asked_when_one_is_down(peer: Peer) -> None:
    peer.fill("T", 1, 10)
    assert ranges(peer, nameservers=f"127.0.0.1:1;{peer.address}") == [(0, 0, 10)]
    with pytest.raises(ConnectError, match=r"cannot connect to 127\.0\.0\.1:1"):
        ranges(peer, nameservers="127.0.0.1:1")


def test_queues_that_cannot_be_read_are_left_out(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    route = TopicRouteData(
        (
            QueueData("broker-a", 2, 2, 2),  # write only
            QueueData("broker-b", 1, 8, 6),
            QueueData("broker-c", 4, 4, 6),  # without an address
        ),
        (
            BrokerData("C", "broker-a", {0: peer.address}),
            BrokerData("C", "broker-b", {2: "127.0.0.1:1", 1: peer.address}),
        ),
    )
    peer.replies[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda _: Command(
        0, body=fastjson.write(route)
    )
    assert ranges(peer) == [(0, 0, 10)]


# -- reading ----------------------------------------------------------------------------------------


def test_every_message_once_and_in_order(peer: Peer) -> None:
    peer.fill("T", 2, 100)
    assert rows(peer) == [(queue, offset) for queue in (0, 1) for offset in range(100)]
    pulls = [one for one in peer.asked if one.code == RequestCode.PULL_MESSAGE]
    assert len(pulls) == 2 * 4  # 32 messages each, as Apache gives them
    assert pulls[0].ext["sysFlag"] == "4"
    assert pulls[0].ext["subscription"] == "*"


def test_chosen_columns(peer: Peer) -> None:
    peer.fill("T", 1, 3)
    read = reader(peer, columns="body,queueId")
    (only,) = read.partitions()
    (batch,) = read.read(only)
    assert batch.to_pydict() == {  # type: ignore[attr-defined]
        "body": [b"body 0", b"body 1", b"body 2"],
        "queueId": [0, 0, 0],
    }
    source = RocketMQDataSource(
        {"nameservers": peer.address, "topic": "T", "columns": "body,queueId"}
    )
    assert source.schema().simpleString() == "struct<body:binary,queueId:int>"


def test_tags_of_the_same_hash_are_told_apart(peer: Peer) -> None:
    """Brokers compare hash codes: this one lets everything through."""
    peer.fill("T", 1, 3)
    assert rows(peer, tags="t || u") == [(0, 0), (0, 1), (0, 2)]
    assert rows(peer, tags="u", columns="queueId,queueOffset") == []
    pulls = [one for one in peer.asked if one.code == RequestCode.PULL_MESSAGE]
    assert [one.ext["subscription"] for one in pulls] == ["t || u", "u"]
    assert {one.ext["expressionType"] for one in pulls} == {"TAG"}


def test_a_condition_is_sent_to_the_broker(peer: Peer) -> None:
    peer.fill("T", 1, 3)
    rows(peer, sql="a > 1")
    (pulled,) = [one for one in peer.asked if one.code == RequestCode.PULL_MESSAGE]
    assert (pulled.ext["subscription"], pulled.ext["expressionType"]) == ("a > 1", "SQL92")


def test_what_a_filter_refuses_is_not_lost(peer: Peer) -> None:
    """A pull that finds nothing moves on; only offsets below the least one are lost."""
    peer.fill("T", 1, 50)
    moved = {"nextBeginOffset": "50", "minOffset": "0", "maxOffset": "50"}
    peer.replies[RequestCode.PULL_MESSAGE] = lambda _: Command(
        ResponseCode.PULL_RETRY_IMMEDIATELY, ext=moved
    )
    assert rows(peer, tags="u") == []
    moved["minOffset"] = "20"
    with pytest.raises(ConfigError, match="has no offset 0 any more, but continues at 50"):
        rows(peer, tags="u")
    assert rows(peer, tags="u", failOnDataLoss="false") == []


def test_a_read_goes_on_where_it_was_when_the_broker_comes_back(peer: Peer) -> None:
    """1. A pull is answered. 2. The connection breaks, twice. 3. The read continues with the next offset."""
    peer.fill("T", 1, 100)
    count = 0

    def shaky(request: Command) -> Command:
        nonlocal count
        count += 1
        if count in (2, 3):
            raise ConnectionAbortedError
        return peer.pull(headers.read(headers.PullMessageRequestHeader, request.ext))

    peer.replies[RequestCode.PULL_MESSAGE] = shaky
    assert rows(peer, retryTimeoutMs="20000") == [(0, offset) for offset in range(100)]
    assert count == 2 + 4


def test_a_broker_that_stays_away(peer: Peer) -> None:
    peer.fill("T", 1, 100)
    peer.replies[RequestCode.PULL_MESSAGE] = hang_up
    with pytest.raises(RemotingError) as caught:
        rows(peer, retryTimeoutMs="200")
    assert str(caught.value) == (
        f"{peer.address} closed the connection; tried again for 0.2 s (option 'retryTimeoutMs')"
    )


def test_a_busy_broker_is_asked_again(peer: Peer) -> None:
    peer.fill("T", 1, 10)
    answers = [Command(ResponseCode.SYSTEM_BUSY, remark="later")]

    def busy(request: Command) -> Command:
        return (
            answers.pop()
            if answers
            else peer.pull(headers.read(headers.PullMessageRequestHeader, request.ext))
        )

    peer.replies[RequestCode.PULL_MESSAGE] = busy
    assert len(rows(peer, retryTimeoutMs="20000")) == 10


def test_a_range_ends_where_it_should_though_a_broker_gives_more(peer: Peer) -> None:
    peer.fill("T", 1, 100)
    full = peer.pull
    peer.replies[RequestCode.PULL_MESSAGE] = lambda request: full_pull(full, request)
    ending = '{"T": {"broker-a": {"0": 40}}}'
    assert rows(peer, endingOffsets=ending) == [(0, offset) for offset in range(40)]


def full_pull(answer: Callable[..., Command], request: Command) -> Command:
    header = headers.read(headers.PullMessageRequestHeader, {**request.ext, "maxMsgNums": "32"})
    return answer(header)


def test_messages_that_arrive_later_are_not_read(peer: Peer) -> None:
    peer.fill("T", 1, 10)
    read = reader(peer)
    (only,) = read.partitions()
    peer.fill("T", 1, 20)
    assert sum(batch.num_rows for batch in read.read(only)) == 10  # type: ignore[attr-defined]


def test_small_replies_are_decoded_together(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    peer.fill("T", 1, 200)
    monkeypatch.setattr(pull, "ROWS_MIN", 64)
    read = reader(peer)
    (only,) = read.partitions()
    sizes = [batch.num_rows for batch in read.read(only)]  # type: ignore[attr-defined]
    assert sizes == [64, 64, 64, 8]


def test_a_broker_that_knows_no_batches_gives_messages(peer: Peer) -> None:
    """As Apache's brokers do, which ignore what they do not know."""
    peer.fill("T", 1, 40)
    assert rows(peer) == [(0, n) for n in range(40)]
    pulls = [each for each in peer.asked if each.code == RequestCode.PULL_MESSAGE]
    assert {each.ext["takesBatches"] for each in pulls} == {"true"}
    peer.asked.clear()
    assert len(rows(peer, tags="t")) == 40
    assert not any("takesBatches" in each.ext for each in peer.asked)


@pytest.mark.parametrize(
    "body", [b"", b"x" * 99, bytes(8) + b"x" * 99, b"\x7f" * 200], ids=["none", "few", "x", "7f"]
)
def test_what_a_broker_calls_batches_must_be_batches(peer: Peer, body: bytes) -> None:
    peer.fill("T", 1, 10)
    ext = {**pull_ext(10), "uniquePrefix": "7F000001"}
    peer.replies[RequestCode.PULL_MESSAGE] = lambda _: Command(0, ext=ext, body=body)
    if body:
        with pytest.raises(ProtocolError):
            rows(peer)
    else:
        assert rows(peer) == []


def test_data_deleted_while_it_is_read(peer: Peer) -> None:
    peer.fill("T", 1, 50)
    for lenient in (False, True):
        peer.least = 0
        read = reader(peer, failOnDataLoss=str(not lenient).lower())
        (only,) = read.partitions()
        peer.least = 20  # offsets 20..69 are there now
        if lenient:
            offsets = [o for b in read.read(only) for o in b.column("queueOffset").to_pylist()]  # type: ignore[attr-defined]
            assert len(offsets) == 30
        else:
            with pytest.raises(ConfigError, match="has no offset 0 any more, but continues at 20"):
                list(read.read(only))


def test_a_queue_cut_off_at_its_end_ends_there(peer: Peer) -> None:
    peer.fill("T", 1, 50)
    read = reader(peer, failOnDataLoss="false")
    (only,) = read.partitions()
    peer.replies[RequestCode.PULL_MESSAGE] = lambda _: Command(
        ResponseCode.PULL_OFFSET_MOVED, ext=moved_to(-1)
    )
    assert list(read.read(only)) == []


def moved_to(offset: int) -> dict[str, str]:
    return {"nextBeginOffset": str(offset), "minOffset": "0", "maxOffset": "0"}


ANSWERS: list[tuple[Command | bytes, type[SteelyardError], str]] = [
    (Command(ResponseCode.SYSTEM_ERROR, remark="out of luck"), BrokerError, "out of luck"),
    (
        Command(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark="no group"),
        BrokerError,
        "option 'consumerGroup' is 'spark-rocketmq', which the broker does not have",
    ),
    (Command(0, ext=moved_to(0), body=b""), ProtocolError, "found messages at 0, but continues at 0"),
    (Command(0, ext=moved_to(10), body=b"x" * 100), ProtocolError, "record"),
    (Command(0, body=b""), ProtocolError, "nextBeginOffset"),
    (b"\x00\x00\x00\x08no frame", ProtocolError, ""),
    (Command(ResponseCode.PULL_NOT_FOUND, ext=moved_to(0)), RemotingError, "repeatedly returns no message at offset 0"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "kind", "words"), ANSWERS)
def test_what_a_broker_answers_wrongly_is_told(
    peer: Peer,
    answer: Command | bytes,
    kind: type[SteelyardError],
    words: str,
) -> None:
    peer.fill("T", 1, 10)
    peer.replies[RequestCode.PULL_MESSAGE] = lambda _: answer
    with pytest.raises(kind) as caught:
        rows(peer)
    assert words in str(caught.value)


def test_a_broker_that_is_silent_or_closes(peer: Peer) -> None:
    peer.fill("T", 1, 10)
    peer.replies[RequestCode.PULL_MESSAGE] = lambda _: b""
    with pytest.raises(CallTimeoutError):
        rows(peer, timeoutMs="50")
    peer.replies[RequestCode.PULL_MESSAGE] = hang_up
    with pytest.raises(RemotingError, match="closed the connection"):
        rows(peer)
