"""Our command for the users of Kafka listeners: user add, user list, user delete.

It speaks Kafka's protocol (APIs 50 and 51), so that it changes the users of Apache's clusters as
well. Passwords come from standard input, never from the command line, and are salted here.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from steelyard.admin.answers import CommandOutcome
from steelyard.admin.asking import read_password
from steelyard.admin.kafka_commands import AdministeredBrokers, add_kafka_command, refusal
from steelyard.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from steelyard.sasl.credentials import ScramMechanism
    from steelyard.wire.kafka.messages.logins import (
        AlterUserScramCredentialsRequest,
        DescribeUserScramCredentialsResult,
        ScramCredentialUpsertion,
    )


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from steelyard.sasl.credentials import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_MECHANISMS

    text = "Add, list and delete the users that Kafka clients log in as"
    user = commands.add_parser("user", help=text, description=text)
    actions = user.add_subparsers(metavar="ACTION", required=True)
    add = add_kafka_command(actions, "add", _add_user, "Add a user, or give it a new password")
    add.add_argument("name", metavar="NAME")
    add.add_argument(
        "--mechanism",
        action="append",
        choices=tuple(SCRAM_MECHANISMS),
        help="let it log in with this mechanism (and with PLAIN); may be repeated; default: both",
    )
    add.add_argument(
        "--iterations",
        type=int,
        default=ITERATIONS_MIN,
        metavar="N",
        help=f"rounds of salting, {ITERATIONS_MIN} to {ITERATIONS_MAX}; default: %(default)s",
    )
    add_kafka_command(actions, "list", _list_users, "List all users and their mechanisms")
    delete = add_kafka_command(actions, "delete", _delete_user, "Delete a user")
    delete.add_argument("name", metavar="NAME")


async def _describe(brokers: AdministeredBrokers) -> Sequence[DescribeUserScramCredentialsResult]:
    """Return all users. Raises KafkaError or RemotingError."""
    from steelyard.wire.kafka.messages.logins import (
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
    )

    _, answer = await brokers.ask(
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        DescribeUserScramCredentialsRequest(None),
        DescribeUserScramCredentialsResponse,
    )
    if answer.error_code:
        doing = "users cannot be listed"
        raise refusal(answer.error_code, doing, answer.error_message, "DESCRIBE")
    return answer.results


async def _alter(brokers: AdministeredBrokers, request: AlterUserScramCredentialsRequest) -> None:
    """Change one user. Raises KafkaError or RemotingError."""
    from steelyard.wire.kafka.messages.logins import (
        ALTER_USER_SCRAM_CREDENTIALS,
        AlterUserScramCredentialsResponse,
    )

    _, answer = await brokers.ask(
        ALTER_USER_SCRAM_CREDENTIALS,
        request,
        AlterUserScramCredentialsResponse,
    )
    for result in answer.results:
        if result.error_code:
            doing = f"user {result.user} was not changed"
            raise refusal(result.error_code, doing, result.error_message, "ALTER")


async def _add_user(brokers: AdministeredBrokers, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.sasl.credentials import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_MECHANISMS
    from steelyard.wire.kafka.messages.logins import AlterUserScramCredentialsRequest

    if not ITERATIONS_MIN <= options.iterations <= ITERATIONS_MAX:
        raise ConfigError(
            f"--iterations is {options.iterations}; expected {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    password = read_password(options.name)
    mechanisms = options.mechanism or list(SCRAM_MECHANISMS)
    for name in dict.fromkeys(mechanisms):  # a request may name a user once
        item = _upsertion(options.name, password, SCRAM_MECHANISMS[name], options.iterations)
        await _alter(brokers, AlterUserScramCredentialsRequest((), [item]))
    text = f"user {options.name}: {', '.join(mechanisms)}\n"
    return CommandOutcome(text, {"user": options.name, "mechanisms": mechanisms})


def _upsertion(
    name: str, password: str, mechanism: ScramMechanism, iterations: int
) -> ScramCredentialUpsertion:
    from steelyard.sasl.credentials import SALT_BYTES
    from steelyard.wire.kafka.messages.logins import ScramCredentialUpsertion

    salt = os.urandom(SALT_BYTES)
    salted = mechanism.salted(password, salt, iterations)
    return ScramCredentialUpsertion(name, mechanism.number, iterations, salt, salted)


async def _list_users(brokers: AdministeredBrokers, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.sasl.credentials import SCRAM_NUMBERS

    row = "{:<40}  {}\n"
    text = row.format("#User", "#Mechanisms (iterations)")
    document = []
    for each in sorted(await _describe(brokers), key=lambda found: found.user):
        found = {
            SCRAM_NUMBERS[info.mechanism].name: info.iterations
            for info in each.credential_infos
            if info.mechanism in SCRAM_NUMBERS
        }
        told = ", ".join(f"{name} ({iterations})" for name, iterations in found.items())
        text += row.format(each.user, told)
        document.append({"user": each.user, "mechanisms": found})
    return CommandOutcome(text, {"users": document})


async def _delete_user(brokers: AdministeredBrokers, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.wire.kafka.errors import ErrorCode
    from steelyard.wire.kafka.messages.logins import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
    )

    numbers = [
        info.mechanism
        for each in await _describe(brokers)
        if each.user == options.name
        for info in each.credential_infos
    ]
    if not numbers:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {options.name!r}")
    for number in numbers:
        item = ScramCredentialDeletion(options.name, number)
        await _alter(brokers, AlterUserScramCredentialsRequest([item], ()))
    return CommandOutcome(f"user {options.name} is deleted\n", {"deleted": options.name})
