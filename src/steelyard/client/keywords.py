# Written by tools/shells.py from config.py: change that one, then `./dev generate`.
"""The settings that the clients take by name, each as in its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from steelyard.checks import Int32, PositiveInt32
from steelyard.config import Compression, LatencyFaults
from steelyard.types import ConsumeFrom, MessageModel, Subscription


class ProducerSettings(TypedDict, total=False):
    """Settings, with their defaults.

    - `route_poll_ms` (30000): How often the nameservers are asked for routes
      (pollNameServerInterval).
    - `heartbeat_interval_ms` (30000): How often brokers hear of this client
      (heartbeatBrokerInterval).
    - `call_timeout_ms` (3000): How long a request to a server may take that has no limit of its
      own (mqClientApiTimeout).
    - `access_key` (''): Signs every request (acl/common/AclClientRPCHook.java); empty: requests
      are not signed.
    - `secret_key` (''): Belongs to `access_key`; is never sent nor printed.
    - `security_token` (''): Of temporary credentials; optional.
    - `send_timeout_ms` (3000): For all attempts together (sendMsgTimeout).
    - `retries` (2): Attempts after the first (retryTimesWhenSendFailed).
    - `default_topic` ('TBW102'): Whose route a topic borrows before it exists (createTopicKey).
    - `default_topic_queues` (4): Queues of a topic that is made so (defaultTopicQueueNums).
    - `message_bytes_max` (4 * 1024 * 1024): Largest body (maxMessageSize).
    - `compress_above_bytes` (4096): Larger bodies are compressed; 0: none
      (compressMsgBodyOverHowmuch).
    - `compress_type` ('zlib'): `zlib`, or `lz4` or `zstd`, which consumers older than 5.0 cannot
      read (rocketmq.message.compressType).
    - `compress_level` (5): 0 to 9, for zlib and zstd (rocketmq.message.compressLevel).
    - `in_flight_max` (10000): Sends under way at once; more are refused with a RemotingError.
    - `in_flight_bytes_max` (100 * 1024 * 1024): Bodies of the sends under way, compressed where
      they are sent so; more are refused with a RemotingError (backPressureForAsyncSendSize).
    - `retry_another_broker` (False): Try another broker, too, when one stored the message but
      says that it did not flush or copy it in time (retryAnotherBrokerWhenNotStoreOK).
    - `retry_codes` ('5.x'): After which error codes another broker is tried: those of `4.x` or
      `5.x`, which also has SYSTEM_BUSY (2) and GO_AWAY (1500) (retryResponseCodes).
    - `latency_faults` ('off'): Avoid brokers that answered slowly or not at all: `off`, `4.x` or
      `5.x`, by whose table (sendLatencyFaultEnable, MQFaultStrategy.java).
    - `detect` (False): Ask brokers that are avoided whether they can be reached again
      (startDetectorEnable).
    - `detect_interval_ms` (2000): How often they are asked (detectInterval).
    - `detect_timeout_ms` (200): How long they may take to answer (detectTimeout).
    - `checks_max` (2000): Questions for transactions that wait for the application at once; more
      are left to be asked again (checkRequestHoldMax).
    """

    route_poll_ms: int
    heartbeat_interval_ms: int
    call_timeout_ms: int
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
    latency_faults: LatencyFaults
    detect: bool
    detect_interval_ms: int
    detect_timeout_ms: int
    checks_max: int


class ConsumerSettings(TypedDict, total=False):
    """Settings, with their defaults.

    - `route_poll_ms` (30000): How often the nameservers are asked for routes
      (pollNameServerInterval).
    - `heartbeat_interval_ms` (30000): How often brokers hear of this client
      (heartbeatBrokerInterval).
    - `call_timeout_ms` (3000): How long a request to a server may take that has no limit of its
      own (mqClientApiTimeout).
    - `access_key` (''): Signs every request (acl/common/AclClientRPCHook.java); empty: requests
      are not signed.
    - `secret_key` (''): Belongs to `access_key`; is never sent nor printed.
    - `security_token` (''): Of temporary credentials; optional.
    - `subscriptions` (()): What is wanted of which topics; `subscribe` adds to them.
    - `message_model` (MessageModel.CLUSTERING): BROADCASTING: every member reads everything.
    - `consume_from` (ConsumeFrom.LAST_OFFSET): Where a group begins that has committed nothing:
      FIRST_OFFSET, LAST_OFFSET or TIMESTAMP.
    - `consume_timestamp` (0): For ConsumeFrom.TIMESTAMP, ms since the epoch.
    - `consume_offset` (-1): Offset of each queue to begin at in place of `consume_from`, the
      nearest one of a queue that does not have it; -1: none.
    - `consume_strictly` (False): Begin where `consume_from` says in young queues as well, from
      which no message was deleted yet: brokers have a new group read those from their beginning
      unless it objects (setZeroIfNotFound), and old ones of 4.x even then.
    - `strategy` ('AVG'): How the members share the queues out: AVG, AVG_BY_CIRCLE,
      CONSISTENT_HASH, EVEN, or MACHINE_ROOM_NEARBY- and one of the first three. Strategies that
      need arguments go into `allocate=`.
    - `rebalance_interval_ms` (20000): How often a member looks at its share without a reason
      (rocketmq.client.rebalance.waitInterval).
    - `rebalance_retry_ms` (1000): The same while something is missing
      (rocketmq.client.rebalance.minInterval).
    - `clean_handover` (True): Between members that have it: the old owner of a queue finishes
      what its listener holds, commits and lets the queue's lock go; the new owner starts when it
      has the lock. Off: RocketMQ's way, with duplicates.
    - `drain_timeout_ms` (5000): How long a queue that is given up waits for its listener; what is
      not done by then is delivered again.
    - `takeover_timeout_ms` (10000): How long a new owner waits for the lock of a queue that is
      not consumed in order; then it starts without. At least as long as `drain_timeout_ms` lets the
      old owner take, and, after the topic's route has changed, as `route_poll_ms`: the old owner
      may not have heard of it.
    - `lock_renew_ms` (20000): How often the locks of queues are renewed
      (rocketmq.client.rebalance.lockInterval).
    - `lock_life_ms` (30000): A lock not renewed for so long is no longer trusted
      (rocketmq.client.rebalance.lockMaxLiveTime).
    - `commit_interval_ms` (5000): How often consumed offsets are committed
      (persistConsumerOffsetInterval).
    - `pull_batch` (32): Most messages of one pull (pullBatchSize).
    - `pull_hold_ms` (15000): How long a broker may wait for messages
      (brokerSuspendMaxTimeMillis).
    - `pull_timeout_ms` (30000): How long such a pull may take (consumerTimeoutMillisWhenSuspend).
    - `pull_retry_ms` (1000): Wait after a pull that failed (pullTimeDelayMillsWhenException: 3 s
      in 4.9, 1 s in 5.x).
    - `pull_idle_max_ms` (120000): A held queue not pulled for so long is dropped and taken anew
      (rocketmq.client.pull.pullMaxIdleTime).
    - `consume_batch` (1): Messages per call of the listener (consumeMessageBatchMaxSize).
    - `queue_messages_max` (1000): Messages of one queue in the client (pullThresholdForQueue).
    - `queue_bytes_max` (100 * 1024 * 1024): Bytes of one queue in the client
      (pullThresholdSizeForQueue).
    - `queue_span_max` (2000): Highest minus lowest offset in the client
      (consumeConcurrentlyMaxSpan).
    - `flow_retry_ms` (50): Wait before the next look when a limit above is reached
      (PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL).
    - `stop_timeout_ms` (5000): How long a clean stop waits for listeners to finish what they hold
      (awaitTerminationMillisWhenShutdown is 0 in Java).
    - `retry_max` (-1): Deliveries of a failed message before it goes to the dead-letter topic
      (maxReconsumeTimes); -1 means 16, and without end for an orderly consumer.
    - `suspend_ms` (1000): How long an orderly queue waits after a failure
      (suspendCurrentQueueTimeMillis); kept within 10 ms and 30 s.
    - `consume_timeout_ms` (15 * 60 * 1000): A message that its listener has for longer is sent
      back to its broker, so that its queue can go on (consumeTimeout); not for orderly consumers.
    - `topic_messages_max` (0): Messages of one topic in the client, shared by its queues
      (pullThresholdForTopic); 0: no such limit.
    - `topic_bytes_max` (0): Bytes of them (pullThresholdSizeForTopic); 0: no such limit.
    - `offsets_folder` (''): Where a broadcasting consumer keeps its offsets; empty:
      `.rocketmq_offsets` in the user's home (rocketmq.client.localOffsetStoreDir).
    """

    route_poll_ms: int
    heartbeat_interval_ms: int
    call_timeout_ms: int
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

    - `route_poll_ms` (30000): How often the nameservers are asked for routes
      (pollNameServerInterval).
    - `heartbeat_interval_ms` (30000): How often brokers hear of this client
      (heartbeatBrokerInterval).
    - `call_timeout_ms` (3000): How long a request to a server may take that has no limit of its
      own (mqClientApiTimeout).
    - `access_key` (''): Signs every request (acl/common/AclClientRPCHook.java); empty: requests
      are not signed.
    - `secret_key` (''): Belongs to `access_key`; is never sent nor printed.
    - `security_token` (''): Of temporary credentials; optional.
    - `subscriptions` (()): What is wanted of which topics; `subscribe` adds to them.
    - `message_model` (MessageModel.CLUSTERING): BROADCASTING: every member reads everything.
    - `consume_from` (ConsumeFrom.LAST_OFFSET): Where a group begins that has committed nothing:
      FIRST_OFFSET, LAST_OFFSET or TIMESTAMP.
    - `consume_timestamp` (0): For ConsumeFrom.TIMESTAMP, ms since the epoch.
    - `consume_offset` (-1): Offset of each queue to begin at in place of `consume_from`, the
      nearest one of a queue that does not have it; -1: none.
    - `consume_strictly` (False): Begin where `consume_from` says in young queues as well, from
      which no message was deleted yet: brokers have a new group read those from their beginning
      unless it objects (setZeroIfNotFound), and old ones of 4.x even then.
    - `strategy` ('AVG'): How the members share the queues out: AVG, AVG_BY_CIRCLE,
      CONSISTENT_HASH, EVEN, or MACHINE_ROOM_NEARBY- and one of the first three. Strategies that
      need arguments go into `allocate=`.
    - `rebalance_interval_ms` (20000): How often a member looks at its share without a reason
      (rocketmq.client.rebalance.waitInterval).
    - `rebalance_retry_ms` (1000): The same while something is missing
      (rocketmq.client.rebalance.minInterval).
    - `clean_handover` (True): Between members that have it: the old owner of a queue finishes
      what its listener holds, commits and lets the queue's lock go; the new owner starts when it
      has the lock. Off: RocketMQ's way, with duplicates.
    - `drain_timeout_ms` (5000): How long a queue that is given up waits for its listener; what is
      not done by then is delivered again.
    - `takeover_timeout_ms` (10000): How long a new owner waits for the lock of a queue that is
      not consumed in order; then it starts without. At least as long as `drain_timeout_ms` lets the
      old owner take, and, after the topic's route has changed, as `route_poll_ms`: the old owner
      may not have heard of it.
    - `lock_renew_ms` (20000): How often the locks of queues are renewed
      (rocketmq.client.rebalance.lockInterval).
    - `lock_life_ms` (30000): A lock not renewed for so long is no longer trusted
      (rocketmq.client.rebalance.lockMaxLiveTime).
    - `commit_interval_ms` (5000): How often consumed offsets are committed
      (persistConsumerOffsetInterval).
    - `pull_batch` (10): Most messages of one pull, and of one poll that does not say otherwise
      (pullBatchSize).
    - `pull_hold_ms` (20000): How long a broker may wait for messages
      (brokerSuspendMaxTimeMillis).
    - `pull_timeout_ms` (30000): How long such a pull may take (consumerTimeoutMillisWhenSuspend).
    - `pull_retry_ms` (1000): Wait after a pull that failed (pullTimeDelayMillsWhenException: 3 s
      in 4.9, 1 s in 5.x).
    - `pull_idle_max_ms` (120000): A held queue not pulled for so long is dropped and taken anew
      (rocketmq.client.pull.pullMaxIdleTime).
    - `consume_batch` (1): Messages per call of the listener (consumeMessageBatchMaxSize).
    - `queue_messages_max` (1000): Messages of one queue in the client (pullThresholdForQueue).
    - `queue_bytes_max` (100 * 1024 * 1024): Bytes of one queue in the client
      (pullThresholdSizeForQueue).
    - `queue_span_max` (2000): Highest minus lowest offset in the client
      (consumeConcurrentlyMaxSpan).
    - `flow_retry_ms` (50): Wait before the next look when a limit above is reached
      (PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL).
    - `stop_timeout_ms` (5000): How long a clean stop waits for listeners to finish what they hold
      (awaitTerminationMillisWhenShutdown is 0 in Java).
    - `retry_max` (-1): Deliveries of a failed message before it goes to the dead-letter topic
      (maxReconsumeTimes); -1 means 16, and without end for an orderly consumer.
    - `suspend_ms` (1000): How long an orderly queue waits after a failure
      (suspendCurrentQueueTimeMillis); kept within 10 ms and 30 s.
    - `consume_timeout_ms` (15 * 60 * 1000): A message that its listener has for longer is sent
      back to its broker, so that its queue can go on (consumeTimeout); not for orderly consumers.
    - `topic_messages_max` (0): Messages of one topic in the client, shared by its queues
      (pullThresholdForTopic); 0: no such limit.
    - `topic_bytes_max` (0): Bytes of them (pullThresholdSizeForTopic); 0: no such limit.
    - `offsets_folder` (''): Where a broadcasting consumer keeps its offsets; empty:
      `.rocketmq_offsets` in the user's home (rocketmq.client.localOffsetStoreDir).
    - `auto_commit` (True): What a poll returned is committed once the next poll has begun; off:
      when the application says so.
    - `poll_timeout_ms` (5000): How long a poll waits for messages (pollTimeoutMillis).
    - `messages_max` (10000): Messages in the client, shared by its queues (pullThresholdForAll).
    """

    route_poll_ms: int
    heartbeat_interval_ms: int
    call_timeout_ms: int
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

    - `client_id` ('steelyard'): Names the consumer in the brokers' logs and quotas; need not be
      unique.
    - `group_instance_id` (''): Makes a static member: it keeps its partitions while it restarts,
      for a session's time at most.
    - `client_rack` (''): Where the consumer is; told to assignors that care.
    - `assignors` (('range', 'cooperative-sticky')): What the member can share partitions out by,
      the best first (partition.assignment.strategy).
    - `auto_offset_reset` ('latest'): Where to begin without a committed offset: `earliest`,
      `latest`, or `none`: fail.
    - `enable_auto_commit` (True): Commit by itself what polls have returned.
    - `auto_commit_interval_ms` (5000): How often.
    - `isolation_level` ('read_uncommitted'): `read_committed`: records of open and aborted
      transactions are not returned.
    - `session_timeout_ms` (45000): A member that is not heard of for so long is out of the group.
    - `heartbeat_interval_ms` (3000): How often the coordinator hears from the member; a third of
      the session's time at most.
    - `max_poll_interval_ms` (300000): A member whose application does not poll for so long leaves
      the group; also how long the group waits for it.
    - `max_poll_records` (500): Most records that one poll returns.
    - `fetch_min_bytes` (1): A broker answers a fetch when it has so much, or after
      `fetch_max_wait_ms`.
    - `fetch_max_bytes` (50 * 1024 * 1024): Of one fetch from a broker, but always one batch; kept
      until polls have returned it.
    - `fetch_max_wait_ms` (500): How long a broker may wait until it has `fetch_min_bytes`.
    - `max_partition_fetch_bytes` (1024 * 1024): Of one partition in a fetch, but always one
      batch.
    - `check_crcs` (True): Verify the checksum of every batch.
    - `metadata_max_age_ms` (300000): Partitions and their leaders are asked for again after so
      long.
    - `allow_auto_create_topics` (True): Let the broker make topics that are subscribed to and do
      not exist, if it does so.
    - `request_timeout_ms` (30000): Longest wait for the answer to one request.
    - `default_api_timeout_ms` (60000): How long a call that needs a broker is tried again.
    - `retry_backoff_ms` (100): Wait before a request is tried again; it doubles with each time
    - `retry_backoff_max_ms` (1000): The longest such wait.
    """

    client_id: str
    group_instance_id: str
    client_rack: str
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
    allow_auto_create_topics: bool
    request_timeout_ms: Int32
    default_api_timeout_ms: Int32
    retry_backoff_ms: Int32
    retry_backoff_max_ms: Int32
