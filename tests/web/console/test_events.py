"""Those who watch: what they get, and how many there may be."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message
from tests.web.console.asking import Events, ask, with_query
from tests.web.console.conftest import Consoles

from steelyard.web.console import events, viewers
from steelyard.web.console.contract import GroupId
from steelyard.web.console.questions import EventsQuestion
from steelyard.web.console.viewers import Viewers

GROUP: GroupId = ("kafka", "g")


def test_whoever_comes_gets_everything_and_later_only_what_changes() -> None:
    async def story() -> None:
        everybody = Viewers()
        first = everybody.add(None)
        assert first is not None
        everybody.publish(("groups", None, ""), b"1")
        everybody.publish(("group", GROUP, ""), b"x")  # of a group that it does not watch
        assert await first.take(5) == [("groups", b"1")]
        second = everybody.add(GROUP)
        assert second is not None
        assert await second.take(5) == [("groups", b"1"), ("group", b"x")]
        everybody.publish(("groups", None, ""), b"1")
        assert await first.take(0.01) == []
        everybody.publish(("groups", None, ""), b"2")
        everybody.publish(("groups", None, ""), b"3")  # before the viewer took the other
        assert await first.take(5) == [("groups", b"3")]
        assert set(everybody.groups()) == {GROUP}
        everybody.remove(second)
        assert set(everybody.groups()) == set()
        third = everybody.add(GROUP)
        assert third is not None
        assert await third.take(5) == [("groups", b"3")]  # the group's value was forgotten

    asyncio.run(story())


def test_a_viewer_that_takes_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewers, "WAITING_MAX", 3)

    async def story() -> None:
        everybody = Viewers()
        slow = everybody.add(GROUP)
        assert slow is not None
        for number in range(3):
            everybody.publish(("rebalance", GROUP, str(number)), b"1")
        assert not slow.is_closed
        everybody.publish(("rebalance", GROUP, "4"), b"1")
        assert slow.is_closed

    asyncio.run(story())


def test_a_connection_that_takes_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SLOW_SECONDS", 0.05)
    sent: list[str] = []

    async def send(message: Message) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()  # the peer's buffer is full for ever

    async def receive() -> Message:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def story() -> None:
        everybody = Viewers()
        stream = events.EventStream(everybody)
        await stream(EventsQuestion(), {"type": "http"}, receive, send)
        assert len(everybody) == 0

    asyncio.run(story())
    assert sent == ["http.response.start", "http.response.body"]


def test_only_the_latest_rebalances_are_kept_for_whoever_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(viewers, "PARTS_MAX", 2)

    async def story() -> None:
        everybody = Viewers()
        assert everybody.add(GROUP) is not None
        for number in range(4):
            everybody.publish(("rebalance", GROUP, str(number)), b"%d" % number)
        late = everybody.add(GROUP)
        assert late is not None
        assert await late.take(5) == [("rebalance", b"2"), ("rebalance", b"3")]

    asyncio.run(story())


def test_there_is_room_for_so_many(consoles: Consoles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewers, "VIEWERS_MAX", 2)
    with Events(consoles.http) as one, Events(consoles.http, "kafka/nobody") as two:
        assert one.response.status == two.response.status == 200
        assert one.response.headers["content-type"] == "text/event-stream"
        assert next(iter(two))[0] in ("cluster", "groups")
        full = ask(consoles.http, "events")
        assert full.status == 503
        assert full.headers["retry-after"]
        assert json.loads(full.text)["error"]


def test_a_new_viewer_is_told_of_servers_and_groups(consoles: Consoles) -> None:
    with Events(consoles.http) as stream:
        seen: dict[str, Any] = dict(next_of(stream, 2))
    assert seen.keys() == {"cluster", "groups"}
    assert seen["cluster"]["kind"] == "steelyard"
    assert [broker["name"] for broker in seen["cluster"]["brokers"]] == ["broker-0", "broker-1"]
    assert seen["groups"]["left_out"] == 0


def next_of(stream: Events, kinds: int) -> list[tuple[str, dict[str, object]]]:
    """Events until there is one of so many kinds."""
    found: list[tuple[str, dict[str, object]]] = []
    for event in stream:
        found.append(event)
        if len({name for name, _ in found}) == kinds:
            break
    return found


@pytest.mark.parametrize("group", ["mqtt/g", "g", ""])
def test_wrong_groups(consoles: Consoles, group: str) -> None:
    found = ask(consoles.http, with_query("events", {"group": group}))
    assert found.status == 400
    assert found.body["error"].startswith("group is ")
