"""Lock requests that wait for the unlock: when, how long, and when not."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import GROUP, Rig
from tests.nodes.broker.driver import TOPIC

from steelyard.config import BrokerConfig
from steelyard.groups.remoting.registry import V5_0_0
from steelyard.nodes.broker.remoting.notifications import JOINED_MS, LATER_MS
from steelyard.nodes.broker.remoting.waiting_locks import (
    PERIOD_MS,
    REFUSED_MS,
    SLOT_MS,
    WAIT_MS,
    WAITS_MS,
)
from steelyard.nodes.seam import Closed
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import LockBatchBody, LockBatchResponseBody
from steelyard.wire.remoting.codes import RequestCode

LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
Q0, Q1 = MessageQueue(TOPIC, "broker-a", 0), MessageQueue(TOPIC, "broker-a", 1)


def post(rig: Rig, link: int, client: str, *queues: MessageQueue, group: str = GROUP) -> int:
    return rig.post(link, LOCK, body=LockBatchBody(group, client, queues))


def held(rig: Rig, link: int, opaque: int) -> tuple[MessageQueue, ...] | None:
    """The queues of an answer, None without one."""
    answer = rig.reply_to(link, opaque)
    if answer is None:
        return None
    return fastjson.read(LockBatchResponseBody, answer.body).lock_ok_mq_set


def unlock(rig: Rig, link: int, client: str, *queues: MessageQueue, group: str = GROUP) -> None:
    rig.ask(link, UNLOCK, body=LockBatchBody(group, client, queues))


JAVA_5 = ("JAVA", V5_0_0)


def scene(*, enabled: bool = True, client: tuple[str, int] = JAVA_5) -> tuple[Rig, int, int]:
    """Two members; the first has locked two queues."""
    rig = Rig(BrokerConfig(delayed_answers=enabled))
    a, b = rig.connect(), rig.connect()
    rig.beat(a, "a", TOPIC, client=client)
    rig.beat(b, "b", TOPIC, client=client)
    rig.advance(JOINED_MS)
    rig.notified()
    assert held(rig, a, post(rig, a, "a", Q0, Q1)) == (Q0, Q1)
    return rig, a, b


def test_the_lock_is_had_when_the_owner_unlocks() -> None:
    rig, a, b = scene()
    asked = post(rig, b, "b", Q0)
    rig.advance(300)
    unlock(rig, a, "a", Q1)
    assert held(rig, b, asked) is None
    unlock(rig, a, "a", Q0)
    assert held(rig, b, asked) == (Q0,)
    assert held(rig, a, post(rig, a, "a", Q0, Q1)) == (Q1,)


def test_the_lock_is_had_when_the_owner_unregisters() -> None:
    rig, a, b = scene()
    asked = post(rig, b, "b", Q0)
    rig.ask(a, RequestCode.UNREGISTER_CLIENT, {"clientID": "a", "consumerGroup": GROUP})
    assert held(rig, b, asked) == (Q0,)


def test_a_client_that_unregisters_meanwhile_gets_no_lock() -> None:
    """It would never unlock what it does not know of, and nobody could read the queue for a minute."""
    rig, a, b = scene()
    asked = post(rig, b, "b", Q0)
    rig.ask(b, RequestCode.UNREGISTER_CLIENT, {"clientID": "b", "consumerGroup": GROUP})
    unlock(rig, a, "a", Q0)
    assert held(rig, a, post(rig, a, "a", Q0)) == (Q0,)
    rig.advance(WAIT_MS + SLOT_MS)
    assert held(rig, b, asked) == ()


def test_the_first_of_those_that_wait_gets_it() -> None:
    rig, a, b = scene()
    c = rig.connect()
    rig.beat(c, "c", TOPIC, client=JAVA_5)
    first, second = post(rig, b, "b", Q0), post(rig, c, "c", Q0)
    unlock(rig, a, "a", Q0)
    assert (held(rig, b, first), held(rig, c, second)) == ((Q0,), None)
    rig.advance(WAIT_MS + SLOT_MS)
    assert held(rig, c, second) == ()


def test_after_a_wait_in_vain_nothing_waits_for_a_client_for_a_while() -> None:
    rig, _, b = scene()
    began = rig.now
    asked = post(rig, b, "b", Q0)
    rig.advance(WAIT_MS + SLOT_MS)
    assert held(rig, b, asked) == ()
    assert held(rig, b, post(rig, b, "b", Q1)) == ()
    rig.advance(began + PERIOD_MS - rig.now)
    assert held(rig, b, post(rig, b, "b", Q0)) is None


def test_all_waits_of_a_client_have_a_bound() -> None:
    rig, a, b = scene()
    began = rig.now
    waited = 0
    while held(rig, b, asked := post(rig, b, "b", Q0)) is None:
        rig.advance(WAIT_MS - 100)
        unlock(rig, a, "a", Q0)
        assert held(rig, b, asked) == (Q0,)
        unlock(rig, b, "b", Q0)
        assert held(rig, a, post(rig, a, "a", Q0)) == (Q0,)
        waited += 1
    assert (waited - 1) * (WAIT_MS - 100) < WAITS_MS <= rig.now - began


@pytest.mark.parametrize("client", [("JAVA", V5_0_0 - 1), ("GO", V5_0_0), ("CPP", 409)])
def test_who_was_refused_is_notified_when_the_queue_is_free(client: tuple[str, int]) -> None:
    """It does not wait: it rebalances as often as it is notified."""
    rig, a, b = scene(client=client)
    assert held(rig, b, post(rig, b, "b", Q0)) == ()
    assert held(rig, b, post(rig, b, "b", Q1)) == ()
    rig.advance(20_000)
    assert held(rig, a, post(rig, a, "a", Q0, Q1)) == (Q0, Q1)
    rig.notified()
    unlock(rig, a, "a", Q0)
    rig.advance(LATER_MS // 2)
    unlock(rig, a, "a", Q1)
    assert rig.notified() == []
    rig.advance(LATER_MS)
    assert rig.notified() == [(b, GROUP)]
    assert held(rig, b, post(rig, b, "b", Q0)) == (Q0,)


@pytest.mark.parametrize("client", [("JAVA", V5_0_0 - 1), ("GO", V5_0_0), ("CPP", 409)])
def test_who_was_refused_is_notified_when_the_lock_of_a_killed_member_expires(
    client: tuple[str, int],
) -> None:
    """It looks again every 20 s by itself: the queues would stand still for up to that time more."""
    rig, a, b = scene(client=client)
    locked_at = rig.now
    rig.advance(15_000)
    rig.event(Closed(a, "killed"))
    rig.notified()
    for _ in range(2):
        assert held(rig, b, post(rig, b, "b", Q0)) == ()
        rig.advance(20_000)
    expires_at = locked_at + BrokerConfig().lock_expiry_ms
    rig.advance(expires_at - rig.now)
    assert rig.notified() == []
    rig.advance(1)
    assert rig.notified() == [(b, GROUP)]
    assert held(rig, b, post(rig, b, "b", Q0)) == (Q0,)


def test_a_client_that_looks_again_by_itself_is_not_notified_of_that_either() -> None:
    rig, a, b = scene()
    rig.event(Closed(a, "killed"))
    rig.notified()
    assert held(rig, b, post(rig, b, "b", Q0)) == ()
    rig.advance(BrokerConfig().lock_expiry_ms + 1)
    assert rig.notified() == []
    assert held(rig, b, post(rig, b, "b", Q0)) == (Q0,)


def test_a_client_that_looks_again_by_itself_is_not_notified() -> None:
    """It would let a second pass after each notification."""
    rig, a, b = scene()
    post(rig, b, "b", Q0)
    rig.advance(WAIT_MS + SLOT_MS)
    rig.notified()
    unlock(rig, a, "a", Q0, Q1)
    rig.advance(LATER_MS)
    assert rig.notified() == []


def test_an_old_refusal_is_forgotten_and_so_is_that_of_a_client_that_has_gone() -> None:
    rig, a, b = scene(client=("GO", 1))
    assert held(rig, b, post(rig, b, "b", Q0)) == ()
    rig.advance(REFUSED_MS)
    rig.beat(a, "a", TOPIC)
    rig.beat(b, "b", TOPIC)
    assert held(rig, a, post(rig, a, "a", Q1, Q0)) == (Q1, Q0)
    unlock(rig, a, "a", Q0)
    rig.advance(LATER_MS)
    assert rig.notified() == []
    assert held(rig, b, post(rig, b, "b", Q1)) == ()
    unlock(rig, a, "a", Q1)
    rig.event(Closed(b, "killed"))
    rig.notified()
    rig.advance(LATER_MS)
    assert rig.notified() == []


def test_another_groups_lock_is_not_waited_for() -> None:
    rig, a, b = scene()
    asked = post(rig, b, "b", Q0)
    assert held(rig, b, post(rig, b, "b", Q0, group="other")) == (Q0,)
    unlock(rig, b, "b", Q0, group="other")
    assert held(rig, b, asked) is None
    unlock(rig, a, "a", Q0)
    assert held(rig, b, asked) == (Q0,)


def test_a_closed_link_waits_no_more() -> None:
    rig, a, b = scene()
    asked = post(rig, b, "b", Q0)
    rig.event(Closed(b, "killed"))
    unlock(rig, a, "a", Q0)
    rig.advance(WAIT_MS + SLOT_MS)
    assert held(rig, b, asked) is None
    assert held(rig, a, post(rig, a, "a", Q0)) == (Q0,)


@pytest.mark.parametrize("why", ["off", "many", "owner gone", "no member"])
def test_nothing_waits_without_need(why: str) -> None:
    rig, a, b = scene(enabled=why != "off")
    queues = (Q0, Q1) if why == "many" else (Q0,)
    link = rig.connect() if why == "no member" else b
    if why == "owner gone":
        rig.event(Closed(a, "killed"))
    assert held(rig, link, post(rig, link, "b", *queues)) == ()
