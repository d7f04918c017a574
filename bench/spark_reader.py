"""A Spark application that reads topics as told, one line of JSON for each line of JSON.

`{"format": …, "options": {…}}` reads a whole topic into a noop sink; the answer has its rows, seconds, and the CPU
seconds, user and system, of this process, Java and the Python workers. Java may use its second compiler.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import psutil

from steelyard.spark.session import session


def cpu_s() -> float:
    """CPU time so far of this process and all below it, with those of it that have ended."""
    process = psutil.Process(os.getpid())
    total = 0.0
    for each in [process, *process.children(recursive=True)]:
        times = each.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


def main(jars: str) -> None:
    spark = session({"spark.jars": jars} if jars else None, optimize=True)
    print(json.dumps({"version": spark.version}), flush=True)
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        frame = spark.read.format(asked["format"]).options(**asked["options"]).load()
        cpu, begun = cpu_s(), time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        seconds, cpu = time.perf_counter() - begun, cpu_s() - cpu
        print(json.dumps({"seconds": seconds, "cpu_s": cpu}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
