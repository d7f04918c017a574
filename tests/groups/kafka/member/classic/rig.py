"""Drives one `ClassicMember` as its node would: answers of a coordinator, and an application that does as it is told."""

from __future__ import annotations

from typing import TypeVar

from steelyard.allocate.assignors.registry import assignor
from steelyard.groups.kafka.member import events
from steelyard.groups.kafka.member.classic.machine import ClassicMember
from steelyard.groups.kafka.member.classic.states import ClassicMemberSettings
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    write_assignment,
    write_subscription,
)
from steelyard.wire.kafka.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)

E = TypeVar("E", bound=events.Effect)

SESSION_MS, HEARTBEAT_MS, POLL_MS, BACKOFF_MS = 10_000, 3_000, 60_000, 100


def parts(*numbers: int, topic: str = "t") -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def assignment(*partitions: TopicPartition) -> bytes:
    return write_assignment(
        ConsumerProtocolAssignment(
            tuple(TopicPartitions(part.topic, (part.partition,)) for part in partitions)
        )
    )


def metadata(*topics: str) -> bytes:
    return write_subscription(ConsumerProtocolSubscription(topics))


class Rig:
    """`orders` has all that the member ordered and the test has not taken yet."""

    def __init__(self, *assignors: str, instance: str | None = None) -> None:
        self.member = ClassicMember(
            ClassicMemberSettings(
                "g",
                tuple(assignor(name) for name in assignors or ("range",)),
                instance,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=POLL_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                retry_backoff_ms=BACKOFF_MS,
            )
        )
        self.now = 1_000_000
        self.orders: list[events.Effect] = []

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

    def ask(self) -> events.Ask:
        return self.take(events.Ask)

    def pass_time(self, milliseconds: int) -> None:
        """Let time go by; the member hears of it whenever it wants to."""
        end = self.now + milliseconds
        while (due := self.member.due) is not None and due <= end:
            self.now = max(self.now, due)
            before = (due, len(self.orders))
            self.tell(events.TimePassed())
            assert (self.member.due, len(self.orders)) != before, "it would be told for ever"
        self.now = end

    # -- steps of a rebalance ----------------------------------------------------------------------

    def prepare(self) -> events.Prepare:
        order = self.take(events.Prepare)
        self.tell(events.Prepared((*order.revoked, *order.lost)))
        return order

    def request(self) -> JoinGroupRequest:
        """The JoinGroup that is sent next; answered by `joined`."""
        self.asked = self.ask()
        assert isinstance(self.asked.message, JoinGroupRequest)
        return self.asked.message

    def answer(self, response: JoinGroupResponse | SyncGroupResponse | HeartbeatResponse) -> None:
        self.tell(events.Answered(self.asked.turn, response))

    def joined(self, generation: int = 1, *, leads: bool = False, protocol: str = "range") -> None:
        others = (JoinGroupResponseMember("other", None, metadata("t", "u")),)
        mine = JoinGroupResponseMember("me", None, metadata("t"))
        self.answer(
            JoinGroupResponse(
                0,
                0,
                generation,
                "consumer",
                protocol,
                "me" if leads else "other",
                False,
                "me",
                (mine, *others) if leads else (),
            )
        )

    def sync(self) -> SyncGroupRequest:
        self.asked = self.ask()
        assert isinstance(self.asked.message, SyncGroupRequest)
        return self.asked.message

    def synced(self, *partitions: TopicPartition) -> events.Adopt:
        self.answer(SyncGroupResponse(assignment=assignment(*partitions)))
        return self.take(events.Adopt)

    def adopt(self, order: events.Adopt) -> None:
        held = (set(self.member.owned) - set(order.revoked)) | set(order.assigned)
        self.tell(events.Adopted(tuple(sorted(held))))

    def beat(self, code: int) -> None:
        """Answer the next heartbeat with this."""
        if not self.orders:
            self.pass_time(HEARTBEAT_MS)
        asked = self.ask()
        assert isinstance(asked.message, HeartbeatRequest)
        self.tell(events.Answered(asked.turn, HeartbeatResponse(0, code)))

    def left(self) -> LeaveGroupRequest:
        message = self.ask().message
        assert isinstance(message, LeaveGroupRequest)
        return message

    def stable(self, *partitions: TopicPartition, leads: bool = False) -> None:
        """Through a whole first rebalance."""
        self.tell(events.CoordinatorFound(), events.Subscribed(("t",)))
        self.prepare()
        self.request()
        self.joined(leads=leads, protocol=self.member._settings.assignors[0].name)
        if leads:
            self.take(events.NeedTopics)
            self.tell(events.TopicsKnown({"t": 2, "u": 1}))
        self.sync()
        self.adopt(self.synced(*partitions))
        self.nothing()
