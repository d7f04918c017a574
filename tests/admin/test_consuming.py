"""`steelyard consume`: exactly so many messages, where a new group begins, how it ends."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.admin.processes import Ports, committed, json_lines, run, start, stored
from tests.waiting import until

from steelyard import Producer, Server


def consume(
    ports: Ports, topic: str, group: str, *options: str
) -> subprocess.CompletedProcess[str]:
    return run("consume", "-n", ports.nameserver, "-t", topic, "-g", group, *options)


def produce(ports: Ports, topic: str, count: int) -> None:
    done = run("produce", "-n", ports.nameserver, "-t", topic, "--count", str(count), "--size", "1")
    assert done.returncode == 0, done


def test_count_consumes_exactly_so_many(ports: Ports) -> None:
    """1. 200 messages. 2. Five are printed and committed. 3. The others were neither lost nor sent to the retry topic:
    the next member gets them, once each."""
    produce(ports, "Exact", 200)
    delayed = stored(ports.nameserver, "SCHEDULE_TOPIC_XXXX")
    first = consume(ports, "Exact", "exact", "--from", "earliest", "--count", "5")
    assert (first.returncode, first.stderr) == (0, "")
    assert len(first.stdout.splitlines()) == 5
    assert committed(ports.nameserver, "exact", "Exact") == 5
    assert stored(ports.nameserver, "%RETRY%exact") == 0
    rest = consume(ports, "Exact", "exact", "--count", "195", "--timeout", "60")
    assert rest.returncode == 0
    bodies = first.stdout.splitlines() + rest.stdout.splitlines()
    assert sorted(bodies) == sorted(f"{number} " for number in range(200))
    assert committed(ports.nameserver, "exact", "Exact") == 200
    assert stored(ports.nameserver, "%RETRY%exact") == 0
    assert stored(ports.nameserver, "SCHEDULE_TOPIC_XXXX") == delayed, "they wait there first"


def test_a_signal_loses_nothing_either(ports: Ports) -> None:
    """1. A consumer prints into a pipe that is read slowly. 2. It is stopped. 3. What it wrote is committed, no more."""
    produce(ports, "Slow", 20_000)
    slow = start(
        "consume", "-n", ports.nameserver, "-t", "Slow", "-g", "slow", "--from", "earliest"
    )
    assert slow.stdout is not None
    for _ in range(40):
        assert slow.stdout.readline()
    slow.terminate()
    assert slow.stderr is not None
    rest = slow.stdout.readlines()
    assert (slow.wait(60), slow.stderr.read()) == (0, b"")
    assert committed(ports.nameserver, "slow", "Slow") == 40 + len(rest)
    assert stored(ports.nameserver, "%RETRY%slow") == 0


@pytest.mark.parametrize("kafka", [False, True])
def test_where_a_group_begins(ports: Ports, kafka: bool) -> None:
    """In queues of which it has committed nothing, and only there."""
    topic, where = ("StartsK", ("--kafka", ports.kafka)) if kafka else ("Starts", ())
    run(
        "admin",
        "updateTopic",
        "-n",
        ports.nameserver,
        "-b",
        ports.broker,
        "-t",
        topic,
        "-r1",
        "-w1",
    )
    sends = ("produce", "-n", ports.nameserver, "-t", topic, "--json", "--body")
    for number in range(3):
        assert run(*sends, str(number)).returncode == 0
    (first, second, third) = json_lines(
        consume(ports, topic, "times", "--from", "first", "--count", "3", "--json").stdout
    )

    def begins(group: str, start: str, *options: str) -> list[str]:
        command = ["consume", "-t", topic, "-g", group, "--from", start, *options]
        done = run(*command, *(where or ("-n", ports.nameserver)))
        assert done.returncode == 0, done
        return done.stdout.splitlines()

    name = "k" if kafka else "r"
    assert begins(f"{name}-earliest", "earliest", "--count", "3") == ["0", "1", "2"]
    assert begins(f"{name}-offset", "1", "--count", "2") == ["1", "2"]
    assert begins(f"{name}-before", "-1h", "--count", "3") == ["0", "1", "2"]
    at = f"@{third['store_timestamp']}"
    assert begins(f"{name}-time", at, "--count", "1") == ["2"] or (
        second["store_timestamp"] == third["store_timestamp"]
    )
    assert begins(f"{name}-date", "2020-01-01T00:00:00Z", "--count", "1") == ["0"]
    assert begins(f"{name}-date", "earliest", "--count", "2") == ["1", "2"], "it has committed one"
    assert begins(f"{name}-beyond", "99", "--timeout", "3") == []
    assert first["body"] == "0"


def test_a_closed_pipe_ends_it_quietly(ports: Ports) -> None:
    """141, as other programs; also where no more messages come."""
    produce(ports, "Piped", 5000)
    consumer = start(
        "consume", "-n", ports.nameserver, "-t", "Piped", "-g", "p", "--from", "earliest"
    )
    assert consumer.stdout is not None
    assert consumer.stdout.readline()
    consumer.stdout.close()
    assert consumer.stderr is not None
    assert (consumer.wait(60), consumer.stderr.read()) == (141, b"")
    assert stored(ports.nameserver, "%RETRY%p") == 0
    run("admin", "updateTopic", "-n", ports.nameserver, "-b", ports.broker, "-t", "Silent")
    idle = start("consume", "-n", ports.nameserver, "-t", "Silent", "-g", "p2")
    assert idle.stdout is not None
    idle.stdout.close()
    assert idle.stderr is not None
    assert (idle.wait(60), idle.stderr.read()) == (141, b"")


def test_a_group_without_permission_is_refused(ports: Ports) -> None:
    run("admin", "updateTopic", "-n", ports.nameserver, "-b", ports.broker, "-t", "Forbidden")
    produce(ports, "Forbidden", 3)
    group = ("admin", "updateSubGroup", "-n", ports.nameserver, "-b", ports.broker, "-g", "denied")
    assert run(*group, "-s", "false").returncode == 0
    done = consume(ports, "Forbidden", "denied", "--from", "earliest", "--timeout", "20")
    said = f"code 16 from {ports.broker}: subscription group no permission, denied"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"steelyard: {said}\n")
    assert run(*group, "-s", "true").returncode == 0
    done = consume(ports, "Forbidden", "denied", "--from", "earliest", "--count", "3")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kafka", [False, True])
@pytest.mark.parametrize("number", [("--count", "3"), ()])
def test_what_cannot_be_written_is_not_consumed(
    ports: Ports, number: tuple[str, ...], kafka: bool
) -> None:
    """1. The disk that the output goes to is full. 2. It ends. 3. The group reads all of it."""
    topic, group = "Full", f"full{kafka}{len(number)}"
    produce(ports, topic, 5)
    where = ("--kafka", ports.kafka) if kafka else ("-n", ports.nameserver)
    command = ("consume", *where, "-t", topic, "-g", group, "--from", "earliest")
    with open("/dev/full", "wb") as full:
        consumer = start(*command, *number, stdout=full)
        said = consumer.communicate(timeout=60)[1]
    assert said == b"steelyard: cannot write the output: No space left on device\n"
    assert consumer.returncode == 1
    rest = run(*command, "--count", "5")
    assert (rest.returncode, len(rest.stdout.splitlines())) == (0, 5)
    if not kafka:
        assert stored(ports.nameserver, f"%RETRY%{group}") == 0


@pytest.mark.parametrize("kafka", [False, True])
def test_an_interrupt_ends_it_quietly(ports: Ports, kafka: bool) -> None:
    produce(ports, "Interrupted", 1)
    where = ("--kafka", ports.kafka) if kafka else ("-n", ports.nameserver)
    consumer = start(
        "consume", *where, "-t", "Interrupted", "-g", f"i{kafka}", "--from", "earliest"
    )
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == b"0 \n"
    consumer.send_signal(signal.SIGINT)
    assert consumer.communicate(timeout=60) == (b"", b"")
    assert consumer.returncode == 130


def test_kafka_count_commits_exactly_so_many(ports: Ports) -> None:
    """As librdkafka, a foreign reader of the group's offsets, sees it."""
    from confluent_kafka import Consumer, TopicPartition

    produce(ports, "KExact", 100)
    first = run(
        *("consume", "--kafka", ports.kafka, "-t", "KExact", "-g", "kexact"),
        *("--from", "earliest", "--count", "7"),
    )
    assert (first.returncode, first.stderr) == (0, "")
    assert len(first.stdout.splitlines()) == 7
    reader = Consumer({"bootstrap.servers": ports.kafka, "group.id": "kexact"})
    partitions = list(reader.list_topics("KExact", 30).topics["KExact"].partitions)
    found = reader.committed([TopicPartition("KExact", number) for number in partitions], 30)
    reader.close()
    assert sum(max(0, partition.offset) for partition in found) == 7
    rest = run("consume", "--kafka", ports.kafka, "-t", "KExact", "-g", "kexact", "--count", "93")
    assert rest.returncode == 0
    bodies = first.stdout.splitlines() + rest.stdout.splitlines()
    assert sorted(bodies) == sorted(f"{number} " for number in range(100))


