"""Serializers and deserializers: between an application's objects and the bytes of messages.

Each is a function of one argument, such as `msgspec.json.decode`, or an object with a method that
is told the topic and the headers, too, as those of Java's and kafka-python's clients. None, which
is a Kafka record without a key or without a value (a tombstone), stays None and is passed to
nobody. A deserializer that raises stops its consumer at that message: nothing is skipped in
silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from steelyard.errors import ConfigError, DeserializationError, SerializationError
from steelyard.nodes.consumer.kafka.contract import ConsumerRecord, Key, Value
from steelyard.types import TopicPartition
from steelyard.wire.remoting.message import Body, MessageView

T = TypeVar("T")
Made = TypeVar("Made", covariant=True)
Given = TypeVar("Given", contravariant=True)


class Serializer(Protocol[Given]):
    """Makes bytes of objects, as kafka-python's class of this name."""

    def serialize(self, topic: str, headers: Any, data: Given) -> bytes:
        """Return the bytes. `headers`: the message's properties."""


class Deserializer(Protocol[Made]):
    """Makes objects of bytes, as kafka-python's class of this name."""

    def deserialize(self, topic: str, headers: Any, data: bytes) -> Made:
        """Return the object. `headers`: those of a Kafka record, or a message's properties."""


Serialize = Callable[[T], bytes] | Serializer[T]
"""What a producer can be given."""

Deserialize = Callable[[bytes], T] | Deserializer[T]
"""What a consumer can be given."""

_Read = Callable[[str, Any, bytes], object]


def _read(name: str, given: Deserialize[Any] | None) -> _Read | None:
    """Return a deserializer as a function of topic, headers and data. Raises ConfigError."""
    if given is None:
        return None
    method: _Read | None = getattr(given, "deserialize", None)
    if method is not None:
        return method
    if not callable(given):
        raise ConfigError(
            f"{name} is {given!r}; it must be a function of bytes, or have a method"
            " deserialize(topic, headers, data)"
        )
    function = given
    return lambda topic, headers, data: function(data)


class BodySerializer:
    """The serializer of a RocketMQ producer."""

    def __init__(self, given: Serialize[Any]) -> None:
        """Raise ConfigError unless it is one."""
        self._method: Callable[[str, Any, Any], bytes] | None = getattr(given, "serialize", None)
        if self._method is None and not callable(given):
            raise ConfigError(
                f"serializer is {given!r}; it must be a function that returns bytes, or have a"
                " method serialize(topic, headers, data)"
            )
        self._given: Any = given

    def body(self, topic: str, properties: Mapping[str, str], value: object) -> bytes:
        """Return the bytes of a body. Raises SerializationError."""
        method = self._method
        try:
            data = self._given(value) if method is None else method(topic, properties, value)
        except Exception as error:
            text = f"serializer failed on a body for topic {topic!r}"
            raise SerializationError(f"{text}: {type(error).__name__}: {error}") from error
        if not isinstance(data, bytes | bytearray | memoryview):
            raise SerializationError(
                f"serializer returned {data!r} for topic {topic!r}; it must return bytes"
            )
        return bytes(data)


class BodyDeserializer(Generic[Body]):
    """The deserializer of a RocketMQ consumer. `is_on`: there is one."""

    def __init__(self, given: Deserialize[Body] | None, remedy: str) -> None:
        """`remedy`: ends errors, and says how to continue; `{}` is the next offset."""
        self._read = _read("deserializer", given)
        self._remedy = remedy
        self.is_on = self._read is not None

    def fill(self, message: MessageView[Body]) -> None:
        """Set the message's value. Raises DeserializationError."""
        if self._read is None:
            return
        data = message.stored_body
        try:
            data = message.body
            made: Any = self._read(message.topic, message.properties, data)
        except Exception as error:
            remedy = self._remedy.format(message.queue_offset + 1)
            raise DeserializationError(
                f"deserializer failed on message {message.message_id} at offset"
                f" {message.queue_offset} of {message.queue}: {type(error).__name__}: {error};"
                f" {remedy}",
                message.queue,
                message.queue_offset,
                data,
            ) from error
        message.value = made

    def seen(self, messages: Sequence[MessageView[Body]]) -> int:
        """Fill messages up to the first that fails; return how many.

        Raises DeserializationError if it is the first of all.
        """
        if self._read is None:
            return len(messages)
        for number, message in enumerate(messages):
            try:
                self.fill(message)
            except DeserializationError:
                if number:
                    return number
                raise
        return len(messages)


class RecordDeserializers(Generic[Key, Value]):
    """The two deserializers of a Kafka consumer. `is_on`: there are any."""

    def __init__(self, key: Deserialize[Key] | None, value: Deserialize[Value] | None) -> None:
        self._key = _read("key_deserializer", key)
        self._value = _read("value_deserializer", value)
        self.is_on = self._key is not None or self._value is not None

    def record(self, record: ConsumerRecord) -> ConsumerRecord[Key, Value]:
        """Return the record with its objects. Raises DeserializationError."""
        if not self.is_on:
            return record  # type: ignore[return-value]  # Key and Value are bytes
        made: Any = ConsumerRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            self._part(record, "key", self._key, record.key),
            self._part(record, "value", self._value, record.value),
            record.headers,
            record.leader_epoch,
        )
        whole: ConsumerRecord[Key, Value] = made
        return whole

    def records(
        self, records: list[ConsumerRecord]
    ) -> tuple[list[ConsumerRecord[Key, Value]], DeserializationError | None]:
        """Return the records before the first one that fails, and its error."""
        if not self.is_on:
            return records, None  # type: ignore[return-value]  # Key and Value are bytes
        whole: list[ConsumerRecord[Key, Value]] = []
        for record in records:
            try:
                whole.append(self.record(record))
            except DeserializationError as error:
                return whole, error
        return whole, None

    def _part(
        self, record: ConsumerRecord, part: str, read: _Read | None, data: bytes | None
    ) -> object:
        if read is None or data is None:
            return data
        try:
            return read(record.topic, record.headers, data)
        except Exception as error:
            raise DeserializationError(
                f"{part}_deserializer failed on the record at offset {record.offset} of partition"
                f" {record.partition} of topic {record.topic!r}: {type(error).__name__}: {error};"
                f" to continue without it, seek to offset {record.offset + 1}",
                TopicPartition(record.topic, record.partition),
                record.offset,
                data,
            ) from error
