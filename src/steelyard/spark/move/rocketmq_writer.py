"""Appending to a queue of RocketMQ without repetitions.

RocketMQ's brokers recognize no repetition, so requests of a queue are sent one after the other. If
the answer to one is lost, the writer waits until the end of the queue has stood still for
`SETTLE_S` (Apache's brokers refuse a request that has waited for 200 ms, ours do not let it wait),
and sends what is not stored. Each answer has the offset of the message, so that a request that a
broker stored even later, or a message of somebody else, is noticed at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from steelyard.errors import BrokerError, ConnectError, RemotingError
from steelyard.spark.move.contract import Token, written_by_others
from steelyard.spark.move.messages import MovedMessage, requests
from steelyard.spark.offsets import QueueName
from steelyard.spark.options.reading import Options
from steelyard.spark.servers.link import Link
from steelyard.spark.servers.patience import Patience
from steelyard.spark.servers.server_links import ServerLinks
from steelyard.spark.writing.sending import STORED
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import BatchEntry, encode_batch
from steelyard.wire.remoting.names import DEFAULT_TOPIC, MASTER_ID
from steelyard.wire.remoting.properties import encode_properties

PRODUCER_GROUP = "steelyard-move"
SETTLE_S = 5.0
LOOK_S = 0.25
"""Time between two looks at the end of a queue."""


class RocketMQAppender:
    """Appends to one queue."""

    def __init__(self, options: Options, queue: QueueName) -> None:
        self._queue = queue
        self._retry_timeout_ms = options.retry_timeout_ms
        self._servers = ServerLinks(options.nameservers, options.timeout_ms, options.access)
        self._address = ""

    def close(self) -> None:
        self._servers.close()

    def token(self, count: int) -> Token | None:
        del count
        return None

    def append(
        self, records: Sequence[MovedMessage], at: int, token: Token | None, *, unsure: bool = False
    ) -> None:
        del token
        patience = Patience(self._retry_timeout_ms)
        left, end = list(records), at + len(records)
        while left:
            try:
                if unsure:
                    found = self._settled_end()
                    if not end - len(left) <= found <= end:
                        raise written_by_others(self._queue, found, end - len(left))
                    left = left[len(left) - (end - found) :]
                    unsure = False
                for messages in [*requests(left)]:
                    self._store(messages, end - len(left))
                    left = left[len(messages) :]
                    patience.reset()
            except (RemotingError, BrokerError) as error:
                unsure = unsure or isinstance(error, RemotingError)
                if isinstance(error, RemotingError):
                    self._servers.close()
                    self._address = ""
                patience.wait(error)

    def _store(self, messages: Sequence[MovedMessage], at: int) -> None:
        link = self._link()
        reply = link.receive(link.send(self._request(messages)))
        if reply.code != ResponseCode.SUCCESS and reply.code not in STORED:
            raise link.refusal(reply)
        found = headers.read(headers.SendMessageResponseHeader, reply.ext).queue_offset
        if found != at:
            raise written_by_others(self._queue, found, at)

    def _request(self, messages: Sequence[MovedMessage]) -> Command:
        topic, broker, queue_id = self._queue
        first = messages[0]
        texts = [encode_properties(message.properties) for message in messages]
        batch = len(messages) > 1
        header = headers.SendMessageRequestHeaderV2(
            producer_group=PRODUCER_GROUP,
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=first.sys_flag,
            born_timestamp=first.born_timestamp,
            flag=0 if batch else first.flag,
            properties="" if batch else texts[0],
            reconsume_times=first.reconsume_times,
            batch=batch,
            broker_name=broker,
        )
        if not batch:
            ext = headers.write(header)
            return Command(RequestCode.SEND_MESSAGE_V2, ext=ext, body=first.stored_body)
        entries = [
            BatchEntry(message.flag, message.body, text.encode())
            for message, text in zip(messages, texts, strict=True)
        ]
        code, body = RequestCode.SEND_BATCH_MESSAGE, encode_batch(entries)
        return Command(code, ext=headers.write(header), body=body)

    def _settled_end(self) -> int:
        """Return where the queue ends, when that has not changed for a while."""
        found, since = self._end(), time.monotonic()
        while time.monotonic() < since + SETTLE_S:
            time.sleep(LOOK_S)
            now = self._end()
            if now != found:
                found, since = now, time.monotonic()
        return found

    def _end(self) -> int:
        topic, broker, queue_id = self._queue
        header = headers.QueueRequestHeader(topic=topic, queue_id=queue_id, bname=broker)
        request = Command(RequestCode.GET_MAX_OFFSET, ext=headers.write(header))
        return headers.read(headers.OffsetResponseHeader, self._link().call(request).ext).offset

    def _link(self) -> Link:
        topic, broker, _ = self._queue
        if not self._address:
            for data in self._servers.route(topic).broker_datas:
                if data.broker_name == broker and MASTER_ID in data.broker_addrs:
                    self._address = data.broker_addrs[MASTER_ID]
            if not self._address:
                raise ConnectError(f"no nameserver has an address of broker {broker!r}")
        return self._servers.link(self._address)
