"""The API's description, OpenAPI 3.1, made from `operations` and the structures that they name."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec

from steelyard.version import __version__
from steelyard.web.console import answers
from steelyard.web.console.operations import OPERATIONS, PREFIX, ApiOperation

SCHEMAS = "#/components/schemas/"

DESCRIPTION = (
    "Groups, rebalances, topics and messages of a cluster of Steelyard, Apache RocketMQ or Apache"
    " Kafka. Times are in milliseconds since the epoch. Requests that change the cluster are"
    " refused (403) unless the console was started with `--allow-changes`."
)

EVENTS = (
    "`text/event-stream`: `cluster` (as GET /cluster), `groups` (as GET /groups), and for the"
    " wanted group `group` (as GET of the group) and `rebalance` (one that ended, as in its list)."
    " Each has its whole new value, and is sent when it has changed. A viewer that does not keep up"
    " is disconnected, and gets everything again when it connects again."
)


@cache
def document() -> dict[str, Any]:
    """Return the description."""
    kinds: set[type[msgspec.Struct]] = {one.answer for one in OPERATIONS if one.answer is not None}
    kinds |= {one.body for one in OPERATIONS if one.body is not None}
    kinds |= {answers.ApiError}
    questions = [one.question for one in OPERATIONS]
    _, schemas = msgspec.json.schema_components(
        [*sorted(kinds, key=lambda kind: kind.__name__), *questions],
        ref_template=SCHEMAS + "{name}",
    )
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        path = paths.setdefault(PREFIX + one.path, {})
        path[one.method.lower()] = _operation(one, schemas[one.question.__name__])
    for question in questions:
        schemas.pop(question.__name__, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Steelyard's console",
            "version": __version__,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(one: ApiOperation, question: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "parameters": [
            _parameter(one, name, schema, is_needed=name in question.get("required", ()))
            for name, schema in question["properties"].items()
        ],
        "responses": {
            "200": _success(one),
            **{str(status): _failure(status) for status in one.errors},
        },
    }
    if one.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": SCHEMAS + one.body.__name__}}},
        }
    return described


def _parameter(
    one: ApiOperation, name: str, schema: dict[str, Any], *, is_needed: bool
) -> dict[str, Any]:
    is_path = f"{{{name}}}" in one.path
    shown = {key: value for key, value in schema.items() if (key, value) != ("default", None)}
    found: dict[str, Any] = {"name": name, "in": "path" if is_path else "query"}
    return {**found, "required": is_needed, "schema": shown}


def _success(one: ApiOperation) -> dict[str, Any]:
    if one.answer is None:
        stream = {"text/event-stream": {"schema": {"type": "string"}}}
        return {"description": EVENTS, "content": stream}
    schema = {"$ref": SCHEMAS + one.answer.__name__}
    return {"description": one.summary, "content": {"application/json": {"schema": schema}}}


def _failure(status: int) -> dict[str, Any]:
    schema = {"$ref": SCHEMAS + answers.ApiError.__name__}
    return {
        "description": HTTPStatus(status).phrase,
        "content": {"application/json": {"schema": schema}},
    }
