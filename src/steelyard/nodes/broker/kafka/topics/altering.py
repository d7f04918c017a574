"""33 AlterConfigs (0 to 2) and 44 IncrementalAlterConfigs (0 to 1): the settings of topics.

33 replaces all settings of a topic, 44 changes those it names: set, delete, and for lists append and subtract. Each topic is
judged by itself. Brokers' settings cannot be changed while they run.
Source: metadata/controller/ConfigurationControlManager.java, core/kafka/server/ConfigAdminManager.scala.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from steelyard.errors import ConfigError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.cluster.changes import Changes, Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic
from steelyard.nodes.broker.kafka.cluster.topic_settings import LIST
from steelyard.nodes.broker.kafka.requests.channel import Call, Prompts
from steelyard.nodes.broker.kafka.requests.refusals import Refused
from steelyard.nodes.broker.kafka.topics.configs import BROKER, TOPIC
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.alter_configs import (
    ALTER_CONFIGS,
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from steelyard.wire.kafka.messages.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from steelyard.wire.kafka.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)

SET, DELETE, APPEND, SUBTRACT = range(4)
"""What to do with a setting. Source: AlterConfigOp.OpType."""


class _Operation(msgspec.Struct, frozen=True):
    name: str
    kind: int
    value: str | None


class _Alteration(msgspec.Struct, frozen=True):
    """What is asked of one resource. `keeps`: settings that are not named stay as they are."""

    resource_type: int
    name: str
    operations: Sequence[_Operation]
    keeps: bool


class _Result(msgspec.Struct, frozen=True):
    code: ErrorCode
    text: str | None
    resource_type: int
    name: str


class Altering:
    """The handlers of the keys above."""

    def __init__(self, cluster: Cluster, changes: Changes, durability: Durability) -> None:
        self._durability = durability
        self._cluster = cluster
        self._changes = changes

    @property
    def handlers(self) -> Prompts:
        return {
            ALTER_CONFIGS.key: self.alter_configs,
            INCREMENTAL_ALTER_CONFIGS.key: self.incremental_alter_configs,
        }

    def alter_configs(self, call: Call, now: int, effects: list[Effect]) -> None:
        message = call.message
        assert isinstance(message, AlterConfigsRequest)
        asked = []
        for item in message.resources:
            operations = [_Operation(config.name, SET, config.value) for config in item.configs]
            asked.append(
                _Alteration(item.resource_type, item.resource_name, operations, keeps=False)
            )

        def answer(results: list[_Result], effects: list[Effect]) -> None:
            responses = [
                AlterConfigsResourceResponse(each.code, each.text, each.resource_type, each.name)
                for each in results
            ]
            self._durability.answer(call, AlterConfigsResponse(responses=responses), effects)

        self._alter(asked, answer, now, effects, is_trial=message.validate_only)

    def incremental_alter_configs(self, call: Call, now: int, effects: list[Effect]) -> None:
        message = call.message
        assert isinstance(message, IncrementalAlterConfigsRequest)
        asked = []
        for item in message.resources:
            operations = [
                _Operation(config.name, config.config_operation, config.value)
                for config in item.configs
            ]
            asked.append(
                _Alteration(item.resource_type, item.resource_name, operations, keeps=True)
            )

        def answer(results: list[_Result], effects: list[Effect]) -> None:
            responses = [
                IncrementalResourceResponse(each.code, each.text, each.resource_type, each.name)
                for each in results
            ]
            self._durability.answer(
                call, IncrementalAlterConfigsResponse(responses=responses), effects
            )

        self._alter(asked, answer, now, effects, is_trial=message.validate_only)

    def _alter(
        self,
        asked: list[_Alteration],
        answer: Callable[[list[_Result], list[Effect]], None],
        now: int,
        effects: list[Effect],
        *,
        is_trial: bool,
    ) -> None:
        times = Counter((item.resource_type, item.name) for item in asked)
        planned: dict[str, KafkaTopic] = {}
        results: list[_Result] = []
        for item in asked:
            try:
                if times[item.resource_type, item.name] > 1:
                    text = "Each resource must appear at most once."
                    raise Refused(ErrorCode.INVALID_REQUEST, text)
                planned[item.name] = self._altered(item)
            except Refused as error:
                results.append(_Result(error.code, error.text, item.resource_type, item.name))

        def then(faults: Faults, now: int, effects: list[Effect]) -> None:
            for name in planned:
                code, text = faults.get(name, (ErrorCode.NONE, None))
                results.append(_Result(code, text, TOPIC, name))
            answer(results, effects)

        if is_trial or not planned:
            then({}, now, effects)
        else:
            self._changes.put(list(planned.values()), then, now, effects)

    def _altered(self, asked: _Alteration) -> KafkaTopic:
        """The topic with its new settings. Raises Refused."""
        if asked.resource_type == BROKER:
            names = ", ".join(operation.name[:100] for operation in asked.operations)
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {names}"
            )
        if asked.resource_type != TOPIC:
            text = f"Unexpected resource type {asked.resource_type}."
            raise Refused(ErrorCode.INVALID_REQUEST, text)
        topic = self._cluster.topic(asked.name)
        if topic is None:
            text = f"The topic '{asked.name}' does not exist."
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        if len({operation.name for operation in asked.operations}) < len(asked.operations):
            raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        settings = dict(topic.settings) if asked.keeps else {}
        for operation in asked.operations:
            self._apply(operation, settings)
        return replace(topic, settings=settings)

    def _apply(self, operation: _Operation, settings: dict[str, str]) -> None:
        name, value = operation.name, operation.value
        known = self._cluster.readers.known
        if operation.kind == DELETE:
            settings.pop(name, None)
            return
        if value is None:
            text = f"Null value not supported for : {name}"
            raise Refused(ErrorCode.INVALID_REQUEST, text)
        if operation.kind in (APPEND, SUBTRACT):
            if name not in known or known[name].kind != LIST:
                what = "APPEND" if operation.kind == APPEND else "SUBTRACT"
                text = f"Can't {what} to key {name} because its type is not LIST."
                raise Refused(ErrorCode.INVALID_CONFIG, text)
            old = [each for each in settings.get(name, known[name].default).split(",") if each]
            given = value.split(",")
            if operation.kind == APPEND:
                new = old + [each for each in given if each not in old]
            else:
                new = [each for each in old if each not in given]
            value = ",".join(new)
        elif operation.kind != SET:
            text = f"Unknown operations type {operation.kind}"
            raise Refused(ErrorCode.INVALID_REQUEST, text)
        try:
            self._cluster.readers.check(name, value)
        except ConfigError as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
        settings[name] = value
