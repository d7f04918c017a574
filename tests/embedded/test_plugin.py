"""The pytest plugin, in runs of pytest of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.waiting import PATIENCE_S

PLUGIN = ("-p", "no:steelyard", "-p", "steelyard.embedded.plugin", "-p", "no:cacheprovider")
"""As its entry point loads it, whether or not that is installed here."""


def run(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one file with these tests."""
    (folder / "test_it.py").write_text(code)
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *PLUGIN, "-c", os.devnull),
            *("--rootdir", str(folder), *options, str(folder / "test_it.py")),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


ONE_SERVER = """
import json
import pytest
from steelyard import Producer, RouteError, Server

def test_an_own_topic(steelyard_topic, rocketmq_nameserver, steelyard_server):
    assert steelyard_topic.startswith("test_an_own_topic-main-")
    assert isinstance(steelyard_server, Server)
    with Producer("p", rocketmq_nameserver) as producer:
        producer.send(steelyard_topic, b"one")

def test_that_fails(kafka_bootstrap, steelyard_server, steelyard_topic):
    assert len(kafka_bootstrap.split(",")) == 2 and steelyard_server.brokers[1] == "broker-b"
    steelyard_server.restart_broker("broker-b")
    assert False

def test_faults_are_undone(steelyard_faults):
    steelyard_faults.slow("broker-b")
    steelyard_faults.resume("broker-b")
    steelyard_faults.kill("broker-b")
    steelyard_faults.restart("broker-b")
    for fault in (steelyard_faults.lose_member, steelyard_faults.force_rebalance):
        with pytest.raises(RouteError):
            fault("nobody")
    steelyard_faults.kill("broker-b")
    steelyard_faults.pause()

def test_after_the_faults(steelyard_topic, steelyard_server):
    import psutil
    processes = psutil.Process().children()
    with open("servers.json", "w") as file:
        json.dump([process.pid for process in processes], file)
    assert len(processes) == 3
"""


def test_fixtures_faults_and_the_log_of_a_failure(tmp_path: Path) -> None:
    done = run(tmp_path, ONE_SERVER, "--steelyard-brokers=2", "-rA")
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("log of the Steelyard server, call") == 1
    assert (
        "broker-b: data directory opened"
        in done.stdout.partition("log of the Steelyard server, call")[2]
    )
    servers = json.loads((tmp_path / "servers.json").read_text())
    assert len(servers) == 3
    assert not any(map(psutil.pid_exists, servers))


WORKERS = """
import json, os, time
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(2))
def test_of_a_worker(number, steelyard_server, steelyard_topic, rocketmq_nameserver, steelyard_faults):
    worker = os.environ["PYTEST_XDIST_WORKER"]
    place = Path(__file__).parent
    (place / f"{worker}.json").write_text(json.dumps([rocketmq_nameserver, steelyard_topic]))
    while len(list(place.glob("gw*.json"))) < 2:  # so that both workers have a test
        time.sleep(0.01)
    if SHARED:
        with pytest.raises(ValueError, match="--steelyard-server=worker"):
            steelyard_faults.kill()
"""


@pytest.mark.proof
@pytest.mark.parametrize("mode", ["session", "worker"])
def test_workers_of_xdist(tmp_path: Path, mode: str) -> None:
    """Each has a server, or all have one, which goes with the last of them."""
    base = tmp_path / "base"
    code = WORKERS.replace("SHARED", str(mode == "session"))
    options = ("-n", "2", f"--steelyard-server={mode}", "--basetemp", str(base))
    done = run(tmp_path, code, *options)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    found = [json.loads((tmp_path / f"gw{number}.json").read_text()) for number in range(2)]
    assert len({topic for _, topic in found}) == 2
    nameservers = {nameserver for nameserver, _ in found}
    assert len(nameservers) == (1 if mode == "session" else 2)
    (log,) = base.glob("steelyard-*.log") if mode == "session" else [None]
    assert log is None or "INFO" in log.read_text()
    _wait_until_gone(str(base))


def _wait_until_gone(text: str) -> None:
    """Wait for the end of all processes whose command has the text."""
    found = [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid() and text in " ".join(_command(process))
    ]
    _, left = psutil.wait_procs(found, timeout=PATIENCE_S)
    assert left == []


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--steelyard-brokers=0",), "brokers is 0; it must be"),
        (("--steelyard-set=store.flash=1",), "unknown setting 'store.flash'"),
        (("--steelyard-set=flush",), "'flush': expected NAME=VALUE"),
        (("-o", "steelyard_brokers=two"), "steelyard_brokers is 'two'; it must be a whole number"),
        (("-o", "steelyard_server=all"), "steelyard_server is 'all'; it must be"),
    ],
)
def test_wrong_options(tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    done = run(tmp_path, "def test_it(steelyard_server): pass", *options)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    (line,) = filter(None, done.stderr.splitlines())
    assert line.startswith("ERROR: ")
    assert text in line
    assert "Traceback" not in done.stdout


def test_whoever_uses_no_fixture_loads_nothing() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import steelyard.embedded.plugin;"
        " print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE_S
    )
    loaded = done.stdout.replace("'", "").strip("[]\n").split(", ")
    assert loaded == [
        "steelyard",
        "steelyard.embedded",
        "steelyard.embedded.plugin",
        "steelyard.version",
    ]
