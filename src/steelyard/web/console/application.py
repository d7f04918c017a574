"""The console as one ASGI application: its API, its events, its description, and its pages."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from steelyard.web.console.access import HEADERS, refusal
from steelyard.web.console.api import JSON, ApiApplication, failed
from steelyard.web.console.contract import WatchedCluster
from steelyard.web.console.events import EventStream
from steelyard.web.console.history import LedgerHistory
from steelyard.web.console.openapi import document
from steelyard.web.console.operations import PREFIX
from steelyard.web.console.pages import Pages
from steelyard.web.console.service import Console
from steelyard.web.console.watching import Watching

DESCRIPTION_PATH = "/openapi.json"


class ConsoleApplication:
    """An ASGI application, and the reading of the cluster for it.

    `hosts`: names under which it may be reached, besides IP addresses and localhost.
    """

    def __init__(
        self,
        cluster: WatchedCluster,
        ledger: LedgerHistory | None,
        *,
        hosts: Collection[str] = (),
        allow_changes: bool = False,
        pages: Pages | None = None,
    ) -> None:
        self._cluster = cluster
        self._hosts = frozenset(name.lower() for name in hosts)
        console = Console(cluster, ledger, allow_changes=allow_changes)
        self._watching = Watching(console)
        stream = EventStream(self._watching.viewers)
        self._api = ApiApplication(console, stream, allow_changes=allow_changes)
        self._pages = pages or Pages()
        self._description = msgspec.json.encode(document())

    async def run(self) -> None:
        """Read the cluster until this is cancelled."""
        try:
            await self._watching.run()
        finally:
            await asyncio.shield(self._cluster.close())

    def close(self) -> None:
        """End the streams of all viewers."""
        self._watching.viewers.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        is_api = path.startswith(PREFIX + "/")
        is_page = not is_api and path != DESCRIPTION_PATH

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refused = refusal(Headers(scope=scope), self._hosts, is_page=is_page)
        if refused is not None:
            await failed(*refused)(scope, receive, send_safely)
        elif is_api:
            await self._api(scope, receive, send_safely)
        else:
            await self._other(scope, path)(scope, receive, send_safely)

    def _other(self, scope: Scope, path: str) -> Response:
        """Return the description, a page, or a failure."""
        if scope["method"] not in ("GET", "HEAD"):
            return failed(405, f"{scope['method']} is not supported here", {"allow": "GET, HEAD"})
        if path == DESCRIPTION_PATH:
            return Response(self._description, media_type=JSON)
        tags = Headers(scope=scope).get("if-none-match", "")
        return self._pages.get(path, tags) or failed(404, "there is no such page")
