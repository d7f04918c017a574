"""How long messages are kept, and what happens when the disk fills up.

The settings of a topic apply, otherwise the broker's. They are Kafka's (segment.bytes, segment.ms,
retention.ms, retention.bytes, cleanup.policy; `compaction` has more), are set through the Kafka
listener, and hold for both dialects.

- Every `retention_check_interval_ms`, segments past their retention are deleted, a thousand logs at
  a time.
- Messages that wait to be delivered stay, whatever the settings say (`Log.pin`). Transactions are
  kept by age alone, lest an open one end because many others have come since.
- Every second, the free space is checked. Above `disk_full_ratio`, producers of both dialects are
  refused until there is space again (RocketMQ: SERVICE_NOT_AVAILABLE; Kafka: KAFKA_STORAGE_ERROR,
  which clients retry). What the broker writes for itself continues: commits, transaction markers,
  the ledger.
- Above `disk_clean_ratio`, if `clean_forcibly` is set, the oldest segments of all logs are deleted
  before their time.
- Neither ratio applies while `disk_free_bytes_enough` are free.
Source: store/DefaultMessageStore.CleanCommitLogService; storage/.../LogManager.cleanupLogs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from steelyard.config import StoreConfig
from steelyard.errors import DiskFullError, StorageError
from steelyard.nodes.broker.dynamic_configs import effective
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.topics import HALF_TOPIC, OP_TOPIC, TopicConfigs, policies
from steelyard.nodes.seam import Effect, SetTimer
from steelyard.store.log import Log
from steelyard.store.log_config import LogConfig, usual
from steelyard.store.store import Store
from steelyard.types import LogLine

RETENTION_TIMER = "retention"
SPACE_TIMER = "space"

LOGS_MAX = 1_000
"""Logs checked per event, which takes some ten milliseconds."""
LOGS_PAUSE_MS = 20
SPACE_INTERVAL_MS = 1_000


def log_configs(topics: TopicConfigs, config: StoreConfig) -> Callable[[str], LogConfig]:
    """Return a function from a topic's name to the settings of its logs."""
    default = usual(config)
    by_age = replace(default, retention_bytes=-1)

    def of(name: str) -> LogConfig:
        if name in (HALF_TOPIC, OP_TOPIC):
            return by_age
        topic = topics.get(name)
        if topic is None or not topic.attributes:
            return default
        settings = topic.attributes
        found = policies(settings)
        compacts, deletes = "compact" in found, "delete" in found

        def number(name: str, default: int) -> int:
            return _number(settings.get(name), default)

        segment_ms = number("segment.ms", default.segment_ms)
        max_lag_ms = number("max.compaction.lag.ms", -1)
        if compacts and max_lag_ms >= 0:
            segment_ms = min(segment_ms, max_lag_ms) if segment_ms >= 0 else max_lag_ms
        return replace(
            default,
            segment_bytes=number("segment.bytes", default.segment_bytes),
            segment_ms=segment_ms,
            retention_ms=number("retention.ms", default.retention_ms) if deletes else -1,
            retention_bytes=number("retention.bytes", default.retention_bytes) if deletes else -1,
            compacts=compacts,
            min_cleanable_dirty_ratio=_ratio(
                settings.get("min.cleanable.dirty.ratio"), default.min_cleanable_dirty_ratio
            ),
            min_compaction_lag_ms=number("min.compaction.lag.ms", 0),
            max_compaction_lag_ms=max_lag_ms,
            delete_retention_ms=number("delete.retention.ms", default.delete_retention_ms),
        )

    return of


