"""The administrator of a scenario's topics: creates them on every broker, and lets them grow."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.nodes.admin import Invoke
from steelyard.nodes.seam import Address
from steelyard.sim.world import Process, World
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.names import DEFAULT_TOPIC

AGAIN_MS = 1_000
"""Delay after which a failed request is repeated."""

TIMEOUT_MS = 2_000


class TopicAdministrator:
    """`queues`: of each topic on each broker, at first.

    `admin`: the process that asks, while it runs.
    """

    def __init__(
        self,
        world: World,
        admin: Process,
        topics: Sequence[str],
        brokers: Sequence[Address],
        queues: int,
    ) -> None:
        self._world = world
        self._admin = admin
        self._topics = topics
        self._brokers = brokers
        self._queues = queues

    def create(self) -> None:
        """Create every topic on every broker; repeated until done."""
        for address in self._brokers:
            for topic in self._topics:
                self._create(address, topic)

    def grow(self, queues: int) -> None:
        """Add queues to every topic on every broker."""
        self._queues += queues
        self.create()

    def _create(self, address: Address, topic: str) -> None:
        header = headers.CreateTopicRequestHeader(
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=self._queues,
            write_queue_nums=self._queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=headers.write(header))

        def replied(result: object) -> None:
            if not isinstance(result, Command) or result.code != ResponseCode.SUCCESS:
                self._world.after(AGAIN_MS, lambda: self._create(address, topic))

        self._admin.ask(Invoke(address, command, TIMEOUT_MS), replied)
