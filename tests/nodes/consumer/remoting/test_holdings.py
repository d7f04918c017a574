"""The life of a holding, in a node."""

from __future__ import annotations

from tests.edges import assert_every_edge
from tests.nodes.consumer.remoting import test_handover, test_hooks, test_node, test_polled
from tests.nodes.consumer.remoting.conftest import Group, queues

from steelyard.groups.remoting.ownership import HOLDINGS
from steelyard.nodes.consumer.remoting.node import Stop
from steelyard.wire.remoting.codes import RequestCode

A0, B0 = queues("T", "a", 0) + queues("T", "b", 0)


def the_route_is_lost_while_the_lock_is_waited_for() -> None:
    """An ordered consumer does not do without the lock of a broker that is not there."""
    group = Group(1, orderly=True)
    group.b.occupy("c2", B0)
    rig = group.start()
    group.ns.add("T", group.a, queues=1)
    rig.advance(31_000)
    assert group.state().held == (A0,)


def the_route_is_lost_while_the_offset_is_asked_for() -> None:
    group = Group(1)
    group.b.script[RequestCode.QUERY_CONSUMER_OFFSET] = lambda command: None
    rig = group.start()
    group.ns.add("T", group.a, queues=1)
    rig.advance(31_000)
    assert group.state().held == (A0,)


def a_stop_ends_while_the_last_commit_is_not_answered() -> None:
    group = test_handover.ready(stop_timeout_ms=500)
    group.b.script[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda command: None
    group.rig.publish(group.b, "T", 0, 1)
    stop = group.rig.ask(Stop())
    group.rig.handle_all()
    group.rig.advance(499)
    assert stop not in group.rig.answers
    group.rig.advance(1)
    assert group.rig.answers[stop] is None


def test_every_edge_of_a_holding_is_taken() -> None:
    assert_every_edge(
        HOLDINGS,
        test_node.test_stop_does_not_wait_for_ever,
        test_polled.test_a_seek_is_committed_like_a_poll,
        test_polled.test_a_queue_can_be_sought_as_soon_as_it_is_assigned,
        test_hooks.test_the_application_is_told_one_thing_at_a_time,
        test_handover.test_a_queue_that_must_be_taken_anew_is_not_drained,
        test_handover.test_a_queue_given_up_while_it_waits_for_the_lock_is_gone,
        test_handover.test_a_queue_given_up_while_its_offset_is_asked_for_is_unlocked_and_not_committed,
        test_handover.test_a_queue_whose_broker_has_left_the_routes_is_gone_at_once,
        the_route_is_lost_while_the_lock_is_waited_for,
        the_route_is_lost_while_the_offset_is_asked_for,
        a_stop_ends_while_the_last_commit_is_not_answered,
    )
