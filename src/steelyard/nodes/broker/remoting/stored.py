"""Access to stored messages, which requests name by their address: whose they are, the log says."""

from __future__ import annotations

from steelyard.acl.accounts import AccountGrant
from steelyard.errors import MessageError, ProtocolError
from steelyard.nodes.access.guard import may_use, no_permission
from steelyard.nodes.broker.requests import Refusal, RemotingRequest
from steelyard.nodes.broker.topics import HALF_TOPIC, INTERNAL_TOPICS, SCHEDULE_TOPIC, TIMER_TOPIC
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.message import MessageView, decode_records


def check_entry(request: RemotingRequest, entry: bytes) -> None:
    """Raise Refusal unless the sender of a request may read a stored entry."""
    account = request.account
    if account is None or account.is_unlimited:
        return
    try:
        views = decode_records(entry)
    except (MessageError, ProtocolError):  # a batch of Kafka's, which has no such addresses
        raise Refusal(
            ResponseCode.NO_PERMISSION, "no permission for what is stored there"
        ) from None
    for view in views:
        check_stored(request, view, AccountGrant.SUB)


def check_stored(request: RemotingRequest, view: MessageView, needed: AccountGrant) -> None:
    """Raise Refusal unless the sender of a request may do that with a stored message's topic.

    A message that waits for its delay or its transaction belongs to the topic that it was sent to.
    """
    account, topic = request.account, view.topic
    if account is None:
        return
    if topic in (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC):
        topic = view.property_of(props.REAL_TOPIC) or topic
    if not may_use(account, topic, needed, INTERNAL_TOPICS):
        raise Refusal(ResponseCode.NO_PERMISSION, no_permission(account, topic, needed))
