"""Waiting for brokers and nameservers that are away for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from steelyard.errors import BrokerError, KafkaError, RemotingError, SteelyardError
from steelyard.wire.remoting.codes import ResponseCode

T = TypeVar("T")

PAUSE_MIN_S = 0.05
PAUSE_MAX_S = 1.0
"""Pauses between attempts double from the one to the other."""

PASSING = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
"""Refusals that mean that a broker is busy, starts or stops."""


class Patience:
    """The time that is left for new attempts: `timeout_ms` from the first failure."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._deadline: float | None = None
        self._pause_s = PAUSE_MIN_S

    def reset(self) -> None:
        """An attempt succeeded."""
        self._deadline = None
        self._pause_s = PAUSE_MIN_S

    def wait(self, error: SteelyardError) -> None:
        """Wait until the next attempt; raise `error` if it does not pass, or no time is left."""
        if not passes(error) or not self._timeout_ms:
            raise error
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._timeout_ms / 1000
        if now >= self._deadline:
            raise RemotingError(
                f"{error}; tried again for {self._timeout_ms / 1000:g} s (option 'retryTimeoutMs')"
            ) from None  # its traceback says nothing more, and Spark would show both
        time.sleep(min(self._pause_s, self._deadline - now))
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)


def passes(error: SteelyardError) -> bool:
    """Return whether a later attempt may succeed."""
    if isinstance(error, BrokerError):
        return error.code in PASSING
    return isinstance(error, RemotingError) or (isinstance(error, KafkaError) and error.retriable)


def persist(attempt: Callable[[], T], timeout_ms: int) -> T:
    """Return what `attempt` does, tried again for `timeout_ms` while it fails to reach a peer."""
    patience = Patience(timeout_ms)
    while True:
        try:
            return attempt()
        except SteelyardError as error:
            patience.wait(error)
