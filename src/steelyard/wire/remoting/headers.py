"""Custom headers of requests and responses, as typed data.

On the wire a header is the `ext` map of a `Command`, text to text. Wire names are the camelCase of
the field names, or given by `field(name=...)`. `read` and `write` convert.

Behaviour
- Unknown keys are ignored: ACL signatures, namespaces (`ns`, `nsd`), `bname`, `lo`, `oway` are sent
  there.
- A required key that is missing, or text that is not a number, raises `ProtocolError`, which names
  the key.
- An optional field that is None is not written.
Source: remoting/protocol/header/*.java, one class per request; CFNotNull marks what is required.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, field

from steelyard.decoding import prepared
from steelyard.errors import ProtocolError

Int = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
"""Java's Integer."""

Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's Long."""


class Header(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Base of the custom headers."""


H = TypeVar("H", bound=Header)


def read(kind: type[H], ext: Mapping[str, str]) -> H:
    """Read the typed header in `ext`. Raises ProtocolError with a text for the peer's remark."""
    try:
        return msgspec.convert(ext, prepared(kind), strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"header {kind.__name__}: {error}") from None


def write(header: Header) -> dict[str, str]:
    """Return the `ext` map of a header; booleans as Java prints them."""
    fields: dict[str, object] = msgspec.to_builtins(header)
    return {
        name: ("true" if value else "false") if isinstance(value, bool) else str(value)
        for name, value in fields.items()
        if value is not None
    }


# -- sending -------------------------------------------------------------------------------------


class _SentHeader(Header, frozen=True, kw_only=True):
    """Fields that the headers of messages share."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False


class SendMessageRequestHeader(_SentHeader, frozen=True, kw_only=True):
    """10 SEND_MESSAGE. Header/SendMessageRequestHeader.java."""

    batch: bool = False
    max_reconsume_times: Int | None = None


class SendMessageRequestHeaderV2(Header, frozen=True, kw_only=True):
    """310 SEND_MESSAGE_V2 and 320 SEND_BATCH_MESSAGE: the same with one-letter names."""

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int = field(name="d")
    queue_id: Int = field(name="e")
    sys_flag: Int = field(name="f")
    born_timestamp: Long = field(name="g")
    flag: Int = field(name="h")
    properties: str = field(name="i", default="")
    reconsume_times: Int = field(name="j", default=0)
    unit_mode: bool = field(name="k", default=False)
    max_reconsume_times: Int | None = field(name="l", default=None)
    batch: bool = field(name="m", default=False)
    broker_name: str | None = field(name="n", default=None)


class SendMessageResponseHeader(Header, frozen=True, kw_only=True):
    """Response to 10, 310 and 320.

    The Java client raises NullPointerException if the region or trace keys are missing.
    """

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str = field(name="MSG_REGION", default="DefaultRegion")
    trace_on: str = field(name="TRACE_ON", default="true")


class RecallMessageRequestHeader(Header, frozen=True, kw_only=True):
    """370 RECALL_MESSAGE. `recall_handle`: see `recall`."""

    producer_group: str
    topic: str
    recall_handle: str
    bname: str | None = None


class EndTransactionRequestHeader(Header, frozen=True, kw_only=True):
    """37 END_TRANSACTION, one-way.

    `tran_state_table_offset` and `commit_log_offset`: the half message's queue and physical offset;
    `commit_or_rollback`: a transaction value of `SysFlag`, 0 if the state is unknown.
    """

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None
    bname: str | None = None


class CheckTransactionStateRequestHeader(Header, frozen=True, kw_only=True):
    """39 CHECK_TRANSACTION_STATE, broker to producer, one-way.

    The body is the half message as a record.
    """

    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    bname: str | None = None


class ReplyMessageRequestHeader(_SentHeader, frozen=True, kw_only=True):
    """326 PUSH_REPLY_MESSAGE_TO_CLIENT, broker to producer; the body is the reply's.

    Hosts are `ip:port`.
    """

    born_host: str
    store_host: str
    store_timestamp: Long


# -- pulling -------------------------------------------------------------------------------------


class PullMessageRequestHeader(Header, frozen=True, kw_only=True):
    """11 PULL_MESSAGE. `sys_flag`: see `PullFlag`."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = None
    sub_version: Long
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    handed_ms: Long | None = None
    """An extension: time since the listener was passed its first message of the queue.

    Sent once, with the next pull, after a member got the queue.
    """
    takes_batches: bool | None = None
    """An extension: what Kafka's producers wrote may be answered as record batches.

    Brokers that do not know it convert it to messages, as for everybody; ours do so if the pull
    has a filter.
    """
    bname: str | None = None


class PullMessageResponseHeader(Header, frozen=True, kw_only=True):
    """Response to 11; the body is contiguous messages."""

    suggest_which_broker_id: Int = 0
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    unique_prefix: str | None = None
    """An extension: the body is record batches (`wire.stored_batches`).

    The UNIQ_KEY of each message begins with this, and ends with the 14 hexadecimal digits of its
    offset.
    """


# -- offsets -------------------------------------------------------------------------------------


class QueryConsumerOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """14 QUERY_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None
    bname: str | None = None


class UpdateConsumerOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """15 UPDATE_CONSUMER_OFFSET, usually one-way."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long
    handed_offset: Long | None = None
    """An extension: the offset after the last message passed to the listener.

    Sent with the last commit before a queue is given up.
    """
    handed_ms: Long | None = None
    """An extension: time since that message was passed to the listener, if one was."""
    bname: str | None = None


class QueueRequestHeader(Header, frozen=True, kw_only=True):
    """30 GET_MAX_OFFSET, 31 GET_MIN_OFFSET, 32 GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int
    bname: str | None = None


class SearchOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """29 SEARCH_OFFSET_BY_TIMESTAMP. `boundary_type` (5.x): LOWER or UPPER."""

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: str | None = None
    bname: str | None = None


class OffsetResponseHeader(Header, frozen=True, kw_only=True):
    """Response to 14, 29, 30, 31."""

    offset: Long


class ViewMessageRequestHeader(Header, frozen=True, kw_only=True):
    """33 VIEW_MESSAGE_BY_ID: `offset` is the physical offset from the message id."""

    offset: Long
    topic: str | None = None


# -- clients -------------------------------------------------------------------------------------


class UnregisterClientRequestHeader(Header, frozen=True, kw_only=True):
    """35 UNREGISTER_CLIENT."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerGroupHeader(Header, frozen=True, kw_only=True):
    """38 GET_CONSUMER_LIST_BY_GROUP, 40 NOTIFY_CONSUMER_IDS_CHANGED, 203 consumer connections."""

    consumer_group: str


class ProducerGroupHeader(Header, frozen=True, kw_only=True):
    """204 GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class ConsumerRunningInfoRequestHeader(Header, frozen=True, kw_only=True):
    """307 GET_CONSUMER_RUNNING_INFO."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequestHeader(Header, frozen=True, kw_only=True):
    """309 CONSUME_MESSAGE_DIRECTLY; to the client, the body is the message as a record."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None


class ResetOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """220 RESET_CONSUMER_CLIENT_OFFSET, 222 INVOKE_BROKER_TO_RESET_OFFSET.

    `timestamp`: ms, -1 for the end. `is_force`: also move the group forward. From 5.x on:
    `queue_id`, -1 for all; `offset`, None or -1 for none.
    """

    group: str
    topic: str
    timestamp: Long
    is_force: bool = False
    queue_id: Int = -1
    offset: Long | None = None


class ConsumerStatusRequestHeader(Header, frozen=True, kw_only=True):
    """221 GET_CONSUMER_STATUS_FROM_CLIENT, 223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS."""

    topic: str
    group: str
    client_addr: str | None = None


class ConsumerSendMsgBackRequestHeader(Header, frozen=True, kw_only=True):
    """36 CONSUMER_SEND_MSG_BACK."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


# -- topics and groups -----------------------------------------------------------------------------


class CreateTopicRequestHeader(Header, frozen=True, kw_only=True):
    """17 UPDATE_AND_CREATE_TOPIC."""

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class TopicRequestHeader(Header, frozen=True, kw_only=True):
    """202 GET_TOPIC_STATS_INFO, 215 DELETE_TOPIC_IN_BROKER, 300 groups, 351 GET_TOPIC_CONFIG."""

    topic: str


class CloneGroupOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """314 CLONE_GROUP_OFFSET. `topic`: None or empty for all; `offline`: also what is not read."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ConsumeStatsRequestHeader(Header, frozen=True, kw_only=True):
    """208 GET_CONSUME_STATS."""

    consumer_group: str
    topic: str | None = None


class TopicGroupRequestHeader(Header, frozen=True, kw_only=True):
    """303 QUERY_CONSUME_TIME_SPAN."""

    topic: str
    group: str


class QueryMessageRequestHeader(Header, frozen=True, kw_only=True):
    """12 QUERY_MESSAGE: by a message's key, or by its unique key; times are store times in ms.

    `unique_key_query` only raises the number of messages to 32 in Apache brokers; `acl` describes
    its problem.
    """

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    unique_key_query: bool | None = field(name="_UNIQUE_KEY_QUERY", default=None)


class QueryMessageResponseHeader(Header, frozen=True, kw_only=True):
    """Response to 12; the body is contiguous messages."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewBrokerStatsDataRequestHeader(Header, frozen=True, kw_only=True):
    """315 VIEW_BROKER_STATS_DATA: TOPIC_PUT_NUMS of a topic, GROUP_GET_NUMS of `topic@group`."""

    stats_name: str
    stats_key: str


class DeleteSubscriptionGroupRequestHeader(Header, frozen=True, kw_only=True):
    """207 DELETE_SUBSCRIPTIONGROUP. Whether the offsets go as well has two names."""

    group_name: str
    clean_offset: bool = False
    """From 5.0 on."""
    remove_offset: bool = False
    """The same in 4.9."""


# -- nameserver ----------------------------------------------------------------------------------


class GetRouteInfoRequestHeader(Header, frozen=True, kw_only=True):
    """105 GET_ROUTEINFO_BY_TOPIC."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """103 REGISTER_BROKER. `body_crc32` is CRC-32 of the body & 0x7FFFFFFF."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    compressed: bool = False
    body_crc32: Int = 0


class RegisterBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """Response to 103."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class BrokerIdentityHeader(Header, frozen=True, kw_only=True):
    """104 UNREGISTER_BROKER, 322 QUERY_DATA_VERSION."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class BrokerNameHeader(Header, frozen=True, kw_only=True):
    """205 WIPE_WRITE_PERM_OF_BROKER, 327 ADD_WRITE_PERM_OF_BROKER, Steelyard's ACL_USERS."""

    broker_name: str


class QueryDataVersionResponseHeader(Header, frozen=True, kw_only=True):
    """Response to 322."""

    changed: bool


class KVConfigHeader(Header, frozen=True, kw_only=True):
    """100 PUT_KV_CONFIG, 101 GET_KV_CONFIG, 102 DELETE_KV_CONFIG, 219 GET_KVLIST_BY_NAMESPACE."""

    namespace: str
    key: str = ""
    value: str = ""


class ValueResponseHeader(Header, frozen=True, kw_only=True):
    """Response to 101."""

    value: str


class DeleteTopicFromNamesrvRequestHeader(Header, frozen=True, kw_only=True):
    """216 DELETE_TOPIC_IN_NAMESRV."""

    topic: str
    cluster_name: str | None = None


class ClusterRequestHeader(Header, frozen=True, kw_only=True):
    """224 GET_TOPICS_BY_CLUSTER."""

    cluster: str


# -- users and policies of RocketMQ 5.x ------------------------------------------------------------


class UserRequestHeader(Header, frozen=True, kw_only=True):
    """3001 to 3004: CREATE_USER, UPDATE_USER, DELETE_USER, GET_USER."""

    username: str


class ListUsersRequestHeader(Header, frozen=True, kw_only=True):
    """3005 LIST_USER. `filter`: part of their names."""

    filter: str | None = None


class AclRequestHeader(Header, frozen=True, kw_only=True):
    """3006 to 3009: CREATE_ACL, UPDATE_ACL, DELETE_ACL, GET_ACL.

    `subject`: "User:NAME". DELETE_ACL: `policy_type` is Custom if None; without `resource` all of
    the subject's entries go.
    """

    subject: str
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequestHeader(Header, frozen=True, kw_only=True):
    """3010 LIST_ACL. Parts of the subjects and of the resources to list."""

    subject_filter: str | None = None
    resource_filter: str | None = None
