"""The Spark session with `format("rocketmq")`: the one that exists, or one made for this process.

`session()` is for scripts that run everywhere. It adopts a session that exists and asks Spark for
one where somebody else decides how it runs: spark-submit, SPARK_HOME and the other variables of
`OWN_SETUP`, Spark Connect, a master that is not local. None of these gets a setting that the caller
did not give. Otherwise it starts a local Spark of its own, quick to start on any available Java
(see `java`), with the settings of `CONF`: for minutes of work on one machine, with small shuffles.
"""

from __future__ import annotations

import argparse
import atexit
import os
import re
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from steelyard.errors import ConfigError, ConnectError
from steelyard.spark.extras import imported
from steelyard.spark.java import find_java, launcher_home, start
from steelyard.spark.source import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeSession = Callable[[argparse.Namespace], "SparkSession"]
"""Makes the session that options of the command line ask for."""

STREAMING = "org.apache.spark.sql.execution.streaming"

CONF: Mapping[str, str] = {
    "spark.master": "local[2]",
    "spark.app.name": "steelyard",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    # Otherwise Hadoop without its native library forks chmod and readlink for every checkpoint
    # file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
"""The settings of a local Spark of ours. No other session gets any of them."""

OWN_SETUP = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_DIST_CLASSPATH",
)
"""Environment variables of a Spark that its user has set up."""

LAUNCHER_SETTINGS = (
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraLibraryPath",
)
"""Settings that only Spark's launcher can carry out."""

MASTERS = (
    r"local(\[(\d+|\*)(, *\d+)?\])?",
    r"local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]",
    r"spark://[^,/]+:\d+(,[^,/]+:\d+)*",
    r"yarn",
    r"k8s://.+",
)
MASTERS_EXPLAINED = (
    "local[2], local-cluster[2,1,1024] (executors, cores, MiB), spark://host:7077, yarn or"
    " k8s://https://host:443"
)
CONNECT_TIMEOUT_S = 5
CONNECT_NEEDS = ("grpc", "grpc_status", "google.protobuf", "google.rpc", "zstandard")

_registered: weakref.WeakSet[SparkSession] = weakref.WeakSet()
_ours: list[tuple[Any, subprocess.Popen[bytes] | None]] = []
"""The gateway (py4j's) that the last call started, and its JVM if that was started by `java`."""


def session(
    settings: Mapping[str, str] | None = None, *, optimize: bool = False, **conf: str
) -> SparkSession:
    """Return the session of this process, made if there is none, with `format("rocketmq")`.

    `settings` are Spark's, by their names; `conf` the same with `_` for `.`
    (`spark_master="local[4]"`). In a session that exists those that begin with `spark.sql.` are
    set, and others must have the given value already. `optimize` is for scans of millions of rows
    in a local Spark: Java compiles them twice, which costs seconds of both cores and then halves
    its time per row. Raises ConfigError for a setting that is wrong or comes too late, ConnectError
    if no master listens, and SteelyardError without a Java.
    """
    given = {**(settings or {})} | {name.replace("_", "."): text for name, text in conf.items()}
    spark = _existing()
    if spark is not None:
        _adjust(spark, given)
    elif _is_remote(given):
        spark = _remote(given)
    else:
        _check_master(given)
        _end_ours()
        spark = _started(given, optimize)
    if spark not in _registered:  # Spark warns about formats that are registered twice
        register(spark)
        _registered.add(spark)
    return spark


# -- a session that exists -------------------------------------------------------------------------


def _existing() -> SparkSession | None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is not None:
        remote = connect.SparkSession
        found: SparkSession | None = remote.getActiveSession() or remote._get_default_session()
        if found is not None:
            return found
    context = SparkContext._active_spark_context
    if context is None:
        return None
    if context._jsc is None or context._jsc.sc().isStopped():  # e.g. its master went away
        context.stop()
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _adjust(spark: SparkSession, given: Mapping[str, str]) -> None:
    from pyspark.errors import PySparkException

    for name, text in given.items():
        present = spark.conf.get(name, None)
        if present == text:
            continue
        if not name.startswith("spark.sql."):
            raise ConfigError(
                f"setting {name!r} is {text!r}, but the session that exists has {present!r}, and"
                " only settings that begin with spark.sql. can be changed in it. Give it where"
                " that session is made, or stop() it before."
            )
        try:
            spark.conf.set(name, text)
        except PySparkException as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(f"setting {name!r} is {text!r}: {reason}") from None


