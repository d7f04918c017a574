"""Requests in flight: links, matching by opaque, time-outs, limits."""

from __future__ import annotations

import pytest
from tests.effects import effects_of

from steelyard.errors import CallTimeoutError, ConnectError, RemotingError
from steelyard.nodes.calls.remoting import CALLS_TIMER, Calls, Outcome
from steelyard.nodes.seam import Closed, Dial, Effect, Hang, Opened, Refused, Send, SetTimer
from steelyard.wire.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Command

HERE = "127.0.0.1:9876"
THERE = "127.0.0.1:9877"


def sent(effects: list[Effect]) -> list[Command]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Command)]


@pytest.fixture
def calls() -> Calls[str]:
    return Calls()


def test_a_call_waits_for_its_link(calls: Calls[str]) -> None:
    assert effects_of(calls.call, HERE, Command(105), "route", 1000, 500) == [
        Dial(HERE),
        SetTimer(CALLS_TIMER, 1500),
    ]
    assert effects_of(calls.call, HERE, Command(106), "cluster", 1001, 500) == []
    calls.check()
    effects = effects_of(calls.opened, Opened(7, HERE, dialed=True))
    assert [command.code for command in sent(effects)] == [105, 106]
    assert calls.linked() == [HERE]
    calls.check()


def test_replies_are_matched_in_any_order(calls: Calls[str]) -> None:
    effects_of(calls.opened, Opened(7, HERE, dialed=True))
    first, second = (
        sent(effects_of(calls.call, HERE, Command(105), purpose, 0, 500))[0]
        for purpose in ("first", "second")
    )
    for request, purpose in ((second, "second"), (first, "first")):
        response = Command(0, request.opaque, RESPONSE_FLAG)
        assert calls.replied(7, response) == Outcome(purpose, HERE, response)
    assert calls.replied(7, Command(0, first.opaque, RESPONSE_FLAG)) is None, "answered twice"
    calls.check()


def test_nobody_there(calls: Calls[str]) -> None:
    effects_of(calls.call, HERE, Command(105), "route", 0, 500)
    effects_of(calls.tell, HERE, Command(15))
    (outcome,) = calls.refused(Refused(HERE, "connection refused"))
    assert outcome.purpose == "route"
    assert isinstance(outcome.reply, ConnectError)
    assert "connection refused" in str(outcome.reply)
    calls.check()
    assert effects_of(calls.call, HERE, Command(105), "again", 0, 500)[0] == Dial(HERE)


def test_a_link_that_dies_fails_its_own_calls_only(calls: Calls[str]) -> None:
    effects_of(calls.opened, Opened(7, HERE, dialed=True))
    effects_of(calls.opened, Opened(8, THERE, dialed=True))
    effects_of(calls.call, HERE, Command(105), "here", 0, 500)
    effects_of(calls.call, THERE, Command(105), "there", 0, 500)
    (outcome,) = calls.closed(Closed(7, "reset"))
    assert (outcome.purpose, outcome.address) == ("here", HERE)
    assert isinstance(outcome.reply, RemotingError)
    assert outcome.reply.retriable
    assert calls.linked() == [THERE]
    assert calls.closed(Closed(99, "not ours")) == []
    calls.check()


def test_time_is_up_for_late_calls_only(calls: Calls[str]) -> None:
    effects_of(calls.opened, Opened(7, HERE, dialed=True))
    effects_of(calls.call, HERE, Command(105), "early", 0, 500)
    effects_of(calls.call, HERE, Command(105), "late", 0, 900)
    effects: list[Effect] = []
    outcomes = calls.expire(500, effects)
    assert [outcome.purpose for outcome in outcomes] == ["early"]
    assert isinstance(outcomes[0].reply, CallTimeoutError)
    assert effects == [SetTimer(CALLS_TIMER, 900)]
    outcomes = calls.expire(900, effects)
    assert [outcome.purpose for outcome in outcomes] == ["late"]
    assert effects == [SetTimer(CALLS_TIMER, 900)], "no timer without calls"
    calls.check()


def test_a_shorter_deadline_moves_the_timer(calls: Calls[str]) -> None:
    effects_of(calls.opened, Opened(7, HERE, dialed=True))
    effects_of(calls.call, HERE, Command(105), "long", 0, 30_000)
    assert effects_of(calls.call, HERE, Command(105), "short", 10, 100)[-1] == SetTimer(
        CALLS_TIMER, 110
    )
    assert SetTimer(CALLS_TIMER, 200) not in effects_of(
        calls.call, HERE, Command(105), "longer", 20, 180
    )


