"""Reads the cluster once for all viewers, and now and then while nobody watches.

Without viewers, all groups are read every IDLE_SECONDS, for the history of their lag and, where
there is no ledger, of their rebalances. With viewers the servers are read twice a second, the list
of groups every second, and each group that somebody watches several times a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress

import msgspec

from steelyard.driver.logs import logger
from steelyard.errors import (
    AuthenticationError,
    BrokerError,
    KafkaError,
    RemotingError,
    SteelyardError,
)
from steelyard.web.console.answers import ApiAnswer, GroupPicture
from steelyard.web.console.contract import GroupId
from steelyard.web.console.questions import GroupQuestion, NoQuestion
from steelyard.web.console.service import Console
from steelyard.web.console.viewers import Viewers

IDLE_SECONDS = 10.0
"""Interval of readings while nobody watches, and of samples of the lag."""

LISTS_SECONDS = 0.5
"""Interval of readings of the servers for viewers; that of groups is a second (`service`)."""

GROUP_SECONDS = 0.5
"""Interval of pictures of a group that somebody watches."""

REBALANCE_SECONDS = 0.25
"""The same during a rebalance."""

SHARE = 4
"""A picture that takes long is made less often: it may take a quarter of the time."""

HISTORY = 20
"""Latest rebalances of a watched group that are compared with those sent."""

HISTORY_SECONDS = 1.0
"""Interval of looks at the history of a watched group."""

TELL_SECONDS = 30.0
"""Interval of warnings that the cluster does not answer."""

_log = logger("steelyard.console")
_encoder = msgspec.json.Encoder()


class Watching:
    """`await run()` until it is cancelled; `viewers` are told what changes."""

    def __init__(self, console: Console) -> None:
        self.viewers = Viewers()
        self._console = console
        self._groups: dict[GroupId, asyncio.Task[None]] = {}
        self._told_at: float | None = None
        """When it was last said that the cluster does not answer; None while it does."""

    async def run(self) -> None:
        """Read the cluster. Errors are logged, and tried again."""
        sampled_at = -IDLE_SECONDS
        try:
            while True:
                began = time.monotonic()
                if began - sampled_at >= IDLE_SECONDS:
                    sampled_at = began
                    await self._quietly(self._console.sample())
                if len(self.viewers):
                    await self._quietly(self._lists())
                self._watch_groups()
                await self._pause(began)
        finally:
            for task in self._groups.values():
                task.cancel()

    async def _pause(self, began: float) -> None:
        """Wait for the next reading; not for long after a viewer has come."""
        self.viewers.came.clear()
        interval = LISTS_SECONDS if len(self.viewers) else IDLE_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.05, began + interval - time.monotonic())):
                await self.viewers.came.wait()

    async def _quietly(self, reading: Awaitable[None]) -> None:
        try:
            await reading
        except RemotingError as error:
            self._tell("the cluster does not answer", error)
        except (BrokerError, KafkaError, AuthenticationError) as error:
            self._tell("the cluster refuses to answer", error)
        except SteelyardError as error:
            _log.info("the cluster cannot be read: %s; trying again", error)
        else:
            if self._told_at is not None:
                self._told_at = None
                _log.warning("the cluster answers again")

    def _tell(self, what: str, error: SteelyardError) -> None:
        now = time.monotonic()
        if self._told_at is None or now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            _log.warning("%s: %s; trying again", what, error)

    async def _lists(self) -> None:
        cluster, groups = await asyncio.gather(
            self._console.cluster(NoQuestion()),
            self._console.groups(NoQuestion()),
            return_exceptions=True,
        )
        for event, answer in (("cluster", cluster), ("groups", groups)):
            if isinstance(answer, BaseException):
                raise answer
            self._publish(event, None, "", answer)

    def _publish(self, event: str, group: GroupId | None, part: str, answer: ApiAnswer) -> None:
        self.viewers.publish((event, group, part), _encoder.encode(answer))

    def _watch_groups(self) -> None:
        """Begin to watch the groups that viewers want, and end with those that none wants."""
        wanted = set(self.viewers.groups())
        for group in self._groups.keys() - wanted:
            self._groups.pop(group).cancel()
        for group in wanted:
            task = self._groups.get(group)
            if task is None or task.done():
                self._groups[group] = asyncio.create_task(self._watch(group))

    async def _watch(self, group: GroupId) -> None:
        question = GroupQuestion(dialect=group[0], group=group[1])
        looked_at = -HISTORY_SECONDS
        while True:
            began = time.monotonic()
            interval = GROUP_SECONDS
            try:
                picture = await self._console.group(question)
                self._publish("group", group, "", picture)
                if picture.rebalance is not None:
                    interval = REBALANCE_SECONDS
                if began - looked_at >= HISTORY_SECONDS:
                    looked_at = began
                    await self._history(picture)
            except SteelyardError as error:
                _log.info("group %s cannot be read: %s; trying again", group[1], error)
                interval = LISTS_SECONDS
            took = time.monotonic() - began
            await asyncio.sleep(max(interval, SHARE * took) - took)

    async def _history(self, picture: GroupPicture) -> None:
        group = (picture.dialect, picture.name)
        found = await self._console.history(picture, HISTORY)
        for rebalance in reversed(found.rebalances):
            self._publish("rebalance", group, rebalance.id, rebalance)
