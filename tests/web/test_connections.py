"""Connections on which no request comes."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest
from tests.waiting import until
from tests.web.console.asking import ask
from tests.web.console.conftest import console

from steelyard.config import HttpConfig
from steelyard.web import connections
from steelyard.web.console import api
from steelyard.web.serving import REQUESTS_MAX

HEAD = b"POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\n"
CONFIG = HttpConfig(allow_changes=True)


@pytest.mark.parametrize("sent", [b"", HEAD], ids=["nothing", "half a head"])
def test_connections_without_a_request_make_room(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """1. As many connections as the server admits send nothing, or not the end. 2. Others are served all the same."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS_MAX", 0.5)
    with console(CONFIG, "127.0.0.1:1") as address, ExitStack() as stack:
        host, _, port = address.rpartition(":")
        for _ in range(REQUESTS_MAX):
            silent = stack.enter_context(socket.create_connection((host, int(port))))
            silent.sendall(sent)
        until(lambda: ask(address, "/healthz").status == 200, "a place is free")


def test_a_body_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "REQUEST_SECONDS", 0.5)
    with console(CONFIG, "127.0.0.1:1") as address:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(HEAD + b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
            assert b" 408 " in client.recv(1_000).partition(b"\r\n")[0]
