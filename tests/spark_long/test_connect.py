"""Spark Connect: scripts of docs/SPARK.md on a server, and what a client without its packages is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark_long.conftest import ORDERS
from tests.spark_long.recipes import RECIPES
from tests.spark_long.running import MEMORY, SPARK, driver_environment, run, server

pytestmark = [pytest.mark.spark_long, pytest.mark.timeout(600)]

READ = f"{ORDERS} orders\n"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with two cores."""
    pytest.importorskip("grpc", reason="pip install 'steelyard[connect]'")
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": MEMORY,
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.shuffle.partitions": "2",
    }
    command = [str(SPARK / "bin/spark-submit")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    env = driver_environment(SPARK_DAEMON_MEMORY=MEMORY)
    log = tmp_path_factory.mktemp("connect") / "server.log"
    ready = r"Spark Connect server started at: .*:(\d+)"
    with server(log, ready, *command, "spark-internal", env=env) as found:
        yield f"sc://127.0.0.1:{found[1]}"


@pytest.mark.parametrize("script", ["orders.py", "own_session.py", "registering.py"])
def test_the_scripts_run_on_a_server(script: str, scripts: Path, remote: str) -> None:
    recipe = RECIPES["connect"].replace("sc://server:15002", remote).replace("orders.py", script)
    done = run("bash", "-ec", recipe, cwd=scripts, env=driver_environment())
    assert done.stdout == READ, (done.stdout + done.stderr)[-4000:]


ADOPTED = """
from pyspark.sql import SparkSession
from steelyard.spark.session import session
mine = SparkSession.builder.remote("{0}").getOrCreate()
assert session() is mine
assert session(spark_sql_shuffle_partitions="3").conf.get("spark.sql.shuffle.partitions") == "3"
print(mine.read.format("rocketmq").options(nameservers="{1}", topic="Orders").load().count())
"""


def test_a_remote_session_is_adopted(tmp_path: Path, remote: str, nameserver: str) -> None:
    program = ADOPTED.format(remote, nameserver)
    done = run("python", "-c", program, cwd=tmp_path, env=driver_environment())
    assert done.stdout == f"{ORDERS}\n", done.stderr[-4000:]


def test_without_its_packages_the_extra_is_named(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['grpc'] = None\n"
        "from steelyard.spark.session import session\n"
        "session({'spark.remote': 'sc://127.0.0.1:1'})"
    )
    done = run("python", "-c", program, cwd=tmp_path, env=driver_environment())
    assert done.returncode == 1
    assert "pip install 'steelyard[connect]' (import of grpc" in done.stderr.splitlines()[-1]
