"""Requests that are under way together, each until it is acknowledged.

Of one queue there is one at a time, so that its rows keep their order; those of different queues
do not wait for each other. What fails is repeated, after growing pauses, while that may help and
for as long as the option retryTimeoutMs allows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from steelyard.errors import SteelyardError
from steelyard.spark.offsets import QueueName
from steelyard.spark.servers.patience import Patience

UNDER_WAY_MAX = 32
"""Requests that are sent before the first answer is awaited."""


@dataclass(slots=True)
class RowsRequest:
    """A request for a queue. `error`: why it could not be sent."""

    queue: QueueName
    ordered: bool
    """Whether it waits for the one before it."""
    error: SteelyardError | None = field(default=None, init=False)


P = TypeVar("P", bound=RowsRequest)


class UnderWay(ABC, Generic[P]):
    """The requests under way; how they are sent and answered is the subclass's."""

    def __init__(self, retry_timeout_ms: int) -> None:
        self._retry_timeout_ms = retry_timeout_ms
        self._waiting: list[P] = []

    def start(self, request: P) -> None:
        """Send a request; raise the error of an earlier one that failed for good."""
        if request.ordered:
            for other in [each for each in self._waiting if each.queue == request.queue]:
                self._waiting.remove(other)
                self._settle(other)
        if len(self._waiting) >= UNDER_WAY_MAX:
            self._settle(self._waiting.pop(0))
        self._send(request)
        self._waiting.append(request)

    def flush(self) -> None:
        """Wait until every request is acknowledged. Raises the error of one that is not."""
        while self._waiting:
            self._settle(self._waiting.pop(0))

    def _send(self, request: P) -> None:
        request.error = None
        try:
            self.transmit(request)
        except SteelyardError as error:
            request.error = error

    def _settle(self, request: P) -> None:
        patience = Patience(self._retry_timeout_ms)
        while True:
            try:
                if request.error is not None:
                    raise request.error
                self.receive(request)
                return
            except SteelyardError as error:
                self.failed(request, error, patience)
            self._send(request)

    @abstractmethod
    def transmit(self, request: P) -> None:
        """Send a request. Raises SteelyardError."""

    @abstractmethod
    def receive(self, request: P) -> None:
        """Wait until a request is acknowledged. Raises SteelyardError."""

    @abstractmethod
    def failed(self, request: P, error: SteelyardError, patience: Patience) -> None:
        """Prepare to repeat a request, after a pause; raise an error if that would not help."""
