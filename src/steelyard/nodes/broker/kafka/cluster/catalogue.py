"""What a broker stores of the whole cluster, so that no fact is only in the nameservers' memory.

| table | key | value |
|---|---|---|
| `kafka_topics` | topic name | attributes as JSON: layout, id, settings |
| `kafka_brokers` | broker name | its `BrokerEntry` as JSON |
| `kafka_deleted_topics` | topic id, base64 | `all`: topic deleted; `part`: only the queues here |
| `kafka_handed_over` | topic, layout, broker | empty: what that broker kept is here (`handover`) |

Topics are stored even if this broker has no queue of them; brokers, once met, even while they are
down. `part` comes from a deletion through the RocketMQ listener. A power cut may lose the latest
writes; other brokers have the same facts. Methods that write raise StorageError.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

import msgspec

from steelyard.decoding import prepared
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic, attributes_of
from steelyard.routes.brokers import BrokerEntry
from steelyard.store.store import Store

DELETED_MAX = 100_000
"""Most deleted topics to remember; the oldest are forgotten first."""

WHOLE, PART = b"all", b"part"

_decode_attributes = msgspec.json.Decoder(prepared(dict[str, str])).decode
_decode_entry = msgspec.json.Decoder(prepared(BrokerEntry)).decode


class Catalogue:
    """The facts about the cluster on this broker's disk; see the module docstring."""

    def __init__(self, store: Store) -> None:
        self._topics = store.table("kafka_topics")
        self._brokers = store.table("kafka_brokers")
        self._deleted = store.table("kafka_deleted_topics")
        self._handed_over = store.table("kafka_handed_over")

    # -- topics ----------------------------------------------------------------------------------

    def topics(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield the name and the attributes of every topic; unreadable ones are left out."""
        for name, data in self._topics.items():
            try:
                yield name, _decode_attributes(data)
            except msgspec.DecodeError:
                continue

    def keep(self, topic: KafkaTopic) -> None:
        """Store what is known of a topic.

        If this broker's part of it was deleted, that is forgotten: the broker is to have a part
        again.
        """
        if self._deleted.get(_key(topic.topic_id)) == PART:
            self._deleted.delete(_key(topic.topic_id))
        data = msgspec.json.encode(attributes_of(topic))
        if self._topics.get(topic.name) != data:
            self._topics.put(topic.name, data)

    def drop(self, name: str) -> None:
        self._topics.delete(name)

    # -- deleted topics --------------------------------------------------------------------------

    def bury(self, topic_id: bytes, *, whole: bool) -> None:
        """Remember that a topic was deleted: `whole`, or only this broker's part of it."""
        key = _key(topic_id)
        if self._deleted.get(key) in (WHOLE, WHOLE if whole else PART):
            return
        if len(self._deleted) >= DELETED_MAX:
            self._deleted.delete(next(iter(self._deleted.items()))[0])
        self._deleted.put(key, WHOLE if whole else PART)

    def is_deleted(self, topic_id: bytes) -> bool:
        """Return whether the topic with this id was deleted on all brokers."""
        return self._deleted.get(_key(topic_id)) == WHOLE

    def has_no_part(self, topic_id: bytes) -> bool:
        """Return whether this broker's part of the topic was deleted."""
        return _key(topic_id) in self._deleted

    # -- brokers ---------------------------------------------------------------------------------

    def brokers(self) -> Iterator[BrokerEntry]:
        """Yield all brokers ever met, in that order; unreadable ones are left out."""
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
