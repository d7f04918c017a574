"""JSON bodies of requests and responses, as typed data.

Wire names are the camelCase of the field names, or given by `field(name=...)`. `bodies` holds data
only: `fastjson` reads and writes the dialect of the Java peers, where keys may be numbers or
objects. Tables keyed by MessageQueue are pairs here and have object keys on the wire. Source:
remoting/protocol/body/*.java, heartbeat/*.java, route/*.java, admin/*.java.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, field

from steelyard.types import MessageQueue

Int = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
"""Java's Integer."""

Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's Long; a larger number is refused, because it could not be written again."""

# Enumerations of Java, in the order of their ordinals; `casts` takes the names from `extra`. Only
# exactly these texts are read the quick way; `casts` handles the others that fastjson accepts.

CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
TOPIC_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
CONSUME_RESULTS = (
    "CR_SUCCESS",
    "CR_LATER",
    "CR_ROLLBACK",
    "CR_COMMIT",
    "CR_THROW_EXCEPTION",
    "CR_RETURN_NULL",
)

ConsumeType = Annotated[
    str, Meta(pattern=f"^({'|'.join(CONSUME_TYPES)})$", extra={"names": CONSUME_TYPES})
]
"""heartbeat/ConsumeType.java."""
MessageModel = Annotated[
    str, Meta(pattern=f"^({'|'.join(MESSAGE_MODELS)})$", extra={"names": MESSAGE_MODELS})
]
"""heartbeat/MessageModel.java."""
ConsumeFromWhere = Annotated[
    str, Meta(pattern=f"^({'|'.join(CONSUME_FROM_WHERE)})$", extra={"names": CONSUME_FROM_WHERE})
]
"""common/consumer/ConsumeFromWhere.java.

The three between the first and the last two are deprecated.
"""
TopicFilterType = Annotated[
    str, Meta(pattern=f"^({'|'.join(TOPIC_FILTER_TYPES)})$", extra={"names": TOPIC_FILTER_TYPES})
]
"""common/TopicFilterType.java."""
ConsumeResult = Annotated[
    str, Meta(pattern=f"^({'|'.join(CONSUME_RESULTS)})$", extra={"names": CONSUME_RESULTS})
]
"""body/CMResult.java."""


class Body(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=False, forbid_unknown_fields=True
):
    """Base of the bodies.

    A text with undeclared fields is read by `casts`, because they may be declared ones in another
    spelling.
    """


# -- heartbeat (34) --------------------------------------------------------------------------------


class SubscriptionData(Body, frozen=True):
    """A subscription in a heartbeat.

    `sub_version` increases with every change, in practice milliseconds; `code_set` holds Java hash
    codes of the tags.
    """

    topic: str
    sub_string: str = "*"
    tags_set: tuple[str, ...] = ()
    code_set: tuple[Int, ...] = ()
    sub_version: Long = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(Body, frozen=True):
    group_name: str


