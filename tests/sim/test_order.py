"""The rules of ordered consumption: each is kept by a good history and broken by a bad one."""

from collections.abc import Callable
from random import Random

import pytest

from steelyard.config import BrokerConfig
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.seam import Opened, Received
from steelyard.sim.clock import EPOCH
from steelyard.sim.disk import SimDisk
from steelyard.sim.order import DRAIN_MS, LIFE_MS, TRUST_MS, Notary, OrderChecker
from steelyard.sim.world import Violation
from steelyard.store.store import Store
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import LockBatchBody
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command

Q = MessageQueue("T", "broker-a", 0)


def order(*, planned: bool = False) -> OrderChecker:
    """Two members; m0 has the lock of Q and consumed offsets 0 and 1."""
    seen = OrderChecker(planned=planned)
    seen.joined("m0", "id0", lambda: True)
    seen.joined("m1", "id1", lambda: True)
    seen.broker_started("broker-a")
    seen.granted(Q, "id0", 100)
    seen.acquired(Q, "m0")
    seen.handed(Q, "m0", (0, 1), 110)
    seen.done(Q, "m0", succeeded=True)
    return seen


@pytest.mark.parametrize("planned", [False, True])
def test_a_clean_hand_over_is_fine(planned: bool) -> None:
    seen = order(planned=planned)
    seen.handed(Q, "m0", (2, 4), 120)
    seen.done(Q, "m0", succeeded=False)
    seen.granted(Q, "id0", 20_000)
    seen.handed(Q, "m0", (2, 4), 20_000 + TRUST_MS)
    seen.done(Q, "m0", succeeded=True)
    seen.let_go(Q, "id0", 60_000)
    seen.granted(Q, "id1", 60_001)
    seen.acquired(Q, "m1")
    seen.handed(Q, "m1", (5,), 60_002)


def _lapse(seen: OrderChecker) -> int:
    return 100 + LIFE_MS


def _forget(seen: OrderChecker) -> int:
    seen.broker_started("broker-a")
    return 300


def _let_go(seen: OrderChecker) -> int:
    seen.let_go(Q, "id0", 200 + DRAIN_MS)
    return 201 + DRAIN_MS


def _leave(seen: OrderChecker) -> int:
    seen.left("broker-a", "id0", 200 + DRAIN_MS)
    return 201 + DRAIN_MS


@pytest.mark.parametrize("end", [_lapse, _forget, _let_go, _leave])
def test_locks_that_end_under_a_listener_let_the_next_begin_with_the_same(
    end: Callable[[OrderChecker], int],
) -> None:
    """`end` returns when the lock is free."""
    seen = order()
    seen.handed(Q, "m0", (2,), 200)
    free_at = end(seen)
    seen.granted(Q, "id1", free_at)
    seen.acquired(Q, "m1")
    seen.handed(Q, "m1", (0,), free_at)
    seen.done(Q, "m0", succeeded=True)


def test_what_a_broker_forgot_is_believed_in_for_a_while() -> None:
    seen = order()
    seen.broker_started("broker-a")
    seen.granted(Q, "id1", 200)
    seen.handed(Q, "m0", (2,), 100 + TRUST_MS)
    seen.done(Q, "m0", succeeded=True)
    with pytest.raises(Violation, match="its lock was granted"):
        seen.handed(Q, "m0", (3,), 100 + TRUST_MS + 100)


def test_the_listener_of_the_dead_does_nothing() -> None:
    seen = order(planned=True)
    alive = True
    seen.joined("m2", "id0", lambda: alive)
    seen.handed(Q, "m2", (2,), 200)
    alive = False
    seen.let_go(Q, "id0", 201)
    seen.granted(Q, "id1", 202)
    seen.handed(Q, "m1", (2,), 203)


def _beside(seen: OrderChecker) -> None:
    """After a broker's death two believe in their locks."""
    seen.handed(Q, "m0", (2,), 200)
    seen.broker_started("broker-a")
    seen.granted(Q, "id1", 300)
    seen.handed(Q, "m1", (2,), 301)


def _over_again(seen: OrderChecker) -> None:
    seen.acquired(Q, "m0")
    seen.handed(Q, "m0", (1,), 200)


