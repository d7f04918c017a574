"""mqadmin's updateTopicList and updateSubGroupList: settings of many topics or groups in a file.

The file has a JSON list of objects with the fields of TopicConfig.java or
SubscriptionGroupConfig.java. They are checked and sent as they are, so that settings that only
brokers of 5.x have reach those. Brokers of 4.9 do not take lists: they get one request for each.
Source: tools/command/topic/UpdateTopicListSubCommand.java,
tools/command/consumer/UpdateSubGroupListSubCommand.java of 5.3.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from steelyard.admin import names
from steelyard.admin.answers import CommandOutcome
from steelyard.admin.asking import add_asking_command, add_where_options, asked_brokers, given
from steelyard.errors import BrokerError, ConfigError, ProtocolError

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.wire.remoting.bodies import Body, SubscriptionGroupConfig, TopicConfig

B = TypeVar("B", bound="Body")

FILE_BYTES_MAX = 8 * 1024 * 1024
"""A list is sent in one frame, which brokers limit to 16 MiB."""

PERM_MAX = 7
"""All bits of a topic's permission."""

TOPIC_FIELDS = frozenset(
    {
        "topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType", "topicSysFlag",
        "order", "attributes",
    }
)  # fmt: skip
GROUP_FIELDS = frozenset(
    {
        "groupName", "consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable",
        "retryQueueNums", "retryMaxTimes", "brokerId", "whichBrokerWhenConsumeSlowly",
        "notifyConsumerIdsChangedEnable",
        # of 5.x:
        "consumeMessageOrderly", "groupRetryPolicy", "groupSysFlag", "consumeTimeoutMinute",
        "subscriptionDataSet", "attributes",
    }
)  # fmt: skip
"""Fields that an object may have; others are mistakes, which brokers would ignore."""


class ConfigBatch(NamedTuple):
    """What a file has: `body`, the request of a list, and `names`, those of its objects."""

    body: bytes
    names: tuple[str, ...]


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, asking, noun in (
        ("updateTopicList", update_topics, "topic"),
        ("updateSubGroupList", update_groups, "subscription group"),
    ):
        parser = add_asking_command(
            commands, name, asking, f"Update or create every {noun} in a file"
        )
        add_where_options(parser, f"create the {noun}s on")
        parser.add_argument(
            "-f",
            "--filename",
            required=True,
            metavar="FILE",
            help=f"a JSON list of {noun}s with their settings, named as exportMetadata does",
        )


async def update_topics(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.wire.remoting.bodies import TopicConfigList
    from steelyard.wire.remoting.codes import RequestCode

    path = options.filename
    read, body = _read(path, "topicConfigList", TopicConfigList, TOPIC_FIELDS)
    configs = read.topic_config_list
    for config in configs:
        _check_topic(path, config)
    batch = ConfigBatch(body, _distinct(path, (config.topic_name for config in configs)))

    async def singly(address: str) -> None:
        for config in configs:
            await admin.update_topic(config, broker=address)

    code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
    addresses = await _send(admin, options, code, batch, singly)
    text = _lines("topic", addresses)
    return CommandOutcome(text, {"brokers": addresses, "topics": batch.names})


async def update_groups(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.wire.remoting.bodies import GroupConfigList
    from steelyard.wire.remoting.codes import RequestCode

    path = options.filename
    read, body = _read(path, "groupConfigList", GroupConfigList, GROUP_FIELDS)
    configs = read.group_config_list
    for config in configs:
        _check_group(path, config)
    batch = ConfigBatch(body, _distinct(path, (config.group_name for config in configs)))

    async def singly(address: str) -> None:
        for config in configs:
            await admin.update_group(config, broker=address)

    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    addresses = await _send(admin, options, code, batch, singly)
    text = _lines("group" if given(options.brokerAddr) else "subscription group", addresses)
    return CommandOutcome(text, {"brokers": addresses, "groups": batch.names})


def _lines(noun: str, addresses: list[str]) -> str:
    return "".join(
        f"submit batch of {noun} config to {address} success, please check the result later.\n"
        for address in addresses
    )


async def _send(
    admin: Admin,
    options: argparse.Namespace,
    code: int,
    batch: ConfigBatch,
    singly: Callable[[str], Awaitable[None]],
) -> list[str]:
    """Send a list to the brokers that the options name; return their addresses.

    `singly` does the same for a broker that does not take lists.
    """
    from steelyard.wire.remoting.codes import ResponseCode

    addresses = await asked_brokers(admin, options)
    for address in addresses:
        try:
            await admin.ask(address, code, body=batch.body)
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            await singly(address)
    return addresses


# -- the file --------------------------------------------------------------------------------------


def _read(path: str, name: str, kind: type[B], fields: frozenset[str]) -> tuple[B, bytes]:
    """Read a list from a file; return it as typed data, and as the body of a request.

    `name`: the field of the body that has the list. Raises ConfigError.
    """
    from steelyard.wire.remoting import fastjson

    try:
        with open(path, "rb") as source:
            data = source.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{path} has more than {FILE_BYTES_MAX} bytes; split it")
    try:
        tree = fastjson.loads(data)
    except ProtocolError as error:
        reason = str(error).removeprefix("JSON: ")
        raise ConfigError(f"{path} is not JSON: {reason}") from None
    if not isinstance(tree, list) or not all(isinstance(item, dict) for item in tree):
        raise ConfigError(f"{path} is no JSON list of objects: [{{...}}, {{...}}]")
    if not tree:
        raise ConfigError(f"{path} has an empty list")
    for item in tree:
        unknown = sorted(set(map(str, item)) - fields)
        if unknown:
            raise ConfigError(
                f"{path}: unknown field {unknown[0]!r}; expected {', '.join(sorted(fields))}"
            )
    body = json.dumps({name: tree}, ensure_ascii=False).encode()
    try:
        return fastjson.read(kind, body), body
    except ProtocolError as error:
        raise ConfigError(f"{path}: {error}") from None


def _distinct(path: str, found: Iterable[str]) -> tuple[str, ...]:
    """Return the names. Raises ConfigError if one is there twice."""
    listed: dict[str, None] = {}
    for name in found:
        if name in listed:
            raise ConfigError(f"{path} has {name} twice")
        listed[name] = None
    return tuple(listed)


def _check_topic(path: str, config: TopicConfig) -> None:
    fault = names.written_topic_fault(config.topic_name)
    if fault is not None:
        raise ConfigError(f"{path}: {fault}")
    counts = {
        "readQueueNums": config.read_queue_nums,
        "writeQueueNums": config.write_queue_nums,
    }
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(
                f"{path}: {name} of {config.topic_name} is {count}; it must be 1 or more"
            )
    if not 0 <= config.perm <= PERM_MAX:
        raise ConfigError(
            f"{path}: perm of {config.topic_name} is {config.perm}; it must be 2 (write), 4 (read)"
            " or 6 (both)"
        )


def _check_group(path: str, config: SubscriptionGroupConfig) -> None:
    fault = names.group_fault(config.group_name)
    if fault is not None:
        raise ConfigError(f"{path}: {fault}")
    counts = {"retryQueueNums": config.retry_queue_nums, "retryMaxTimes": config.retry_max_times}
    for name, count in counts.items():
        if count < 0:
            raise ConfigError(
                f"{path}: {name} of {config.group_name} is {count}; it must be 0 or more"
            )