# -- a new session ---------------------------------------------------------------------------------


def _check_master(given: Mapping[str, str]) -> None:
    master = given.get("spark.master", "local")
    if not is_master(master):
        hint = ""
        if master.startswith("sc://"):
            hint = "; the address of a Spark Connect server belongs into 'spark.remote'"
        raise ConfigError(
            f"setting 'spark.master' is {master!r}; it must be {MASTERS_EXPLAINED}{hint}"
        )
    if master.startswith("spark://"):
        _check_reachable(master)


def is_master(text: str) -> bool:
    """Return whether Spark can parse this as the URL of a master."""
    return any(re.fullmatch(pattern, text) for pattern in MASTERS)


def _check_reachable(master: str) -> None:
    """Spark itself would try for a minute, and then report a stopped context."""
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
        except (OSError, OverflowError) as error:
            failure = error
        else:
            return
    raise ConnectError(f"no Spark master listens at {master}: {failure}")


def _started(given: Mapping[str, str], optimize: bool) -> SparkSession:
    from pyspark import SparkContext

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return _built(given)  # spark-submit, or a session of the caller's that was stopped
    master = given.get("spark.master", "")
    has_setup = any(name in os.environ for name in OWN_SETUP)
    if has_setup or not (master or "local").startswith("local"):
        return _launched(given, given.get("spark.pyspark.python"))
    python = given.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local-cluster"):
        return _launched(given, python)
    settings = {**CONF, **given}
    if any(name in given for name in LAUNCHER_SETTINGS):
        return _launched(settings, python)
    return _direct(settings, python, optimize)


def _is_remote(given: Mapping[str, str]) -> bool:
    mode = given.get("spark.api.mode", os.environ.get("SPARK_API_MODE", ""))
    return "spark.remote" in given or "SPARK_REMOTE" in os.environ or mode == "connect"


def _remote(given: Mapping[str, str]) -> SparkSession:
    for name in CONNECT_NEEDS:  # without them PySpark would end the process, with code 0
        imported(name, "connect", "Spark Connect")
    return _built(given)


def _launched(settings: Mapping[str, str], python: str | None) -> SparkSession:
    """Have PySpark start its JVM, as it does for `SparkSession.builder` in a script."""
    with _environment({"JAVA_HOME": launcher_home(find_java()), **_workers(python)}):
        try:
            return _built(settings)
        finally:
            _remember(None)


def _direct(settings: Mapping[str, str], python: str, optimize: bool) -> SparkSession:
    """Start the JVM, and let PySpark use it (`pyspark.java_gateway.launch_gateway`)."""
    with _environment(_workers(python)):
        gateway = start(find_java(), settings, optimize=optimize)
        assert gateway.process.stdin is not None
        # The JVM ends when this pipe closes, at the latest with our process.
        atexit.register(gateway.process.stdin.close)
        address = {
            "PYSPARK_GATEWAY_PORT": str(gateway.port),
            "PYSPARK_GATEWAY_SECRET": gateway.secret,
        }
        with _environment(address):
            try:
                spark = _built(settings)
            finally:
                _remember(gateway.process)
    spark.sparkContext.setLogLevel("FATAL")
    return spark


def _built(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, text in settings.items():
        builder = builder.config(name, text)
    return builder.getOrCreate()


def _workers(python: str | None) -> dict[str, str]:
    """Return which Python the workers run; PySpark reads it from the environment only."""
    return {"PYSPARK_PYTHON": python} if python else {}


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Change environment variables for a while; the value "" removes one."""
    before = {name: os.environ.get(name, "") for name in changes}
    _change(changes)
    try:
        yield
    finally:
        _change(before)


def _change(changes: Mapping[str, str]) -> None:
    for name, text in changes.items():
        if text:
            os.environ[name] = text
        else:
            os.environ.pop(name, None)


# -- the JVM of an earlier call --------------------------------------------------------------------


def _remember(process: subprocess.Popen[bytes] | None) -> None:
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        _ours[:] = [(SparkContext._gateway, process or SparkContext._gateway.proc)]


def _end_ours() -> None:
    """End the JVM of an earlier call, whose session was stopped: it keeps that call's settings."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    while _ours:
        gateway, process = _ours.pop()
        if gateway is SparkContext._gateway:
            SparkContext._gateway = SparkContext._jvm = None
        with suppress(Py4JError):  # it may have crashed
            gateway.shutdown()
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait()