def _number(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError:
        return default  # another program wrote it


def _ratio(text: str | None, default: float) -> float:
    try:
        return default if text is None else float(text)
    except ValueError:
        return default


class Retention:
    """Deletes old messages, refuses new ones while the disk is full; see the module docstring."""

    def __init__(
        self,
        config: StoreConfig,
        store: Store,
        topics: TopicConfigs,
        settings: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`settings`: returns those changed at run time, by Kafka's names."""
        self._settings = settings
        self._config = config
        self._store = store
        self._topics = topics
        self._faults = Faults()
        self._configured_for: tuple[int, Mapping[str, str]] = (-1, {})
        """The version of the topics whose settings the logs have, and the broker's settings."""
        self._left: list[Log] = []
        """Logs that the check under way has not examined yet."""
        self._gone = 0
        """Messages deleted by the check under way."""
        self.full = ""
        """Why producers are refused; empty while they are not."""

    def start(self, now: int, effects: list[Effect]) -> None:
        self.configure()
        effects.append(SetTimer(RETENTION_TIMER, now + self._config.retention_check_interval_ms))
        self.look_at_space(now, effects)

    def configure(self) -> None:
        """Give the logs the settings of their topics, if these have changed."""
        wanted = self._topics.version.counter, self._settings()
        if wanted != self._configured_for:
            self._configured_for = wanted
            config = effective(self._config, wanted[1])
            self._store.configure(log_configs(self._topics, config))

    def admit(self) -> None:
        """Raise DiskFullError if producers are refused."""
        if self.full:
            raise DiskFullError(self.full)

    # -- age and size ------------------------------------------------------------------------------

    def due(self, now: int, effects: list[Effect]) -> None:
        """Check the next logs; begin a new check if none is under way."""
        self.configure()
        if not self._left:
            self._left = self._store.all_logs()
        for _ in range(min(LOGS_MAX, len(self._left))):
            log = self._left.pop()
            try:
                self._gone += log.retain(now)
            except StorageError as error:
                text = f"old messages of {log.topic} could not be deleted: {error}"
                self._faults.tell(text, now, effects)
        pause = LOGS_PAUSE_MS
        if not self._left:
            pause = self._config.retention_check_interval_ms
            if self._gone:
                text = f"{self._gone} messages past their retention were deleted"
                effects.append(LogLine("INFO", text))
            self._gone = 0
        effects.append(SetTimer(RETENTION_TIMER, now + pause))

    # -- space -------------------------------------------------------------------------------------

    def look_at_space(self, now: int, effects: list[Effect]) -> None:
        """Refuse producers if the disk is nearly full, and accept them again if it is not."""
        effects.append(SetTimer(SPACE_TIMER, now + SPACE_INTERVAL_MS))
        config = self._config
        try:
            free, size = self._store.space()
            if config.clean_forcibly and self._is_over(config.disk_clean_ratio, free, size):
                free += self._delete_early(free, size, effects)
        except StorageError as error:
            self._faults.tell(f"cannot determine the free space: {error}", now, effects)
            return
        was_full, self.full = self.full, ""
        if self._is_over(config.disk_full_ratio, free, size):
            self.full = (
                f"the disk of the data directory is full: {free // 2**20} MiB of"
                f" {size // 2**20} MiB are free; free some space, or shorten the retention"
            )
            if not was_full:
                text = (
                    f"producers are refused: {self.full}"
                    f" (disk_full_ratio is {config.disk_full_ratio})"
                )
                effects.append(LogLine("ERROR", text))
        elif was_full:
            text = (
                f"producers are accepted again: {free // 2**20} MiB of {size // 2**20} MiB are free"
            )
            effects.append(LogLine("WARNING", text))

    def _is_over(self, ratio: float, free: int, size: int) -> bool:
        """Return whether more than this part of the disk is used, and too little is free."""
        return (
            ratio < 1 and free < self._config.disk_free_bytes_enough and size - free > ratio * size
        )

    def _delete_early(self, free: int, size: int, effects: list[Effect]) -> int:
        """Delete the oldest segments as needed; return the bytes freed. Raises StorageError."""
        config = self._config
        wanted = min(
            size - free - int(config.disk_clean_ratio * size), config.disk_free_bytes_enough - free
        )
        messages, freed = self._store.drop_oldest(wanted)
        if freed:
            text = (
                f"{messages} messages ({freed // 2**20} MiB) were deleted early:"
                f" more than {config.disk_clean_ratio:.0%} of the disk is in use"
            )
            effects.append(LogLine("WARNING", text))
        return freed
