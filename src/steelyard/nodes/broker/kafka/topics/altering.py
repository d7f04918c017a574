"""33 AlterConfigs (versions 0-2) and 44 IncrementalAlterConfigs (0-1): settings of topics and more.

33 replaces all settings of a resource; 44 changes those that it names: set, delete, and for lists
append and subtract. Each resource succeeds or fails on its own. `dynamic` has brokers and groups.
Source: metadata/controller/ConfigurationControlManager.java,
core/kafka/server/ConfigAdminManager.scala.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from steelyard.errors import ConfigError, StorageError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.dynamic_configs import DynamicConfig
from steelyard.nodes.broker.kafka.cluster.changes import Changes, Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic
from steelyard.nodes.broker.kafka.cluster.topic_settings import LIST
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.broker.kafka.topics.configs import TOPIC
from steelyard.nodes.broker.kafka.topics.dynamic import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    Alterable,
    DynamicAltering,
)
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)


class Altering:
    """Handlers of AlterConfigs and IncrementalAlterConfigs."""

    def __init__(
        self, cluster: Cluster, changes: Changes, durability: Durability, dynamic: DynamicAltering
    ) -> None:
        self._durability = durability
        self._dynamic = dynamic
        self._cluster = cluster
        self._changes = changes

    @serves(AlterConfigsRequest)
    def alter_configs(self, call: OpenRequest, now: int, effects: list[Effect]) -> None:
        message = call.read(AlterConfigsRequest)
        asked = [
            IncrementalAlterConfigsResource(
                item.resource_type,
                item.resource_name,
                [ConfigOperation(config.name, SET, config.value) for config in item.configs],
            )
            for item in message.resources
        ]
        self._alter(call, AlterConfigsResponse, asked, now, effects, keeps=False)

    @serves(IncrementalAlterConfigsRequest)
    def incremental_alter_configs(self, call: OpenRequest, now: int, effects: list[Effect]) -> None:
        message = call.read(IncrementalAlterConfigsRequest)
        answer = IncrementalAlterConfigsResponse
        self._alter(call, answer, message.resources, now, effects, keeps=True)

    def _alter(
        self,
        call: OpenRequest,
        answer: type[AlterConfigsResponse | IncrementalAlterConfigsResponse],
        asked: Sequence[IncrementalAlterConfigsResource],
        now: int,
        effects: list[Effect],
        *,
        keeps: bool,
    ) -> None:
        """Alter each resource. `keeps`: settings that are not named keep their values."""
        assert isinstance(call.message, AlterConfigsRequest | IncrementalAlterConfigsRequest)
        times = Counter((item.resource_type, item.resource_name) for item in asked)
        planned: dict[str, KafkaTopic] = {}
        configs: list[DynamicConfig] = []
        results: list[AlterConfigsResourceResponse] = []
        for item in asked:
            kind, name = item.resource_type, item.resource_name
            try:
                if times[kind, name] > 1:
                    text = "Each resource must appear at most once."
                    raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
                if kind == TOPIC:
                    planned[name] = self._altered(item, keeps=keeps)
                else:
                    apply = partial(_applied, item.configs, keeps=keeps)
                    configs.append(self._dynamic.altered(item, apply))
            except RequestRefused as error:
                results.append(AlterConfigsResourceResponse(error.code, error.text, kind, name))

        def then(faults: Faults, now: int, effects: list[Effect]) -> None:
            for name in planned:
                code, text = faults.get(name, (ErrorCode.NONE, None))
                results.append(AlterConfigsResourceResponse(code, text, TOPIC, name))
            self._durability.answer(call, answer(responses=results), effects)

        def put_topics(now: int, effects: list[Effect]) -> None:
            if planned:
                self._changes.put(list(planned.values()), then, now, effects)
            else:
                then({}, now, effects)

        fault: tuple[ErrorCode, str | None] = ErrorCode.NONE, None
        stored: list[DynamicConfig] = []
        if configs and not call.message.validate_only:
            try:
                stored = self._dynamic.store(configs)
            except StorageError as error:
                fault = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
        results += [
            AlterConfigsResourceResponse(*fault, each.kind, each.resource) for each in configs
        ]
        if call.message.validate_only:
            then({}, now, effects)
        elif stored:
            self._dynamic.publish(stored, put_topics, now, effects)
        else:
            put_topics(now, effects)

    def _altered(self, asked: IncrementalAlterConfigsResource, *, keeps: bool) -> KafkaTopic:
        """Return the topic with its new settings. Raises RequestRefused."""
        topic = self._cluster.topic(asked.resource_name)
        if topic is None:
            text = f"The topic '{asked.resource_name}' does not exist."
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        readers = self._cluster.readers
        alterable = Alterable(readers.known, readers.read)
        settings = _applied(asked.configs, alterable, topic.settings, keeps=keeps)
        try:
            readers.check_all(settings)
        except ConfigError as error:
            raise RequestRefused(ErrorCode.INVALID_CONFIG, str(error)) from None
        return replace(topic, settings=settings)


def _applied(
    operations: Sequence[ConfigOperation],
    alterable: Alterable,
    before: Mapping[str, str],
    *,
    keeps: bool,
) -> dict[str, str]:
    """Return the settings of a resource after these operations. Raises RequestRefused.

    `keeps`: settings that are not named keep their values.
    """
    if len({operation.name for operation in operations}) < len(operations):
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    settings = dict(before) if keeps else {}
    for operation in operations:
        _apply(operation, alterable, settings)
    return settings


def _apply(operation: ConfigOperation, alterable: Alterable, settings: dict[str, str]) -> None:
    name, value, known = operation.name, operation.value, alterable.known
    if operation.config_operation == DELETE:
        settings.pop(name, None)
        return
    if value is None:
        text = f"Null value not supported for : {name}"
        raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
    if operation.config_operation in (APPEND, SUBTRACT):
        if name not in known or known[name].kind != LIST:
            what = "APPEND" if operation.config_operation == APPEND else "SUBTRACT"
            text = f"Can't {what} to key {name} because its type is not LIST."
            raise RequestRefused(ErrorCode.INVALID_CONFIG, text)
        old = [each for each in settings.get(name, known[name].value).split(",") if each]
        given = value.split(",")
        if operation.config_operation == APPEND:
            new = old + [each for each in given if each not in old]
        else:
            new = [each for each in old if each not in given]
        value = ",".join(new)
    elif operation.config_operation != SET:
        text = f"Unknown operations type {operation.config_operation}"
        raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
    try:
        settings[name] = alterable.read(name, value)
    except ConfigError as error:
        raise RequestRefused(alterable.code, str(error)) from None
