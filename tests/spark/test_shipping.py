"""What is sent to Spark's workers arrives there, and where Steelyard is missing one line says so."""

from __future__ import annotations

import pickle
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

import steelyard.spark
from steelyard.spark.options.reading import read_options
from steelyard.spark.shipping import NOT_IMPORTED, Shipped
from steelyard.spark.source import RocketMQDataSource, RocketMQReader

BASES = (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    DataSourceStreamWriter,
)


def sent(one: object) -> bytes:
    """As Spark sends it."""
    dumps: Any = cloudpickle.dumps
    return bytes(dumps(one))


def ours() -> set[type]:
    """All classes that Spark sends to workers."""
    names = [one.name for one in pkgutil.iter_modules(steelyard.spark.__path__, "steelyard.spark.")]
    members = [member for name in names for member in vars(import_module(name)).values()]
    classes = {one for one in members if isinstance(one, type) and issubclass(one, BASES)}
    return {one for one in classes if one.__module__.startswith("steelyard.")}


def test_all_that_spark_sends_can_say_why_it_does_not_arrive() -> None:
    assert RocketMQDataSource in ours()
    assert {one.__name__ for one in ours() if not isinstance(one, Shipped)} == set()


def test_classes_and_instances_arrive_as_they_were() -> None:
    assert pickle.loads(sent(RocketMQDataSource)) is RocketMQDataSource
    reader = RocketMQReader(read_options({"nameservers": "a:1", "topic": "T"}))
    arrived = pickle.loads(sent(reader))
    assert type(arrived) is RocketMQReader
    assert vars(arrived) == vars(reader)


def last_line_without(missing: str, program: str, *arguments: str) -> str:
    """The last line of the traceback of a program for which a module is missing."""
    hidden = f"import sys; sys.modules[{missing!r}] = None; {program}"
    done = subprocess.run(
        [sys.executable, "-c", hidden, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("missing", ["steelyard", "msgspec"])
def test_a_worker_without_the_package_names_the_cure(tmp_path: Path, missing: str) -> None:
    reader = RocketMQReader(read_options({"nameservers": "a:1", "topic": "T"}))
    for number, one in enumerate((RocketMQDataSource, reader)):
        file = tmp_path / str(number)
        file.write_bytes(sent(one))
        program = "import pickle; pickle.load(open(sys.argv[1], 'rb'))"
        line = last_line_without(missing, program, str(file))
        assert line.startswith(NOT_IMPORTED + sys.executable)
        assert "cannot import Steelyard (" in line
        assert missing in line.partition("(")[2].partition(")")[0]
        assert "see `steelyard pipeline archive --help`" in line


@pytest.mark.parametrize("missing", ["steelyard", "msgspec"])
def test_the_format_is_found_without_the_package_and_says_what_is_missing(missing: str) -> None:
    program = "import pyspark_rocketmq as p; assert p.DefaultSource.name() == 'rocketmq'"
    line = last_line_without(missing, f"{program}; p.DefaultSource({{}})")
    assert line.startswith(f"{NOT_IMPORTED}Steelyard cannot be imported (")
    assert missing in line.partition("(")[2].partition(")")[0]
    assert line.endswith("pip install 'steelyard[spark]' for the Python of the driver")
