"""Knows which thread of the simulated Kafka Streams application runs which task.

Rules: a task is never given to a thread while another one runs it that was heard within its
session; and when everything has healed, each task runs once and has its standbys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from steelyard.allocate.assignors.sticky_tasks import TaskId, TaskShare
from steelyard.sim.world import Violation

SLACK_MS = 200
"""Difference of two clocks over a session, and the time of a heartbeat on its way."""


class StreamsWitness:
    """What all threads run. `session_ms`: of their group."""

    def __init__(self, session_ms: int) -> None:
        self._session_ms = session_ms
        self.true_time: Callable[[str, int], int] = lambda who, at: at
        """(thread, time of its clock): the true time."""
        self.is_alive: Callable[[str], bool] = lambda who: True
        self._shares: dict[str, TaskShare] = {}
        self._processes: dict[str, str] = {}
        self._heard_at: dict[str, int] = {}
        """When the latest heartbeat that was answered had been sent."""
        self.moves = 0
        """How many active tasks began somewhere."""

    def heard(self, who: str, sent_at: int) -> None:
        """Note that a heartbeat was answered."""
        self._heard_at[who] = self.true_time(who, sent_at)

    def given(self, who: str, process: str, share: TaskShare, now: int) -> None:
        """Note what a thread is told to run; it begins later. Raises Violation."""
        now = self.true_time(who, now)
        begun = share.active - self._shares.get(who, TaskShare()).active
        self.moves += len(begun)
        if self._is_silent(who, now):
            return  # it read the answer so late that its tasks may have gone to others since
        for other, held in self._shares.items():
            if other == who or self._is_silent(other, now) or not self.is_alive(other):
                continue
            twice = begun & held.active
            if twice:
                heard = f"heard {now - self._heard_at.get(other, now)} ms ago"
                raise Violation(
                    f"{who} is given the tasks {_names(twice)}, which {other} runs, {heard}"
                )
            copies = (share.active | share.standby) & (held.active | held.standby)
            if process == self._processes[other] and copies:
                raise Violation(f"{who} and {other} have {_names(copies)} in one directory")

    def _is_silent(self, who: str, now: int) -> bool:
        """Return whether a thread's latest answered heartbeat may be older than its session."""
        return now - self._heard_at.get(who, now) >= self._session_ms - SLACK_MS

    def runs(self, who: str, process: str, share: TaskShare) -> None:
        """Note what a thread runs from now on."""
        self._shares[who] = share
        self._processes[who] = process

    def not_running(
        self, tasks: Mapping[str, int], stateful: set[str], standbys: int
    ) -> str | None:
        """Return None if each task runs once and has its standbys; otherwise what is wrong.

        `tasks`: number by subtopology; `standbys`: the number that is wanted.
        """
        every = [TaskId(name, number) for name in sorted(tasks) for number in range(tasks[name])]
        alive = {who: share for who, share in self._shares.items() if self.is_alive(who)}
        active = Counter(task for share in alive.values() for task in share.active)
        copies = Counter(task for share in alive.values() for task in share.standby)
        processes = {self._processes[who] for who in alive}
        for task in every:
            wanted = min(standbys, len(processes) - 1) if task.subtopology_id in stateful else 0
            if (active[task], copies[task]) != (1, wanted):
                return (
                    f"task {_names({task})} of Kafka Streams runs {active[task]} times, with"
                    f" {copies[task]} standbys"
                )
        unknown = set(active) - set(every)
        return f"tasks {_names(unknown)} run, which do not exist" if unknown else None


def _names(tasks: set[TaskId] | frozenset[TaskId]) -> str:
    return ", ".join(f"{name}_{number}" for name, number in sorted(tasks))
