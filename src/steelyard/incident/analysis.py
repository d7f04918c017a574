"""What the rebalances of a Kafka group cost, from its generations, commits and broker logs.

Times
- A classic group's generation is recorded when its rebalance ends; that of a KIP-848 group when it
  begins, and then whenever a member gets its share. A rebalance of a member that died began with
  the last commit of its partitions, give or take a commit interval. Otherwise it began when the
  broker's log says so; without a log, at the earliest with the last commit before it.
- The **commit interval** of a partition is the median time between two commits with new offsets in
  the `USUAL_MS` before, else that of its group.
- **Pause** of a partition that moved: the old owner processed its last message between its last
  commit and an interval later, the new one its first between an interval before its first commit
  and that commit; neither on the other side of the move. The pause is the time between the middles
  of the two spans, and its error half their lengths together: at most one commit interval. It is
  unknown if the new owner lost the partition, or the group its coordinator, before it committed;
  another rebalance that left the partition where it was does not matter.
- A partition that kept its owner **stood still** if the longest time between two of its commits
  during the rebalance is `STALLED_TIMES` as long as nine of ten before. Its pause is that between
  the middles of the interval after the earlier and that before the later commit. The pause of an
  earlier move that lasted into the rebalance is counted with that move only.

Why it began
- Records say who is gone and who is new. Why a member is gone, the broker's log says; without
  one, how long its partitions had not been committed when the rebalance ended: about its session
  time-out (`left (expired)`), its `max.poll.interval.ms` (`left (poll timeout)`), or neither
  (`left (unregistered)`). That counts as `medium` if it committed regularly, else as `low`.
- A generation with the members of the one before, at most `ROUND_MS` after it, that only gives
  partitions to somebody which nobody had, is the second round of a cooperative rebalance, and
  belongs to it.
- A broker's log says when the group's coordinator was restarted or moved (`coordinator`). The group
  may go on without a rebalance; if not, one with the same members within `ROUND_MS` belongs to it.
  What was processed while nothing could be committed is committed afterwards: at the end from an
  interval before the group had a coordinator, which may be well before the first commit. So pauses
  are known to some four commit intervals there, and less well if the first commit took long.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from steelyard.incident.broker_log import COORDINATOR, UNLOADED, Evidence
from steelyard.incident.generations import Generation, GenerationMember, generations
from steelyard.incident.offsets_topic import CommitSeries, GroupHistory
from steelyard.incident.tables import (
    HIGH,
    LOW,
    MEDIUM,
    IncidentCosts,
    IncidentHandoff,
    IncidentRebalance,
    QueueHolding,
)
from steelyard.ledger.measures import percentile
from steelyard.ledger.tables import MOVED, STALLED
from steelyard.types import TopicPartition

ROUND_MS = 10_000
USUAL_MS = 120_000
"""How long before a rebalance commits show what is usual."""
USUAL_MAX = 60
"""Most commits of a partition that are looked at for that."""
REGULAR = 3
"""So many intervals between commits show what is usual for a partition."""
INTERVAL_MS = 5_000
"""The commit interval where there are too few commits: `auto.commit.interval.ms`."""
COMMITS_BACK = 1_000
"""So many commits before a rebalance are searched for the last one with a new offset."""
STALLED_TIMES = 3
"""More than two: one commit may be refused during a rebalance although its member works on."""
LOG_SLACK_MS = 500
"""So far from its record a line in the broker's log may be."""

LEFT, EXPIRED, POLL_TIMEOUT = "left (unregistered)", "left (expired)", "left (poll timeout)"
_FIRST = (EXPIRED, POLL_TIMEOUT, LEFT)
JOINED, STATIC, TOPICS, UNKNOWN = "joined", "static", "topics", "unknown"

WORDS = {
    JOINED: "{} joined",
    LEFT: "{} left",
    EXPIRED: "{} died: its session timed out",
    POLL_TIMEOUT: "{} left: its application did not poll for too long",
    STATIC: "{} came back under its instance id",
}


class _Span(msgspec.Struct):
    """A rebalance: the generation before it, and those that it led to."""

    before: Generation
    rounds: list[Generation]

    @property
    def after(self) -> Generation:
        return self.rounds[-1]


class _Stop(NamedTuple):
    """When a partition moved, or its rebalance ended, and how long it stood still, if known."""

    at: int
    last: int | None
    first: int | None
    pause: int | None = None
    error: int | None = None


class _Why(NamedTuple):
    trigger: str
    confidence: str
    reason: str
    silent: GenerationMember | None = None
    """Who died without a word."""


