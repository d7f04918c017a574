"""Sending rows to brokers so that each of them is stored at least once.

- A request is done when its broker has answered SEND_OK.
- A broker that is away, busy or silent gets the request again (`under_way`). Rows that may go to
  any queue go to another broker, if there is one. A request whose answer was lost may have been
  stored, and is then stored twice.
- FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE mean that a message is stored, but
  not as safely as the broker is told to. Such a request is sent again, `STORED_TRIES_MAX` times in
  all, because each time stores it once more; then the task fails.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from steelyard.errors import (
    BrokerError,
    ConnectError,
    RemotingError,
    SteelyardError,
)
from steelyard.produce.rules import check_topic
from steelyard.spark.joining import contiguous, pieces
from steelyard.spark.options.writing import SinkOptions
from steelyard.spark.servers.link import Link
from steelyard.spark.servers.patience import Patience, persist
from steelyard.spark.servers.server_links import ServerLinks, WritableRoute
from steelyard.spark.writing import remoting_batches
from steelyard.spark.writing.rows import Rows
from steelyard.spark.writing.targets import Targets
from steelyard.spark.writing.under_way import RowsRequest, UnderWay
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.names import DEFAULT_TOPIC

STORED = frozenset(
    {
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
STORED_TRIES_MAX = 3
STORED_PAUSE_S = 0.1


@dataclass(slots=True)
class _Send(RowsRequest):
    """Messages on their way: a batch, or a single one if `properties` is given."""

    body: memoryview
    properties: str | None
    free: bool
    """Whether any queue would do."""
    stored: int = 0
    """How often they were stored, but not as they should be."""
    link: Link | None = None
    opaque: int = 0


class Sender(UnderWay[_Send]):
    """Writes the rows of one task."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options.retry_timeout_ms)
        self._options = options
        self._servers = ServerLinks(options.nameservers, options.timeout_ms, options.access)
        self._routes: dict[str, WritableRoute] = {}
        self._targets = Targets(options.topic, lambda topic: self._route(topic).queues)
        self._unique = remoting_batches.UniqueKeys()

    def close(self) -> None:
        self._servers.close()

    def send(self, rows: Rows) -> None:
        """Send rows; those of earlier calls are acknowledged, or wait for `flush`."""
        text = remoting_batches.properties(rows, self._unique)
        encoded = remoting_batches.encode(rows.body, text)
        delayed = dict(remoting_batches.delayed(rows, text))
        for target in self._targets.choose(rows):
            chosen = encoded if target.rows is None else encoded.take(pa.array(target.rows))
            if delayed:
                numbers = np.arange(rows.count) if target.rows is None else target.rows
                late = np.isin(numbers, [*delayed])
                chosen = chosen.filter(pa.array(~late))
                for row in numbers[late].tolist():
                    self.start(_Send(target.queue, False, *delayed[row], target.free))
            for part in pieces(chosen, self._options.messages_max):
                body = contiguous(part)
                self.start(_Send(target.queue, True, body, None, target.free))

    # -- requests ----------------------------------------------------------------------------------

    def transmit(self, request: _Send) -> None:
        topic, broker, queue_id = request.queue
        batch = request.properties is None
        header = headers.SendMessageRequestHeaderV2(
            producer_group=self._options.producer_group,
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=int(time.time() * 1000),
            flag=0,
            properties=request.properties or "",
            batch=batch,
            broker_name=broker,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
        request.link = None
        address = self._route(topic).addresses.get(broker)
        if address is None:
            raise ConnectError(f"no nameserver has an address of broker {broker!r}")
        link = self._servers.link(address)
        request.link = link
        command = Command(code, ext=headers.write(header), body=bytes(request.body))
        request.opaque = link.send(command)

    def receive(self, request: _Send) -> None:
        assert request.link is not None
        reply = request.link.receive(request.opaque)
        if reply.code != ResponseCode.SUCCESS:
            raise request.link.refusal(reply)

    def failed(self, request: _Send, error: SteelyardError, patience: Patience) -> None:
        if isinstance(error, BrokerError) and error.code in STORED:
            request.stored += 1
            if request.stored == STORED_TRIES_MAX:
                raise error
            time.sleep(STORED_PAUSE_S)
            return
        patience.wait(error)
        if isinstance(error, RemotingError):
            self._turn_away(request)

    def _turn_away(self, request: _Send) -> None:
        """Look up where a broker is now, and choose another one for rows that may go anywhere."""
        if request.link is not None:
            self._servers.drop(request.link.address, request.link)
        topic, broker, _ = request.queue
        try:
            route = self._routes[topic] = self._servers.writable(topic)
        except SteelyardError:
            return
        others = [queue for queue in route.queues if queue[1] != broker]
        if request.free and others:
            request.queue = others[0]

    # -- routes ------------------------------------------------------------------------------------

    def _route(self, topic: str) -> WritableRoute:
        """Return the route of a topic, known or new. Raises MessageError or RouteError."""
        if topic not in self._routes:
            check_topic(topic)
            timeout_ms = self._options.retry_timeout_ms
            self._routes[topic] = persist(lambda: self._servers.writable(topic), timeout_ms)
        return self._routes[topic]
