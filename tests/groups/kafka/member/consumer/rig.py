"""Drives one `ConsumerMember` as its node would: answers of a coordinator, and an application that does as it is told."""

from __future__ import annotations

from typing import TypeVar

from steelyard.groups.kafka.member import events
from steelyard.groups.kafka.member.consumer.machine import ConsumerMember
from steelyard.groups.kafka.member.consumer.states import ConsumerMemberSettings
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.consumer_groups import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

E = TypeVar("E", bound=events.Effect)

INTERVAL_MS, POLL_MS, BACKOFF_MS, TIMEOUT_MS = 5_000, 60_000, 100, 30_000
T, U = b"t" * 16, b"u" * 16
"""Ids of topics."""
NAMES = {T: "t", U: "u"}


def parts(*numbers: int, topic: str = "t") -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def assignment(*numbers: int, topic: bytes = T) -> Assignment:
    return Assignment((TopicPartitions(topic, numbers),) if numbers else ())


def told(request: ConsumerGroupHeartbeatRequest) -> dict[bytes, list[int]] | None:
    """What the member says it owns."""
    if request.topic_partitions is None:
        return None
    return {part.topic_id: list(part.partitions) for part in request.topic_partitions}


class Rig:
    """`orders` has all that the member ordered and the test has not taken yet."""

    def __init__(self, *, instance: str | None = None, assignor: str | None = None) -> None:
        self.member = ConsumerMember(
            ConsumerMemberSettings(
                "g",
                "me",
                assignor,
                instance,
                "rack",
                rebalance_timeout_ms=POLL_MS,
                request_timeout_ms=TIMEOUT_MS,
                retry_backoff_ms=BACKOFF_MS,
            )
        )
        self.now = 1_000_000
        self.orders: list[events.Effect] = []
        self.asked = events.Ask(0, ConsumerGroupHeartbeatRequest(), 0)
        """The last heartbeat."""
        self.epoch = 0
        """The last one that the coordinator told."""

    def tell(self, *told: events.Event) -> None:
        for event in told:
            self.orders += self.member.handle(event, self.now)
            self.member.check()

    def take(self, kind: type[E]) -> E:
        """The next order, which must be of this kind."""
        assert self.orders, f"{kind.__name__} was not ordered; {self.member.state}"
        order = self.orders.pop(0)
        assert isinstance(order, kind), f"{order} instead of {kind.__name__}"
        return order

    def nothing(self) -> None:
        assert self.orders == []

    def pass_time(self, milliseconds: int) -> None:
        """Let time go by; the member hears of it whenever it wants to."""
        end = self.now + milliseconds
        while (due := self.member.due) is not None and due <= end:
            self.now = max(self.now, due)
            before = (due, len(self.orders))
            self.tell(events.TimePassed())
            assert (self.member.due, len(self.orders)) != before, "it would be told for ever"
        self.now = end

    # -- heartbeats --------------------------------------------------------------------------------

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """The heartbeat that is sent next; answered by `answer` or `refuse`."""
        order = self.take(events.Ask)
        assert isinstance(order.message, ConsumerGroupHeartbeatRequest)
        if order.turn:
            self.asked = order
        return order.message

    def answer(
        self, assigned: Assignment | None = None, epoch: int = 0, interval_ms: int = INTERVAL_MS
    ) -> None:
        self.epoch = epoch or self.epoch
        self.tell(
            events.Answered(
                self.asked.turn,
                ConsumerGroupHeartbeatResponse(
                    member_id="me",
                    member_epoch=self.epoch,
                    heartbeat_interval_ms=interval_ms,
                    assignment=assigned,
                ),
            )
        )

    def refuse(self, code: int, message: str | None = None) -> None:
        response = ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
        self.tell(events.Answered(self.asked.turn, response))

    # -- steps -------------------------------------------------------------------------------------

    def joining(self) -> ConsumerGroupHeartbeatRequest:
        self.tell(
            events.CoordinatorFound(), events.TopicsNamed(NAMES), events.Subscribed(("t", "u"))
        )
        return self.heartbeat()

    def adopt(self) -> events.Adopt:
        """The application does as it is told."""
        order = self.take(events.Adopt)
        held = (set(self.member.owned) - set(order.revoked)) | set(order.assigned)
        self.tell(events.Adopted(tuple(sorted(held))))
        return order

    def lose(self) -> events.Prepare:
        """The application gives up what was lost."""
        order = self.take(events.Prepare)
        assert not order.commit
        assert order.revoked == ()
        self.tell(events.Prepared(order.lost))
        return order

    def stable(self, *numbers: int) -> None:
        """A member with these partitions, which has told so."""
        self.joining()
        self.answer(assignment(*numbers), epoch=1)
        self.adopt()
        self.heartbeat()
        self.answer()
        self.nothing()
