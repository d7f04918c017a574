"""mqadmin's exportMetadata: the settings of topics and groups, as JSON in a file.

Of a whole cluster, the numbers of queues are sums over its brokers, as in mqadmin.
Source: tools/command/export/ExportMetadataCommand.java,
DefaultMQAdminExtImpl.getUserTopicConfig, getUserSubscriptionGroup (4.9.8).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.admin.answers import CommandOutcome
from steelyard.admin.asking import add_asking_command, add_where_options, asked_brokers, given
from steelyard.admin.files import write_file
from steelyard.admin.printing import pretty
from steelyard.wire.remoting.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.wire.remoting.bodies import SubscriptionGroupConfig, TopicConfig

FOLDER = Path(tempfile.gettempdir(), "rocketmq", "export")
"""Where mqadmin writes."""

SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
SYSTEM_GROUPS = frozenset(
    {
        "DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL",
    }
)  # fmt: skip
"""Groups of RocketMQ's own, which are not exported (MixAll.java)."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = add_asking_command(
        commands,
        "exportMetadata",
        export_metadata,
        "Write the settings of topics and groups to a file",
    )
    add_where_options(export, "export those of")
    export.add_argument(
        "-f",
        "--filePath",
        metavar="DIR",
        default=str(FOLDER),
        help="directory of the file, which is metadata.json, or topic.json with -t, or"
        " subscriptionGroup.json with -g; default: %(default)s",
    )
    only = export.add_mutually_exclusive_group()
    only.add_argument("-t", "--topic", action="store_true", help="only topics")
    only.add_argument("-g", "--subscriptionGroup", action="store_true", help="only groups")
    export.add_argument(
        "-s", "--specialTopic", action="store_true", help="retry and dead-letter topics, too"
    )


async def export_metadata(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    import msgspec

    topics: dict[str, TopicConfig] = {}
    groups: dict[str, SubscriptionGroupConfig] = {}
    for address in await asked_brokers(admin, options):
        if not options.subscriptionGroup:
            found = await _topics_at(admin, address, special=options.specialTopic)
            topics |= {name: _topic_sum(topics.get(name), found[name]) for name in found}
        if not options.topic:
            configs = await admin.group_configs(address)
            users = (name for name in configs if not is_system_group(name))
            groups |= {name: _group_sum(groups.get(name), configs[name]) for name in users}
    topics, groups = dict(sorted(topics.items())), dict(sorted(groups.items()))
    content: dict[str, object] = {"exportTime": time.time_ns() // 1_000_000}
    file = "metadata.json"
    if options.topic:
        file = "topic.json"
    else:
        content["subscriptionGroupTable"] = groups
    if options.subscriptionGroup:
        file = "subscriptionGroup.json"
    else:
        content["topicConfigTable"] = topics
    path = Path(given(options.filePath) or FOLDER, file)
    write_file(path, pretty(msgspec.to_builtins(content)).encode())
    document = {"path": str(path), "topics": [*topics.values()], "groups": [*groups.values()]}
    return CommandOutcome(f"export {path} success\n", document)


async def _topics_at(admin: Admin, address: str, *, special: bool) -> dict[str, TopicConfig]:
    """Return the settings of topics that are not the broker's own."""
    system = set(await admin.system_topics_of(address))
    configs = await admin.topic_configs(address)
    return {
        name: config
        for name, config in configs.items()
        if name not in system and (special or not name.startswith((RETRY_PREFIX, DLQ_PREFIX)))
    }


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def _topic_sum(before: TopicConfig | None, config: TopicConfig) -> TopicConfig:
    """Return the settings of a topic with the queues of the brokers before."""
    from msgspec.structs import replace

    if before is None:
        return config
    return replace(
        config,
        read_queue_nums=before.read_queue_nums + config.read_queue_nums,
        write_queue_nums=before.write_queue_nums + config.write_queue_nums,
    )


def _group_sum(
    before: SubscriptionGroupConfig | None, config: SubscriptionGroupConfig
) -> SubscriptionGroupConfig:
    from msgspec.structs import replace

    if before is None:
        return config
    return replace(config, retry_queue_nums=before.retry_queue_nums + config.retry_queue_nums)
