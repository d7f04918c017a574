"""The parts of a broker that its node and the services of both dialects share.

Each part is created once, with everything that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.groups.remoting.registry import Registry
from steelyard.nodes.access.book import AccountBook
from steelyard.nodes.broker.acl_users import AclUserStore
from steelyard.nodes.broker.acls import AclStore
from steelyard.nodes.broker.backlogs import Backlogs
from steelyard.nodes.broker.damage import DamageReports
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.dynamic_configs import DynamicConfigs
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.ledger import Ledger
from steelyard.nodes.broker.peers.joining import ClusterJoining
from steelyard.nodes.broker.peers.registration import Purpose, Registration
from steelyard.nodes.broker.quotas import QuotaStore
from steelyard.nodes.broker.retention import Retention
from steelyard.nodes.broker.scrubbing import Scrubbing
from steelyard.nodes.broker.statistics import BrokerStatistics
from steelyard.nodes.broker.topics import TopicConfigs
from steelyard.nodes.broker.turns import Turns
from steelyard.nodes.broker.users import User, UserStore
from steelyard.nodes.broker.writer import Watcher, Writer
from steelyard.nodes.calls.remoting import Calls
from steelyard.nodes.pulse import Pulse
from steelyard.sasl.signed_tokens import SignedTokens
from steelyard.store.store import Store
from steelyard.types import Random


class Parts(msgspec.Struct, frozen=True):
    """The shared parts of a broker, created by `make_parts`.

    `calls`: requests to nameservers and other brokers. `faults`: reports of disk faults, except
    those that Kafka's requests and `retention` meet, which have their own. `accounts`: those of
    RocketMQ's clients, with `acl_users`; None: they need none. `secrets`: chance that nobody can
    predict, where the broker runs; `rng` need not be.
    """

    config: BrokerConfig
    store: Store
    rng: Random
    calls: Calls[Purpose]
    turns: Turns
    registry: Registry
    ledger: Ledger
    durability: Durability
    topics: TopicConfigs
    registration: Registration
    joining: ClusterJoining
    retention: Retention
    statistics: BrokerStatistics
    writer: Writer
    faults: Faults
    damage: DamageReports
    scrubbing: Scrubbing
    users: UserStore
    acls: AclStore
    accounts: AccountBook | None
    acl_users: AclUserStore
    tokens: SignedTokens
    quotas: QuotaStore
    configs: DynamicConfigs
    secrets: Random
    pulse: Pulse


def make_parts(
    config: BrokerConfig,
    store: Store,
    rng: Random,
    appended: Watcher,
    now: int,
    *,
    users: Sequence[User] = (),
    accounts: AccountBook | None = None,
    secrets: Random | None = None,
) -> Parts:
    """Create the parts of a broker that starts.

    `appended` is called for every queue that has something new to read. `users`: to create if they
    never were. `secrets`: default: `rng`.
    """

    def end(topic: str, queue_id: int) -> int:
        """Return the offset after the last message of a queue that can be read."""
        log = store.log(topic, queue_id)
        return 0 if log is None else durability.readable_end(log)

    calls: Calls[Purpose] = Calls(signer=None if accounts is None else accounts.sign)
    registry = Registry()
    durability = Durability(sync=config.flush == "sync")
    topics = TopicConfigs(config, store.table("topics"), now)
    acl_users = AclUserStore(store.table("acl_users"))
    if accounts is not None:
        accounts.put_users(config.name, acl_users.all())
    registration = Registration(config, topics, acl_users, calls, durability)
    kafka, configs = config.kafka, DynamicConfigs(store.table("configs"))
    node_id = 0 if kafka is None else kafka.node_id
    retention = Retention(config.store, store, topics, lambda: configs.of_broker(node_id))
    statistics = BrokerStatistics(now)
    faults = Faults()
    return Parts(
        config,
        store,
        rng,
        calls,
        Turns(),
        registry,
        Ledger(config, registry, Backlogs(config.name, end)),
        durability,
        topics,
        registration,
        ClusterJoining(config, calls, registration, now),
        retention,
        statistics,
        Writer(store, durability, retention, statistics, config.address, appended),
        faults,
        DamageReports(store.findings),
        Scrubbing(store, config.store, faults),
        UserStore(store.table("users"), users),
        AclStore(
            store.table("acls"),
            () if kafka is None else kafka.super_users,
            allow_unmatched=kafka is not None and kafka.allow_everyone_if_no_acl_found,
        ),
        accounts,
        acl_users,
        SignedTokens(kafka or KafkaConfig()),
        QuotaStore(store.table("quotas")),
        configs,
        secrets or rng,
        Pulse(),
    )
