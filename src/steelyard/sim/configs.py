"""The settings of a scenario's nodes, and what operators have told its brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steelyard.addresses import BROKER_PORT, KAFKA_PORT
from steelyard.config import (
    BrokerConfig,
    ClientConfig,
    ConsumerConfig,
    KafkaConfig,
    ProducerConfig,
    StoreConfig,
)
from steelyard.nodes.broker.acl_users import AclUserStore
from steelyard.nodes.broker.dynamic_configs import GROUP as GROUP_CONFIGS
from steelyard.nodes.broker.dynamic_configs import DynamicConfigs
from steelyard.nodes.broker.kafka.cluster.group_settings import OFFSET_RESET
from steelyard.nodes.broker.kafka.cluster.offset_reset import EARLIEST
from steelyard.nodes.broker.quotas import CLIENT_ID, CONSUMER_BYTE_RATE, QuotaStore
from steelyard.nodes.seam import Address
from steelyard.sim.kafka.shares.leaders import SHARE_GROUP
from steelyard.sim.scenario import Scenario
from steelyard.sim.seats import Seat
from steelyard.sim.strangers import CLIENT, MEMBER, OPERATOR
from steelyard.sim.table import COMPACTION_INTERVAL_MS
from steelyard.store.store import Store
from steelyard.types import ConsumeFrom, Subscription

GROUP = "group"
HEARTBEAT_MS_MAX = 5_000
"""Interval of heartbeats in KIP-848 groups, unless a third of the session is shorter."""
EVERY_CLIENT = ((CLIENT_ID, None),)
"""The entity of a quota that each client id has."""


def broker_config(
    scenario: Scenario, seat: Seat, brokers: Sequence[Seat], nameservers: tuple[Address, ...]
) -> BrokerConfig:
    """Return the settings of one of these brokers."""
    return BrokerConfig(
        name=seat.name,
        address=f"{seat.host.ip}:{BROKER_PORT}",
        nameservers=nameservers,
        flush=scenario.flush,
        default_queues=scenario.queues,
        pull_bytes_max=scenario.pull_bytes_max,
        hold_waiting_max=scenario.hold_waiting_max,
        delayed_answers=scenario.delayed_answers,
        store=StoreConfig(
            segment_bytes=scenario.segment_bytes,
            index_flush_rows=scenario.index_flush_rows,
            disk_full_ratio=0.9 if scenario.disk_watermark else 1.0,
            compaction_interval_ms=COMPACTION_INTERVAL_MS if scenario.table_keys else 0,
        ),
        acl_access_key=OPERATOR.access_key if scenario.accounts else "",
        kafka=_kafka_config(scenario, seat, brokers) if scenario.has_kafka else None,
    )


def _kafka_config(scenario: Scenario, seat: Seat, brokers: Sequence[Seat]) -> KafkaConfig:
    session_ms = scenario.kafka_session_timeout_ms
    return KafkaConfig(
        address=f"{seat.host.ip}:{KAFKA_PORT}",
        node_id=1 + brokers.index(seat),
        brokers=tuple(broker.name for broker in brokers),
        group_flapping_delay_max_ms=scenario.flapping_delay_max_ms,
        group_consumer_session_timeout_ms=session_ms,
        group_consumer_heartbeat_interval_ms=min(HEARTBEAT_MS_MAX, session_ms // 3),
        group_streams_session_timeout_ms=session_ms,
        group_streams_heartbeat_interval_ms=min(HEARTBEAT_MS_MAX, session_ms // 3),
        group_streams_num_standby_replicas=scenario.streams_standbys,
        group_share_session_timeout_ms=session_ms,
        group_share_heartbeat_interval_ms=min(HEARTBEAT_MS_MAX, session_ms // 3),
        group_share_record_lock_duration_ms=scenario.share_lock_ms,
        group_share_delivery_count_limit=scenario.share_deliveries_max,
    )


def prepare(scenario: Scenario, store: Store) -> None:
    """Give a broker's store what operators would have told it, unless it has that."""
    if scenario.accounts:
        users = AclUserStore(store.table("acl_users"))
        if users.get(MEMBER.name) is None:
            users.put(MEMBER)
    if scenario.kafka_byte_rate:
        quotas = QuotaStore(store.table("quotas"))
        if not len(quotas):
            rates = {CONSUMER_BYTE_RATE: float(scenario.kafka_byte_rate)}
            quotas.merge([quotas.changed(EVERY_CLIENT, rates)])
    if scenario.share_members:
        configs = DynamicConfigs(store.table("configs"))
        if not configs.of(GROUP_CONFIGS, SHARE_GROUP):
            reset = {OFFSET_RESET: EARLIEST}
            configs.merge([configs.changed(GROUP_CONFIGS, SHARE_GROUP, reset)])


def operator_config(scenario: Scenario) -> ClientConfig:
    """Return the settings of the operator."""
    return ClientConfig(**_signing(scenario, OPERATOR.access_key, OPERATOR.secret.decode()))


def producer_config(
    scenario: Scenario, seat: Seat, nameservers: tuple[Address, ...]
) -> ProducerConfig:
    """Return the settings of the next run of a producer."""
    return ProducerConfig(
        nameservers=nameservers,
        group="publishers",
        client_id=f"{seat.host.ip}@{seat.identity}",
        default_topic_queues=scenario.queues,
        checks=scenario.transactions_of_100 > 0,
        **_signing(scenario, CLIENT.access_key, CLIENT.secret.decode()),
    )


def consumer_config(
    scenario: Scenario, seat: Seat, nameservers: tuple[Address, ...], topics: Sequence[str]
) -> ConsumerConfig:
    """Return the settings of the next run of a member of the RocketMQ group."""
    return ConsumerConfig(
        nameservers=nameservers,
        group=GROUP,
        client_id=f"{seat.host.ip}@{seat.identity}",
        subscriptions=tuple(Subscription(topic, scenario.tags) for topic in topics),
        consume_from=ConsumeFrom.FIRST_OFFSET,
        strategy=scenario.strategy,
        consume_batch=scenario.consume_batch,
        pull_batch=scenario.pull_batch,
        queue_messages_max=scenario.queue_messages_max,
        orderly=scenario.ordered,
        clean_handover=scenario.clean_handover,
        **_signing(scenario, MEMBER.name, MEMBER.password),
    )


def _signing(scenario: Scenario, access_key: str, secret: str) -> dict[str, Any]:
    """Return the settings of clients that sign, where there are accounts."""
    return {"access_key": access_key, "secret_key": secret} if scenario.accounts else {}
