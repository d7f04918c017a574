"""Asking an unknown server at an address what it is (see `wire.strangers`)."""

from __future__ import annotations

import asyncio

from steelyard.wire.strangers import HEAD_BYTES, Stranger, question


async def probe(address: str, wants: Stranger, timeout_ms: int) -> bytes:
    """The first bytes of the response to the `question` of a client that wants this protocol.

    Raises OSError if no response arrives in time, ValueError or OverflowError if `address` is not
    `host:port`.
    """
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(timeout_ms / 1000):
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        try:
            writer.write(question(wants))
            return await reader.readexactly(HEAD_BYTES)
        except asyncio.IncompleteReadError as error:
            return error.partial
        finally:
            writer.close()
