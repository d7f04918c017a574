"""The settings of brokers and KIP-848 groups that clients change at run time; see `altering`.

Those of brokers that may be changed are the defaults of topics' settings: of one broker, or of all
("" as its name), which applies where a broker has none of its own. Loggers of brokers and
subscriptions to clients' metrics do not exist, and are refused in Kafka's words.
Source: core/kafka/server/ConfigAdminManager.scala, metadata/controller/ConfigurationControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from steelyard.config import BrokerConfig
from steelyard.errors import ArgumentError, ConfigError
from steelyard.nodes.broker.dynamic_configs import (
    BROKER,
    CONFIGS_MAX,
    GROUP,
    DynamicConfig,
    DynamicConfigs,
)
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.config_spreading import ConfigSpreading
from steelyard.nodes.broker.kafka.cluster.group_settings import GroupSettings
from steelyard.nodes.broker.kafka.cluster.spreading import Then
from steelyard.nodes.broker.kafka.cluster.topic_settings import (
    KafkaSetting,
    broker_settings,
    invalid_value,
    read_value,
)
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.broker.kafka.topics.configs import (
    BROKER_LOGGER,
    CLIENT_METRICS,
    check_broker_name,
)
from steelyard.nodes.seam import Effect
from steelyard.settings import settings_of
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.configs import IncrementalAlterConfigsResource

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations on a setting. Source: AlterConfigOp.OpType."""


class Alterable(NamedTuple):
    """What may be set of a resource.

    `read` returns a value as it is stored, or raises ConfigError; `code`: the error then.
    """

    known: Mapping[str, KafkaSetting]
    read: Callable[[str, str], str]
    code: ErrorCode = ErrorCode.INVALID_CONFIG


Apply = Callable[[Alterable, Mapping[str, str]], Mapping[str, str]]
"""(what may be set, what is set now) -> what is set then. Raises RequestRefused."""


class DynamicAltering:
    """Changes the settings of brokers and groups."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster: Cluster,
        configs: DynamicConfigs,
        group_settings: GroupSettings,
        spreading: ConfigSpreading,
    ) -> None:
        assert config.kafka is not None
        self._cluster = cluster
        self._configs = configs
        self._groups = group_settings
        self._spreading = spreading
        self._taken = {
            each.kafka.name: each
            for kind in (type(config.kafka), type(config.store))
            for each in settings_of(kind).values()
            if each.kafka is not None
        }
        settings = broker_settings(config.kafka, config.store)
        self._brokers = {kafka.name: each for kafka, each in settings.items() if kafka.topic}

    def altered(self, asked: IncrementalAlterConfigsResource, apply: Apply) -> DynamicConfig:
        """Return the resource with its new settings. Raises RequestRefused, in Kafka's words."""
        kind, name = asked.resource_type, asked.resource_name
        if kind == BROKER:
            self._check_broker(asked)
            alterable = Alterable(self._brokers, self._read, ErrorCode.INVALID_REQUEST)
        elif kind == GROUP:
            if not name:
                text = "Default group resources are not allowed."
                raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
            alterable = Alterable(self._groups.known, self._groups.read)
        else:
            raise self._refusal(asked)
        settings = apply(alterable, self._configs.of(kind, name))
        if kind == GROUP:
            try:
                self._groups.check_all(settings)
            except ConfigError as error:
                raise RequestRefused(ErrorCode.INVALID_CONFIG, str(error)) from None
        if settings and not self._configs.has_room(kind, name):
            text = f"There are {CONFIGS_MAX} resources with settings, as many as possible"
            raise RequestRefused(ErrorCode.POLICY_VIOLATION, text)
        return self._configs.changed(kind, name, settings)

    def store(self, changed: Sequence[DynamicConfig]) -> list[DynamicConfig]:
        """Store settings, and return those that are new. Raises StorageError."""
        return self._configs.merge(changed)

    def publish(
        self, changed: Sequence[DynamicConfig], then: Then, now: int, effects: list[Effect]
    ) -> None:
        """Tell the other brokers of settings; `then` is called when they know."""
        self._spreading.publish(changed, then, now, effects)

    def _check_broker(self, asked: IncrementalAlterConfigsResource) -> None:
        """Raise RequestRefused for an unknown broker, or settings that are read-only.

        Kafka's tools remove throttles that nobody has set.
        """
        known = {str(broker.node_id) for broker in self._cluster.brokers.values()}
        if asked.resource_name and asked.resource_name not in known:
            check_broker_name(asked.resource_name, self._cluster.node_id)
        fixed = [
            each.name[:100]
            for each in asked.configs
            if each.name not in self._brokers and each.config_operation != DELETE
        ]
        if fixed:
            text = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
            raise RequestRefused(ErrorCode.INVALID_REQUEST, text)

    def _read(self, name: str, value: str) -> str:
        kept = read_value(name, self._brokers[name], value)
        try:
            self._taken[name].take(name, kept, is_text=True)
        except ArgumentError as error:
            raise invalid_value(name, value, str(error)) from None
        return kept

    def _refusal(self, asked: IncrementalAlterConfigsResource) -> RequestRefused:
        """Return the refusal of a resource that has no settings here."""
        if asked.resource_type == BROKER_LOGGER:
            check_broker_name(asked.resource_name, self._cluster.node_id)
            name = asked.configs[0].name[:100] if asked.configs else ""
            return RequestRefused(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if asked.resource_type == CLIENT_METRICS:
            text = "There are no subscriptions to clients' metrics: nobody receives them."
            return RequestRefused(ErrorCode.INVALID_REQUEST, text)
        text = f"Unexpected resource type {asked.resource_type}."
        return RequestRefused(ErrorCode.INVALID_REQUEST, text)
