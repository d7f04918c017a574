"""What Kafka producers have written to the simulated brokers: records, and their transactions."""

from __future__ import annotations

from dataclasses import dataclass, field

Span = tuple[int, int]
"""What a transaction processes: from this offset on, up to but without this one."""


@dataclass(slots=True, eq=False)
class ProducedTransaction:
    """A transaction as its producer knows it."""

    name: str
    """Of the producer."""
    transactional_id: str
    epoch: int
    span: Span | None
    """None: it commits no offsets."""
    values: list[bytes] = field(default_factory=list)
    asks_commit: bool = False
    """Whether its producer has asked to commit it."""
    outcome: bool | None = None
    """Whether it was committed, as its producer was answered; None: not answered."""

    @property
    def may_be_read(self) -> bool:
        return self.asks_commit and self.outcome is not False


@dataclass(frozen=True, slots=True, eq=False)
class ProducedRecord:
    """A record. `source`: whose records are in order; `rank`: its place among them."""

    partition: int
    source: str
    rank: tuple[int, int]
    transaction: ProducedTransaction | None
