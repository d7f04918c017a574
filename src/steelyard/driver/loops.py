"""Event loops: uvloop if it is installed, otherwise asyncio's own; and one in the background.

Blocking clients of one process share one loop in one daemon thread: `background()`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar
from weakref import WeakSet

from steelyard.driver.logs import logger

T = TypeVar("T")

_log = logger("steelyard.loop")


def new_loop() -> asyncio.AbstractEventLoop:
    """Create an event loop of the fastest kind available."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion on a new loop."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


class Background:
    """One event loop in a daemon thread."""

    def __init__(self) -> None:
        self.forked = False
        """True in a forked child process: the thread exists only in the parent."""
        self.loop = new_loop()
        _backgrounds.add(self)
        self.thread = threading.Thread(target=self._run, name="steelyard", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # A user's coroutine or callback raised it, and asyncio lets it end a loop. All
                # clients of the process depend on this one, and would wait for ever.
                _log.exception("only a program's main thread can end it; the event loop goes on")
            else:
                return

    def wait(self, main: Coroutine[Any, Any, T], timeout_seconds: float | None = None) -> T:
        """Run a coroutine on the loop and wait for its end, from another thread."""
        if threading.current_thread() is self.thread:
            main.close()
            raise RuntimeError("a blocking call in the event loop's own thread would never return")
        return asyncio.run_coroutine_threadsafe(main, self.loop).result(timeout_seconds)

    def stop(self) -> None:
        """Stop the loop and wait until its thread has ended."""
        self.wait(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


_backgrounds: WeakSet[Background] = WeakSet()
_lock = threading.Lock()
_background: Background | None = None


def background() -> Background:
    """Return the process's background loop, started at the first call."""
    global _background
    with _lock:
        if _background is None:
            _background = Background()
        return _background


def _forget_in_child() -> None:
    """Forget the loop in a forked child, which starts its own; its clients must be made anew."""
    global _background, _lock
    for left_behind in _backgrounds:
        left_behind.forked = True
    _background = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)
