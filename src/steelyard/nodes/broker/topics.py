"""The broker's topics: their settings, their names, and how they are created.

They are stored in the table `topics`, one JSON `TopicConfig` per name. `version` grows with every
change, so that nameservers notice it.

- If a producer sends to a topic that does not exist, it is created from the header's default topic
  (TBW102), if that allows it: with as many queues as the producer wants, at most as many as the
  default topic has.
- `%RETRY%group` and `%DLQ%group` are created when a group needs them.
- A topic with an id is also one of the Kafka listener, and may have any name that is legal there.
Source: broker/topic/TopicConfigManager.java, common/topic/TopicValidator.java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from steelyard.config import BrokerConfig
from steelyard.errors import ProtocolError
from steelyard.ledger.events import LEDGER_TOPIC
from steelyard.store.tables import Table
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import TOPIC_FILTER_TYPES, DataVersion, TopicConfig
from steelyard.wire.remoting.names import (
    DEFAULT_TOPIC,
    DELAY_LEVEL_MAX,
    DLQ_PREFIX,
    NAME,
    PERM_INHERIT,
    PERM_READ_WRITE,
    RETRY_PREFIX,
    SELF_TEST_TOPIC,
    TOPIC_CHARACTERS_MAX,
)

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_SLOTS_TOPIC = "rmq_sys_wheel_timer_slots"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"

TOPICS_MAX = 100_000
QUEUES_MAX = 16_384
"""Maximum queues of one topic on one broker."""

GROUP_TOPIC_CHARACTERS_MAX = 255
"""Maximum length of the name of a %RETRY% or %DLQ% topic."""
GROUP_CHARACTERS_MAX = 120

DLQ_QUEUES = 1
"""Queues of a %DLQ% topic."""

CLUSTER_TOPIC_QUEUES = 16
"""Queues of the topic named like the cluster.

Tools of 4.x look up its route to find the brokers on which to create a topic.
"""

ID_ATTRIBUTE = "steelyard.id"
CREATED_ATTRIBUTE = "steelyard.created"
MERGED_ATTRIBUTE = "steelyard.merged"
"""Attributes that the Kafka listener gives a topic, beside its layout."""

_POLICIES = {"compaction": "compact"}
_KAFKA_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

NO_SENDING = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        TIMER_TOPIC,
        TIMER_SLOTS_TOPIC,
        GIVEN_UP_TOPIC,
        SELF_TEST_TOPIC,
        "OFFSET_MOVED_EVENT",
    )
)
"""Topics that clients must not send to (NOT_ALLOWED_SEND_TOPIC_SET)."""

COORDINATOR_TOPICS = frozenset(("__consumer_offsets", "__transaction_state"))
"""By their partitions, Kafka's groups and transactional ids belong to brokers.

Kafka compacts them; here the coordinators write all rows again, and delete the rest.
"""

INTERNAL_TOPICS = COORDINATOR_TOPICS | frozenset(
    (
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        TIMER_SLOTS_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        GIVEN_UP_TOPIC,
        LEDGER_TOPIC,
    )
)
"""Topics that have something of everybody: an account needs a permission of its own for them."""


POLICY_ATTRIBUTE = "cleanup.policy"
"""What happens to old messages: Kafka's setting, and by the same name an attribute of RocketMQ."""


def policies(attributes: Mapping[str, str]) -> frozenset[str]:
    """Return the cleanup policies of a topic with these attributes: of `delete` and `compact`.

    RocketMQ's names for them are DELETE and COMPACTION.
    """
    return _policies(attributes.get(POLICY_ATTRIBUTE, "delete"))


@lru_cache(maxsize=64)
def _policies(setting: str) -> frozenset[str]:
    texts = [text.strip() for text in setting.lower().split(",")]
    return frozenset(_POLICIES.get(text, text) for text in texts)


def reply_topic(cluster: str) -> str:
    """Return the topic that stores the replies of request-reply (MixAll.getReplyTopic)."""
    return f"{cluster}_REPLY_TOPIC"


