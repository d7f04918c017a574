"""Programs of a Spark installation, and of its users, in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from tests.waiting import until

SPARK = Path(pyspark.__file__).parent

SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of every JVM: these runs are short, and there are many."""

MEMORY = "512m"
"""Of drivers and executors; Spark refuses less than 471,859,200 bytes."""


def environment(python: Path, **more: str) -> dict[str, str]:
    """Nothing of the caller's but where programs are found, those beside `python` first."""
    return {
        "HOME": os.environ.get("HOME", "/"),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "JDK_JAVA_OPTIONS": SMALL,
        "SPARK_DAEMON_MEMORY": "256m",
    } | more


def driver_environment(**more: str) -> dict[str, str]:
    """That of a user who has Steelyard installed.

    PYTHONPATH must not name our sources: Spark hands it on to the executors of formats that it
    found itself, and those of some tests are not to have Steelyard.
    """
    return environment(Path(sys.executable), **more)


def run(
    *command: str, cwd: Path, env: Mapping[str, str], timeout_s: int = 400
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout_s, check=False
    )


@contextmanager
def server(log: Path, ready: str, *command: str, env: Mapping[str, str]) -> Iterator[re.Match[str]]:
    """A program that runs meanwhile; gives what the pattern `ready` found in its log."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env=env, cwd=log.parent
        )

    def found() -> re.Match[str] | None:
        assert process.poll() is None, log.read_text()[-4000:]
        return re.search(ready, log.read_text())

    try:
        yield until(found, log)
    finally:
        process.terminate()
        process.wait(60)
