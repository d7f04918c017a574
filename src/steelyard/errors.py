"""The errors users and nodes meet, as a tree.

SteelyardError
├── ConfigError              a setting or an option is wrong                   (not retriable)
│   └── ArgumentError        an argument of a call has the wrong type or value
├── MessageError             a message breaks the rules of its topic or size   (not retriable)
├── ClosedError              the producer, consumer or server was closed       (not retriable)
├── InternalError            a bug of Steelyard ended the call; the log has it (not retriable)
├── RemotingError            a peer could not be reached or did not answer     (retriable)
│   ├── ConnectError         nobody listens there, or the name is unknown
│   └── CallTimeoutError     no reply within the time-out
├── BrokerError              a peer answered with an error code                (by code)
├── KafkaError               a Kafka broker answered with an error code        (by code)
│   ├── CommitFailedError    the group has gone on without this member: its offsets are another's to commit
│   └── NoOffsetError        no offset to begin at, and auto_offset_reset is 'none'
├── RouteError               no nameserver knows a route for the topic         (retriable)
├── ProtocolError            bytes that are not a frame, a header or a message (not retriable)
└── StorageError             the log on disk cannot be used                    (not retriable)
    ├── DiskFullError        no space: nothing was acknowledged
    ├── DamageError          files are not as they were written: the broker does not start
    ├── OwnerError           the data directory belongs to another broker
    ├── DescriptorsError     the process has no file descriptor left, now   (retriable)
    └── CorruptError         a stored message is not what was written: it is not served
"""

from __future__ import annotations


class SteelyardError(Exception):
    """Root of all errors that Steelyard raises on purpose.

    `code`: the wire's response code, -1 without one. `retriable`: the same call may succeed when it is made again.
    """

    code: int = -1
    retriable: bool = False


class ConfigError(SteelyardError, ValueError):
    """A setting is wrong; the text says which, and what would be right."""


class ArgumentError(ConfigError, TypeError):
    """An argument has the wrong type or value; the text names it, what was given, and what would be right.

    Nothing was sent, and the client goes on.
    """


class MessageError(SteelyardError, ValueError):
    """A message cannot be sent as it is (topic name, size, properties); the text says why."""


class ClosedError(SteelyardError):
    """The object was closed, or closed while the call was in progress."""


class InternalError(SteelyardError):
    """A bug of Steelyard ended this call: what it did until then is not known. The cause is `__cause__` and in the log.

    Other calls go on.
    """


class RemotingError(SteelyardError, ConnectionError):
    """A peer could not be reached or did not answer."""

    retriable = True


class ConnectError(RemotingError):
    """No connection to the address."""


class CallTimeoutError(RemotingError, TimeoutError):
    """No reply within the time-out. The peer may have acted all the same."""


class BrokerError(SteelyardError):
    """A broker or nameserver answered with an error.

    `code` is the response code (`wire.remoting.codes.ResponseCode`), `remark` the peer's words, `address` the peer's.
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
    """A Kafka broker answered with an error, or gave something that cannot be read.

    `code` is one of `wire.kafka.errors.ErrorCode`, which are Kafka's.
    """

    def __init__(self, code: int, text: str, *, retriable: bool = False) -> None:
        super().__init__(f"{text} (Kafka error {int(code)})")
        self.code = int(code)
        self.retriable = retriable


class CommitFailedError(KafkaError):
    """Offsets were not committed: the member is not, or no longer, of the generation that held the partitions.

    Another member may have them already and read from the last commit on. The next poll joins the group again.
    """


class NoOffsetError(KafkaError):
    """A partition has no committed offset, or one that is out of its range, and `auto_offset_reset` is 'none'. `seek` helps."""


class RouteError(SteelyardError):
    """No nameserver knows where the topic lives."""

    retriable = True


class ProtocolError(SteelyardError):
    """Bytes from a peer that break the protocol; the connection is of no more use."""


class StorageError(SteelyardError):
    """The data directory or a file in it cannot be used; the text says which, and what to do."""


class DiskFullError(StorageError):
    """The disk has no room. What was acknowledged before stays readable."""


class DamageError(StorageError):
    """Files of a data directory are not as they were written. Nothing was changed; `steelyard check` helps.

    `paths`: the files, relative to the data directory.
    """

    def __init__(self, text: str, paths: tuple[str, ...]) -> None:
        super().__init__(text)
        self.paths = paths


class OwnerError(StorageError):
    """The data directory is another broker's; the text says whose, and who wanted it."""


class DescriptorsError(StorageError):
    """A file could not be opened because the process, or the machine, has no file descriptor left (EMFILE, ENFILE).

    The disk was not asked: nothing was written, nothing was lost, and trying again helps once something was closed.
    """

    retriable = True


class CorruptError(StorageError):
    """A stored entry is not what was written there: it is served to nobody.

    `path`: its log file, relative to the data directory; `position`: of the entry in that file, bytes;
    `topic`, `queue_id`, `offset`: the first message that cannot be read; `next_offset`: the first behind the entry.
    """

    def __init__(
        self, path: str, position: int, topic: str, queue_id: int, offset: int, next_offset: int
    ) -> None:
        super().__init__(
            f"the message at offset {offset} of queue {queue_id} of topic {topic!r} is damaged on the disk"
            f" ({path}, byte {position}) and is not served; to continue without it, reset the group's offset to"
            f" {next_offset}, or stop the broker and run 'steelyard check --repair' on its data directory"
        )
        self.path = path
        self.position = position
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.next_offset = next_offset
