"""12 QUERY_MESSAGE: messages of a topic by one of their keys, or by their unique key.

There is no index of keys: it would cost every send something, and the few who ask can wait. The
topic's queues are searched for the key, within the given times, in steps of about STEP_BYTES or
STEP_ROWS, one each millisecond; between them the broker serves everybody else. A step takes 1 to
2 ms, some 8 ms if every message contains the key, so that 400,000 messages or 400 MB are searched
in a second. A search that is not done after SEARCH_MS ends with what was found so far; tools wait
15 s.

The newest messages are searched first. With a unique key it is the oldest, because tools pass the
time in the key as the beginning. The answer holds at most `maxNum` messages, the newest first; it
is 22 if nothing was found, and 2 if too many searches are under way. Messages that came as Kafka
batches are converted for the search, which takes some 20 times as long.
Source: broker/processor/QueryMessageProcessor.java, store/index/IndexService.java (which has an
index on disk).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator

import msgspec

from steelyard.errors import ProtocolError, StorageError
from steelyard.groups.remoting.subscriptions import ALL
from steelyard.nodes.broker.conversion.to_rocketmq import Conversion
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.seam import Effect, Link, Send, SetTimer
from steelyard.store.log import Log
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.frame import ANSWER_BYTES_MAX
from steelyard.wire.remoting.headers import QueryMessageRequestHeader
from steelyard.wire.remoting.message import decode_records, record_size
from steelyard.wire.remoting.properties import KEY_SEPARATOR, UNIQ_KEY

QUERY_TIMER = "query"

QUERIES_MAX = 16
"""Maximum of searches under way."""
STEP_BYTES = 2 * 1024 * 1024
STEP_ROWS = 1_024
STEP_INTERVAL_MS = 1
SEARCH_MS = 4_000
STEP_WINDOWS = 32
FOUND_MAX = 64
"""Maximum messages in one answer: maxMsgsNumBatch of tools is 64."""
FOUND_BYTES_MAX = 8 * 1024 * 1024
"""Maximum bytes in one answer, which holds at least one message."""


class KeyedMessage(msgspec.Struct, frozen=True):
    """A message that has the key."""

    stored_at: int
    address: int
    record: bytes


class _Search(msgspec.Struct):
    """A request that is being answered. Each advance of `steps` does a part of the work."""

    request: RemotingRequest
    deadline: int
    count_max: int
    found: list[KeyedMessage]
    steps: Iterator[None]


class Queries:
    """Searches for messages; see the module docstring."""

    def __init__(self, parts: Parts, conversion: Conversion) -> None:
        self._store = parts.store
        self._conversion = conversion
        self._durability = parts.durability
        self._searches: deque[_Search] = deque()

    @serves(RequestCode.QUERY_MESSAGE)
    def query(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command | None:
        header = request.header(QueryMessageRequestHeader)
        if request.is_oneway:
            return None
        if len(self._searches) >= QUERIES_MAX:
            remark = f"more than {QUERIES_MAX} queries are in progress"
            return request.reply(ResponseCode.SYSTEM_BUSY, remark)
        found: list[KeyedMessage] = []
        count_max = max(1, min(header.max_num, FOUND_MAX))
        steps = self._search(header, count_max, found)
        self._searches.append(_Search(request, now + SEARCH_MS, count_max, found, steps))
        self.due(now, effects)
        return None

    def due(self, now: int, effects: list[Effect]) -> None:
        """Do one step of the search that has waited longest."""
        if self._searches:
            search = self._searches.popleft()
            answer = _step(search, now)
            if answer is None:
                self._searches.append(search)
            else:
                effects.append(Send(search.request.peer.link, answer))
        if self._searches:
            effects.append(SetTimer(QUERY_TIMER, now + STEP_INTERVAL_MS))

    def closed(self, link: Link) -> None:
        """Drop the searches of a closed link."""
        self._searches = deque(
            search for search in self._searches if search.request.peer.link != link
        )

    # -- searching -------------------------------------------------------------------------------

    def _search(
        self, header: QueryMessageRequestHeader, count_max: int, found: list[KeyedMessage]
    ) -> Iterator[None]:
        """Search the queues in rounds, a window of each per round, until a round has found enough.

        A step ends at a `yield`.
        """
        key = header.key.encode(errors="replace")
        queues = [
            (log, _windows(log, self._readable_end(log), header))
            for log in self._store.logs(header.topic)
        ]
        rows = size = looked = 0
        while queues and key and len(found) < count_max:
            for queue in list(queues):
                looked += 1
                if looked % STEP_WINDOWS == 0:
                    yield
                log, windows = queue
                window = next(windows, None)
                if window is None:
                    queues.remove(queue)
                    continue
                offset = window.start
                while offset < window.stop:
                    if rows >= STEP_ROWS or size >= STEP_BYTES:
                        rows = size = 0
                        yield
                    rows_left = min(window.stop - offset, STEP_ROWS - rows)
                    part = log.read(offset, rows_left, STEP_BYTES, None, window.stop)
                    is_batch = part.next_offset <= offset
                    if is_batch:
                        converted = self._conversion.read(
                            log, offset, rows_left, STEP_BYTES, ALL, window.stop
                        )
                        if converted is None:  # more of the batch is unpacked in the next step
                            yield
                            continue
                        part = converted
                    if part.next_offset <= offset:
                        break  # the topic was deleted meanwhile
                    found += _with_key(part.data, part.count, header.key, key)
                    _keep_newest(found, count_max)
                    rows += part.next_offset - offset
                    size += len(part.data)
                    offset = part.next_offset
                    if is_batch:
                        rows = STEP_ROWS

    def _readable_end(self, log: Log) -> int:
        return self._conversion.readable_end(log, self._durability.readable_end(log))

    def check(self) -> None:
        assert len(self._searches) <= QUERIES_MAX


def _windows(log: Log, end: int, header: QueryMessageRequestHeader) -> Iterator[range]:
    """Yield the offsets stored in the requested time, a window at a time."""
    low = log.offset_at_time(header.begin_timestamp)
    high = min(end, log.offset_at_time(header.end_timestamp + 1))
    starts = range(low, high, STEP_ROWS)
    for start in starts if header.unique_key_query else reversed(starts):
        yield range(start, min(start + STEP_ROWS, high))


def _with_key(data: bytes, count: int, key: str, needle: bytes) -> list[KeyedMessage]:
    """Return the messages that have the key, from records back to back.

    Only records that contain its bytes are decoded.
    """
    found: list[KeyedMessage] = []
    place = data.find(needle)
    if place < 0:
        return found
    starts = [0]
    for _ in range(count - 1):
        starts.append(starts[-1] + record_size(data, starts[-1]))
    while place >= 0:
        number = bisect_right(starts, place) - 1
        end = starts[number + 1] if number + 1 < count else len(data)
        record = data[starts[number] : end]
        view = decode_records(record)[0]
        has_key = key == view.property_of(UNIQ_KEY) or key in view.keys.split(KEY_SEPARATOR)
        if has_key and len(record) <= ANSWER_BYTES_MAX:
            found.append(KeyedMessage(view.store_timestamp, view.physical_offset, record))
        place = data.find(needle, end)
    return found


def _keep_newest(found: list[KeyedMessage], count_max: int) -> None:
    """Keep what fits into the answer: the newest `count_max` messages and FOUND_BYTES_MAX bytes."""
    found.sort(key=lambda item: (-item.stored_at, -item.address))
    size = 0
    for number, item in enumerate(found):
        size += len(item.record)
        if number == count_max or (number and size > FOUND_BYTES_MAX):
            del found[number:]
            return


def _step(search: _Search, now: int) -> Command | None:
    """Do a step; return the answer if the search has ended."""
    try:
        next(search.steps)
    except StopIteration:
        return _answer(search, "can not find message, maybe time range not correct", now)
    except (StorageError, ProtocolError) as error:
        return search.request.reply(ResponseCode.SYSTEM_ERROR, str(error))
    if now < search.deadline:
        return None
    return _answer(search, "the search took too long; give a smaller range of time", now)


def _answer(search: _Search, remark: str, now: int) -> Command:
    """Return what was found; `remark` says why it is nothing."""
    header = headers.QueryMessageResponseHeader(
        index_last_update_timestamp=now, index_last_update_phyoffset=0
    )
    body = b"".join([item.record for item in search.found])
    code = ResponseCode.SUCCESS if body else ResponseCode.QUERY_NOT_FOUND
    return search.request.reply(code, "" if body else remark, headers.write(header), body)
