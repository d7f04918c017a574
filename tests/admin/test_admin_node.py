"""The admin node: a call out, an answer back, whatever happens between."""

from __future__ import annotations

from steelyard.errors import CallTimeoutError, ClosedError, ConnectError, RemotingError
from steelyard.nodes.admin import AdminNode, Invoke
from steelyard.nodes.seam import (
    Answer,
    Asked,
    Closed,
    Dial,
    Due,
    Effect,
    Event,
    Opened,
    Received,
    Refused,
    Send,
    SetTimer,
)
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command

PEER = "h:1"


def play(node: AdminNode, *events: Event, now: int = 0) -> list[Effect]:
    """The last event's effects, invariants checked after each."""
    effects: list[Effect] = []
    for event in events:
        effects = node.handle(event, now)
        node.check()
    return effects


def invoke(call_id: int, code: int = 106) -> Asked:
    return Asked(call_id, Invoke(PEER, Command(code), 1000))


def linked(*, calls: int = 1) -> AdminNode:
    node = AdminNode()
    assert node.start(0) == []
    play(node, *(invoke(number) for number in range(1, calls + 1)), Opened(7, PEER, dialed=True))
    return node


def answer_types(effects: list[Effect]) -> list[tuple[int, type]]:
    return [(e.call_id, type(e.result)) for e in effects if isinstance(e, Answer)]


def test_a_call_dials_sends_and_answers() -> None:
    node = AdminNode()
    assert play(node, invoke(1)) == [Dial(PEER), SetTimer("calls", 1000)]
    assert play(node, Opened(7, PEER, dialed=True)) == [Send(7, Command(106, opaque=1))]
    reply = Command(0, opaque=1, flag=RESPONSE_FLAG, body=b"{}")
    assert play(node, Received(7, reply)) == [Answer(1, reply)]


def test_a_second_call_uses_the_link() -> None:
    assert play(linked(), invoke(2)) == [Send(7, Command(106, opaque=2))]


def test_replies_are_matched_by_opaque() -> None:
    node = linked(calls=2)
    second = Command(17, opaque=2, flag=RESPONSE_FLAG)
    assert play(node, Received(7, second)) == [Answer(2, second)]
    assert play(node, Received(7, second)) == [], "the same reply again"


def test_failures_are_answered() -> None:
    node = AdminNode()
    assert answer_types(play(node, invoke(1), Refused(PEER, "nobody"))) == [(1, ConnectError)]
    assert answer_types(play(linked(calls=2), Closed(7, "gone"))) == [
        (1, RemotingError),
        (2, RemotingError),
    ]
    assert answer_types(play(linked(), Due("calls"), now=1000)) == [(1, CallTimeoutError)]
    assert answer_types(play(AdminNode(), Asked(1, "what?"))) == [(1, ClosedError)]


def test_what_is_not_for_it_is_dropped() -> None:
    node = linked()
    for event in (
        Received(7, Command(40)),
        Received(7, "no command"),
        Received(7, Command(0, opaque=99, flag=RESPONSE_FLAG)),
        Closed(8, "not ours"),
        Due("another timer"),
    ):
        assert play(node, event) == []
