"""How far streaming queries are behind: offsets behind the latest, for each source of each query.

Spark 4.3 takes no metrics from Python sources, but has in a query's progress where a batch ended
and where the queues ended then. A listener computes the difference:

    spark.streams.addListener(LagListener(print))
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from steelyard.errors import ConfigError
from steelyard.spark.offsets import Behind, behind, from_json


class QueryLag(NamedTuple):
    """The lag of a query after a batch; `sources`: of each source of this format, in order."""

    query_id: str
    name: str | None
    batch_id: int
    sources: tuple[Behind, ...]

    @property
    def total(self) -> int:
        """The offsets behind of all sources."""
        return sum(source.total for source in self.sources)


def query_lag(progress: StreamingQueryProgress) -> QueryLag:
    """Return the lag in a query's progress: of `query.lastProgress`, or of a listener's event."""
    sources = []
    for source in progress.sources:
        try:
            position = from_json(json.loads(source.endOffset))
            latest = from_json(json.loads(source.latestOffset))
        except (ConfigError, TypeError, ValueError):
            continue  # another format, or nothing was read yet
        sources.append(behind(position, latest))
    return QueryLag(str(progress.id), progress.name, progress.batchId, tuple(sources))


class LagListener(StreamingQueryListener):
    """Keeps the latest lag of every running query that reads this format.

    `told` is called with each one; Spark calls listeners in a thread of its own.
    """

    def __init__(self, told: Callable[[QueryLag], object] | None = None) -> None:
        self.lags: dict[str, QueryLag] = {}
        self._told = told

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Note the lag."""
        lag = query_lag(event.progress)
        if lag.sources:
            self.lags[lag.query_id] = lag
            if self._told is not None:
                self._told(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Forget the query."""
        self.lags.pop(str(event.id), None)
