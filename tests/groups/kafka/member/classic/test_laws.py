"""What holds of a member whatever comes, in whatever order: it is driven by chance, and a tally is kept of what it orders."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.groups.kafka.member.classic.rig import Rig, assignment, metadata, parts

from steelyard.groups.kafka.member import events
from steelyard.groups.kafka.member.classic.states import ClassicMemberState
from steelyard.types import TopicPartition
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

CODES = st.sampled_from([0, 0, 0, 0, 14, 15, 16, 22, 25, 27, 30, 79, 82])
SHARES = st.lists(st.integers(0, 3), unique=True, max_size=4).map(sorted)

STEPS = st.one_of(
    st.tuples(st.just("answer"), CODES, st.booleans(), SHARES),
    st.tuples(st.just("unanswered")),
    st.tuples(st.just("finish")),
    st.tuples(st.just("time"), st.sampled_from([50, 150, 3_000, 12_000, 61_000])),
    st.tuples(st.just("coordinator"), st.booleans()),
    st.tuples(st.just("poll"), st.booleans()),
    st.tuples(st.just("subscribe"), st.sampled_from([("t",), ("t", "u"), ()])),
    st.tuples(st.just("commit"), st.sampled_from([22, 25, 27])),
    st.tuples(st.just("topics"), st.integers(1, 4)),
    st.tuples(st.just("retry")),
)


class Application:
    """The node and the application behind a member: does what is ordered when the chance says so, and keeps the tally."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.held: tuple[TopicPartition, ...] = ()
        self.asked: events.Ask | None = None
        self.beat: events.Ask | None = None
        self.change: events.Prepare | events.Adopt | None = None
        self.needed: tuple[str, ...] | None = None

    def take(self) -> None:
        """All that was ordered since; the laws are here."""
        orders, self.rig.orders = self.rig.orders, []
        for order in orders:
            match order:
                case events.Ask(message=JoinGroupRequest()):
                    assert self.change is None, "it joins before it is prepared"
                    self.asked, self.beat = order, None
                case events.Ask(message=SyncGroupRequest()):
                    self.asked = order
                case events.Ask(message=HeartbeatRequest(generation_id=generation)):
                    assert generation >= 0
                    assert self.beat is None, "one heartbeat at a time"
                    self.beat = order
                case events.Ask(message=message):
                    assert isinstance(message, LeaveGroupRequest)
                case events.Prepare():
                    assert self.change is None, "one thing after the other"
                    assert set(order.revoked) | set(order.lost) <= set(self.held)
                    assert not (order.lost and order.commit), "what is lost is not committed"
                    self.change = order
                case events.Adopt():
                    assert self.change is None, "one thing after the other"
                    assert set(order.revoked) <= set(self.held)
                    assert not set(order.assigned) & set(self.held)
                    self.change = order
                case events.NeedTopics(topics=topics):
                    self.needed = topics

    def step(self, step: tuple[object, ...]) -> None:
        rig = self.rig
        match step:
            case ("answer", int(code), bool(leads), list(numbers)):
                self.answer(code, leads, numbers)
            case ("unanswered",):
                asked, self.asked = self.beat or self.asked, None
                self.beat = None
                if asked is not None:
                    rig.tell(events.Unanswered(asked.turn, "closed"))
            case ("finish",):
                self.finish()
            case ("time", int(milliseconds)):
                rig.pass_time(milliseconds)
            case ("coordinator", bool(found)):
                rig.tell(events.CoordinatorFound() if found else events.CoordinatorLost("lost"))
            case ("poll", bool(begins)):
                rig.tell(events.PollBegan() if begins else events.PollEnded())
            case ("subscribe", tuple(topics)):
                rig.tell(events.Subscribed(topics))
            case ("commit", int(code)):
                rig.tell(events.CommitRefused(code))
            case ("retry",):
                rig.tell(events.Retried())
            case ("topics", int(count)):
                rig.tell(events.TopicsChanged({"t": count}))
        self.take()

    def answer(self, code: int, leads: bool, numbers: list[int]) -> None:
        rig = self.rig
        if self.beat is not None:
            asked, self.beat = self.beat, None
            rig.tell(events.Answered(asked.turn, HeartbeatResponse(0, code)))
        elif self.asked is not None:
            asked, self.asked = self.asked, None
            if isinstance(asked.message, JoinGroupRequest):
                members = (JoinGroupResponseMember("me", None, metadata("t")),)
                generation = max(rig.member.generation, 0) + 1
                response = JoinGroupResponse(
                    0,
                    code,
                    generation,
                    "consumer",
                    asked.message.protocols[0].name,
                    "me" if leads else "other",
                    False,
                    "me",
                    members if leads else (),
                )
                rig.tell(events.Answered(asked.turn, response))
            else:
                data = assignment(*parts(*numbers))
                rig.tell(events.Answered(asked.turn, SyncGroupResponse(0, code, assignment=data)))

    def finish(self) -> None:
        """The application is done with a change, or the metadata came."""
        change, self.change = self.change, None
        if isinstance(change, events.Prepare):
            released = (*change.revoked, *change.lost)
            self.held = tuple(part for part in self.held if part not in released)
            self.rig.tell(events.Prepared(released))
        elif isinstance(change, events.Adopt):
            kept = set(self.held) - set(change.revoked) | set(change.assigned)
            self.held = tuple(sorted(kept))
            self.rig.tell(events.Adopted(self.held))
        elif self.needed is not None:
            self.needed = None
            self.rig.tell(events.TopicsKnown({"t": 4}))

    def settle(self) -> None:
        """From now on everything works."""
        self.take()
        self.step(("subscribe", ("t",)))
        self.rig.tell(events.RejoinWanted("what it was given before does not count"))
        for _ in range(50):
            self.step(("retry",))
            self.step(("poll", True))
            self.step(("coordinator", True))
            self.step(("time", 150))
            self.step(("answer", 0, False, [0, 1]))
            self.step(("finish",))


@settings(max_examples=examples(500))
@given(st.sampled_from(["range", "cooperative-sticky"]), st.lists(STEPS, max_size=60))
def test_whatever_comes(name: str, steps: list[tuple[object, ...]]) -> None:
    """`check` holds after each event, nothing is ordered out of turn, and once all works it is stable with its share."""
    application = Application(Rig(name))
    member = application.rig.member
    for step in steps:
        application.step(step)
        if application.change is None and member.state is not ClassicMemberState.GONE:
            assert set(member.owned) == set(application.held)
    application.settle()
    if member.state is not ClassicMemberState.GONE:
        assert member.state is ClassicMemberState.STABLE
        assert application.held == member.owned == parts(0, 1)
