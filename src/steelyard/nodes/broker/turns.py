"""Turns: work that takes too long for one event is done in slices, between other requests.

How much work a request needs is not always known beforehand: a batch of 2 KB may hold a million
records, and a condition may match none of them. So a handler begins with an `Effort`; if that is
not enough, a job waits here for turns of SLICE each, one every INTERVAL_MS. Effort is counted, not
measured: the same requests take the same turns, whatever the clock says.

A job keeps its turn until it is done; then comes the next link that has jobs. (If jobs alternated,
two that unpack large batches would evict each other's from memory and never end.) The request of a
job waits as long as the job takes; when a link closes, its jobs are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from steelyard.nodes.seam import Effect, Hang, Link, SetTimer

TURNS_TIMER = "turns"

SLICE = 4_000
"""The effort of one turn, in about microseconds of an ordinary core."""
AT_ONCE = 500
"""The effort that a request may take before it has to wait for a turn."""
INTERVAL_MS = 1

LINK_MAX = 1_000
"""Maximum jobs of one link: a consumer sends a pull for each of its queues at once."""
WAITING_MAX = 20_000
"""Maximum jobs in total."""
LINK_BYTES_MAX = 128 * 1024 * 1024
"""Maximum bytes of one link's waiting requests: one of Kafka's largest size, and some more."""
BYTES_MAX = 256 * 1024 * 1024
"""Maximum bytes of waiting requests in total."""

Turn = Callable[[int, list[Effect]], bool]
"""A function of (now, effects to add to) that does about SLICE of work.

It returns whether the job is done. If it raises, that is a bug and ends the job.
"""

T = TypeVar("T")
Steps = Generator[None, Any, T]
"""Work in steps of about SLICE, each of which ends with a `yield`; it returns its result.

Anything may have changed after a step. In turns, a `yield` returns (now, effects to add to) of the
next step, for work that writes.
"""


class Turns:
    """The jobs that wait for their turns; see the module docstring."""

    def __init__(self) -> None:
        self._links: dict[Link, deque[tuple[Turn, int]]] = {}
        """Jobs and the sizes of their requests, in the order of their turns."""
        self._count = 0
        self._held: dict[Link, int] = {}
        """Bytes of waiting requests, by link."""
        self._bytes = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self, link: Link, turn: Turn, now: int, effects: list[Effect], request_bytes: int = 0
    ) -> bool:
        """Have a job wait for its turn; return False if too many wait.

        `request_bytes`: the size of its request, if that may be large; it counts until the job is
        done.
        """
        jobs = self._links.get(link)
        if self._count >= WAITING_MAX or (jobs is not None and len(jobs) >= LINK_MAX):
            return False
        if request_bytes and not self.hold(link, request_bytes):
            return False
        if jobs is None:
            jobs = self._links[link] = deque()
        jobs.append((turn, request_bytes))
        self._count += 1
        if self._count == 1:
            effects.append(SetTimer(TURNS_TIMER, now + INTERVAL_MS))
        return True

    def run(
        self,
        link: Link,
        steps: Steps[T],
        then: Callable[[T, int, list[Effect]], None],
        now: int,
        effects: list[Effect],
        request_bytes: int = 0,
        *,
        at_once: bool = True,
    ) -> bool:
        """Take the first step now, if `at_once`, and the others in turns; `then` gets the result.

        Return False if it has to wait and too many jobs do; `request_bytes`: as in `add`.
        """
        is_begun = False

        def turn(now: int, effects: list[Effect]) -> bool:
            nonlocal is_begun
            try:
                steps.send((now, effects) if is_begun else None)
                is_begun = True
            except StopIteration as end:
                then(end.value, now, effects)
                return True
            return False

        if at_once and turn(now, effects):
            return True
        return self.add(link, turn, now, effects, request_bytes)

    def hold(self, link: Link, request_bytes: int) -> bool:
        """Count a waiting request until `let_go` or `closed`; return False if too much waits."""
        held = self._held.get(link, 0) + request_bytes
        if held > LINK_BYTES_MAX or self._bytes + request_bytes > BYTES_MAX:
            return False
        self._held[link] = held
        self._bytes += request_bytes
        return True

    def let_go(self, link: Link, request_bytes: int) -> None:
        """Stop counting a request that waits no longer."""
        self._bytes -= request_bytes
        self._held[link] -= request_bytes
        if not self._held[link]:
            del self._held[link]

    def due(self, now: int, effects: list[Effect]) -> None:
        """Do one slice of the job whose turn it is."""
        link = next(iter(self._links), None)
        if link is None:
            return
        jobs = self._links[link]
        turn, request_bytes = jobs[0]
        is_done = True
        try:
            is_done = turn(now, effects)
        except Exception:
            effects.append(Hang(link, "an internal error"))
            raise
        finally:
            if is_done:
                jobs.popleft()
                self._count -= 1
                if request_bytes:
                    self.let_go(link, request_bytes)
                del self._links[link]
                if jobs:
                    self._links[link] = jobs
            if self._count:
                effects.append(SetTimer(TURNS_TIMER, now + INTERVAL_MS))

    def closed(self, link: Link) -> None:
        """Drop the jobs and the waiting requests of a closed link."""
        self._count -= len(self._links.pop(link, ()))
        self._bytes -= self._held.pop(link, 0)

    def check(self) -> None:
        assert self._count == sum(map(len, self._links.values())) <= WAITING_MAX
        assert all(0 < len(jobs) <= LINK_MAX for jobs in self._links.values())
        assert self._bytes == sum(self._held.values()) <= BYTES_MAX
        assert all(0 < held <= LINK_BYTES_MAX for held in self._held.values())


def finish(steps: Steps[T]) -> T:
    """Do all steps now and return the result, for work that is little or cannot wait."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
