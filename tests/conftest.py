"""For all tests: how they are shared out, and that a busy machine is not a failure. pytest's own time-out, per test, stays."""

from __future__ import annotations

import gc
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests import examples
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

examples.load_profile()  # `--hypothesis-profile` may name another one

# A shell starts what it puts into the background with SIGINT ignored, and the processes of the tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

SPARK = "tests/spark/"
LONGEST = (
    SPARK,
    "tests/peers/kafka/test_incidents.py",
    "tests/peers/kafka/test_rebalance.py",
    "tests/peers/embedded/",
    "tests/peers/test_incidents.py",
    "tests/peers/test_delayed_answers.py",
)
"""Files and folders whose tests take minutes: what comes last runs while other workers have nothing left to do."""


PROOFS = (
    "tests/admin/test_supervising.py",
    "tests/bench/",
    "tests/clients/test_damage.py",
    "tests/clients/test_kills.py",
    "tests/clients/test_rebalances.py",
    "tests/clients/test_storms.py",
    "tests/crash/",
    "tests/damage/",
    "tests/determinism/",
    "tests/embedded/test_plugin.py",
    "tests/embedded/test_start_page.py",
    "tests/embedded/test_testing_guide.py",
    "tests/fuzz/",
    "tests/nodes/broker/remoting/test_transaction_kills.py",
    "tests/repository/test_reference.py",
    "tests/servers/test_exhaustion.py",
    "tests/sim/test_compare.py",
    "tests/sim/test_defects.py",
    "tests/sim/test_faults.py",
    "tests/sim/test_kafka_consumer_defects.py",
    "tests/sim/test_kafka_defects.py",
    "tests/sim/test_scenario.py",
    "tests/sim/test_swarm.py",
    "tests/spark_long/test_bench.py",
    "tests/spark_long/test_ledger_kills.py",
    "tests/spark_long/test_move_kills.py",
    "tests/spark_long/test_sink_kills.py",
    "tests/spark_long/test_stream_kills.py",
    "tests/spark_long/test_topic_to_table_kills.py",
)
"""Files and folders of `./dev proofs`: they repeat until chance has had its turn, or run other programs as a whole.

Those of Spark are run by `./dev spark`, but not by `./dev spark --short`.
"""


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """A file is run by one worker; one of them runs all files that share the one Spark session."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the proofs, and let the longest begin first."""
    for item in items:
        if item.nodeid.startswith(PROOFS):
            item.add_marker(pytest.mark.proof)

    def place(item: pytest.Item) -> int:
        starts = (number for number, each in enumerate(LONGEST) if item.nodeid.startswith(each))
        return next(starts, len(LONGEST))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Do not let the garbage collector look at thousands of tests again and again: they stay to the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of 127.0.0.1, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here to make a certificate")
    path = tmp_path_factory.mktemp("tls") / "broker.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    name = ["-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(path.with_suffix(".key")), "-out", str(path)]
    subprocess.run([*command.split(), *name, *files], check=True, capture_output=True)
    path.write_text(path.read_text() + path.with_suffix(".key").read_text())
    return path
