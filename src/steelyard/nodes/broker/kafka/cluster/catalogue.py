"""What a broker keeps on its own disk of the whole cluster, so that no fact is in the nameservers' memory only.

| table | key | value |
|---|---|---|
| `kafka_topics` | a topic's name | its attributes as JSON: layout, id, settings; also where this broker has no queue of it |
| `kafka_brokers` | a broker's name | its `BrokerEntry` as JSON; brokers that were met once stay known while they are down |
| `kafka_deleted_topics` | a topic's id, base64 | `all`: the topic was deleted; `part`: this broker's queues of it were (through its RocketMQ port) |
| `kafka_handed_over` | topic, layout and broker | empty: what that broker kept under that layout is here (`handover`) |

A power cut may lose the last moments; other brokers have the same facts. Methods that write raise StorageError.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

import msgspec

from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic, attributes_of
from steelyard.nodes.broker.peers.requests import BrokerEntry
from steelyard.store.store import Store

DELETED_MAX = 100_000
"""Most deleted topics that are remembered; the oldest are forgotten first."""

WHOLE, PART = b"all", b"part"

_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode
_decode_entry = msgspec.json.Decoder(BrokerEntry).decode


class Catalogue:
    """See the module's text."""

    def __init__(self, store: Store) -> None:
        self._topics = store.table("kafka_topics")
        self._brokers = store.table("kafka_brokers")
        self._deleted = store.table("kafka_deleted_topics")
        self._handed_over = store.table("kafka_handed_over")

    # -- topics ----------------------------------------------------------------------------------

    def topics(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """The name and the attributes of every topic; those that make no sense are left out."""
        for name, data in self._topics.items():
            try:
                yield name, _decode_attributes(data)
            except msgspec.DecodeError:
                continue

    def keep(self, topic: KafkaTopic) -> None:
        """Make what is known of a topic durable. Where this broker's part of it was deleted, it is to have one again."""
        if self._deleted.get(_key(topic.topic_id)) == PART:
            self._deleted.delete(_key(topic.topic_id))
        data = msgspec.json.encode(attributes_of(topic))
        if self._topics.get(topic.name) != data:
            self._topics.put(topic.name, data)

    def drop(self, name: str) -> None:
        self._topics.delete(name)

    # -- deleted topics --------------------------------------------------------------------------

    def bury(self, topic_id: bytes, *, whole: bool) -> None:
        """Remember that a topic was deleted, or this broker's part of it."""
        key = _key(topic_id)
        if self._deleted.get(key) in (WHOLE, WHOLE if whole else PART):
            return
        if len(self._deleted) >= DELETED_MAX:
            self._deleted.delete(next(iter(self._deleted.items()))[0])
        self._deleted.put(key, WHOLE if whole else PART)

    def is_deleted(self, topic_id: bytes) -> bool:
        """The topic with this id was deleted on all brokers."""
        return self._deleted.get(_key(topic_id)) == WHOLE

    def has_no_part(self, topic_id: bytes) -> bool:
        """This broker's part of it was deleted."""
        return _key(topic_id) in self._deleted

    # -- brokers ---------------------------------------------------------------------------------

    def brokers(self) -> Iterator[BrokerEntry]:
        """All that were met, in the order in which they were; those that make no sense are left out."""
        for data in dict(self._brokers.items()).values():
            try:
                yield _decode_entry(data)
            except msgspec.DecodeError:
                continue

    def keep_broker(self, entry: BrokerEntry) -> None:
        data = msgspec.json.encode(entry)
        if self._brokers.get(entry.name) != data:
            self._brokers.put(entry.name, data)

    # -- what was handed over --------------------------------------------------------------------

    def is_handed_over(self, topic: str, layout: str, broker: str) -> bool:
        return f"{topic} {layout} {broker}" in self._handed_over

    def keep_handed_over(self, topic: str, layout: str, broker: str) -> None:
        self._handed_over.put(f"{topic} {layout} {broker}", b"")


def _key(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
