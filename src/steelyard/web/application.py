"""The HTTP application: what is served at which path.

| path | answer |
|---|---|
| `/metrics` | the series of `metrics`, for Prometheus; 200 also if brokers do not answer |
| `/healthz` | 200: this process lives, whatever the cluster does |
| `/readyz` | 200 if every server of the cluster serves its clients, else 503; which do not |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from steelyard.web.exposition import expose
from steelyard.web.health import missing
from steelyard.web.series import samples

if TYPE_CHECKING:
    from starlette.requests import Request

    from steelyard.config import HttpConfig
    from steelyard.web.reading import ClusterReader
    from steelyard.web.rebalances import RebalanceCosts


def application(reader: ClusterReader, costs: RebalanceCosts, config: HttpConfig) -> Starlette:
    """Return the application for one cluster."""

    async def metrics(request: Request) -> Response:
        reading = await reader.read()
        found = [*samples(reading, config), *costs.samples()]
        text, content_type = expose(found, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    async def healthz(request: Request) -> Response:
        return JSONResponse({"alive": True})

    async def readyz(request: Request) -> Response:
        wanting = missing(await reader.read())
        body = {"ready": not wanting, "missing": wanting}
        return JSONResponse(body, status_code=503 if wanting else 200)

    paths = {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz}
    return Starlette(routes=[Route(path, endpoint) for path, endpoint in paths.items()])
