"""The file with the accounts of RocketMQ's clients, read at the start and when it changes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from steelyard.acl.plain_acl import read_accounts
from steelyard.errors import ConfigError, SteelyardError
from steelyard.nodes.access.book import AccountsChanged

if TYPE_CHECKING:
    import asyncio
    import logging

    from steelyard.acl.accounts import Accounts
    from steelyard.driver.driver import Driver

FILE_BYTES_MAX = 4 * 1024 * 1024
LOOK_SECONDS = 1.0
"""Interval of the look at the file."""


class AccountsFile:
    """A file of accounts. Raises ConfigError, which quotes no secret, if it cannot be read.

    Call `watch` in the loop's thread, and `close` at the end. A file that cannot be used any more
    is logged once, and the accounts before it stay in use.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = _state_of(path)
        self.first = self._read()
        """What it had at the start."""
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, driver: Driver, loop: asyncio.AbstractEventLoop, log: logging.Logger) -> None:
        """Look at the file again and again, and tell the driver's node of changes."""

        def look() -> None:
            self._timer = loop.call_later(LOOK_SECONDS, look)
            state = _state_of(self._path)
            if state == self._seen:
                return
            self._seen = state
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
        where = f"acl_file {self._path}"
        try:
            with open(self._path, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"{where}: {error.strerror}") from None
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"{where} has more than {FILE_BYTES_MAX} bytes")
        try:
            return read_accounts(data.decode())
        except UnicodeDecodeError:
            raise ConfigError(f"{where} is not UTF-8") from None
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None


def _state_of(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_size, found.st_mtime_ns