def costs(
    history: GroupHistory, topics: Mapping[bytes, str], evidence: Sequence[Evidence] = ()
) -> IncidentCosts:
    """Return the rows of one group.

    `topics`: names of topics by id; `evidence`: what brokers' logs say of the group, sorted by
    time.
    """
    known = generations(history, topics)
    found = IncidentCosts([], [], sorted(_holdings(known, history)))
    spans = _spans(_with_coordinators(known, evidence))
    orphans: set[TopicPartition] = set()
    paused: dict[TopicPartition, int] = {}
    for number, (span, ends) in enumerate(zip(spans, _ends(spans), strict=True)):
        until = spans[number + 1].rounds[0].at if number + 1 < len(spans) else None
        one = _Rebalance(history, span, until, ends, evidence, orphans, paused)
        moved = one.handoffs()
        found.handoffs.extend(moved)
        found.rebalances.append(one.row(moved))
        kept = span.after.owners.keys()
        orphans = (orphans | span.before.owners.keys()) - kept if span.after.members else set()
        for row in moved:
            if row.kind == MOVED and row.pause_ms is not None:
                paused[TopicPartition(row.topic, row.queue)] = row.moved_at
    return found


def _with_coordinators(
    known: Sequence[Generation], evidence: Sequence[Evidence]
) -> list[Generation]:
    """Add a copy of the generation that was there whenever the group got a coordinator."""
    found = list(known)
    times = [one.at for one in known]
    unloaded: int | None = None
    for one in evidence:
        number = bisect_right(times, one.at) - 1
        if one.trigger == UNLOADED:
            unloaded = one.at
        elif one.trigger == COORDINATOR and number >= 0:
            then = known[number]
            began = None if unloaded is None else max(unloaded, then.at)
            found.append(
                msgspec.structs.replace(
                    then, began=began, at=one.at, ended=one.at, has_new_coordinator=True
                )
            )
            unloaded = None
    return sorted(found, key=lambda one: one.at)


def _spans(found: Sequence[Generation]) -> list[_Span]:
    spans: list[_Span] = []
    first = [Generation(0, None, 0, 0, {})] if found and found[0].is_first else []
    for before, after in pairwise([*first, *found]):
        if spans and spans[-1].after is before and _continues(before, after):
            spans[-1].rounds.append(after)
        elif before.members or after.members:
            spans.append(_Span(before, [after]))
    return spans


def _continues(before: Generation, after: Generation) -> bool:
    """Return whether a generation is the next round of the rebalance that the one before is of."""
    is_near = after.at - before.at <= ROUND_MS and not after.has_new_coordinator
    if not is_near or before.members.keys() != after.members.keys():
        return False
    return before.has_new_coordinator or before.owners.items() < after.owners.items()


def _ends(spans: Sequence[_Span]) -> list[dict[TopicPartition, int | None]]:
    """Return, for each rebalance, until when commits are those of the owners that it led to.

    By partition that it moved: until that moved again, or the group got a coordinator.
    """
    found: list[dict[TopicPartition, int | None]] = []
    next_moves: dict[TopicPartition, int] = {}
    next_coordinator: int | None = None
    for span in reversed(spans):
        first, old, new = span.rounds[0], span.before.owners, span.after.owners
        moved = [place for place in old.keys() | new.keys() if old.get(place) != new.get(place)]
        found.append({place: next_moves.get(place, next_coordinator) for place in moved})
        if first.has_new_coordinator:
            next_moves, next_coordinator = {}, first.at
        next_moves.update(dict.fromkeys(moved, first.at))
    return found[::-1]


def _holdings(known: Sequence[Generation], history: GroupHistory) -> Iterator[QueueHolding]:
    """Yield who had which partition when, up to the last record or commit."""
    commits = [series.at[-1] for series in history.commits.values() if series.at]
    last = max([*commits, *(one.ended for one in known)], default=0)
    open_: dict[TopicPartition, QueueHolding] = {}
    for one in known:
        owners = one.owners
        for place, holding in list(open_.items()):
            client = name_of(one.members[owners[place]]) if place in owners else ""
            if client != holding.client:
                yield holding._replace(end=one.since(place) if client else one.at)
                del open_[place]
        for place, member_id in owners.items():
            if place not in open_:
                client, since = name_of(one.members[member_id]), one.since(place)
                open_[place] = QueueHolding(place.topic, "", place.partition, client, since, last)
    yield from open_.values()