def test_kafka_begins_everywhere_before_it_commits() -> None:
    """1. One of two brokers answers slowly. 2. A new group gets records of the other, and ends. 3. A group that goes on
    at `latest` misses none of the slow broker's: where the group begins there is committed."""
    with Server(brokers=2) as server:
        with Producer("p", server.nameserver) as producer:
            for _ in range(16):
                producer.send("KSlow", b"x")
        server.slow_broker("broker-b", pause_ms=400)
        where = ("--kafka", server.bootstrap_servers, "-t", "KSlow", "-g", "kslow")
        first = run("consume", *where, "--from", "earliest", "--count", "1")
        assert (first.returncode, len(first.stdout.splitlines())) == (0, 1)
        rest = run("consume", *where, "--count", "15", "--timeout", "60")
        assert (rest.returncode, len(rest.stdout.splitlines())) == (0, 15)
        assert "protocol to the Kafka port" not in server.log()  # which would blame a client


def test_a_member_that_joins_after_another_was_killed_does_not_wait_for_its_locks(
    tmp_path: Path,
) -> None:
    """1. Two members. 2. One is killed, and the other reads all queues. 3. A third one gets half of them at once."""
    with (
        ExitStack() as stack,
        Server(brokers=2) as server,
        Producer("p", server.nameserver) as producer,
    ):
        where = ("-n", server.nameserver, "-t", "Killed", "-g", "killed", "--from", "earliest")

        def member(name: str) -> subprocess.Popen[bytes]:
            with (tmp_path / name).open("wb") as out, (tmp_path / f"{name}.log").open("wb") as log:
                started = start("consume", *where, "--json", stdout=out, stderr=log)
            stack.callback(started.kill)
            return started

        def queues(name: str, since: int) -> set[tuple[str, int]]:
            """The queues of the messages that came after `since` bytes of a member's output."""
            lines = (tmp_path / name).read_bytes()[since:].decode().rpartition("\n")[0]
            return {(one["broker"], one["queue_id"]) for one in json_lines(lines)}

        def shares(*names: str) -> list[int]:
            """From how many queues members get what is sent to all now."""
            sizes = {name: (tmp_path / name).stat().st_size for name in names}
            for queue in producer.queues("Killed"):
                producer.send("Killed", b"x", queue=queue)

            def found() -> list[set[tuple[str, int]]]:
                return [queues(name, size) for name, size in sizes.items()]

            until(lambda: len(set().union(*found())) == 8, names)
            return [len(each) for each in found()]

        server.create_topic("Killed", queues=4)
        members = {name: member(name) for name in ("one", "two")}
        until(lambda: shares("one", "two") == [4, 4])
        members.pop("two").kill()
        until(lambda: shares("one") == [8])
        members["three"] = member("three")
        until(lambda: shares("one", "three") == [4, 4])
        for name, each in members.items():
            each.terminate()
            assert each.wait(60) == 0
            assert (tmp_path / f"{name}.log").read_text() == ""


