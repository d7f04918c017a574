"""The command line as a process: ready lines, clean stops, what is printed, what is refused."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import psutil
import pytest
from tests.waiting import until

from steelyard.admin import exits
from steelyard.admin.main import main

Start = Callable[..., subprocess.Popen[str]]

NOBODY = "127.0.0.1:1"

COMMAND = [sys.executable, "-m", "steelyard"]


def run(*arguments: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
    )


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a command and gives the process; all are killed in the end, with their children."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.communicate()


def ready_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def up(start: Start, data: Path, *options: str, brokers: int = 1) -> subprocess.Popen[str]:
    return start(
        "up",
        *("--brokers", str(brokers), "--data", str(data)),
        *("--nameserver-port", "0", "--broker-port", "0", "--json", *options),
    )


def ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


# -- servers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_is_ready_and_stops_cleanly(start: Start, tmp_path: Path, number: int) -> None:
    process = up(start, tmp_path, brokers=2)
    ready = json.loads(ready_line(process))
    assert list(ready) == ["nameserver", "brokers"]
    assert list(ready["brokers"]) == ["broker-a", "broker-b"]
    for address in (ready["nameserver"], *ready["brokers"].values()):
        host, port = address.split(":")
        assert host == "127.0.0.1"
        socket.create_connection((host, int(port)), 5).close()
    children = [child.pid for child in psutil.Process(process.pid).children()]
    assert len(children) == 3  # the nameserver is one
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker-a", "broker-b"]
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (0, "", "")
    assert all(map(ended, children))


def test_up_prints_one_plain_line(start: Start, tmp_path: Path) -> None:
    process = start(
        "up", "--data", str(tmp_path), "--nameserver-port", "0", "--broker-port", "0", "-v"
    )
    assert ready_line(process).startswith("ready: nameserver at 127.0.0.1:")
    process.terminate()
    assert process.wait(60) == 0


def test_brokers_end_with_a_killed_supervisor(start: Start, tmp_path: Path) -> None:
    process = up(start, tmp_path, brokers=2)
    ready_line(process)
    children = [child.pid for child in psutil.Process(process.pid).children()]
    process.kill()
    until(lambda: all(map(ended, children)))


def test_a_nameserver_alone(start: Start) -> None:
    process = start("nameserver", "--port", "0", "--json")
    address = json.loads(ready_line(process))["nameserver"]
    assert run("admin", "topicList", "-n", address).stdout == ""
    process.terminate()
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        data = ("--data", str(tmp_path))
        up = ("up", *data, "--nameserver-port", "0", "--broker-port", "0")
        for arguments, option in (
            (("nameserver", "--port", port), "--port"),
            (("broker", *data, "--port", port), "--port"),
            (("broker", *data, "--port", "0", "--kafka-port", port), "--kafka-port"),
            (("up", *data, "--nameserver-port", port), "--nameserver-port"),
            (("up", *data, "--nameserver-port", "0", "--broker-port", port), "--broker-port"),
            ((*up, "--kafka-port", port), "--kafka-port"),
            ((*up, "--http", port), "--http"),
            (("http", "--port", port), "--port"),
            (("console", "--http", port), "--http"),
        ):
            what = f"127.0.0.1:{port}: the port is in use; give another one with {option}\n"
            assert_refused(run(*arguments), what)


def test_a_data_directory_in_use(start: Start, tmp_path: Path) -> None:
    process = up(start, tmp_path)
    ready_line(process)
    second = run("up", "--data", str(tmp_path), "--nameserver-port", "0", "--broker-port", "0")
    assert_refused(second, "broker-a: data directory", "is in use by another process")


def assert_refused(
    done: subprocess.CompletedProcess[str], *texts: str, code: int = exits.WRONG
) -> None:
    """One line on standard error, the exit code, nothing else."""
    assert done.returncode == code, done
    assert done.stdout == ""
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1, done.stderr
    for text in texts:
        assert text in done.stderr


# -- clients ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The nameserver's address of a cluster that the module's tests share."""
    data = tmp_path_factory.mktemp("cluster")
    process = subprocess.Popen(
        [
            *(*COMMAND, "up", "--brokers", "2", "--data", str(data), "--json"),
            *("--nameserver-port", "0", "--broker-port", "0"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    yield json.loads(ready_line(process))["nameserver"]
    process.terminate()
    assert process.wait(60) == 0
    process.communicate()


def test_lines_go_in_and_come_out(cluster: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\r\nthree")
    sent = run(
        *("produce", "-n", cluster, "-t", "Lines", "--tag", "A", "--key", "k"),
        *("--file", str(tmp_path / "lines"), "--sharding-key", "s", "--json"),
    )
    results = [json.loads(line) for line in sent.stdout.splitlines()]
    assert [result["status"] for result in results] == ["SEND_OK"] * 3
    assert len({(result["broker"], result["queue_id"]) for result in results}) == 1
    more = run("produce", "-n", cluster, "-t", "Lines", text="four\nfünf\n")
    assert more.stdout.startswith("sent 2 messages to Lines in ")
    assert re.search(r" s, the last to broker-a, queue \d, offset \d+\n$", more.stdout)
    assert run("produce", "-n", cluster, "-t", "Lines", "--body", "six").returncode == 0
    got = run("consume", "-n", cluster, "-t", "Lines", "-g", "l", "--from", "first", "--count", "6")
    assert sorted(got.stdout.splitlines()) == ["four", "fünf", "one", "six", "three", "two"]
    tagged = run(
        *("consume", "-t", "Lines", "-g", "m", "--from", "first", "--count", "3"),
        *("--tags", "A || B", "--json"),
        NAMESRV_ADDR=cluster,
    )
    messages = [json.loads(line) for line in tagged.stdout.splitlines()]
    assert sorted(message["body"] for message in messages) == ["one", "three", "two"]
    assert {(message["tags"], message["keys"], message["topic"]) for message in messages} == {
        ("A", "k", "Lines")
    }


def test_consume_commits_what_it_printed(cluster: str) -> None:
    run("produce", "-n", cluster, "-t", "Twice", "--count", "30", "--size", "10")
    options = ("consume", "-n", cluster, "-t", "Twice", "-g", "twice", "--from", "first")
    first = run(*options, "--count", "30").stdout.splitlines()
    assert sorted(first) == sorted(f"{n} ".ljust(10, "x") for n in range(30))
    again = run(*options, "--timeout", "1")
    assert (again.returncode, again.stdout) == (0, "")


def test_consume_says_when_messages_are_missing(cluster: str) -> None:
    done = run(
        "consume", "-n", cluster, "-t", "TBW102", "-g", "x", "--count", "1", "--timeout", "0.5"
    )
    assert (done.returncode, done.stdout) == (1, "")


def test_topics_are_made_shown_and_deleted(cluster: str) -> None:
    made = run(
        *("admin", "updateTopic", "-n", cluster, "-c", "DefaultCluster", "-t", "Made"),
        *("-r", "3", "-w", "2", "-p", "4"),
    )
    lines = made.stdout.splitlines()
    assert [line.split(" to ")[0] for line in lines[:2]] == ["create topic"] * 2
    assert lines[2] == (
        "TopicConfig [topicName=Made, readQueueNums=3, writeQueueNums=2, perm=R--, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false]"
    )
    table = run("admin", "topicRoute", "-n", cluster, "-t", "Made", "-l").stdout.splitlines()
    assert [line.split()[1] for line in table[1:3]] == ["broker-a", "broker-b"]
    assert table[-1].split() == ["Total:", "2", "6", "4"]
    assert "Made" in run("admin", "topicList", "-n", cluster).stdout.splitlines()
    deleted = run("admin", "deleteTopic", "-n", cluster, "-c", "DefaultCluster", "-t", "Made")
    assert deleted.stdout == (
        "delete topic [Made] from cluster [DefaultCluster] success.\n"
        "delete topic [Made] from NameServer success.\n"
    )
    assert_refused(
        run("admin", "topicRoute", "-n", cluster, "-t", "Made"),
        "no route for topic Made",
        code=exits.FAILED,
    )


def test_a_group_is_shown(cluster: str, start: Start) -> None:
    run("produce", "-n", cluster, "-t", "Shown", "--count", "20")
    consumer = start("consume", "-n", cluster, "-t", "Shown", "-g", "shown", "--from", "first")
    assert consumer.stdout is not None
    for _ in range(20):
        assert consumer.stdout.readline()
    connection = run("admin", "consumerConnection", "-n", cluster, "-g", "shown").stdout
    assert connection.splitlines()[1].split()[2:] == ["PYTHON", "V4_9_8"]
    assert connection.endswith(
        "\nConsumeType: CONSUME_PASSIVELY\nMessageModel: CLUSTERING\n"
        "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET\n"
    )
    listed = run("admin", "consumerProgress", "-n", cluster).stdout.splitlines()
    (line,) = (line for line in listed if line.startswith("shown "))
    assert line.split()[1:5] == ["1", "V4_9_8", "PUSH", "CLUSTERING"]
    consumer.terminate()
    assert consumer.wait(60) == 0
    progress = run("admin", "consumerProgress", "-n", cluster, "-g", "shown", "-t", "Shown").stdout
    rows = [line.split() for line in progress.splitlines() if line.startswith("Shown ")]
    assert len(rows) == 8
    assert sum(int(row[3]) for row in rows) == sum(int(row[4]) for row in rows) == 20
    assert progress.endswith("\nDiff Total: 0\n")
    listed = run("admin", "consumerProgress", "-n", cluster).stdout.splitlines()
    (line,) = (line for line in listed if line.startswith("shown "))
    assert line.split()[1:3] == ["0", "OFFLINE"]
    offline = run("admin", "consumerConnection", "-n", cluster, "-g", "shown")
    assert_refused(offline, code=exits.FAILED)


def test_a_nameserver_that_is_down_is_passed_over(cluster: str) -> None:
    assert "TBW102\n" in run("admin", "topicList", "-n", f"{NOBODY};{cluster}").stdout


def test_a_cluster_is_shown(cluster: str) -> None:
    lines = run("admin", "clusterList", "-n", cluster).stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["DefaultCluster", "broker-a", "0"],
        ["DefaultCluster", "broker-b", "0"],
    ]
    totals = run("admin", "clusterList", "-n", cluster, "-m").stdout.splitlines()
    assert totals[0].split()[-1] == "#OutTotalToday"
    status = run("admin", "brokerStatus", "-n", cluster, "-c", "DefaultCluster").stdout
    assert " brokerVersionDesc               : V4_9_8\n" in status
    topics = run("admin", "topicList", "-n", cluster, "-c").stdout
    assert topics.startswith("#Cluster Name         #Topic")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "required"),
        (("fly",), "invalid choice"),
        (("admin",), "required"),
        (("admin", "fly"), "invalid choice"),
        (("admin", "clusterlist"), "no 'clusterlist'; did you mean clusterList? (--help"),
        (("consum",), "no 'consum'; did you mean consume? (--help"),
        (("admin", "topicRoute"), "-t"),
        (("admin", "topicRoute", "-n", NOBODY, "-t", "T"), "cannot connect"),
        (("admin", "clusterList", "-n", f"{NOBODY};127.0.0.1:2"), "cannot connect to 127.0.0.1:2"),
        (("admin", "topicList", "-n", "nonsense"), "host:port"),
        (("admin", "consumerProgress", "-n", NOBODY, "-g", "g"), "cannot connect"),
        (("admin", "brokerStatus", "-n", NOBODY, "-b", NOBODY), "cannot connect"),
        (("admin", "updateTopic", "-n", NOBODY, "-t", "T"), "-b/--brokerAddr -c/--clusterName"),
        (("admin", "updateTopic", "-t", "T", "-c", "C", "-p", "9"), "perm is 9"),
        (("admin", "updateTopic", "-t", "T", "-c", "C", "-r", "0"), "readQueueNums is 0"),
        (("admin", "updateTopic", "-t", "T", "-c", "C", "-r", "x"), "invalid int"),
        (
            ("admin", "allocateMQ", "-t", "T", "-i", ",", "-n", NOBODY),
            "-i is empty; give client ids",
        ),
        (("produce", "-n", NOBODY, "-t", "T", "--body", "x"), "cannot connect"),
        (("produce", "-n", NOBODY, "-t", "T", "--file", "/no/such/file"), "/no/such/file"),
        (("produce", "-n", NOBODY, "-t", "T", "--count", "-1"), "count is -1"),
        (("produce", "-n", NOBODY, "-t", "T", "--count", "1", "--size", "-1"), "size is -1"),
        (("consume", "-n", NOBODY, "-t", "T"), "-g"),
        (("consume", "-n", NOBODY, "-t", "T", "-g", "g"), "cannot connect"),
        (("consume", "-n", NOBODY, "-t", "T", "-g", "g", "--from", "now"), "--from is 'now'"),
        (("consume", "-n", NOBODY, "-t", "T", "-g", "g", "--count", "0"), "count is 0"),
        (("up", "--brokers", "0"), "brokers is 0"),
        (("up", "--brokers", "27"), "brokers is 27"),
        (("up", "--brokers", "3", "--broker-port", "65530"), "broker port 65530"),
        (("up", "--nameserver-port", "70000"), "cannot listen on 127.0.0.1:70000"),
        (("up", "--host", "192.0.2.77"), "cannot listen on 192.0.2.77"),
        (("up", "--flush", "never"), "invalid choice"),
        (("broker", "--data", "/proc/no/such", "--port", "0"), "/proc/no/such"),
        (("broker", "--data", "/tmp", "--nameserver", "x"), "host:port"),
        (("nameserver", "--host", "no.such.host.invalid"), "cannot listen"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_said_in_one_line(
    arguments: tuple[str, ...], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = exits.FAILED if "cannot connect" in text else exits.WRONG
    assert_refused(run_here(*arguments), text, code=code)


def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As `run`, but in this process: no second interpreter to start."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            code = main(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else -1
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())


def test_a_process_says_no_more_than_one_line() -> None:
    for command in (("produce", "--body", "x"), ("consume", "-g", "g"), ("admin", "topicRoute")):
        done = run(*command, "-n", NOBODY, "-t", "T")
        assert_refused(done, "cannot connect to 127.0.0.1:1", code=exits.FAILED)


def test_help_and_version() -> None:
    assert run("--version").stdout == "steelyard 0.1.0\n"
    for arguments in ((), ("admin",), ("admin", "topicRoute"), ("up",), ("consume",)):
        done = run_here(*arguments, "--help")
        assert done.returncode == 0
        assert done.stdout.startswith("usage: steelyard")
