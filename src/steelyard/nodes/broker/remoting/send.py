"""10, 310 SEND_MESSAGE and 320 SEND_BATCH_MESSAGE: messages become records of a queue.

- Refused are: an invalid topic name or queue id (29); a topic that clients must not send to or that
  is not writable (16); a message whose properties or body are too large (13); a delay that is too
  long or not a number (13); a topic that does not exist and cannot be created (17); a transaction
  if too many are open (2).
- In a topic that is compacted, each message must have KEYS (13).
- A topic that does not exist is created from the header's default topic; `%RETRY%` topics are also
  created without one.
- A negative queue id means any queue.
- The broker adds the property CLUSTER and removes WAIT=true: see `stored_properties`.
- TRAN_MSG=true makes a half message: see `transactions`. (Not of a delayed retry, which clients
  before 4.6.1 send with that property.)
- DELAY and TIMER_* delay the message (`delays`); the answer to the latter has a handle by which it
  can be recalled (`recall`). A message that was retried too often goes to `%DLQ%`.
- A batch is stored as single messages at consecutive offsets, all or none. A batch of more than
  BATCH_AT_ONCE is stored in steps: messages of others may come between, and if the disk refuses a
  step, those before it stay.
- With flush=sync, the reply waits for the disk unless the message says WAIT=false.
Source: broker/processor/SendMessageProcessor.java, AbstractSendMessageProcessor.java.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from steelyard.errors import MessageError
from steelyard.groups.remoting.locks import QueueLocks
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.remoting.consumer_groups import SubscriptionGroups
from steelyard.nodes.broker.remoting.delays import Delays
from steelyard.nodes.broker.remoting.schedule import delay_level
from steelyard.nodes.broker.remoting.stored_properties import (
    StoredProperties,
    may_be_special,
    waits_for_disk,
)
from steelyard.nodes.broker.remoting.transactions import Transactions
from steelyard.nodes.broker.requests import Refusal, RemotingRequest, no_topic, serves
from steelyard.nodes.broker.topics import (
    DLQ_QUEUES,
    HALF_TOPIC,
    NO_SENDING,
    TIMER_TOPIC,
    policies,
    topic_fault,
)
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.broker.writer import AppendResult, BatchOrigin, Draft
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.bodies import TopicConfig
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.flags import TRANSACTION_BITS
from steelyard.wire.remoting.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from steelyard.wire.remoting.message import batch_entries
from steelyard.wire.remoting.names import PERM_WRITE, RETRY_PREFIX, dlq_topic
from steelyard.wire.remoting.properties import TIMER_PROPERTIES, Properties
from steelyard.wire.remoting.recall import RecallHandle

_ADDRESS = struct.Struct(">Q")
_NO_DELAY = frozenset((None, "0"))
"""DELAY of a message without a delay: Java writes 0 if it is given level 0."""

BATCH_AT_ONCE = 1_000
"""Maximum messages of a batch that is stored at once."""
STEP_READS = 1_000
STEP_WRITES = 200
"""Messages of a larger batch that are read, and stored, in one step of some 4 ms."""

AnySend = SendMessageRequestHeader | SendMessageRequestHeaderV2

Answer = Command | Steps[Command | None] | None


class Sends:
    """Handlers of sends; see the module docstring."""

    def __init__(
        self,
        parts: Parts,
        groups: SubscriptionGroups,
        locks: QueueLocks,
        delays: Delays,
        transactions: Transactions,
    ) -> None:
        self._body_bytes_max = parts.config.store.message_bytes_max
        self._batch_messages_max = parts.config.batch_messages_max
        self._topics = parts.topics
        self._groups = groups
        self._locks = locks
        self._writer = parts.writer
        self._delays = delays
        self._transactions = transactions
        self._registration = parts.registration
        self._durability = parts.durability
        self._rng = parts.rng
        self._broker_name = parts.config.name
        self._stored_properties = StoredProperties(parts.config.cluster)

    # -- handlers --------------------------------------------------------------------------------

    @serves(RequestCode.SEND_MESSAGE)
    def send(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Answer:
        return self._send(request, request.header(SendMessageRequestHeader), now, effects)

    @serves(RequestCode.SEND_MESSAGE_V2)
    def send_v2(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Answer:
        return self._send(request, request.header(SendMessageRequestHeaderV2), now, effects)

    @serves(RequestCode.SEND_BATCH_MESSAGE)
    def send_batch(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Answer:
        header = request.header(SendMessageRequestHeaderV2)
        return self._send_batch(request, header, now, effects)

    def _send(
        self, request: RemotingRequest, header: AnySend, now: int, effects: list[Effect]
    ) -> Answer:
        if header.batch:
            return self._send_batch(request, header, now, effects)
        self._writer.admit()  # before a topic is created
        asked = self.checked_queue(header, now, effects)
        topic, queue_id = header.topic, asked
        if len(request.body) > self._body_bytes_max:
            raise self._too_large(request)
        properties = Properties(self._stored_properties.of(header.properties))
        if self._needs_key(topic):
            _check_key(properties)
        waits = waits_for_disk(properties.text)
        if may_be_special(properties.text) or topic.startswith(RETRY_PREFIX):
            topic, queue_id, properties = self._special(header, queue_id, properties, now, effects)
        draft = Draft(
            request.body,
            properties,
            request.peer.host,
            header.born_timestamp,
            header.flag,
            header.sys_flag & ~TRANSACTION_BITS,
            header.reconsume_times,
        )
        written = self._writer.write(topic, queue_id, draft, now, effects)
        answer = self._stored(request, asked, written.offset, self._id(written.address))
        if topic is not header.topic:
            answer = self._diverted(answer, topic, queue_id, properties, written, now, effects)
        return self._durability.acknowledge(request, answer, effects) if waits else answer

    def _send_batch(
        self, request: RemotingRequest, header: AnySend, now: int, effects: list[Effect]
    ) -> Answer:
        self._writer.admit()  # before a topic is created
        queue_id = self.checked_queue(header, now, effects)
        if header.topic.startswith(RETRY_PREFIX):
            raise MessageError("a batch must not go to a retry topic")
        if len(request.body) > self._body_bytes_max:
            raise self._too_large(request)
        return self._batch_in_steps(request, header, queue_id, now, effects)

    def _batch_in_steps(
        self,
        request: RemotingRequest,
        header: AnySend,
        queue_id: int,
        now: int,
        effects: list[Effect],
    ) -> Steps[Command | None]:
        topic = header.topic
        needs_key = self._needs_key(topic)
        messages: list[tuple[int, bytes, bytes]] = []
        waits = True
        entries = batch_entries(request.body)
        while some := list(islice(entries, STEP_READS)):
            if messages:
                now, effects = yield
            flags, bodies, sent = zip(*some, strict=True)
            stored = None if needs_key else self._stored_properties.of_usual(sent)
            if stored is None:
                texts = [self._checked_in_batch(each, needs_key) for each in sent]
                waits = waits and all(map(waits_for_disk, texts))
                stored = [text.encode() for text in texts]
            messages += zip(flags, bodies, stored, strict=True)
        if not 0 < len(messages) <= self._batch_messages_max:
            remark = f"a batch of {len(messages)}: 1 to {self._batch_messages_max} are allowed"
            raise MessageError(remark)
        self._writer.admit()
        origin = BatchOrigin(
            request.peer.host,
            header.born_timestamp,
            header.sys_flag & ~TRANSACTION_BITS,
            header.reconsume_times,
        )
        step = len(messages) if len(messages) <= BATCH_AT_ONCE else STEP_WRITES
        offset = 0
        addresses: list[int] = []
        for start in range(0, len(messages), step):
            if start:
                now, effects = yield
            if self._topics.get(topic) is None:  # deleted: a write would create its queue again
                raise no_topic(topic)
            some = messages[start : start + step]
            first, added = self._writer.write_many(topic, queue_id, some, origin, now, effects)
            if not start:
                offset = first
            addresses += added
        answer = self._stored(request, queue_id, offset, self._ids(addresses))
        return self._durability.acknowledge(request, answer, effects) if waits else answer

    def _id(self, address: int) -> str:
        """Return the offset id of a message at this address of this broker's logs."""
        return (self._writer.host + _ADDRESS.pack(address)).hex().upper()

    def _ids(self, addresses: Sequence[int]) -> str:
        """Return the offset ids of messages at these addresses of this broker's logs."""
        host = self._writer.host.hex()
        ids = struct.pack(f">{len(addresses)}Q", *addresses).hex(",", _ADDRESS.size)
        return f"{host}{ids.replace(',', f',{host}')}".upper()

    def _stored(
        self, request: RemotingRequest, queue_id: int, offset: int, message_id: str
    ) -> Command:
        ext = {
            "msgId": message_id,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        return request.reply(ext=ext)

    def _checked_in_batch(self, sent: bytes, needs_key: bool) -> str:
        """Return the properties to store of a message in a batch; raise MessageError."""
        text = self._stored_properties.of(str(sent, "utf-8", "replace"))
        if needs_key or may_be_special(text):
            properties = Properties(text)
            if needs_key:
                _check_key(properties)
            _check_in_batch(properties)
        return text

    # -- checks ----------------------------------------------------------------------------------

    def _needs_key(self, topic: str) -> bool:
        """Return whether the topic is compacted, so that each message must have a key."""
        config = self._topics.get(topic)
        if config is None or not config.attributes:
            return False
        return "compact" in policies(config.attributes)

    def checked_queue(self, header: AnySend, now: int, effects: list[Effect]) -> int:
        """Return the queue to write to; create the topic if necessary. Raises Refusal."""
        if header.topic in NO_SENDING:
            remark = f"Sending message to topic[{header.topic}] is forbidden."
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        config = self._topics.get(header.topic)
        if config is None:
            config = self._make_topic(header, now, effects)
        if not config.perm & PERM_WRITE:
            remark = f"the topic[{header.topic}] sending message is forbidden"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        if header.queue_id < 0:
            return self._rng.randrange(config.write_queue_nums)
        if header.queue_id >= max(config.write_queue_nums, config.read_queue_nums):
            remark = f"request queueId[{header.queue_id}] is illegal, topic {header.topic}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return header.queue_id

    def _make_topic(self, header: AnySend, now: int, effects: list[Effect]) -> TopicConfig:
        topic = header.topic
        fault = topic_fault(topic)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        made = self._topics.inherit(
            topic, header.default_topic, header.default_topic_queue_nums, now
        )
        if made is None and topic.startswith(RETRY_PREFIX):
            made, _ = self._topics.ensure(topic, 1, now)
        if made is None:
            raise no_topic(topic)
        self._registration.changed(now, effects)
        return made

    def _special(
        self, header: AnySend, queue_id: int, sent: Properties, now: int, effects: list[Effect]
    ) -> tuple[str, int, Properties]:
        """Return topic, queue and properties of a delayed, retried or transactional message.

        Raises Refusal or MessageError.
        """
        properties = dict(sent.values)
        topic = header.topic
        self._delays.admit(properties, now)
        half = properties.get(props.TRAN_MSG, "").lower() == "true"
        if half and not (header.reconsume_times > 0 and delay_level(properties) > 0):
            if self._transactions.full:
                remark = "too many transactions are open on this broker"
                raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
            topic, queue_id, properties = self._transactions.divert(topic, queue_id, properties)
            return topic, queue_id, Properties.of(properties)
        if topic.startswith(RETRY_PREFIX):
            group = topic.removeprefix(RETRY_PREFIX)
            if self._is_last_try(group, header, now):
                for name in (props.DELAY, *TIMER_PROPERTIES):
                    properties.pop(name, None)
                topic, queue_id = dlq_topic(group), 0
                if self._topics.ensure(topic, DLQ_QUEUES, now)[1]:
                    self._registration.changed(now, effects)
        topic, queue_id, properties = self._delays.divert(topic, queue_id, properties, now)
        return topic, queue_id, Properties.of(properties)

    def _is_last_try(self, group: str, header: AnySend, now: int) -> bool:
        """Return whether a message that a consumer sends back has been tried often enough.

        Ordered consumers try again themselves and send it when they have reached the limit. Those
        before 5.1.1 do so with the number of tries before the last one.
        """
        tries_max = header.max_reconsume_times
        if tries_max is None:
            tries_max = self._groups.get(group).retry_max_times
        tries = header.reconsume_times
        return tries > tries_max or (tries == tries_max and self._locks.locked(group, now))

    def _diverted(
        self,
        answer: Command,
        topic: str,
        queue_id: int,
        properties: Properties,
        written: AppendResult,
        now: int,
        effects: list[Effect],
    ) -> Command:
        """Set timers for a message stored in another topic than requested; return the reply."""
        unique_id = properties.values.get(props.UNIQ_KEY)
        if topic == HALF_TOPIC:
            self._transactions.began(written.offset, now, effects)
            if unique_id is not None:
                return replace(answer, ext={**answer.ext, "transactionId": unique_id})
            return answer
        self._delays.stored(topic, queue_id, written.offset, properties.values, now, effects)
        if topic == TIMER_TOPIC and unique_id is not None:
            real, due = (properties.values[each] for each in (props.REAL_TOPIC, props.TIMER_OUT_MS))
            if not real.startswith(RETRY_PREFIX):
                handle = RecallHandle(real, self._broker_name, int(due), unique_id).encode()
                return replace(answer, ext={**answer.ext, "recallHandle": handle})
        return answer

    def _too_large(self, request: RemotingRequest) -> MessageError:
        size, most = len(request.body), self._body_bytes_max
        return MessageError(f"the message body of {size} bytes is larger than {most}")


def _check_key(properties: Properties) -> None:
    """Raise MessageError for a message without a key."""
    if not properties.values.get(props.KEYS, "").strip():
        raise MessageError("Required message key is missing")


def _check_in_batch(properties: Properties) -> None:
    """Raise MessageError for a message that may not be in a batch."""
    found = properties.values
    if (
        found.get(props.DELAY) not in _NO_DELAY
        or not found.keys().isdisjoint(TIMER_PROPERTIES)
        or found.get(props.TRAN_MSG) == "true"
    ):
        raise MessageError("a batch must not contain delayed or transactional messages")
