"""Conversion of RocketMQ messages for Kafka consumers, when they are read.

Messages back to back become one batch; a message becomes a record:

    offset            queue offset
    timestamp         born timestamp
    key               the property KEYS, null without one
    value             the body, decompressed
    headers           all other properties, including TAGS and UNIQ_KEY, in their order

Messages of one producer mostly have properties of the same names in the same order. Such a
`_Layout` is compiled the second time in a row that it comes: a pattern cuts out the values, and a
function encodes the record. Other messages are taken apart one by one, at three times the cost.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from steelyard.errors import ProtocolError
from steelyard.types import Effort
from steelyard.wire.kafka.packing import Pieces, pack_batch, pack_record, packer
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.flags import SysFlag, decompress
from steelyard.wire.remoting.message import record_parts

CONVERTED_BYTES_MAX = 1024 * 1024
"""Maximum bytes of RocketMQ messages that become one batch."""
BODY_BYTES_MAX = 16 * 1024 * 1024
"""Largest decompressed body for Kafka's consumers, some 20 ms of work.

It is four times the default maxMessageSize.
"""

RECORD_EFFORT = 2
"""The effort of reading a message and making a record of it."""
HEADERS_PER_EFFORT = 2
BYTES_PER_EFFORT = 1_000
"""Bytes of a message that are copied and checksummed in a microsecond."""

LAYOUTS_MAX = 128
"""Maximum of layouts that are kept."""
LAYOUT_NAMES_MAX = 32
"""Maximum properties of a message with a layout."""
LAYOUT_EFFORT = 300
"""The effort of compiling a layout, and of each of its names a tenth."""

_COMPRESSED = int(SysFlag.COMPRESSED)
_KEYS = props.KEYS.encode()


class _Layout(NamedTuple):
    """Names of properties in their order.

    `match`: a pattern, for ASCII text, whose groups are the values. `pack`: see `packer`.
    """

    match: Callable[[bytes], re.Match[bytes] | None]
    pack: Callable[..., Pieces]
    effort: int


class Layouts:
    """The layouts that a broker has compiled, at most LAYOUTS_MAX.

    Each broker has its own: others in the process must not change the effort of its requests.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], _Layout] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, names: tuple[bytes, ...]) -> tuple[_Layout, int]:
        """Return the layout and the effort of compiling it, 0 if it was there already."""
        known = self._known.get(names)
        if known is not None:
            return known, 0
        if len(self._known) >= LAYOUTS_MAX:
            self._known.clear()
        pattern = b"\x02".join([re.escape(name) + b"\x01([^\x02]++)" for name in names]) + b"\x02?"
        key_at = names.index(_KEYS) if _KEYS in names else -1
        pack = packer(names, key_at)
        made = _Layout(re.compile(pattern).fullmatch, pack, _effort(len(names)))
        self._known[names] = made
        return made, LAYOUT_EFFORT + len(names) * LAYOUT_EFFORT // 10


def to_batch(data: bytes, bytes_max: int, effort: Effort, layouts: Layouts) -> tuple[bytes, int]:
    """Convert RocketMQ records to one batch; return it, and the offset after its last.

    `data` has records of consecutive offsets back to back, at least one, as a `Run` of
    `entry.RECORDS` does. As many are taken as fit into `bytes_max` and CONVERTED_BYTES_MAX, as
    stored and with bodies decompressed, and as the effort allows, but always one. `layouts`: those
    of this broker.
    """
    bytes_max = min(bytes_max, CONVERTED_BYTES_MAX)
    end, first, sys_flag, base_timestamp, body, properties = record_parts(data)
    timestamp = max_timestamp = base_timestamp
    pieces: list[bytes] = []
    count = 0
    names: tuple[bytes, ...] | None = None
    layout: _Layout | None = None
    plain_bytes = 0
    left = effort.left
    while True:
        if sys_flag & _COMPRESSED:
            body = _decompressed(body, sys_flag)
        plain = len(body) + len(properties)
        plain_bytes += plain
        if count and plain_bytes > bytes_max:
            break
        delta = timestamp - base_timestamp
        if (
            layout is not None
            and properties.isascii()
            and (texts := layout.match(properties)) is not None
        ):
            pieces += layout.pack(delta, count, body, *texts.groups())
            left -= layout.effort + plain // BYTES_PER_EFFORT
        else:
            values = _values(properties)
            before, names = names, tuple(values)
            if names == before and len(names) <= LAYOUT_NAMES_MAX:
                layout, spent = layouts.of(names)
                left -= spent
            key = values.pop(_KEYS, None)
            pieces.append(pack_record(delta, count, key, body, values.items()))
            left -= _effort(len(values)) + plain // BYTES_PER_EFFORT
        count += 1
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if end >= len(data) or left <= 0:
            break
        end, _, sys_flag, timestamp, body, properties = record_parts(data, end)
        if end > bytes_max:
            break
    effort.left = left
    batch = pack_batch(
        b"".join(pieces),
        base_offset=first,
        count=count,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
    )
    return batch, first + count


def _effort(headers: int) -> int:
    return RECORD_EFFORT + headers // HEADERS_PER_EFFORT


def _decompressed(body: bytes, sys_flag: int) -> bytes:
    """Return a body decompressed; as it is if that fails or takes more than BODY_BYTES_MAX."""
    try:
        return decompress(body, sys_flag, BODY_BYTES_MAX)
    except ProtocolError:
        return body


def _values(properties: bytes) -> dict[bytes, bytes]:
    """Return values by name; the rules are those of `decode_properties`."""
    if not properties.isascii():
        properties = str(properties, "utf-8", "replace").encode()
    values: dict[bytes, bytes] = {}
    for segment in properties.split(b"\x02"):
        name, _, value = segment.partition(b"\x01")
        if name and value:
            values[name] = value
    return values
