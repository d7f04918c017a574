"""Members of groups that join and go again and again, such as a process that crashes in a loop.

Each time the whole group rebalances. A process has another member id after each start, so members
are recognised by a name that survives it: `Flapping` counts, for each name in each group, how often
a member went within a minute of joining (a flap). From the third time in half an hour the name
flaps: the broker tells people, and may damp it, that is, delay its return. The delay doubles with
each flap, up to a setting.

Who flaps is known by name only: processes that share one are counted together. What was counted is
kept in memory, and forgotten when the broker restarts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

SHORT_LIFE_MS = 60_000
"""A member that goes earlier than this after it has joined has flapped."""

PERIOD_MS = 1_800_000
"""Time for which a flap counts."""

FLAPS_MIN = 3
"""Flaps in that time from which a name flaps."""

FLAPS_MAX = 100
"""Most flaps of a name that are counted."""

DELAY_MS_MIN = 1_000
"""The delay of a name with FLAPS_MIN flaps; each further one doubles it."""

TELL_MS = 60_000
"""Least time between two warnings about a name."""

NAMES_MAX = 10_000
"""Most names with flaps; beyond it, the one that flapped longest ago is forgotten."""

MEMBERS_MAX = 200_000
"""Most members whose joining is known; beyond it, the one that joined first is forgotten."""


class MemberLife(msgspec.Struct, frozen=True):
    """A member since it joined."""

    name: str
    joined_at: int


class Flaps(msgspec.Struct):
    """When members of a name flapped, oldest first."""

    times: deque[int]
    told_at: int | None = None

    def count(self, now: int) -> int:
        """Return how many of them count, and forget the others."""
        while self.times and self.times[0] <= now - PERIOD_MS:
            self.times.popleft()
        return len(self.times)


class Flapper(msgspec.Struct, frozen=True):
    """A name that flaps, with its number of flaps in the last half an hour."""

    name: str
    flaps: int
    last_at: int


class Flapping:
    """The flaps of all groups of a broker, of one dialect."""

    def __init__(self) -> None:
        self._lives: dict[tuple[str, str], MemberLife] = {}
        """By group and member, in the order in which they joined."""
        self._flaps: dict[str, dict[str, Flaps]] = {}
        """By group and name."""
        self._order: dict[tuple[str, str], None] = {}
        """Groups and names, in the order in which they last flapped."""

    # -- what happens ----------------------------------------------------------------------------

    def joined(self, group: str, member: str, name: str, now: int) -> int:
        """Note that a member joined; return how often its name has flapped."""
        self._lives.pop((group, member), None)
        self._lives[group, member] = MemberLife(name, now)
        if len(self._lives) > MEMBERS_MAX:
            del self._lives[next(iter(self._lives))]
        return self.count(group, name, now)

    def left(self, group: str, member: str, seen_at: int, now: int, *, disturbs: bool) -> None:
        """Note that a member went. `seen_at`: when it was last heard of.

        `disturbs`: the group rebalances, otherwise it is no flap.
        """
        life = self._lives.pop((group, member), None)
        if life is None or not disturbs or seen_at - life.joined_at >= SHORT_LIFE_MS:
            return
        of_group = self._flaps.setdefault(group, {})
        flaps = of_group.setdefault(life.name, Flaps(deque(maxlen=FLAPS_MAX)))
        flaps.times.append(now)
        self._order.pop((group, life.name), None)
        self._order[group, life.name] = None
        self._forget_old(now)

    def _forget_old(self, now: int) -> None:
        for group, name in list(self._order):
            is_old = not self._flaps[group][name].count(now)
            if not is_old and len(self._order) <= NAMES_MAX:
                break
            del self._order[group, name], self._flaps[group][name]
            if not self._flaps[group]:
                del self._flaps[group]

    # -- what is known ---------------------------------------------------------------------------

    def count(self, group: str, name: str, now: int) -> int:
        """Return how often a name has flapped in the last half an hour."""
        flaps = self._flaps.get(group, {}).get(name)
        return 0 if flaps is None else flaps.count(now)

    def delay_ms(self, group: str, name: str, most_ms: int, now: int) -> int:
        """Return for how long the return of a name is delayed, up to `most_ms`; 0: not at all."""
        count = self.count(group, name, now)
        if count < FLAPS_MIN:
            return 0
        return min(DELAY_MS_MIN << min(count - FLAPS_MIN, 30), most_ms)

    def of_group(self, group: str, now: int) -> list[Flapper]:
        """Return the names that flap, sorted."""
        return list(self._flapping(group, now))

    def _flapping(self, group: str, now: int) -> Iterator[Flapper]:
        for name, flaps in sorted(self._flaps.get(group, {}).items()):
            count = flaps.count(now)
            if count >= FLAPS_MIN:
                yield Flapper(name, count, flaps.times[-1])

    def warning(self, group: str, name: str, now: int, subject: str = "") -> str | None:
        """Return what to tell people now that a name has joined; None for nothing.

        `subject`: what people know it by; default: its name.
        """
        flaps = self._flaps.get(group, {}).get(name)
        if flaps is None or flaps.count(now) < FLAPS_MIN:
            return None
        if flaps.told_at is not None and 0 <= now - flaps.told_at < TELL_MS:
            return None
        flaps.told_at = now
        return (
            f"group {group}: {subject or name} has joined and gone {len(flaps.times)} times in the"
            " last half an hour, each time within a minute, and the group rebalances each time: see"
            " why that client ends"
        )

    def check(self) -> None:
        """Assert the limits, and that all views agree."""
        assert len(self._lives) <= MEMBERS_MAX
        assert len(self._order) <= NAMES_MAX
        places = {(group, name) for group, names in self._flaps.items() for name in names}
        assert places == self._order.keys()
        assert all(self._flaps.values())
