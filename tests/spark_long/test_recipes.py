"""The recipes of docs/SPARK.md: the same scripts wherever Spark runs, as a user would type them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from tests.peers.apache import Missing
from tests.peers.kafka import builds
from tests.spark_long.conftest import ORDERS
from tests.spark_long.recipes import RECIPES, SCRIPTS
from tests.spark_long.running import driver_environment, run

from steelyard.spark.shipping import NOT_IMPORTED

pytestmark = [pytest.mark.spark_long, pytest.mark.timeout(600)]

READ = f"{ORDERS} orders\n"

Adapt = Callable[[str], str]


def follow(
    recipe: str, scripts: Path, *, adapted: Adapt = str, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a recipe in the folder of the scripts."""
    command = adapted(RECIPES[recipe])
    return run("bash", "-ec", command, cwd=scripts, env=driver_environment(**env))


def test_every_script_and_recipe_is_known_here() -> None:
    assert set(SCRIPTS) == {"orders.py", "own_session.py", "registering.py", "to_kafka.py"}
    assert set(RECIPES) == {"local", "submit", *CLUSTER, "connect", "pipeline", "kafka"}


def test_on_this_machine(scripts: Path) -> None:
    done = follow("local", scripts)
    assert done.stdout == READ, done.stderr


def test_submitted_on_this_machine(scripts: Path, settings: Path) -> None:
    done = follow("submit", scripts, SPARK_CONF_DIR=str(settings))
    assert done.stdout == READ, done.stderr


CLUSTER = ("local-cluster", "standalone", "archives", "py-files")


@pytest.mark.parametrize("recipe", CLUSTER)
def test_on_a_cluster(
    recipe: str, scripts: Path, settings: Path, packages: Path, adapted: Adapt
) -> None:
    if recipe == "py-files":
        give(packages, settings)
    done = follow(
        recipe,
        scripts,
        adapted=lambda text: adapted(text).replace("1024]", "512]"),
        SPARK_CONF_DIR=str(settings),
    )
    assert done.stdout.endswith(READ), (done.stdout + done.stderr)[-4000:]


def give(packages: Path, settings: Path) -> None:
    """Let executors find packages, as if they were installed there."""
    with (settings / "spark-defaults.conf").open("a") as file:
        file.write(f"spark.executorEnv.PYTHONPATH {packages}\n")


@pytest.mark.parametrize("script", ["own_session.py", "registering.py"])
def test_executors_without_the_package_name_the_cure(
    script: str, scripts: Path, settings: Path, packages: Path, bare_python: Path, master: str
) -> None:
    give(packages, settings)
    env = driver_environment(SPARK_CONF_DIR=str(settings))
    done = run("spark-submit", "--master", master, script, cwd=scripts, env=env)
    assert done.returncode == 1
    output = done.stdout + done.stderr
    lines = {line for line in output.splitlines() if line.startswith(NOT_IMPORTED)}
    assert len(lines) == 1, output[-4000:]
    (line,) = lines
    assert f"{bare_python} on " in line
    assert "cannot import Steelyard (No module named 'steelyard')" in line
    assert line.endswith("see `steelyard pipeline archive --help`.")


def test_sparks_own_kafka_format(scripts: Path, settings: Path) -> None:
    """The jars are those that the peer tests fetch, as `--packages` would."""
    try:
        jars = builds.jars("spark", builds.SPARK)
    except Missing as reason:
        pytest.skip(f"no Kafka format for Spark: {reason}")
    package = f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{builds.SPARK}"
    given = f"--jars {','.join(map(str, sorted(jars.glob('*.jar'))))}"
    assert package in RECIPES["kafka"]
    done = follow(
        "kafka",
        scripts,
        adapted=lambda text: text.replace(package, given),
        SPARK_CONF_DIR=str(settings),
    )
    assert done.stdout == READ, done.stderr[-4000:]


def test_the_pipeline_on_a_cluster(scripts: Path, settings: Path, adapted: Adapt) -> None:
    done = follow("pipeline", scripts, adapted=adapted, SPARK_CONF_DIR=str(settings))
    assert done.returncode == 0, done.stderr[-4000:]
    tables = {path.name for path in (scripts / "ledger").iterdir() if path.name[0] != "_"}
    assert tables == {"events", "handoffs", "rebalances", "balance", "lag"}
    table = parquet.read_table(scripts / "ledger/rebalances")
    assert "readers" in table.column("group").to_pylist()
    assert "joined" in table.column("trigger").to_pylist()
    assert "hand-offs: " in done.stdout


def test_the_pipeline_says_in_a_line_what_executors_lack(
    scripts: Path, settings: Path, packages: Path, master: str, nameserver: str
) -> None:
    give(packages, settings)
    command = ["steelyard", "pipeline", "ledger", "-n", nameserver, "--out", "out"]
    env = driver_environment(SPARK_CONF_DIR=str(settings))
    done = run(*command, "--master", master, cwd=scripts, env=env)
    assert done.returncode == 2
    # Spark's executors may log after it.
    ours = [line for line in done.stderr.splitlines() if line.startswith("steelyard pipeline: ")]
    assert len(ours) == 1, done.stderr[-4000:]
    assert "see `steelyard pipeline archive --help`" in ours[0]
