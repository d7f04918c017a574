"""What each request needs, by request code: the one table for brokers and nameservers.

A request needs rights to topics (PUB, SUB, or either) and to groups (SUB), an administrator's
account, or any account. Apache RocketMQ 4.9 checks eleven codes, and demands an administrator for
five; all others are open to every account there. Here the table is complete: what tells about
more than one topic or group is for administrators, as in 5.x, whose rights to reading progress and
positions (GET) every account has here that may consume.
Source: acl/plain/PlainAccessValidator.java, acl/common/Permission.java;
auth/authorization/builder/DefaultAuthorizationContextBuilder.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from steelyard.acl.accounts import AccountGrant
from steelyard.errors import ProtocolError
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import HeartbeatData, LockBatchBody
from steelyard.wire.remoting.codes import RequestCode, SteelyardCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.names import DEFAULT_TOPIC

PUB, SUB, PUB_OR_SUB = AccountGrant.PUB, AccountGrant.SUB, AccountGrant.PUB_OR_SUB


class Right(NamedTuple):
    """A right that a request needs: to a topic, or to a group."""

    name: str
    needed: AccountGrant
    is_group: bool = False


class NeedLevel(Enum):
    """What a request needs that names no topic and no group."""

    ACCOUNT = "any account"
    STORED = "any account; the handler looks whose the stored message is"
    ADMIN = "an administrator"


Rights = Callable[[Command], Iterator[Right]]
Need = NeedLevel | Rights


def _field(command: Command, name: str) -> str:
    found = command.ext.get(name)
    if not found:
        raise ProtocolError(f"the header has no {name}")
    return found


def _topic(needed: AccountGrant, name: str = "topic") -> Rights:
    """Need that of the topic in a field."""

    def rights(command: Command) -> Iterator[Right]:
        yield Right(_field(command, name), needed)

    return rights


def _groups(*names: str) -> Rights:
    """Need the groups in these fields."""

    def rights(command: Command) -> Iterator[Right]:
        for name in names:
            yield Right(_field(command, name), SUB, is_group=True)

    return rights


def _given(name: str, *, is_group: bool = False) -> Rights:
    """Need SUB of the topic or group in a field, if it is given."""

    def rights(command: Command) -> Iterator[Right]:
        found = command.ext.get(name)
        if found:
            yield Right(found, SUB, is_group)

    return rights


def _all(*parts: Rights) -> Rights:
    def rights(command: Command) -> Iterator[Right]:
        for part in parts:
            yield from part(command)

    return rights


def _route(command: Command) -> Iterator[Right]:
    """Need the topic; clients look up the one after which topics are created without a right."""
    topic = _field(command, "topic")
    if topic != DEFAULT_TOPIC:
        yield Right(topic, PUB_OR_SUB)


def _heartbeat(command: Command) -> Iterator[Right]:
    """Need the groups that are consumed in, and what is subscribed to.

    Producers' groups have no permissions.
    """
    for data in fastjson.read(HeartbeatData, command.body).consumer_data_set:
        yield Right(data.group_name, SUB, is_group=True)
        for item in data.subscription_data_set:
            yield Right(item.topic, SUB)


def _locks(command: Command) -> Iterator[Right]:
    body = fastjson.read(LockBatchBody, command.body)
    yield Right(body.consumer_group, SUB, is_group=True)
    for topic in dict.fromkeys(queue.topic for queue in body.mq_set):
        yield Right(topic, SUB)


_ACCOUNT, _STORED, _ADMIN = NeedLevel.ACCOUNT, NeedLevel.STORED, NeedLevel.ADMIN
_CONSUMING = _all(_topic(SUB), _groups("consumerGroup"))
_IN_GROUP = _all(_topic(SUB), _groups("group"))

NEEDS: Mapping[int, Need] = {
    # producers
    RequestCode.SEND_MESSAGE: _topic(PUB),
    RequestCode.SEND_MESSAGE_V2: _topic(PUB, "b"),
    RequestCode.SEND_BATCH_MESSAGE: _topic(PUB, "b"),
    RequestCode.SEND_REPLY_MESSAGE: _topic(PUB),
    RequestCode.SEND_REPLY_MESSAGE_V2: _topic(PUB, "b"),
    RequestCode.RECALL_MESSAGE: _topic(PUB),
    RequestCode.END_TRANSACTION: _STORED,
    # consumers
    RequestCode.PULL_MESSAGE: _CONSUMING,
    RequestCode.LITE_PULL_MESSAGE: _CONSUMING,
    RequestCode.QUERY_CONSUMER_OFFSET: _CONSUMING,
    RequestCode.UPDATE_CONSUMER_OFFSET: _CONSUMING,
    RequestCode.CONSUMER_SEND_MSG_BACK: _groups("group"),  # and STORED
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _groups("consumerGroup"),
    # both
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _given("consumerGroup", is_group=True),
    RequestCode.CHECK_CLIENT_CONFIG: _ACCOUNT,
    RequestCode.GET_MAX_OFFSET: _topic(PUB_OR_SUB),
    RequestCode.GET_MIN_OFFSET: _topic(PUB_OR_SUB),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _topic(PUB_OR_SUB),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _topic(PUB_OR_SUB),
    RequestCode.QUERY_MESSAGE: _topic(SUB),
    RequestCode.VIEW_MESSAGE_BY_ID: _STORED,
    # operators: of one topic or group
    RequestCode.GET_TOPIC_STATS_INFO: _topic(PUB_OR_SUB),
    RequestCode.GET_TOPIC_CONFIG: _topic(PUB_OR_SUB),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _groups("consumerGroup"),
    RequestCode.GET_CONSUME_STATS: _all(_groups("consumerGroup"), _given("topic")),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _IN_GROUP,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _IN_GROUP,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _IN_GROUP,
    RequestCode.CLONE_GROUP_OFFSET: _all(_groups("srcGroup", "destGroup"), _given("topic")),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _groups("consumerGroup"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _groups("consumerGroup"),  # and STORED
    # operators: of everything
    RequestCode.UPDATE_AND_CREATE_TOPIC: _ADMIN,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _ADMIN,
    RequestCode.DELETE_TOPIC_IN_BROKER: _ADMIN,
    RequestCode.CLEAN_UNUSED_TOPIC: _ADMIN,
    RequestCode.GET_ALL_TOPIC_CONFIG: _ADMIN,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _ADMIN,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _ADMIN,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _ADMIN,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _ADMIN,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _ADMIN,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _ADMIN,
    RequestCode.GET_ALL_CONSUMER_OFFSET: _ADMIN,
    RequestCode.GET_BROKER_CONSUME_STATS: _ADMIN,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _ADMIN,
    RequestCode.GET_ALL_PRODUCER_INFO: _ADMIN,
    RequestCode.UPDATE_BROKER_CONFIG: _ADMIN,
    RequestCode.GET_BROKER_CONFIG: _ADMIN,
    RequestCode.GET_BROKER_RUNTIME_INFO: _ADMIN,
    RequestCode.VIEW_BROKER_STATS_DATA: _ADMIN,
    SteelyardCode.KAFKA_GROUPS: _ADMIN,
    SteelyardCode.COMMIT_TOGETHER: _ADMIN,
    SteelyardCode.FIGURES: _ADMIN,
    SteelyardCode.KAFKA_FIGURES: _ADMIN,
    SteelyardCode.STORE_TIMES: _ADMIN,
    # nameservers
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _route,
    RequestCode.GET_BROKER_CLUSTER_INFO: _ACCOUNT,
    RequestCode.REGISTER_BROKER: _ADMIN,
    RequestCode.UNREGISTER_BROKER: _ADMIN,
    RequestCode.QUERY_DATA_VERSION: _ADMIN,
    RequestCode.PUT_KV_CONFIG: _ADMIN,
    RequestCode.GET_KV_CONFIG: _ADMIN,
    RequestCode.DELETE_KV_CONFIG: _ADMIN,
    RequestCode.GET_KVLIST_BY_NAMESPACE: _ADMIN,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _ADMIN,
    RequestCode.GET_TOPICS_BY_CLUSTER: _ADMIN,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _ADMIN,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _ADMIN,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _ADMIN,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _ADMIN,
}
"""By request code."""


def check_complete(codes: Mapping[int, object], needs: Mapping[int, Need]) -> None:
    """Assert that there is an entry for every code that a server handles."""
    missing = sorted(codes.keys() - needs.keys())
    assert not missing, f"no entry in the table of access needs for the request codes {missing}"