class _Rebalance:
    """One rebalance, with what is known of it."""

    def __init__(
        self,
        history: GroupHistory,
        span: _Span,
        until: int | None,
        ends: Mapping[TopicPartition, int | None],
        evidence: Sequence[Evidence],
        orphans: Container[TopicPartition],
        paused: Mapping[TopicPartition, int],
    ) -> None:
        """`until`: when the next one was recorded; `ends`: see `_ends`.

        `orphans`: partitions that lost their owner in an earlier rebalance, since which the group
        has had members; `paused`: when partitions moved before, if the pause of that is known.
        """
        self._orphans = orphans
        self._ends = ends
        self._paused = paused
        self._history = history
        self._span = span
        self._until = until
        before, after = span.before, span.after
        self._gone = [one for key, one in before.members.items() if key not in after.members]
        self._new = [one for key, one in after.members.items() if key not in before.members]
        self._first = span.rounds[0]
        last = self._first.at if self._first.began is None else self._first.at + LOG_SLACK_MS
        self._evidence = [
            one
            for one in evidence
            if before.ended < one.at <= last and one.trigger not in (COORDINATOR, UNLOADED)
        ]
        self._interval = self._usual_interval()
        self._why = self._find_why()
        self._began, self._began_error = self._find_beginning()

    # -- commits ---------------------------------------------------------------------------------

    def _usual_interval(self) -> int:
        """Return the group's usual time between two commits of a partition."""
        gaps = [
            gap
            for series in self._history.commits.values()
            for gap in _gaps(series, self._first.at)
        ]
        return percentile(gaps, 0.5) if gaps else INTERVAL_MS

    def _last_commit(self, member: GenerationMember) -> int | None:
        """Return when a partition of the member was committed last, before the rebalance ended."""
        found = []
        for place in member.partitions:
            series = self._history.commits.get(place)
            if series is not None:
                count = bisect_right(series.at, self._first.at)
                if count and series.at[count - 1] >= self._span.before.at:
                    found.append(series.at[count - 1])
        return max(found, default=None)

    # -- why -------------------------------------------------------------------------------------

    def _find_why(self) -> _Why:
        """Return what began it: who died comes first, then who left, then who joined."""
        found = [self._why_gone(member) for member in sorted(self._gone, key=name_of)]
        found.sort(key=lambda why: _FIRST.index(why.trigger))
        instances = {member.instance_id for member in self._gone} - {None}
        for member in sorted(self._new, key=name_of):
            trigger = STATIC if member.instance_id in instances else JOINED
            why = _Why(trigger, HIGH, WORDS[trigger].format(name_of(member)))
            if trigger == STATIC:
                found = [why]  # the old id is gone because this one took its place
            else:
                found.append(why)
        if not found:
            found = [self._why_otherwise()]
        said = [one.text for one in self._evidence if one.text]
        reasons = dict.fromkeys([*(why.reason for why in found), *said])
        return found[0]._replace(reason="; ".join(reasons))

    def _why_gone(self, member: GenerationMember) -> _Why:
        told = next(
            (one for one in self._evidence if one.member == member.member_id and one.trigger), None
        )
        last = self._last_commit(member)
        silent = None if last is None else self._first.at - last
        regular = self._commits_regularly(member)
        trigger, confidence = LEFT, LOW
        if told is not None:
            trigger, confidence = told.trigger, HIGH
        elif silent is not None:
            trigger, confidence = self._trigger_of(member, silent), MEDIUM if regular else LOW
        is_open = regular and (told is None or not told.is_final)
        if is_open and silent is not None and self._stalled(member, silent):
            # It was in the group for longer than its application did anything: its library gave up.
            trigger, confidence = POLL_TIMEOUT, MEDIUM
        words = WORDS[trigger].format(name_of(member))
        if told is None and silent is not None:
            words += f" (silent for {silent / 1000:.1f} s)"
        return _Why(trigger, confidence, words, member if trigger == EXPIRED else None)

    def _trigger_of(self, member: GenerationMember, silent: int) -> str:
        """Return why a member is gone whose partitions were not committed for `silent` ms."""
        if self._stalled(member, silent):
            return POLL_TIMEOUT
        if member.session_ms is None:  # it may be any
            return EXPIRED if silent > max(3 * self._interval, 3_000) else LEFT
        return EXPIRED if silent >= max(member.session_ms - self._near, self._near) else LEFT

    def _stalled(self, member: GenerationMember, silent: int) -> bool:
        """Return whether it was silent for longer than its application may take between polls."""
        session = member.session_ms or 0
        return member.poll_ms > session and silent >= max(member.poll_ms - self._near, self._near)

    @property
    def _near(self) -> int:
        """Return how much shorter a silence may seem than it was: two commit intervals."""
        return 2 * self._interval

    def _commits_regularly(self, member: GenerationMember) -> bool:
        last = self._last_commit(member)
        return last is not None and any(
            len(_gaps(self._history.commits[place], last)) >= REGULAR
            for place in member.partitions
            if place in self._history.commits
        )

    def _why_otherwise(self) -> _Why:
        """Return why a rebalance began that nobody joined or left."""
        if self._first.has_new_coordinator:
            return _Why(COORDINATOR, HIGH, "its coordinator was restarted or moved")
        more = self._span.after.owners.keys() - self._span.before.owners.keys()
        if more:
            return _Why(TOPICS, MEDIUM, f"{len(more)} new partitions")
        return _Why(UNKNOWN, LOW, "nobody joined or left")

    # -- when ------------------------------------------------------------------------------------

    def _find_beginning(self) -> tuple[int, int]:
        """Return when it began, and how much earlier or later it may have been."""
        silent = self._why.silent
        last = None if silent is None else self._last_commit(silent)
        if last is not None:
            return last + self._interval // 2, -(-self._interval // 2)
        if self._first.began is not None:
            return self._first.began, 0
        told = next((one.at for one in self._evidence), None)
        if told is not None:
            return told, 0
        earliest = max(
            (
                series.at[count - 1]
                for series in self._history.commits.values()
                if (count := bisect_right(series.at, self._first.at))
            ),
            default=self._first.at,
        )
        earliest = max(earliest, self._span.before.at)
        half = (self._first.at - earliest) // 2
        return earliest + half, half

    @property
    def _known(self) -> int | None:
        """Return when the coordinator knew, None if nothing says so."""
        if self._first.began is not None:
            return self._first.began
        return next((one.at for one in self._evidence), None)

    # -- rows ------------------------------------------------------------------------------------

    def row(self, moved: Sequence[IncidentHandoff]) -> IncidentRebalance:
        known, after = self._known, self._span.after
        worst = max(
            ((one.pause_ms, one.pause_error_ms) for one in moved if one.pause_ms is not None),
            default=(None, None),
        )
        return IncidentRebalance(
            group=self._history.group,
            rebalance=self._name,
            generation=after.number,
            started_at=self._began,
            started_error_ms=self._began_error,
            reason=self._why.reason,
            trigger=self._why.trigger,
            confidence=self._why.confidence,
            members_before=_names(self._span.before.members.values()),
            members_after=_names(after.members.values()),
            detect_ms=None if known is None else max(0, known - self._began),
            rebalance_ms=None if known is None else max(0, after.ended - known),
            queues_moved=sum(one.kind == MOVED for one in moved),
            queues_stalled=sum(one.kind == STALLED for one in moved),
            pause_max_ms=worst[0],
            pause_error_ms=worst[1],
        )

    def handoffs(self) -> list[IncidentHandoff]:
        """Return a row for each partition that moved or stood still."""
        old, new = self._span.before.owners, self._span.after.owners
        places = sorted(old.keys() | new.keys())
        rows = (self._handoff(place, old.get(place), new.get(place)) for place in places)
        return [row for row in rows if row is not None]

    def _handoff(
        self, place: TopicPartition, old: str | None, new: str | None
    ) -> IncidentHandoff | None:
        before, after = self._span.before, self._span.after
        found = self._stall(place, after.ended) if old == new else self._move(place, old, new)
        if found is None:
            return None
        return IncidentHandoff(
            group=self._history.group,
            topic=place.topic,
            broker="",
            queue=place.partition,
            kind=STALLED if old == new else MOVED,
            from_client="" if old is None else name_of(before.members[old]),
            to_client="" if new is None else name_of(after.members[new]),
            moved_at=found.at,
            last_commit_ms=found.last,
            first_commit_ms=found.first,
            pause_ms=found.pause,
            pause_error_ms=found.error,
            rebalance=self._name,
        )

    def _move(self, place: TopicPartition, old: str | None, new: str | None) -> _Stop:
        moved_at = next((one.since(place) for one in self._span.rounds if _has(one, place, new)), 0)
        moved_at = moved_at or self._span.after.at
        last, first = self._commits_around(place, moved_at)
        was_read = old is not None or place in self._orphans
        if not was_read or new is None or last is None or first is None:
            return _Stop(moved_at, last, first)
        interval = self._interval_of(place, last)
        ended = (last, max(last, min(last + interval, moved_at)))
        began = (min(first, max(first - interval, moved_at)), first)
        return _stopped(moved_at, last, first, ended, began)

    def _stall(self, place: TopicPartition, ended: int) -> _Stop | None:
        """Return how long a partition stood still that did not move; None if it did not."""
        series = self._history.commits.get(place)
        since = self._began - self._began_error
        usual = [] if series is None else _gaps(series, since)
        if series is None or len(usual) < REGULAR:
            return None
        start = max(0, bisect_right(series.at, since) - USUAL_MAX)
        end = min(len(series.at), bisect_right(series.at, ended) + USUAL_MAX)
        times = _advances(series, start, end)
        came = self._paused.get(place, -1)
        gap, number = max(
            (
                (times[number] - times[number - 1], number)
                for number in range(1, len(times))
                if times[number] > since and came < times[number - 1] < ended
            ),
            default=(0, 0),
        )
        if gap < STALLED_TIMES * percentile(usual, 0.9):
            return None
        last, first = times[number - 1], times[number]
        if self._until is not None and first > self._until:
            return None  # it is the next one's
        before = after = self._interval_of(place, last)
        back = goes_on = first
        if self._first.has_new_coordinator:
            # Nothing could be committed: the first commit may be of what was processed before.
            if number + 1 == len(times):
                return _Stop(ended, last, first)
            before, goes_on = 2 * before, times[number + 1]
            back = min(first, self._first.at)
        spans = (last, min(last + before, first)), (max(back - after, last), goes_on)
        return _stopped(ended, last, first, *spans)

    def _interval_of(self, place: TopicPartition, until: int) -> int:
        """Return the usual time between two commits of a partition."""
        gaps = _gaps(self._history.commits[place], until)
        return percentile(gaps, 0.5) if len(gaps) >= REGULAR else self._interval

    def _commits_around(
        self, place: TopicPartition, moved_at: int
    ) -> tuple[int | None, int | None]:
        """Return when new offsets were committed last before, and first after, it moved."""
        series = self._history.commits.get(place)
        if series is None:
            return None, None
        middle = bisect_right(series.at, moved_at)
        earlier = _advances(series, max(0, middle - COMMITS_BACK), middle)
        last = earlier[-1] if earlier else None
        offset = series.offsets[middle - 1] if middle else -1
        until = self._ends[place]
        for number in range(middle, len(series.at)):
            if until is not None and series.at[number] > until:
                break
            if series.offsets[number] > offset:
                return last, series.at[number]
        return last, None

    @property
    def _name(self) -> str:
        return f"{self._history.group}/{self._began}"


