"""`steelyard admin`: mqadmin's commands, and our own for Kafka groups, users and access rules."""

from __future__ import annotations

import argparse

from steelyard.admin import (
    acl_users,
    acls,
    backlogs,
    batches,
    cleaning,
    clusters,
    consume_queues,
    exporting,
    group_settings,
    groups,
    kafka_groups,
    members,
    messages,
    offsets,
    rates,
    send_times,
    topics,
    users,
)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    admin = commands.add_parser("admin", help="mqadmin's commands, flags and columns")
    inside = admin.add_subparsers(metavar="COMMAND", required=True)
    kafka = (kafka_groups, users, acls)
    of_groups = (groups, group_settings, *kafka, members, offsets)
    of_brokers = (clusters, rates, backlogs, send_times, exporting, cleaning)
    for module in (topics, *of_groups, batches, messages, consume_queues, *of_brokers, acl_users):
        module.add_commands(inside)
