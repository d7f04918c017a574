"""Settings of every node, one frozen dataclass each.

Defaults are those of Apache RocketMQ where it has the setting; the docstring of a field names it.
Times are milliseconds, sizes bytes. Values are validated where they enter the program (`client`,
`settings`), by `check`: an `int` is 0 or more unless its annotation says otherwise
(`steelyard.checks`). `Kafka` and `RocketMQ` in an annotation are the setting's names there, which
`settings` accepts as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from steelyard.addresses import is_address
from steelyard.checks import Int32, Positive, PositiveInt32, kinds_of
from steelyard.errors import ConfigError
from steelyard.types import ConsumeFrom, MessageModel, Subscription

__all__ = [
    "BrokerConfig",
    "ClientConfig",
    "ConsumerConfig",
    "HttpConfig",
    "KafkaConfig",
    "KafkaConsumerConfig",
    "LitePullConfig",
    "NameserverConfig",
    "ProducerConfig",
    "StoreConfig",
    "TlsClientConfig",
    "TlsConfig",
]

Ratio = Annotated[float, Meta(gt=0, le=1)]
FlushMode = Literal["async", "sync"]
MigrationPolicy = Literal["bidirectional", "upgrade", "downgrade", "disabled"]
Compression = Literal["zlib", "lz4", "zstd"]
ClientAuth = Literal["none", "requested", "required"]
Authorizer = Literal["none", "acl"]
TlsMode = Literal["disabled", "permissive", "enforcing"]
TlsClientAuth = Literal["none", "optional", "require"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
LatencyFaults = Literal["off", "4.x", "5.x"]


class RocketMQ(NamedTuple):
    """The name in RocketMQ's configuration of a setting with the same meaning and unit."""

    name: str


