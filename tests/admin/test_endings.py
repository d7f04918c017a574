"""How commands end: exit codes, and one line that says what was wrong and what would be right."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from tests.admin.processes import COMMAND, NOBODY, Ports, run, start

from steelyard.admin import exits


def told(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line on standard error."""
    assert (done.returncode, done.stdout) == (code, ""), done
    (line,) = done.stderr.splitlines()
    return line


ILLEGAL = "has characters that are not allowed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("consume", "-t", "a b", "-g", "g"), f"topic 'a b' {ILLEGAL}"),
        (("consume", "-t", "T", "-g", "a b"), f"group 'a b' {ILLEGAL}"),
        (("consume", "-t", "T", "-g", "g" * 121), "has 121 characters; at most 120"),
        (("consume", "-t", "", "-g", "g"), "the name of the topic is empty"),
        (("consume", "--kafka", "h:1", "-t", "a|b", "-g", "g"), f"topic 'a|b' {ILLEGAL}"),
        (("consume", "--kafka", "h:1", "-t", "..", "-g", "g"), "cannot be named '..'"),
        (("consume", "--kafka", "h:1", "-t", "T" * 250, "-g", "g"), "at most 249"),
        (("consume", "--kafka", "h:1", "-t", "T", "-g", ""), "the name of the group is empty"),
        (("consume", "--kafka", "h:1", "-t", "T", "-g", "g", "--tags", "a"), "Kafka has no tags"),
        (("consume", "--kafka", "h:1", "-n", "h:2", "-t", "T", "-g", "g"), "not both"),
        (
            ("consume", "-t", "T", "-g", "g", "--from", "noon"),
            "--from is 'noon'; it must be one of",
        ),
        (("consume", "-t", "T", "-g", "g", "--timeout", "0"), "more than 0 seconds"),
        (("produce", "-t", "a b", "--body", "x"), "topic 'a b' has characters other than"),
        (("produce", "-t", "T" * 128, "--body", "x"), "longer than 127 characters"),
        (("produce", "-t", "SCHEDULE_TOPIC_XXXX", "--body", "x"), "written by brokers only"),
        (("produce", "-t", "T", "-g", "a b", "--body", "x"), f"group 'a b' {ILLEGAL}"),
        (("produce", "--body", "x"), "give the topic to send to: -t TOPIC"),
        (("produce", "-t", "T", "--body", "x", "--property", "a"), "it must be NAME=VALUE"),
        (("produce", "-t", "T", "--body", "x", "--delay", "19"), "levels go from 1 to 18"),
        (("produce", "-t", "T", "--body", "x", "--delay", "0s"), "such as 10s, 90m or 250ms"),
        (("produce", "-t", "T", "--body", "x", "--delay", "soon"), "such as 10s"),
        (("produce", "-t", "T", "--body", "x", "--property", "KEYS=1"), "is set with --key"),
        (("produce", "-t", "T", "--body", "x", "--size", "10"), "give --count as well"),
        (("produce", "-t", "T", "--body", ""), "the body is empty"),
        (("produce", "-t", "T", "--count", "1", "--size", "5000000"), "at most 4194304"),
        (("consume", "-t", "T", "-g", "g", "--kafka", "foo"), "'foo' is not an address"),
        (("consume", "-t", "T", "-g", "g", "--kafka", "foo"), "such as 127.0.0.1:9092"),
        (("admin", "user", "list", "--kafka", "foo"), "such as 127.0.0.1:9092"),
        (("admin", "brokerStatus", "-b", "foo"), "such as 127.0.0.1:10911"),
        (("admin", "brokerStatus", "-b", "foo", "-n", "foo"), "such as 127.0.0.1:9876"),
        (("pipeline",), "the following arguments are required: COMMAND"),
        (("sim", "--scenario", "/nowhere"), "cannot read /nowhere: No such file or directory"),
        (("produce", "--input", "json", "--count", "1"), "leave out --body and --count"),
        (("produce", "--input", "json", "--sharding-key", "s"), "leave out --sharding-key"),
        (("admin", "updateTopic", "-b", "h:1", "-t", "a.b"), "topic 'a.b' has characters"),
        (("admin", "topicRoute", "-t", "a b"), f"topic 'a b' {ILLEGAL}"),
        (("admin", "updateSubGroup", "-b", "h:1", "-g", "a.b"), f"group 'a.b' {ILLEGAL}"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_right_ends_with_2(arguments: tuple[str, ...], said: str) -> None:
    assert said in told(run(*arguments, NAMESRV_ADDR=NOBODY), exits.WRONG)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("consume", "-t", "Nowhere", "-g", "g"), "topic Nowhere does not exist; `steelyard admin"),
        (
            ("consume", "--kafka", "KAFKA", "-t", "Nowhere", "-g", "g"),
            "topic Nowhere does not exist",
        ),
        (("admin", "topicRoute", "-t", "Nowhere"), "no route for topic Nowhere"),
        (("admin", "consumerProgress", "-g", "nobody"), "no broker knows group nobody"),
        (("admin", "kafkaGroup", "-g", "nobody"), "no broker coordinates a Kafka group nobody"),
        (("admin", "doctor", "-g", "nobody"), "no broker knows group nobody"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_does_not_exist_ends_with_1(
    ports: Ports, arguments: tuple[str, ...], said: str
) -> None:
    given = [ports.kafka if argument == "KAFKA" else argument for argument in arguments]
    variables = {} if "KAFKA" in arguments else {"NAMESRV_ADDR": ports.nameserver}
    assert said in told(run(*given, **variables), exits.FAILED)


CONSUME = ("consume", "-t", "T", "-g", "g")


@pytest.mark.parametrize(
    ("arguments", "given", "said"),
    [
        (
            ("admin", "topicList", "-n"),
            "broker",
            "is the port of a RocketMQ broker, not of a RocketMQ nam",
        ),
        (
            ("admin", "topicList", "-n"),
            "kafka",
            "is the port of a Kafka broker, not of a RocketMQ nam",
        ),
        (
            ("admin", "brokerStatus", "-b"),
            "kafka",
            "is the port of a Kafka broker, not of a RocketMQ br",
        ),
        (
            ("admin", "brokerStatus", "-b"),
            "nameserver",
            "a RocketMQ nameserver, not of a RocketMQ br",
        ),
        (
            ("produce", "-t", "T", "--body", "x", "-n"),
            "broker",
            "is the port of a RocketMQ broker, not",
        ),
        (
            ("produce", "-t", "T", "--body", "x", "-n"),
            "kafka",
            "is the port of a Kafka broker, not of a",
        ),
        ((*CONSUME, "-n"), "broker", "give a nameserver's address with -n (port 9876"),
        ((*CONSUME, "-n"), "kafka", "or read from Kafka with --kafka 127.0.0.1:"),
        (
            (*CONSUME, "--kafka"),
            "broker",
            "is the port of a RocketMQ broker, not of a Kafka broker",
        ),
        ((*CONSUME, "--kafka"), "nameserver", "or read from RocketMQ with -n 127.0.0.1:"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_port_is_named(
    ports: Ports, arguments: tuple[str, ...], given: str, said: str
) -> None:
    address: str = getattr(ports, given)
    line = told(run(*arguments, address, NAMESRV_ADDR=ports.nameserver), exits.FAILED)
    assert line.startswith(f"steelyard: {address} is the port of ")
    assert said in line


@pytest.mark.parametrize(
    "arguments", [("admin", "topicList"), ("--help",), ("admin", "topicRoute", "--help")]
)
def test_a_closed_pipe_is_no_error(ports: Ports, arguments: tuple[str, ...]) -> None:
    """Whoever was to read has gone before anything was written."""
    reader, writer = os.pipe()
    os.close(reader)
    listing = start(*arguments, stdout=writer, env=os.environ | {"NAMESRV_ADDR": ports.nameserver})
    os.close(writer)
    assert listing.communicate(timeout=60)[1] == b""
    assert listing.returncode == exits.CLOSED_PIPE


FULL = "steelyard: cannot write the output: No space left on device"


@pytest.mark.parametrize(
    "arguments",
    [
        ("admin", "topicList"),
        ("admin", "topicStatus", "-t", "Full", "--json"),
        ("admin", "clusterList", "--watch"),
        ("produce", "-t", "Full", "--body", "x"),
        ("produce", "-t", "Full", "--body", "x", "--json"),
        ("--help",),
        ("completion", "bash"),
        ("pipeline", "archive-offsets", "--help"),
        ("up", "--data", "", "--nameserver-port", "0", "--broker-port", "0"),
    ],
    ids=" ".join,
)
def test_output_that_cannot_be_written_is_one_line(
    ports: Ports, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    arguments = tuple(argument or str(tmp_path) for argument in arguments)
    assert run("produce", "-n", ports.nameserver, "-t", "Full", "--body", "x").returncode == 0
    with open("/dev/full", "wb") as full:
        printing = start(
            *arguments, stdout=full, env=os.environ | {"NAMESRV_ADDR": ports.nameserver}
        )
        said = printing.communicate(timeout=60)[1].decode()
    assert (printing.returncode, said) == (exits.FAILED, f"{FULL}\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", ["admin topicList", "produce -t Closed"])
def test_closed_streams_are_null_devices(ports: Ports, arguments: str, closed: str) -> None:
    """Otherwise the first sockets would get their descriptors, which uvloop never closes."""
    command = f"{shlex.join(COMMAND)} {arguments} {closed}"
    done = subprocess.run(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        env=os.environ | {"NAMESRV_ADDR": ports.nameserver},
    )
    assert (done.returncode, done.stderr) == (exits.SUCCESS, b"")
    assert bool(done.stdout) == (">&-" not in closed.split())


def test_an_interrupt_ends_produce_while_it_waits_for_lines(ports: Ports) -> None:
    """1. One line goes in, and is sent. 2. No other comes. 3. Ctrl-C."""
    producer = start("produce", "-n", ports.nameserver, "-t", "Awaited", "--json")
    assert producer.stdin is not None
    assert producer.stdout is not None
    producer.stdin.write(b"one\n")
    producer.stdin.flush()
    assert b"SEND_OK" in producer.stdout.readline()
    producer.send_signal(signal.SIGINT)
    assert producer.wait(60) == exits.INTERRUPTED
    assert producer.communicate() == (b"", b"")


def test_an_interrupt_ends_admin_commands() -> None:
    """While it waits for somebody who accepts connections and says nothing."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        command = start("admin", "topicList", "-n", f"{host}:{port}")
        silent.accept()[0].recv(1)
        command.send_signal(signal.SIGINT)
        assert command.communicate(timeout=60) == (b"", b"")
        assert command.returncode == exits.INTERRUPTED


@pytest.mark.parametrize("command", [(), ("consume",), ("produce",), ("admin", "doctor")])
def test_help_explains_the_exit_codes(command: tuple[str, ...]) -> None:
    shown = " ".join(run(*command, "--help").stdout.split())
    for code in (exits.SUCCESS, exits.FAILED, exits.WRONG, exits.INTERRUPTED, exits.CLOSED_PIPE):
        assert f"{code} " in shown.partition("Exit codes: ")[2]
