"""Settings of every node, one frozen dataclass each.

Defaults are those of Apache RocketMQ where it has the setting; the comment below a field says where
it comes from. Times are milliseconds, sizes bytes. Values are checked where they enter the program
(`client`, `settings`), by `check`: an `int` is 0 or more unless its annotation says otherwise (`steelyard.checks`).
`Kafka` and `RocketMQ` in an annotation are the setting's names there; `settings` takes these, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from steelyard.checks import Int32, Positive, PositiveInt32, kinds_of
from steelyard.errors import ConfigError
from steelyard.types import ConsumeFrom, MessageModel, Subscription

__all__ = [
    "BrokerConfig",
    "ClientConfig",
    "ConsumerConfig",
    "KafkaConfig",
    "KafkaConsumerConfig",
    "LitePullConfig",
    "NameserverConfig",
    "ProducerConfig",
    "StoreConfig",
]

Ratio = Annotated[float, Meta(gt=0, le=1)]
FlushMode = Literal["async", "sync"]
Compression = Literal["zlib", "lz4", "zstd"]
LatencyFaults = Literal["off", "4.x", "5.x"]


class RocketMQ(NamedTuple):
    """The name, in RocketMQ's configuration files, of a setting that has the same meaning and unit there."""

    name: str


class Kafka(NamedTuple):
    """The name of a setting in the configuration of Kafka's brokers, where it has the same meaning and unit.

    Kafka's type of it is INT where the annotation's range ends at 2^31 - 1, otherwise LONG, BOOLEAN or STRING.
    """

    name: str
    topic: str = ""
    """Its name in the configuration of topics, whose default it is."""
    text: str = ""
    """What Kafka clients are told of it."""
    unlimited: int = 0
    """What Kafka says where we say 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameserverConfig:
    """A nameserver: namesrv/NamesrvConfig.java, RouteInfoManager.java."""

    broker_expiry_ms: int = 120_000
    """A broker silent for so long leaves the routes (DEFAULT_BROKER_CHANNEL_EXPIRED_TIME)."""
    scan_interval_ms: Annotated[int, RocketMQ("scanNotActiveBrokerInterval")] = 5_000
    """How often silent brokers are looked for."""
    max_connections: int = 0x7FFFFFFF
    """Most connections that are accepted; what the limit of open files leaves is a bound of its own (Kafka's name and default)."""
    max_connections_per_ip: int = 0x7FFFFFFF
    """The same, from one address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The log of a broker: store/config/MessageStoreConfig.java."""

    segment_bytes: Annotated[
        PositiveInt32,
        Kafka("log.segment.bytes", "segment.bytes", "Size at which a segment file is closed."),
    ] = 256 * 1024 * 1024
    """A segment file is closed at this size. RocketMQ: one commit log of 1 GiB files for all queues; ours are per queue.
    Kafka: 1 GiB."""
    segment_ms: Annotated[
        int,
        Kafka("log.roll.ms", "segment.ms", "Age at which a segment file is closed.", 2**63 - 1),
    ] = 7 * 24 * 3600 * 1000
    """A segment whose first message is older than this is closed when the next message comes; 0: never."""
    index_flush_rows: int = 4096
    """Index rows kept in memory before they are written; the log alone is enough to recover them."""
    retention_ms: Annotated[
        int, Kafka("log.retention.ms", "retention.ms", "How long records are kept.", -1)
    ] = 72 * 3600 * 1000
    """Whole segments whose newest message is older than this are deleted (fileReservedTime 72 h; Kafka: 168 h); 0 keeps all."""
    retention_bytes: Annotated[
        int,
        Kafka(
            "log.retention.bytes",
            "retention.bytes",
            "Maximum bytes of a partition, in whole segments.",
            -1,
        ),
    ] = 0
    """The oldest segments of a queue are deleted while the others hold so many bytes; 0 keeps all."""
    retention_check_interval_ms: Annotated[
        Positive, Kafka("log.retention.check.interval.ms"), RocketMQ("cleanResourceInterval")
    ] = 10_000
    """How often segments past their retention are looked for (Kafka: 5 minutes)."""
    disk_full_ratio: Ratio = 0.90
    """Producers are refused while more than this part of the disk is in use (diskSpaceWarningLevelRatio); 1.0: never
    before the disk itself refuses. Unlike in RocketMQ a disk with `disk_free_bytes_enough` is never taken for full."""
    disk_free_bytes_enough: int = 4 * 1024 * 1024 * 1024
    """With so much free space neither `disk_full_ratio` nor `disk_clean_ratio` matters."""
    disk_clean_ratio: Ratio = 0.85
    """While more than this part of the disk is in use, and `clean_forcibly` is set, the oldest segments of all queues are
    deleted before their time (diskSpaceCleanForciblyRatio)."""
    clean_forcibly: Annotated[bool, RocketMQ("cleanFileForciblyEnable")] = False
    """Delete early rather than refuse producers (on in RocketMQ)."""
    scrub_bytes_per_second: int = 4 * 1024 * 1024
    """How fast all logs are read again and again to find damage on the disk; 0: never."""
    scrub_interval_ms: int = 24 * 3600 * 1000
    """From the begin of one such pass through all logs to that of the next, unless it takes longer."""
    message_bytes_max: Annotated[int, RocketMQ("maxMessageSize")] = 4 * 1024 * 1024
    """Largest body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """A broker's Kafka listener: server/config/AbstractKafkaConfig.java, GroupCoordinatorConfig.java.

    A name of several words is Kafka's, with underscores for its dots.
    """

    address: str = "127.0.0.1:9092"
    """What Kafka clients are told to connect to (advertised.listeners); where it is not given, what the server listens on."""
    node_id: Int32 = 1
    """Unique in the cluster."""
    brokers: tuple[str, ...] = ()
    """Names of all brokers of the cluster that have a Kafka listener, this one too (compare controller.quorum.voters). Which
    broker coordinates which group is decided when all of them are there. Empty: the brokers that this one has met."""
    num_partitions: PositiveInt32 = 1
    """Of topics that are made without a number."""
    auto_create_topics_enable: bool = True
    """Make a topic when a client asks for its metadata."""
    message_max_bytes: Annotated[
        Int32, Kafka("message.max.bytes", topic="max.message.bytes", text="Largest record batch.")
    ] = 1024 * 1024 + 12
    """Largest record batch."""
    offsets_topic_num_partitions: PositiveInt32 = 50
    """Partitions over which groups are spread."""
    offset_metadata_max_bytes: Int32 = 4096
    """Longest text beside a committed offset."""
    offsets_retention_minutes: PositiveInt32 = 10_080
    """Offsets of a group without members are forgotten after so long."""
    offsets_retention_check_interval_ms: Positive = 600_000
    """How often such offsets are looked for."""
    group_min_session_timeout_ms: Int32 = 6_000
    """Shortest session that a classic member may ask for."""
    group_max_session_timeout_ms: Int32 = 1_800_000
    """The longest one."""
    group_initial_rebalance_delay_ms: Int32 = 0
    """How long the first rebalance of an empty group waits for more members. 3000 in the code of Apache Kafka, 0 in the settings
    it is shipped with."""
    group_max_size: PositiveInt32 = 0x7FFFFFFF
    """Most members of a classic group."""
    group_consumer_session_timeout_ms: PositiveInt32 = 45_000
    """A KIP-848 member silent for so long is out."""
    group_consumer_heartbeat_interval_ms: PositiveInt32 = 5_000
    """How often KIP-848 members are told to send heartbeats."""
    group_consumer_max_size: PositiveInt32 = 0x7FFFFFFF
    """Most members of a KIP-848 group."""
    group_consumer_assignment_interval_ms: Int32 = 0
    """Least time between two target assignments of a group. 0 up to Kafka 4.2 and with us; 1000 since 4.3, which makes
    members that come within a second of each other wait for their next heartbeat."""
    transactional_id_expiration_ms: PositiveInt32 = 604_800_000
    """An id without transactions for so long is forgotten."""
    transaction_max_timeout_ms: PositiveInt32 = 900_000
    """Longest time-out that a transaction may ask for."""
    transaction_state_log_num_partitions: PositiveInt32 = 50
    """Partitions over which transactions are spread."""
    producer_id_expiration_ms: PositiveInt32 = 86_400_000
    """A silent producer's sequence numbers are forgotten after so long."""
    max_incremental_fetch_session_cache_slots: Int32 = 1_000
    """Most fetch sessions."""
    max_connections: Int32 = 0x7FFFFFFF
    """Most connections to the Kafka listener; what the limit of open files leaves is a bound of its own."""
    max_connections_per_ip: Int32 = 0x7FFFFFFF
    """The same, from one address."""


KAFKA_BROKERS_MAX = 1_000
"""Most brokers in `KafkaConfig.brokers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """A broker: common/BrokerConfig.java."""

    name: Annotated[str, RocketMQ("brokerName")] = "broker-a"
    """Unique in the cluster; topics' queues are listed by it."""
    cluster: Annotated[str, RocketMQ("brokerClusterName")] = "DefaultCluster"
    """The cluster that nameservers list the broker under."""
    address: str = "127.0.0.1:10911"
    """What clients are told to connect to; where it is not given, what the server listens on."""
    nameservers: Annotated[tuple[str, ...], RocketMQ("namesrvAddr")] = ()
    """Where the broker registers, `host:port`; without one only Kafka clients find it."""
    flush: FlushMode = "async"
    """async: a reply means that the kernel has the message; sync: that the disk has it (flushDiskType)."""
    auto_create_topics: Annotated[bool, RocketMQ("autoCreateTopicEnable")] = True
    """Make a topic when a producer asks for its route, or sends to it."""
    default_queues: Annotated[int, RocketMQ("defaultTopicQueueNums")] = 8
    """Queues of TBW102, from which automatic topics take their number."""
    register_interval_ms: Annotated[int, RocketMQ("registerNameServerPeriod")] = 30_000
    """How often the broker registers again."""
    nameserver_timeout_ms: Annotated[int, RocketMQ("registerBrokerTimeoutMills")] = 6_000
    """How long a nameserver may take to answer (RocketMQ: 24 s in 5.x, 6 s in 4.x)."""
    client_expiry_ms: Annotated[int, RocketMQ("channelExpiredTimeout")] = 120_000
    """A client without heartbeat for so long leaves its groups."""
    client_scan_interval_ms: int = 10_000
    """How often such clients are looked for (ClientHousekeepingService)."""
    hold_max_ms: int = 30_000
    """Longest long poll; clients ask for 15 s."""
    hold_waiting_max: int = 100_000
    """Most pulls held at once (pullRequestHoldService has no limit of its own; its thread pool queue has this)."""
    pull_messages_max: int = 8_192
    """Most messages in one pull reply. RocketMQ answers with 32 at most; a client that asks for 32 gets 32 here too."""
    pull_bytes_max: int = 1024 * 1024
    """Most bytes in one pull reply, but always one message. RocketMQ: 256 KiB from memory, 64 KiB from disk."""
    lock_expiry_ms: int = 60_000
    """Another consumer may have the lock of a queue that was not renewed for so long (rocketmq.broker.rebalance.lockMaxLiveTime)."""
    property_filter: Annotated[bool, RocketMQ("enablePropertyFilter")] = True
    """Let consumers filter by SQL92 conditions (off in RocketMQ)."""
    transaction_timeout_ms: Annotated[int, RocketMQ("transactionTimeOut")] = 6_000
    """A transaction not ended for so long is asked after."""
    transaction_check_interval_ms: Annotated[int, RocketMQ("transactionCheckInterval")] = 30_000
    """Until it is asked after again (RocketMQ: 30 s in 5.x, 60 s in 4.9)."""
    transaction_check_max: Annotated[int, RocketMQ("transactionCheckMax")] = 15
    """After so many questions it is given up."""
    transactions_max: int = 200_000
    """Transactions open at once; more are refused (RocketMQ has no limit)."""
    store_replies: Annotated[bool, RocketMQ("storeReplyMessageEnable")] = True
    """Keep the replies of request-reply in their topic as well."""
    batch_messages_max: int = 200_000
    """Most messages in one batch. RocketMQ has no such limit: more than these do not fit into its 4 MiB of a batch, 22 bytes each at least."""
    ledger: bool = True
    """Write the rebalance ledger."""
    ledger_interval_ms: int = 1_000
    """How long deliveries and commits are gathered before they are written."""
    max_connections: int = 0x7FFFFFFF
    """Most connections to the listener for RocketMQ's clients; Kafka's has its own setting, and what the limit of open
    files leaves is a bound for both together (RocketMQ has none: Kafka's name and default)."""
    max_connections_per_ip: int = 0x7FFFFFFF
    """The same, from one address."""
    store: StoreConfig = StoreConfig()
    """Its log."""
    kafka: KafkaConfig | None = None
    """The Kafka listener, None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What producers and consumers share: client/ClientConfig.java."""

    nameservers: tuple[str, ...] = ()
    """Asked for routes in turn, `host:port`."""
    group: str = ""
    """The group that it is a member of."""
    client_id: str = ""
    """`ip@instance`; must be unique in the group."""
    route_poll_ms: int = 30_000
    """How often the nameservers are asked for routes (pollNameServerInterval)."""
    heartbeat_interval_ms: int = 30_000
    """How often brokers hear of this client (heartbeatBrokerInterval)."""
    call_timeout_ms: int = 3_000
    """How long a request to a server may take that has no limit of its own (mqClientApiTimeout)."""
    access_key: str = ""
    """Signs every request (acl/common/AclClientRPCHook.java); empty: requests are not signed."""
    secret_key: str = field(default="", repr=False)
    """Belongs to `access_key`; is never sent nor printed."""
    security_token: str = field(default="", repr=False)
    """Of temporary credentials; optional."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """A producer: client/producer/DefaultMQProducer.java."""

    send_timeout_ms: int = 3_000
    """For all attempts together (sendMsgTimeout)."""
    retries: int = 2
    """Attempts after the first (retryTimesWhenSendFailed)."""
    default_topic: str = "TBW102"
    """Whose route a topic borrows before it exists (createTopicKey)."""
    default_topic_queues: int = 4
    """Queues of a topic that is made so (defaultTopicQueueNums)."""
    message_bytes_max: int = 4 * 1024 * 1024
    """Largest body (maxMessageSize)."""
    compress_above_bytes: int = 4096
    """Larger bodies are compressed; 0: none (compressMsgBodyOverHowmuch)."""
    compress_type: Compression = "zlib"
    """`zlib`, or `lz4` or `zstd`, which consumers older than 5.0 cannot read (rocketmq.message.compressType)."""
    compress_level: Annotated[int, Meta(ge=0, le=9)] = 5
    """0 to 9, for zlib and zstd (rocketmq.message.compressLevel)."""
    in_flight_max: int = 10_000
    """Sends under way at once; more are refused with a RemotingError."""
    in_flight_bytes_max: int = 100 * 1024 * 1024
    """Bodies of the sends under way, compressed where they are sent so; more are refused with a RemotingError
    (backPressureForAsyncSendSize)."""
    retry_another_broker: bool = False
    """Try another broker, too, when one stored the message but says that it did not flush or copy it in time
    (retryAnotherBrokerWhenNotStoreOK)."""
    retry_codes: Literal["4.x", "5.x"] = "5.x"
    """After which error codes another broker is tried: those of `4.x` or `5.x`, which also has SYSTEM_BUSY (2) and
    GO_AWAY (1500) (retryResponseCodes)."""
    latency_faults: LatencyFaults = "off"
    """Avoid brokers that answered slowly or not at all: `off`, `4.x` or `5.x`, by whose table
    (sendLatencyFaultEnable, MQFaultStrategy.java)."""
    detect: bool = False
    """Ask brokers that are avoided whether they can be reached again (startDetectorEnable)."""
    detect_interval_ms: int = 2_000
    """How often they are asked (detectInterval)."""
    detect_timeout_ms: int = 200
    """How long they may take to answer (detectTimeout)."""
    checks: bool = False
    """This producer can say what became of its group's transactions; set by the clients that have a transaction_check."""
    checks_max: int = 2_000
    """Questions for transactions that wait for the application at once; more are left to be asked again
    (checkRequestHoldMax)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """A push consumer: client/consumer/DefaultMQPushConsumer.java."""

    subscriptions: tuple[Subscription, ...] = ()
    """What is wanted of which topics; `subscribe` adds to them."""
    message_model: MessageModel = MessageModel.CLUSTERING
    """BROADCASTING: every member reads everything."""
    orderly: bool = False
    """Consume each queue in order, under a lock of the broker (MessageListenerOrderly)."""
    consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET
    """Where a group begins that has committed nothing: FIRST_OFFSET, LAST_OFFSET or TIMESTAMP."""
    consume_timestamp: int = 0
    """For ConsumeFrom.TIMESTAMP, ms since the epoch."""
    consume_offset: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = -1
    """Offset of each queue to begin at in place of `consume_from`, the nearest one of a queue that does not have it; -1: none."""
    consume_strictly: bool = False
    """Begin where `consume_from` says in young queues as well, from which no message was deleted yet: brokers have a new
    group read those from their beginning unless it objects (setZeroIfNotFound), and old ones of 4.x even then."""
    strategy: str = "AVG"
    """How the members share the queues out: AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, EVEN, or MACHINE_ROOM_NEARBY- and one of the
    first three. Strategies that need arguments go into `allocate=`."""
    rebalance_interval_ms: int = 20_000
    """How often a member looks at its share without a reason (rocketmq.client.rebalance.waitInterval)."""
    rebalance_retry_ms: int = 1_000
    """The same while something is missing (rocketmq.client.rebalance.minInterval)."""
    clean_handover: bool = True
    """Between members that have it: the old owner of a queue finishes what its listener holds, commits and lets
    the queue's lock go; the new owner starts when it has the lock. Off: RocketMQ's way, with duplicates."""
    drain_timeout_ms: int = 5_000
    """How long a queue that is given up waits for its listener; what is not done by then is delivered again."""
    takeover_timeout_ms: int = 10_000
    """How long a new owner waits for the lock of a queue that is not consumed in order; then it starts without.
    At least as long as `drain_timeout_ms` lets the old owner take, and, after the topic's route has changed, as
    `route_poll_ms`: the old owner may not have heard of it."""
    lock_renew_ms: int = 20_000
    """How often the locks of queues are renewed (rocketmq.client.rebalance.lockInterval)."""
    lock_life_ms: int = 30_000
    """A lock not renewed for so long is no longer trusted (rocketmq.client.rebalance.lockMaxLiveTime)."""
    commit_interval_ms: int = 5_000
    """How often consumed offsets are committed (persistConsumerOffsetInterval)."""
    pull_batch: int = 32
    """Most messages of one pull (pullBatchSize)."""
    pull_hold_ms: int = 15_000
    """How long a broker may wait for messages (brokerSuspendMaxTimeMillis)."""
    pull_timeout_ms: int = 30_000
    """How long such a pull may take (consumerTimeoutMillisWhenSuspend)."""
    pull_retry_ms: int = 1_000
    """Wait after a pull that failed (pullTimeDelayMillsWhenException: 3 s in 4.9, 1 s in 5.x)."""
    pull_idle_max_ms: int = 120_000
    """A held queue not pulled for so long is dropped and taken anew (rocketmq.client.pull.pullMaxIdleTime)."""
    consume_batch: int = 1
    """Messages per call of the listener (consumeMessageBatchMaxSize)."""
    consume_threads: int = 20
    """Listeners that run at once (consumeThreadMax). The clients set and keep it; here it is told to operators."""
    handed_max: int = 80
    """Most batches given to the listeners and not done yet; clients set it to a small multiple of their threads
    (consumeThreadMax is 20). More wait in the node, where a queue that is given up can take them back."""
    queue_messages_max: int = 1_000
    """Messages of one queue in the client (pullThresholdForQueue)."""
    queue_bytes_max: int = 100 * 1024 * 1024
    """Bytes of one queue in the client (pullThresholdSizeForQueue)."""
    queue_span_max: int = 2_000
    """Highest minus lowest offset in the client (consumeConcurrentlyMaxSpan)."""
    flow_retry_ms: int = 50
    """Wait before the next look when a limit above is reached (PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL)."""
    stop_timeout_ms: int = 5_000
    """How long a clean stop waits for listeners to finish what they hold (awaitTerminationMillisWhenShutdown is 0 in Java)."""
    retry_max: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1
    """Deliveries of a failed message before it goes to the dead-letter topic (maxReconsumeTimes); -1 means 16, and
    without end for an orderly consumer."""
    suspend_ms: int = 1_000
    """How long an orderly queue waits after a failure (suspendCurrentQueueTimeMillis); kept within 10 ms and 30 s."""
    consume_timeout_ms: int = 15 * 60 * 1000
    """A message that its listener has for longer is sent back to its broker, so that its queue can go on
    (consumeTimeout); not for orderly consumers."""
    topic_messages_max: int = 0
    """Messages of one topic in the client, shared by its queues (pullThresholdForTopic); 0: no such limit."""
    topic_bytes_max: int = 0
    """Bytes of them (pullThresholdSizeForTopic); 0: no such limit."""
    hooks: bool = False
    """Tell the application of queues that come and go; set by the clients that have such hooks."""
    queue_changes: bool = False
    """Tell it of every new share of a topic's queues (MessageQueueListener); set by the clients that have that hook."""
    offsets_folder: str = ""
    """Where a broadcasting consumer keeps its offsets; empty: `.rocketmq_offsets` in the user's home
    (rocketmq.client.localOffsetStoreDir)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullConfig(ConsumerConfig):
    """A consumer that polls: client/consumer/DefaultLitePullConsumer.java. `commit_interval_ms` is autoCommitIntervalMillis,
    `queue_span_max` consumeMaxSpan; `route_poll_ms` topicMetadataCheckIntervalMillis."""

    auto_commit: bool = True
    """What a poll returned is committed once the next poll has begun; off: when the application says so."""
    poll_timeout_ms: int = 5_000
    """How long a poll waits for messages (pollTimeoutMillis)."""
    pull_batch: int = 10
    """Most messages of one pull, and of one poll that does not say otherwise (pullBatchSize)."""
    pull_hold_ms: int = 20_000
    """How long a broker may wait for messages (brokerSuspendMaxTimeMillis)."""
    messages_max: int = 10_000
    """Messages in the client, shared by its queues (pullThresholdForAll)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConsumerConfig:
    """A Kafka consumer: clients/consumer/ConsumerConfig.java, whose names and defaults these are."""

    bootstrap_servers: tuple[str, ...] = ()
    """Brokers to ask first, `host:port`; they name the others."""
    client_id: str = "steelyard"
    """Names the consumer in the brokers' logs and quotas; need not be unique."""
    group_id: str = ""
    """Empty: of no group; then only `assign` gives partitions, and nothing is committed."""
    group_instance_id: str = ""
    """Makes a static member: it keeps its partitions while it restarts, for a session's time at most."""
    client_rack: str = ""
    """Where the consumer is; told to assignors that care."""
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """What the member can share partitions out by, the best first (partition.assignment.strategy)."""
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    """Where to begin without a committed offset: `earliest`, `latest`, or `none`: fail."""
    enable_auto_commit: bool = True
    """Commit by itself what polls have returned."""
    auto_commit_interval_ms: Int32 = 5_000
    """How often."""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """`read_committed`: records of open and aborted transactions are not returned."""
    session_timeout_ms: Int32 = 45_000
    """A member that is not heard of for so long is out of the group."""
    heartbeat_interval_ms: PositiveInt32 = 3_000
    """How often the coordinator hears from the member; a third of the session's time at most."""
    max_poll_interval_ms: PositiveInt32 = 300_000
    """A member whose application does not poll for so long leaves the group; also how long the group waits for it."""
    max_poll_records: PositiveInt32 = 500
    """Most records that one poll returns."""
    fetch_min_bytes: Int32 = 1
    """A broker answers a fetch when it has so much, or after `fetch_max_wait_ms`."""
    fetch_max_bytes: Int32 = 50 * 1024 * 1024
    """Of one fetch from a broker, but always one batch; kept until polls have returned it."""
    fetch_max_wait_ms: Int32 = 500
    """How long a broker may wait until it has `fetch_min_bytes`."""
    max_partition_fetch_bytes: Int32 = 1024 * 1024
    """Of one partition in a fetch, but always one batch."""
    check_crcs: bool = True
    """Verify the checksum of every batch."""
    metadata_max_age_ms: Int32 = 300_000
    """Partitions and their leaders are asked for again after so long."""
    allow_auto_create_topics: bool = True
    """Let the broker make topics that are subscribed to and do not exist, if it does so."""
    request_timeout_ms: Int32 = 30_000
    """Longest wait for the answer to one request."""
    default_api_timeout_ms: Int32 = 60_000
    """How long a call that needs a broker is tried again."""
    retry_backoff_ms: Int32 = 100
    """Wait before a request is tried again; it doubles with each time"""
    retry_backoff_max_ms: Int32 = 1_000
    """The longest such wait."""


def check(config: object) -> None:
    """Raise ConfigError where a setting has a wrong type or value, or does not go with another; it says what would be right."""
    for name, kind in kinds_of(config.__class__).items():
        kind.take(name, getattr(config, name))
    if isinstance(config, ClientConfig) and bool(config.access_key) != bool(config.secret_key):
        given, missing = ("access", "secret") if config.access_key else ("secret", "access")
        raise ConfigError(f"{given}_key is given without {missing}_key; give both, or neither")
    if isinstance(config, ProducerConfig):
        _check_producer(config)
    if isinstance(config, KafkaConsumerConfig):
        _check_kafka_consumer(config)
    if isinstance(config, BrokerConfig) and config.kafka is not None:
        _check_kafka_broker(config, config.kafka)


def _check_kafka_broker(config: BrokerConfig, kafka: KafkaConfig) -> None:
    if "," in config.name:
        raise ConfigError(
            f"name is {config.name!r}; with a Kafka listener it must not contain a comma"
        )
    if not kafka.brokers:
        return
    named = ", ".join(kafka.brokers[:100])
    if config.name not in kafka.brokers:
        raise ConfigError(
            f"the list of brokers is {named}; it must include this broker, {config.name}"
        )
    if "" in kafka.brokers or len(set(kafka.brokers)) < len(kafka.brokers):
        raise ConfigError(f"the list of brokers is {named}; each name must appear only once")
    if len(kafka.brokers) > KAFKA_BROKERS_MAX:
        raise ConfigError(f"the list of brokers has more than {KAFKA_BROKERS_MAX} names")
    if len(kafka.brokers) > 1 and not config.nameservers:
        raise ConfigError(
            f"the list of brokers is {named}; brokers find each other through a nameserver: give its address as well"
        )


def _check_producer(config: ProducerConfig) -> None:
    if config.detect and config.latency_faults != "5.x":
        raise ConfigError("detect requires latency_faults='5.x'")
    if config.detect and config.detect_interval_ms < 1:
        raise ConfigError("detect_interval_ms is 0; it must be 1 or more")


def _check_kafka_consumer(config: KafkaConsumerConfig) -> None:
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        raise ConfigError(
            "heartbeat_interval_ms must be less than session_timeout_ms, preferably at most a third of it"
        )
    if not config.assignors:
        raise ConfigError("no assignors; give at least one, such as 'range'")
    if not config.bootstrap_servers:
        raise ConfigError("no bootstrap_servers; give 'host:port'")