def topic_fault(name: str) -> str | None:
    """Return what is wrong with a topic's name, in RocketMQ's words; None if it is valid."""
    if not name.strip():
        return "The specified topic is blank."
    if NAME.fullmatch(name) is None:
        return (
            f"The specified topic: {name[:300]}, contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    of_group = name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    characters_max = GROUP_TOPIC_CHARACTERS_MAX if of_group else TOPIC_CHARACTERS_MAX
    if len(name) > characters_max:
        return (
            f"The specified topic: {name[:300]}, is longer than topic max length: {characters_max}"
        )
    return None


def is_kafka_name(name: str) -> bool:
    """Return whether a topic of the Kafka listener may have this name.

    Source: clients/common/internals/Topic.java.
    """
    return _KAFKA_NAME.fullmatch(name) is not None and name not in (".", "..")


def check_group(group: str) -> None:
    """Raise ProtocolError if a group's name is invalid."""
    if NAME.fullmatch(group) is None or len(group) > GROUP_CHARACTERS_MAX:
        raise ProtocolError(
            f"the group name {group[:300]!r} is wrong:"
            f" 1 to {GROUP_CHARACTERS_MAX} characters of ^[%|a-zA-Z0-9_-]+$"
        )


class TopicConfigs:
    """The settings of all topics; see the module docstring."""

    def __init__(self, config: BrokerConfig, table: Table, now: int) -> None:
        self._table = table
        self._configs = {name: fastjson.read(TopicConfig, data) for name, data in table.items()}
        self.version = DataVersion(now, 0)
        self.system = {item.topic_name for item in _system_topics(config)}
        for item in _system_topics(config):
            known = self._configs.get(item.topic_name)
            if known is None:
                self.put(item, now)
        if not config.auto_create_topics:
            self.delete(DEFAULT_TOPIC, now)
            return
        queues = config.default_queues
        default = TopicConfig(DEFAULT_TOPIC, queues, queues, PERM_READ_WRITE | PERM_INHERIT)
        self.system.add(DEFAULT_TOPIC)
        if self._configs.get(DEFAULT_TOPIC) != default:
            self.put(default, now)

    def get(self, name: str) -> TopicConfig | None:
        return self._configs.get(name)

    def all(self) -> dict[str, TopicConfig]:
        """Return a copy of the table."""
        return dict(self._configs)

    def put(self, config: TopicConfig, now: int) -> None:
        """Create or change a topic. Raises ProtocolError for invalid values, StorageError."""
        self.check_config(config)
        name = config.topic_name
        self._table.put(name, msgspec.json.encode(config))
        self._configs[name] = config
        self._changed(now)

    def check_config(self, config: TopicConfig) -> None:
        """Raise ProtocolError if a topic cannot be created or changed like this."""
        name = config.topic_name
        fault = topic_fault(name)
        if fault is not None and not (ID_ATTRIBUTE in config.attributes and is_kafka_name(name)):
            raise ProtocolError(fault)
        for queues in (config.read_queue_nums, config.write_queue_nums):
            if not 0 < queues <= QUEUES_MAX:
                raise ProtocolError(f"topic {name}: {queues} queues; 1 to {QUEUES_MAX} are allowed")
        if not 0 <= config.perm <= 7:
            raise ProtocolError(f"topic {name}: {config.perm} is not a permission")
        if config.topic_filter_type not in TOPIC_FILTER_TYPES:
            raise ProtocolError(
                f"topic {name}: topicFilterType {config.topic_filter_type[:100]!r};"
                f" expected one of: {', '.join(TOPIC_FILTER_TYPES)}"
            )
        if name not in self._configs and len(self._configs) >= TOPICS_MAX:
            raise ProtocolError(f"more than {TOPICS_MAX} topics")

    def delete(self, name: str, now: int) -> None:
        if name in self._configs:
            self._table.delete(name)
            del self._configs[name]
            self._changed(now)

    def _changed(self, now: int) -> None:
        self.version = DataVersion(now, self.version.counter + 1)

    def inherit(self, name: str, default_topic: str, queues: int, now: int) -> TopicConfig | None:
        """Create a topic from the default topic, or return None if that does not allow it."""
        default = self._configs.get(default_topic)
        if default is None or not default.perm & PERM_INHERIT:
            return None
        queues = min(queues, default.write_queue_nums)
        if queues <= 0:
            return None
        config = replace(
            default,
            topic_name=name,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=default.perm & ~PERM_INHERIT,
            topic_sys_flag=0,
        )
        self.put(config, now)
        return config

    def ensure(self, name: str, queues: int, now: int) -> tuple[TopicConfig, bool]:
        """Return a group's topic, created if necessary, and whether it was created just now."""
        config = self._configs.get(name)
        if config is not None:
            return config, False
        config = TopicConfig(name, queues, queues, PERM_READ_WRITE)
        self.put(config, now)
        return config, True

    def check(self) -> None:
        assert len(self._configs) <= TOPICS_MAX
        for name, config in self._configs.items():
            assert name == config.topic_name
            assert self._table.get(name) is not None
        assert self.system <= self._configs.keys()


def _system_topics(config: BrokerConfig) -> tuple[TopicConfig, ...]:
    """Return the topics that exist on every broker.

    Apache nameservers refuse brokers with a single topic.
    """
    inheritable = PERM_READ_WRITE | PERM_INHERIT
    topics = (
        TopicConfig(config.cluster, CLUSTER_TOPIC_QUEUES, CLUSTER_TOPIC_QUEUES, inheritable),
        TopicConfig(config.name, 1, 1, inheritable),
        TopicConfig(SELF_TEST_TOPIC, 1, 1, PERM_READ_WRITE),
        TopicConfig("OFFSET_MOVED_EVENT", 1, 1, PERM_READ_WRITE),
        TopicConfig(SCHEDULE_TOPIC, DELAY_LEVEL_MAX, DELAY_LEVEL_MAX, PERM_READ_WRITE),
        TopicConfig(HALF_TOPIC, 1, 1, PERM_READ_WRITE),
        TopicConfig(OP_TOPIC, 1, 1, PERM_READ_WRITE),
        TopicConfig(TIMER_TOPIC, 1, 1, PERM_READ_WRITE),
        TopicConfig(TIMER_SLOTS_TOPIC, 1, 1, 0),
        TopicConfig(GIVEN_UP_TOPIC, 1, 1, PERM_READ_WRITE),
        TopicConfig(reply_topic(config.cluster), 1, 1, PERM_READ_WRITE),
        TopicConfig(LEDGER_TOPIC, 1, 1, PERM_READ_WRITE),
    )
    return tuple({item.topic_name: item for item in topics}.values())
