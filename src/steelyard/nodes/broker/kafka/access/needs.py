"""What each request needs, by API key: the one table of it (`NEEDS`).

The modules beside it follow the handlers of Apache Kafka's KafkaApis: what is refused as a whole,
by topic, by partition or by group, and with which error. What may not be described is hidden: lists
leave it out, and a topic named by its id is unknown.
Source: core/kafka/server/KafkaApis.scala, AclApis.scala, ControllerApis.scala.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.acl.bindings import AclOperation
from steelyard.nodes.broker.kafka.access.administration import (
    alter_quotas,
    alter_users,
    describe_quotas,
    elect_leaders,
    log_dirs,
    move_log_dirs,
    reassign,
)
from steelyard.nodes.broker.kafka.access.groups import (
    describe_groups,
    find_coordinator,
    heartbeat,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    streams_heartbeat,
)
from steelyard.nodes.broker.kafka.access.guard import Need
from steelyard.nodes.broker.kafka.access.records import (
    delete_records,
    describe_producers,
    leader_epochs,
    list_offsets,
    produce,
)
from steelyard.nodes.broker.kafka.access.share_groups import (
    alter_share_offsets,
    delete_share_offsets,
    describe_share_offsets,
    of_share_group,
)
from steelyard.nodes.broker.kafka.access.topics import (
    create_topics,
    delete_topics,
    describe_cluster,
    describe_topic_partitions,
    metadata,
    needs_configs,
)
from steelyard.nodes.broker.kafka.access.transactions import (
    add_offsets,
    add_partitions,
    describe_transactions,
    end_txn,
    init_producer_id,
    write_markers,
)
from steelyard.nodes.broker.kafka.access.verdicts import (
    CLUSTER_DENIED,
    GROUP,
    GROUP_DENIED,
    TEXT,
    TOPIC_DENIED,
    TRANSACTIONAL_ID,
    filtered,
    needs_cluster,
    needs_cluster_for_each,
    needs_group,
    needs_topics,
    serve_some,
)
from steelyard.wire.kafka.messages import (
    acls,
    cluster,
    configs,
    consumer_groups,
    controllers,
    data,
    groups,
    logins,
    logs,
    offsets,
    placement,
    quotas,
    share_data,
    share_groups,
    streams_groups,
    telemetry,
    tokens,
    topics,
    transactions,
)

NEEDS: Mapping[int, Need | None] = {
    data.PRODUCE.key: produce,
    data.FETCH.key: None,  # asks for each topic that it reads, see `guard`
    logs.LIST_OFFSETS.key: needs_topics(AclOperation.DESCRIBE, list_offsets),
    cluster.METADATA.key: metadata,
    offsets.OFFSET_COMMIT.key: offset_commit,
    offsets.OFFSET_FETCH.key: offset_fetch,
    cluster.FIND_COORDINATOR.key: find_coordinator,
    groups.JOIN_GROUP.key: needs_group(AclOperation.READ),
    groups.HEARTBEAT.key: needs_group(AclOperation.READ),
    groups.LEAVE_GROUP.key: needs_group(AclOperation.READ),
    groups.SYNC_GROUP.key: needs_group(AclOperation.READ),
    groups.DESCRIBE_GROUPS.key: describe_groups(
        "groups",
        lambda name: groups.DescribedGroup(GROUP_DENIED, TEXT, name),
    ),
    groups.LIST_GROUPS.key: list_groups,
    logins.SASL_HANDSHAKE.key: None,
    cluster.API_VERSIONS.key: None,
    topics.CREATE_TOPICS.key: create_topics,
    topics.DELETE_TOPICS.key: delete_topics,
    logs.DELETE_RECORDS.key: needs_topics(AclOperation.DELETE, delete_records),
    transactions.INIT_PRODUCER_ID.key: init_producer_id,
    logs.OFFSET_FOR_LEADER_EPOCH.key: leader_epochs,
    transactions.ADD_PARTITIONS_TO_TXN.key: add_partitions,
    transactions.ADD_OFFSETS_TO_TXN.key: add_offsets,
    transactions.END_TXN.key: end_txn,
    transactions.WRITE_TXN_MARKERS.key: write_markers,
    offsets.TXN_OFFSET_COMMIT.key: offset_commit,
    acls.DESCRIBE_ACLS.key: needs_cluster(AclOperation.DESCRIBE),
    acls.CREATE_ACLS.key: needs_cluster_for_each(
        AclOperation.ALTER,
        "creations",
        "results",
        lambda item: acls.AclCreationResult(CLUSTER_DENIED, TEXT),
    ),
    acls.DELETE_ACLS.key: needs_cluster_for_each(
        AclOperation.ALTER,
        "filters",
        "filter_results",
        lambda item: acls.DeleteAclsFilterResult(CLUSTER_DENIED, TEXT),
    ),
    configs.DESCRIBE_CONFIGS.key: needs_configs(
        AclOperation.DESCRIBE_CONFIGS, "results", configs.DescribeConfigsResult
    ),
    configs.ALTER_CONFIGS.key: needs_configs(
        AclOperation.ALTER_CONFIGS, "responses", configs.AlterConfigsResourceResponse
    ),
    logs.DESCRIBE_LOG_DIRS.key: log_dirs,
    logins.SASL_AUTHENTICATE.key: None,
    topics.CREATE_PARTITIONS.key: needs_topics(
        AclOperation.ALTER,
        lambda item: topics.CreatePartitionsTopicResult(item.name, TOPIC_DENIED, TEXT),
        "results",
    ),
    groups.DELETE_GROUPS.key: lambda check: serve_some(
        check,
        "groups_names",
        lambda name: check.needs(AclOperation.DELETE, GROUP, name),
        "results",
        lambda name: groups.DeletableGroupResult(name, GROUP_DENIED, TEXT),
    ),
    configs.INCREMENTAL_ALTER_CONFIGS.key: needs_configs(
        AclOperation.ALTER_CONFIGS, "responses", configs.AlterConfigsResourceResponse
    ),
    placement.ALTER_REPLICA_LOG_DIRS.key: move_log_dirs,
    tokens.CREATE_DELEGATION_TOKEN.key: None,
    tokens.RENEW_DELEGATION_TOKEN.key: None,
    tokens.EXPIRE_DELEGATION_TOKEN.key: None,
    tokens.DESCRIBE_DELEGATION_TOKEN.key: None,
    placement.ELECT_LEADERS.key: elect_leaders,
    placement.ALTER_PARTITION_REASSIGNMENTS.key: reassign,
    placement.LIST_PARTITION_REASSIGNMENTS.key: needs_cluster(AclOperation.DESCRIBE),
    controllers.DESCRIBE_QUORUM.key: needs_cluster(AclOperation.DESCRIBE),
    controllers.UPDATE_FEATURES.key: needs_cluster(AclOperation.ALTER),
    controllers.UNREGISTER_BROKER.key: needs_cluster(AclOperation.ALTER),
    telemetry.GET_TELEMETRY_SUBSCRIPTIONS.key: None,
    telemetry.PUSH_TELEMETRY.key: None,
    configs.LIST_CONFIG_RESOURCES.key: needs_cluster(AclOperation.DESCRIBE_CONFIGS),
    cluster.DESCRIBE_TOPIC_PARTITIONS.key: describe_topic_partitions,
    offsets.OFFSET_DELETE.key: offset_delete,
    quotas.DESCRIBE_CLIENT_QUOTAS.key: describe_quotas,
    quotas.ALTER_CLIENT_QUOTAS.key: alter_quotas,
    logins.DESCRIBE_USER_SCRAM_CREDENTIALS.key: needs_cluster(AclOperation.DESCRIBE),
    logins.ALTER_USER_SCRAM_CREDENTIALS.key: alter_users,
    cluster.DESCRIBE_CLUSTER.key: describe_cluster,
    logs.DESCRIBE_PRODUCERS.key: needs_topics(AclOperation.READ, describe_producers),
    transactions.DESCRIBE_TRANSACTIONS.key: describe_transactions,
    transactions.LIST_TRANSACTIONS.key: filtered(
        "transaction_states",
        lambda check, each: check.may(
            AclOperation.DESCRIBE, TRANSACTIONAL_ID, each.transactional_id
        ),
    ),
    consumer_groups.CONSUMER_GROUP_HEARTBEAT.key: heartbeat,
    consumer_groups.CONSUMER_GROUP_DESCRIBE.key: describe_groups(
        "group_ids",
        lambda name: consumer_groups.DescribedGroup(GROUP_DENIED, TEXT, name),
    ),
    share_groups.SHARE_GROUP_HEARTBEAT.key: heartbeat,
    share_groups.SHARE_GROUP_DESCRIBE.key: describe_groups(
        "group_ids",
        lambda name: share_groups.DescribedShareGroup(GROUP_DENIED, TEXT, name),
    ),
    share_data.SHARE_FETCH.key: of_share_group,
    share_data.SHARE_ACKNOWLEDGE.key: of_share_group,
    share_groups.DESCRIBE_SHARE_GROUP_OFFSETS.key: describe_share_offsets,
    share_groups.ALTER_SHARE_GROUP_OFFSETS.key: alter_share_offsets,
    share_groups.DELETE_SHARE_GROUP_OFFSETS.key: delete_share_offsets,
    streams_groups.STREAMS_GROUP_HEARTBEAT.key: streams_heartbeat,
    streams_groups.STREAMS_GROUP_DESCRIBE.key: describe_groups(
        "group_ids",
        lambda name: streams_groups.DescribedGroup(GROUP_DENIED, TEXT, name),
    ),
}
"""By API key; None: whoever has been let in may send it, or the handler asks (Fetch).

The handler of StreamsGroupHeartbeat also asks who may create the internal topics of a group.
ShareFetch and ShareAcknowledge need READ of their group here; the handlers ask for each topic.

There are no tokens and no telemetry, so that asking for them needs nothing."""