class ConsumerData(Body, frozen=True):
    """A group in a heartbeat.

    `consume_type`: CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull).
    """

    group_name: str
    consume_type: ConsumeType = "CONSUME_PASSIVELY"
    message_model: MessageModel = "CLUSTERING"
    consume_from_where: ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class HeartbeatData(Body, frozen=True):
    client_id: str = field(name="clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()


class CheckClientBody(Body, frozen=True):
    """Request 46: whether the broker can filter by this subscription."""

    subscription_data: SubscriptionData | None = None
    client_id: str = ""
    group: str = ""


class ConsumerListBody(Body, frozen=True):
    """Response to 38."""

    consumer_id_list: tuple[str, ...]


# -- routes (105, 106, 103) ------------------------------------------------------------------------


class QueueData(Body, frozen=True):
    """The number of queues of a topic on one broker. `perm`: 4 read, 2 write, 1 inherit."""

    broker_name: str
    read_queue_nums: Int = 0
    write_queue_nums: Int = 0
    perm: Int = 0
    topic_sys_flag: Int = 0


class BrokerData(Body, frozen=True):
    """The addresses of the replicas of one broker name; id 0 is the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Long, str]


class TopicRouteData(Body, frozen=True):
    """Response to 105.

    `order_topic_conf`: `broker:queues;broker:queues` for strictly ordered topics.
    """

    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    order_topic_conf: str | None = None
    filter_server_table: dict[str, tuple[str, ...]] = {}


class ClusterInfo(Body, frozen=True):
    """Response to 106."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, tuple[str, ...]]


class DataVersion(Body, frozen=True):
    timestamp: Long
    counter: Long
    state_version: Long = 0


class TopicConfig(Body, frozen=True):
    """Settings of a topic at a broker (requests 18, 21 and 103).

    Clients read from the first `read_queue_nums` queues of `topic_name` and send to the first
    `write_queue_nums`; `perm`: whether they may, 4 (read), 2 (write) or 6 (both). `attributes`:
    settings of 5.x, such as `cleanup.policy`; `Admin.update_topic` leaves them as they are.
    `topic_filter_type`, `topic_sys_flag` and `order` are stored. Source: TopicConfig.java.
    """

    topic_name: str
    read_queue_nums: Int = 16
    write_queue_nums: Int = 16
    perm: Int = 6
    topic_filter_type: TopicFilterType = "SINGLE_TAG"
    topic_sys_flag: Int = 0
    order: bool = False
    attributes: dict[str, str] = {}


class TopicConfigTable(Body, frozen=True):
    """The topics of one broker: in 103 and the response to 21."""

    topic_config_table: dict[str, TopicConfig]
    data_version: DataVersion


class RegisterBrokerBody(Body, frozen=True):
    topic_config_serialize_wrapper: TopicConfigTable
    filter_server_list: tuple[str, ...] = ()


class KVTable(Body, frozen=True):
    """Response to 28, 103 and 219."""

    table: dict[str, str]


class TopicList(Body, frozen=True):
    """Response to 206 and 224."""

    topic_list: tuple[str, ...]
    broker_addr: str | None = None


class GroupList(Body, frozen=True):
    """Response to 300."""

    group_list: tuple[str, ...]


class SubscriptionGroupConfig(Body, frozen=True):
    """Settings of a consumer group at brokers (requests 200, 201, 207).

    `consume_enable`: members of `group_name` may pull; `consume_broadcast_enable`: so may those
    that broadcast. The retry topic has `retry_queue_nums` queues; a message that failed
    `retry_max_times` goes to the dead-letter topic. `notify_consumer_ids_changed_enable`: members
    are notified when others join or leave. The others have an effect on Apache's brokers only, ours
    just store them: `consume_from_min_enable`, `broker_id` and `which_broker_when_consume_slowly`
    (which replica to read from).

    Source: SubscriptionGroupConfig.java.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: Int = 1
    retry_max_times: Int = 16
    broker_id: Long = 0
    which_broker_when_consume_slowly: Long = 1
    notify_consumer_ids_changed_enable: bool = True


class SubscriptionGroupTable(Body, frozen=True):
    """Response to 201."""

    subscription_group_table: dict[str, SubscriptionGroupConfig]
    data_version: DataVersion


# -- locks (41, 42) --------------------------------------------------------------------------------


class LockBatchBody(Body, frozen=True):
    """Requests 41 and 42."""

    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...] = ()


class LockBatchResponseBody(Body, frozen=True):
    lock_ok_mq_set: tuple[MessageQueue, ...] = field(name="lockOKMQSet")


# -- statistics (202, 203, 204, 208) ---------------------------------------------------------------


class TopicOffset(Body, frozen=True):
    min_offset: Long
    max_offset: Long
    last_update_timestamp: Long


class TopicStatsTable(Body, frozen=True):
    """Response to 202."""

    offset_table: dict[MessageQueue, TopicOffset]


class OffsetWrapper(Body, frozen=True):
    """The offsets of a queue and of a group in it.

    `pull_offset` is 5.x; `last_timestamp` is the store time of the last consumed message, 0 if
    none.
    """

    broker_offset: Long
    consumer_offset: Long
    last_timestamp: Long = 0
    pull_offset: Long = 0


class ConsumeStats(Body, frozen=True):
    """Response to 208."""

    offset_table: dict[MessageQueue, OffsetWrapper]
    consume_tps: float = 0.0


class Connection(Body, frozen=True):
    client_id: str
    client_addr: str
    language: str
    version: Int = 0


class ConsumerConnection(Body, frozen=True):
    """Response to 203."""

    connection_set: tuple[Connection, ...]
    subscription_table: dict[str, SubscriptionData]
    consume_type: ConsumeType = "CONSUME_PASSIVELY"
    message_model: MessageModel = "CLUSTERING"
    consume_from_where: ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"


class ProducerConnection(Body, frozen=True):
    """Response to 204."""

    connection_set: tuple[Connection, ...]


class ProducerInfo(Body, frozen=True):
    """A producer in `ProducerTable`. `last_update_timestamp`: of its last heartbeat, in ms."""

    client_id: str
    remote_ip: str = field(name="remoteIP")
    language: str
    version: Int
    last_update_timestamp: Long


class ProducerTable(Body, frozen=True):
    """Response to 328: the producers of each group."""

    data: dict[str, tuple[ProducerInfo, ...]]


class CommittedOffsetTable(Body, frozen=True):
    """Response to 43: the committed offsets by `topic@group` and queue."""

    offset_table: dict[str, dict[Int, Long]]


class QueueTimeSpan(Body, frozen=True):
    """Store times of a queue's first, last and last consumed message, in ms; -1 if there is none.

    `delay_time`: how long the next message to be consumed has waited, in ms; 0 without one.
    """

    message_queue: MessageQueue
    min_time_stamp: Long
    max_time_stamp: Long
    consume_time_stamp: Long
    delay_time: Long = 0


class ConsumeTimeSpans(Body, frozen=True):
    """Response to 303 (QueryConsumeTimeSpanBody.java)."""

    consume_time_span_set: tuple[QueueTimeSpan, ...]


class BrokerStatsItem(Body, frozen=True):
    """Counts over a period: in all, per second, per call."""

    sum: Long = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, frozen=True):
    """Response to 315."""

    stats_minute: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_day: BrokerStatsItem


class ConsumeStatsList(Body, frozen=True):
    """Response to 317: for each group its statistics by topic."""

    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...]
    broker_addr: str = ""
    total_diff: Long = 0


class TopicConfigList(Body, frozen=True):
    """Request 18 (CreateTopicListRequestBody.java)."""

    topic_config_list: tuple[TopicConfig, ...]


class GroupConfigList(Body, frozen=True):
    """Request 225 (SubscriptionGroupList.java)."""

    group_config_list: tuple[SubscriptionGroupConfig, ...]


# -- a consumer at work (220, 221, 307, 309) -------------------------------------------------------


class ProcessQueueInfo(Body, frozen=True):
    """One queue of a consumer, in 307.

    The numbers of `transaction` are those of a batch at an orderly listener.
    """

    commit_offset: Long
    cached_msg_min_offset: Long = 0
    cached_msg_max_offset: Long = 0
    cached_msg_count: Int = 0
    cached_msg_size_in_mib: Int = field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: Long = 0
    transaction_msg_max_offset: Long = 0
    transaction_msg_count: Int = 0
    locked: bool = False
    try_unlock_times: Long = 0
    last_lock_timestamp: Long = 0
    dropped: bool = field(name="droped", default=False)
    last_pull_timestamp: Long = 0
    last_consume_timestamp: Long = 0


class ConsumeStatusInfo(Body, frozen=True):
    """One topic of a consumer, in 307. Times in ms, rates per second, over the last minute."""

    pull_rt: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)
    consume_rt: float = field(name="consumeRT", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: Long = 0
    """Over the last hour."""


class ConsumerRunningInfo(Body, frozen=True):
    """Response to 307. `jstack`: stack traces of the threads, if requested."""

    properties: dict[str, str]
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    status_table: dict[str, ConsumeStatusInfo] = {}
    user_consumer_info: dict[str, str] = {}
    jstack: str | None = None


class ConsumeMessageDirectlyResult(Body, frozen=True):
    """Response to 309.

    `consume_result`: CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION,
    CR_RETURN_NULL.
    """

    order: bool
    consume_result: ConsumeResult | None = None
    auto_commit: bool = True
    remark: str | None = None
    spent_time_mills: Long = 0


class ResetOffsetBody(Body, frozen=True):
    """Request 220, and response to 222."""

    offset_table: dict[MessageQueue, Long]


class QueueOffsetForC(Body, frozen=True):
    """MessageQueueForC.java."""

    topic: str
    broker_name: str
    queue_id: Int
    offset: Long


class ResetOffsetBodyForC(Body, frozen=True):
    """Request 220 in the form for C++ clients."""

    offset_table: tuple[QueueOffsetForC, ...]


class ConsumerStatusBody(Body, frozen=True):
    """Response to 221 (`message_queue_table`) and 223 (`consumer_table`, by client id)."""

    message_queue_table: dict[MessageQueue, Long] = {}
    consumer_table: dict[str, dict[MessageQueue, Long]] = {}


class OffsetTable(Body, frozen=True):
    """The file in which a broadcasting client stores its offsets (OffsetSerializeWrapper.java)."""

    offset_table: dict[MessageQueue, Long] = {}


# -- users and policies of RocketMQ 5.x (3001 to 3010) ---------------------------------------------


class UserInfo(Body, frozen=True):
    """A user. What is None stays as it is, or gets its default (UserInfo.java)."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class PolicyEntryInfo(Body, frozen=True):
    """What a policy says about one resource (AclInfo.java)."""

    resource: str
    actions: tuple[str, ...] = ()
    source_ips: tuple[str, ...] | None = None
    decision: str | None = None


class PolicyInfo(Body, frozen=True):
    """A policy; its type is Custom if it is None (AclInfo.java)."""

    policy_type: str | None = None
    entries: tuple[PolicyEntryInfo, ...] = ()


class AclInfo(Body, frozen=True):
    """The policies of a user; `subject`: "User:NAME" (AclInfo.java)."""

    subject: str | None = None
    policies: tuple[PolicyInfo, ...] = ()
