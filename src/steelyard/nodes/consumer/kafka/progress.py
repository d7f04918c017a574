"""The application's progress, and its commits: explicit, periodic, and at the end.

Commits in a rebalance are part of the change (`membership`); `commits` sends them to the
coordinator.
Source: clients/consumer/internals/ConsumerCoordinator.java (commitOffsetsAsync,
maybeAutoCommitOffsetsAsync).
"""

from __future__ import annotations

from steelyard.config import KafkaConsumerConfig
from steelyard.errors import CommitFailedError, KafkaError
from steelyard.nodes.consumer.kafka import contract
from steelyard.nodes.consumer.kafka.commits import (
    AUTOMATIC,
    MEMBERSHIP,
    WAITING_MAX,
    CommitResult,
    Commits,
)
from steelyard.nodes.consumer.kafka.held import Holdings
from steelyard.nodes.consumer.kafka.membership import Membership
from steelyard.nodes.seam import Answer, Effect
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode

RENEW_MS = 600_000
"""Interval at which automatic commits contain what has not changed as well.

Brokers forget an offset so long after its last commit (offsets.retention.minutes), in some groups
even while somebody reads. (Java commits everything at every interval.)
"""


class Progress:
    """The progress of the application, and when to commit it."""

    def __init__(
        self,
        config: KafkaConsumerConfig,
        holdings: Holdings,
        commits: Commits,
        membership: Membership,
    ) -> None:
        self._config = config
        self._holdings = holdings
        self._commits = commits
        self._membership = membership
        self._commit_at = 0
        self._renew_at = 0

    def start(self, now: int) -> None:
        self._commit_at = now + self._config.auto_commit_interval_ms
        self._renew_at = now + RENEW_MS

    @property
    def due(self) -> int | None:
        """Return when to call `act` again."""
        return self._commit_at if self._is_automatic() else None

    def act(self, now: int) -> None:
        """Commit what is consumed, if it is time."""
        if now < self._commit_at or not self._is_automatic():
            return
        self._commit_at = now + self._config.auto_commit_interval_ms
        if now >= self._renew_at:
            self._renew_at = now + RENEW_MS
            self._holdings.renew()
        if not self._commits.waits(AUTOMATIC):
            self.commit_consumed(AUTOMATIC, self._holdings.partitions(), now)

    def commit(self, call_id: int, call: contract.Commit, now: int) -> bool:
        """Accept the application's commit, which `committed` answers.

        False: there is nothing to commit.
        """
        generation = self._membership.identity.generation
        if self._membership.active and generation < 0:
            text = "this consumer is not a member of its group at the moment; poll joins it"
            raise CommitFailedError(ErrorCode.UNKNOWN_MEMBER_ID, text)
        offsets = self._holdings.returned(call.unread) if call.offsets is None else call.offsets
        if not offsets:
            return False
        if self._commits.full:
            text = f"{WAITING_MAX} commits wait for the coordinator"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text, retriable=True)
        timeout_ms = self._config.default_api_timeout_ms
        self._commits.add(call_id, offsets, generation, now, timeout_ms)
        return True

    def commit_consumed(self, why: int, partitions: contract.Partitions, now: int) -> None:
        """Commit the application's progress in these partitions, if that is automatic."""
        membership = self._membership
        generation = membership.identity.generation
        if not self._is_automatic() or (membership.active and generation < 0):
            return
        offsets = self._holdings.consumed(partitions)
        if offsets:
            self._commits.add(why, offsets, generation, now, self._config.request_timeout_ms)

    def committed(
        self, ended: CommitResult, generation: int, now: int, effects: list[Effect]
    ) -> None:
        """Take the outcome of a commit that was sent in that generation."""
        commit = ended.commit
        if ended.error is None:
            self._holdings.committed(commit.offsets)
        if commit.why >= 0:
            effects.append(Answer(commit.why, ended.error))
        elif ended.error is not None:
            effects.append(LogLine("WARNING", f"an automatic commit failed: {ended.error}"))
        if ended.code in MEMBERSHIP:
            self._membership.commit_refused(generation, ended.code, now, effects)

    def _is_automatic(self) -> bool:
        wanted = self._config.enable_auto_commit and bool(self._config.group_id)
        return wanted and bool(self._holdings.by_partition)
