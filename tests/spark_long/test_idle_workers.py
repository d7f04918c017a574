"""Python workers that Spark ends because they have nothing to do, after a minute, end without a word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark_long, pytest.mark.timeout(300)]

PROGRAM = """
import time
from contextlib import suppress
import psutil
from steelyard.spark.session import session

spark = session()
this = psutil.Process()


def workers():
    '''Those that a daemon forked, which look like it.'''
    found = {}
    for one in this.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found[one.pid] = one.ppid(), one.cmdline()
    return [pid for pid, (parent, line) in found.items() if line == found.get(parent, (0, 0))[1]]


spark.range(10).repartition(2).rdd.map(lambda row: row.id).collect()
assert workers()
deadline = time.monotonic() + 200
while workers() and time.monotonic() < deadline:
    time.sleep(1)
print(len(workers()))
"""


def test_idle_workers(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=280, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
