"""The background loop that all blocking clients of a process share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest

from steelyard.driver import loops
from steelyard.driver.loops import Background, new_loop


@pytest.fixture(params=[new_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def background(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Background]:
    maker: Callable[[], asyncio.AbstractEventLoop] = request.param
    monkeypatch.setattr(loops, "new_loop", maker)
    background = Background()
    yield background
    background.stop()


def test_a_coroutine_that_ends_the_program_does_not_end_the_loop(
    background: Background, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def stay() -> str:
        await asyncio.sleep(0)
        return "here"

    waiting = asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1, "waited"), background.loop)
    with caplog.at_level(logging.ERROR, "steelyard.loop"):
        with pytest.raises(SystemExit):
            background.wait(leave(), 60)
        assert background.wait(stay(), 60) == "here"
    assert waiting.result(60) == "waited"
    assert "the event loop goes on" in caplog.text
