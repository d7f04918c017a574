"""The HTTP application: what is served at which path.

| path | answer |
|---|---|
| `/metrics` | the series of `metrics`, for Prometheus; 200 also if brokers do not answer |
| `/healthz` | 200: this process lives, whatever the cluster does |
| `/readyz` | 200 if every server of the cluster serves its clients, else 503; which do not |
| others | the console (`console.application`), if there is one |

A cluster that is reached by Kafka's protocol has no figures: of the above only `/healthz`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, Router

from steelyard.web.exposition import expose
from steelyard.web.health import missing
from steelyard.web.series import samples

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from steelyard.config import HttpConfig
    from steelyard.web.reading import ClusterReader
    from steelyard.web.rebalances import RebalanceCosts


def application(
    reader: ClusterReader, costs: RebalanceCosts, config: HttpConfig, console: ASGIApp | None
) -> Router:
    """Return the application for a cluster with nameservers."""

    async def metrics(request: Request) -> Response:
        reading = await reader.read()
        found = [*samples(reading, config), *costs.samples()]
        text, content_type = expose(found, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    async def readyz(request: Request) -> Response:
        wanting = missing(await reader.read())
        body = {"ready": not wanting, "missing": wanting}
        return JSONResponse(body, status_code=503 if wanting else 200)

    routes = [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)]
    return Router(routes, redirect_slashes=False, default=console or _NOTHING)


def console_only(console: ASGIApp) -> Router:
    """Return the application for a cluster without nameservers."""
    return Router([Route("/healthz", healthz)], redirect_slashes=False, default=console)


async def healthz(request: Request) -> Response:
    """Answer that this process lives."""
    return JSONResponse({"alive": True})


_NOTHING = PlainTextResponse("Not Found", 404)
