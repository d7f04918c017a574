"""Threads that pass an application what its node has for it, one item at a time each."""

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
    """Daemon threads that call the application.

    `post`, which must be set, reports the application's results to the node.
    """

    post: Callable[[Event], None]

    def __init__(self, application: Application, count: int, name: str) -> None:
        self._application = application
        super().__init__(count, self._take, name)

    def hand(self, ticket: int, handed: object) -> None:
        """Hand this over soon, and report the result to the node unless the ticket is 0.

        To be called from one thread only.
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
    """Return what a user's function returned, awaited on the background loop if awaitable."""
    return background().wait(_finish(returned)) if isawaitable(returned) else returned


async def _finish(awaited: Awaitable[object]) -> object:
    return await awaited
