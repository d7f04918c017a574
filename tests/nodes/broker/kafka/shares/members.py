"""Members of share groups that ask a broker by hand: their sessions, fetches and acknowledgements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.requests import producing

from steelyard.nodes.seam import Effect, Mute
from steelyard.wire.kafka.messages.configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from steelyard.wire.kafka.messages.data import ProduceResponse
from steelyard.wire.kafka.messages.share_data import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ForgottenShareTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    SharePartitionData,
)

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
TOPIC = "orders"
Acks = dict[int, list[tuple[int, int, int]]]
"""By partition: first and last offset, and the type."""


def produce(rig: KafkaRig, *values: bytes, partition: int = 0, topic: str = TOPIC) -> None:
    """Store one batch."""
    answer = rig.ask(producing(topic, partition, batch(*values)), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0


def configure(rig: KafkaRig, group: str, **settings: object) -> None:
    """Set what a group is told; underscores stand for dots."""
    configs = [
        ConfigOperation(name.replace("_", "."), 0, str(value)) for name, value in settings.items()
    ]
    resource = IncrementalAlterConfigsResource(32, group, configs)
    request = IncrementalAlterConfigsRequest([resource])
    answer = rig.ask(request, 1, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == 0, answer


class ShareRig(KafkaRig):
    """A broker with one topic for share groups. `topic_id`: its id. `muted`: links that it does not read now."""

    topic_id = b""

    def _make_other_true(self, effect: Effect) -> None:
        assert isinstance(effect, Mute), f"not expected here: {effect}"
        self.muted = {*getattr(self, "muted", ()), effect.link}


class ShareMember:
    """A member with a session. `fetch` begins it, and names all `partitions` of the topic."""

    def __init__(
        self,
        rig: KafkaRig,
        topic_id: bytes,
        name: str = "m",
        group: str = "g",
        partitions: Sequence[int] = (0,),
    ) -> None:
        self.rig, self.topic_id = rig, topic_id
        self.name, self.group, self.partitions = name, group, partitions
        self.epoch = 0
        self.link = rig.connect()

    def request(
        self, acks: Acks | None = None, *, forget: Sequence[int] = (), **fields: Any
    ) -> ShareFetchRequest:
        """The next fetch."""
        named = acks or ({each: [] for each in self.partitions} if not self.epoch else {})
        values: dict[str, Any] = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": self.naming(named),
            "forgotten_topics_data": [ForgottenShareTopic(self.topic_id, forget)] if forget else (),
        }
        epoch, self.epoch = self.epoch, self.epoch + 1
        return ShareFetchRequest(self.group, self.name, epoch, **(values | fields))

    def naming(self, acks: Acks) -> list[AcknowledgeTopic]:
        parts = [
            AcknowledgePartition(
                partition,
                [AcknowledgementBatch(first, last, [kind]) for first, last, kind in each],
            )
            for partition, each in acks.items()
        ]
        return [AcknowledgeTopic(self.topic_id, parts)] if parts else []

    def fetch(
        self, acks: Acks | None = None, *, forget: Sequence[int] = (), **fields: Any
    ) -> dict[int, SharePartitionData]:
        """What a fetch is answered at once, by partition."""
        request = self.request(acks, forget=forget, **fields)
        sent = self.rig.post(request, 2, link=self.link)
        if self.rig.answer_to(sent, ShareFetchResponse) is None:
            self.rig.advance(1)  # there is much to convert
        answer = self.rig.answer_to(sent, ShareFetchResponse)
        assert answer is not None
        assert answer.error_code == 0, answer
        return parts_of(answer)

    def waits(self, **fields: Any) -> int:
        """Send a fetch that may wait a minute; its correlation id."""
        return self.rig.post(self.request(**{"max_wait_ms": 60_000} | fields), 2, link=self.link)

    def got(self, correlation: int) -> list[tuple[int, int, int]] | None:
        """What a fetch that waited was given of partition 0; None while it waits."""
        answer = self.rig.answer_to(correlation, ShareFetchResponse)
        if answer is None:
            return None
        part = parts_of(answer).get(0)
        return [] if part is None else acquired(part)

    def acknowledge(
        self, acks: Acks, *, epoch: int | None = None, version: int = 2, renews: bool = False
    ) -> dict[int, int]:
        """The error of each partition."""
        epoch = self.epoch if epoch is None else epoch
        request = ShareAcknowledgeRequest(self.group, self.name, epoch, renews, self.naming(acks))
        answer = self.rig.ask(request, version, ShareAcknowledgeResponse, link=self.link)
        assert answer.error_code == 0, answer
        self.epoch += 1
        return {
            part.partition_index: part.error_code
            for topic in answer.responses
            for part in topic.partitions
        }


def parts_of(answer: ShareFetchResponse) -> dict[int, SharePartitionData]:
    return {part.partition_index: part for topic in answer.responses for part in topic.partitions}


def acquired(part: SharePartitionData) -> list[tuple[int, int, int]]:
    return [
        (one.first_offset, one.last_offset, one.delivery_count) for one in part.acquired_records
    ]
