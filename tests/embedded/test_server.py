"""`steelyard.Server`: servers in processes of their own, and in this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer
from confluent_kafka import Producer as KafkaProducer
from tests.waiting import PATIENCE_S, until

from steelyard import (
    ArgumentError,
    BrokerError,
    ClosedError,
    ConfigError,
    KafkaConsumer,
    Producer,
    PullConsumer,
    RouteError,
    Server,
    SteelyardError,
)
from steelyard.embedded.administrator import OperatorAccess
from steelyard.embedded.groups import _coordinator
from steelyard.embedded.kafka_connection import KafkaConnection
from steelyard.errors import CallTimeoutError, ConnectError, KafkaError
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.streams_groups import (
    STREAMS_GROUP_HEARTBEAT,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)


@pytest.fixture(params=[False, True], ids=["processes", "in_process"], scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(brokers=2, in_process=request.param) as server:
        yield server


def test_clients_of_both_dialects_find_everything_at_once(server: Server) -> None:
    """No client repeats anything: the first request finds all queues, partitions and brokers."""
    topic = server.create_topic("Both", queues=3)
    with Producer("p", server.nameserver) as producer:
        sent = {producer.send(topic, b"%d" % number).queue for number in range(12)}
    assert {queue.broker_name for queue in sent} == set(server.brokers) == {"broker-a", "broker-b"}
    assert len(sent) == 6
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "both",
            "auto.offset.reset": "earliest",
        }
    )
    metadata = consumer.list_topics(topic, timeout=PATIENCE_S)
    assert len(metadata.brokers) == 2
    assert len(metadata.topics[topic].partitions) == 6
    consumer.subscribe([topic])
    found: list[bytes | None] = []

    def all_found() -> bool:
        found.extend(message.value() for message in consumer.consume(12, 0.1))
        return len(found) == 12

    until(all_found, found)
    assert set(found) == {b"%d" % number for number in range(12)}
    consumer.close()


def test_a_killed_broker_comes_back_with_its_data(server: Server) -> None:
    topic = server.create_topic("Killed", queues=1)
    with Producer("p", server.nameserver) as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(4)]
    addresses = server.bootstrap_servers
    server.kill_broker("broker-b")
    with pytest.raises(ConnectError):
        KafkaConnection(addresses.split(",")[1], OperatorAccess(""))
    server.kill_broker("broker-b")  # is down already
    server.restart_broker("broker-b")
    assert server.bootstrap_servers == addresses
    with PullConsumer("g", server.nameserver) as consumer:
        ends = {queue: consumer.max_offset(queue) for queue in consumer.queues(topic)}
    assert {queue.broker_name: end for queue, end in ends.items()} == {
        name: sum(each.queue.broker_name == name for each in sent) for name in server.brokers
    }


def test_rebalances_tell_what_happened_before_the_call(server: Server) -> None:
    topic = server.create_topic("Costs", queues=1)
    assert server.rebalances("costs") == []
    producer = KafkaProducer({"bootstrap.servers": server.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    with KafkaConsumer(
        topic,
        bootstrap_servers=server.bootstrap_servers,
        group_id="costs",
        auto_offset_reset="earliest",
    ) as first:
        seen = 0
        while seen < 10:
            seen += len(first.poll(1000))
        first.commit()
        (begun,) = server.rebalances("costs")
        assert begun.trigger == "joined"
        assert begun.members_after == (first.member_id,)
        generation = first.generation
        server.force_rebalance("costs")
        until(lambda: first.poll(100) is not None and first.generation > generation)
        lost = first.member_id
        assert server.lose_member("costs") == lost
        until(lambda: first.poll(100) is not None and first.member_id not in ("", lost))
    assert any(f"{lost} left" in row.reason for row in server.rebalances("costs"))
    assert {row.group for row in server.rebalances()} >= {"costs"}
    assert all(row.group == "costs" for row in server.handoffs("costs"))


def test_a_member_of_the_consumer_protocol_is_lost(server: Server) -> None:
    topic = server.create_topic("Kip848", queues=1)
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "kip848",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    assigned: list[int] = []
    consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.append(len(partitions)))
    until(lambda: consumer.poll(0.05) is not None or assigned == [2], assigned)
    server.force_rebalance("kip848")
    server.lose_member("kip848")
    until(lambda: consumer.poll(0.05) is not None or assigned == [2, 2], assigned)
    consumer.close()


def test_a_thread_of_kafka_streams_is_lost(server: Server) -> None:
    """It joins by hand; real ones are in tests/peers/kafka."""
    topic = server.create_topic("Streams", queues=1)
    join = StreamsGroupHeartbeatRequest(
        "streams",
        "thread",
        rebalance_timeout_ms=60_000,
        topology=Topology(0, [Subtopology("0", [topic])]),
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
        process_id="process",
    )
    with _coordinator(server._operators(), server.bootstrap_servers, "streams") as link:

        def beat(request: StreamsGroupHeartbeatRequest) -> int:
            answer = link.call(STREAMS_GROUP_HEARTBEAT, request, StreamsGroupHeartbeatResponse)
            return answer.error_code

        until(lambda: beat(join) == ErrorCode.NONE)
        with pytest.raises(ArgumentError, match="streams is a Kafka Streams group"):
            server.force_rebalance("streams")
        assert server.lose_member("streams") == "thread"
        later = StreamsGroupHeartbeatRequest("streams", "thread", 2)
        assert beat(later) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rocketmq_group_is_made_to_rebalance(server: Server) -> None:
    topic = server.create_topic("Remoting", queues=1)
    changes: list[tuple[str, ...]] = []
    consumer = PullConsumer("remoting", server.nameserver).register(topic)
    with consumer:
        assert len(consumer.balanced(topic)) == 2
        server.force_rebalance("remoting")
        (row,) = server.rebalances("remoting")
        changes.append(row.members_after)
        assert row.reason.count("joined") == 2
        assert row.reason.count("left") == 1
    assert len(changes[0]) == 1
    with pytest.raises(RouteError, match="no broker coordinates a Kafka group remoting"):
        server.lose_member("remoting")


def test_what_is_wrong_is_told(server: Server) -> None:
    with pytest.raises(ArgumentError, match="unknown broker 'broker-c'; did you mean"):
        server.kill_broker("broker-c")
    with pytest.raises(RouteError, match="no broker knows group nobody"):
        server.force_rebalance("nobody")
    with pytest.raises(BrokerError):
        server.create_topic("not a topic")
    with pytest.raises(ArgumentError, match="queues is 0; it must be"):
        server.create_topic("T", queues=0)
    with pytest.raises(KafkaError, match=r"topic no\.topic at all"):
        server.create_topic("no.topic at all")
    with pytest.raises(ClosedError, match="started only once"):
        server.start()


def test_a_topic_with_a_dot_is_created_for_kafka_clients(server: Server) -> None:
    assert server.create_topic("orders.created", queues=3) == "orders.created"
    producer = KafkaProducer({"bootstrap.servers": server.bootstrap_servers})
    found = producer.list_topics("orders.created", 30).topics["orders.created"]
    assert len(found.partitions) == 3 * len(server.brokers)
    with pytest.raises(KafkaError, match=r"topic orders\.created: .*exists"):
        server.create_topic("orders.created")


def test_a_server_shows_its_state_and_addresses_but_no_settings(server: Server) -> None:
    text = repr(server)
    assert text.startswith("<Server running: nameserver at ")
    assert all(each in text for each in (server.nameserver, server.bootstrap_servers))
    assert all(name in text for name in server.brokers)
    other = Server(settings={"users_file": "hush-hush"})
    assert repr(other) == "<Server not started: broker-a>"
    other.stop()
    assert repr(other) == "<Server stopped: broker-a>"


def test_an_unknown_member_is_told(server: Server) -> None:
    topic = server.create_topic("Unknown", queues=1)
    with KafkaConsumer(
        topic, bootstrap_servers=server.bootstrap_servers, group_id="unknown"
    ) as consumer:
        until(lambda: consumer.poll(100) is not None and consumer.member_id)
        with pytest.raises(ArgumentError, match="unknown member 'nobody'"):
            server.lose_member("unknown", "nobody")
        assert server.lose_member("unknown", consumer.member_id) == consumer.member_id


# -- processes only --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone() -> Iterator[Server]:
    """One broker, whose fault is everybody's."""
    with Server(settings={"num.partitions": 2, "store.retention_ms": "3600000"}) as server:
        yield server


