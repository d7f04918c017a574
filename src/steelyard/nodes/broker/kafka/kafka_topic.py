"""A topic as Kafka clients see it, and as attributes of its RocketMQ topic, which keep it."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec

from steelyard.errors import ProtocolError
from steelyard.groups.ledger import LEDGER_TOPIC
from steelyard.nodes.broker.kafka.topic_settings import TopicSettingsReader
from steelyard.nodes.broker.topics import ID_ATTRIBUTE, LAYOUT_ATTRIBUTE
from steelyard.routes import layout as layouts
from steelyard.routes.layout import Layout

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, LEDGER_TOPIC))
"""Topics that Kafka clients see as internal: they may read but not write them."""


FIXED = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
"""Topics that do not grow: their partitions say who coordinates what."""


class KafkaTopic(msgspec.Struct, frozen=True, gc=False):
    """A topic of the cluster. `settings`: what was set, by Kafka's names."""

    name: str
    topic_id: bytes
    layout: Layout
    settings: Mapping[str, str]

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL

    @property
    def is_fixed(self) -> bool:
        """It cannot have more partitions."""
        return self.name in FIXED


def attributes_of(topic: KafkaTopic) -> dict[str, str]:
    """A topic's layout, id and settings as attributes of its RocketMQ topic."""
    return {
        **topic.settings,
        LAYOUT_ATTRIBUTE: layouts.write(topic.layout),
        ID_ATTRIBUTE: base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("="),
    }


def topic_of(
    name: str, attributes: Mapping[str, str], readers: TopicSettingsReader
) -> KafkaTopic | None:
    """The other way round, None where the attributes are not ours or make no sense. Wrong settings are left out."""
    try:
        layout = layouts.read(attributes.get(LAYOUT_ATTRIBUTE, ""))
        topic_id = base64.urlsafe_b64decode(attributes.get(ID_ATTRIBUTE, "") + "==")
    except (ProtocolError, ValueError):
        return None
    if not layout.extents or len(topic_id) != 16:
        return None
    return KafkaTopic(name, topic_id, layout, readers.sound(attributes))
