"""Those who watch: for each viewer the newest value of every event that it has not got yet.

Values are whole, so that a newer one replaces an older one that was not sent: what waits for a
viewer is never more than one value of each event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from steelyard.web.console.contract import GroupId

VIEWERS_MAX = 50
"""Most viewers at a time."""

WAITING_MAX = 500
"""Most events that wait for a viewer; beyond it, it is disconnected."""

PARTS_MAX = 50
"""Most parts of an event, such as rebalances of a group, that whoever comes later gets."""

Subject = tuple[str, GroupId | None]
"""The name of an event, and its group; None for all groups and the cluster."""

Key = tuple[str, GroupId | None, str]
"""The same with what of the group it is of, such as a rebalance."""


class Viewer:
    """One viewer. `group`: the group that it watches, if any."""

    def __init__(self, group: GroupId | None) -> None:
        self.group = group
        self.is_closed = False
        self._waiting: dict[Key, bytes] = {}
        self._wake = asyncio.Event()

    def put(self, key: Key, value: bytes) -> None:
        """Add a value, which replaces an older one that was not sent."""
        self._waiting.pop(key, None)
        self._waiting[key] = value
        if len(self._waiting) > WAITING_MAX:
            self.is_closed = True
        self._wake.set()

    def close(self) -> None:
        """End its stream."""
        self.is_closed = True
        self._wake.set()

    async def take(self, seconds: float) -> list[tuple[str, bytes]]:
        """Return the events that wait, in order; none if there are none in that time."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return []
        self._wake.clear()
        found = [(event, value) for (event, _, _), value in self._waiting.items()]
        self._waiting.clear()
        return found


class Viewers:
    """All viewers, and the last value of each event."""

    def __init__(self) -> None:
        self._viewers: set[Viewer] = set()
        self._last: dict[Subject, dict[str, bytes]] = {}
        """By event and group, and what of the group it is of."""
        self.came = asyncio.Event()
        """Set when a viewer comes."""

    def __len__(self) -> int:
        return len(self._viewers)

    def add(self, group: GroupId | None) -> Viewer | None:
        """Return a new viewer, who gets what others have got last; None if there are too many."""
        if len(self._viewers) >= VIEWERS_MAX:
            return None
        viewer = Viewer(group)
        self._viewers.add(viewer)
        for (event, of_group), parts in self._last.items():
            for part, value in parts.items() if of_group in (None, group) else ():
                viewer.put((event, of_group, part), value)
        self.came.set()
        return viewer

    def remove(self, viewer: Viewer) -> None:
        """Forget a viewer, and what nobody watches any more."""
        self._viewers.discard(viewer)
        watched = {None, *self.groups()} if self._viewers else set()
        self._last = {key: parts for key, parts in self._last.items() if key[1] in watched}

    def groups(self) -> Iterator[GroupId]:
        """Yield the groups that somebody watches."""
        yield from {viewer.group for viewer in self._viewers if viewer.group is not None}

    def publish(self, key: Key, value: bytes) -> None:
        """Send a value to those who watch, if it is another one than before."""
        event, group, part = key
        parts = self._last.setdefault((event, group), {})
        if parts.get(part) == value:
            return
        parts.pop(part, None)
        parts[part] = value
        while len(parts) > PARTS_MAX:
            del parts[next(iter(parts))]
        for viewer in self._viewers:
            if group in (None, viewer.group):
                viewer.put(key, value)

    def close(self) -> None:
        """End all streams."""
        for viewer in self._viewers:
            viewer.close()
