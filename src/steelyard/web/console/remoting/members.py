"""What members of RocketMQ groups say of themselves: asked for pictures, and in rounds for lists.

A list has no time to ask every member of every group. It goes by the last answers instead, and
begins a round that asks a few groups again, for the lists after it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from steelyard.client.aio.admin import Admin
from steelyard.client.together import at_once
from steelyard.errors import SteelyardError
from steelyard.web.console.remoting.picture import SILENT_MS_MIN, protocol_of
from steelyard.wire.remoting.bodies import ConsumerConnection, ConsumerRunningInfo

GROUPS_MAX = 500
"""Most groups whose members' answers are remembered, and that are listed."""

MEMBERS_MAX = 200
"""Most members of a group that are asked what they hold."""

INFO_SECONDS = 1.5
"""Time that a member has to say what it holds; its broker would wait for ten seconds."""

ROUND_GROUPS = 20
"""Groups that one round asks, those first that have not been asked for longest."""

ROUND_GROUPS_AT_ONCE = 4

ASKED_AGAIN_SECONDS = 10.0
"""Age of a group's answers from which a round asks again; at once if a member did not answer."""

Connections = Callable[[str], Awaitable[ConsumerConnection | None]]
"""Returns the members of a group that its brokers see; None if there are none."""

Infos = dict[str, ConsumerRunningInfo | None]
"""What each member says of itself; None if it does not answer, or cannot say it."""


class _Asked:
    """A group that was asked. `silent`: from when until when members did not answer."""

    def __init__(self) -> None:
        self.at = -ASKED_AGAIN_SECONDS
        self.protocol: str | None = None
        self.silent: dict[str, tuple[float, float]] = {}


class Members:
    """Asks members, and remembers how they get messages and who has not answered for how long."""

    def __init__(self, admin: Admin, connections: Connections) -> None:
        self._admin = admin
        self._connections = connections
        self._groups: dict[str, _Asked] = {}
        self._round: asyncio.Task[list[None]] | None = None

    def protocol(self, group: str) -> str | None:
        """Return how the members of a group get messages; None if it is not known yet."""
        asked = self._groups.get(group)
        return None if asked is None else asked.protocol

    def silent_ms(self, group: str) -> Mapping[str, int]:
        """Return for how long members have not answered."""
        asked = self._groups.get(group)
        silent = {} if asked is None else asked.silent
        return {client_id: int((end - begin) * 1_000) for client_id, (begin, end) in silent.items()}

    def hangs(self, group: str) -> bool:
        """Return whether a member probably hangs, by the answers up to now."""
        return any(ms >= SILENT_MS_MIN for ms in self.silent_ms(group).values())

    async def ask(self, group: str, connection: ConsumerConnection | None) -> Infos:
        """Ask the members that a group's brokers see, `MEMBERS_MAX` at most."""
        asked = self._remembered(group)
        seen = () if connection is None else connection.connection_set
        members = sorted({each.client_id for each in seen})[:MEMBERS_MAX]
        for gone in asked.silent.keys() - set(members):
            asked.silent.pop(gone, None)
        found = await at_once(lambda client_id: self._info(group, client_id, asked), members)
        infos = dict(zip(members, found, strict=True))
        asked.at = time.monotonic()
        asked.protocol = None
        if connection is not None and members:
            asked.protocol = protocol_of(
                connection.consume_type, connection.message_model, infos.values()
            )
        return infos

    def begin_round(self, groups: Iterable[str]) -> None:
        """Begin to ask some of these groups, unless a round is under way."""
        if self._round is not None and not self._round.done():
            return
        now = time.monotonic()
        due = [group for group in groups if self._is_due(group, now)]
        due.sort(key=lambda group: self._remembered(group).at)
        if due:
            asking = at_once(self._ask_quietly, due[:ROUND_GROUPS], ROUND_GROUPS_AT_ONCE)
            self._round = asyncio.create_task(asking)

    def _is_due(self, group: str, now: float) -> bool:
        asked = self._remembered(group)
        return bool(asked.silent) or now - asked.at >= ASKED_AGAIN_SECONDS

    async def _ask_quietly(self, group: str) -> None:
        try:
            connection = await self._connections(group)
        except SteelyardError:
            self._remembered(group).at = time.monotonic()
            return
        await self.ask(group, connection)

    async def _info(self, group: str, client_id: str, asked: _Asked) -> ConsumerRunningInfo | None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(INFO_SECONDS):
                info = await self._admin.running_info(group, client_id)
        except TimeoutError:
            since, _ = asked.silent.get(client_id, (began, began))
            asked.silent[client_id] = since, time.monotonic()
            return None
        except SteelyardError:
            info = None
        asked.silent.pop(client_id, None)
        return info

    def _remembered(self, group: str) -> _Asked:
        asked = self._groups.setdefault(group, _Asked())
        while len(self._groups) > GROUPS_MAX:
            del self._groups[next(iter(self._groups))]
        return asked
