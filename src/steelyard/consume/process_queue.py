"""The prefetched messages of a held queue, and the offset that may be committed.

Messages are added by offset (`add`), go to the listener in batches (`take`) and finish in any order
(`finish`). The offset that may be committed is the lowest unfinished one: nothing beyond an
unfinished message is ever committed. Once all are finished, it is the offset of the next pull, past
what a tag filter skipped. Source: client/impl/consumer/ProcessQueue.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from steelyard.wire.remoting.message import MessageView


class ConsumeRequest(msgspec.Struct, gc=False):
    """Messages that were taken together, oldest first, and end together."""

    messages: tuple[MessageView, ...]
    size_bytes: int
    finished: bool = False


class ProcessQueue:
    """The messages of a queue; see the module docstring.

    `next_offset`: where the next pull begins.
    """

    __slots__ = ("_runs", "_waiting", "count", "next_offset", "size_bytes")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.count = 0
        """Number of unfinished messages."""
        self.size_bytes = 0
        """Bytes of their bodies, as stored."""
        self._waiting: deque[MessageView] = deque()
        self._runs: deque[ConsumeRequest] = deque()

    def add(self, messages: Sequence[MessageView], next_offset: int) -> int:
        """Add the messages of one pull; return how many are new.

        Messages not beyond everything seen so far are ignored: a broker that replies twice, or with
        older messages than requested, causes no duplicates here. `next_offset` only ever increases.
        """
        lowest = self.next_offset
        size_bytes = 0
        before = len(self._waiting)
        for message in messages:
            if message.queue_offset >= lowest:
                lowest = message.queue_offset + 1
                size_bytes += len(message.stored_body)
                self._waiting.append(message)
        added = len(self._waiting) - before
        self.count += added
        self.size_bytes += size_bytes
        self.next_offset = max(lowest, next_offset)
        return added

    def take(self, count_max: int) -> ConsumeRequest | None:
        """The next messages for the listener; None while there are none."""
        waiting = self._waiting
        if not waiting:
            return None
        if count_max == 1:
            message = waiting.popleft()
            run = ConsumeRequest((message,), len(message.stored_body))
        else:
            messages = tuple([waiting.popleft() for _ in range(min(count_max, len(waiting)))])
            run = ConsumeRequest(messages, sum([len(message.stored_body) for message in messages]))
        self._runs.append(run)
        return run

    def finish(self, run: ConsumeRequest) -> None:
        """The listener, or the broker that took the messages back, is done with the run."""
        assert not run.finished
        run.finished = True
        self.count -= len(run.messages)
        self.size_bytes -= run.size_bytes
        runs = self._runs
        while runs and runs[0].finished:
            runs.popleft()

    def put_back(self, run: ConsumeRequest, wanted: int = 0) -> None:
        """The newest run taken was finished and then not wanted: it is the next to take again.

        Except for its first messages, as many as were `wanted`.
        """
        assert run.finished
        assert not self._waiting or run.messages[-1].queue_offset < self._waiting[0].queue_offset
        back = run.messages[wanted:]
        self._waiting.extendleft(reversed(back))
        self.count += len(back)
        self.size_bytes += sum([len(message.stored_body) for message in back])

    def discard_waiting(self) -> int:
        """Discard messages not yet taken, which the next owner will pull again; return how many."""
        discarded = len(self._waiting)
        if discarded:
            self.next_offset = self._waiting[0].queue_offset
            self.count -= discarded
            self.size_bytes -= sum(len(message.stored_body) for message in self._waiting)
            self._waiting.clear()
        return discarded

    @property
    def waiting(self) -> bool:
        """Return whether there is something to `take`."""
        return bool(self._waiting)

    @property
    def head(self) -> ConsumeRequest | None:
        """The run that everything else waits for: the oldest one taken and not finished."""
        return self._runs[0] if self._runs else None

    @property
    def committable(self) -> int:
        """The offset that may be committed: everything below it is finished."""
        if self._runs:
            return self._runs[0].messages[0].queue_offset
        if self._waiting:
            return self._waiting[0].queue_offset
        return self.next_offset

    @property
    def handed(self) -> int:
        """The offset behind the last message that a listener was handed."""
        return self._waiting[0].queue_offset if self._waiting else self.next_offset

    @property
    def span(self) -> int:
        """Highest minus lowest offset; a blocked message makes it grow."""
        if not self.count:
            return 0
        last = self._waiting[-1] if self._waiting else self._runs[-1].messages[-1]
        return last.queue_offset - self.committable

    def check(self) -> None:
        """Assert the order and the sums. O(messages)."""
        messages = [message for run in self._runs for message in run.messages]
        messages += self._waiting
        offsets = [message.queue_offset for message in messages]
        assert all(low < high for low, high in pairwise(offsets))
        assert not offsets or offsets[-1] < self.next_offset
        open_runs = [run for run in self._runs if not run.finished]
        assert not self._runs or not self._runs[0].finished
        taken = sum(len(run.messages) for run in open_runs)
        assert self.count == taken + len(self._waiting)
        waiting_bytes = sum(len(message.stored_body) for message in self._waiting)
        assert self.size_bytes == sum(run.size_bytes for run in open_runs) + waiting_bytes
