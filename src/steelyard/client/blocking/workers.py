"""Threads that hand to an application what a node has for it, one thing after the other each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable

from steelyard.client.application import Application
from steelyard.client.threads import Threads
from steelyard.driver.loops import background
from steelyard.nodes.seam import Event, Handled

CHECKS_AT_ONCE = 4
"""Most calls of `transaction_check` at once; more wait. Java has one thread; a check that waits for
a database should not hold up all.
"""


class Workers(Threads[tuple[int, object]]):
    """So many daemon threads. `post`, which is to be set, tells the node the application's
    verdicts.
    """

    post: Callable[[Event], None]

    def __init__(self, application: Application, count: int, name: str) -> None:
        self._application = application
        super().__init__(count, self._take, name)

    def hand(self, ticket: int, handed: object) -> None:
        """Hand this over soon; the node is told the verdict, unless the ticket is 0. From one
        thread only.
        """
        self._items.append((ticket, handed))
        if not self._waking:
            self._wake()

    def _take(self, item: tuple[int, object]) -> None:
        ticket, handed = item
        application = self._application
        try:
            returned = application.call(handed)
            if returned is not None:
                returned = settled(returned)
            verdict = application.verdict(handed, returned)
        except BaseException as error:  # whatever a user's function raises must not end the thread
            verdict = application.failure(handed, error)
        if ticket:
            self.post(Handled(ticket, verdict))


def settled(returned: object) -> object:
    """What a user's function returned; or what that brings, where it is to be awaited: on the
    background loop.
    """
    return background().wait(_finish(returned)) if isawaitable(returned) else returned


async def _finish(awaited: Awaitable[object]) -> object:
    return await awaited
