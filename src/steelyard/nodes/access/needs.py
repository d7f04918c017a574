"""What each request needs, by request code: the one table for brokers and nameservers.

A request needs rights to topics and groups, an administrator's account, or any account. Apache
RocketMQ 4.9 checks eleven codes, and demands an administrator for five; all others are open to
every account there. Here the table is complete: what tells about more than one topic or group, or
changes one, is for administrators. Users of 5.x may do that, too, where their policies allow the
action (`Administration`), as there. Accounts of 4.9 that may consume may also read progress and
positions (GET), and set them (UPDATE).
Source: acl/plain/PlainAccessValidator.java, acl/common/Permission.java;
auth/authorization/builder/DefaultAuthorizationContextBuilder.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from steelyard.acl.accounts import AccountGrant, ResourceKind
from steelyard.acl.policies import ANY
from steelyard.errors import ProtocolError
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import HeartbeatData, LockBatchBody
from steelyard.wire.remoting.codes import RequestCode, SteelyardCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.names import DEFAULT_TOPIC, SELF_TEST_TOPIC

PUB, SUB, GET, LIST = AccountGrant.PUB, AccountGrant.SUB, AccountGrant.GET, AccountGrant.LIST
CREATE, UPDATE, DELETE = AccountGrant.CREATE, AccountGrant.UPDATE, AccountGrant.DELETE
LOOK = PUB | SUB | GET


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


class Administration(NamedTuple):
    """An operator's request: for administrators, and for users of 5.x whose policies allow it.

    `field`: where the header names the topic or group; empty for a request that is about all.
    """

    kind: ResourceKind
    needed: AccountGrant
    field: str = ""

    def name(self, command: Command) -> str:
        """Return the topic or group; `*`, which stands for all, if the header names none."""
        return command.ext.get(self.field) or ANY


Rights = Callable[[Command], Iterator[Right]]
Need = NeedLevel | Administration | Rights


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


def _groups(needed: AccountGrant, *names: str) -> Rights:
    """Need that of the groups in these fields."""

    def rights(command: Command) -> Iterator[Right]:
        for name in names:
            yield Right(_field(command, name), needed, is_group=True)

    return rights


def _given(needed: AccountGrant, name: str, *, is_group: bool = False) -> Rights:
    """Need that of the topic or group in a field, if it is given."""

    def rights(command: Command) -> Iterator[Right]:
        found = command.ext.get(name)
        if found:
            yield Right(found, needed, is_group)

    return rights


def _all(*parts: Rights) -> Rights:
    def rights(command: Command) -> Iterator[Right]:
        for part in parts:
            yield from part(command)

    return rights


def _route(command: Command) -> Iterator[Right]:
    """Need the topic; which topics brokers make, and whether there are any, all clients may ask."""
    topic = _field(command, "topic")
    if topic not in (DEFAULT_TOPIC, SELF_TEST_TOPIC):
        yield Right(topic, LOOK)


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
_CLUSTER, _TOPIC, _GROUP = ResourceKind.CLUSTER, ResourceKind.TOPIC, ResourceKind.GROUP
_CHANGE_CLUSTER = Administration(_CLUSTER, UPDATE)
_LOOK_AT_CLUSTER = Administration(_CLUSTER, GET)


def _consuming(needed: AccountGrant) -> Rights:
    return _all(_topic(needed), _groups(needed, "consumerGroup"))


def _in_group(needed: AccountGrant) -> Rights:
    return _all(_topic(needed), _groups(needed, "group"))


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
    RequestCode.PULL_MESSAGE: _consuming(SUB),
    RequestCode.LITE_PULL_MESSAGE: _consuming(SUB),
    RequestCode.QUERY_CONSUMER_OFFSET: _consuming(SUB | GET),
    RequestCode.UPDATE_CONSUMER_OFFSET: _consuming(SUB | UPDATE),
    RequestCode.CONSUMER_SEND_MSG_BACK: _groups(SUB, "group"),  # and STORED
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _groups(SUB | GET, "consumerGroup"),
    # both
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _given(SUB, "consumerGroup", is_group=True),
    RequestCode.CHECK_CLIENT_CONFIG: _ACCOUNT,
    RequestCode.GET_MAX_OFFSET: _topic(LOOK),
    RequestCode.GET_MIN_OFFSET: _topic(LOOK),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _topic(LOOK),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _topic(LOOK),
    RequestCode.QUERY_MESSAGE: _topic(SUB | GET),
    RequestCode.VIEW_MESSAGE_BY_ID: _STORED,
    # operators: of one topic or group
    RequestCode.GET_TOPIC_STATS_INFO: _topic(LOOK),
    RequestCode.GET_TOPIC_CONFIG: _topic(LOOK),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _groups(SUB | GET, "consumerGroup"),
    RequestCode.GET_CONSUME_STATS: _all(
        _groups(SUB | GET, "consumerGroup"), _given(SUB | GET, "topic")
    ),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _in_group(SUB | GET),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _in_group(SUB | UPDATE),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _in_group(SUB | GET),
    RequestCode.CLONE_GROUP_OFFSET: _all(
        _groups(SUB | UPDATE, "srcGroup", "destGroup"), _given(SUB | UPDATE, "topic")
    ),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _groups(SUB | GET, "consumerGroup"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _groups(SUB, "consumerGroup"),  # and STORED
    # operators: of everything
    RequestCode.UPDATE_AND_CREATE_TOPIC: Administration(_TOPIC, CREATE, "topic"),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Administration(_TOPIC, CREATE),
    RequestCode.DELETE_TOPIC_IN_BROKER: Administration(_TOPIC, DELETE, "topic"),
    RequestCode.CLEAN_UNUSED_TOPIC: _CHANGE_CLUSTER,
    RequestCode.GET_ALL_TOPIC_CONFIG: Administration(_TOPIC, LIST),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _LOOK_AT_CLUSTER,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Administration(_TOPIC, GET, "topic"),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Administration(_GROUP, CREATE),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Administration(_GROUP, CREATE),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: Administration(_GROUP, DELETE, "groupName"),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Administration(_GROUP, LIST),
    RequestCode.GET_ALL_CONSUMER_OFFSET: _LOOK_AT_CLUSTER,
    RequestCode.GET_BROKER_CONSUME_STATS: _LOOK_AT_CLUSTER,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _LOOK_AT_CLUSTER,
    RequestCode.GET_ALL_PRODUCER_INFO: _LOOK_AT_CLUSTER,
    RequestCode.UPDATE_BROKER_CONFIG: _CHANGE_CLUSTER,
    RequestCode.GET_BROKER_CONFIG: _LOOK_AT_CLUSTER,
    RequestCode.GET_BROKER_RUNTIME_INFO: _LOOK_AT_CLUSTER,
    RequestCode.VIEW_BROKER_STATS_DATA: _LOOK_AT_CLUSTER,
    RequestCode.AUTH_CREATE_USER: _CHANGE_CLUSTER,
    RequestCode.AUTH_UPDATE_USER: _CHANGE_CLUSTER,
    RequestCode.AUTH_DELETE_USER: _CHANGE_CLUSTER,
    RequestCode.AUTH_GET_USER: _ADMIN,  # as passwords are in the answer
    RequestCode.AUTH_LIST_USER: _ADMIN,
    RequestCode.AUTH_CREATE_ACL: _CHANGE_CLUSTER,
    RequestCode.AUTH_UPDATE_ACL: _CHANGE_CLUSTER,
    RequestCode.AUTH_DELETE_ACL: _CHANGE_CLUSTER,
    RequestCode.AUTH_GET_ACL: _LOOK_AT_CLUSTER,
    RequestCode.AUTH_LIST_ACL: _LOOK_AT_CLUSTER,
    SteelyardCode.KAFKA_GROUPS: _LOOK_AT_CLUSTER,
    SteelyardCode.COMMIT_TOGETHER: _ADMIN,
    SteelyardCode.FIGURES: _LOOK_AT_CLUSTER,
    SteelyardCode.KAFKA_FIGURES: _LOOK_AT_CLUSTER,
    SteelyardCode.STORE_TIMES: _LOOK_AT_CLUSTER,
    # nameservers
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _route,
    RequestCode.GET_BROKER_CLUSTER_INFO: _ACCOUNT,
    RequestCode.REGISTER_BROKER: _ADMIN,
    RequestCode.UNREGISTER_BROKER: _ADMIN,
    SteelyardCode.ACL_USERS: _ADMIN,
    RequestCode.QUERY_DATA_VERSION: _ADMIN,
    RequestCode.PUT_KV_CONFIG: _CHANGE_CLUSTER,
    RequestCode.GET_KV_CONFIG: _LOOK_AT_CLUSTER,
    RequestCode.DELETE_KV_CONFIG: _CHANGE_CLUSTER,
    RequestCode.GET_KVLIST_BY_NAMESPACE: _LOOK_AT_CLUSTER,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Administration(_TOPIC, LIST),
    RequestCode.GET_TOPICS_BY_CLUSTER: Administration(_TOPIC, LIST),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _LOOK_AT_CLUSTER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: Administration(_TOPIC, DELETE, "topic"),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _CHANGE_CLUSTER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _CHANGE_CLUSTER,
}
"""By request code."""


def check_complete(codes: Mapping[int, object], needs: Mapping[int, Need]) -> None:
    """Assert that there is an entry for every code that a server handles."""
    missing = sorted(codes.keys() - needs.keys())
    assert not missing, f"no entry in the table of access needs for the request codes {missing}"
