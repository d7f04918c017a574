"""36 CONSUMER_SEND_MSG_BACK: a consumer could not process a message and wants it again, later.

The message is written again, to `%RETRY%group`, with one more delivery counted, after a delay that
grows with every delivery (level 3 + deliveries so far, unless the consumer names one). After the
last try, or with a negative level, it goes to `%DLQ%group` at once. If the group has no retry
queues, nothing is written.
Source: broker/processor/AbstractSendMessageProcessor.consumerSendMsgBack.
"""

from __future__ import annotations

from steelyard.acl.accounts import AccountGrant
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.remoting.consumer_groups import SubscriptionGroups
from steelyard.nodes.broker.remoting.delays import Delays
from steelyard.nodes.broker.remoting.stored import check_stored
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.broker.topics import DLQ_QUEUES
from steelyard.nodes.broker.writer import Draft
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting import headers
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import decode_records
from steelyard.wire.remoting.names import RETRY_LEVEL, dlq_topic, retry_topic
from steelyard.wire.remoting.properties import Properties


class Retries:
    """Handler of 36 CONSUMER_SEND_MSG_BACK."""

    def __init__(self, parts: Parts, groups: SubscriptionGroups, delays: Delays) -> None:
        self._store = parts.store
        self._topics = parts.topics
        self._groups = groups
        self._writer = parts.writer
        self._delays = delays
        self._registration = parts.registration
        self._durability = parts.durability
        self._rng = parts.rng

    @serves(RequestCode.CONSUMER_SEND_MSG_BACK)
    def send_back(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        header = request.header(headers.ConsumerSendMsgBackRequestHeader)
        config = self._groups.get(header.group)
        if config.retry_queue_nums <= 0:
            return request.reply()
        entry = None if header.offset < 0 else self._store.at_address(header.offset)
        if entry is None:
            remark = f"look message by offset failed, {header.offset}"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        view = decode_records(entry)[0]
        check_stored(request, view, AccountGrant.SUB)
        properties = dict(view.properties)
        properties.setdefault(props.RETRY_TOPIC, view.topic)
        properties.setdefault(props.ORIGIN_MESSAGE_ID, view.offset_message_id)
        properties.pop(props.DELAY, None)
        tries_max = header.max_reconsume_times
        if tries_max is None:
            tries_max = config.retry_max_times
        level = header.delay_level
        if level < 0 or view.reconsume_times >= tries_max:
            topic, queues, level = dlq_topic(header.group), DLQ_QUEUES, 0
        else:
            topic, queues = retry_topic(header.group), config.retry_queue_nums
            level = level or RETRY_LEVEL + view.reconsume_times
        self._writer.admit()  # before the topic is created
        topic_config, made = self._topics.ensure(topic, queues, now)
        if made:
            self._registration.changed(now, effects)
        queue_id = self._rng.randrange(min(queues, topic_config.write_queue_nums))
        if level:
            properties[props.DELAY] = str(level)
            topic, queue_id, properties = self._delays.divert(topic, queue_id, properties, now)
        draft = Draft(
            view.stored_body,
            Properties.of(properties),
            view.born_host_bytes,
            view.born_timestamp,
            view.flag,
            view.sys_flag,
            view.reconsume_times + 1,
        )
        written = self._writer.write(topic, queue_id, draft, now, effects)
        self._delays.stored(topic, queue_id, written.offset, properties, now, effects)
        return self._durability.acknowledge(request, request.reply(), effects)
