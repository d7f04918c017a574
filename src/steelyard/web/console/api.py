"""The HTTP side of the API: finds the operation, checks what it is asked, and reports failures."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from steelyard.checks import unknown
from steelyard.decoding import prepared
from steelyard.driver.logs import logger
from steelyard.errors import (
    BrokerError,
    CallTimeoutError,
    ConfigError,
    KafkaError,
    MessageError,
    RemotingError,
    RouteError,
    SteelyardError,
)
from steelyard.web.console.answers import ApiAnswer, ApiError
from steelyard.web.console.operations import OPERATIONS, PREFIX, ApiOperation
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.remoting.codes import ResponseCode

BODY_BYTES_MAX = 64 * 1024
"""Largest body of a request."""

REQUEST_SECONDS = 20.0
"""Time after which a request is given up."""

JSON = "application/json"

Handler = Callable[..., Awaitable[ApiAnswer]]

_MISSING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
_NOT_THERE = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)

_log = logger("steelyard.console")


class RequestError(Exception):
    """A request that fails with a status, before anything was asked of the cluster."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = dict(headers or {})


class Resolved(NamedTuple):
    """The operation of a request, and the parameters that its path has."""

    operation: ApiOperation
    parameters: dict[str, str]


class _Path(NamedTuple):
    segments: tuple[str, ...]
    operations: dict[str, ApiOperation]


def _paths() -> list[_Path]:
    found: dict[str, _Path] = {}
    for one in OPERATIONS:
        segments = tuple(one.path.strip("/").split("/"))
        found.setdefault(one.path, _Path(segments, {})).operations[one.method] = one
    return list(found.values())


_PATHS = _paths()


def find(method: str, raw_path: str) -> Resolved:
    """Return the operation of a request. `raw_path`: below PREFIX, as it was sent.

    Names in it may have any characters, encoded. Raises RequestError.
    """
    segments = raw_path.strip("/").split("/")
    for path in _PATHS:
        if len(path.segments) != len(segments):
            continue
        pairs = list(zip(path.segments, segments, strict=True))
        if all(mine.startswith("{") or mine == theirs for mine, theirs in pairs):
            operation = path.operations.get(method)
            if operation is None:
                allowed = ", ".join(sorted(path.operations))
                text = f"{method} is not supported here; {allowed} is"
                raise RequestError(405, text, {"allow": allowed})
            return Resolved(
                operation,
                {mine[1:-1]: _decoded(theirs) for mine, theirs in pairs if mine.startswith("{")},
            )
    raise RequestError(404, "there is no such operation; see /openapi.json for all of them")


def _decoded(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise RequestError(400, f"{segment[:80]!r} in the path is not UTF-8") from None


def question_of(found: Resolved, query: bytes) -> msgspec.Struct:
    """Return the parameters of a request as the operation's structure. Raises RequestError."""
    operation, values = found
    fields = {field.encode_name for field in msgspec.structs.fields(operation.question)}
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100
        )
    except (UnicodeDecodeError, ValueError):
        raise RequestError(400, "the query is not one of names and values in UTF-8") from None
    given = dict(values)
    known = sorted(fields - values.keys())
    for name, value in pairs:
        if name not in known:
            text = str(unknown("parameter", name, known))
            raise RequestError(400, text if known else f"there is no parameter {name[:80]!r} here")
        if name in given:
            raise RequestError(400, f"parameter {name} is given twice; give it once")
        given[name] = value
    try:
        return msgspec.convert(given, prepared(operation.question), strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        # Below a dialect that does not exist there is nothing.
        is_nowhere = text.startswith(_NO_CHOICE) and _AT.sub(r"\2", text) in values
        wrong = _wrong(text, operation.question, given)
        raise RequestError(404 if is_nowhere else 400, wrong) from None


_AT = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)
_ABSENT = re.compile(r"Object missing required field `(.*)`")
_NO_CHOICE = "Invalid enum value "


def _wrong(text: str, kind: type[msgspec.Struct], given: Mapping[str, object] | None = None) -> str:
    """Return what msgspec found wrong with a `kind` as a sentence that names the parameter."""
    absent = _ABSENT.match(text)
    if absent is not None:
        return f"{absent[1]} is missing; give it, too"
    found = _AT.match(text)
    if found is None:
        return text[:1].lower() + text[1:]
    name = found[2]
    if found[1].startswith(_NO_CHOICE):
        value, choices = found[1].removeprefix(_NO_CHOICE), ", ".join(_choices(kind, name))
        return f"{name} is {value[:80]}; expected one of: {choices}"
    shown = f" is {str(given[name])[:80]!r}" if given and name in given else ""
    if shown and "matching regex" in found[1]:
        return f"{name}{shown}, which it cannot be; see /openapi.json"
    return f"{name or 'the body'}{shown}: {found[1][:1].lower()}{found[1][1:]}"