def test_kafka_records_as_json(ports: Ports) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": ports.kafka})
    headers: list[tuple[str, str | bytes | None]]
    headers = [("trace", b"1"), ("trace", b"\xff"), ("none", None)]
    producer.produce("KJson", b"caf\xc3\xa9", key=b"\xfe", headers=headers, timestamp=1_000)
    producer.flush(30)
    producer.produce("KJson", None, key=b"gone", timestamp=2_000)
    producer.flush(30)
    done = run(
        *("consume", "--kafka", ports.kafka, "-t", "KJson", "-g", "kjson", "--json"),
        *("--from", "earliest", "--count", "2"),
    )
    first, second = sorted(json_lines(done.stdout), key=lambda line: int(line["timestamp"]))
    assert first == {
        "topic": "KJson",
        "partition": first["partition"],
        "offset": first["offset"],
        "timestamp": 1_000,
        "timestamp_type": "CreateTime",
        "key_base64": "/g==",
        "value": "café",
        "headers": [
            {"name": "trace", "value": "1"},
            {"name": "trace", "value_base64": "/w=="},
            {"name": "none", "value": None},
        ],
    }
    assert (second["key"], second["value"], second["headers"]) == ("gone", None, [])


def test_a_time_out_tells_whether_enough_came(ports: Ports) -> None:
    produce(ports, "Few", 2)
    options = ("--from", "earliest", "--timeout", "3")
    begun = time.monotonic()
    assert consume(ports, "Few", "few1", *options).returncode == 0
    few = consume(ports, "Few", "few2", *options, "--count", "3")
    assert (few.returncode, len(few.stdout.splitlines())) == (1, 2)
    assert few.stderr == "steelyard: 2 of 3 messages arrived within 3 s\n"
    assert time.monotonic() - begun >= 6
    assert committed(ports.nameserver, "few2", "Few") == 2
