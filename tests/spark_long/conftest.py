"""A topic to read, a standalone cluster of two workers, and Pythons with and without packages."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.spark.conftest import no_progress, peer, spark  # noqa: F401
from tests.spark_long.recipes import SCRIPTS
from tests.spark_long.running import MEMORY, SPARK, environment, server
from tests.waiting import until

from steelyard import Producer, PushConsumer
from steelyard.ledger.events import LEDGER_TOPIC, MemberJoined, decode
from steelyard.spark.options.reading import read_options
from steelyard.spark.source import RocketMQReader

ORDERS = 40
ARROW_READER = ("crc32c", "msgspec", "numpy", "numpy.libs", "pyarrow")
"""What executors need besides Steelyard."""


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of two brokers with a topic `Orders`, as `steelyard up` prints them."""
    data = tmp_path_factory.mktemp("brokers")
    command = [sys.executable, "-m", "steelyard", "up", "--brokers", "2", "--data", str(data)]
    command += ["--nameserver-port", "0", "--broker-port", "0", "--kafka-port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        told: dict[str, str] = json.loads(up.stdout.readline())
        address = told["nameserver"]
        with Producer("p", address) as producer:
            for number in range(ORDERS):
                producer.send("Orders", b"%d" % number)
        with PushConsumer("readers", address, lambda _: None).subscribe("Orders"):
            until(lambda: joined(address))
        yield told
        up.send_signal(signal.SIGTERM)


@pytest.fixture(scope="session")
def nameserver(ready: dict[str, str]) -> str:
    """The address of their nameserver."""
    return ready["nameserver"]


def joined(address: str) -> bool:
    """Whether the ledger tells of a member that joined."""
    reader = RocketMQReader(read_options({"nameservers": address, "topic": LEDGER_TOPIC}))
    batches = [batch for one in reader.partitions() for batch in reader.read(one)]
    bodies = [body for batch in batches for body in batch.column("body").to_pylist()]  # type: ignore[attr-defined]
    return any(isinstance(one, MemberJoined) for body in bodies for one in decode(body))


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of our version that has the standard library alone."""
    home = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    return home / "bin" / "python3"


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with what executors need, without Steelyard."""
    folder = tmp_path_factory.mktemp("packages")
    spec = importlib.util.find_spec("numpy")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin).parents[1]
    for name in ARROW_READER:
        (folder / name).symlink_to(installed / name)
    for info in installed.glob("crc32c-*.dist-info"):  # it looks its own version up
        (folder / info.name).symlink_to(info)
    return folder


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory, bare_python: Path) -> Iterator[str]:
    """The address of a standalone master with two workers, whose Python has no package at all."""
    folder = tmp_path_factory.mktemp("standalone")
    env = environment(bare_python)
    start = (str(SPARK / "bin/spark-class"), "org.apache.spark.deploy.{0}.{1}")
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:

        def started(ready: str, kind: str, name: str, *more: str) -> str:
            command = (start[0], start[1].format(kind, kind.capitalize()), *ports, *more)
            log = folder / f"{name}.log"
            return stack.enter_context(server(log, ready, *command, env=env))[1]

        address = started(r"Starting Spark master at (spark://\S+)", "master", "master")
        for name in ("one", "two"):
            work = ("--cores", "1", "--memory", "600m", "--work-dir", str(folder / name))
            ready = r"Successfully registered with master (\S+)"
            started(ready, "worker", name, *work, address)
        yield address


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """A folder for SPARK_CONF_DIR with the settings of small processes."""
    folder = tmp_path / "conf"
    folder.mkdir()
    values = {
        "spark.driver.memory": MEMORY,
        "spark.executor.memory": MEMORY,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "1",
    }
    lines = (f"{name} {value}\n" for name, value in values.items())
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return folder


@pytest.fixture
def scripts(tmp_path: Path, ready: dict[str, str]) -> Path:
    """A folder with the scripts of docs/SPARK.md."""
    for name, text in SCRIPTS.items():
        text = text.replace("127.0.0.1:9876", ready["nameserver"])
        (tmp_path / name).write_text(text.replace("127.0.0.1:9092", ready["kafka"]))
    return tmp_path


@pytest.fixture
def adapted(nameserver: str, master: str, tmp_path: Path) -> Callable[[str], str]:
    """Puts the addresses of the tests into a recipe."""

    def adapt(recipe: str) -> str:
        recipe = recipe.replace("127.0.0.1:9876", nameserver).replace("spark://master:7077", master)
        return recipe.replace("/opt/venv/bin/python", sys.executable).replace(
            "/shared", str(tmp_path)
        )

    return adapt
