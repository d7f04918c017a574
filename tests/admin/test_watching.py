"""`--watch`: a command that repeats itself, in a pipe, as JSON lines and on a terminal, and how it ends."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pytest
from tests.admin.processes import NOBODY, Ports, run, start
from tests.waiting import until

from steelyard import ConsumeFrom, Producer, PushConsumer
from steelyard.admin import exits

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


@contextmanager
def watching(*arguments: str, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = start("admin", *arguments, **streams)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines(stream: IO[bytes] | None) -> Iterator[str]:
    assert stream is not None
    for line in stream:
        yield line.decode().rstrip("\n")


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Its exit code, and what it wrote to standard error."""
    assert process.stderr is not None
    code = process.wait(60)
    return code, process.stderr.read().decode()


def test_json_is_one_line_per_reading(ports: Ports) -> None:
    arguments = ("clusterList", "-n", ports.nameserver, "--json")
    once = json.loads(run("admin", *arguments).stdout)
    with watching(*arguments, "--watch", "0.1") as process:
        found = lines(process.stdout)
        readings = [json.loads(next(found)) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        assert ended(process) == (exits.INTERRUPTED, "")
    times = [reading.pop("at") for reading in readings]
    assert times[1] - times[0] >= 99
    assert times[2] - times[1] >= 99
    for reading in readings:
        assert reading.keys() == once.keys()
        assert [row["broker_name"] for row in reading["brokers"]] == ["broker-a", "broker-b"]


def test_text_is_below_its_time(ports: Ports) -> None:
    arguments = ("topicStatus", "-n", ports.nameserver, "-t", "TBW102")
    once = run("admin", *arguments).stdout.splitlines()
    with watching(*arguments, "--watch", "0.1") as process:
        found = lines(process.stdout)
        for _ in range(2):
            assert TIME.fullmatch(next(found))
            assert [next(found) for _ in once] == once
            assert next(found) == ""
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (exits.SUCCESS, "")


def test_a_closed_pipe_ends_it_at_once(ports: Ports) -> None:
    """It does not wait for the next reading, an hour later, to find out."""
    arguments = ("clusterList", "-n", ports.nameserver, "--watch", "3600", "--json")
    with watching(*arguments) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["unreachable"] == []
        process.stdout.close()
        assert ended(process) == (exits.CLOSED_PIPE, "")
        process.stdout = None


def test_an_error_is_shown_and_the_question_asked_again(ports: Ports) -> None:
    """1. Nobody knows the group. 2. It gets a member, and its progress is shown."""
    group, topic = "WatchedGroup", "WatchedTopic"
    arguments = ("consumerProgress", "-n", ports.nameserver, "-g", group, "--watch", "0.1")
    with Producer("watched", ports.nameserver) as producer:
        producer.send(topic, b"x")
    with watching(*arguments, "--json") as process, watching(*arguments) as text:
        found = lines(process.stdout)
        for _ in range(2):
            failed = json.loads(next(found))
            assert failed.keys() == {"at", "error", "unreachable"}
            assert failed["error"].startswith(f"no broker knows group {group}")
        assert next(lines(text.stderr)).startswith(f"steelyard: no broker knows group {group}")
        consumed = threading.Event()
        consumer = PushConsumer(
            group,
            ports.nameserver,
            lambda message: consumed.set(),
            consume_from=ConsumeFrom.FIRST_OFFSET,
            commit_interval_ms=100,
        )
        with consumer.subscribe(topic, "*"):
            assert consumed.wait(60)
            until(lambda: "queues" in json.loads(next(found)))
            until(lambda: next(lines(text.stdout)).startswith(topic))


def test_nobody_there_is_an_error_of_each_reading() -> None:
    with watching("clusterList", "-n", NOBODY, "--watch", "0.1", "--json") as process:
        found = lines(process.stdout)
        for _ in range(2):
            assert "cannot connect to" in json.loads(next(found))["error"]


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "nan", "inf", "86401"])
def test_a_wrong_interval(seconds: str) -> None:
    done = run("admin", "clusterList", f"--watch={seconds}")
    assert done.returncode == exits.WRONG
    assert done.stderr.count("\n") == 1
    assert f"'{seconds}' is no number of seconds from 0.1 to 86400" in done.stderr


# -- on a terminal ---------------------------------------------------------------------------------


class Terminal:
    """What a program writes to a terminal of so many lines."""

    def __init__(self, height: int) -> None:
        self._ours, self.theirs = pty.openpty()
        self.resize(height)
        self.written = ""

    def resize(self, height: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, 80, 0, 0))

    def read(self) -> bool:
        """Take what is there, after waiting for something; False at the end."""
        try:
            data = os.read(self._ours, 65_536)
        except OSError:  # Linux: the other end was closed
            return False
        self.written += data.decode()
        return bool(data)

    def frames(self) -> list[list[str]]:
        """The lines of each whole picture so far."""
        found = re.findall(r"\x1b\[H(.*?)\x1b\[J", self.written, re.DOTALL)
        return [
            [line.rstrip() for line in each.replace("\x1b[K", "").split("\r\n")] for each in found
        ]

    def close(self) -> None:
        os.close(self._ours)


def test_on_a_terminal_each_reading_takes_the_place_of_the_one_before(ports: Ports) -> None:
    arguments = ("clusterList", "-n", ports.nameserver)
    once = run("admin", *arguments).stdout.splitlines()
    terminal = Terminal(5)
    with watching(*arguments, "--watch", "0.1", stdout=terminal.theirs) as process:
        while len(terminal.frames()) < 2:
            assert terminal.read()
        terminal.resize(24)
        process.send_signal(signal.SIGWINCH)
        while len(terminal.frames()[-1]) == 5:
            assert terminal.read()
        process.send_signal(signal.SIGINT)
        os.close(terminal.theirs)
        while terminal.read():
            pass
        assert ended(process) == (exits.INTERRUPTED, "")
    terminal.close()
    cut, whole = terminal.frames()[0], terminal.frames()[-1]
    assert cut[0] == f"every 0.1 s: steelyard admin {' '.join(arguments)} --watch 0.1"
    assert TIME.fullmatch(cut[1])
    names = [line.split()[:2] for line in once]
    assert cut[2] == ""
    assert cut[3].split()[:2] == names[0]
    assert cut[4] == f"... {len(once) - 1} more lines: a larger terminal shows all"
    assert [line.split()[:2] for line in whole[3:]] == names
    assert terminal.written.startswith("\x1b[?1049h")
    assert terminal.written.endswith("\x1b[?1049l")


def test_an_error_on_a_terminal() -> None:
    terminal = Terminal(24)
    with watching("clusterList", "-n", NOBODY, "--watch", "0.1", stdout=terminal.theirs):
        while len(terminal.frames()) < 2:
            assert terminal.read()
    os.close(terminal.theirs)
    terminal.close()
    for frame in terminal.frames()[:2]:
        assert "cannot connect to" in frame[2]
