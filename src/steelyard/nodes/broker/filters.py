"""Filters by properties: reading a queue with a condition, and 46 CHECK_CLIENT_CONFIG.

A client with an SQL92 subscription sends request 46 before it starts. The answer is 1 if the broker
does not filter by properties, and 23 with the reason if the expression is invalid. A message whose
properties a condition cannot be applied to does not match. Messages of a `%RETRY%` topic are
filtered by the subscription to that topic, as in RocketMQ's default (filterSupportRetry=false);
clients subscribe to it with `*`.
Source: broker/processor/ClientManageProcessor.checkClientConfig,
broker/filter/ExpressionMessageFilter.java.
"""

from __future__ import annotations

from steelyard.config import BrokerConfig
from steelyard.errors import ProtocolError
from steelyard.groups.remoting.subscriptions import Filter, is_tag, matches, parse
from steelyard.nodes.broker.requests import Refusal, RemotingRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.store.log import Log
from steelyard.store.reads import Slice
from steelyard.types import Effort
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import CheckClientBody
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import record_properties

SCAN_MESSAGES_MAX = 800
"""Maximum messages examined by one read, at some 4 µs each.

RocketMQ examines as many: maxFilterMessageSize is 16,000 bytes of its index.
"""

SCAN_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of the log after which a read ends; it examines at least one message."""

_PIECE_BYTES = 256 * 1024
_MESSAGE_EFFORT = 3
_BYTES_PER_EFFORT = 64
"""Bytes of properties decoded in a microsecond."""
_READ_BYTES_PER_EFFORT = 4_096


class Filters:
    """Handler of 46 CHECK_CLIENT_CONFIG."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    @serves(RequestCode.CHECK_CLIENT_CONFIG)
    def check_client(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        data = fastjson.read(CheckClientBody, request.body).subscription_data
        if data is None or is_tag(data.expression_type):
            return request.reply()
        if not self._config.property_filter:
            raise not_filtering(data.expression_type)
        try:
            parse(data.sub_string, data.expression_type)
        except ProtocolError as error:
            return request.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return request.reply()


def not_filtering(expression_type: str | None) -> Refusal:
    """Return the refusal of a broker that filters by tags only."""
    remark = f"The broker does not support consumer to filter message by {expression_type}"
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)


def read_matching(
    log: Log, offset: int, count_max: int, bytes_max: int, wanted: Filter, end: int, effort: Effort
) -> Slice:
    """Return entries from `offset` on that match a condition, as `Log.read` does for tags.

    The log must have `offset`, below `end`. As many entries are examined as the effort allows, at
    least one; an empty slice means "read on".
    """
    condition = wanted.condition
    assert condition is not None
    first = -1
    count = total = scanned = 0
    runs: list[bytes] = []
    next_offset = offset
    stop = min(end, offset + SCAN_MESSAGES_MAX)
    while next_offset < stop and scanned < SCAN_BYTES_MAX and effort.left > 0:
        piece = log.read(next_offset, stop - next_offset, _PIECE_BYTES, None, end)
        next_offset = piece.first_offset  # beyond what compaction removed
        if not piece.count:
            break
        scanned += len(piece.data)
        effort.left -= len(piece.data) // _READ_BYTES_PER_EFFORT
        run_start = run_end = position = 0
        for _ in range(piece.count):
            properties, after = record_properties(piece.data, position)
            effort.left -= _MESSAGE_EFFORT + wanted.effort + len(properties) // _BYTES_PER_EFFORT
            if matches(condition, properties):
                size = after - position
                if count and total + size > bytes_max:
                    stop = next_offset
                    break
                if run_end != position:
                    runs.append(piece.data[run_start:run_end])
                    run_start = position
                run_end = after
                first = next_offset if first < 0 else first
                count += 1
                total += size
            position = after
            next_offset += 1
            if count == count_max or effort.left <= 0:
                stop = next_offset
                break
        runs.append(piece.data[run_start:run_end])
    return Slice(b"".join(runs), count, next_offset, first if count else next_offset)
