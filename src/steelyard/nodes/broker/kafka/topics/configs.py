"""32 DescribeConfigs (versions 1-4) and 74 ListConfigResources (0-1): what is set, and of what.

Settings of brokers are those that the process was started with, and what was changed at run time
(`dynamic`). A request for another broker is refused, as in Kafka. Brokers have no loggers that
Kafka would know, and clients' metrics are those that Kafka asks for by default: none.
Source: core/kafka/server/ConfigHelper.scala.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.nodes.broker.dynamic_configs import BROKER, GROUP, DynamicConfigs
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.group_settings import GroupSettings
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic
from steelyard.nodes.broker.kafka.cluster.topic_names import form_fault
from steelyard.nodes.broker.kafka.cluster.topic_settings import (
    BOOLEAN,
    INT,
    LIST,
    SHORT,
    STRING,
    KafkaSetting,
    broker_settings,
    changed_setting,
    named,
)
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.configs import (
    GROUP_CONFIG,
    STATIC_BROKER_CONFIG,
    TOPIC_CONFIG,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

TOPIC, BROKER_LOGGER, CLIENT_METRICS = 2, 8, 16
"""Types of resources besides BROKER and GROUP. Source: ConfigResource.Type."""


_METRICS = {
    "interval.ms": KafkaSetting(INT, "300000", "Metrics push interval in milliseconds"),
    "match": KafkaSetting(LIST, "", "Client match criteria"),
    "metrics": KafkaSetting(LIST, "", "Telemetry metric name prefix list"),
}
"""The settings of a subscription to clients' metrics. Source: ClientMetricsConfigs.java."""

STEP_RESOURCES = 100
"""Resources described in one step, which takes about 2 ms."""


class Configs:
    """Handlers of DescribeConfigs and ListConfigResources."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster: Cluster,
        configs: DynamicConfigs,
        groups: GroupSettings,
    ) -> None:
        assert config.kafka is not None
        self._cluster = cluster
        self._configs = configs
        self._groups = groups
        self._broker = _broker_settings(config, config.kafka)
        self._alterable = {
            kafka.name for kafka in broker_settings(config.kafka, config.store) if kafka.topic
        }

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

    @serves(ListConfigResourcesRequest)
    def list_config_resources(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage:
        message = call.read(ListConfigResourcesRequest)
        names: dict[int, Callable[[], list[str]]] = {
            BROKER_LOGGER: self._node_ids,
            BROKER: self._node_ids,
            TOPIC: self._topics,
            CLIENT_METRICS: _nothing,
            GROUP: self._groups_with_settings,
        }
        wanted = message.resource_types or tuple(names)
        if call.version == 0:
            wanted = (CLIENT_METRICS,)
        if any(kind not in names for kind in wanted):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return ListConfigResourcesResponse(
            config_resources=[
                ConfigResource(name, kind)
                for kind in dict.fromkeys(wanted)
                for name in names[kind]()
            ]
        )

    def _topics(self) -> list[str]:
        return sorted(self._cluster.names())

    def _groups_with_settings(self) -> list[str]:
        return self._configs.resources(GROUP)

    def _node_ids(self) -> list[str]:
        return [str(broker.node_id) for broker in self._cluster.live_brokers()]

    def _described(
        self, resource: DescribeConfigsResource, message: DescribeConfigsRequest
    ) -> DescribeConfigsResult:
        kind, name = resource.resource_type, resource.resource_name
        try:
            if kind == TOPIC:
                found = self._of_topic(name, message)
            elif kind == BROKER:
                found = self._of_broker(name, message)
            elif kind == GROUP:
                found = self._of_group(name, message)
            elif kind == BROKER_LOGGER:
                check_broker_name(name, self._cluster.node_id)
                found = []
            elif kind == CLIENT_METRICS:
                found = _of_metrics(name, message)
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
            fault = form_fault(name)
            if fault is not None:
                raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
            text = "This server does not host this topic-partition."
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        known = self._cluster.readers.known
        return [self._topic_setting(topic, setting, message) for setting in sorted(known)]

    def _topic_setting(
        self, topic: KafkaTopic, name: str, message: DescribeConfigsRequest
    ) -> DescribeConfigsResourceResult:
        setting = self._cluster.readers.known[name]
        own = topic.settings.get(name)
        return _result(name, _set(setting, name, own, TOPIC_CONFIG), message)

    def _of_broker(
        self, name: str, message: DescribeConfigsRequest
    ) -> list[DescribeConfigsResourceResult]:
        own, of_all = self._configs.of(BROKER, name), self._configs.of(BROKER, "")
        if name:
            check_broker_name(name, self._cluster.node_id)
        else:
            own = {}
        return [
            _result(
                each,
                changed_setting(setting, own, of_all),
                message,
                read_only=each not in self._alterable,
            )
            for each, setting in sorted(self._broker.items())
            if name or each in of_all
        ]

    def _of_group(
        self, name: str, message: DescribeConfigsRequest
    ) -> list[DescribeConfigsResourceResult]:
        if not name:
            text = "Group name must not be empty"
            raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
        own = self._groups.of(name)
        return [
            _result(each, _set(setting, each, own.get(each), GROUP_CONFIG), message)
            for each, setting in sorted(self._groups.known.items())
        ]


def _set(setting: KafkaSetting, name: str, own: str | None, source: int) -> KafkaSetting:
    """Return a setting with the resource's own value, if it has one."""
    if own is None:
        return setting
    synonym = DescribeConfigsSynonym(name, own, source)
    return setting._replace(value=own, synonyms=(synonym, *setting.synonyms))


def _of_metrics(name: str, message: DescribeConfigsRequest) -> list[DescribeConfigsResourceResult]:
    if not name:
        text = "Client metrics subscription name must not be empty"
        raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
    return [_result(each, setting, message) for each, setting in _METRICS.items()]


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


def _nothing() -> list[str]:
    return []


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


_ONE_REPLICA = "A partition has one replica."


def _broker_settings(config: BrokerConfig, kafka: KafkaConfig) -> dict[str, KafkaSetting]:
    """Return the broker's settings by name."""
    found = {name.name: each for name, each in broker_settings(kafka, config.store).items()}
    for kind, name, value, text in (
        (BOOLEAN, "delete.topic.enable", "true", "Whether clients may delete topics."),
        (INT, "default.replication.factor", "1", _ONE_REPLICA),
        (INT, "min.insync.replicas", "1", _ONE_REPLICA),
        (SHORT, "offsets.topic.replication.factor", "1", _ONE_REPLICA),
        (SHORT, "transaction.state.log.replication.factor", "1", _ONE_REPLICA),
    ):
        found[name] = named(kind, name, value, text)
    address = f"{kafka.security_protocol}://{kafka.address}"
    for kind, name, value, text in (
        (STRING, "advertised.listeners", address, "Address that clients are told to connect to."),
        (INT, "broker.id", str(kafka.node_id), "The same as node.id."),
    ):
        synonym = DescribeConfigsSynonym(name, value, STATIC_BROKER_CONFIG)
        found[name] = KafkaSetting(kind, value, text, synonyms=(synonym,))
    return found
