"""What holds of a member whatever comes, in whatever order: it is driven by chance, beside a coordinator and an application that keep a tally."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.groups.kafka.member.consumer.rig import NAMES, Rig, T, U, parts, told

from steelyard.groups.kafka.member import events
from steelyard.groups.kafka.member.consumer.states import ConsumerMemberState
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.consumer_groups import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

CODES = st.sampled_from([0, 0, 0, 0, 0, 14, 15, 16, 25, 69, 110, 111, 35, 82])
SHARES = st.none() | st.lists(
    st.tuples(st.sampled_from([T, U]), st.integers(0, 2)), unique=True, max_size=4
).map(sorted)

STEPS = st.one_of(
    st.tuples(st.just("answer"), CODES, SHARES),
    st.tuples(st.just("unanswered")),
    st.tuples(st.just("finish")),
    st.tuples(st.just("time"), st.sampled_from([50, 150, 5_000, 12_000, 61_000])),
    st.tuples(st.just("coordinator"), st.booleans()),
    st.tuples(st.just("poll"), st.booleans()),
    st.tuples(st.just("subscribe"), st.sampled_from([("t",), ("t", "u"), ()])),
    st.tuples(st.just("commit"), st.sampled_from([22, 25, 82])),
    st.tuples(st.just("names"), st.sampled_from([{}, {T: "t"}, NAMES])),
    st.tuples(st.just("retry")),
)

Share = list[tuple[bytes, int]]


def assigned(share: Share) -> Assignment:
    by_id = {topic: tuple(number for one, number in share if one == topic) for topic, _ in share}
    return Assignment(tuple(TopicPartitions(*pair) for pair in by_id.items()))


def claims(request: ConsumerGroupHeartbeatRequest) -> set[TopicPartition] | None:
    owned = told(request)
    if owned is None:
        return None
    return {TopicPartition(NAMES[topic], n) for topic, numbers in owned.items() for n in numbers}


class World:
    """The node and the application behind a member: does what is ordered when the chance says so; the laws are here."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.held: tuple[TopicPartition, ...] = ()
        self.beat: events.Ask | None = None
        self.change: events.Prepare | events.Adopt | None = None
        self.epoch = 0
        self.assigned: set[TopicPartition] = set()
        """The last assignment."""
        self.topics: tuple[str, ...] = ()
        """Subscribed to when the last heartbeat was sent."""

    def take(self) -> None:
        orders, self.rig.orders = self.rig.orders, []
        for order in orders:
            match order:
                case events.Ask(turn=0, message=ConsumerGroupHeartbeatRequest() as request):
                    assert request.member_epoch == -1
                    self.beat = None
                case events.Ask(message=ConsumerGroupHeartbeatRequest() as request):
                    assert self.beat is None, "one heartbeat at a time"
                    self.beat = order
                    self.check(request)
                case events.FindCoordinator():
                    self.beat = None
                case events.Prepare():
                    assert self.change is None, "one thing after the other"
                    assert not order.commit, "what is lost is not committed"
                    assert order.revoked == ()
                    assert order.lost == self.held, "all of it is lost"
                    self.change = order
                case events.Adopt():
                    assert self.change is None, "one thing after the other"
                    assert set(order.revoked) <= set(self.held)
                    assert not set(order.assigned) & set(self.held)
                    self.change = order
                    self.check_claims(order)

    def check(self, request: ConsumerGroupHeartbeatRequest) -> None:
        if request.member_epoch == 0:
            assert self.held == (), "who joins holds nothing"
            assert told(request) == {}
            assert request.subscribed_topic_names is not None
            return
        assert request.member_epoch == self.epoch
        self.topics = self.rig.member.topics or ()
        claimed = claims(request)
        if claimed is not None:
            # Nothing is told to be given up that the application holds, and nothing else kept.
            assert set(self.held) <= claimed <= {*self.held, *self.assigned}
            if isinstance(self.change, events.Adopt):
                assert set(self.change.assigned) <= claimed

    def check_claims(self, order: events.Adopt) -> None:
        """Nothing is taken that a heartbeat without an answer says is not the member's: others may have it."""
        claimed = None
        if self.beat is not None and isinstance(self.beat.message, ConsumerGroupHeartbeatRequest):
            claimed = claims(self.beat.message)
        if claimed is not None:
            assert {each for each in order.assigned if each.topic in self.topics} <= claimed

    def step(self, step: tuple[object, ...]) -> None:
        rig = self.rig
        match step:
            case ("answer", int(code), share):
                assert share is None or isinstance(share, list)
                self.answer(code, share)
            case ("unanswered",):
                beat, self.beat = self.beat, None
                if beat is not None:
                    rig.tell(events.Unanswered(beat.turn, "closed"))
            case ("finish",):
                self.finish()
            case ("time", int(milliseconds)):
                rig.pass_time(milliseconds)
            case ("coordinator", bool(found)):
                if not found:
                    self.beat = None
                rig.tell(events.CoordinatorFound() if found else events.CoordinatorLost("lost"))
            case ("poll", bool(begins)):
                rig.tell(events.PollBegan() if begins else events.PollEnded())
            case ("subscribe", tuple(topics)):
                rig.tell(events.Subscribed(topics))
            case ("commit", int(code)):
                if code == 25 and rig.member.generation > 0:
                    self.beat = None  # its answer is not expected any more
                rig.tell(events.CommitRefused(code))
            case ("names", dict(names)):
                rig.tell(events.TopicsNamed(names))
            case ("retry",):
                rig.tell(events.Retried())
        self.take()

    def answer(self, code: int, share: Share | None) -> None:
        beat, self.beat = self.beat, None
        if beat is None:
            return
        self.epoch += not code
        if not code and share is not None:
            self.assigned = {TopicPartition(NAMES[topic], number) for topic, number in share}
        response = ConsumerGroupHeartbeatResponse(
            error_code=code,
            member_id="me",
            member_epoch=self.epoch,
            heartbeat_interval_ms=5_000,
            assignment=None if share is None else assigned(share),
        )
        self.rig.tell(events.Answered(beat.turn, response))

    def finish(self) -> None:
        """The application is done with a change."""
        change, self.change = self.change, None
        if isinstance(change, events.Prepare):
            self.held = ()
            self.rig.tell(events.Prepared(change.lost))
        elif isinstance(change, events.Adopt):
            kept = set(self.held) - set(change.revoked) | set(change.assigned)
            self.held = tuple(sorted(kept))
            self.rig.tell(events.Adopted(self.held))

    def settle(self) -> None:
        """From now on everything works."""
        self.take()
        self.step(("subscribe", ("t",)))
        for _ in range(30):
            self.step(("retry",))
            self.step(("poll", True))
            self.step(("names", NAMES))
            self.step(("coordinator", True))
            self.step(("time", 5_000))
            self.step(("answer", 0, [(T, 0), (T, 1)]))
            self.step(("finish",))


@settings(max_examples=examples(500))
@given(st.lists(STEPS, max_size=60))
def test_whatever_comes(steps: list[tuple[object, ...]]) -> None:
    """`check` holds after each event, nothing is ordered out of turn, and once all works it is stable with its share."""
    world = World()
    member = world.rig.member
    for step in steps:
        world.step(step)
        if world.change is None:
            assert member.is_gone or member.owned == world.held
    world.settle()
    if not member.is_gone:
        assert member.state is ConsumerMemberState.STABLE
        assert world.held == member.owned == parts(0, 1)