def _stopped(
    at: int, last: int, first: int, ended: tuple[int, int], began: tuple[int, int]
) -> _Stop:
    """Return the pause between two commits.

    `ended`, `began`: from when to when its last message before and its first after were processed.
    """
    pause = (sum(began) - sum(ended)) // 2
    error = -(-(ended[1] - ended[0] + began[1] - began[0]) // 2)
    return _Stop(at, last, first, max(0, pause), error)


def name_of(member: GenerationMember) -> str:
    """Return a name that people recognise: the member id, with the client id if that lacks it."""
    if member.member_id.startswith(member.client_id):
        return member.member_id
    return f"{member.client_id}-{member.member_id}"


def _names(members: Iterable[GenerationMember]) -> tuple[str, ...]:
    return tuple(sorted(map(name_of, members)))


def _has(one: Generation, place: TopicPartition, member_id: str | None) -> bool:
    member = one.members.get(member_id or "")
    return member is not None and place in member.partitions


def _gaps(series: CommitSeries, until: int) -> list[int]:
    """Return the times between commits with new offsets in the USUAL_MS before `until`."""
    end = bisect_right(series.at, until)
    start = max(bisect_right(series.at, until - USUAL_MS), end - USUAL_MAX)
    times = _advances(series, start, end)
    return [later - earlier for earlier, later in pairwise(times) if later > earlier]


def _advances(series: CommitSeries, start: int, end: int) -> array[int]:
    """Return when new offsets were committed, among the commits from `start` to `end`."""
    times: array[int] = array("q")
    newest = series.offsets[start - 1] if start else -1
    for number in range(start, end):
        if series.offsets[number] > newest:
            times.append(series.at[number])
            newest = series.offsets[number]
    return times
