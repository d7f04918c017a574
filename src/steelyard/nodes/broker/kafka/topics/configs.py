"""32 DescribeConfigs, versions 1-4: the settings of topics and of this broker.

Settings of brokers are read-only: they are those that the process was started with. A request for
another broker is refused, as in Kafka, and so is one for a resource that is no topic or broker.
Source: core/kafka/server/ConfigHelper.scala.
"""

from __future__ import annotations

from collections.abc import Collection

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic
from steelyard.nodes.broker.kafka.cluster.topic_settings import (
    BOOLEAN,
    INT,
    SHORT,
    STRING,
    KafkaSetting,
    broker_settings,
    named,
)
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.configs import (
    STATIC_BROKER_CONFIG,
    TOPIC_CONFIG,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from steelyard.wire.kafka.schema import ApiMessage

TOPIC = 2
BROKER = 4
"""Types of resources. Source: ConfigResource.Type."""


STEP_RESOURCES = 100
"""Resources described in one step, which takes about 2 ms."""


class Configs:
    """The handler of DescribeConfigs."""

    def __init__(self, config: BrokerConfig, cluster: Cluster) -> None:
        assert config.kafka is not None
        self._cluster = cluster
        self._broker = _broker_settings(config, config.kafka)

    @serves(DescribeConfigsRequest)
    def describe_configs(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> Steps[ApiMessage]:
        message = call.read(DescribeConfigsRequest)
        results = []
        for number, resource in enumerate(message.resources, 1):
            results.append(self._described(resource, message))
            if number % STEP_RESOURCES == 0:
                yield
        return DescribeConfigsResponse(results=results)

    def _described(
        self, resource: DescribeConfigsResource, message: DescribeConfigsRequest
    ) -> DescribeConfigsResult:
        kind, name = resource.resource_type, resource.resource_name
        try:
            if kind == TOPIC:
                found = self._of_topic(name, message)
            elif kind == BROKER:
                found = self._of_broker(name, message)
            else:
                text = f"Unsupported resource type: {kind}"
                raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
        except RequestRefused as error:
            return DescribeConfigsResult(error.code, error.text, kind, name)
        wanted = frozenset(resource.configuration_keys or ())
        return DescribeConfigsResult(
            ErrorCode.NONE, None, kind, name, _only(found, wanted) if wanted else found
        )

    def _of_topic(
        self, name: str, message: DescribeConfigsRequest
    ) -> list[DescribeConfigsResourceResult]:
        topic = self._cluster.topic(name)
        if topic is None:
            text = "This server does not host this topic-partition."
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        known = self._cluster.readers.known
        return [self._topic_setting(topic, setting, message) for setting in sorted(known)]

    def _topic_setting(
        self, topic: KafkaTopic, name: str, message: DescribeConfigsRequest
    ) -> DescribeConfigsResourceResult:
        setting = self._cluster.readers.known[name]
        own = topic.settings.get(name)
        if own is None:
            return _result(name, setting, message)
        synonym = DescribeConfigsSynonym(name, own, TOPIC_CONFIG)
        own_setting = setting._replace(value=own, synonyms=(synonym, *setting.synonyms))
        return _result(name, own_setting, message)

    def _of_broker(
        self, name: str, message: DescribeConfigsRequest
    ) -> list[DescribeConfigsResourceResult]:
        if not name:
            return []  # the dynamic defaults of all brokers, of which there are none
        check_broker_name(name, self._cluster.node_id)
        return [
            _result(each, setting, message, read_only=True)
            for each, setting in sorted(self._broker.items())
        ]


def _result(
    name: str, setting: KafkaSetting, message: DescribeConfigsRequest, *, read_only: bool = False
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name,
        setting.value,
        read_only=read_only,
        config_source=setting.source,
        is_sensitive=False,
        synonyms=setting.synonyms if message.include_synonyms else (),
        config_type=setting.kind,
        documentation=(setting.text or None) if message.include_documentation else None,
    )


def check_broker_name(name: str, node_id: int) -> None:
    """Raise RequestRefused if the resource named is not this broker."""
    if not name.removeprefix("-").isdecimal():
        text = f"Node id must be an integer, but it is: {name[:100]}"
        raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
    if name != str(node_id):
        text = f"Unexpected broker id, expected {node_id} or empty string, but received {name}"
        raise RequestRefused(ErrorCode.INVALID_REQUEST, text)


def _only(
    found: list[DescribeConfigsResourceResult], wanted: Collection[str]
) -> list[DescribeConfigsResourceResult]:
    return [each for each in found if each.name in wanted]


def _broker_settings(config: BrokerConfig, kafka: KafkaConfig) -> dict[str, KafkaSetting]:
    """Return the broker's settings by name."""
    found = {name.name: each for name, each in broker_settings(kafka, config.store).items()}
    for kind, name, value in (
        (BOOLEAN, "delete.topic.enable", "true"),
        (INT, "default.replication.factor", "1"),
        (INT, "min.insync.replicas", "1"),
        (SHORT, "offsets.topic.replication.factor", "1"),
        (SHORT, "transaction.state.log.replication.factor", "1"),
    ):
        found[name] = named(kind, name, value)
    for kind, name, value in (
        (STRING, "advertised.listeners", f"{kafka.security_protocol}://{kafka.address}"),
        (INT, "broker.id", str(kafka.node_id)),
    ):
        synonym = DescribeConfigsSynonym(name, value, STATIC_BROKER_CONFIG)
        found[name] = KafkaSetting(kind, value, synonyms=(synonym,))
    return found