def _while_at_work(seen: OrderChecker) -> None:
    seen.handed(Q, "m0", (2,), 200)
    seen.acquired(Q, "m0")
    seen.handed(Q, "m0", (2,), 201)


def _hand_after_letting_go(seen: OrderChecker) -> None:
    seen.let_go(Q, "id0", 150)
    seen.handed(Q, "m0", (2,), 200)


def _skip_the_suspended(seen: OrderChecker) -> None:
    seen.handed(Q, "m0", (2,), 200)
    seen.done(Q, "m0", succeeded=False)
    seen.handed(Q, "m0", (3,), 201)


def _let_go_at_work(seen: OrderChecker) -> None:
    seen.handed(Q, "m0", (2,), 200)
    seen.let_go(Q, "id0", 200 + DRAIN_MS - 100)


BAD: dict[str, tuple[Callable[[OrderChecker], object], bool, str]] = {
    "two locks": (
        lambda seen: seen.granted(Q, "id1", 100 + LIFE_MS - 100),
        False,
        "is locked for id1, 59900 ms after it was for id0",
    ),
    "no lock": (lambda seen: seen.handed(Q, "m1", (2,), 200), False, "without its lock: .*id0"),
    "let go": (_hand_after_letting_go, False, "without its lock"),
    "old lock": (
        lambda seen: seen.handed(Q, "m0", (2,), 200 + TRUST_MS),
        False,
        "its lock was granted 30100 ms ago",
    ),
    "again": (lambda seen: seen.handed(Q, "m0", (1,), 200), False, "hands 1 .* again, 1 succeeded"),
    "two batches": (_while_at_work, False, "its listener has"),
    "suspended": (_skip_the_suspended, False, r"but \(2,\) was suspended"),
    "unlocked at work": (_let_go_at_work, False, "lets the lock of .* since 4900 ms"),
    "beside another": (_beside, True, "while .*m0.* is at work"),
    "over again": (_over_again, True, "1 succeeded elsewhere"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_found(name: str) -> None:
    break_rule, planned, text = BAD[name]
    with pytest.raises(Violation, match=text):
        break_rule(order(planned=planned))


@pytest.mark.parametrize("name", [name for name in BAD if BAD[name][1]])
def test_what_faults_may_bring_is_a_violation_in_planned_changes_only(name: str) -> None:
    BAD[name][0](order())


def test_the_notary_writes_down_what_the_broker_does() -> None:
    seen = OrderChecker(planned=False)
    seen.joined("m0", "id0", lambda: True)
    config = BrokerConfig(name="broker-a", address="10.0.0.1:1", nameservers=())
    store = Store(SimDisk(Random(1)).remount(), config.store)
    store.open(EPOCH)
    notary = Notary(BrokerNode(config, store, Random(1)), "broker-a", seen, lambda: EPOCH)
    notary.start(EPOCH)
    notary.handle(Opened(1, "10.0.0.2:2", dialed=False), EPOCH)

    def ask(code: RequestCode, client_id: str) -> None:
        body = fastjson.write(LockBatchBody("group", client_id, (Q,)))
        notary.handle(Received(1, Command(code, 7, body=body)), EPOCH)

    def may_consume() -> bool:
        try:
            seen._under_lock(Q, "m0", EPOCH)
        except Violation:
            return False
        return True

    ask(RequestCode.LOCK_BATCH_MQ, "id1")
    ask(RequestCode.LOCK_BATCH_MQ, "id0")
    assert not may_consume()
    ask(RequestCode.UNLOCK_BATCH_MQ, "id1")
    ask(RequestCode.LOCK_BATCH_MQ, "id0")
    assert may_consume()
    ask(RequestCode.UNLOCK_BATCH_MQ, "id0")
    assert not may_consume()
    ask(RequestCode.LOCK_BATCH_MQ, "id0")
    assert may_consume()
    header = headers.UnregisterClientRequestHeader(client_id="id0", consumer_group="group")
    goodbye = Command(RequestCode.UNREGISTER_CLIENT, 8, ext=headers.write(header))
    notary.handle(Received(1, goodbye), EPOCH)
