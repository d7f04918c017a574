"""370 RECALL_MESSAGE: a producer takes back a delayed message that is not due yet.

The answer to a send with TIMER_* has a handle. With it the message is recalled by another message,
which waits for the same time (`timers`): whoever comes first, a recalled message is not delivered.
A recall of a message that does not exist succeeds as well, as in RocketMQ. The answer's `msgId` is
the message's UNIQ_KEY.

- TOPIC_NOT_EXIST (17): the topic does not exist.
- ILLEGAL_OPERATION (604): the handle cannot be read, or is that of another topic or broker; the
  message is due, or would wait longer than `timer_max_delay_sec`.
- With flush=sync the answer waits for the disk.

Source: broker/processor/RecallMessageProcessor.java.
"""

from __future__ import annotations

from steelyard.errors import MessageError
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.requests import Refusal, RemotingRequest, serves
from steelyard.nodes.broker.timers.timers import DelayedMessages
from steelyard.nodes.broker.writer import Draft
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.headers import RecallMessageRequestHeader
from steelyard.wire.remoting.properties import Properties
from steelyard.wire.remoting.recall import RecallHandle

RECALL_TAG = "_RECALL_TAG_"


class Recalls:
    """Handler of 370 RECALL_MESSAGE."""

    def __init__(self, parts: Parts, timers: DelayedMessages) -> None:
        self._name = parts.config.name
        self._topics = parts.topics
        self._writer = parts.writer
        self._durability = parts.durability
        self._timers = timers

    @serves(RequestCode.RECALL_MESSAGE)
    def recall(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command | None:
        header = request.header(RecallMessageRequestHeader)
        if self._topics.get(header.topic) is None:
            remark = f"recall failed, the topic[{header.topic}] not exist"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        handle = self._checked(header)
        wanted = {
            props.TAGS: RECALL_TAG,
            props.TIMER_DEL_UNIQKEY: f"{handle.topic}+{handle.unique_id}",
            props.UNIQ_KEY: handle.unique_id,
            props.TIMER_DELIVER_MS: str(handle.due),
            props.PGROUP: header.producer_group,
        }
        try:
            self._timers.admit(wanted, now)
        except MessageError:
            remark = "recall failed, timestamp invalid"
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, remark) from None
        self._writer.admit()
        topic, queue_id, properties = self._timers.divert(handle.topic, 0, handle.due, wanted)
        draft = Draft(b"0", Properties.of(properties), request.peer.host, now)
        written = self._writer.write(topic, queue_id, draft, now, effects)
        self._timers.stored(written.offset, properties, now, effects)
        answer = request.reply(ext={"msgId": handle.unique_id, "MSG_REGION": "DefaultRegion"})
        return self._durability.acknowledge(request, answer, effects)

    def _checked(self, header: RecallMessageRequestHeader) -> RecallHandle:
        """Return the handle. Raises Refusal if it is not of this topic and broker."""
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except MessageError as error:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
        if handle.topic != header.topic:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker != self._name:
            remark = "recall failed, broker service not available"
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        return handle
