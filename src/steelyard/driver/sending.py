"""Sending of frames with file ranges, bypassing a link's transport.

The kernel sends file ranges without Python reading them; reading a file and writing it to a socket
would copy every byte three more times. asyncio sends files only one at a time and as a separate
task, uvloop not at all: so this writes to the link's socket itself while the transport has nothing
to write.
Source: java.nio.FileChannel.transferTo, which Kafka's brokers use for fetches.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import TYPE_CHECKING

from steelyard.driver.ranges import LiveRange

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from steelyard.types import Sendable

SENDS_MAX = 32
"""Maximum pieces, or parts of them, that a link sends before it is the turn of others."""
SEND_BUFFER_BYTES = 256 * 1024
"""Send buffer of the link's socket (Kafka: socket.send.buffer.bytes, 100 KiB).

By default the kernel takes megabytes at once, which have left the processor's caches when the peer
reads them: that costs a quarter of the throughput.
"""
_MORE = getattr(socket, "MSG_MORE", 0)  # Linux: a frame's head goes out with what follows it


class LinkSending:
    """What one link sends; see the module's text. `left`: bytes that the kernel has not taken yet.

    `left`: bytes not yet accepted by the kernel.

    `on_end` is called when everything is sent, `on_error` when the link is broken or a file cannot
    be read; neither before `send` has returned.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[], None],
        on_error: Callable[[str], None],
    ) -> None:
        # A duplicate descriptor, because the loop lets nobody else wait for the transport's.
        self._socket: socket.socket = transport.get_extra_info("socket").dup()
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._loop = loop
        self._on_end = on_end
        self._on_error = on_error
        self._pieces: deque[Sendable] = deque()
        self._sent = 0
        self._waits = False
        self.left = 0

    def send(self, pieces: Iterable[Sendable]) -> None:
        """Send `bytes` and `LiveRange`s after everything passed before."""
        for piece in pieces:
            self._pieces.append(piece)
            self.left += len(piece)
        if not self._waits:
            try:
                self._waits = not self._go_on()
            except OSError:  # not now, or never: `_ready` will find out
                self._waits = True
            if self._waits:
                self._loop.add_writer(self._socket, self._ready)

    def _ready(self) -> None:
        """Continue, because the kernel accepts more."""
        try:
            is_done = self._go_on()
        except BlockingIOError:
            return
        except OSError as error:
            self.close()
            self._on_error(str(error))
            return
        if is_done:
            self._loop.remove_writer(self._socket)
            self._waits = False
            self._on_end()

    def _go_on(self) -> bool:
        """Send what the kernel accepts; return False if it is the turn of others.

        Raises OSError, BlockingIOError if the kernel's buffer is full.
        """
        pieces = self._pieces
        for _ in range(SENDS_MAX):
            if not pieces:
                return True
            piece = pieces[0]
            if isinstance(piece, bytes):
                rest = memoryview(piece)[self._sent :]
                sent = self._socket.send(rest, _MORE if len(pieces) > 1 else 0)
            else:
                assert isinstance(piece, LiveRange)
                sent = piece.send(self._socket.fileno(), self._sent)
            self.left -= sent
            self._sent += sent
            if self._sent == len(piece):
                pieces.popleft()
                self._sent = 0
        return not pieces

    def close(self) -> None:
        """Discard unsent output."""
        if self._waits:
            self._loop.remove_writer(self._socket)
            self._waits = False
        self._pieces.clear()
        self.left = 0
        self._socket.close()
