"""The administrators of three client libraries behind the same few questions."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aiokafka
import kafka as kafka_python
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.errors import KafkaError as KafkaPythonError
from tests.clients.libraries import WAIT_S, Refused

T = TypeVar("T")


class Administrator(ABC):
    """An administrator of one library; methods raise Refused with the broker's error."""

    name: str

    @abstractmethod
    def create_topic(self, topic: str, partitions: int) -> None: ...

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abstractmethod
    def more_partitions(self, topic: str, partitions: int) -> None: ...

    @abstractmethod
    def partitions(self, topic: str) -> int | None: ...

    @abstractmethod
    def put_setting(self, topic: str, key: str, value: str) -> None: ...

    @abstractmethod
    def setting(self, topic: str, key: str) -> str: ...

    @abstractmethod
    def groups(self) -> set[str]: ...

    @abstractmethod
    def group_state(self, group: str) -> str: ...

    @abstractmethod
    def group_offsets(self, group: str) -> dict[int, int]:
        """By partition, of its one topic."""

    @abstractmethod
    def delete_records(self, topic: str, before: int) -> None:
        """Of partition 0."""

    @abstractmethod
    def close(self) -> None: ...


class ConfluentAdministrator(Administrator):
    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def one(self, futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        try:
            return future.result(WAIT_S)
        except KafkaException as error:
            raise Refused(str(error)) from error

    def create_topic(self, topic: str, partitions: int) -> None:
        self.one(self.admin.create_topics([NewTopic(topic, partitions, 1)]))

    def delete_topic(self, topic: str) -> None:
        self.one(self.admin.delete_topics([topic]))

    def more_partitions(self, topic: str, partitions: int) -> None:
        self.one(self.admin.create_partitions([NewPartitions(topic, partitions)]))

    def partitions(self, topic: str) -> int | None:
        known = self.admin.list_topics(timeout=WAIT_S).topics.get(topic)
        return None if known is None else len(known.partitions)

    def put_setting(self, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.one(self.admin.incremental_alter_configs([resource]))

    def setting(self, topic: str, key: str) -> str:
        found = self.one(self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        value: str = found[key].value
        return value

    def groups(self) -> set[str]:
        listed = self.admin.list_consumer_groups().result(WAIT_S)
        assert not listed.errors
        return {group.group_id for group in listed.valid}

    def group_state(self, group: str) -> str:
        state: str = self.one(self.admin.describe_consumer_groups([group])).state.name
        return state

    def group_offsets(self, group: str) -> dict[int, int]:
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        return {at.partition: at.offset for at in self.one(asked).topic_partitions}

    def delete_records(self, topic: str, before: int) -> None:
        self.one(self.admin.delete_records([TopicPartition(topic, 0, before)]))

    def close(self) -> None:
        """Nothing is left open."""


class KafkaPythonAdministrator(Administrator):
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def ask(self, method: Callable[..., Any], *arguments: object) -> Any:
        try:
            return method(*arguments)
        except KafkaPythonError as error:
            raise Refused(f"{type(error).__name__} {error}") from error

    def create_topic(self, topic: str, partitions: int) -> None:
        new = {topic: {"num_partitions": partitions, "replication_factor": 1}}
        self.ask(self.admin.create_topics, new)

    def delete_topic(self, topic: str) -> None:
        self.ask(self.admin.delete_topics, [topic])

    def more_partitions(self, topic: str, partitions: int) -> None:
        self.ask(self.admin.create_partitions, {topic: partitions})

    def partitions(self, topic: str) -> int | None:
        if topic not in self.admin.list_topics():
            return None
        (told,) = self.admin.describe_topics([topic])
        return len(told["partitions"])

    def put_setting(self, topic: str, key: str, value: str) -> None:
        resource = kafka_python.admin.ConfigResource("TOPIC", topic, {key: value})
        try:
            told = self.ask(self.admin.alter_configs, [resource])["topic"][topic]
        except ValueError as error:  # it asks first which settings there are
            raise Refused(str(error)) from error
        if told != "OK":
            raise Refused(told)

    def setting(self, topic: str, key: str) -> str:
        resource = kafka_python.admin.ConfigResource("TOPIC", topic)
        told = self.ask(self.admin.describe_configs, [resource], False, "all")
        value: str = told["topic"][topic][key]["value"]
        return value

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self.admin.list_groups()}

    def group_state(self, group: str) -> str:
        state: str = self.admin.describe_groups([group])[group]["group_state"]
        return state.upper()

    def group_offsets(self, group: str) -> dict[int, int]:
        told = self.admin.list_group_offsets(group)
        return {place.partition: found.offset for place, found in told[group].items()}

    def delete_records(self, topic: str, before: int) -> None:
        self.ask(self.admin.delete_records, {kafka_python.TopicPartition(topic, 0): before})

    def close(self) -> None:
        self.admin.close()


class AioAdministrator(Administrator):
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._runner = asyncio.Runner()

        async def start() -> AIOKafkaAdminClient:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            return admin

        self.admin = self._run(start())

    def _run(self, main: Awaitable[T]) -> T:
        async def bounded() -> T:
            try:
                return await asyncio.wait_for(main, WAIT_S)
            except AioKafkaError as error:
                raise Refused(f"{type(error).__name__} {error}") from error

        return self._runner.run(bounded())

    def _refuse(self, told: tuple[Any, ...]) -> None:
        """It gives an error code where the others raise."""
        code = told[1]
        if code:
            raise Refused(f"{aiokafka.errors.for_code(code).__name__} {told}")

    def create_topic(self, topic: str, partitions: int) -> None:
        reply = self._run(self.admin.create_topics([AioNewTopic(topic, partitions, 1)]))
        self._refuse(reply.topic_errors[0])

    def delete_topic(self, topic: str) -> None:
        self._refuse(self._run(self.admin.delete_topics([topic])).topic_error_codes[0])

    def more_partitions(self, topic: str, partitions: int) -> None:
        wanted = {topic: AioNewPartitions(partitions)}
        self._refuse(self._run(self.admin.create_partitions(wanted)).topic_errors[0])

    def partitions(self, topic: str) -> int | None:
        if topic not in self._run(self.admin.list_topics()):
            return None
        (told,) = self._run(self.admin.describe_topics([topic]))
        return len(told["partitions"])

    def put_setting(self, topic: str, key: str, value: str) -> None:
        resource = AioConfigResource(AioConfigResourceType.TOPIC, topic, {key: value})
        (reply,) = self._run(self.admin.alter_configs([resource]))
        code, words, *_ = reply.resources[0]
        if code:
            raise Refused(f"{aiokafka.errors.for_code(code).__name__} {words}")

    def setting(self, topic: str, key: str) -> str:
        resource = AioConfigResource(AioConfigResourceType.TOPIC, topic)
        (reply,) = self._run(self.admin.describe_configs([resource]))
        (_, _, _, _, entries) = reply.resources[0]
        value: str = {entry[0]: entry[1] for entry in entries}[key]
        return value

    def groups(self) -> set[str]:
        return {group[0] for group in self._run(self.admin.list_consumer_groups())}

    def group_state(self, group: str) -> str:
        (reply,) = self._run(self.admin.describe_consumer_groups([group]))
        state: str = reply.groups[0][2]
        return state.upper()

    def group_offsets(self, group: str) -> dict[int, int]:
        told = self._run(self.admin.list_consumer_group_offsets(group))
        return {place.partition: found.offset for place, found in told.items()}

    def delete_records(self, topic: str, before: int) -> None:
        place = aiokafka.TopicPartition(topic, 0)
        self._run(self.admin.delete_records({place: RecordsToDelete(before)}))

    def close(self) -> None:
        self._run(self.admin.close())
        self._runner.close()
