"""The tree of errors.

SteelyardError
├── ConfigError              a setting or an option is wrong                   (not retriable)
│   └── ArgumentError        an argument of a call has the wrong type or value
├── MessageError             a message breaks the rules of its topic or size   (not retriable)
│   └── SerializationError   a producer's serializer failed on a body
├── DeserializationError     a consumer's deserializer failed on a message     (not retriable)
├── ClosedError              the producer, consumer or server was closed       (not retriable)
├── InternalError            a bug in Steelyard ended the call; see the log  (not retriable)
├── RemotingError            a peer was unreachable or did not respond         (retriable)
│   ├── ConnectError         nothing listens there, or the name is unknown
│   ├── CallTimeoutError     no reply within the time-out
│   └── UnreachableError     brokers that a command needs did not answer
├── BrokerError              a peer answered with an error code                (by code)
├── KafkaError               a Kafka broker answered with an error code        (by code)
│   ├── CommitFailedError    the group has removed this member: others may commit
│   └── NoOffsetError        no offset to begin at, and auto_offset_reset is 'none'
├── AuthenticationError      a server refused the login, or did not prove its own (not retriable)
├── RouteError               no nameserver knows a route for the topic         (retriable)
├── ProtocolError            bytes that are not a frame, a header or a message (not retriable)
└── StorageError             the log on disk cannot be used                    (not retriable)
    ├── DiskFullError        no space: nothing was acknowledged
    ├── DamageError          files are damaged: the broker does not start
    ├── OwnerError           the data directory belongs to another broker
    ├── DescriptorsError     the process has no file descriptor left, now   (retriable)
    └── CorruptError         a stored message is damaged: it is not served
"""

from __future__ import annotations

from typing import Any


class SteelyardError(Exception):
    """Base of all errors that Steelyard raises on purpose.

    `code`: the response code on the wire, -1 without one. `retriable`: repeating the call may
    succeed.
    """

    code: int = -1
    retriable: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy without the constructor, whose arguments are not `args`."""
        return _remade, (type(self), self.args, self.__dict__)


def _remade(cls: type[SteelyardError], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class ConfigError(SteelyardError, ValueError):
    """A setting is invalid; the text names it and says what is expected."""


class ArgumentError(ConfigError, TypeError):
    """An argument has the wrong type or value; the text names it and says what is expected.

    Nothing was sent, and the client continues to work.
    """


class MessageError(SteelyardError, ValueError):
    """A message cannot be sent as it is (topic name, size, properties); the text says why."""


class SerializationError(MessageError):
    """A producer's serializer raised an exception, the `__cause__`, or returned no bytes.

    Nothing was sent.
    """


class DeserializationError(SteelyardError, ValueError):
    """A consumer's deserializer raised an exception, which is the `__cause__`.

    The message is not consumed, and polls fail at it again until the consumer moves past it:
    `consumer.seek(error.queue, error.offset + 1)`. `queue`: the TopicPartition or MessageQueue;
    `offset`: of the message in it; `data`: the bytes that the deserializer was given.
    """

    def __init__(self, text: str, queue: Any, offset: int, data: bytes) -> None:
        super().__init__(text)
        self.queue = queue
        self.offset = offset
        self.data = data


class ClosedError(SteelyardError):
    """The object was closed, or closed while the call was in progress."""


class InternalError(SteelyardError):
    """A bug in Steelyard ended this call; what it has done so far is unknown.

    The cause is `__cause__` and in the log. Other calls are not affected.
    """


class RemotingError(SteelyardError, ConnectionError):
    """A peer was unreachable or did not respond."""

    retriable = True


class ConnectError(RemotingError):
    """No connection to the address."""


class CallTimeoutError(RemotingError, TimeoutError):
    """No reply within the time-out. The peer may have acted nevertheless."""


class UnreachableError(RemotingError):
    """Brokers that a command needs did not answer; the text names them."""


class BrokerError(SteelyardError):
    """A broker or nameserver returned an error.

    `code` is the response code (`wire.remoting.codes.ResponseCode`), `remark` the peer's text,
    `address` its address.
    """

    def __init__(
        self, code: int, remark: str, address: str = "", *, retriable: bool = False
    ) -> None:
        super().__init__(f"code {code} from {address or 'peer'}: {remark}")
        self.code = code
        self.remark = remark
        self.address = address
        self.retriable = retriable


class KafkaError(SteelyardError):
    """A Kafka broker returned an error, or an invalid response.

    `code` is one of Kafka's codes, `wire.kafka.errors.ErrorCode`.
    """

    def __init__(self, code: int, text: str, *, retriable: bool = False) -> None:
        super().__init__(f"{text} (Kafka error {int(code)})")
        self.code = int(code)
        self.retriable = retriable


class CommitFailedError(KafkaError):
    """Offsets were not committed: the member is not, or no longer, in the partitions' generation.

    Another member may already read them from the last commit on. The next poll rejoins the group.
    """


class NoOffsetError(KafkaError):
    """A partition has no valid committed offset, and `auto_offset_reset` is 'none'; use `seek`."""


class AuthenticationError(SteelyardError):
    """A Kafka broker refused the login, or did not prove that it knows the credentials.

    The text says why, as far as the broker tells; it never contains a secret.
    """


class RouteError(SteelyardError):
    """No nameserver knows the topic's route."""

    retriable = True


class ProtocolError(SteelyardError):
    """Bytes from a peer violate the protocol; the connection is unusable."""


class StorageError(SteelyardError):
    """The data directory or a file in it cannot be used; the text says which, and what to do."""


class DiskFullError(StorageError):
    """The disk is full. Data acknowledged before stays readable."""


class DamageError(StorageError):
    """Files of a data directory are damaged. Nothing was changed; run `steelyard check`.

    `paths`: the files, relative to the data directory.
    """

    def __init__(self, text: str, paths: tuple[str, ...]) -> None:
        super().__init__(text)
        self.paths = paths


class OwnerError(StorageError):
    """The data directory belongs to another broker; the text names both."""


class DescriptorsError(StorageError):
    """A file could not be opened for lack of file descriptors (EMFILE, ENFILE).

    The disk was not accessed: nothing was written, nothing was lost, and retrying helps once
    something was closed.
    """

    retriable = True


class CorruptError(StorageError):
    """A stored entry is damaged and is not served.

    `path`: its log file, relative to the data directory; `position`: of the entry in that file, in
    bytes; `topic`, `queue_id`, `offset`: the first message that cannot be read; `next_offset`: the
    first one after the entry.
    """

    def __init__(
        self, path: str, position: int, topic: str, queue_id: int, offset: int, next_offset: int
    ) -> None:
        super().__init__(
            f"the message at offset {offset} of queue {queue_id} of topic {topic!r} is damaged on"
            " the disk"
            f" ({path}, byte {position}) and is not served; to continue without it, reset the"
            " group's offset to"
            f" {next_offset}, or stop the broker and run 'steelyard check --repair' on its data"
            " directory"
        )
        self.path = path
        self.position = position
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.next_offset = next_offset