def _choices(kind: type[msgspec.Struct], name: str) -> Iterator[str]:
    """Yield the values of a field that may have only some."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    types = [field.type for field in info.fields if field.encode_name == name]
    while types:
        one = types.pop()
        if isinstance(one, msgspec.inspect.Metadata):
            types.append(one.type)
        elif isinstance(one, msgspec.inspect.UnionType):
            types += one.types
        elif isinstance(one, msgspec.inspect.LiteralType):
            yield from map(str, one.values)


async def body_of(operation: ApiOperation, request: Request) -> msgspec.Struct | None:
    """Return the body of a change as the operation's structure. Raises RequestError."""
    if operation.body is None:
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise RequestError(415, f"the body must be JSON, with Content-Type: {JSON}")
    body = b""
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > BODY_BYTES_MAX:
                    raise RequestError(413, f"the body has more than {BODY_BYTES_MAX} bytes")
    except TimeoutError:
        text = f"the body did not come within {REQUEST_SECONDS:.0f} s"
        raise RequestError(408, text, {"connection": "close"}) from None
    try:
        return msgspec.convert(_whole(msgspec.json.decode(body)), prepared(operation.body))
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise RequestError(400, _wrong(str(error), operation.body)) from None


def _whole(value: object) -> object:
    """Return the fields of an object with whole numbers as integers: in JSON, 1.0 is one."""
    if not isinstance(value, dict):
        return value
    return {
        name: int(each) if isinstance(each, float) and each.is_integer() else each
        for name, each in value.items()
    }


def status_of(error: SteelyardError, *, is_change: bool) -> int:
    """Return the status for an error that a cluster's servers, or their absence, caused."""
    match error:
        case ConfigError() | MessageError():
            return 400
        case RouteError():
            return 404
        case CallTimeoutError():
            return 504
        case RemotingError():
            return 502
        case KafkaError() if error.code in _MISSING:
            return 404
        case BrokerError() if error.code in _NOT_THERE:
            return 404
        case KafkaError() | BrokerError():
            return 409 if is_change else 502
    return 502


class ApiApplication:
    """An ASGI application for the paths below PREFIX.

    `handlers`: has a method for each operation with an answer; `stream`: serves the events.
    """

    def __init__(
        self,
        handlers: object,
        stream: Callable[[Any, Scope, Receive, Send], Awaitable[None]],
        *,
        allow_changes: bool,
    ) -> None:
        self._stream = stream
        self._allow_changes = allow_changes
        self._handlers: dict[str, Handler] = {
            one.name: getattr(handlers, one.name) for one in OPERATIONS if one.answer is not None
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            raw_path = scope["raw_path"].decode("ascii").partition("?")[0]
            found = find(scope["method"], raw_path.removeprefix(PREFIX))
            question = question_of(found, scope["query_string"])
            if found.operation.answer is None:
                await self._stream(question, scope, receive, send)
                return
            response = await self._answer(found.operation, question, Request(scope, receive))
        except RequestError as failure:
            response = failed(failure.status, str(failure), failure.headers)
        except UnicodeDecodeError:
            response = failed(400, "the path has characters that are not encoded")
        await response(scope, receive, send)

    async def _answer(
        self, operation: ApiOperation, question: msgspec.Struct, request: Request
    ) -> Response:
        if operation.is_change and not self._allow_changes:
            raise RequestError(
                403, "changes are not allowed; start the console with --allow-changes"
            )
        body = await body_of(operation, request)
        arguments = (question,) if body is None else (question, body)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                answer = await self._handlers[operation.name](*arguments)
        except SteelyardError as error:
            status = status_of(error, is_change=operation.is_change)
            return failed(status, str(error) or type(error).__name__)
        except TimeoutError:
            return failed(504, f"the cluster did not answer within {REQUEST_SECONDS:.0f} s")
        return answered(answer)


def answered(answer: ApiAnswer) -> Response:
    """Return a successful answer."""
    return Response(msgspec.json.encode(answer), media_type=JSON)


def failed(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a failure, in one sentence."""
    body = msgspec.json.encode(ApiError(error=" ".join(text.split())))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.info("%s", text)
    return Response(body, status, headers=dict(headers or {}), media_type=JSON)
