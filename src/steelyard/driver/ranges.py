"""Bytes in open files, which the kernel can send to a socket without Python reading them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable


class Descriptor:
    """The number of an open file, which is closed with its last reference."""

    __slots__ = ("_close", "number")

    def __init__(self, number: int, close: Callable[[int], None] = os.close) -> None:
        self.number = number
        self._close = close

    def __del__(self) -> None:
        self._close(self.number)


class LiveRange:
    """An unread range of a file: a `FileRange` that the kernel can send by itself."""

    __slots__ = ("_descriptor", "_position", "_size")

    def __init__(self, descriptor: Descriptor, position: int, size: int) -> None:
        self._descriptor = descriptor
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self) -> bytes:
        data = read_at(self._descriptor.number, self._position, self._size)
        if len(data) != self._size:
            raise OSError(errno.EIO, "the file has been cut")
        return data

    def send(self, socket_number: int, start: int) -> int:
        """Send the bytes from `start` on; return how many the kernel accepted.

        Raises OSError, BlockingIOError if none.
        """
        position, size = self._position + start, self._size - start
        sent = os.sendfile(socket_number, self._descriptor.number, position, size)
        if not sent:
            raise OSError(errno.EIO, "the file has been cut")
        return sent


def read_at(descriptor: int, position: int, size: int) -> bytes:
    """Read `size` bytes from `position`; fewer only at the end of the file. Raises OSError."""
    data = os.pread(descriptor, size, position)
    if len(data) == size or not data:
        return data
    parts = [data]
    missing = size - len(data)
    while missing:
        more = os.pread(descriptor, missing, position + size - missing)
        if not more:
            break
        parts.append(more)
        missing -= len(more)
    return b"".join(parts)
