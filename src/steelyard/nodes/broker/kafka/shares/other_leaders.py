"""Asks all other brokers of the cluster what only those know that lead a share group's partitions.

The coordinator of a group sends them the client's request (`cluster.forwarding`); each answers for
what it leads.
"""

from __future__ import annotations

from collections.abc import Callable

from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.forwarding import Forwarding
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.schema import ApiMessage

Gathered = Callable[[list[ApiMessage | None], int, list[Effect]], None]
"""(answers, None for a broker that has not answered; now; effects to add to)."""


class OtherLeaders:
    """See the module docstring."""

    def __init__(self, cluster: Cluster, forwarding: Forwarding) -> None:
        self._cluster = cluster
        self._forwarding = forwarding

    def ask(self, message: ApiMessage, then: Gathered, now: int, effects: list[Effect]) -> None:
        """Ask the other brokers that are up; `then` gets their answers, at once without any."""
        others = [
            broker
            for broker in self._cluster.live_brokers()
            if broker.node_id != self._cluster.node_id
        ]
        answers: list[ApiMessage | None] = []

        def answered(answer: ApiMessage | None, now: int, effects: list[Effect]) -> None:
            answers.append(answer)
            if len(answers) == len(others):
                then(answers, now, effects)

        for broker in others:
            if not self._forwarding.send(broker, message, answered, now, effects):
                answered(None, now, effects)
        if not others:
            then(answers, now, effects)

    @property
    def is_whole(self) -> bool:
        """Return whether all brokers of the cluster are up.

        A broker that the operator left out of the list (`KafkaConfig.brokers`) is not waited for.
        """
        counts = self._cluster.membership.counts
        return all(one.live for one in self._cluster.brokers.values() if counts(one.name))
