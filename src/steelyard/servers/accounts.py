"""The file with the accounts of RocketMQ's clients, read at the start and when it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steelyard.acl.plain_acl import read_accounts
from steelyard.errors import ConfigError, SteelyardError
from steelyard.nodes.access.book import AccountsChanged
from steelyard.servers.watched_files import LOOK_SECONDS, WatchedFile

if TYPE_CHECKING:
    import asyncio
    import logging

    from steelyard.acl.accounts import Accounts
    from steelyard.driver.driver import Driver


class AccountsFile:
    """A file of accounts. Raises ConfigError, which quotes no secret, if it cannot be read.

    Call `watch` in the loop's thread, and `close` at the end. A file that cannot be used any more
    is logged once, and the accounts before it stay in use.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = WatchedFile(path, "acl_file")
        self.first = self._read()
        """What it had at the start."""
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, driver: Driver, loop: asyncio.AbstractEventLoop, log: logging.Logger) -> None:
        """Look at the file again and again, and tell the driver's node of changes."""

        def look() -> None:
            self._timer = loop.call_later(LOOK_SECONDS, look)
            if not self._file.has_changed():
                return
            try:
                accounts = self._read()
            except ConfigError as error:
                log.error("%s; the former accounts still apply", error)
            else:
                driver.ask(AccountsChanged(accounts)).add_done_callback(told)

        def told(answer: asyncio.Future[None]) -> None:
            error = None if answer.cancelled() else answer.exception()
            if isinstance(error, SteelyardError):
                text = "acl_file %s: %s; the former accounts still apply"
                log.error(text, self._path, error)
            elif error is None:
                log.info("the accounts of the changed %s apply", self._path)

        self._timer = loop.call_later(LOOK_SECONDS, look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _read(self) -> Accounts:
        text = self._file.read()
        try:
            return read_accounts(text)
        except ConfigError as error:
            raise ConfigError(f"{self._file.where}: {error}") from None