def test_what_timed_out_before_the_link_was_made_is_not_sent(calls: Calls[str]) -> None:
    effects_of(calls.call, HERE, Command(105), "route", 0, 500)
    effects_of(calls.tell, HERE, Command(15))
    calls.expire(500, [])
    commands = sent(effects_of(calls.opened, Opened(7, HERE, dialed=True)))
    assert [command.code for command in commands] == [15]
    assert commands[0].flag & ONEWAY_FLAG


def test_too_many_at_once() -> None:
    calls: Calls[int] = Calls(in_flight_max=2)
    for number in range(2):
        effects_of(calls.call, HERE, Command(105), number, 0, 500)
    with pytest.raises(RemotingError, match="more than 2"):
        effects_of(calls.call, HERE, Command(105), 3, 0, 500)
    calls.check()


def test_oneway_requests_that_wait_for_a_link_do_not_fill_the_memory(calls: Calls[str]) -> None:
    body = bytes(1024 * 1024)
    for _ in range(100):
        effects_of(calls.tell, HERE, Command(310, body=body))
    effects_of(calls.call, HERE, Command(105), "route", 0, 500)
    effects_of(calls.tell, THERE, Command(310, body=body))
    calls.check()
    codes = [
        command.code for command in sent(effects_of(calls.opened, Opened(7, HERE, dialed=True)))
    ]
    assert codes == [310] * 64 + [105]
    calls.refused(Refused(THERE, "no"))
    calls.check()
    effects_of(calls.tell, THERE, Command(310, body=body))
    assert len(sent(effects_of(calls.opened, Opened(8, THERE, dialed=True)))) == 1
    calls.check()


def test_hanging_up(calls: Calls[str]) -> None:
    assert effects_of(calls.hang_up, HERE, "idle") == []
    effects_of(calls.opened, Opened(7, HERE, dialed=True))
    assert effects_of(calls.hang_up, HERE, "idle") == [Hang(7, "idle", at_once=True)]
    assert calls.address_of(7) == HERE


def hangs(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, Hang)]


def test_a_link_on_which_nothing_is_answered_any_more_is_closed(calls: Calls[str]) -> None:
    effects_of(calls.opened, Opened(7, HERE, dialed=True))
    dead: list[Effect] = []
    for second in range(0, 12, 3):
        assert hangs(dead) == []
        effects_of(calls.call, HERE, Command(310), "send", 1_000 * second, 3_000)
        calls.expire(1_000 * second + 3_000, dead)
        calls.check()
    assert hangs(dead) == [Hang(7, "nothing was answered for too long", at_once=True)]
    calls.closed(Closed(7, "nothing was answered for too long"))
    assert effects_of(calls.call, HERE, Command(310), "send", 20_000, 3_000)[0] == Dial(HERE)
    calls.check()


def test_a_link_on_which_anything_is_answered_stays(calls: Calls[str]) -> None:
    effects_of(calls.opened, Opened(7, HERE, dialed=True))
    effects_of(calls.call, HERE, Command(11), "pull", 0, 60_000)
    effects: list[Effect] = []
    for second in range(0, 60, 3):
        (late,) = sent(effects_of(calls.call, HERE, Command(310), "send", 1_000 * second, 3_000))
        calls.expire(1_000 * second + 3_000, effects)
        assert calls.replied(7, Command(0, late.opaque, RESPONSE_FLAG)) is None, "too late"
        calls.check()
    assert hangs(effects) == []
    effects_of(calls.call, HERE, Command(34), "heartbeat", 90_000, 3_000)
    calls.expire(93_000, effects)
    assert hangs(effects) == [], "nothing was asked for most of that time"


def test_whatever_goes_out_is_signed() -> None:
    def sign(request: Command) -> Command:
        return Command(request.code, request.opaque, request.flag, {"Signature": "s"}, request.body)

    calls: Calls[str] = Calls(signer=sign)
    effects_of(calls.call, HERE, Command(105, ext={"topic": "T"}), "before the link", 0, 500)
    early = sent(effects_of(calls.opened, Opened(7, HERE, dialed=True)))
    late = sent(effects_of(calls.call, HERE, Command(106, body=b"x"), "after", 0, 500))
    oneway = sent(effects_of(calls.tell, HERE, Command(15)))
    assert early + late + oneway == [
        Command(105, 1, 0, {"Signature": "s"}),
        Command(106, 2, 0, {"Signature": "s"}, b"x"),
        Command(15, 3, ONEWAY_FLAG, {"Signature": "s"}),
    ]
    assert calls.replied(7, Command(0, 1, RESPONSE_FLAG)) is not None
