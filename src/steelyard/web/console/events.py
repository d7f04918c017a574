"""Server-sent events: what changes, to each viewer, as fast as it takes it.

Source: HTML Standard, 9.2 Server-sent events.
"""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from steelyard.web.console.answers import Dialect
from steelyard.web.console.api import failed
from steelyard.web.console.contract import GroupId
from steelyard.web.console.questions import EventsQuestion
from steelyard.web.console.viewers import VIEWERS_MAX, Viewer, Viewers

QUIET_SECONDS = 15.0
"""Time without events after which a comment is sent, so that proxies keep the connection."""

SLOW_SECONDS = 30.0
"""Time for which a viewer may take nothing before it is disconnected."""

RETRY = b"retry: 2000\n\n"
"""How long browsers wait before they connect again, in ms."""


class EventStream:
    """Serves the events of a cluster."""

    def __init__(self, viewers: Viewers) -> None:
        self._viewers = viewers

    async def __call__(
        self, question: EventsQuestion, scope: Scope, receive: Receive, send: Send
    ) -> None:
        viewer = self._viewers.add(group_of(question.group))
        if viewer is None:
            text = f"{VIEWERS_MAX} viewers watch already; close some of the pages"
            await failed(503, text, {"retry-after": "10"})(scope, receive, send)
            return
        gone = asyncio.create_task(_disconnected(receive))
        sending = asyncio.create_task(_send(viewer, send))
        try:
            await asyncio.wait([gone, sending], return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            self._viewers.remove(viewer)
            for task in (gone, sending):
                task.cancel()
            await asyncio.wait([gone, sending])


def group_of(text: str | None) -> GroupId | None:
    """Return the group that a viewer wants, from `dialect/name`."""
    if text is None:
        return None
    dialect, _, name = text.partition("/")
    known: Dialect = "kafka" if dialect == "kafka" else "rocketmq"
    return known, name


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(viewer: Viewer, send: Send) -> None:
    headers = [
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    part = RETRY
    try:
        while not viewer.is_closed:
            async with asyncio.timeout(SLOW_SECONDS):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            found = await viewer.take(QUIET_SECONDS)
            part = b"".join(b"event: %b\ndata: %b\n\n" % (e.encode(), v) for e, v in found)
            part = part or b": still here\n\n"
    except TimeoutError:
        return  # too slow: the connection is closed
    await send({"type": "http.response.body", "body": b"", "more_body": False})
