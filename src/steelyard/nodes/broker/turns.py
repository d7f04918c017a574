"""Work that takes too long for one event: a slice of it at a time, and between two slices everybody else is served.

What a request needs is not always known beforehand: a batch of 2 KB may hold a million records, a condition may match
none of them. So a handler begins with an `Effort`, and what it cannot do with it waits here for its turns, SLICE each, one
every INTERVAL_MS. Efforts are counted, not measured: the same requests take the same turns, whatever the clock says.

A job keeps its turn until it is done; then it is the turn of the next link that has jobs. (Were jobs to alternate, two that
unpack large batches would throw each other's out of memory and never end.) The request of a job waits as long as that takes;
a link that is closed takes its jobs with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from steelyard.nodes.seam import Effect, Hang, Link, SetTimer

TURNS_TIMER = "turns"

SLICE = 4_000
"""The effort of one turn, about microseconds of an ordinary core."""
AT_ONCE = 500
"""The effort that a request may take before it has to wait for a turn."""
INTERVAL_MS = 1

LINK_MAX = 1_000
"""Most jobs of one link: a consumer asks for each of its queues at once."""
WAITING_MAX = 20_000
"""Most jobs in all."""
LINK_BYTES_MAX = 128 * 1024 * 1024
"""Most bytes of the requests of one link that wait: a request of Kafka's largest size, and some more."""
BYTES_MAX = 256 * 1024 * 1024
"""Most bytes of requests that wait, in all."""

Turn = Callable[[int, list[Effect]], bool]
"""(now, effects to add to) -> is the job done? Does about SLICE of work. What it raises is a bug, and ends the job."""

T = TypeVar("T")
Steps = Generator[None, Any, T]
"""Work that ends a step, of about SLICE, with each `yield`, and returns its result. It may find the world changed after one.

In turns a `yield` gives (now, effects to add to) of the next step, for work that writes.
"""


class Effort:
    """What may still be done in one go. `left` may fall below zero, by as much as what cannot be divided takes."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class Turns:
    """See the module's text."""

    def __init__(self) -> None:
        self._links: dict[Link, deque[tuple[Turn, int]]] = {}
        """Jobs and the sizes of their requests, in the order of their turns."""
        self._count = 0
        self._held: dict[Link, int] = {}
        """Bytes of requests that wait, by link."""
        self._bytes = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self, link: Link, turn: Turn, now: int, effects: list[Effect], request_bytes: int = 0
    ) -> bool:
        """Let a job wait for its turn; False where too many wait.

        `request_bytes`: the size of its request, where that may be large; it counts until the job is done.
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
        """Take the first step at once, if it may be, and the others in turns; `then` gets the result. Else as `add`."""
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
        """Count a request that waits, until `let_go` or `closed`; False where that is too much memory."""
        held = self._held.get(link, 0) + request_bytes
        if held > LINK_BYTES_MAX or self._bytes + request_bytes > BYTES_MAX:
            return False
        self._held[link] = held
        self._bytes += request_bytes
        return True

    def let_go(self, link: Link, request_bytes: int) -> None:
        """A request that was counted waits no longer."""
        self._bytes -= request_bytes
        self._held[link] -= request_bytes
        if not self._held[link]:
            del self._held[link]

    def due(self, now: int, effects: list[Effect]) -> None:
        """One slice of the job whose turn it is."""
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
        """Nobody waits for these any more."""
        self._count -= len(self._links.pop(link, ()))
        self._bytes -= self._held.pop(link, 0)

    def check(self) -> None:
        assert self._count == sum(map(len, self._links.values())) <= WAITING_MAX
        assert all(0 < len(jobs) <= LINK_MAX for jobs in self._links.values())
        assert self._bytes == sum(self._held.values()) <= BYTES_MAX
        assert all(0 < held <= LINK_BYTES_MAX for held in self._held.values())


def finish(steps: Steps[T]) -> T:
    """The result of work that is little, or cannot wait."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
