"""Copies of messages that could not be consumed, sent to the group's retry topic (310).

An ordered consumer gives up a message in this way, and it is the fallback where a broker does not
take a message back by its address (36). The copy says how often consumption was tried. After a
delay that grows with that number the group receives it again; with more tries than the allowed
number, which the copy states as well, the broker moves it to `%DLQ%group`.
Source: ConsumeMessageOrderlyService.sendMessageBack,
DefaultMQPushConsumerImpl.sendMessageBackAsNormalMessage, DefaultMQProducerImpl.sendKernelImpl
(where the numbers of tries move from the properties to the header).
"""

from __future__ import annotations

from steelyard.errors import RouteError, SteelyardError
from steelyard.nodes.consumer.remoting.peers import Peers, SentBack
from steelyard.nodes.seam import Effect
from steelyard.produce.verdict import STORED
from steelyard.types import MessageQueue
from steelyard.wire.remoting import headers
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.flags import SysFlag
from steelyard.wire.remoting.message import MessageView
from steelyard.wire.remoting.names import DEFAULT_TOPIC, RETRY_LEVEL

PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""MixAll.CLIENT_INNER_PRODUCER_GROUP."""

DEFAULT_TOPIC_QUEUES = 4

_KEPT_FLAGS = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK | SysFlag.MULTI_TAGS


def send_copy(
    peers: Peers,
    message: MessageView,
    tries_max: int,
    purpose: SentBack,
    now: int,
    effects: list[Effect],
) -> RouteError | None:
    """Send the copy, whose outcome follows under `purpose`; return an error if there is no route.

    Each copy goes to another queue of the retry topic, so that one that failed finds another
    broker.
    """
    route = peers.routes.route(peers.retry_topic)
    if route is None or not route.publish:
        return RouteError(f"no route for topic {peers.retry_topic}")
    queue = route.publish[(purpose.number + purpose.position) % len(route.publish)]
    address = route.masters.get(queue.broker_name)
    if address is None:
        return RouteError(f"broker {queue.broker_name} has no master")
    peers.call(address, copy_of(message, queue, tries_max, now), purpose, now, effects)
    return None


def is_stored(reply: Command | SteelyardError) -> bool:
    """Return whether a broker has stored the copy.

    With a reservation, too: not on its disk or a replica in time. It would be stored again if it
    were sent again, each time.
    """
    return isinstance(reply, Command) and reply.code in STORED


def copy_of(message: MessageView, queue: MessageQueue, tries_max: int, now: int) -> Command:
    """Return the request that stores the copy in `queue` of the retry topic."""
    properties = dict(message.properties)
    for name in (props.TRAN_MSG, props.RECONSUME_TIME, props.MAX_RECONSUME_TIMES):
        properties.pop(name, None)
    properties[props.RETRY_TOPIC] = message.topic
    properties.setdefault(props.ORIGIN_MESSAGE_ID, message.message_id)
    properties[props.DELAY] = str(RETRY_LEVEL + message.reconsume_times)
    header = headers.SendMessageRequestHeaderV2(
        producer_group=PRODUCER_GROUP,
        topic=queue.topic,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=message.sys_flag & _KEPT_FLAGS,
        born_timestamp=now,
        flag=message.flag,
        properties=props.encode_properties(properties),
        reconsume_times=message.reconsume_times + 1,
        max_reconsume_times=tries_max,
        broker_name=queue.broker_name,
    )
    return Command(
        code=RequestCode.SEND_MESSAGE_V2, ext=headers.write(header), body=message.stored_body
    )
