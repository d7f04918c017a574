"""Our consumers, watched: what came, when each listener began and ended, in terms that Java members share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, Self

from tests.peers.apache import Peer

from steelyard import ConsumeFrom, ConsumerConfig, MessageView, PushConsumer

FROM_FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


class Step(NamedTuple):
    """One message in one listener. Times are milliseconds of this machine's clock."""

    queue: tuple[str, int]
    began: int
    ended: int
    offset: int
    times: int
    number: int


class Member:
    """A push consumer of ours from the first offset on, in a `with`: `views` and `steps` grow as it consumes.

    `answer(view)` is the listener's verdict, after `work_s` seconds; further options are the consumer's.
    """

    def __init__(
        self,
        nameserver: str,
        group: str,
        topic: str,
        expression: str = "*",
        *,
        sql: str | None = None,
        answer: Callable[[MessageView], Any] = lambda view: None,
        work_s: float = 0,
        config: ConsumerConfig = FROM_FIRST,
        **options: Any,
    ) -> None:
        self.topic = topic
        self.views: list[MessageView] = []
        self.steps: list[Step] = []
        self._answer, self._work_s = answer, work_s
        self._idle = threading.Event()  # never set: to wait without spinning
        self.consumer = PushConsumer(group, nameserver, self._listen, config=config, **options)
        if sql is None:
            self.consumer.subscribe(topic, expression)
        else:
            self.consumer.subscribe(topic, sql=sql)

    @staticmethod
    def config(**settings: Any) -> ConsumerConfig:
        """From the first offset on, with further settings."""
        return replace(FROM_FIRST, **settings)

    def _listen(self, view: MessageView) -> Any:
        began = now_ms()
        self._idle.wait(self._work_s)
        answer = self._answer(view)
        self.views.append(view)
        place = (view.queue.broker_name, view.queue.queue_id)
        number = int(view.properties.get("number", -1))
        step = Step(place, began, now_ms(), view.queue_offset, view.reconsume_times, number)
        self.steps.append(step)
        return answer

    def numbers(self) -> list[int]:
        return [step.number for step in self.steps]

    def held(self) -> list[tuple[str, int]]:
        """(broker, queue id) of its topic that it holds."""
        held = self.consumer.state().held
        return sorted((q.broker_name, q.queue_id) for q in held if q.topic == self.topic)

    def __enter__(self) -> Self:
        self.consumer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.stop()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def steps_of_java(peer: Peer, consumer: str) -> list[Step]:
    """The same of a push consumer of Java."""
    return [
        Step(
            (event["broker"], event["queue"]),
            event["began"],
            event["ended"],
            event["offset"],
            event["times"],
            int(event["properties"]["number"]),
        )
        for event in peer.received(consumer)
    ]


def by_queue(steps: list[Step]) -> list[list[Step]]:
    """What happened in each queue, in the order of time; no two steps of one queue overlap."""
    queues: dict[tuple[str, int], list[Step]] = {}
    for step in sorted(steps):
        queues.setdefault(step.queue, []).append(step)
    for steps_of_one in queues.values():
        for earlier, later in pairwise(steps_of_one):
            assert earlier.ended <= later.began, (earlier, later)
    return list(queues.values())


def repeated_in_order(steps: list[Step]) -> int:
    """How many messages came more than once; all come in the order of their offsets but for going back to repeat."""
    repeated = 0
    for one in by_queue(steps):
        offsets = [step.offset for step in one]
        firsts = list(dict.fromkeys(offsets))
        assert firsts == list(range(firsts[-1] + 1))
        repeated += len(offsets) - len(firsts)
    return repeated


def repeated_after(ours: list[Step], theirs: list[Step]) -> list[Step]:
    """What others read once more after we were done with it."""
    done = {(step.queue, step.offset): step.ended for step in ours}
    return [step for step in theirs if done.get((step.queue, step.offset), step.began) < step.began]
