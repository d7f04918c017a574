"""Our command for the users of Kafka listeners: user add, user list, user delete.

It speaks Kafka's protocol (APIs 50 and 51), so that it changes the users of Apache's clusters as
well. Passwords come from standard input, never from the command line, and are salted here.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from steelyard.admin import exits
from steelyard.admin.answers import CommandOutcome, document_text
from steelyard.admin.asking import (
    KAFKA_VARIABLES,
    add_tls_option,
    kafka_brokers,
    kafka_login,
)
from steelyard.errors import ConfigError, KafkaError
from steelyard.printable import printable_lines

if TYPE_CHECKING:
    from steelyard.driver.awaited_links import KafkaRequester
    from steelyard.sasl.credentials import ScramMechanism
    from steelyard.wire.kafka.messages.logins import (
        AlterUserScramCredentialsRequest,
        DescribeUserScramCredentialsResult,
        ScramCredentialUpsertion,
    )

DEFAULT_KAFKA = "127.0.0.1:9092"
TIMEOUT_MS = 15_000

Command = Callable[["_Brokers", argparse.Namespace], Awaitable[CommandOutcome]]


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from steelyard.sasl.credentials import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_MECHANISMS

    text = "Add, list and delete the users that Kafka clients log in as"
    user = commands.add_parser("user", help=text, description=text)
    actions = user.add_subparsers(metavar="ACTION", required=True)
    add = _add(actions, "add", _add_user, "Add a user, or give it a new password")
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
    _add(actions, "list", _list_users, "List all users and their mechanisms")
    delete = _add(actions, "delete", _delete_user, "Delete a user")
    delete.add_argument("name", metavar="NAME")


def _add(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Command,
    text: str,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        name,
        help=text,
        description=f"{text}. The login of this command is in the environment:"
        f" {', '.join(KAFKA_VARIABLES)}.",
    )
    parser.add_argument(
        "--kafka",
        default=DEFAULT_KAFKA,
        metavar="HOST:PORT[,HOST:PORT]",
        help="Kafka ports of brokers; default: %(default)s",
    )
    add_tls_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=lambda options: asyncio.run(_run(command, options)))
    return parser


async def _run(command: Command, options: argparse.Namespace) -> int:
    from steelyard.client.settings import tls_context
    from steelyard.driver.awaited_links import KafkaRequester

    addresses = kafka_brokers(options.kafka)
    requester = KafkaRequester(
        "steelyard-admin",
        timeout_ms=TIMEOUT_MS,
        tls=tls_context(options.tls),
        login=kafka_login(),
    )
    try:
        outcome = await command(_Brokers(requester, addresses), options)
    finally:
        await requester.close()
    if options.json:
        print(document_text(outcome.document, []), end="")
    else:
        print(printable_lines(outcome.text), end="")
    return exits.SUCCESS


class _Brokers:
    """The brokers to ask."""

    def __init__(self, requester: KafkaRequester, addresses: Sequence[str]) -> None:
        self._requester = requester
        self._addresses = addresses

    async def controller(self) -> str:
        """Return the address of the controller: only it takes changes on Apache's clusters."""
        from steelyard.errors import RemotingError
        from steelyard.wire.kafka.messages.cluster import (
            METADATA,
            MetadataRequest,
            MetadataResponse,
        )

        failure: RemotingError | None = None
        for address in self._addresses:
            try:
                found = await self._requester.call(
                    address, METADATA, MetadataRequest(()), MetadataResponse
                )
            except RemotingError as error:
                failure = error
                continue
            for broker in found.brokers:
                if broker.node_id == found.controller_id:
                    return f"{broker.host}:{broker.port}"
            return address
        assert failure is not None
        raise failure

    async def describe(self) -> Sequence[DescribeUserScramCredentialsResult]:
        """Return all users. Raises KafkaError or RemotingError."""
        from steelyard.driver.blocking_links import check_code
        from steelyard.wire.kafka.messages.logins import (
            DESCRIBE_USER_SCRAM_CREDENTIALS,
            DescribeUserScramCredentialsRequest,
            DescribeUserScramCredentialsResponse,
        )

        address = await self.controller()
        answer = await self._requester.call(
            address,
            DESCRIBE_USER_SCRAM_CREDENTIALS,
            DescribeUserScramCredentialsRequest(None),
            DescribeUserScramCredentialsResponse,
        )
        check_code(address, answer.error_code, "the question for users")
        return answer.results

    async def alter(self, request: AlterUserScramCredentialsRequest) -> None:
        """Change one user. Raises KafkaError or RemotingError."""
        from steelyard.wire.kafka.messages.logins import (
            ALTER_USER_SCRAM_CREDENTIALS,
            AlterUserScramCredentialsResponse,
        )

        answer = await self._requester.call(
            await self.controller(),
            ALTER_USER_SCRAM_CREDENTIALS,
            request,
            AlterUserScramCredentialsResponse,
        )
        for result in answer.results:
            if result.error_code:
                text = f"user {result.user}: {result.error_message or 'refused'}"
                raise KafkaError(result.error_code, text)


async def _add_user(brokers: _Brokers, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.sasl.credentials import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_MECHANISMS
    from steelyard.wire.kafka.messages.logins import AlterUserScramCredentialsRequest

    if not ITERATIONS_MIN <= options.iterations <= ITERATIONS_MAX:
        raise ConfigError(
            f"--iterations is {options.iterations}; expected {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    password = _password(options.name)
    mechanisms = options.mechanism or list(SCRAM_MECHANISMS)
    for name in dict.fromkeys(mechanisms):  # a request may name a user once
        item = _upsertion(options.name, password, SCRAM_MECHANISMS[name], options.iterations)
        await brokers.alter(AlterUserScramCredentialsRequest((), [item]))
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


def _password(name: str) -> str:
    """Ask for a password twice, or read one line if standard input is not a terminal."""
    if not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = getpass.getpass(f"Password of {name}: ")
        if password != getpass.getpass("Again: "):
            raise ConfigError("the two passwords differ; nothing was changed")
    if not password:
        raise ConfigError("the password is empty; write it to standard input")
    return password


async def _list_users(brokers: _Brokers, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.sasl.credentials import SCRAM_NUMBERS

    row = "{:<40}  {}\n"
    text = row.format("#User", "#Mechanisms (iterations)")
    document = []
    for each in sorted(await brokers.describe(), key=lambda found: found.user):
        found = {
            SCRAM_NUMBERS[info.mechanism].name: info.iterations
            for info in each.credential_infos
            if info.mechanism in SCRAM_NUMBERS
        }
        told = ", ".join(f"{name} ({iterations})" for name, iterations in found.items())
        text += row.format(each.user, told)
        document.append({"user": each.user, "mechanisms": found})
    return CommandOutcome(text, {"users": document})


async def _delete_user(brokers: _Brokers, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.wire.kafka.errors import ErrorCode
    from steelyard.wire.kafka.messages.logins import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
    )

    numbers = [
        info.mechanism
        for each in await brokers.describe()
        if each.user == options.name
        for info in each.credential_infos
    ]
    if not numbers:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {options.name!r}")
    for number in numbers:
        item = ScramCredentialDeletion(options.name, number)
        await brokers.alter(AlterUserScramCredentialsRequest([item], ()))
    return CommandOutcome(f"user {options.name} is deleted\n", {"deleted": options.name})
