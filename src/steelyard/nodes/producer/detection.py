"""Checks whether brokers that failed are reachable again.

Every `detect_interval_ms` each of them is asked for the largest offset of the queue that failed
there. Any response makes it reachable. (Java treats an error code as no response, although it came
from the broker.)
Source: client/latency/LatencyFaultToleranceImpl.java `detectByOneRound`, with a fixed interval of 3
s;
DefaultMQProducerImpl.java, its `ServiceDetector`.
"""

from __future__ import annotations

from steelyard.errors import RemotingError
from steelyard.nodes.producer.peers import Detected, Peers
from steelyard.nodes.seam import Effect, SetTimer
from steelyard.produce.faults import FaultStrategy
from steelyard.types import LogLine, MessageQueue
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command

DETECT_TIMER = "detect"


class Detector:
    """The checks of one producer; idle unless the configuration says `detect`."""

    def __init__(self, peers: Peers, faults: FaultStrategy | None) -> None:
        self._peers = peers
        self._faults = faults if peers.config.detect else None
        self._queues: dict[str, MessageQueue] = {}

    def start(self, now: int, effects: list[Effect]) -> None:
        if self._faults is None:
            return
        effects.append(SetTimer(DETECT_TIMER, now + self._peers.config.detect_interval_ms))

    def remember(self, queue: MessageQueue) -> None:
        """Note that a send to this queue failed: its broker can be asked for it."""
        if self._faults is not None:
            self._queues[queue.broker_name] = queue

    def due(self, now: int, effects: list[Effect]) -> None:
        assert self._faults is not None
        config = self._peers.config
        effects.append(SetTimer(DETECT_TIMER, now + config.detect_interval_ms))
        for broker in self._faults.unreachable():
            queue = self._queues[broker]
            route = self._peers.routes.route(queue.topic)
            address = None if route is None else route.masters.get(broker)
            if address is None:
                self._faults.forget(broker)
                del self._queues[broker]
                continue
            header = headers.QueueRequestHeader(
                topic=queue.topic, queue_id=queue.queue_id, bname=broker
            )
            question = Command(code=RequestCode.GET_MAX_OFFSET, ext=headers.write(header))
            timeout_ms = config.detect_timeout_ms
            self._peers.calls.call(address, question, Detected(broker), now, timeout_ms, effects)

    def answered(
        self, asked: Detected, reply: Command | RemotingError, effects: list[Effect]
    ) -> None:
        assert self._faults is not None
        if isinstance(reply, RemotingError) or self._faults.reachable(asked.broker_name):
            return
        self._faults.returned(asked.broker_name)
        effects.append(LogLine("INFO", f"broker {asked.broker_name} can be reached again"))
