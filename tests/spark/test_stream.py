"""The streaming reader, called as Spark calls it, against a peer that answers as Apache's servers do."""

from __future__ import annotations

import json
import socket
import threading
import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import IntegerType
from tests.spark.conftest import hang_up, stored

from steelyard.errors import BrokerError, ConfigError, RemotingError, RouteError
from steelyard.spark.options.reading import read_options
from steelyard.spark.reading import stream
from steelyard.spark.reading.planning import QueueRange
from steelyard.spark.reading.stream import RocketMQStreamReader
from steelyard.spark.source import RocketMQDataSource
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import BrokerData, ClusterInfo
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

if TYPE_CHECKING:
    from tests.spark.conftest import Peer

Tree = dict[str, Any]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes are looked up at each trigger."""
    monkeypatch.setattr(stream, "REFRESH_S", 0.0)


class Query:
    """What Spark does with a reader: one that is started again has the checkpoint of the one before."""

    def __init__(self, peer: Peer, before: Query | None = None, **options: str) -> None:
        given = {"nameservers": peer.address, "subscribe": "T", "startingOffsets": "earliest"}
        given |= {"retryTimeoutMs": "0"} | options
        self.reader = RocketMQStreamReader(read_options(given, "stream"))
        self.limit = self.reader.getDefaultReadLimit()
        self.planned: Tree | None = before.planned if before else None
        self.done: Tree | None = before.done if before else None
        self.read: list[tuple[int, int]] = list(before.read) if before else []
        if self.planned != self.done:
            self.run()

    def plan(self) -> bool:
        """Write the next batch to the log, if there is one."""
        start = self.done
        if start is None:
            start = self.reader.initialOffset()
        end = json.loads(
            json.dumps(self.reader.latestOffset(json.loads(json.dumps(start)), self.limit))
        )
        self.reader.reportLatestOffset()
        if self.done is not None and end == self.done:
            return False
        self.planned = end
        return True

    def run(self) -> None:
        """Run the batch in the log."""
        assert self.planned is not None
        start = self.done if self.done is not None else self.reader.initialOffset()
        for one in self.reader.partitions(start, self.planned):
            assert isinstance(one, QueueRange)
            worker = RocketMQStreamReader(self.reader._options)
            sent = cloudpickle.dumps(worker)  # type: ignore[no-untyped-call]
            for batch in cloudpickle.loads(sent).read(one):
                self.read += zip(
                    batch.column("queueId").to_pylist(),
                    batch.column("queueOffset").to_pylist(),
                    strict=True,
                )
        if self.done is not None:
            self.reader.commit(self.done)
        self.done = self.planned

    def trigger(self) -> int:
        """Plan a batch and run it; how many messages it had."""
        before = len(self.read)
        if self.plan():
            self.run()
        return len(self.read) - before

    def drain(self) -> None:
        while self.plan():
            self.run()

    def offsets(self) -> dict[str, int]:
        assert self.done is not None
        found: dict[str, int] = self.done["T"]["broker-a"]
        return found


def expire(peer: Peer, count: int) -> None:
    """Delete the first messages of every queue."""
    peer.least += count
    for records in peer.queues["T"]:
        del records[:count]


def everything(peer: Peer) -> list[tuple[int, int]]:
    return [
        (q, peer.least + n)
        for q, records in enumerate(peer.queues["T"])
        for n in range(len(records))
    ]


def test_each_message_once(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    query = Query(peer)
    assert query.trigger() == 0  # the first batch is empty: it stores where the query began
    assert query.offsets() == {"0": 0, "1": 0}
    assert query.trigger() == 20
    assert query.trigger() == 0
    peer.fill("T", 2, 15)
    assert query.trigger() == 10
    assert sorted(query.read) == everything(peer)


def test_the_beginning_is_decided_once(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    reader = Query(peer, startingOffsets="latest").reader
    first = reader.initialOffset()
    peer.fill("T", 2, 20)
    assert reader.initialOffset() == first == {"T": {"broker-a": {"0": 10, "1": 10}}}


@pytest.mark.parametrize("is_planned", [True, False])
def test_latest_survives_a_crash_of_the_first_batch(peer: Peer, is_planned: bool) -> None:
    """1. A query begins at the latest offset. 2. It is killed after, or before, its first batch is in the log. 3. Messages
    come. 4. It is started again: what came after a logged batch is read."""
    peer.fill("T", 2, 10)
    query = Query(peer, startingOffsets="latest")
    if is_planned:
        assert query.plan()
    else:
        query.reader.initialOffset()
    peer.fill("T", 2, 15)
    query = Query(peer, query, startingOffsets="latest")
    query.drain()
    assert len(query.read) == (10 if is_planned else 0)
    peer.fill("T", 2, 16)
    query.drain()
    assert sorted(query.read)[-1] == (1, 15)


def test_a_batch_is_the_same_when_it_is_repeated(peer: Peer) -> None:
    peer.fill("T", 1, 10)
    query = Query(peer)
    query.trigger()
    assert query.plan()
    peer.fill("T", 3, 20)
    query = Query(peer, query)
    assert query.read == [(0, n) for n in range(10)]
    query.drain()
    assert sorted(query.read) == everything(peer)


def test_the_limit_of_a_batch(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    del peer.queues["T"][1][2:]
    query = Query(peer, maxOffsetsPerTrigger="5")
    assert [query.trigger() for _ in range(5)] == [0, 5, 5, 2, 0]
    assert sorted(query.read) == everything(peer)


def test_too_few_messages_wait_for_more(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    query = Query(peer, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    assert [query.trigger(), query.trigger()] == [0, 20]
    peer.fill("T", 2, 14)
    assert query.trigger() == 0
    peer.fill("T", 2, 15)
    assert query.trigger() == 10


def test_available_now_ends(peer: Peer) -> None:
    """What comes after the start, in old queues and new ones, is left to the next run."""
    peer.fill("T", 2, 10)
    query = Query(peer, maxOffsetsPerTrigger="7", minOffsetsPerTrigger="5")
    query.reader.prepareForTriggerAvailableNow()
    query.plan()
    peer.fill("T", 3, 30)
    query.run()
    query.drain()
    assert sorted(query.read) == [(q, n) for q in (0, 1) for n in range(10)]
    query = Query(peer, query)
    query.reader.prepareForTriggerAvailableNow()
    query.drain()
    assert sorted(query.read) == everything(peer)


@pytest.mark.parametrize("is_fatal", ["true", "false"])
def test_available_now_from_the_latest_while_messages_arrive(peer: Peer, is_fatal: str) -> None:
    """Spark asks for the target before it asks where the query begins."""
    peer.fill("T", 2, 10)
    query = Query(peer, startingOffsets="latest", failOnDataLoss=is_fatal)
    query.reader.prepareForTriggerAvailableNow()
    peer.fill("T", 2, 15)
    query.drain()
    assert query.offsets() == {"0": 15, "1": 15}
    query = Query(peer, query)
    peer.fill("T", 2, 17)
    query.reader.prepareForTriggerAvailableNow()
    query.drain()
    assert sorted(query.read) == [(q, n) for q in (0, 1) for n in (15, 16)]


def test_once_reads_everything_in_its_only_batch(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    query = Query(peer, maxOffsetsPerTrigger="1")
    query.limit = ReadAllAvailable()
    assert query.trigger() == 20


def test_without_a_limit_spark_is_told_of_a_high_one(peer: Peer) -> None:
    assert Query(peer).limit == ReadMaxRows((1 << 63) - 1)
    assert Query(peer, maxOffsetsPerTrigger="9").limit == ReadMaxRows(9)


# -- queues that come and go ------------------------------------------------------------------------


def test_new_queues_and_topics_are_read_from_their_beginning(peer: Peer) -> None:
    peer.fill("T", 1, 10)
    query = Query(peer, subscribe="", subscribePattern="T.*", startingOffsets="latest")
    query.drain()
    peer.fill("T", 2, 10)
    peer.fill("T2", 1, 3)
    query.drain()
    assert query.done == {"T": {"broker-a": {"0": 10, "1": 10}}, "T2": {"broker-a": {"0": 3}}}
    assert len(query.read) == 13


def test_a_new_queue_that_lost_its_first_messages(peer: Peer) -> None:
    peer.fill("T", 1, 5)
    query = Query(peer)
    query.drain()
    peer.fill("T", 2, 10)
    expire(peer, 5)
    with pytest.raises(
        ConfigError,
        match="queue 1 of topic 'T' on broker 'broker-a' is new to this query, but starts at 5",
    ):
        query.drain()
    query = Query(peer, query, failOnDataLoss="false")
    query.drain()
    assert sorted(query.read[5:]) == everything(peer)


def test_messages_that_expired(peer: Peer) -> None:
    peer.fill("T", 1, 10)
    query = Query(peer)
    query.trigger()
    expire(peer, 4)
    with pytest.raises(ConfigError, match="has no offset 0 any more, but continues at 4"):
        query.drain()
    query = Query(peer, query, failOnDataLoss="false")
    query.drain()
    assert query.read == [(0, n) for n in range(4, 10)]


def test_a_queue_that_ends_before_what_was_read(peer: Peer) -> None:
    peer.fill("T", 1, 10)
    query = Query(peer)
    query.drain()
    peer.fill("T", 1, 4)
    with pytest.raises(ConfigError, match="ends at 4, but was read up to 10 before"):
        query.drain()
    query = Query(peer, query, failOnDataLoss="false")
    query.drain()
    peer.fill("T", 1, 6)
    query.drain()
    assert query.read[10:] == [(0, 4), (0, 5)]


def test_a_queue_that_disappears(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    query = Query(peer)
    query.drain()
    gone = peer.queues["T"].pop()
    with pytest.raises(
        RemotingError,
        match="queue 1 of topic 'T' on broker 'broker-a' no longer exists, or the options",
    ):
        query.drain()
    query = Query(peer, query, failOnDataLoss="false")
    query.drain()
    assert query.offsets() == {"0": 10, "1": 10}
    peer.queues["T"].append(gone)
    assert query.trigger() == 0


def test_a_topic_that_the_options_no_longer_name(peer: Peer) -> None:
    peer.fill("T", 1, 10)
    peer.fill("U", 1, 10)
    query = Query(peer, subscribe="T,U")
    query.drain()
    peer.fill("U", 1, 20)
    with pytest.raises(
        RemotingError,
        match="queue 0 of topic 'U' on broker 'broker-a' no longer exists, or the options",
    ):
        Query(peer, query).drain()
    query = Query(peer, query, failOnDataLoss="false")
    query.drain()
    assert len(query.read) == 20


def test_a_pattern_that_matched_topics_of_coordinators_before(peer: Peer) -> None:
    """As in checkpoints of version 0.1, also if the last batch was interrupted."""
    for topic in ("T", "__consumer_offsets"):
        peer.fill(topic, 1, 10)
    before = Query(peer, subscribe="T,__consumer_offsets")
    before.trigger()
    before.plan()
    query = Query(peer, before, subscribe="", subscribePattern=".*")
    query.drain()
    assert query.read == [(0, n) for n in range(10)]
    peer.fill("T", 1, 12)
    query = Query(peer, query, subscribe="", subscribePattern=".*")
    query.reader.prepareForTriggerAvailableNow()
    query.drain()
    assert query.read == [(0, n) for n in range(12)]


def test_a_planned_queue_that_disappears(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    query = Query(peer)
    query.trigger()
    query.plan()
    peer.queues["T"].pop()
    with pytest.raises(RemotingError, match=r"queue 1 .* no longer exists"):
        Query(peer, query)
    assert Query(peer, query, failOnDataLoss="false").read == [(0, n) for n in range(10)]


def test_a_planned_topic_that_is_deleted(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    query = Query(peer)
    query.trigger()
    query.plan()
    del peer.queues["T"]
    with pytest.raises(RemotingError, match=r"queue 0 .* no longer exists"):
        Query(peer, query)
    assert Query(peer, query, failOnDataLoss="false").read == []


# -- a broker that is away --------------------------------------------------------------------------


@pytest.mark.parametrize("is_fatal", ["true", "false"])
@pytest.mark.parametrize("registered", [(), ("broker-b",)])
def test_a_nameserver_that_has_just_started_knows_no_topics_yet(
    peer: Peer, registered: tuple[str, ...], is_fatal: str
) -> None:
    """A planned batch waits until brokers have registered, and is not taken for deleted."""
    peer.fill("T", 2, 10)
    query = Query(peer)
    query.trigger()
    query.plan()

    def knows_nothing(request: Command) -> Command:
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            brokers = {name: BrokerData("Cluster", name, {0: "h:1"}) for name in registered}
            return Command(0, body=fastjson.write(ClusterInfo(brokers, {"Cluster": registered})))
        return Command(ResponseCode.TOPIC_NOT_EXIST, remark="no topic")

    for code in (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO):
        peer.replies[code] = knows_nothing
    words = (
        "no nameserver has an address of the broker" if registered else "no broker has registered"
    )
    with pytest.raises(RemotingError, match=words):
        Query(peer, query, failOnDataLoss=is_fatal)
    threading.Timer(0.3, peer.replies.clear).start()
    again = Query(peer, query, failOnDataLoss=is_fatal, retryTimeoutMs="30000")
    assert sorted(again.read) == everything(peer)


def test_a_broker_that_comes_back_in_time(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    query = Query(peer, retryTimeoutMs="30000")
    query.trigger()
    peer.replies[RequestCode.GET_MAX_OFFSET] = hang_up
    threading.Timer(0.3, lambda: peer.replies.clear()).start()
    assert query.trigger() == 20


def test_a_broker_that_stays_away_ends_the_query_which_can_be_started_again(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    query = Query(peer, retryTimeoutMs="150")
    query.trigger()
    peer.replies[RequestCode.GET_MAX_OFFSET] = hang_up
    with pytest.raises(
        RemotingError,
        match=r"closed the connection; tried again for 0\.15 s \(option 'retryTimeoutMs'\)",
    ):
        query.trigger()
    peer.replies.clear()
    query = Query(peer, query)
    query.drain()
    assert sorted(query.read) == everything(peer)


def test_without_a_nameserver_the_known_queues_are_read(peer: Peer) -> None:
    peer.fill("T", 1, 10)
    query = Query(peer)
    query.trigger()
    peer.replies[RequestCode.GET_ROUTEINFO_BY_TOPIC] = hang_up
    assert query.trigger() == 10


def test_a_nameserver_that_is_gone_without_a_word_is_waited_for_once(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        query = Query(peer, nameservers=f"{address};{peer.address}", timeoutMs="200")
        query.drain()
        began = time.monotonic()
        for _ in range(10):
            query.trigger()
        assert time.monotonic() - began < 1.9
    assert sorted(query.read) == everything(peer)


def test_what_does_not_pass_is_not_tried_again(peer: Peer) -> None:
    peer.fill("T", 1, 10)
    with pytest.raises(RouteError, match="knows no topic 'U'"):
        Query(peer, subscribe="U", retryTimeoutMs="60000").plan()
    peer.replies[RequestCode.GET_MAX_OFFSET] = lambda _: Command(
        ResponseCode.NO_PERMISSION, remark="no"
    )
    with pytest.raises(BrokerError, match="no"):
        Query(peer, retryTimeoutMs="60000").plan()


# -- progress ---------------------------------------------------------------------------------------


def test_progress_is_stored_as_soon_as_a_batch_is_done(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    query = Query(peer, consumerGroup="g")
    query.drain()
    assert peer.committed == {("T", 0): 10, ("T", 1): 10}
    commits = [one for one in peer.asked if one.code == RequestCode.UPDATE_CONSUMER_OFFSET]
    assert {one.ext["consumerGroup"] for one in commits} == {"g"}
    query.plan()
    assert [one for one in peer.asked if one.code == RequestCode.UPDATE_CONSUMER_OFFSET] == commits


def test_a_group_is_introduced_only_where_it_is_unknown(peer: Peer) -> None:
    """Tools find a group by its retry topic, which brokers create for its first member."""

    def members() -> list[int]:
        kinds = (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT)
        return [one.code for one in peer.asked if one.code in kinds]

    peer.fill("T", 1, 10)
    query = Query(peer, consumerGroup="g")
    query.drain()
    assert members() == [RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT]
    peer.asked.clear()
    peer.fill("%RETRY%g", 1, 0)
    Query(peer, consumerGroup="g").drain()
    assert members() == []


def test_progress_is_not_where_a_query_begins_unless_asked(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    peer.committed["T", 0] = 7
    query = Query(peer, consumerGroup="g", commitOffsets="false")
    query.drain()
    assert (len(query.read), peer.committed) == (20, {("T", 0): 7})
    query = Query(peer, consumerGroup="g", startingOffsets="committed")
    query.drain()
    assert sorted(query.read) == [(0, 7), (0, 8), (0, 9), *((1, n) for n in range(10))]


def test_a_query_does_not_care_whether_progress_can_be_stored(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    peer.fill("T", 2, 10)
    peer.replies[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda _: Command(
        ResponseCode.SYSTEM_ERROR, remark="no"
    )
    query = Query(peer, consumerGroup="g")
    query.drain()
    peer.fill("T", 2, 20)
    query.drain()
    assert len(query.read) == 40
    assert caplog.text.count("progress of group g was not stored") == 1


def test_what_is_reported_as_the_latest(peer: Peer) -> None:
    peer.fill("T", 2, 10)
    query = Query(peer, maxOffsetsPerTrigger="5")
    assert query.reader.reportLatestOffset() is None
    query.trigger()
    query.trigger()
    assert query.reader.reportLatestOffset() == {"T": {"broker-a": {"0": 10, "1": 10}}}


# -- the rest ---------------------------------------------------------------------------------------


def test_an_idle_query_asks_seldom(peer: Peer) -> None:
    peer.fill("T", 1, 10)
    query = Query(peer)
    query.drain()
    for _ in range(5):
        query.plan()
    peer.asked.clear()
    started = time.monotonic()
    for _ in range(4):
        query.plan()
    assert time.monotonic() - started >= 4 * stream.IDLE_PAUSE_MAX_S
    assert sum(one.code == RequestCode.GET_MAX_OFFSET for one in peer.asked) == 4


def test_the_source_gives_the_reader(peer: Peer) -> None:
    options = {"nameservers": peer.address, "subscribe": "T", "columns": "body"}
    source = RocketMQDataSource(options)
    reader = source.streamReader(source.schema())
    assert isinstance(reader, RocketMQStreamReader)
    with pytest.raises(ConfigError, match="leave"):
        source.streamReader(source.schema().add("more", IntegerType()))
    reader.stop()


@pytest.mark.parametrize("seed", range(12))
def test_crashes_at_any_point(peer: Peer, seed: int) -> None:
    """A driver is killed before its first batch, after one is planned, and between batches, while queues are added and grow,
    and brokers hang up: everything is read once, in order."""
    random = Random(seed)
    peer.fill("T", 2, 0)
    limit = str(random.choice([1, 7, 1000]))

    def grow() -> None:
        count = len(peer.queues["T"]) + (random.random() < 0.1)
        sizes = [len(records) for records in peer.queues["T"]] + [0]
        peer.queues["T"] += [[] for _ in range(count - len(peer.queues["T"]))]
        for queue, records in enumerate(peer.queues["T"]):
            more = random.choice([0, 0, 1, 5])
            records += [
                stored("T", queue, n, b"") for n in range(sizes[queue], sizes[queue] + more)
            ]

    def refuse(request: Command) -> Command:
        peer.replies.clear()  # once
        raise ConnectionAbortedError

    query = Query(peer, maxOffsetsPerTrigger=limit, retryTimeoutMs="10000")
    for _ in range(30):
        match random.randrange(6):
            case 0 | 1:
                grow()
            case 2:
                query.trigger()
            case 3:
                if query.plan():
                    query = Query(peer, query, maxOffsetsPerTrigger=limit, retryTimeoutMs="10000")
            case 4:
                query = Query(peer, query, maxOffsetsPerTrigger=limit, retryTimeoutMs="10000")
            case 5:
                code = random.choice([RequestCode.GET_MAX_OFFSET, RequestCode.PULL_MESSAGE])
                peer.replies[code] = refuse
    peer.replies.clear()
    query.drain()
    for queue, records in enumerate(peer.queues["T"]):
        assert [n for q, n in query.read if q == queue] == list(range(len(records)))


def test_batches_end_at_one_time_in_all_queues(peer: Peer) -> None:
    """A message of queue 0 every millisecond, one of queue 1 every fifth, which are told apart by their offsets."""
    peer.fill("T", 1, 100)
    peer.queues["T"].append([stored("T", 1, n * 5, b"x") for n in range(20)])

    def searched(request: Command) -> Command:
        after = int(request.ext["timestamp"]) - 1_700_000_000_500
        step = 5 if request.ext["queueId"] == "1" else 1
        return Command(0, ext={"offset": str(min(max(-(-after // step), 0), 100 // step))})

    peer.replies[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = searched
    query = Query(peer, alignByTime="true", maxOffsetsPerTrigger="30")
    ends = []
    while query.plan():
        assert query.planned is not None
        ends.append([query.planned["T"]["broker-a"][queue] for queue in "01"])
        query.done = query.planned
    assert ends == [[0, 0], [25, 5], [50, 10], [75, 15], [100, 20]]
