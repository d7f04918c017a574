"""Notifications of changes: at once, or later where a group has clients that pace themselves."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import GROUP, Rig
from tests.nodes.broker.driver import TOPIC

from steelyard.config import BrokerConfig
from steelyard.groups.remoting.registry import V5_0_0
from steelyard.nodes.broker.remoting.notifications import JOINED_MS, LATER_MS
from steelyard.nodes.seam import Closed
from steelyard.wire.remoting.codes import RequestCode

JAVA_5 = ("JAVA", V5_0_0)


def scene(*clients: tuple[str, int], enabled: bool = True) -> tuple[Rig, list[int]]:
    """Members a, b, ... that have been notified of each other."""
    rig = Rig(BrokerConfig(delayed_answers=enabled))
    links = []
    for name, client in zip("abcd", clients, strict=False):
        links.append(rig.connect())
        rig.beat(links[-1], name, TOPIC, client=client)
    rig.advance(JOINED_MS)
    rig.notified()
    return rig, links


def leave(rig: Rig, link: int, client: str) -> None:
    header = {"clientID": client, "consumerGroup": GROUP}
    rig.ask(link, RequestCode.UNREGISTER_CLIENT, header)


def test_members_that_join_or_leave_together_are_one_notification() -> None:
    rig, (a, b, c) = scene(JAVA_5, JAVA_5, JAVA_5)
    d = rig.connect()
    rig.beat(d, "d", TOPIC, client=("GO", 317))
    rig.advance(LATER_MS // 2)
    leave(rig, c, "c")
    rig.advance(LATER_MS // 2 - 1)
    assert rig.notified() == []
    rig.advance(1)
    assert rig.notified() == [(a, GROUP), (b, GROUP), (d, GROUP)]
    rig.advance(LATER_MS)
    assert rig.notified() == []


def test_a_member_that_will_pull_late_is_told_of_late() -> None:
    rig, (a,) = scene(JAVA_5)
    b = rig.connect()
    rig.beat(b, "b", TOPIC, client=JAVA_5)
    rig.advance(JOINED_MS - 1)
    assert rig.notified() == []
    rig.advance(1)
    assert rig.notified() == [(a, GROUP), (b, GROUP)]


def test_a_member_that_leaves_meanwhile_does_not_wait_for_it() -> None:
    rig, (a, b) = scene(JAVA_5, JAVA_5)
    c = rig.connect()
    rig.beat(c, "c", TOPIC, client=JAVA_5)
    leave(rig, b, "b")
    rig.advance(LATER_MS)
    assert rig.notified() == [(a, GROUP), (c, GROUP)]


def test_one_client_that_paces_itself_is_enough() -> None:
    rig, (a, b) = scene(("GO", 317), JAVA_5)
    c = rig.connect()
    rig.beat(c, "c", TOPIC, client=("GO", 317))
    assert rig.notified() == []
    rig.advance(LATER_MS)
    assert rig.notified() == [(a, GROUP), (b, GROUP), (c, GROUP)]


def test_a_killed_member_is_told_of_at_once() -> None:
    """Its connections close at all brokers at the same time."""
    rig, (a, b) = scene(JAVA_5, JAVA_5)
    rig.event(Closed(b, "killed"))
    assert rig.notified() == [(a, GROUP)]


@pytest.mark.parametrize("why", ["no such client", "off"])
def test_others_are_told_at_once(why: str) -> None:
    client = ("JAVA", V5_0_0 - 1) if why == "no such client" else JAVA_5
    rig, (a, b, c) = scene(client, ("PYTHON", 409), ("GO", 500), enabled=why != "off")
    leave(rig, c, "c")
    assert rig.notified() == [(a, GROUP), (b, GROUP)]
    rig.advance(LATER_MS)
    assert rig.notified() == []


def test_who_goes_meanwhile_is_not_notified() -> None:
    rig, (a, b) = scene(JAVA_5, JAVA_5)
    rig.beat(c := rig.connect(), "c", TOPIC, client=JAVA_5)
    rig.event(Closed(c, "killed"))
    assert rig.notified() == [(a, GROUP), (b, GROUP)]
    leave(rig, b, "b")
    rig.advance(LATER_MS)
    assert rig.notified() == [(a, GROUP)]
