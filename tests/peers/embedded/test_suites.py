"""The own Kafka tests of two projects from PyPI, unchanged, on the fixture of our pytest plugin.

- sentry-arroyo: Sentry's library for stream processing, on librdkafka; both group protocols.
- kombu: the messaging library of Celery, with its transport for Kafka.

Apache Kafka, started for the same tests, is the control: every test must end there as it does here.
The times of both, from the start of the server to its end, are what docs/TESTING.md quotes; run with
`-s` to see them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from tests.embedded.test_plugin import PLUGIN
from tests.peers.apache import Missing
from tests.peers.kafka import builds
from tests.peers.kafka.servers import run_apache
from tests.unpacking import unpack

pytestmark = pytest.mark.peer

SUITES = Path(__file__).parent / "suites"

LIMIT_S = 400.0
"""For one run; on a quiet machine each takes less than a minute."""


class Suite(NamedTuple):
    """Tests of a project: its name, its conftest, and pytest's arguments."""

    name: str
    conftest: str
    arguments: tuple[str, ...]


ARROYO = Suite(
    "sentry_arroyo-2.48.0",
    "arroyo.py",
    ("tests/backends/test_kafka.py", "tests/test_kip848_e2e.py", "-k", "not pause"),
)
"""Without those about paused consumers, which mostly wait for seconds to pass."""

KOMBU = Suite(
    "kombu-5.7.0",
    "kombu.py",
    (
        *("t/integration/test_kafka.py", "-o", "python_classes=test_*"),
        *("-k", "not failed and not Failover"),
    ),
)
"""Without those about servers that are down, which wait for time-outs."""


def sources() -> Path:
    """The unpacked source packages, and `packages` with what they need. Raises Missing."""

    def fetch(folder: Path) -> None:
        builds.call(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                *("--no-binary", "sentry-arroyo,kombu", "--require-hashes"),
                *("-r", str(SUITES / "requirements.txt"), "-d", str(folder)),
            ],
            "pip cannot download the projects from PyPI",
        )
        for package in folder.glob("*.tar.gz"):
            with tarfile.open(package) as archive:
                unpack(archive, folder)
        for package in folder.glob("*.whl"):
            zipfile.ZipFile(package).extractall(folder / "packages")
        shutil.copy(SUITES / "assertions.py", folder / ARROYO.name / "tests")

    return builds.made("suites", sorted(SUITES.glob("*.*")), fetch)


class Run(NamedTuple):
    """How each test ended, and how long all took, with their server."""

    outcomes: dict[str, str]
    seconds: float


@pytest.fixture(params=[ARROYO, KOMBU], ids=lambda suite: suite.name)
def suite(request: pytest.FixtureRequest) -> Suite:
    found: Suite = request.param
    return found


def run(suite: Suite, folder: Path, bootstrap: str | None = None) -> dict[str, str]:
    """Run a suite on this broker, or on the fixture of the plugin; how each test ended."""
    place = folder / suite.name
    shutil.copytree(sources() / suite.name, place)
    shutil.copy(SUITES / suite.conftest, place / "conftest.py")
    report = folder / "report.xml"
    path = [str(sources() / "packages"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    environment.pop("DEFAULT_BROKERS", None)
    if bootstrap is not None:
        environment["DEFAULT_BROKERS"] = bootstrap
    command = [sys.executable, "-m", "pytest", *PLUGIN, "-p", "no:xdist", "-q", "-c", os.devnull]
    done = subprocess.run(
        [*command, "--rootdir", str(place), f"--junitxml={report}", *suite.arguments],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    print(done.stdout[-3000:])
    cases = ElementTree.parse(report).iter("testcase")
    return {f"{case.get('classname')}.{case.get('name')}": _outcome(case) for case in cases}


def _outcome(case: ElementTree.Element) -> str:
    bad = [each.tag for each in case if each.tag in ("failure", "error", "skipped")]
    return bad[0] if bad else "passed"


def test_a_projects_own_tests(suite: Suite, tmp_path: Path) -> None:
    try:
        sources()
        builds.jars("server", builds.SERVER)
    except Missing as reason:
        pytest.skip(f"no foreign peer: {reason}")
    begun = time.perf_counter()
    ours = Run(run(suite, tmp_path / "steelyard"), time.perf_counter() - begun)
    begun = time.perf_counter()
    with run_apache(tmp_path / "apache" / "server") as apache:
        theirs = Run(run(suite, tmp_path / "apache", apache.bootstrap), time.perf_counter() - begun)
    print(
        f"{suite.name}: {len(ours.outcomes)} tests, Steelyard {ours.seconds:.1f} s,"
        f" Apache Kafka {theirs.seconds:.1f} s"
    )
    assert ours.outcomes == theirs.outcomes
    assert set(ours.outcomes.values()) <= {"passed", "skipped"}
    assert list(ours.outcomes.values()).count("passed") >= 10
