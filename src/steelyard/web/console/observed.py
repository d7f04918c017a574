"""What pictures of a group tell when they are compared: rebalances, and who joined and went.

Apache's clusters have no ledger, and their coordinators neither tell why a group rebalances nor
since when. Whoever looks at it again and again sees who was there before and afterwards, and which
queues have another owner. Pauses and repetitions cannot be seen in this way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec.structs import replace

from steelyard.groups.flapping import PERIOD_MS, Flapping
from steelyard.web.console.answers import (
    FlappingView,
    GroupPicture,
    HandoffView,
    RebalanceNow,
    RebalanceView,
)
from steelyard.web.console.contract import GroupId
from steelyard.web.console.words import UNKNOWN, in_seconds

GROUPS_MAX = 1_000
"""Most groups that are remembered; those that were looked at last."""

REBALANCES_MAX = 200
"""Most rebalances of a group that are kept."""

STALE_MS = 20_000
"""Age from which a picture tells nothing of now. All that are taken regularly are newer."""


class _Seen:
    """What is remembered of a group."""

    def __init__(self, now: int) -> None:
        self.looked_at = now
        self.members: dict[str, str] | None = None
        """Of the last picture outside of a rebalance, their names by id; None before the first."""
        self.owners: dict[str, str] = {}
        """The same of its queues."""
        self.generation: int | None = None
        self.began_at: int | None = None
        self.rebalances: deque[RebalanceView] = deque(maxlen=REBALANCES_MAX)

    def rebalances_at(self, now: int) -> bool:
        """Return whether the last picture was of a rebalance, and is not too old to count."""
        return self.began_at is not None and now - self.looked_at < STALE_MS


class Observer:
    """Compares the pictures of groups."""

    def __init__(self, since: int) -> None:
        self.since = since
        """When it began to look."""
        self._groups: dict[GroupId, _Seen] = {}
        self._flapping = Flapping()

    def look(self, picture: GroupPicture, now: int) -> GroupPicture:
        """Take a picture; return it, with what was seen before if it is one of a rebalance."""
        group = (picture.dialect, picture.name)
        seen = self._groups.pop(group, None) or _Seen(now)
        self._groups[group] = seen
        while len(self._groups) > GROUPS_MAX:
            del self._groups[next(iter(self._groups))]
        self._count(group, seen, picture, now)
        if picture.rebalance is not None:
            if not seen.rebalances_at(now):
                seen.began_at = now
            completed = self._completed(seen, picture, picture.rebalance, now)
            seen.looked_at = now
            return completed
        ended = self._ended(seen, picture, now)
        if ended is not None:
            seen.rebalances.append(ended)
        seen.members = _names(picture)
        seen.owners = _owners(picture)
        seen.generation = picture.generation
        seen.began_at = None
        seen.looked_at = now
        return picture

    def _count(self, group: GroupId, seen: _Seen, picture: GroupPicture, now: int) -> None:
        """Count who joined and went since the last picture outside of a rebalance."""
        if picture.rebalance is not None or seen.members is None:
            return
        key, members = "/".join(group), _names(picture)
        for member in sorted(seen.members.keys() - members.keys()):
            self._flapping.left(key, member, now, now, disturbs=True)
        for member in sorted(members.keys() - seen.members.keys()):
            self._flapping.joined(key, member, members[member], now)

    def _completed(
        self, seen: _Seen, picture: GroupPicture, rebalance: RebalanceNow, now: int
    ) -> GroupPicture:
        """Return the picture of a rebalance with what its servers did not tell."""
        if rebalance.trigger != UNKNOWN:
            return picture
        assert seen.began_at is not None
        trigger, reason = _reason(seen.members, _names(picture), [])
        since = min(rebalance.since, seen.began_at)
        text = f"Rebalancing for {in_seconds(now - since)}"
        text += f" ({reason}). " if trigger != UNKNOWN else ". "
        queues = picture.queues
        if not any(queue.owner for queue in queues):
            # Apache's coordinators tell no assignments in the middle of a rebalance.
            queues = [replace(one, owner=seen.owners.get(one.key)) for one in queues]
        return replace(
            picture,
            queues=queues,
            rebalance=replace(
                rebalance, since=since, trigger=trigger, reason=reason, text=text + rebalance.text
            ),
        )

    def _ended(self, seen: _Seen, picture: GroupPicture, now: int) -> RebalanceView | None:
        """Return the rebalance that happened since the last picture outside of one, if any did."""
        if seen.members is None:
            return None
        members, owners = _names(picture), _owners(picture)
        moved = [
            key
            for key in sorted(seen.owners.keys() | owners.keys())
            if seen.owners.get(key) != owners.get(key)
        ]
        if members.keys() == seen.members.keys() and not moved and seen.began_at is None:
            return None
        at = seen.began_at if seen.began_at is not None else seen.looked_at
        ended_at = now if seen.rebalances_at(now) else None
        trigger, reason = _reason(seen.members, members, moved)
        return RebalanceView(
            id=f"{picture.name}/{at}",
            at=at,
            noticed_at=None,
            ended_at=ended_at,
            trigger=trigger,
            reason=reason,
            members_before=sorted(seen.members),
            members_after=sorted(members),
            moved=len(moved),
            pause_ms=None,
            pause_p50_ms=None,
            stalled_ms=None,
            reprocessed=None,
            reprocessed_upper=None,
            spike=None,
            took_ms=None if ended_at is None else ended_at - at,
            handoffs=[
                HandoffView(
                    queue=key,
                    from_=seen.owners.get(key),
                    to=owners.get(key),
                    pause_ms=None,
                    reprocessed=None,
                    reprocessed_upper=None,
                )
                for key in moved
            ],
            confidence="observed",
        )

    # -- what was seen -----------------------------------------------------------------------------

    def last_at(self, group: GroupId) -> int | None:
        """Return when the last rebalance of a group began; None if none was seen."""
        seen = self._groups.get(group)
        return seen.rebalances[-1].at if seen is not None and seen.rebalances else None

    def is_rebalancing(self, group: GroupId, now: int) -> bool:
        """Return whether a group was seen to rebalance just now."""
        seen = self._groups.get(group)
        return seen is not None and seen.rebalances_at(now)

    def rebalances(self, group: GroupId, limit: int) -> list[RebalanceView]:
        """Return the latest rebalances of a group that were seen, the latest first."""
        seen = self._groups.get(group)
        return [] if seen is None else [*reversed(seen.rebalances)][:limit]

    def flapping(self, group: GroupId, now: int) -> list[FlappingView]:
        """Return the members of a group that were seen to flap."""
        return [
            FlappingView(member=one.name, joins=one.flaps, window_ms=PERIOD_MS)
            for one in self._flapping.of_group("/".join(group), now)
        ]


def _names(picture: GroupPicture) -> dict[str, str]:
    return {one.id: f"{one.client_id} {one.host}" for one in picture.members}


def _owners(picture: GroupPicture) -> dict[str, str]:
    return {queue.key: queue.owner for queue in picture.queues if queue.owner is not None}


def _reason(
    before: dict[str, str] | None, after: dict[str, str], moved: Iterable[str]
) -> tuple[str, str]:
    """Return a trigger and a reason from who was there before and afterwards."""
    if before is None:
        return UNKNOWN, "unknown"
    joined = sorted(after.keys() - before.keys())
    left = sorted(before.keys() - after.keys())
    parts = [f"{', '.join(joined)} joined"] if joined else []
    parts += [f"{', '.join(left)} left"] if left else []
    if parts:
        return ("joined" if joined else "left"), "; ".join(parts)
    if any(moved):
        return UNKNOWN, "queues have other owners, and the same members are there"
    return UNKNOWN, "unknown; the same members are there"
