"""Batches that Apache's brokers store as one message.

They do so with those of Java's producers in topics that have `queue.type=BatchCQ` (RocketMQ 5), and
leave it to consumers to take them apart. Such a message has the offset of the first one in it, no
tag, and a batch for a body.
Source: client/impl/consumer/PullAPIWrapper.java, common/message/MessageDecoder.java
`decodeMessage`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from msgspec.structs import replace

from steelyard.errors import ProtocolError
from steelyard.wire.remoting.flags import SysFlag
from steelyard.wire.remoting.message import MessageView, batch_entries

_MARKS = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
_PLAIN = ~(_MARKS | SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK)


def unwrapped(messages: list[MessageView], offset: int) -> list[MessageView]:
    """Return the messages of a pull at `offset`, with those of batches one by one.

    A pull inside of a batch is answered with all of it: what lies before `offset` is left out. A
    damaged batch remains one message, as in Java.
    """
    if not any(message.sys_flag & SysFlag.INNER_BATCH for message in messages):
        return messages
    found: list[MessageView] = []
    for message in messages:
        if message.sys_flag & _MARKS != _MARKS:
            found.append(message)
            continue
        try:
            found += [each for each in _inner(message) if each.queue_offset >= offset]
        except ProtocolError:
            found.append(message)
    return found


def _inner(batch: MessageView) -> Iterator[MessageView]:
    """Yield the messages of a batch. Raises ProtocolError if it is damaged."""
    for place, (flag, body, properties) in enumerate(batch_entries(batch.body)):
        yield replace(
            batch,
            flag=flag,
            queue_offset=batch.queue_offset + place,
            sys_flag=batch.sys_flag & _PLAIN,
            body_crc=zlib.crc32(body) & 0x7FFFFFFF,
            stored_body=body,
            property_bytes=properties,
            _body=None,
            _properties=None,
        )
