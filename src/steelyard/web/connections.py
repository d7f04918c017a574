"""Connections of HTTP clients, which have to send requests: a silent one takes another's place.

uvicorn closes a connection that is silent after a request, but waits for a first one, and for the
rest of one, for ever. Browsers open connections ahead that they never use, and a machine may vanish
without closing its own: in time, such connections would be all that the server admits.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS_MAX = 10.0
"""Time for the head of a request, from the connection's beginning or its first byte on."""


class HttpConnection(H11Protocol):
    """A connection that is closed if the head of a request does not come in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS_MAX, self.transport.close)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
