"""`steelyard up --http` and `steelyard http` as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.waiting import until
from tests.web.scrapes import get, readiness, scrape

from steelyard.admin import serving
from steelyard.admin.main import main

COMMAND = [sys.executable, "-m", "steelyard"]


@contextmanager
def running(*arguments: str) -> Iterator[tuple[dict[str, Any], int]]:
    """A server: its ready line, and the number of its process."""
    with subprocess.Popen([*COMMAND, *arguments, "--json"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline()), process.pid
        finally:
            process.terminate()
            assert process.wait(60) == 0


def test_up_serves_its_cluster_and_starts_the_server_again(tmp_path: Path) -> None:
    ports = ("--nameserver-port", "0", "--broker-port", "0", "--http", "0")
    with running("up", "--data", str(tmp_path), *ports) as (ready, pid):
        http = ready["http"]
        until(lambda: readiness(http) == (200, []))
        assert scrape(http).all("steelyard_broker_up") == [1]
        (server,) = [
            each for each in psutil.Process(pid).children() if "http" in each.cmdline()[:5]
        ]
        server.send_signal(signal.SIGKILL)

        def is_back() -> bool:
            try:
                return get(http, "/healthz")[0] == 200
            except OSError:
                return False

        until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)
        until(is_back)
        with running("http", "--nameserver", ready["nameserver"], "--port", "0") as (another, _):
            assert scrape(another["http"]).all("steelyard_broker_up") == [1]


def test_a_cluster_that_is_down_is_told(tmp_path: Path) -> None:
    with running("http", "--nameserver", "127.0.0.1:1", "--port", "0") as (ready, _):
        status, missing = readiness(ready["http"])
        assert status == 503
        assert missing[0].startswith("nameserver 127.0.0.1:1: ")
        assert scrape(ready["http"]).all("steelyard_nameserver_up") == [0]
        assert get(ready["http"], "/healthz")[0] == 200


def failed(*arguments: str, code: int = 2, **environment: str) -> str:
    """The one line that a command says that cannot start."""
    ended = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )
    assert ended.returncode == code, ended
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["http", "--port", "70000"], "70000"),
        (["http", "--set", "timeout_ms=0"], "timeout_ms is '0'"),
        (["http", "--set", "no_such=1"], "unknown setting 'no_such'"),
        (["up", "--http", "70000"], "HTTP port 70000 is wrong"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    assert words in failed(*arguments)


def test_settings_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "steelyard.toml"
    file.write_text("[http]\nbrokers = ['broker-z']\n")
    assert "brokers cannot be set in [http]" in failed("up", "--config", str(file), "--http", "0")
    with running("http", "--nameserver", "127.0.0.1:1", "--port", "0", "--config", str(file)) as (
        ready,
        _,
    ):
        _, missing = readiness(ready["http"])
        assert missing[1:] == ["broker broker-z: no nameserver lists it"]


def test_without_the_packages_one_line_says_what_to_install(tmp_path: Path) -> None:
    missing = tmp_path / "starlette.py"
    missing.write_text("raise ModuleNotFoundError(\"No module named 'starlette'\")\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ports = ["--nameserver-port", "0", "--broker-port", "0", "--http", "0"]
    for arguments in (
        ["http", "--port", "0"],
        ["up", "--data", str(tmp_path / "data"), *ports],
    ):
        said = failed(*arguments, PYTHONPATH=path)
        assert "pip install 'steelyard[http]'" in said


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((), b"sees groups and messages there without a login"),
        (
            ("--set", "allow_changes=true"),
            b"there, and may reset offsets and delete topics, without a login",
        ),
    ],
)
def test_a_console_that_others_reach_is_warned_of(settings: tuple[str, ...], words: bytes) -> None:
    there = ["--nameserver", "127.0.0.1:1", "--port", "0", "--host", "0.0.0.0"]
    command = [*COMMAND, "http", *there, *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"ready: ")
        assert words in process.stderr.readline()
        process.terminate()
        assert process.wait(60) == 0


def test_up_misses_packages_before_it_starts_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serving, "HTTP_PACKAGES", ("no_such_package",))
    assert main(["up", "--data", str(tmp_path / "data"), "--http", "0"]) == 2
    assert "pip install 'steelyard[http]' (No module named 'no_such_package')" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "data").exists()
