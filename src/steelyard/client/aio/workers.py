"""Tasks that deliver a node's messages and calls to an application, each one at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from inspect import isawaitable

from steelyard.client.application import Application
from steelyard.nodes.seam import Event, Handled, Verdict

CHECKS_AT_ONCE = 100
"""Maximum concurrent calls of `transaction_check`; further ones wait.

They are tasks that mostly wait.
"""


class Workers:
    """A number of tasks on the running loop. `post`, to be set, passes results to the node."""

    post: Callable[[Event], None]

    def __init__(self, application: Application, count: int, name: str) -> None:
        self._application = application
        self._name = name
        self._handed: deque[tuple[int, object]] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._surplus = 0
        """Number of tasks that are to end after their current delivery."""
        self.resize(count)

    def hand(self, ticket: int, handed: object) -> None:
        """Deliver this soon; the node gets the result, unless the ticket is 0."""
        self._handed.append((ticket, handed))
        self._wake()

    def resize(self, count: int) -> None:
        """Set the number of tasks; surplus ones end after their current delivery."""
        missing = count - len(self._tasks)
        self._surplus = max(0, -missing)
        for _ in range(missing):
            task = asyncio.get_running_loop().create_task(self._run(), name=self._name)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        for _ in range(self._surplus):
            self._wake()

    def is_inside(self) -> bool:
        """Return whether the caller is one of these tasks."""
        return asyncio.current_task() in self._tasks

    async def close(self, *, cancel: bool = True) -> None:
        """End all of them at once; without `cancel` after everything waiting is delivered."""
        self._closed = True
        tasks = list(self._tasks)
        if cancel:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for _ in tasks:
            self._wake()

    def _wake(self) -> None:
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._surplus:
            if not self._handed:
                if self._closed:
                    return
                waiter = loop.create_future()
                self._idle.append(waiter)
                await waiter
                continue
            ticket, handed = self._handed.popleft()
            verdict = await self._taken(handed)
            if ticket:
                self.post(Handled(ticket, verdict))
        self._surplus -= 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)
        if self._handed:  # this task may have been woken for it
            self._wake()

    async def _taken(self, handed: object) -> Verdict:
        application = self._application
        try:
            returned = application.call(handed)
            if returned is not None:
                returned = await settled(returned)
            return application.verdict(handed, returned)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                # this task is cancelled; otherwise it was something that the function awaited
                application.abandoned(handed)
                raise
            return application.failure(handed, error)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # whatever a function raises must not end the task
            return application.failure(handed, error)


async def settled(returned: object) -> object:
    """Return a user function's result, awaited if necessary."""
    return await returned if isawaitable(returned) else returned
