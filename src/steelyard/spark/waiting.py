"""Waiting for streaming queries and other long jobs, and ending them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from steelyard.spark.terminal import ProgressLine
from steelyard.wording import counted

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.2
"""Time between two looks at a query."""
END_S = 10.0
"""Longest wait for the end of a micro-batch, of a query that is to end.

As a rule one takes seconds. The next start repeats what is stopped within it, and Spark's
cancelled tasks leave tracebacks of their workers, so waiting costs less.
"""


@contextmanager
def noting_signals(ended: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM set an event, for jobs that end in order.

    An exception instead would cancel Spark's tasks, and break the connection by which a query is
    stopped.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for(query: StreamingQuery, line: ProgressLine, ended: threading.Event) -> None:
    """Wait until a query ends, and show its progress; end it if `ended` is set.

    Raises what ended the query.
    """
    rows: dict[int, int] = {}
    while query.isActive and not ended.wait(LOOK_S):
        if line.is_due:
            for batch in query.recentProgress:
                rows[batch["batchId"]] = batch["numInputRows"]
            read = f"{counted(sum(rows.values()), 'message')} read{_to_go(query)}"
            line.show(read if rows else "reading; no micro-batch is done yet")
    line.clear()
    if ended.is_set():
        end_between_batches(query)
    else:
        query.awaitTermination()


def _to_go(query: StreamingQuery) -> str:
    """Return how far a query is behind, in words, if that is known."""
    from steelyard.spark.lag import query_lag  # imports Spark

    last = query.lastProgress
    return "" if last is None else f", {query_lag(last).total:,} to go"


def end_between_batches(query: StreamingQuery, timeout_s: float = END_S) -> None:
    """End a query when no micro-batch is under way, or after a time-out.

    Ended in the middle of one, Spark cancels tasks, whose Python workers then complain.
    """
    deadline = time.monotonic() + timeout_s
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.02)
    query.stop()
