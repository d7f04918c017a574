"""Requests to a console, as browsers and programs send them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode


class Answered(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)


def ask(
    address: str,
    path: str,
    *,
    method: str = "GET",
    body: object = None,
    headers: dict[str, str] | None = None,
) -> Answered:
    """Send one request; `path` is below /api/v1 unless it begins with a slash."""
    wanted = path if path.startswith("/") else f"/api/v1/{path}"
    connection = HTTPConnection(address, timeout=60)
    try:
        data = None if body is None else json.dumps(body)
        sent = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, wanted, data, {**sent, **(headers or {})})
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answered(answer.status, found, answer.read().decode())
    finally:
        connection.close()


def with_query(path: str, query: Mapping[str, object]) -> str:
    """A path with these parameters."""
    return f"{path}?{urlencode(query)}" if query else path


def read(address: str, path: str, **query: object) -> Any:
    """The body of a successful GET."""
    found = ask(address, with_query(path, query))
    assert found.status == 200, found
    return found.body


def in_path(*names: str) -> str:
    """These names as parts of a path."""
    return "/".join(quote(name, safe="") for name in names)


class Events:
    """A viewer: a context manager that reads events."""

    def __init__(self, address: str, group: str | None = None) -> None:
        self._connection = HTTPConnection(address, timeout=60)
        query = "" if group is None else "?" + urlencode({"group": group})
        self._connection.request("GET", f"/api/v1/events{query}")
        self.response: HTTPResponse = self._connection.getresponse()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self.response.close()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        event = ""
        while line := self.response.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                yield event, json.loads(value)
