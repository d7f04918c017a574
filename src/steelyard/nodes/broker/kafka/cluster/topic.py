"""A topic as Kafka clients see it, and as the attributes of its RocketMQ topic that store it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping

import msgspec

from steelyard.errors import ProtocolError
from steelyard.ledger.events import LEDGER_TOPIC
from steelyard.nodes.broker.kafka.cluster.topic_settings import TopicSettingsReader
from steelyard.nodes.broker.topics import (
    CREATED_ATTRIBUTE,
    ID_ATTRIBUTE,
    MERGED_ATTRIBUTE,
)
from steelyard.routes import layout as layouts
from steelyard.routes.layout import LAYOUT_ATTRIBUTE, Layout

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, LEDGER_TOPIC))
"""Topics that Kafka clients see as internal: they may read but not write them."""


FIXED = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
"""Topics that do not grow: their partitions determine who coordinates what."""

FIXED_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
"""Their settings, as in Kafka: `coordinator_logs` compacts them, and age deletes nothing."""


MERGED_MAX = 100
"""Most layouts that a topic's own was merged with."""


class KafkaTopic(msgspec.Struct, frozen=True, gc=False):
    """A topic of the cluster.

    `settings`: those that were set, by Kafka's names. `created_at`: ms since the epoch, 0 if
    unknown. `merged`: of a topic in FIXED, the other layouts that brokers had of it, sorted; what
    the brokers of those keep belongs to the brokers of this layout now (`handover`).
    """

    name: str
    topic_id: bytes
    layout: Layout
    settings: Mapping[str, str]
    created_at: int = 0
    merged: tuple[Layout, ...] = ()

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL

    @property
    def is_fixed(self) -> bool:
        """Return whether it cannot have more partitions."""
        return self.name in FIXED


def fixed_id(cluster: str, name: str) -> bytes:
    """Return the id of a topic in FIXED: the same whichever broker creates it."""
    return hashlib.sha256(f"{cluster}/{name}".encode()).digest()[:16]


def attributes_of(topic: KafkaTopic) -> dict[str, str]:
    """Return a topic's layout, id and settings as attributes of its RocketMQ topic."""
    attributes = {
        **topic.settings,
        LAYOUT_ATTRIBUTE: layouts.write(topic.layout),
        ID_ATTRIBUTE: base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("="),
    }
    if topic.created_at:
        attributes[CREATED_ATTRIBUTE] = str(topic.created_at)
    if topic.merged:
        attributes[MERGED_ATTRIBUTE] = ";".join(map(layouts.write, topic.merged))
    return attributes


def topic_of(
    name: str, attributes: Mapping[str, str], readers: TopicSettingsReader
) -> KafkaTopic | None:
    """Return the topic that attributes describe; None if they are not ours or are invalid.

    Invalid settings are left out.
    """
    created = attributes.get(CREATED_ATTRIBUTE, "0")
    merged = attributes.get(MERGED_ATTRIBUTE, "")
    if merged.count(";") >= MERGED_MAX:
        return None
    try:
        layout = layouts.read(attributes.get(LAYOUT_ATTRIBUTE, ""))
        topic_id = base64.urlsafe_b64decode(attributes.get(ID_ATTRIBUTE, "") + "==")
        others = tuple(map(layouts.read, merged.split(";"))) if merged else ()
    except (ProtocolError, ValueError):
        return None
    if not layout.extents or len(topic_id) != 16:
        return None
    if not (created.isascii() and created.isdigit() and len(created) <= 18):
        return None
    return KafkaTopic(name, topic_id, layout, readers.sound(attributes), int(created), others)
