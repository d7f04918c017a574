"""Connections that fill a listener up to its bound."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.driver.test_strangers import API_VERSIONS
from tests.waiting import until

from steelyard.wire.remoting import frame
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command

KAFKA = API_VERSIONS
REMOTING = frame.encode(Command(code=RequestCode.GET_BROKER_RUNTIME_INFO))
BOUND = 12
"""Room for what the connected clients need, and for some of the crowd."""


@contextmanager
def crowd(address: str, request: bytes) -> Iterator[None]:
    """Nobody else gets in: as many connections are held as there is room for. Each has sent a request."""
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        for _ in range(BOUND + 1):
            each = stack.enter_context(socket.create_connection((host, int(port)), 20))
            try:
                each.sendall(request)
                admitted = each.recv(1)
            except ConnectionError:
                admitted = b""
            if not admitted:
                break
        else:
            pytest.fail("all got in")
        yield


def wait_refused(log: Path) -> None:
    """Until the server has said whom it did not let in."""
    until(lambda: "was refused" in log.read_text(), f"a refusal in {log}")


def insist(act: Callable[[], object], *errors: type[Exception]) -> None:
    """What an application does that is refused: try again."""

    def succeeds() -> bool:
        try:
            act()
        except errors:
            return False
        return True

    until(succeeds, act, 90)
