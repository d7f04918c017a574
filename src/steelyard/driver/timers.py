"""The timers of a node, by key, on an asyncio loop."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Hashable

from steelyard.nodes.seam import DropTimer, SetTimer


class NodeTimers:
    """Times are those of `clock`, in ms; `due` gets the key of a timer that fires."""

    def __init__(
        self, loop: AbstractEventLoop, clock: Callable[[], int], due: Callable[[Hashable], None]
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._due = due
        self._armed: dict[Hashable, tuple[int, TimerHandle]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._armed

    def set(self, effect: SetTimer, now: int) -> None:
        """Apply the effect: the timer fires at the time, not at the one set before."""
        armed = self._armed.get(effect.key)
        if armed is not None:
            if armed[0] <= effect.at:
                # The handle fires too early and is then rearmed: cheaper than a cancel per change.
                self._armed[effect.key] = (effect.at, armed[1])
                return
            armed[1].cancel()
        self.arm(effect.key, effect.at, now)

    def arm(self, key: Hashable, at: int, now: int) -> None:
        """Set a timer that is not set."""
        delay_seconds = max(0, at - now) / 1000
        handle = self._loop.call_later(delay_seconds, self._fire, key)
        self._armed[key] = (at, handle)

    def drop(self, effect: DropTimer, now: int) -> None:
        """Apply the effect: the timer does not fire."""
        armed = self._armed.pop(effect.key, None)
        if armed is not None:
            armed[1].cancel()

    def stop(self) -> None:
        """Let none fire any more."""
        for _, handle in self._armed.values():
            handle.cancel()
        self._armed.clear()

    def _fire(self, key: Hashable) -> None:
        at, _ = self._armed[key]
        now = self._clock()
        if now < at:
            self.arm(key, at, now)
            return
        del self._armed[key]
        self._due(key)
