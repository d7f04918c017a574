"""Standard input and output as pipes, without blocking the event loop.

Each waits in a daemon thread that takes no lock: an event loop may make descriptors non-blocking,
and those of a terminal belong to the shell as well.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

CHUNK_BYTES = 64 * 1024


async def input_lines(descriptor: int = 0) -> AsyncIterator[bytes]:
    """Yield each line without its end, as it arrives. Raises OSError."""
    rest = b""
    while chunk := await _in_thread(lambda: os.read(descriptor, CHUNK_BYTES)):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest.removesuffix(b"\r")


async def closed(descriptor: int) -> None:
    """Return when a pipe's reader has closed it; wait for ever if it is not a pipe."""
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        await asyncio.Event().wait()
    poll = select.poll()
    poll.register(descriptor, 0)  # errors come unasked

    def wait() -> bytes:
        poll.poll()
        return b""

    await _in_thread(wait)


async def _in_thread(call: Callable[[], bytes]) -> bytes:
    """Return the result of a call that may block for ever; a cancelled waiter abandons it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()

    def finish(result: bytes | OSError) -> None:
        if done.done():
            return
        if isinstance(result, OSError):
            done.set_exception(result)
        else:
            done.set_result(result)

    def work() -> None:
        result: bytes | OSError
        try:
            result = call()
        except OSError as error:
            result = error
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(finish, result)

    threading.Thread(target=work, daemon=True).start()
    return await done