class Kafka(NamedTuple):
    """The name of a setting of Kafka's brokers, if it has the same meaning and unit.

    Its type in Kafka is INT if the annotation's range ends at 2^31 - 1, otherwise LONG, BOOLEAN or
    STRING.
    """

    name: str
    topic: str = ""
    """The name of the topic setting for which it is the default."""
    text: str = ""
    """The description for Kafka clients, if the field's own is not true for them."""
    unlimited: int = 0
    """Kafka's value for our 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS at the RocketMQ port of a broker or nameserver: remoting/netty/TlsSystemConfig.java.

    Files are PEM, and reloaded within a second when they change.
    """

    server_mode: Annotated[TlsMode, RocketMQ("tls.server.mode")] = "permissive"
    """How clients may connect where there is a certificate.

    permissive: with TLS or without, on the same port; enforcing: with TLS; disabled: without.
    """
    server_cert_file: Annotated[str, RocketMQ("tls.server.certPath")] = ""
    """The port's certificate and its chain; without it there is no TLS."""
    server_key_file: Annotated[str, RocketMQ("tls.server.keyPath")] = ""
    """The certificate's key, without a password; empty: it is in the same file."""
    server_trust_file: Annotated[str, RocketMQ("tls.server.trustCertPath")] = ""
    """Certificates of those who may sign clients' certificates."""
    server_need_client_auth: Annotated[TlsClientAuth, RocketMQ("tls.server.need.client.auth")] = (
        "none"
    )
    """Whether clients must show a certificate that `server_trust_file` vouches for."""

    @property
    def is_on(self) -> bool:
        """Return whether clients may connect with TLS."""
        return bool(self.server_cert_file) and self.server_mode != "disabled"

    @property
    def needs_certificates(self) -> bool:
        """Return whether nobody connects without a certificate that is trusted."""
        return self.server_mode == "enforcing" and self.server_need_client_auth == "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsClientConfig:
    """How a server of ours connects to nameservers and brokers: TlsSystemConfig.java.

    Files are PEM. Certificates are always verified, and must name the address that is dialed.
    """

    trust_file: Annotated[str, RocketMQ("tls.client.trustCertPath")] = ""
    """Certificates of those who may sign the certificates of nameservers and brokers.

    With it, connections to their RocketMQ ports use TLS.
    """
    cert_file: Annotated[str, RocketMQ("tls.client.certPath")] = ""
    """The certificate to show there, and its chain; empty: none."""
    key_file: Annotated[str, RocketMQ("tls.client.keyPath")] = ""
    """The certificate's key, without a password; empty: it is in the same file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameserverConfig:
    """A nameserver: namesrv/NamesrvConfig.java, RouteInfoManager.java."""

    broker_expiry_ms: int = 120_000
    """Silence after which a broker is removed from the routes.

    RocketMQ: DEFAULT_BROKER_CHANNEL_EXPIRED_TIME.
    """
    scan_interval_ms: Annotated[int, RocketMQ("scanNotActiveBrokerInterval")] = 5_000
    """Interval of the search for silent brokers."""
    max_connections: int = 0x7FFFFFFF
    """Maximum number of accepted connections, also limited by the open files (name as in Kafka)."""
    max_connections_per_ip: int = 0x7FFFFFFF
    """Maximum number of connections from one IP address."""
    acl_file: str = ""
    """YAML file with accounts, as for brokers; with it, every request must be signed."""
    tls: TlsConfig = TlsConfig()
    """TLS at its port."""

    @property
    def has_logins(self) -> bool:
        """Return whether every client has to prove who it is."""
        return bool(self.acl_file) or self.tls.needs_certificates


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The log of a broker: store/config/MessageStoreConfig.java."""

    segment_bytes: Annotated[
        PositiveInt32,
        Kafka("log.segment.bytes", "segment.bytes", "Size at which a segment file is closed."),
    ] = 256 * 1024 * 1024
    """Size at which a segment file is closed.

    RocketMQ: one commit log of 1 GiB files for all queues; ours are per queue. Kafka: 1 GiB.
    """
    segment_ms: Annotated[
        int,
        Kafka("log.roll.ms", "segment.ms", "Age at which a segment file is closed.", 2**63 - 1),
    ] = 7 * 24 * 3600 * 1000
    """Age of its first message at which a segment is closed by the next message; 0: never.
    """
    index_flush_rows: int = 4096
    """Index rows buffered in memory before they are written; they can be rebuilt from the log."""
    retention_ms: Annotated[
        int, Kafka("log.retention.ms", "retention.ms", "How long records are kept.", -1)
    ] = 72 * 3600 * 1000
    """Age of its newest message at which a segment is deleted; 0 keeps all.

    RocketMQ: fileReservedTime, 72 h; Kafka: 168 h.
    """
    retention_bytes: Annotated[
        int,
        Kafka(
            "log.retention.bytes",
            "retention.bytes",
            "Maximum bytes of a partition, in whole segments.",
            -1,
        ),
    ] = 0
    """Bytes of a queue beyond which its oldest segments are deleted; 0 keeps all.

    A segment is deleted if the others still hold this many bytes.
    """
    retention_check_interval_ms: Annotated[
        Positive, Kafka("log.retention.check.interval.ms"), RocketMQ("cleanResourceInterval")
    ] = 10_000
    """Interval of the search for segments past their retention (Kafka: 5 minutes)."""
    compaction_interval_ms: Annotated[int, Kafka("log.cleaner.backoff.ms")] = 15_000
    """Interval of the search for compacted topics with enough to compact; 0: nothing is compacted.
    """
    compaction_keys_max: Positive = 500_000
    """Keys that one compaction keeps in memory, 150 bytes each; with more, it takes several.

    Kafka: log.cleaner.dedupe.buffer.size, 128 MiB for 5 million keys.
    """
    disk_full_ratio: Ratio = 0.90
    """Fraction of the disk in use above which producers are refused; 1.0: never.

    RocketMQ: diskSpaceWarningLevelRatio; unlike there, a disk with `disk_free_bytes_enough` never
    counts as full.
    """
    disk_free_bytes_enough: int = 4 * 1024 * 1024 * 1024
    """Free space with which neither `disk_full_ratio` nor `disk_clean_ratio` applies."""
    disk_clean_ratio: Ratio = 0.85
    """Fraction of the disk in use above which `clean_forcibly` deletes old segments early.

    RocketMQ: diskSpaceCleanForciblyRatio.
    """
    clean_forcibly: Annotated[bool, RocketMQ("cleanFileForciblyEnable")] = False
    """Delete old segments early rather than refuse producers (on in RocketMQ)."""
    scrub_bytes_per_second: int = 4 * 1024 * 1024
    """Speed at which all logs are continually read and verified; 0: never."""
    scrub_interval_ms: int = 24 * 3600 * 1000
    """Interval between the starts of two such passes through all logs, unless one takes longer."""
    message_bytes_max: Annotated[int, RocketMQ("maxMessageSize")] = 4 * 1024 * 1024
    """Largest message body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """A broker's Kafka listener.

    Source: server/config/AbstractKafkaConfig.java, GroupCoordinatorConfig.java.

    A name of several words is Kafka's, with underscores for its dots.
    """

    address: str = "127.0.0.1:9092"
    """Address advertised to Kafka clients (advertised.listeners); default: the address listened on.
    """
    node_id: Int32 = 1
    """Id of the broker, unique in the cluster."""
    brokers: tuple[str, ...] = ()
    """Names of all brokers of the cluster that have a Kafka listener, including this one.

    Coordinators are assigned once all of them are up. Empty: the brokers that this one has met.
    Compare controller.quorum.voters.
    """
    num_partitions: PositiveInt32 = 1
    """Partitions of topics that are created without a number."""
    auto_create_topics_enable: bool = True
    """Create a topic when a client requests its metadata."""
    delayed_records: bool = True
    """Delay records with a header TIMER_DELIVER_MS, TIMER_DELAY_MS or TIMER_DELAY_SEC.

    To find them, compressed batches are unpacked. False: headers have no meaning.
    """
    message_max_bytes: Annotated[Int32, Kafka("message.max.bytes", topic="max.message.bytes")] = (
        1024 * 1024 + 12
    )
    """Largest record batch."""
    offsets_topic_num_partitions: PositiveInt32 = 50
    """Number of partitions over which groups are distributed."""
    offset_metadata_max_bytes: Int32 = 4096
    """Maximum length of the metadata of a committed offset."""
    offsets_retention_minutes: PositiveInt32 = 10_080
    """Time after which the offsets of a group without members are deleted."""
    offsets_retention_check_interval_ms: Positive = 600_000
    """Interval of the search for expired offsets."""
    group_min_session_timeout_ms: Int32 = 6_000
    """Minimum session time-out of members of classic groups."""
    group_max_session_timeout_ms: Int32 = 1_800_000
    """Maximum session time-out of members of classic groups."""
    group_initial_rebalance_delay_ms: Int32 = 0
    """Time that the first rebalance of an empty group waits for further members.

    With `delayed_answers` it ends as soon as none has come for 200 ms. 3000 in the code of Apache
    Kafka, 0 in the settings it ships with.
    """
    group_heartbeat_wait_max_ms: Int32 = 8_000
    """Longest time that an answer to a heartbeat waits for a rebalance, if `delayed_answers` is on.

    It is never more than a third of the session time-out, and must stay below the request time-out
    of clients: 10 s in franz-go, 30 s in the Java client. The default is longer than the interval
    of automatic commits, 5 s: a commit ends the wait, and the client sends its next heartbeat at
    once if the last one is more than an interval old. Kafka has no such setting.
    """
    group_join_window_max_ms: Annotated[int, Meta(ge=0, le=10_000)] = 1_000
    """Longest time for which members that join one after the other are collected.

    They become one rebalance, if `delayed_answers` is on. In classic groups a join also waits until
    all members can be told of the rebalance at the same time, for 3.3 s at most, and leaves within
    100 ms are one rebalance. A member that leaves or expires ends the wait. 0: each join and leave
    is a rebalance, as in Kafka, which has no such setting.
    """
    group_flapping_delay_max_ms: Annotated[int, Meta(ge=0, le=20_000)] = 0
    """Longest delay of the return of a client that joins and goes again and again.

    The delay begins at 1000 ms with the third time in half an hour that the client left within a
    minute of joining, and doubles with each further one. 0: such clients are only reported, in the
    log, the ledger and kafkaGroup. Kafka has no such setting.
    """
    group_max_size: PositiveInt32 = 0x7FFFFFFF
    """Maximum members of a classic group."""
    group_consumer_session_timeout_ms: PositiveInt32 = 45_000
    """Silence after which a member of a KIP-848 group is removed."""
    group_consumer_heartbeat_interval_ms: PositiveInt32 = 5_000
    """Heartbeat interval of members of KIP-848 groups."""
    group_consumer_max_size: PositiveInt32 = 0x7FFFFFFF
    """Maximum members of a KIP-848 group."""
    group_consumer_assignment_interval_ms: Int32 = 0
    """Minimum time between two target assignments of a group.

    0 up to Kafka 4.2 and here; 1000 since 4.3, which makes members that join within a second of
    each other wait for their next heartbeat.
    """
    group_share_session_timeout_ms: PositiveInt32 = 45_000
    """Silence after which a member of a share group is removed."""
    group_share_heartbeat_interval_ms: PositiveInt32 = 5_000
    """Heartbeat interval of members of share groups."""
    group_share_max_size: Annotated[int, Meta(ge=1, le=1_000)] = 200
    """Maximum members of a share group."""
    group_share_assignment_interval_ms: Annotated[int, Meta(ge=0, le=15_000)] = 0
    """Minimum time between two target assignments of a share group; 1000 in Kafka."""
    group_share_record_lock_duration_ms: Annotated[int, Meta(ge=1_000, le=3_600_000)] = 30_000
    """How long a member of a share group may hold the records that it has acquired."""
    group_share_delivery_count_limit: Annotated[int, Meta(ge=2, le=25)] = 5
    """Maximum number of times a record is delivered to a share group that does not accept it."""
    group_share_partition_max_record_locks: Annotated[int, Meta(ge=100, le=10_000)] = 2_000
    """Maximum records of a partition that a share group has in flight."""
    group_share_max_share_sessions: Annotated[int, Meta(ge=1, le=100_000)] = 2_000
    """Maximum number of sessions of share groups' members."""
    group_consumer_migration_policy: MigrationPolicy = "bidirectional"
    """Whether groups with members change between the classic protocol and KIP-848.

    upgrade: when a member of the latter joins; downgrade: when the last one leaves.
    """
    group_streams_session_timeout_ms: PositiveInt32 = 45_000
    """Silence after which a member of a streams group (KIP-1071) is removed."""
    group_streams_heartbeat_interval_ms: PositiveInt32 = 5_000
    """Heartbeat interval of members of streams groups."""
    group_streams_max_size: PositiveInt32 = 0x7FFFFFFF
    """Maximum members of a streams group; a member is a thread of an application."""
    group_streams_num_standby_replicas: Annotated[int, Meta(ge=0, le=10)] = 0
    """Standbys of each task with state in a streams group."""
    group_streams_initial_rebalance_delay_ms: Int32 = 3_000
    """Time that the first rebalance of an empty streams group waits for further members."""
    group_streams_assignment_interval_ms: Int32 = 1_000
    """Minimum time between two target assignments of a streams group."""
    transactional_id_expiration_ms: PositiveInt32 = 604_800_000
    """Time after which an id without transactions is forgotten."""
    transaction_max_timeout_ms: PositiveInt32 = 900_000
    """Maximum time-out of a transaction."""
    transaction_state_log_num_partitions: PositiveInt32 = 50
    """Number of partitions over which transactions are distributed."""
    transaction_partition_verification_enable: bool = True
    """Verify, before the first record of a transaction, that its coordinator knows the partition.

    Without that, late records of older clients can leave a transaction open forever (KIP-890).
    """
    producer_id_expiration_ms: PositiveInt32 = 86_400_000
    """Time after which a silent producer's sequence numbers are forgotten."""
    max_incremental_fetch_session_cache_slots: Int32 = 1_000
    """Maximum number of fetch sessions."""
    max_connections: Int32 = 0x7FFFFFFF
    """Maximum number of connections to the Kafka listener, also limited by the open files."""
    max_connections_per_ip: Int32 = 0x7FFFFFFF
    """Maximum number of connections from one IP address."""
    ssl_certificate_file: str = ""
    """PEM file with the certificate of the listener and its chain; with it, connections use TLS.

    Reloaded within a second when it changes, like the two files below. Kafka: the first part of
    ssl.keystore.location with ssl.keystore.type=PEM.
    """
    ssl_key_file: str = ""
    """PEM file with the certificate's key, without a password; empty: it is in the same file."""
    ssl_client_ca_file: str = ""
    """PEM file with the certificates of those who may sign clients' certificates.

    Kafka: ssl.truststore.location with ssl.truststore.type=PEM.
    """
    ssl_client_auth: Annotated[ClientAuth, Kafka("ssl.client.auth")] = "none"
    """Whether clients must show a certificate that `ssl_client_ca_file` vouches for."""
    sasl_enabled_mechanisms: Annotated[
        tuple[SaslMechanism, ...], Kafka("sasl.enabled.mechanisms")
    ] = ()
    """How clients log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Empty: nobody does."""
    connections_max_reauth_ms: Annotated[int, Kafka("connections.max.reauth.ms")] = 0
    """Time after which a client must log in again on its connection; 0: it need not."""
    connection_failed_authentication_delay_ms: Annotated[
        int, Meta(ge=0, le=60_000), Kafka("connection.failed.authentication.delay.ms")
    ] = 100
    """Delay of the answer to a failed login; it grows if an address fails again and again."""
    authorizer: Authorizer = "none"
    """Who may do what: none: everybody everything; acl: what access rules (ACLs) allow.

    Kafka: authorizer.class.name, empty or its StandardAuthorizer.
    """
    super_users: tuple[str, ...] = ()
    """Principals that may do everything, such as `User:admin`; Kafka: super.users."""
    allow_everyone_if_no_acl_found: Annotated[bool, Kafka("allow.everyone.if.no.acl.found")] = False
    """Allow everybody what no rule concerns."""
    sasl_oauthbearer_jwks_endpoint_url: Annotated[
        str, Kafka("sasl.oauthbearer.jwks.endpoint.url")
    ] = ""
    """JSON Web Key Set with which OAUTHBEARER's access tokens are verified: a file, or its URL.

    A file (its path, or file:///PATH) is read again when it changes. Needs `steelyard[oauth]`.
    """
    sasl_oauthbearer_jwks_endpoint_refresh_ms: Annotated[
        int,
        Meta(ge=1_000, le=86_400_000),
        Kafka("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
    ] = 60_000
    """Interval in which the key set is read from a URL again; Kafka: an hour, and for new keys."""
    sasl_oauthbearer_expected_issuer: Annotated[str, Kafka("sasl.oauthbearer.expected.issuer")] = ""
    """The claim `iss` that access tokens must have; empty: any."""
    sasl_oauthbearer_expected_audience: Annotated[
        tuple[str, ...], Kafka("sasl.oauthbearer.expected.audience")
    ] = ()
    """Audiences, one of which must be in the claim `aud` of access tokens; none: any."""
    sasl_oauthbearer_sub_claim_name: Annotated[
        str, Meta(min_length=1), Kafka("sasl.oauthbearer.sub.claim.name")
    ] = "sub"
    """The claim of access tokens that names the user."""
    sasl_oauthbearer_clock_skew_seconds: Annotated[
        int, Meta(ge=0, le=3_600), Kafka("sasl.oauthbearer.clock.skew.seconds")
    ] = 30
    """By how much the clock of who issues access tokens may be ahead of the broker's."""
    sasl_oauthbearer_unsecured: bool = False
    """Accept tokens that nobody has signed, with OAUTHBEARER: only where everybody is trusted."""

    @property
    def is_protected(self) -> bool:
        """Return whether clients need TLS or a login."""
        return bool(self.ssl_certificate_file or self.sasl_enabled_mechanisms)

    @property
    def has_logins(self) -> bool:
        """Return whether every client has to say who it is, and to prove it."""
        return bool(self.sasl_enabled_mechanisms) or self.ssl_client_auth == "required"

    @property
    def security_protocol(self) -> str:
        """Return what clients set as `security.protocol`."""
        encrypted = "SSL" if self.ssl_certificate_file else "PLAINTEXT"
        return f"SASL_{encrypted}" if self.sasl_enabled_mechanisms else encrypted


KAFKA_BROKERS_MAX = 1_000
"""Maximum number of brokers in `KafkaConfig.brokers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """A broker: common/BrokerConfig.java."""

    name: Annotated[str, RocketMQ("brokerName")] = "broker-a"
    """Name of the broker, unique in the cluster, which identifies its queues."""
    cluster: Annotated[str, RocketMQ("brokerClusterName")] = "DefaultCluster"
    """The cluster under which nameservers list the broker."""
    address: str = "127.0.0.1:10911"
    """Address advertised to clients; default: the address listened on."""
    address_translation: tuple[str, ...] = ()
    """Pairs `ADVERTISED=REACHED`: connect to the latter, host:port, if a server names the former.

    For brokers that do not reach each other at the addresses that they advertise.
    """
    nameservers: Annotated[tuple[str, ...], RocketMQ("namesrvAddr")] = ()
    """Nameservers to register with, `host:port`; without one only Kafka clients find the broker."""
    vip_channel: bool = False
    """Also listen two ports below the RocketMQ port, as RocketMQ's brokers do (fastListenPort).

    RocketMQ clients of 4.x connect there if com.rocketmq.sendMessageWithVIPChannel is true, the
    default up to 4.4.
    """
    users_file: str = ""
    """TOML file with users to create at the start if they never existed.

    A table for each, `[NAME]`, with `password`, or with a credential by the name of a mechanism, as
    kafka-storage.sh and our `steelyard admin user` write it. All users are on every broker's disk,
    as salted keys; clients of the Kafka listener log in as them.
    """
    acl_file: str = ""
    """YAML file with accounts, as RocketMQ's plain_acl.yml; RocketMQ clients must sign requests.

    It says what each account may do, and from where clients need none (RocketMQ: aclEnable).
    Reloaded within a second when it changes. All brokers and nameservers need the same.
    """
    acl_access_key: str = ""
    """The accessKey of the account, an administrator's, with which this broker signs its requests.

    They go to nameservers and other brokers (RocketMQ: innerClientAuthenticationCredentials).
    """
    flush: FlushMode = "async"
    """When a send is acknowledged: async: the kernel has the message.

    Sync: the disk has it (flushDiskType).
    """
    auto_create_topics: Annotated[bool, RocketMQ("autoCreateTopicEnable")] = True
    """Create a topic when a producer requests its route or sends to it."""
    default_queues: Annotated[int, RocketMQ("defaultTopicQueueNums")] = 8
    """Queues of TBW102, which determine the number of queues of automatically created topics."""
    register_interval_ms: Annotated[int, RocketMQ("registerNameServerPeriod")] = 30_000
    """Interval of the registration with nameservers."""
    nameserver_timeout_ms: Annotated[int, RocketMQ("registerBrokerTimeoutMills")] = 6_000
    """Time-out of requests to nameservers (RocketMQ: 24 s in 5.x, 6 s in 4.x)."""
    client_expiry_ms: Annotated[int, RocketMQ("channelExpiredTimeout")] = 120_000
    """Time without heartbeat after which a client is removed from its groups."""
    client_scan_interval_ms: int = 10_000
    """Interval of the search for such clients (ClientHousekeepingService)."""
    hold_max_ms: int = 30_000
    """Maximum time of a long poll; clients request 15 s."""
    hold_waiting_max: int = 100_000
    """Maximum number of waiting pulls.

    pullRequestHoldService has no limit of its own; the queue of its thread pool has this one.
    """
    pull_messages_max: int = 8_192
    """Maximum messages in a pull reply.

    RocketMQ returns at most 32; a client that requests 32 gets 32 here too.
    """
    pull_bytes_max: int = 1024 * 1024
    """Maximum bytes in a pull reply, but always one message.

    RocketMQ: 256 KiB from memory, 64 KiB from disk.
    """
    lock_expiry_ms: int = 60_000
    """Time without renewal after which a queue's lock expires.

    RocketMQ: rocketmq.broker.rebalance.lockMaxLiveTime.
    """
    property_filter: Annotated[bool, RocketMQ("enablePropertyFilter")] = True
    """Allow filters by SQL92 conditions (off in RocketMQ)."""
    transaction_timeout_ms: Annotated[int, RocketMQ("transactionTimeOut")] = 6_000
    """Age at which an open transaction is first checked."""
    transaction_check_interval_ms: Annotated[int, RocketMQ("transactionCheckInterval")] = 30_000
    """Interval of further checks (RocketMQ: 30 s in 5.x, 60 s in 4.9)."""
    transaction_check_max: Annotated[int, RocketMQ("transactionCheckMax")] = 15
    """Number of checks after which a transaction is given up."""
    transactions_max: int = 200_000
    """Maximum open transactions; further ones are refused (RocketMQ has no limit)."""
    timer_max_delay_sec: Annotated[PositiveInt32, RocketMQ("timerMaxDelaySec")] = 3 * 24 * 3600
    """How far ahead a message may be delayed to the millisecond; more is refused."""
    store_replies: Annotated[bool, RocketMQ("storeReplyMessageEnable")] = True
    """Also store the replies of request-reply in their topic."""
    batch_messages_max: int = 200_000
    """Maximum messages in a batch.

    RocketMQ has no such limit: not more than this fit into its 4 MiB of a batch, at 22 bytes or
    more each.
    """
    delayed_answers: bool = True
    """Delay answers to members of groups where that makes a rebalance cheaper.

    False: answer when Apache's brokers do.
    """
    ledger: bool = True
    """Write the rebalance ledger."""
    ledger_interval_ms: int = 1_000
    """Time for which deliveries and commits are collected before they are written to the ledger."""
    max_connections: int = 0x7FFFFFFF
    """Maximum number of connections to the RocketMQ listener; also limited by the open files.

    The Kafka listener has its own setting; the limit of open files applies to both together.
    RocketMQ has no such setting; name and default are Kafka's.
    """
    max_connections_per_ip: int = 0x7FFFFFFF
    """Maximum number of connections from one IP address."""
    tls: TlsConfig = TlsConfig()
    """TLS at its RocketMQ port."""
    tls_client: TlsClientConfig = TlsClientConfig()
    """TLS of its connections to nameservers and to other brokers' RocketMQ ports."""
    store: StoreConfig = StoreConfig()
    """Settings of its log."""
    kafka: KafkaConfig | None = None
    """Settings of the Kafka listener; None for none."""

    @property
    def has_logins(self) -> bool:
        """Return whether every client of the RocketMQ port has to prove who it is."""
        return bool(self.acl_file) or self.tls.needs_certificates


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """The HTTP server beside a cluster: `/metrics`, `/healthz`, `/readyz`, and the console."""

    nameservers: tuple[str, ...] = ()
    """Nameservers of the cluster, `host:port`."""
    brokers: tuple[str, ...] = ()
    """Names of brokers that must answer before the cluster is ready, besides those that register.

    `steelyard up` gives the names of all its brokers.
    """
    address_translation: tuple[str, ...] = ()
    """Pairs `ADVERTISED=REACHED`: connect to the latter, host:port, if a server names the former.

    For a server that does not reach brokers at the addresses that they advertise.
    """
    kafka_ca_file: str = ""
    """PEM file; with it the console reaches Kafka listeners over TLS.

    It has the certificates of those who may sign the listeners' certificates.
    """
    timeout_ms: Annotated[int, Meta(ge=1, le=60_000)] = 3_000
    """How long a scrape waits for a broker; one that is slower has `steelyard_broker_up 0`.

    Prometheus waits 10 s by default.
    """
    fresh_ms: int = 500
    """Age up to which what brokers answered before is used again, however many scrape."""
    queue_series_max: PositiveInt32 = 20_000
    """Maximum of queues with series of their own, of all brokers together.

    What is beyond, and beyond the next two, is counted in `steelyard_series_left_out`.
    """
    group_series_max: PositiveInt32 = 20_000
    """The same for pairs of a group and a queue or partition."""
    rebalance_settle_ms: int = 30_000
    """Age at which a rebalance is counted, so that it is clear what triggered it and what moved."""
    rebalance_groups_max: PositiveInt32 = 500
    """Maximum of groups with series about rebalances; those of all others are added up."""
    console: bool = True
    """Serve the console and its API, too. They show messages: see docs/CONSOLE.md, Security."""
    allow_changes: bool = False
    """Let the console change the cluster: reset offsets, create and delete topics."""
    hosts: tuple[str, ...] = ()
    """Host names under which browsers may reach the console, besides IP addresses and localhost."""
    console_history_ms: Annotated[int, Meta(ge=0, le=7 * 86_400_000)] = 3_600_000
    """How far back the console reads the ledger for its history when it starts.

    An hour of a busy cluster takes some seconds to read.
    """
    tls_client: TlsClientConfig = TlsClientConfig()
    """TLS of its connections to nameservers and to brokers' RocketMQ ports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Common settings of producers and consumers: client/ClientConfig.java."""

    nameservers: tuple[str, ...] = ()
    """Nameservers to ask for routes in turn, `host:port`."""
    group: str = ""
    """The group of which the client is a member."""
    client_id: str = ""
    """Id of the client, `ip@instance`, unique in the group."""
    route_poll_ms: int = 30_000
    """Interval at which routes are requested from the nameservers (pollNameServerInterval)."""
    heartbeat_interval_ms: int = 30_000
    """Interval of heartbeats to brokers (heartbeatBrokerInterval)."""
    call_timeout_ms: int = 3_000
    """Time-out of requests that have none of their own (mqClientApiTimeout)."""
    address_translation: tuple[str, ...] = ()
    """Pairs `ADVERTISED=REACHED`: connect to the latter, host:port, if a server names the former.

    For clients that do not reach brokers at the addresses that they advertise, such as behind
    forwarded ports.
    """
    access_key: str = ""
    """Key with which every request is signed (acl/common/AclClientRPCHook.java); empty: unsigned.
    """
    secret_key: str = field(default="", repr=False)
    """The secret for `access_key`; never sent or printed."""
    security_token: str = field(default="", repr=False)
    """The token of temporary credentials; optional."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """A producer: client/producer/DefaultMQProducer.java."""

    send_timeout_ms: int = 3_000
    """Time-out of a send including all attempts (sendMsgTimeout)."""
    retries: int = 2
    """Attempts after the first one (retryTimesWhenSendFailed)."""
    default_topic: str = "TBW102"
    """The topic whose route is used for a topic that does not exist yet (createTopicKey)."""
    default_topic_queues: int = 4
    """Queues of a topic created that way (defaultTopicQueueNums)."""
    message_bytes_max: int = 4 * 1024 * 1024
    """Largest body (maxMessageSize)."""
    compress_above_bytes: int = 4096
    """Size above which bodies are compressed; 0: never (compressMsgBodyOverHowmuch)."""
    compress_type: Compression = "zlib"
    """Compression: `zlib`, `lz4` or `zstd` (rocketmq.message.compressType).

    Consumers older than 5.0 can read `zlib` only.
    """
    compress_level: Annotated[int, Meta(ge=0, le=9)] = 5
    """Compression level, 0 to 9, for zlib and zstd (rocketmq.message.compressLevel)."""
    in_flight_max: int = 10_000
    """Maximum sends in flight; further ones raise a RemotingError."""
    in_flight_bytes_max: int = 100 * 1024 * 1024
    """Maximum bytes of bodies in flight, as sent; further sends raise a RemotingError.

    RocketMQ: backPressureForAsyncSendSize.
    """
    retry_another_broker: bool = False
    """Also retry on another broker if one stored but did not flush or replicate in time.

    RocketMQ: retryAnotherBrokerWhenNotStoreOK.
    """
    retry_codes: Literal["4.x", "5.x"] = "5.x"
    """The error codes retried on another broker, as in `4.x` or `5.x` (retryResponseCodes).

    5.x also retries SYSTEM_BUSY (2) and GO_AWAY (1500).
    """
    auto_batch: bool = False
    """Send messages that are sent at about the same time in batches (autoBatch).

    It pays where many small messages are sent at once; a single send waits for longer.
    """
    batch_max_delay_ms: Int32 = 10
    """Maximum wait of a message for others (batchMaxDelayMs); 0: only for those sent with it."""
    batch_max_bytes: Annotated[int, Meta(ge=1, le=4 * 1024 * 1024)] = 32 * 1024
    """Size at which a batch is sent without waiting (batchMaxBytes)."""
    total_batch_max_bytes: Positive = 32 * 1024 * 1024
    """Maximum size of all messages that wait; further ones are sent alone (totalBatchMaxBytes)."""
    latency_faults: LatencyFaults = "off"
    """Avoid slow and failed brokers by the table of `4.x` or `5.x`; `off`: do not.

    RocketMQ: sendLatencyFaultEnable.

    Source: MQFaultStrategy.java.
    """
    detect: bool = False
    """Probe avoided brokers to find out whether they are reachable again (startDetectorEnable)."""
    detect_interval_ms: int = 2_000
    """Interval of the probes (detectInterval)."""
    detect_timeout_ms: int = 200
    """Time-out of a probe (detectTimeout)."""
    checks: bool = False
    """Whether this producer can check transactions; set by clients that have a transaction_check.
    """
    checks_max: int = 2_000
    """Maximum transaction checks waiting for the application; brokers repeat further ones.

    RocketMQ: checkRequestHoldMax.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """A push consumer: client/consumer/DefaultMQPushConsumer.java."""

    subscriptions: tuple[Subscription, ...] = ()
    """Subscriptions by topic; `subscribe` adds to them."""
    message_model: MessageModel = MessageModel.CLUSTERING
    """CLUSTERING: each message goes to one member; BROADCASTING: every member reads everything."""
    orderly: bool = False
    """Consume each queue in order, under a lock held at the broker (MessageListenerOrderly)."""
    consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET
    """Where a group without committed offsets begins: FIRST_OFFSET, LAST_OFFSET or TIMESTAMP."""
    consume_timestamp: int = 0
    """The time for ConsumeFrom.TIMESTAMP, in ms since the epoch."""
    consume_offset: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = -1
    """Offset at which each queue begins, instead of `consume_from`; -1: none.

    If a queue does not have it, the nearest offset is used.
    """
    consume_strictly: bool = False
    """Apply `consume_from` also to queues from which no message has been deleted yet.

    By default brokers let a new group read these from their beginning (setZeroIfNotFound); old 4.x
    brokers always do.
    """
    strategy: str = "AVG"
    """Allocation strategy: AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, EVEN, or MACHINE_ROOM_NEARBY-…

    MACHINE_ROOM_NEARBY- is followed by one of the first three. Strategies that need arguments are
    passed as `allocate=`.
    """
    rebalance_interval_ms: int = 20_000
    """Interval of rebalances without a trigger (rocketmq.client.rebalance.waitInterval)."""
    rebalance_retry_ms: int = 1_000
    """The same while something is missing (rocketmq.client.rebalance.minInterval)."""
    clean_handover: bool = True
    """Hand over queues without duplicates between members that have this setting.

    The old owner finishes what its listener holds, commits and unlocks the queue; the new owner
    starts when it has the lock. Off: RocketMQ's behaviour, with duplicates.
    """
    drain_timeout_ms: int = 5_000
    """Time that a queue being given up waits for its listener; unfinished messages are redelivered.
    """
    takeover_timeout_ms: int = 10_000
    """Time that a new owner of a concurrent queue waits for its lock before starting without it.

    At least as long as `drain_timeout_ms` gives the old owner, and, after the topic's route has
    changed, as `route_poll_ms`: the old owner may not know of the change.
    """
    lock_renew_ms: int = 20_000
    """Interval at which locks of queues are renewed (rocketmq.client.rebalance.lockInterval)."""
    lock_life_ms: int = 30_000
    """Time after which a lock that was not renewed is no longer trusted.

    RocketMQ: rocketmq.client.rebalance.lockMaxLiveTime.
    """
    commit_interval_ms: int = 5_000
    """Interval at which consumed offsets are committed (persistConsumerOffsetInterval)."""
    pull_batch: int = 32
    """Maximum messages of a pull (pullBatchSize)."""
    pull_hold_ms: int = 15_000
    """Time for which a broker may wait for messages (brokerSuspendMaxTimeMillis)."""
    pull_timeout_ms: int = 30_000
    """Time-out of such a pull (consumerTimeoutMillisWhenSuspend)."""
    pull_retry_ms: int = 1_000
    """Wait after a failed pull (pullTimeDelayMillsWhenException: 3 s in 4.9, 1 s in 5.x)."""
    pull_idle_max_ms: int = 120_000
    """Time without pull after which a held queue is dropped and acquired again.

    RocketMQ: rocketmq.client.pull.pullMaxIdleTime.
    """
    consume_batch: int = 1
    """Maximum messages per call of the listener (consumeMessageBatchMaxSize)."""
    consume_threads: int = 20
    """Maximum concurrent listeners (consumeThreadMax).

    Set and enforced by the clients; here it is reported to operators.
    """
    handed_max: int = 80
    """Maximum batches with the listeners; set by clients to a small multiple of their threads.

    Further batches wait in the node, which can take them back when a queue is given up. RocketMQ:
    consumeThreadMax is 20.
    """
    queue_messages_max: int = 1_000
    """Maximum prefetched messages per queue (pullThresholdForQueue)."""
    queue_bytes_max: int = 100 * 1024 * 1024
    """Maximum prefetched bytes per queue (pullThresholdSizeForQueue)."""
    queue_span_max: int = 2_000
    """Maximum distance between the prefetched offsets of a queue (consumeConcurrentlyMaxSpan)."""
    flow_retry_ms: int = 50
    """Wait before the next check when a limit above is reached.

    RocketMQ: PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL.
    """
    stop_timeout_ms: int = 5_000
    """Time for which a clean stop waits for listeners to finish.

    RocketMQ: awaitTerminationMillisWhenShutdown, 0.
    """
    retry_max: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1
    """Maximum deliveries of a failed message before it goes to the dead-letter topic.

    -1 means 16, or unlimited for an orderly consumer. RocketMQ: maxReconsumeTimes.
    """
    suspend_ms: int = 1_000
    """Time for which an orderly queue is suspended after a failure, from 10 ms to 30 s.

    RocketMQ: suspendCurrentQueueTimeMillis.
    """
    consume_timeout_ms: int = 15 * 60 * 1000
    """Time after which a message that its listener still holds is sent back.

    So its queue can continue.

    Not for orderly consumers. RocketMQ: consumeTimeout.
    """
    topic_messages_max: int = 0
    """Maximum prefetched messages per topic, shared by its queues; 0: none (pullThresholdForTopic).
    """
    topic_bytes_max: int = 0
    """Maximum prefetched bytes per topic; 0: none (pullThresholdSizeForTopic)."""
    hooks: bool = False
    """Call the application's hooks for assigned, revoked and lost queues; set by the clients."""
    queue_changes: bool = False
    """Call the application for each change of a topic's queues (MessageQueueListener).

    Set by the clients.
    """
    offsets_folder: str = ""
    """Folder of a broadcasting consumer's offsets.

    Default: `.rocketmq_offsets` in the home directory.

    RocketMQ: rocketmq.client.localOffsetStoreDir.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullConfig(ConsumerConfig):
    """A consumer that polls: client/consumer/DefaultLitePullConsumer.java.

    There `commit_interval_ms` is autoCommitIntervalMillis, `queue_span_max` consumeMaxSpan, and
    `route_poll_ms` topicMetadataCheckIntervalMillis.
    """

    auto_commit: bool = True
    """Commit polled messages once the next poll has begun; off: only when the application commits.
    """
    poll_timeout_ms: int = 5_000
    """Time for which a poll waits for messages (pollTimeoutMillis)."""
    pull_batch: int = 10
    """Maximum messages of a pull, and by default of a poll (pullBatchSize)."""
    pull_hold_ms: int = 20_000
    """Time for which a broker may wait for messages (brokerSuspendMaxTimeMillis)."""
    messages_max: int = 10_000
    """Maximum prefetched messages, shared by the queues (pullThresholdForAll)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConsumerConfig:
    """A Kafka consumer; names and defaults are those of clients/consumer/ConsumerConfig.java."""

    bootstrap_servers: tuple[str, ...] = ()
    """Brokers to contact first, `host:port`; they return the others."""
    client_id: str = "steelyard"
    """Name of the consumer in the brokers' logs and quotas; need not be unique."""
    address_translation: tuple[str, ...] = ()
    """Pairs `ADVERTISED=REACHED`: connect to the latter, host:port, if a server names the former.

    For clients that do not reach brokers at the addresses that they advertise, such as behind
    forwarded ports.
    """
    group_id: str = ""
    """The consumer's group.

    Empty: none, so that only `assign` can be used and nothing is committed.
    """
    group_instance_id: str = ""
    """Id of a static member, which keeps its partitions if it restarts in time.

    That is within a session time-out.
    """
    client_rack: str = ""
    """Rack of the consumer, for assignors that use it."""
    group_protocol: Literal["classic", "consumer"] = "classic"
    """Protocol of the group: `classic`, or `consumer` (KIP-848), in which its coordinator assigns.

    With `consumer` the brokers decide about sessions and heartbeats; Apache's need Kafka 4.0.
    """
    group_remote_assignor: str = ""
    """With `group_protocol` consumer, the coordinator's assignor: `uniform`, `range`, or any.

    Others are those of the brokers' `group.consumer.assignors`. Empty: the brokers' default.
    """
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """Supported assignors, in order of preference (partition.assignment.strategy)."""
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    """Where to begin without a committed offset: `earliest`, `latest`, or `none` to fail."""
    enable_auto_commit: bool = True
    """Commit automatically what polls have returned."""
    auto_commit_interval_ms: Int32 = 5_000
    """Interval of automatic commits."""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """`read_committed`: records of open and aborted transactions are not returned."""
    session_timeout_ms: Int32 = 45_000
    """Time without heartbeat after which a member is removed from the group."""
    heartbeat_interval_ms: PositiveInt32 = 3_000
    """Interval of heartbeats to the coordinator; at most a third of the session time-out."""
    max_poll_interval_ms: PositiveInt32 = 300_000
    """Time without poll after which a member leaves its group.

    A rebalance waits for it as long.
    """
    max_poll_records: PositiveInt32 = 500
    """Maximum records that a poll returns."""
    fetch_min_bytes: Int32 = 1
    """Bytes for which a broker waits, up to `fetch_max_wait_ms`, to answer a fetch.
    """
    fetch_max_bytes: Int32 = 50 * 1024 * 1024
    """Maximum bytes of a fetch from a broker, but always one batch.

    Kept until polls have returned it.
    """
    fetch_max_wait_ms: Int32 = 500
    """Time for which a broker may wait for `fetch_min_bytes`."""
    max_partition_fetch_bytes: Int32 = 1024 * 1024
    """Maximum bytes of one partition in a fetch, but always one batch."""
    check_crcs: bool = True
    """Verify the checksum of every batch."""
    metadata_max_age_ms: Int32 = 300_000
    """Age after which partitions and their leaders are requested again."""
    security_protocol: Literal["", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = ""
    """PLAINTEXT, SSL (TLS), SASL_PLAINTEXT (with a login) or SASL_SSL (both).

    Empty: what `tls` and `sasl_mechanism` come to.
    """
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = ""
    """How to log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; empty: not at all."""
    sasl_username: str = ""
    """User to log in as."""
    sasl_password: str = field(default="", repr=False)
    """The user's password; never printed."""
    allow_auto_create_topics: bool = True
    """Let the broker create subscribed topics that do not exist, if it is configured to."""
    request_timeout_ms: Int32 = 30_000
    """Time-out of a single request."""
    default_api_timeout_ms: Int32 = 60_000
    """Time for which a call that needs a broker is retried."""
    retry_backoff_ms: Int32 = 100
    """Wait before a request is retried; it doubles each time."""
    retry_backoff_max_ms: Int32 = 1_000
    """Maximum wait before a retry."""


def check(config: object) -> None:
    """Raise ConfigError for a setting with a wrong type or value, or an invalid combination."""
    for name, kind in kinds_of(config.__class__).items():
        kind.take(name, getattr(config, name))
    if isinstance(config, ClientConfig | KafkaConsumerConfig | BrokerConfig | HttpConfig):
        translation(config.address_translation)
    if isinstance(config, ClientConfig) and bool(config.access_key) != bool(config.secret_key):
        given, missing = ("access", "secret") if config.access_key else ("secret", "access")
        raise ConfigError(f"{given}_key is given without {missing}_key; give both, or neither")
    if isinstance(config, ProducerConfig):
        _check_producer(config)
    if isinstance(config, KafkaConsumerConfig):
        _check_kafka_consumer(config)
    if isinstance(config, BrokerConfig | NameserverConfig):
        _check_tls(config.tls)
    if isinstance(config, BrokerConfig) and bool(config.acl_file) != bool(config.acl_access_key):
        raise ConfigError(
            "acl_file and acl_access_key belong together: the file has the accounts, the other one"
            " says with which of them the broker signs its own requests"
        )
    if isinstance(config, BrokerConfig | HttpConfig):
        _check_tls_client(config.tls_client)
    if isinstance(config, BrokerConfig) and config.kafka is not None:
        _check_kafka_broker(config, config.kafka)


def translation(pairs: Sequence[str]) -> dict[str, str]:
    """Return what is reached in place of what is advertised (`address_translation`).

    Raises ConfigError.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        addresses = pair.split("=")
        if len(addresses) != 2 or not all(map(is_address, addresses)):
            raise ConfigError(
                f"address_translation has {pair!r}; expected ADVERTISED=REACHED, both HOST:PORT"
            )
        found[addresses[0]] = addresses[1]
    return found


def _check_tls(tls: TlsConfig) -> None:
    auth = tls.server_need_client_auth
    if not tls.server_cert_file:
        for name in ("server_key_file", "server_trust_file"):
            if getattr(tls, name):
                raise ConfigError(f"tls.{name} is given without tls.server_cert_file")
        if tls.server_mode == "enforcing":
            raise ConfigError(
                "tls.server_mode is 'enforcing' without tls.server_cert_file: there is no TLS"
                " without a certificate"
            )
        if auth != "none":
            raise ConfigError(
                f"tls.server_need_client_auth is {auth!r} without tls.server_cert_file: only TLS"
                " connections have certificates"
            )
    elif auth != "none" and not tls.server_trust_file:
        raise ConfigError(
            f"tls.server_need_client_auth is {auth!r}; give tls.server_trust_file with the"
            " certificates of those who may sign clients' certificates"
        )


def _check_tls_client(tls: TlsClientConfig) -> None:
    if tls.key_file and not tls.cert_file:
        raise ConfigError("tls_client.key_file is given without tls_client.cert_file")
    if tls.cert_file and not tls.trust_file:
        raise ConfigError(
            "tls_client.cert_file is given without tls_client.trust_file, with which connections"
            " use TLS"
        )


def _check_kafka_broker(config: BrokerConfig, kafka: KafkaConfig) -> None:
    if "," in config.name:
        raise ConfigError(
            f"name is {config.name!r}; with a Kafka listener it must not contain a comma"
        )
    _check_encryption(kafka)
    _check_access(kafka)
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
            f"the list of brokers is {named}; brokers find each other through a nameserver: give"
            " its address as well"
        )


def _check_encryption(kafka: KafkaConfig) -> None:
    _check_tokens(kafka)
    if not kafka.ssl_certificate_file:
        for name in ("ssl_key_file", "ssl_client_ca_file"):
            if getattr(kafka, name):
                raise ConfigError(f"kafka.{name} is given without kafka.ssl_certificate_file")
        if kafka.ssl_client_auth != "none":
            raise ConfigError(
                f"kafka.ssl_client_auth is {kafka.ssl_client_auth!r} without"
                " kafka.ssl_certificate_file: only TLS connections have certificates"
            )
    elif kafka.ssl_client_auth != "none" and not kafka.ssl_client_ca_file:
        raise ConfigError(
            f"kafka.ssl_client_auth is {kafka.ssl_client_auth!r}; give kafka.ssl_client_ca_file"
            " with the certificates of those who may sign clients' certificates"
        )


def _check_tokens(kafka: KafkaConfig) -> None:
    url, unsecured = kafka.sasl_oauthbearer_jwks_endpoint_url, kafka.sasl_oauthbearer_unsecured
    if "OAUTHBEARER" not in kafka.sasl_enabled_mechanisms:
        if url:
            raise ConfigError(
                "kafka.sasl_oauthbearer_jwks_endpoint_url is given, but OAUTHBEARER is not among"
                " kafka.sasl_enabled_mechanisms"
            )
        return
    if bool(url) == unsecured:
        raise ConfigError(
            "kafka.sasl_enabled_mechanisms has OAUTHBEARER: give the key set that verifies tokens"
            " with kafka.sasl_oauthbearer_jwks_endpoint_url, or, if everybody may be trusted and"
            " tokens need no signature, set kafka.sasl_oauthbearer_unsecured=true; not both"
        )
    scheme, _, rest = url.partition("://")
    if rest and scheme not in ("file", "http", "https"):
        raise ConfigError(
            f"kafka.sasl_oauthbearer_jwks_endpoint_url is {url[:100]!r}; expected the path of a"
            " file, or a URL with https, http or file"
        )


def _check_access(kafka: KafkaConfig) -> None:
    if kafka.authorizer == "none":
        for name in ("super_users", "allow_everyone_if_no_acl_found"):
            if getattr(kafka, name):
                raise ConfigError(f"kafka.{name} is given without kafka.authorizer = 'acl'")
    for user in kafka.super_users:
        kind, _, name = user.partition(":")
        if not (kind and name):
            raise ConfigError(f"kafka.super_users has {user!r}; write 'User:' and a name")


def _check_producer(config: ProducerConfig) -> None:
    if config.detect and config.latency_faults != "5.x":
        raise ConfigError("detect requires latency_faults='5.x'")
    if config.detect and config.detect_interval_ms < 1:
        raise ConfigError("detect_interval_ms is 0; it must be 1 or more")


_CLASSIC_ONLY = ("assignors", "session_timeout_ms", "heartbeat_interval_ms")
"""Settings of a Kafka consumer that have no effect with group_protocol='consumer'.

Source: ConsumerConfig.java (checkUnsupportedConfigsPostProcess).
"""


def _check_login(config: KafkaConsumerConfig) -> None:
    protocol, mechanism = config.security_protocol, config.sasl_mechanism
    if not mechanism:
        if protocol.startswith("SASL_"):
            raise ConfigError(f"security_protocol is {protocol!r}; give sasl_mechanism as well")
        if config.sasl_username or config.sasl_password:
            raise ConfigError("sasl_username or sasl_password is given without sasl_mechanism")
    elif protocol and not protocol.startswith("SASL_"):
        raise ConfigError(
            f"sasl_mechanism is given, but security_protocol is {protocol!r}; expected"
            " 'SASL_PLAINTEXT' or 'SASL_SSL'"
        )


def _check_kafka_consumer(config: KafkaConsumerConfig) -> None:
    _check_group_protocol(config)
    _check_login(config)
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        raise ConfigError(
            "heartbeat_interval_ms must be less than session_timeout_ms, preferably at most a"
            " third of it"
        )
    if not config.assignors:
        raise ConfigError("no assignors; give at least one, such as 'range'")
    if not config.bootstrap_servers:
        raise ConfigError("no bootstrap_servers; give 'host:port'")


def _check_group_protocol(config: KafkaConsumerConfig) -> None:
    if config.group_protocol == "classic":
        if config.group_remote_assignor:
            raise ConfigError(
                "group_remote_assignor requires group_protocol='consumer'; in a classic group the"
                " members assign: give assignors"
            )
        return
    default = KafkaConsumerConfig()
    given = [name for name in _CLASSIC_ONLY if getattr(config, name) != getattr(default, name)]
    if given:
        verb = "does" if len(given) == 1 else "do"
        raise ConfigError(
            f"{', '.join(given)} {verb} not apply with group_protocol='consumer': the brokers'"
            " settings count, and group_remote_assignor"
        )
