"""The golden file of what fastjson takes is what RocketMQ's own classes say today."""

from __future__ import annotations

import json

import pytest
from tests.peers import apache, bodies

pytestmark = pytest.mark.peer


def test_golden_is_what_fastjson_says() -> None:
    try:
        said = bodies.ask_java()
    except apache.Missing as reason:
        pytest.skip(f"no foreign peers: {reason}")
    assert said == [json.loads(line) for line in bodies.GOLDEN.read_text().splitlines()]
