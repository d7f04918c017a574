"""The key set that verifies access tokens, from a file or an authorization server.

A file is read at the start, and within a second after it has changed. A URL is asked at the start
and then again and again; if it does not answer, every ten seconds, and the keys before it stay in
use. A broker starts without its authorization server, and refuses tokens until it has the keys.
Source: clients/common/security/oauthbearer/internals/secured/RefreshingHttpsJwks.java.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from steelyard.errors import ClosedError, ConfigError
from steelyard.nodes.broker.token_keys import TokenKeysChanged
from steelyard.sasl.signed_tokens import TokenKeys, check_installed, read_keys
from steelyard.servers.watched_files import FILE_BYTES_MAX, LOOK_SECONDS, WatchedFile

if TYPE_CHECKING:
    import logging

    from steelyard.config import KafkaConfig
    from steelyard.driver.driver import Driver

SETTING = "kafka.sasl_oauthbearer_jwks_endpoint_url"
TIMEOUT_SECONDS = 10.0
RETRY_SECONDS = 10.0
"""Interval of questions to a URL that did not answer."""


class TokenKeySource:
    """Where keys come from. Raises ConfigError if it is a file that cannot be used.

    Call `start` in the loop's thread, and `close` at the end.
    """

    def __init__(self, config: KafkaConfig) -> None:
        url = config.sasl_oauthbearer_jwks_endpoint_url
        self._url = url
        self._refresh_seconds = config.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1_000
        self._file: WatchedFile | None = None
        self._known: TokenKeys = ()
        self._is_failing = False
        """What was read last could not be used, and that was logged."""
        self._task: asyncio.Task[None] | None = None
        check_installed()
        parts = urlsplit(url)
        if parts.scheme in ("", "file"):
            self._file = WatchedFile(unquote(parts.path), SETTING)
            self._known = self._read(self._file.read())

    async def start(self, driver: Driver, log: logging.Logger) -> None:
        """Give the driver's node the keys, and follow their changes from now on."""
        if self._file is None:
            await self._refresh(driver, log)
        else:
            await driver.ask(TokenKeysChanged(self._known))
        self._task = asyncio.get_running_loop().create_task(self._follow(driver, log))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _follow(self, driver: Driver, log: logging.Logger) -> None:
        with suppress(ClosedError):  # the driver has ended first
            while True:
                if self._file is not None:
                    await asyncio.sleep(LOOK_SECONDS)
                    if not self._file.has_changed():
                        continue
                else:
                    await asyncio.sleep(
                        RETRY_SECONDS if self._is_failing else self._refresh_seconds
                    )
                await self._refresh(driver, log)

    async def _refresh(self, driver: Driver, log: logging.Logger) -> None:
        """Read the keys again; what is wrong with them is logged once."""
        try:
            if self._file is None:
                found = self._read(await asyncio.to_thread(self._fetch))
            else:
                found = self._read(self._file.read())
        except ConfigError as error:
            if not self._is_failing:
                stay = "the former keys still apply" if self._known else "no token is accepted"
                log.error("%s; %s", error, stay)
            self._is_failing = True
            return
        if self._is_failing or found != self._known:
            log.info("%s: access tokens are verified with its keys", self._where)
        self._is_failing = False
        self._known = found
        await driver.ask(TokenKeysChanged(found))

    @property
    def _where(self) -> str:
        return f"{SETTING} {self._url}"

    def _read(self, text: str) -> TokenKeys:
        try:
            return read_keys(text)
        except ConfigError as error:
            raise ConfigError(f"{self._where}: {error}") from None

    def _fetch(self) -> str:
        """Return what the URL answers. Raises ConfigError."""
        from http.client import HTTPException
        from urllib.request import urlopen

        try:
            with urlopen(self._url, timeout=TIMEOUT_SECONDS) as answer:
                data: bytes = answer.read(FILE_BYTES_MAX + 1)
        except (OSError, HTTPException, ValueError) as error:
            raise ConfigError(f"{self._where}: {error}") from None
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"{self._where}: the answer has more than {FILE_BYTES_MAX} bytes")
        return data.decode(errors="replace")
