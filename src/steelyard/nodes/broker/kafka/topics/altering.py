"""33 AlterConfigs (versions 0-2) and 44 IncrementalAlterConfigs (0-1): the settings of topics.

33 replaces all settings of a topic; 44 changes those that it names: set, delete, and for lists
append and subtract. Each topic succeeds or fails on its own. Settings of brokers cannot be changed
at run time.
Source: metadata/controller/ConfigurationControlManager.java,
core/kafka/server/ConfigAdminManager.scala.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from steelyard.errors import ConfigError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.cluster.changes import Changes, Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic
from steelyard.nodes.broker.kafka.cluster.topic_settings import LIST
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.broker.kafka.topics.configs import BROKER, TOPIC
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

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations on a setting. Source: AlterConfigOp.OpType."""


class Altering:
    """Handlers of AlterConfigs and IncrementalAlterConfigs."""

    def __init__(self, cluster: Cluster, changes: Changes, durability: Durability) -> None:
        self._durability = durability
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
        results: list[AlterConfigsResourceResponse] = []
        for item in asked:
            kind, name = item.resource_type, item.resource_name
            try:
                if times[kind, name] > 1:
                    text = "Each resource must appear at most once."
                    raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
                planned[name] = self._altered(item, keeps=keeps)
            except RequestRefused as error:
                results.append(AlterConfigsResourceResponse(error.code, error.text, kind, name))

        def then(faults: Faults, now: int, effects: list[Effect]) -> None:
            for name in planned:
                code, text = faults.get(name, (ErrorCode.NONE, None))
                results.append(AlterConfigsResourceResponse(code, text, TOPIC, name))
            self._durability.answer(call, answer(responses=results), effects)

        if call.message.validate_only or not planned:
            then({}, now, effects)
        else:
            self._changes.put(list(planned.values()), then, now, effects)

    def _altered(self, asked: IncrementalAlterConfigsResource, *, keeps: bool) -> KafkaTopic:
        """Return the topic with its new settings. Raises RequestRefused."""
        if asked.resource_type == BROKER:
            names = ", ".join(operation.name[:100] for operation in asked.configs)
            raise RequestRefused(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {names}"
            )
        if asked.resource_type != TOPIC:
            text = f"Unexpected resource type {asked.resource_type}."
            raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
        topic = self._cluster.topic(asked.resource_name)
        if topic is None:
            text = f"The topic '{asked.resource_name}' does not exist."
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        if len({operation.name for operation in asked.configs}) < len(asked.configs):
            raise RequestRefused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        settings = dict(topic.settings) if keeps else {}
        for operation in asked.configs:
            self._apply(operation, settings)
        return replace(topic, settings=settings)

    def _apply(self, operation: ConfigOperation, settings: dict[str, str]) -> None:
        name, value = operation.name, operation.value
        known = self._cluster.readers.known
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
            self._cluster.readers.check(name, value)
        except ConfigError as error:
            raise RequestRefused(ErrorCode.INVALID_CONFIG, str(error)) from None
        settings[name] = value
