# Written by tools/shells.py from config.py: change that one, then `./dev generate`.
"""The settings that the clients take by name, each as in its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from steelyard.checks import Int32, Positive, PositiveInt32
from steelyard.config import Compression, LatencyFaults
from steelyard.types import ConsumeFrom, MessageModel, Subscription


class ProducerSettings(TypedDict, total=False):
    """Settings, with their defaults.

    - `route_poll_ms` (30000): Interval at which routes are requested from the nameservers
      (pollNameServerInterval).
    - `heartbeat_interval_ms` (30000): Interval of heartbeats to brokers
      (heartbeatBrokerInterval).
    - `call_timeout_ms` (3000): Time-out of requests that have none of their own
      (mqClientApiTimeout).
    - `address_translation` (()): Pairs `ADVERTISED=REACHED`: connect to the latter, host:port, if
      a server names the former. For clients that do not reach brokers at the addresses that they
      advertise, such as behind forwarded ports.
    - `access_key` (''): Key with which every request is signed
      (acl/common/AclClientRPCHook.java); empty: unsigned.
    - `secret_key` (''): The secret for `access_key`; never sent or printed.
    - `security_token` (''): The token of temporary credentials; optional.
    - `send_timeout_ms` (3000): Time-out of a send including all attempts (sendMsgTimeout).
    - `retries` (2): Attempts after the first one (retryTimesWhenSendFailed).
    - `default_topic` ('TBW102'): The topic whose route is used for a topic that does not exist
      yet (createTopicKey).
    - `default_topic_queues` (4): Queues of a topic created that way (defaultTopicQueueNums).
    - `message_bytes_max` (4 * 1024 * 1024): Largest body (maxMessageSize).
    - `compress_above_bytes` (4096): Size above which bodies are compressed; 0: never
      (compressMsgBodyOverHowmuch).
    - `compress_type` ('zlib'): Compression: `zlib`, `lz4` or `zstd`
      (rocketmq.message.compressType). Consumers older than 5.0 can read `zlib` only.
    - `compress_level` (5): Compression level, 0 to 9, for zlib and zstd
      (rocketmq.message.compressLevel).
    - `in_flight_max` (10000): Maximum sends in flight; further ones raise a RemotingError.
    - `in_flight_bytes_max` (100 * 1024 * 1024): Maximum bytes of bodies in flight, as sent;
      further sends raise a RemotingError. RocketMQ: backPressureForAsyncSendSize.
    - `retry_another_broker` (False): Also retry on another broker if one stored but did not flush
      or replicate in time. RocketMQ: retryAnotherBrokerWhenNotStoreOK.
    - `retry_codes` ('5.x'): The error codes retried on another broker, as in `4.x` or `5.x`
      (retryResponseCodes). 5.x also retries SYSTEM_BUSY (2) and GO_AWAY (1500).
    - `auto_batch` (False): Send messages that are sent at about the same time in batches
      (autoBatch). It pays where many small messages are sent at once; a single send waits for
      longer.
    - `batch_max_delay_ms` (10): Maximum wait of a message for others (batchMaxDelayMs); 0: only
      for those sent with it.
    - `batch_max_bytes` (32 * 1024): Size at which a batch is sent without waiting
      (batchMaxBytes).
    - `total_batch_max_bytes` (32 * 1024 * 1024): Maximum size of all messages that wait; further
      ones are sent alone (totalBatchMaxBytes).
    - `latency_faults` ('off'): Avoid slow and failed brokers by the table of `4.x` or `5.x`;
      `off`: do not. RocketMQ: sendLatencyFaultEnable. Source: MQFaultStrategy.java.
    - `detect` (False): Probe avoided brokers to find out whether they are reachable again
      (startDetectorEnable).
    - `detect_interval_ms` (2000): Interval of the probes (detectInterval).
    - `detect_timeout_ms` (200): Time-out of a probe (detectTimeout).
    - `checks_max` (2000): Maximum transaction checks waiting for the application; brokers repeat
      further ones. RocketMQ: checkRequestHoldMax.
    """

    route_poll_ms: int
    heartbeat_interval_ms: int
    call_timeout_ms: int
    address_translation: str | Sequence[str]
    access_key: str
    secret_key: str
    security_token: str
    send_timeout_ms: int
    retries: int
    default_topic: str
    default_topic_queues: int
    message_bytes_max: int
    compress_above_bytes: int
    compress_type: Compression
    compress_level: Annotated[int, Meta(ge=0, le=9)]
    in_flight_max: int
    in_flight_bytes_max: int
    retry_another_broker: bool
    retry_codes: Literal["4.x", "5.x"]
    auto_batch: bool
    batch_max_delay_ms: Int32
    batch_max_bytes: Annotated[int, Meta(ge=1, le=4 * 1024 * 1024)]
    total_batch_max_bytes: Positive
    latency_faults: LatencyFaults
    detect: bool
    detect_interval_ms: int
    detect_timeout_ms: int
    checks_max: int


class ConsumerSettings(TypedDict, total=False):
    """Settings, with their defaults.

    - `route_poll_ms` (30000): Interval at which routes are requested from the nameservers
      (pollNameServerInterval).
    - `heartbeat_interval_ms` (30000): Interval of heartbeats to brokers
      (heartbeatBrokerInterval).
    - `call_timeout_ms` (3000): Time-out of requests that have none of their own
      (mqClientApiTimeout).
    - `address_translation` (()): Pairs `ADVERTISED=REACHED`: connect to the latter, host:port, if
      a server names the former. For clients that do not reach brokers at the addresses that they
      advertise, such as behind forwarded ports.
    - `access_key` (''): Key with which every request is signed
      (acl/common/AclClientRPCHook.java); empty: unsigned.
    - `secret_key` (''): The secret for `access_key`; never sent or printed.
    - `security_token` (''): The token of temporary credentials; optional.
    - `subscriptions` (()): Subscriptions by topic; `subscribe` adds to them.
    - `message_model` (MessageModel.CLUSTERING): CLUSTERING: each message goes to one member;
      BROADCASTING: every member reads everything.
    - `consume_from` (ConsumeFrom.LAST_OFFSET): Where a group without committed offsets begins:
      FIRST_OFFSET, LAST_OFFSET or TIMESTAMP.
    - `consume_timestamp` (0): The time for ConsumeFrom.TIMESTAMP, in ms since the epoch.
    - `consume_offset` (-1): Offset at which each queue begins, instead of `consume_from`; -1:
      none. If a queue does not have it, the nearest offset is used.
    - `consume_strictly` (False): Apply `consume_from` also to queues from which no message has
      been deleted yet. By default brokers let a new group read these from their beginning
      (setZeroIfNotFound); old 4.x brokers always do.
    - `strategy` ('AVG'): Allocation strategy: AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, EVEN, or
      MACHINE_ROOM_NEARBY-… MACHINE_ROOM_NEARBY- is followed by one of the first three. Strategies
      that need arguments are passed as `allocate=`.
    - `rebalance_interval_ms` (20000): Interval of rebalances without a trigger
      (rocketmq.client.rebalance.waitInterval).
    - `rebalance_retry_ms` (1000): The same while something is missing
      (rocketmq.client.rebalance.minInterval).
    - `clean_handover` (True): Hand over queues without duplicates between members that have this
      setting. The old owner finishes what its listener holds, commits and unlocks the queue; the
      new owner starts when it has the lock. Off: RocketMQ's behaviour, with duplicates.
    - `drain_timeout_ms` (5000): Time that a queue being given up waits for its listener;
      unfinished messages are redelivered.
    - `takeover_timeout_ms` (10000): Time that a new owner of a concurrent queue waits for its
      lock before starting without it. At least as long as `drain_timeout_ms` gives the old owner,
      and, after the topic's route has changed, as `route_poll_ms`: the old owner may not know of
      the change.
    - `lock_renew_ms` (20000): Interval at which locks of queues are renewed
      (rocketmq.client.rebalance.lockInterval).
    - `lock_life_ms` (30000): Time after which a lock that was not renewed is no longer trusted.
      RocketMQ: rocketmq.client.rebalance.lockMaxLiveTime.
    - `commit_interval_ms` (5000): Interval at which consumed offsets are committed
      (persistConsumerOffsetInterval).
    - `pull_batch` (32): Maximum messages of a pull (pullBatchSize).
    - `pull_hold_ms` (15000): Time for which a broker may wait for messages
      (brokerSuspendMaxTimeMillis).
    - `pull_timeout_ms` (30000): Time-out of such a pull (consumerTimeoutMillisWhenSuspend).
    - `pull_retry_ms` (1000): Wait after a failed pull (pullTimeDelayMillsWhenException: 3 s in
      4.9, 1 s in 5.x).
    - `pull_idle_max_ms` (120000): Time without pull after which a held queue is dropped and
      acquired again. RocketMQ: rocketmq.client.pull.pullMaxIdleTime.
    - `consume_batch` (1): Maximum messages per call of the listener (consumeMessageBatchMaxSize).
    - `queue_messages_max` (1000): Maximum prefetched messages per queue (pullThresholdForQueue).
    - `queue_bytes_max` (100 * 1024 * 1024): Maximum prefetched bytes per queue
      (pullThresholdSizeForQueue).
    - `queue_span_max` (2000): Maximum distance between the prefetched offsets of a queue
      (consumeConcurrentlyMaxSpan).
    - `flow_retry_ms` (50): Wait before the next check when a limit above is reached. RocketMQ:
      PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL.
    - `stop_timeout_ms` (5000): Time for which a clean stop waits for listeners to finish.
      RocketMQ: awaitTerminationMillisWhenShutdown, 0.
    - `retry_max` (-1): Maximum deliveries of a failed message before it goes to the dead-letter
      topic. -1 means 16, or unlimited for an orderly consumer. RocketMQ: maxReconsumeTimes.
    - `suspend_ms` (1000): Time for which an orderly queue is suspended after a failure, from 10
      ms to 30 s. RocketMQ: suspendCurrentQueueTimeMillis.
    - `consume_timeout_ms` (15 * 60 * 1000): Time after which a message that its listener still
      holds is sent back. So its queue can continue. Not for orderly consumers. RocketMQ:
      consumeTimeout.
    - `topic_messages_max` (0): Maximum prefetched messages per topic, shared by its queues; 0:
      none (pullThresholdForTopic).
    - `topic_bytes_max` (0): Maximum prefetched bytes per topic; 0: none
      (pullThresholdSizeForTopic).
    - `offsets_folder` (''): Folder of a broadcasting consumer's offsets. Default:
      `.rocketmq_offsets` in the home directory. RocketMQ: rocketmq.client.localOffsetStoreDir.
    """

    route_poll_ms: int
    heartbeat_interval_ms: int
    call_timeout_ms: int
    address_translation: str | Sequence[str]
    access_key: str
    secret_key: str
    security_token: str
    subscriptions: Sequence[Subscription]
    message_model: MessageModel
    consume_from: ConsumeFrom
    consume_timestamp: int
    consume_offset: Annotated[int, Meta(ge=-1, le=2**63 - 1)]
    consume_strictly: bool
    strategy: str
    rebalance_interval_ms: int
    rebalance_retry_ms: int
    clean_handover: bool
    drain_timeout_ms: int
    takeover_timeout_ms: int
    lock_renew_ms: int
    lock_life_ms: int
    commit_interval_ms: int
    pull_batch: int
    pull_hold_ms: int
    pull_timeout_ms: int
    pull_retry_ms: int
    pull_idle_max_ms: int
    consume_batch: int
    queue_messages_max: int
    queue_bytes_max: int
    queue_span_max: int
    flow_retry_ms: int
    stop_timeout_ms: int
    retry_max: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    suspend_ms: int
    consume_timeout_ms: int
    topic_messages_max: int
    topic_bytes_max: int
    offsets_folder: str


class LitePullSettings(TypedDict, total=False):
    """Settings, with their defaults.

    - `route_poll_ms` (30000): Interval at which routes are requested from the nameservers
      (pollNameServerInterval).
    - `heartbeat_interval_ms` (30000): Interval of heartbeats to brokers
      (heartbeatBrokerInterval).
    - `call_timeout_ms` (3000): Time-out of requests that have none of their own
      (mqClientApiTimeout).
    - `address_translation` (()): Pairs `ADVERTISED=REACHED`: connect to the latter, host:port, if
      a server names the former. For clients that do not reach brokers at the addresses that they
      advertise, such as behind forwarded ports.
    - `access_key` (''): Key with which every request is signed
      (acl/common/AclClientRPCHook.java); empty: unsigned.
    - `secret_key` (''): The secret for `access_key`; never sent or printed.
    - `security_token` (''): The token of temporary credentials; optional.
    - `subscriptions` (()): Subscriptions by topic; `subscribe` adds to them.
    - `message_model` (MessageModel.CLUSTERING): CLUSTERING: each message goes to one member;
      BROADCASTING: every member reads everything.
    - `consume_from` (ConsumeFrom.LAST_OFFSET): Where a group without committed offsets begins:
      FIRST_OFFSET, LAST_OFFSET or TIMESTAMP.
    - `consume_timestamp` (0): The time for ConsumeFrom.TIMESTAMP, in ms since the epoch.
    - `consume_offset` (-1): Offset at which each queue begins, instead of `consume_from`; -1:
      none. If a queue does not have it, the nearest offset is used.
    - `consume_strictly` (False): Apply `consume_from` also to queues from which no message has
      been deleted yet. By default brokers let a new group read these from their beginning
      (setZeroIfNotFound); old 4.x brokers always do.
    - `strategy` ('AVG'): Allocation strategy: AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, EVEN, or
      MACHINE_ROOM_NEARBY-… MACHINE_ROOM_NEARBY- is followed by one of the first three. Strategies
      that need arguments are passed as `allocate=`.
    - `rebalance_interval_ms` (20000): Interval of rebalances without a trigger
      (rocketmq.client.rebalance.waitInterval).
    - `rebalance_retry_ms` (1000): The same while something is missing
      (rocketmq.client.rebalance.minInterval).
    - `clean_handover` (True): Hand over queues without duplicates between members that have this
      setting. The old owner finishes what its listener holds, commits and unlocks the queue; the
      new owner starts when it has the lock. Off: RocketMQ's behaviour, with duplicates.
    - `drain_timeout_ms` (5000): Time that a queue being given up waits for its listener;
      unfinished messages are redelivered.
    - `takeover_timeout_ms` (10000): Time that a new owner of a concurrent queue waits for its
      lock before starting without it. At least as long as `drain_timeout_ms` gives the old owner,
      and, after the topic's route has changed, as `route_poll_ms`: the old owner may not know of
      the change.
    - `lock_renew_ms` (20000): Interval at which locks of queues are renewed
      (rocketmq.client.rebalance.lockInterval).
    - `lock_life_ms` (30000): Time after which a lock that was not renewed is no longer trusted.
      RocketMQ: rocketmq.client.rebalance.lockMaxLiveTime.
    - `commit_interval_ms` (5000): Interval at which consumed offsets are committed
      (persistConsumerOffsetInterval).
    - `pull_batch` (10): Maximum messages of a pull, and by default of a poll (pullBatchSize).
    - `pull_hold_ms` (20000): Time for which a broker may wait for messages
      (brokerSuspendMaxTimeMillis).
    - `pull_timeout_ms` (30000): Time-out of such a pull (consumerTimeoutMillisWhenSuspend).
    - `pull_retry_ms` (1000): Wait after a failed pull (pullTimeDelayMillsWhenException: 3 s in
      4.9, 1 s in 5.x).
    - `pull_idle_max_ms` (120000): Time without pull after which a held queue is dropped and
      acquired again. RocketMQ: rocketmq.client.pull.pullMaxIdleTime.
    - `consume_batch` (1): Maximum messages per call of the listener (consumeMessageBatchMaxSize).
    - `queue_messages_max` (1000): Maximum prefetched messages per queue (pullThresholdForQueue).
    - `queue_bytes_max` (100 * 1024 * 1024): Maximum prefetched bytes per queue
      (pullThresholdSizeForQueue).
    - `queue_span_max` (2000): Maximum distance between the prefetched offsets of a queue
      (consumeConcurrentlyMaxSpan).
    - `flow_retry_ms` (50): Wait before the next check when a limit above is reached. RocketMQ:
      PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL.
    - `stop_timeout_ms` (5000): Time for which a clean stop waits for listeners to finish.
      RocketMQ: awaitTerminationMillisWhenShutdown, 0.
    - `retry_max` (-1): Maximum deliveries of a failed message before it goes to the dead-letter
      topic. -1 means 16, or unlimited for an orderly consumer. RocketMQ: maxReconsumeTimes.
    - `suspend_ms` (1000): Time for which an orderly queue is suspended after a failure, from 10
      ms to 30 s. RocketMQ: suspendCurrentQueueTimeMillis.
    - `consume_timeout_ms` (15 * 60 * 1000): Time after which a message that its listener still
      holds is sent back. So its queue can continue. Not for orderly consumers. RocketMQ:
      consumeTimeout.
    - `topic_messages_max` (0): Maximum prefetched messages per topic, shared by its queues; 0:
      none (pullThresholdForTopic).
    - `topic_bytes_max` (0): Maximum prefetched bytes per topic; 0: none
      (pullThresholdSizeForTopic).
    - `offsets_folder` (''): Folder of a broadcasting consumer's offsets. Default:
      `.rocketmq_offsets` in the home directory. RocketMQ: rocketmq.client.localOffsetStoreDir.
    - `auto_commit` (True): Commit polled messages once the next poll has begun; off: only when
      the application commits.
    - `poll_timeout_ms` (5000): Time for which a poll waits for messages (pollTimeoutMillis).
    - `messages_max` (10000): Maximum prefetched messages, shared by the queues
      (pullThresholdForAll).
    """

    route_poll_ms: int
    heartbeat_interval_ms: int
    call_timeout_ms: int
    address_translation: str | Sequence[str]
    access_key: str
    secret_key: str
    security_token: str
    subscriptions: Sequence[Subscription]
    message_model: MessageModel
    consume_from: ConsumeFrom
    consume_timestamp: int
    consume_offset: Annotated[int, Meta(ge=-1, le=2**63 - 1)]
    consume_strictly: bool
    strategy: str
    rebalance_interval_ms: int
    rebalance_retry_ms: int
    clean_handover: bool
    drain_timeout_ms: int
    takeover_timeout_ms: int
    lock_renew_ms: int
    lock_life_ms: int
    commit_interval_ms: int
    pull_batch: int
    pull_hold_ms: int
    pull_timeout_ms: int
    pull_retry_ms: int
    pull_idle_max_ms: int
    consume_batch: int
    queue_messages_max: int
    queue_bytes_max: int
    queue_span_max: int
    flow_retry_ms: int
    stop_timeout_ms: int
    retry_max: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    suspend_ms: int
    consume_timeout_ms: int
    topic_messages_max: int
    topic_bytes_max: int
    offsets_folder: str
    auto_commit: bool
    poll_timeout_ms: int
    messages_max: int


class KafkaSettings(TypedDict, total=False):
    """Settings, with their defaults.

    - `client_id` ('steelyard'): Name of the consumer in the brokers' logs and quotas; need not be
      unique.
    - `address_translation` (()): Pairs `ADVERTISED=REACHED`: connect to the latter, host:port, if
      a server names the former. For clients that do not reach brokers at the addresses that they
      advertise, such as behind forwarded ports.
    - `group_instance_id` (''): Id of a static member, which keeps its partitions if it restarts
      in time. That is within a session time-out.
    - `client_rack` (''): Rack of the consumer, for assignors that use it.
    - `group_protocol` ('classic'): Protocol of the group: `classic`, or `consumer` (KIP-848), in
      which its coordinator assigns. With `consumer` the brokers decide about sessions and
      heartbeats; Apache's need Kafka 4.0.
    - `group_remote_assignor` (''): With `group_protocol` consumer, the coordinator's assignor:
      `uniform`, `range`, or any. Others are those of the brokers' `group.consumer.assignors`.
      Empty: the brokers' default.
    - `assignors` (('range', 'cooperative-sticky')): Supported assignors, in order of preference
      (partition.assignment.strategy).
    - `auto_offset_reset` ('latest'): Where to begin without a committed offset: `earliest`,
      `latest`, or `none` to fail.
    - `enable_auto_commit` (True): Commit automatically what polls have returned.
    - `auto_commit_interval_ms` (5000): Interval of automatic commits.
    - `isolation_level` ('read_uncommitted'): `read_committed`: records of open and aborted
      transactions are not returned.
    - `session_timeout_ms` (45000): Time without heartbeat after which a member is removed from
      the group.
    - `heartbeat_interval_ms` (3000): Interval of heartbeats to the coordinator; at most a third
      of the session time-out.
    - `max_poll_interval_ms` (300000): Time without poll after which a member leaves its group. A
      rebalance waits for it as long.
    - `max_poll_records` (500): Maximum records that a poll returns.
    - `fetch_min_bytes` (1): Bytes for which a broker waits, up to `fetch_max_wait_ms`, to answer
      a fetch.
    - `fetch_max_bytes` (50 * 1024 * 1024): Maximum bytes of a fetch from a broker, but always one
      batch. Kept until polls have returned it.
    - `fetch_max_wait_ms` (500): Time for which a broker may wait for `fetch_min_bytes`.
    - `max_partition_fetch_bytes` (1024 * 1024): Maximum bytes of one partition in a fetch, but
      always one batch.
    - `check_crcs` (True): Verify the checksum of every batch.
    - `metadata_max_age_ms` (300000): Age after which partitions and their leaders are requested
      again.
    - `security_protocol` (''): PLAINTEXT, SSL (TLS), SASL_PLAINTEXT (with a login) or SASL_SSL
      (both). Empty: what `tls` and `sasl_mechanism` come to.
    - `sasl_mechanism` (''): How to log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER;
      empty: not at all.
    - `sasl_username` (''): User to log in as.
    - `sasl_password` (''): The user's password; never printed.
    - `allow_auto_create_topics` (True): Let the broker create subscribed topics that do not
      exist, if it is configured to.
    - `request_timeout_ms` (30000): Time-out of a single request.
    - `default_api_timeout_ms` (60000): Time for which a call that needs a broker is retried.
    - `retry_backoff_ms` (100): Wait before a request is retried; it doubles each time.
    - `retry_backoff_max_ms` (1000): Maximum wait before a retry.
    """

    client_id: str
    address_translation: str | Sequence[str]
    group_instance_id: str
    client_rack: str
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str
    assignors: str | Sequence[str]
    auto_offset_reset: Literal["earliest", "latest", "none"]
    enable_auto_commit: bool
    auto_commit_interval_ms: Int32
    isolation_level: Literal["read_uncommitted", "read_committed"]
    session_timeout_ms: Int32
    heartbeat_interval_ms: PositiveInt32
    max_poll_interval_ms: PositiveInt32
    max_poll_records: PositiveInt32
    fetch_min_bytes: Int32
    fetch_max_bytes: Int32
    fetch_max_wait_ms: Int32
    max_partition_fetch_bytes: Int32
    check_crcs: bool
    metadata_max_age_ms: Int32
    security_protocol: Literal["", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    sasl_username: str
    sasl_password: str
    allow_auto_create_topics: bool
    request_timeout_ms: Int32
    default_api_timeout_ms: Int32
    retry_backoff_ms: Int32
    retry_backoff_max_ms: Int32
