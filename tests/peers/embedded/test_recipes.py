"""The recipes of docs/TESTING.md for other languages, run as they are printed: a test in Java, Go and Node.js each.

Each starts `steelyard up` by itself and checks that it stops; here it is seen that nothing is left,
also when the test program is killed in the middle.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.embedded.guide import examples
from tests.peers.apache import Missing, java_environment
from tests.peers.kafka import builds
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.peer

HERE = Path(__file__).parent


def java(folder: Path) -> list[str]:
    """A class of JUnit 5, compiled against its jars and Kafka's."""
    builds.need("java", "javac", "mvn")
    pom = HERE / "java" / "pom.xml"

    def fetch(jars: Path) -> None:
        builds.call(
            [
                *("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"),
                *("-DincludeScope=runtime", f"-DoutputDirectory={jars}"),
            ],
            "Maven cannot fetch JUnit and Kafka's client",
        )

    jars = builds.made("recipes", [pom], fetch)
    (example,) = examples("java")
    (folder / "OrdersTest.java").write_text(example.code)
    builds.call(
        ["javac", "-cp", f"{jars}/*", "-d", str(folder), str(folder / "OrdersTest.java")],
        "the Java recipe does not compile",
    )
    launcher = "org.junit.platform.console.ConsoleLauncher"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [
        *("java", quiet, "-cp", f"{folder}:{jars}/*", launcher, "execute"),
        *("--select-class", "OrdersTest", "--disable-banner"),
    ]


def go(folder: Path) -> list[str]:
    """A Go test, with franz-go in the version that the other peer tests have."""
    builds.need("go")
    module = HERE.parent / "kafka" / "go"
    text = (module / "go.mod").read_text()
    text = re.sub(r"^(require listener|replace listener).*\n", "", text, flags=re.MULTILINE)
    (folder / "go.mod").write_text(text.replace("module peers", "module orders"))
    shutil.copy(module / "go.sum", folder)
    (example,) = examples("go")
    (folder / "orders_test.go").write_text(example.code)
    builds.call(
        ["go", "test", "-mod=mod", "-c", "-o", "orders.test", "."],
        "the Go recipe cannot be built",
        cwd=folder,
    )
    return ["./orders.test", "-test.v"]


def node(folder: Path) -> list[str]:
    """A test of Node's own runner, with kafkajs in the version that the other peer tests have."""
    packages = builds.node_program().parent / "node_modules"
    (folder / "node_modules").symlink_to(packages)
    (example,) = examples("js")
    (folder / "orders.test.mjs").write_text(example.code)
    return ["node", "--test", "orders.test.mjs"]


@pytest.fixture(params=[java, go, node], ids=["java", "go", "node"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    recipe: Callable[[Path], list[str]] = request.param
    try:
        return recipe(tmp_path)
    except Missing as reason:
        pytest.skip(f"no foreign peer: {reason}")


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """As a user has it: `steelyard` is on the PATH. Whatever was started is gone afterwards."""
    scripts = Path(sys.executable).parent
    data = tmp_path / "temporary"
    data.mkdir()
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    yield {**java_environment(), "PATH": path, "TMPDIR": str(data)}
    until(lambda: not _servers(tmp_path), "the end of all servers")


def _servers(folder: Path) -> list[psutil.Process]:
    """All processes of Steelyard whose data is in the folder, or that belong to its nameserver."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            folders = {*command, process.cwd(), *process.environ().values()}
        except psutil.Error:
            continue
        if "steelyard" in " ".join(command) and any(str(folder) in each for each in folders):
            found.append(process)
    return found


def test_the_recipe(program: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        program,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not _servers(tmp_path)


def test_a_killed_program_takes_its_servers_along(
    program: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            program, cwd=tmp_path, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
    until(lambda: len(_servers(tmp_path)) >= 3, "the servers")
    program_ = psutil.Process(process.pid)
    for each in (program_, *program_.children(recursive=True)):
        if "steelyard" not in each.cmdline()[1]:  # Node runs tests in a process of their own
            each.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)
