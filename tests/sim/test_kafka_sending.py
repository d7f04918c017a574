"""Which batches the model of Kafka's producer sends, and when it sends them again."""

from __future__ import annotations

from steelyard.sim.kafka.producers.sending import DELIVERY_MS, Batch, UnacknowledgedBatches
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

E = ErrorCode
LEADERS = {0: "10.0.0.1:9092", 1: "10.0.0.2:9092"}


class Producing:
    """A producer, and what has become of its batches."""

    def __init__(self) -> None:
        self.sending = UnacknowledgedBatches("T", None)
        self.sending.renew(7, 0)
        self.acknowledged: list[int] = []
        self.out_of_order: list[int] = []

    def sent(self, *, only_sent: bool = False) -> list[Batch]:
        """Send what may be sent now."""
        rows = self.sending.window(only_sent=only_sent)
        return [
            batch
            for row in rows
            for _, _, batches in self.sending.requests(row, LEADERS, 0)
            for batch in batches
        ]

    def answered(self, batch: Batch, error: ErrorCode | None) -> ErrorCode:
        """Answer a batch; None: the connection was lost."""
        part = PartitionProduceResponse(batch.partition, error or E.NONE, 0)
        reply = (
            None
            if error is None
            else ProduceResponse([TopicProduceResponse("T", partition_responses=[part])])
        )
        return self.sending.answered(
            [batch],
            reply,
            lambda each: self.acknowledged.append(each.sequence),
            lambda each: self.out_of_order.append(each.sequence),
        )


def with_batches(count: int, partition: int = 0) -> Producing:
    """Return a producer with batches of two records for one partition."""
    producing = Producing()
    for number in range(count):
        producing.sending.add(partition, (b"%d" % number, b"and another"), 0)
    return producing


def test_five_batches_of_a_partition_are_in_flight() -> None:
    producing = with_batches(6)
    assert [batch.sequence for batch in producing.sent()] == [0, 2, 4, 6, 8]


def test_a_request_has_the_batches_of_one_leader() -> None:
    producing = with_batches(1)
    producing.sending.add(1, (b"1",), 0)
    (row,) = producing.sending.window()
    requests = producing.sending.requests(row, LEADERS, 0)
    assert [(leader, len(batches)) for leader, _, batches in requests] == [
        (LEADERS[0], 1),
        (LEADERS[1], 1),
    ]
    assert len(producing.sending.requests(row, dict.fromkeys(LEADERS, "10.0.0.1:9092"), 0)) == 1
    assert not producing.sending.is_stale
    assert producing.sending.requests(row, {}, 0) == []
    assert producing.sending.is_stale


def test_what_failed_comes_again_in_order_and_alone() -> None:
    producing = with_batches(3)
    first, second, third = producing.sent()
    assert producing.answered(first, None) is E.NONE
    assert producing.answered(second, E.OUT_OF_ORDER_SEQUENCE_NUMBER) is E.NONE
    assert producing.answered(third, E.OUT_OF_ORDER_SEQUENCE_NUMBER) is E.NONE
    for batch in (first, second, third):
        assert producing.sent() == [batch]
        assert producing.answered(batch, E.NONE) is E.NONE
    assert (producing.acknowledged, producing.out_of_order) == ([0, 2, 4], [])
    assert producing.sending.is_empty


def test_the_first_of_the_line_is_in_order() -> None:
    producing = with_batches(2)
    first, second = producing.sent()
    producing.answered(first, E.NONE)
    producing.answered(second, E.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert producing.out_of_order == [2]


def test_errors_that_no_client_repeats() -> None:
    producing = with_batches(1)
    (batch,) = producing.sent()
    assert producing.answered(batch, E.INVALID_PRODUCER_EPOCH) is E.INVALID_PRODUCER_EPOCH
    assert producing.answered(batch, E.NOT_LEADER_OR_FOLLOWER) is E.NONE
    assert producing.sending.is_stale


def test_batches_whose_time_is_over_are_given_up() -> None:
    producing = with_batches(1)
    producing.sent()
    producing.sending.add(0, (b"later",), 5)
    producing.sending.add(1, (b"elsewhere",), 5)
    assert producing.sending.has_sent
    assert not producing.sending.expired(DELIVERY_MS - 1)
    assert not producing.sending.has_gap
    assert producing.sending.expired(DELIVERY_MS)
    assert producing.sending.has_gap
    assert not producing.sending.has_sent
    producing.sending.renew(7, 1)
    assert not producing.sending.has_gap
    assert [(each.partition, each.sequence) for each in producing.sent()] == [(0, 0), (1, 0)]
    assert producing.sent(only_sent=True) == producing.sent()
    producing.sending.drop()
    assert producing.sending.has_gap
