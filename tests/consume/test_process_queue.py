from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples

from steelyard.consume.flow import Limits, Reason, blocked
from steelyard.consume.process_queue import ConsumeRequest, ProcessQueue
from steelyard.wire.remoting.message import MessageView, decode_records, encode_record


def message(offset: int, body: bytes = b"body") -> MessageView:
    data = encode_record(
        topic="T",
        queue_id=0,
        flag=0,
        queue_offset=offset,
        physical_offset=offset,
        sys_flag=0,
        born_timestamp=0,
        born_host=b"\0" * 8,
        store_timestamp=0,
        store_host=b"\0" * 8,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=b"",
    )
    return decode_records(data)[0]


def filled(*offsets: int, next_offset: int | None = None) -> ProcessQueue:
    queue = ProcessQueue(offsets[0])
    following = offsets[-1] + 1 if next_offset is None else next_offset
    queue.add([message(offset) for offset in offsets], following)
    return queue


def taken(queue: ProcessQueue, count_max: int = 1) -> ConsumeRequest:
    run = queue.take(count_max)
    assert run is not None
    return run


def test_nothing_beyond_an_unfinished_message_is_committed() -> None:
    queue = filled(5, 6, 7)
    first, second, third = taken(queue), taken(queue), taken(queue)
    queue.finish(third)
    assert queue.committable == 5
    queue.finish(first)
    assert queue.committable == 6
    queue.finish(second)
    assert queue.committable == 8
    queue.check()


def test_what_nobody_wanted_is_the_next_to_take_again() -> None:
    queue = filled(5, 6, 7, 8)
    queue.finish(taken(queue, 1))
    second = taken(queue, 2)
    queue.finish(second)
    queue.put_back(second)
    queue.check()
    assert (queue.committable, queue.count, queue.size_bytes) == (6, 3, 12)
    assert [m.queue_offset for m in taken(queue, 9).messages] == [6, 7, 8]


def test_when_all_is_done_the_commit_passes_what_a_filter_skipped() -> None:
    queue = filled(3, 9, next_offset=20)
    queue.finish(taken(queue, 8))
    assert queue.committable == 20
    queue.add([], 40)
    assert queue.committable == 40


def test_what_was_seen_already_is_left_out() -> None:
    queue = filled(5, 6)
    assert queue.add([message(4), message(5), message(6), message(8), message(8)], 3) == 1
    assert (queue.next_offset, queue.count) == (9, 3)
    assert [m.queue_offset for m in taken(queue, 9).messages] == [5, 6, 8]


def test_messages_that_no_listener_saw_can_be_left_to_others() -> None:
    queue = filled(5, 6, 7, next_offset=30)
    run = taken(queue)
    assert queue.discard_waiting() == 2
    assert (queue.count, queue.committable, queue.next_offset) == (1, 5, 6)
    queue.finish(run)
    assert (queue.committable, queue.count, queue.waiting) == (6, 0, False)
    assert queue.discard_waiting() == 0
    queue.check()


def test_pulling_stops_beyond_each_limit() -> None:
    queue = filled(0, 1, 2, 90)
    assert blocked(queue, Limits(4, 16, 90)) is None
    assert blocked(queue, Limits(3, 16, 90)) is Reason.MESSAGES
    assert blocked(queue, Limits(4, 15, 90)) is Reason.BYTES
    assert blocked(queue, Limits(4, 16, 89)) is Reason.SPAN
    queue.finish(taken(queue, 3))
    assert queue.span == 0
    assert blocked(queue, Limits(1, 4, 0)) is None


def test_a_message_that_hangs_keeps_the_span_wide() -> None:
    queue = filled(0, 1, 90)
    hanging, rest = taken(queue), taken(queue, 2)
    queue.finish(rest)
    assert (queue.count, queue.span) == (1, 90)
    queue.finish(hanging)
    assert queue.span == 0


class ProcessQueueMachine(RuleBasedStateMachine):
    """Against a model that knows every offset: what came in, what is finished."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ProcessQueue(0)
        self.runs: list[ConsumeRequest] = []
        self.open: set[int] = set()
        self.committed = 0

    @initialize(start=st.integers(0, 10**9))
    def begin(self, start: int) -> None:
        self.queue = ProcessQueue(start)
        self.committed = start

    @rule(gaps=st.lists(st.integers(0, 3), max_size=5), skipped=st.integers(0, 3))
    def pull(self, gaps: list[int], skipped: int) -> None:
        offset = self.queue.next_offset
        messages = []
        for gap in gaps:
            offset += gap
            messages.append(message(offset))
            self.open.add(offset)
            offset += 1
        assert self.queue.add(messages, offset + skipped) == len(gaps)

    @rule(repeated=st.integers(1, 5))
    def pull_again(self, repeated: int) -> None:
        """An answer that comes twice, or from before."""
        first = self.queue.next_offset - repeated
        messages = [message(offset) for offset in range(first, self.queue.next_offset)]
        assert self.queue.add(messages, first) == 0

    @rule(count_max=st.integers(1, 4))
    def take(self, count_max: int) -> None:
        run = self.queue.take(count_max)
        assert (run is None) == (not self.open - self.offsets_taken())
        if run is not None:
            self.runs.append(run)

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        run = self.runs.pop(data.draw(st.integers(0, len(self.runs) - 1)))
        self.queue.finish(run)
        self.open -= {m.queue_offset for m in run.messages}

    @rule()
    def discard(self) -> None:
        waiting = self.open - self.offsets_taken()
        assert self.queue.discard_waiting() == len(waiting)
        self.open -= waiting

    def offsets_taken(self) -> set[int]:
        return {m.queue_offset for run in self.runs for m in run.messages}

    @invariant()
    def commits_lowest_unfinished(self) -> None:
        self.queue.check()
        assert self.queue.committable == min(self.open, default=self.queue.next_offset)
        assert self.queue.count == len(self.open)
        assert self.queue.committable >= self.committed
        self.committed = self.queue.committable


TestProcessQueue = ProcessQueueMachine.TestCase
TestProcessQueue.settings = settings(max_examples=examples(60), stateful_step_count=40)
