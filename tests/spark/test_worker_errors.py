"""What Spark's workers print: meaningless lines are left out, everything else is passed on as it is."""

from __future__ import annotations

import pytest

from steelyard.spark.worker_errors import LINES_MAX, meaningful

LOST = """Traceback (most recent call last):
  File "/lib/pyspark/daemon.py", line 264, in manager
    code = worker(sock, authenticated)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/lib/pyspark/daemon.py", line 95, in worker
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe
"""
OWN = LOST.replace("pyspark/daemon.py", "mine/program.py")
OTHER = LOST.replace("BrokenPipeError: [Errno 32] Broken pipe", "ValueError: no")
CHATTER = "Starting Streaming TransformWithStateInPandas Python worker.\n\n"
MIXED = "".join(line * 3 for line in LOST.splitlines(keepends=True))
LONG = "Traceback (most recent call last):\n" + "  a line\n" * LINES_MAX + "ValueError: no\n"


@pytest.mark.parametrize(
    ("printed", "left"),
    [
        (f"a\n{LOST}b\n", "a\nb\n"),
        (LOST + LOST + CHATTER, ""),
        (OWN, OWN),
        (f"{OTHER}{LOST}", OTHER),
        (LONG, LONG),
        (LOST[:100], LOST[:100]),
        (MIXED, ""),
        (CHATTER + "\n", "\n"),
    ],
)
def test_what_is_left(printed: str, left: str) -> None:
    assert "".join(meaningful(printed.splitlines(keepends=True))) == left
