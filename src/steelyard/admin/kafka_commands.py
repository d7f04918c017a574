"""What our commands for Kafka clusters share: where the brokers are, and who asks them."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from steelyard.admin import exits
from steelyard.admin.answers import CommandOutcome, document_text
from steelyard.admin.asking import (
    add_tls_option,
    kafka_brokers,
)
from steelyard.client.environment import KAFKA_VARIABLES, kafka_login
from steelyard.printable import printable_lines

if TYPE_CHECKING:
    from steelyard.driver.awaited_links import KafkaRequester
    from steelyard.errors import KafkaError
    from steelyard.wire.kafka.schema import Api, ApiMessage

    R = TypeVar("R", bound=ApiMessage)

DEFAULT_KAFKA = "127.0.0.1:9092"
TIMEOUT_MS = 15_000

Command = Callable[["AdministeredBrokers", argparse.Namespace], Awaitable[CommandOutcome]]


def add_kafka_command(
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
        outcome = await command(AdministeredBrokers(requester, addresses), options)
    finally:
        await requester.close()
    if options.json:
        print(document_text(outcome.document, []), end="")
    else:
        print(printable_lines(outcome.text), end="")
    return exits.SUCCESS


def refusal(code: int, doing: str, told: str | None, right: str) -> KafkaError:
    """Return the error of a request that was refused, with what would be right.

    `told`: the broker's words. `right`: to the cluster, which the request needs.
    """
    from steelyard.errors import KafkaError
    from steelyard.wire.kafka.errors import ErrorCode

    names = {each.value: each.name for each in ErrorCode}
    why = told or names.get(code, "refused")
    if code == ErrorCode.SECURITY_DISABLED:
        why = "the brokers have no authorizer; start them with --kafka-authorizer acl"
    elif code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        why = f"the login must be a super user's, or have the right {right} to the cluster"
    return KafkaError(code, f"{doing}: {why}")


class AdministeredBrokers:
    """The brokers to ask."""

    def __init__(self, requester: KafkaRequester, addresses: Sequence[str]) -> None:
        self._requester = requester
        self._addresses = addresses
        self._found = ""

    async def ask(self, api: Api, request: ApiMessage, kind: type[R]) -> tuple[str, R]:
        """Ask the controller; return its address and its answer. Raises RemotingError."""
        if not self._found:
            self._found = await self._controller()
        return self._found, await self._requester.call(self._found, api, request, kind)

    async def _controller(self) -> str:
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
