"""mqadmin's commands that make brokers clean up: cleanExpiredCQ, cleanUnusedTopic and so on.

Source: tools/command/broker/Clean*.java, DeleteExpiredCommitLogSubCommand.java of 4.9.8.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from steelyard.admin.answers import CommandOutcome
from steelyard.admin.asking import Asking, add_asking_command, given, unsupported
from steelyard.admin.clusters import NO_BROKER, cluster_rows
from steelyard.errors import BrokerError, RouteError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from steelyard.client.aio.admin import Admin

BY_ITSELF = "{}; Steelyard's delete what has expired by themselves"
"""What is said of a broker that does not answer the request."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, asking, text in (
        ("cleanExpiredCQ", clean_consume_queues, "Delete index rows of deleted messages"),
        ("cleanUnusedTopic", clean_topics, "Delete queues of topics that do not exist any more"),
        ("deleteExpiredCommitLog", delete_commit_log, "Delete files with expired messages"),
    ):
        _add_command(commands, name, asking, text)


def _add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    asking: Asking,
    text: str,
) -> None:
    parser = add_asking_command(commands, name, asking, text)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-b", "--brokerAddr", help="on this broker")
    where.add_argument(
        "-c", "--cluster", help="on this cluster's brokers; default: all brokers of all clusters"
    )


async def clean_consume_queues(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    return await _clean(admin, options, "cleanExpiredCQ", admin.clean_expired_consume_queues)


async def clean_topics(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    return await _clean(admin, options, "cleanUnusedTopic", admin.clean_unused_topics)


async def delete_commit_log(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    return await _clean(admin, options, "deleteExpiredCommitLog", admin.delete_expired_commit_log)


async def _clean(
    admin: Admin,
    options: argparse.Namespace,
    command: str,
    clean: Callable[[str], Awaitable[None]],
) -> CommandOutcome:
    addresses = await _replicas(admin, options)
    for address in addresses:
        try:
            await clean(address)
        except BrokerError as error:
            raise unsupported(error, BY_ITSELF.format(command)) from error
    return CommandOutcome("success\n", {"brokers": addresses})


async def _replicas(admin: Admin, options: argparse.Namespace) -> list[str]:
    """Return the broker of -b, or all brokers, slaves too, of the cluster of -c or of all."""
    address, cluster = given(options.brokerAddr), given(options.cluster)
    if address is not None:
        return [address]
    if cluster is not None:
        await admin.masters(cluster)  # an unknown cluster is reported as such
    rows = cluster_rows(await admin.clusters())
    if not rows:
        raise RouteError(NO_BROKER)
    return [at for name, _, _, at in rows if cluster is None or name == cluster]
