"""Which module serves which request."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from tests.nodes.broker.kafka.conftest import KafkaRig

from steelyard.nodes.broker.requests import RemotingRequest, served, serves
from steelyard.nodes.seam import Effect


class TwoCodes:
    """Serves two codes with one handler."""

    @serves(1, 2)
    def handle(self, request: RemotingRequest, now: int, effects: list[Effect]) -> None:
        """Do nothing."""


def modules(handlers: Iterable[tuple[int, Callable[..., Any]]]) -> set[tuple[int, str]]:
    """(code, module). A `partial` has a handler of another module do the work, and names it first."""
    found = set()
    for code, handler in handlers:
        serving = handler.args[0] if isinstance(handler, partial) else handler
        found.add((code, serving.__module__))
    return found


def test_no_two_parts_serve_the_same_code() -> None:
    part = TwoCodes()
    assert served((part, object())) == {1: part.handle, 2: part.handle}
    with pytest.raises(AssertionError, match="served twice: 1"):
        served((part, TwoCodes()))


def test_each_module_names_what_it_serves() -> None:
    rig = KafkaRig()
    assert rig.node._kafka is not None
    remoting = modules(rig.node._remoting._handlers.items())
    kafka = modules(rig.node._kafka.channel._handlers.items())
    assert len(remoting) > 50
    assert len(kafka) > 30
    for code, module in sorted(remoting | kafka):
        text = sys.modules[module].__doc__
        assert text is not None
        assert re.search(rf"\b{code}\b", text), f"{module} does not say that it serves {code}"
