"""Against `steelyard up`: what producers sent is what the source reads, and what consumers did is in the ledger."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.waiting import until

from steelyard import ConsumeFrom, ConsumerConfig, Message, MessageQueue, Producer, PushConsumer
from steelyard.ledger import cost
from steelyard.ledger import events as ledger
from steelyard.ledger.events import LEDGER_TOPIC, BrokerStarted, Delivered, MemberJoined, Record
from steelyard.ledger.starts import MERGE_MS
from steelyard.spark.options.reading import read_options
from steelyard.spark.ownership import ownership_chart
from steelyard.spark.reading import columns
from steelyard.spark.source import RocketMQReader


@pytest.fixture(scope="module")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the nameserver of two brokers."""
    data = tmp_path_factory.mktemp("cluster")
    command = [sys.executable, "-m", "steelyard", "up", "--brokers", "2", "--data", str(data)]
    command += ["--nameserver-port", "0", "--broker-port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        yield json.loads(up.stdout.readline())["nameserver"]
        up.send_signal(signal.SIGTERM)


def read(nameserver: str, topic: str) -> pa.Table:
    """The whole topic, read as Spark's workers would."""
    reader = RocketMQReader(read_options({"nameservers": nameserver, "topic": topic}))
    batches = [batch for one in reader.partitions() for batch in reader.read(one)]
    return pa.Table.from_batches(batches, columns.SCHEMA)


def test_what_was_sent_is_read(nameserver: str) -> None:
    long = b"0123456789" * 1000  # compressed on its way
    with Producer("p", nameserver) as producer:
        producer.send("Read", long, tags="long", keys=["a", "b"], properties={"née": "ö"})
        for broker in ("broker-a", "broker-b"):
            queue = MessageQueue("Read", broker, 1)
            batch = [Message("Read", b"%d" % n, tags="short", keys=f"k{n}") for n in range(500)]
            for _ in range(3):
                producer.send_batch(batch, queue=queue)
    table = read(nameserver, "Read")
    assert table.num_rows == 3_001
    rows = table.sort_by([("brokerName", "ascending"), ("queueOffset", "ascending")]).to_pylist()
    (first,) = [row for row in rows if row["tags"] == "long"]
    assert (first["body"], first["keys"]) == (long, "a b")
    assert dict(first["properties"])["née"] == "ö"
    for broker in ("broker-a", "broker-b"):
        short = [row for row in rows if row["tags"] == "short" and row["brokerName"] == broker]
        assert [row["body"] for row in short] == [b"%d" % (n % 500) for n in range(1_500)]
        assert [row["keys"] for row in short] == [f"k{n % 500}" for n in range(1_500)]
        assert len({row["queueOffset"] for row in short}) == 1_500
    assert len({row["msgId"] for row in rows}) == 3_001


def test_the_ledger_tells_what_a_join_cost(nameserver: str) -> None:
    """One member consumes, a second one joins while publishing goes on: the queues that moved are rows."""
    seen: dict[str, set[bytes]] = {"m1": set(), "m2": set()}

    def member(name: str) -> PushConsumer:
        config = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        consumer = PushConsumer(
            "g",
            nameserver,
            lambda message: seen[name].add(message.body),
            client_id=name,
            config=config,
        )
        return consumer.subscribe("Ledger", "*")

    sent, done = 0, threading.Event()

    def publish() -> None:
        nonlocal sent
        with Producer("p", nameserver) as producer:
            while not done.wait(0.01):
                producer.send("Ledger", b"%d" % sent)
                sent += 1

    records: list[Record] = []

    def read_ledger() -> None:
        bodies = read(nameserver, LEDGER_TOPIC).column("body").to_pylist()
        records[:] = [record for body in bodies for record in ledger.decode(body)]

    def settled(name: str) -> bool:
        """The member consumed so long after it joined that the next event is a rebalance of its own."""
        read_ledger()
        joined = [one.at for one in records if isinstance(one, MemberJoined) and one.client == name]
        got = [one.until for one in records if isinstance(one, Delivered) and one.client == name]
        return bool(joined and got) and max(got) > max(joined) + MERGE_MS

    def written() -> bool:
        read_ledger()
        left = [one for one in records if getattr(one, "cause", "") == "unregistered"]
        return len(left) == 4  # two members, two brokers

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        with member("m1"):
            until(lambda: settled("m1"))
            with member("m2"):
                until(lambda: settled("m2"))
                done.set()
                thread.join()
                until(lambda: len(seen["m1"] | seen["m2"]) == sent)
    finally:
        done.set()
        thread.join()

    until(written)
    assert {one.broker for one in records if isinstance(one, BrokerStarted)} == {
        "broker-a",
        "broker-b",
    }
    handoffs, rebalances = cost.costs(records)
    assert [(row.trigger, row.members_after) for row in rebalances][:2] == [
        ("joined", ("m1",)),
        ("joined", ("m1", "m2")),
    ]
    moved = [row for row in handoffs if row.rebalance == rebalances[1].rebalance]
    assert {(row.from_client, row.to_client) for row in moved} == {("m1", "m2")}
    assert rebalances[1].queues_moved == len(moved) > 0
    chart = ownership_chart(records, "g")
    assert "A = m1" in chart
    assert "B = m2" in chart