def test_a_paused_broker_does_not_answer(alone: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = alone.create_topic("Paused")
    alone.pause_broker()
    monkeypatch.setattr("steelyard.embedded.kafka_connection.TIMEOUT_MS", 200)
    with pytest.raises(CallTimeoutError):
        alone._leads(topic, 4)
    alone.resume_broker()
    monkeypatch.undo()
    assert alone._leads(topic, 4)


def test_a_slow_broker_answers_late(alone: Server) -> None:
    """Answers that come at once otherwise take a pause, again and again."""
    topic = alone.create_topic("Slow", queues=1)
    with Producer("p", alone.nameserver) as producer:
        producer.send(topic, b"prompt")
        alone.slow_broker(pause_ms=300, run_ms=30)
        late = 0
        while late < 3:
            begun = time.monotonic()
            producer.send(topic, b"late")
            late += time.monotonic() - begun > 0.15
        alone.resume_broker()
        producer.send(topic, b"prompt")


def test_a_paused_broker_is_killed_and_comes_back(alone: Server) -> None:
    alone.pause_broker()
    alone.kill_broker()
    alone.restart_broker()
    assert alone.create_topic("Again") == "Again"
    assert "broker-a" in alone.log()


def test_settings_reach_the_brokers(alone: Server) -> None:
    with Producer("p", alone.nameserver) as producer:
        producer.send("ByTheFirstSend", b"one")
    producer_ = KafkaProducer({"bootstrap.servers": alone.bootstrap_servers})
    producer_.produce("ByKafka", b"")
    assert producer_.flush(PATIENCE_S) == 0
    found = producer_.list_topics("ByKafka", timeout=PATIENCE_S).topics["ByKafka"]
    assert len(found.partitions) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"brokers": 27}, ConfigError, "brokers is 27; it must be 1 to 26"),
        ({"brokers": 0}, ArgumentError, "brokers is 0; it must be"),
        ({"kafka": "yes"}, ArgumentError, "kafka is 'yes'; it must be"),
        ({"settings": {"store.flash": 1}}, ArgumentError, "unknown setting 'store.flash'"),
        ({"settings": {"flush": "never"}}, ArgumentError, "flush is 'never'"),
        ({"settings": {"kafka.node_id": 3}}, ConfigError, "kafka.node_id cannot be set here"),
        ({"brokerz": 1}, TypeError, "brokerz"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Server(**arguments)  # type: ignore[arg-type]


def test_a_server_that_does_not_run_says_so() -> None:
    server = Server(kafka=False, in_process=True)
    with pytest.raises(ClosedError, match="is not running; use `with` or start"):
        _ = server.nameserver
    with server:
        assert server.bootstrap_servers == ""
        assert server.create_topic("T") == "T"
        for fault in (server.pause_broker, server.slow_broker):
            with pytest.raises(ConfigError, match="needs brokers in processes of their own"):
                fault()
        server.resume_broker()
    with pytest.raises(ClosedError, match="was stopped"):
        server.kill_broker()
    server.stop()
    with pytest.raises(ClosedError, match="started only once"):
        server.start()


@pytest.mark.parametrize("in_process", [False, True])
def test_a_directory_of_the_callers_stays(tmp_path: Path, in_process: bool) -> None:
    for expected in (1, 2):
        with Server(data=tmp_path, in_process=in_process, kafka=False) as server:
            with Producer("p", server.nameserver) as producer:
                sent = producer.send("Kept", b"one")
            with PullConsumer("g", server.nameserver) as consumer:
                ends = sum(consumer.max_offset(queue) for queue in consumer.queues("Kept"))
            assert ends == expected, sent
    assert (tmp_path / "broker-a").is_dir()


def test_a_server_that_does_not_start_tells_why(tmp_path: Path) -> None:
    (tmp_path / "broker-a").write_text("a file in the way")
    with pytest.raises(SteelyardError, match="broker-a: data directory") as caught:
        Server(data=tmp_path).start()
    assert str(tmp_path) in str(caught.value)


def test_nothing_outlives_a_test_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL leaves the starter no time: its servers end by themselves, and the next start removes their data."""
    code = (
        "import steelyard, time; s = steelyard.Server(); s.start();"
        " print(s._folder.path, flush=True); time.sleep(600)"
    )
    environment = {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    servers = psutil.Process(process.pid).children(recursive=True)
    assert len(servers) == 2
    assert folder.is_dir()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    psutil.wait_procs(servers, timeout=PATIENCE_S)
    assert not any(server.is_running() for server in servers)
    code = "import steelyard; steelyard.Server(kafka=False, in_process=True).start().stop()"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **environment})
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []
