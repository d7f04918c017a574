"""Queues that change hands: what the first pull of a new owner waits for, and where it begins."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import GROUP, Rig, pull_ext
from tests.nodes.broker.driver import TOPIC

from steelyard.config import BrokerConfig
from steelyard.nodes.broker.remoting import handovers
from steelyard.nodes.broker.remoting.handovers import BOUND_MS, BOUND_READ_MS, SETTLE_MS
from steelyard.nodes.seam import Closed
from steelyard.types import MessageQueue
from steelyard.wire.remoting.bodies import LockBatchBody
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import decode_records

PULL = RequestCode.PULL_MESSAGE
COMMIT, SUSPEND = 1, 2
OF_GROUP = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
HOLD_MS = 15_000

Members = tuple[Rig, int, int]


def commit(rig: Rig, link: int, offset: int, **more: object) -> None:
    ext = OF_GROUP | {"commitOffset": offset} | more
    assert rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def committed(rig: Rig, link: int) -> int:
    return int(rig.ask(link, RequestCode.QUERY_CONSUMER_OFFSET, OF_GROUP).ext["offset"])


def pull(rig: Rig, link: int, offset: int, **changes: object) -> int:
    changes = {"sysFlag": SUSPEND, "suspendTimeoutMillis": HOLD_MS} | changes
    return rig.post(link, PULL, pull_ext(offset, **changes))


def seen(answer: Command | None) -> object:
    """What an answer says: the bodies of messages, or its code and next offset; None without an answer."""
    if answer is None:
        return None
    if answer.code == ResponseCode.SUCCESS:
        return [view.body for view in decode_records(answer.body)]
    return ResponseCode(answer.code), int(answer.ext["nextBeginOffset"])


MOVED_ON = ResponseCode.PULL_RETRY_IMMEDIATELY
NOTHING = ResponseCode.PULL_NOT_FOUND


def scene(
    *, enabled: bool = True, model: str = "CLUSTERING", client: tuple[str, int] = ("JAVA", 409)
) -> Members:
    """A member that was delivered messages 0 to 5 of 10 and committed 2, and a newcomer that was told 2."""
    rig = Rig(BrokerConfig(delayed_answers=enabled))
    old, new = rig.connect(), rig.connect()
    for number in range(10):
        rig.send(old, b"%d" % number)
    rig.beat(old, "c-old", TOPIC, model=model, client=client)
    assert seen(rig.ask(old, PULL, pull_ext(0, maxMsgNums=6))) == [b"%d" % n for n in range(6)]
    commit(rig, old, 2)
    # Between two pulls: the commit was one of those that clients send every few seconds.
    rig.ask(old, PULL, pull_ext(10, sysFlag=0))
    rig.beat(new, "c-new", TOPIC, model=model)
    assert committed(rig, new) == 2
    return rig, old, new


def test_the_first_pull_waits_for_the_commit_and_begins_there() -> None:
    rig, old, new = scene()
    first = pull(rig, new, 2)
    rig.advance(200)
    assert rig.reply_to(new, first) is None
    commit(rig, old, 5)
    rig.advance(SETTLE_MS - 1)
    assert rig.reply_to(new, first) is None
    rig.advance(1)
    assert seen(rig.reply_to(new, first)) == (MOVED_ON, 5)
    assert seen(rig.reply_to(new, pull(rig, new, 5, maxMsgNums=1))) == [b"5"]


def test_a_commit_before_the_first_pull_is_where_it_begins() -> None:
    rig, old, new = scene()
    commit(rig, old, 4)
    rig.advance(500)
    assert seen(rig.reply_to(new, pull(rig, new, 2))) == (MOVED_ON, 4)


def test_a_go_client_does_not_commit_what_it_gives_up() -> None:
    """So nothing waits for it; what its pulls committed counts."""
    rig, old, new = scene(client=("GO", 317))
    rig.ask(old, PULL, pull_ext(10, sysFlag=COMMIT, commitOffset=5))
    assert seen(rig.reply_to(new, pull(rig, new, 2))) == (MOVED_ON, 5)


def test_who_goes_on_asking_has_not_given_up() -> None:
    rig, old, new = scene()
    first = pull(rig, new, 2)
    commit(rig, old, 3)
    rig.advance(SETTLE_MS // 2)
    rig.ask(old, PULL, pull_ext(6, sysFlag=0, maxMsgNums=1))
    rig.advance(1_000)
    assert rig.reply_to(new, first) is None
    commit(rig, old, 7)
    rig.advance(SETTLE_MS)
    assert seen(rig.reply_to(new, first)) == (MOVED_ON, 7)


def test_the_wait_has_a_bound() -> None:
    rig, _, new = scene()
    first = pull(rig, new, 2, maxMsgNums=1)
    rig.advance(BOUND_MS - 1)
    assert rig.reply_to(new, first) is None
    rig.advance(1)
    assert seen(rig.reply_to(new, first)) == [b"2"]


def test_the_wait_for_one_who_goes_on_asking_has_a_bound_as_well() -> None:
    rig, old, new = scene()
    answers = []
    asked_at = rig.now
    waiting = pull(rig, new, 2, maxMsgNums=1)
    while rig.now < asked_at + BOUND_READ_MS:
        rig.advance(500)
        rig.ask(old, PULL, pull_ext(10, sysFlag=0))
        answer = rig.reply_to(new, waiting)
        if answer is not None:
            answers.append((rig.now - asked_at, seen(answer)))
            waiting = pull(rig, new, 2, maxMsgNums=1)
    rig.advance(1)
    answers.append((rig.now - asked_at, seen(rig.reply_to(new, waiting))))
    nothing = (NOTHING, 2)
    assert [answer for _, answer in answers[:2]] == [nothing, nothing]  # each pull's own time-out
    assert answers[2] == (BOUND_READ_MS, [b"2"])


@pytest.mark.parametrize("how", ["closed", "unregistered"])
def test_nobody_waits_for_a_member_that_has_left(how: str) -> None:
    rig, old, new = scene()
    first = pull(rig, new, 2, maxMsgNums=1)
    if how == "closed":
        rig.event(Closed(old, "killed"))
    else:
        ext = {"clientID": "c-old", "consumerGroup": GROUP}
        rig.ask(old, RequestCode.UNREGISTER_CLIENT, ext)
    rig.advance(0)
    assert seen(rig.reply_to(new, first)) == [b"2"]


def test_an_unlocked_queue_is_free_at_once() -> None:
    rig, old, new = scene()
    first = pull(rig, new, 2)
    commit(rig, old, 4)
    queues = (MessageQueue(TOPIC, "broker-a", 0),)
    rig.ask(old, RequestCode.UNLOCK_BATCH_MQ, body=LockBatchBody(GROUP, "c-old", queues))
    rig.advance(0)
    assert seen(rig.reply_to(new, first)) == (MOVED_ON, 4)


def test_a_steelyard_member_says_that_it_gives_a_queue_up() -> None:
    rig, old, new = scene()
    first = pull(rig, new, 2)
    commit(rig, old, 4, handedOffset=4)
    rig.advance(0)
    assert seen(rig.reply_to(new, first)) == (MOVED_ON, 4)


def test_nothing_is_undone_by_commits_of_what_the_newcomer_was_told() -> None:
    rig, old, new = scene()
    first = pull(rig, new, 2, sysFlag=SUSPEND | COMMIT, commitOffset=2)
    commit(rig, old, 4)
    commit(rig, new, 2)
    assert committed(rig, rig.connect()) == 4
    rig.advance(SETTLE_MS)
    assert seen(rig.reply_to(new, first)) == (MOVED_ON, 4)
    commit(rig, new, 2)  # an offset of its own will, from now on
    assert committed(rig, rig.connect()) == 2


@pytest.mark.parametrize("offset", [0, 8])
def test_an_operator_sets_the_offset(offset: int) -> None:
    rig, old, new = scene()
    first = pull(rig, new, 2, maxMsgNums=1)
    commit(rig, rig.connect(), offset)
    rig.advance(0)
    assert seen(rig.reply_to(new, first)) == [b"2"]
    assert committed(rig, old) == offset


def test_a_newcomer_with_a_new_expression_asks_again_and_waits_on() -> None:
    rig, old, new = scene()
    first = pull(rig, new, 2)
    rig.beat(new, "c-new", TOPIC, expression="red", version=2)
    assert seen(rig.reply_to(new, first)) == (MOVED_ON, 2)
    again = pull(rig, new, 2)
    assert rig.reply_to(new, again) is None
    commit(rig, old, 5)
    rig.advance(SETTLE_MS)
    assert seen(rig.reply_to(new, again)) == (MOVED_ON, 5)


def test_a_second_pull_takes_the_place_of_the_first() -> None:
    rig, old, new = scene()
    first, second = pull(rig, new, 2), pull(rig, new, 2)
    assert seen(rig.reply_to(new, first)) == (NOTHING, 2)
    commit(rig, old, 6)
    rig.advance(SETTLE_MS)
    assert seen(rig.reply_to(new, second)) == (MOVED_ON, 6)


def test_a_pull_elsewhere_ends_the_wait() -> None:
    rig, _, new = scene()
    first = pull(rig, new, 2, maxMsgNums=1)
    assert seen(rig.reply_to(new, pull(rig, new, 7, maxMsgNums=1))) == [b"7"]
    rig.advance(0)
    assert seen(rig.reply_to(new, first)) == [b"2"]


def test_the_pull_of_a_closed_link_is_forgotten() -> None:
    rig, old, new = scene()
    first = pull(rig, new, 2)
    rig.event(Closed(new, "killed"))
    commit(rig, old, 6)
    rig.advance(BOUND_MS)
    assert rig.reply_to(new, first) is None


def test_who_waits_may_be_too_many() -> None:
    """The new owner begins at once, as without a wait: a client that is told of no messages asks again at once, and again."""
    rig = Rig(BrokerConfig(hold_waiting_max=0, delayed_answers=True))
    old, new = rig.connect(), rig.connect()
    rig.send(old, b"0")
    for link, client in ((old, "a"), (new, "b")):
        rig.beat(link, client, TOPIC)
    rig.ask(old, PULL, pull_ext(0))
    assert committed(rig, new) == 0
    assert seen(rig.reply_to(new, pull(rig, new, 0))) == [b"0"]


def test_too_many_readers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handovers, "READERS_MAX", 1)
    rig, old, _ = scene()
    rig.send(old, queue_id=1)
    other = rig.connect()
    rig.beat(other, "c-other", TOPIC)
    rig.ask(old, PULL, pull_ext(0, queueId=1))
    assert committed(rig, other) == 2
    assert seen(rig.reply_to(other, pull(rig, other, 2, maxMsgNums=1))) == [b"2"]


def test_a_pull_that_may_not_wait_does_not() -> None:
    rig, _, new = scene()
    answer = rig.reply_to(new, pull(rig, new, 2, sysFlag=0, maxMsgNums=1))
    assert seen(answer) == [b"2"]


@pytest.mark.parametrize("why", ["off", "broadcasting", "committed", "reads itself", "no member"])
def test_nothing_waits_without_need(why: str) -> None:
    rig, old, new = scene(
        enabled=why != "off", model="BROADCASTING" if why == "broadcasting" else "CLUSTERING"
    )
    asker, at = new, 2
    if why == "committed":
        commit(rig, old, 6)
        at = committed(rig, new)
    elif why == "reads itself":
        asker, at = old, committed(rig, old)
    elif why == "no member":
        asker = rig.connect()
        at = committed(rig, asker)
    answer = rig.reply_to(asker, pull(rig, asker, at, maxMsgNums=1))
    assert seen(answer) == [b"%d" % at]
