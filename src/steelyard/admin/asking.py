"""Common parts of commands that query a cluster: options, credentials, running an `Admin`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from steelyard.admin import exits
from steelyard.admin.answers import CommandOutcome, document_text
from steelyard.config import ClientConfig
from steelyard.errors import (
    BrokerError,
    ConfigError,
    RemotingError,
    RouteError,
    SteelyardError,
    UnreachableError,
)
from steelyard.printable import printable, printable_lines

if TYPE_CHECKING:
    import logging

    from steelyard.admin.answers import Unreachable
    from steelyard.admin.reaching import PatientAdmin
    from steelyard.client.aio.admin import Admin

C = TypeVar("C", bound=ClientConfig)
T = TypeVar("T")


Asking = Callable[["PatientAdmin", argparse.Namespace], Awaitable[CommandOutcome]]
"""A command: asks, and returns what it found."""


GROUP_OPTIONS = ("groupName", "consumerGroup", "group")
"""What commands call the consumer group that they ask about, as mqadmin does."""

WATCH_SECONDS = 2.0
"""Default interval of `--watch`, that of watch(1)."""

WATCH_SECONDS_MIN = 0.1
WATCH_SECONDS_MAX = 86_400.0

WAIT_TOLD_SECONDS = 3.0
"""After so long without an answer, a terminal is told that it is waited for."""

ACCESS_KEY_VARIABLE = "STEELYARD_ACCESS_KEY"
SECRET_KEY_VARIABLE = "STEELYARD_SECRET_KEY"
SECURITY_TOKEN_VARIABLE = "STEELYARD_SECURITY_TOKEN"


def add_nameserver_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        "--namesrvAddr",
        dest="nameservers",
        metavar="HOST:PORT[;HOST:PORT]",
        help="nameservers; default: the variable NAMESRV_ADDR, or 127.0.0.1:9876",
    )
    add_tls_option(parser)


def add_tls_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tls",
        action="store_true",
        help="encrypt connections; trusts the system's certificates, or those in the file"
        " SSL_CERT_FILE",
    )


def add_asking_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    asking: Asking,
    text: str,
    *,
    watched: bool = False,
) -> argparse.ArgumentParser:
    """Create a parser with -n and --json whose command runs `asking` and prints the result.

    `watched`: it also has --watch, which repeats it.
    """
    parser = commands.add_parser(name, help=text, description=text)
    add_nameserver_option(parser)
    document = "print one JSON document"
    if watched:
        document += "; with --watch one a line"
        parser.add_argument(
            "--watch",
            nargs="?",
            type=interval,
            const=WATCH_SECONDS,
            metavar="SECONDS",
            help=f"repeat it every SECONDS ({WATCH_SECONDS:g} if not given) until Ctrl-C",
        )
    parser.add_argument("--json", action="store_true", help=document)
    parser.set_defaults(run=lambda options: _run(asking, options))
    return parser


def interval(text: str) -> float:
    """Parse a number of seconds, as of `--watch`. Raises argparse.ArgumentTypeError."""
    with suppress(ValueError):
        seconds = float(text)
        if WATCH_SECONDS_MIN <= seconds <= WATCH_SECONDS_MAX:
            return seconds
    raise argparse.ArgumentTypeError(
        f"{text!r} is no number of seconds from {WATCH_SECONDS_MIN} to {WATCH_SECONDS_MAX:.0f}"
    )


def new_admin(options: argparse.Namespace) -> PatientAdmin:
    """Create an administrator with the credentials in the environment."""
    from steelyard.admin.reaching import PatientAdmin

    access_key, secret_key, security_token = _credentials()
    return PatientAdmin(
        options.nameservers,
        access_key=access_key,
        secret_key=secret_key,
        security_token=security_token,
        tls=options.tls,
    )


def with_credentials(config: C) -> C:
    """Return the configuration of a client with the credentials in the environment."""
    access_key, secret_key, security_token = _credentials()
    return replace(
        config, access_key=access_key, secret_key=secret_key, security_token=security_token
    )


def _credentials() -> tuple[str, str, str]:
    """Read the credentials; on the command line, every user of the machine could read a secret."""
    names = (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, SECURITY_TOKEN_VARIABLE)
    access_key, secret_key, security_token = (os.environ.get(name, "") for name in names)
    if bool(access_key) != bool(secret_key):
        given, missing = names[:2] if access_key else names[1::-1]
        raise ConfigError(f"{given} is set without {missing}; set both, or neither")
    return access_key, secret_key, security_token


def credentials() -> dict[str, str]:
    """Return the credentials in the environment, as arguments of an administrator."""
    access_key, secret_key, security_token = _credentials()
    return {
        "access_key": access_key,
        "secret_key": secret_key,
        "security_token": security_token,
    }


def kafka_brokers(given: str) -> list[str]:
    """Return the addresses in a value of `--kafka`. Raises ConfigError."""
    from steelyard.addresses import KAFKA_PORT
    from steelyard.client.settings import check_address

    parts = [each.strip() for each in given.split(",") if each.strip()]
    addresses = [check_address(each, KAFKA_PORT) for each in parts]
    if not addresses:
        raise ConfigError("no Kafka broker given; write --kafka HOST:PORT")
    return addresses


def add_where_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Add -b and -c: one broker, or all masters of a cluster."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("-b", "--brokerAddr", help=f"{what} this broker")
    where.add_argument("-c", "--clusterName", help=f"{what} this cluster's brokers")


async def asked_brokers(admin: Admin, options: argparse.Namespace) -> list[str]:
    """Return the addresses that the options of `add_where_options` name.

    Raises RouteError for an unknown cluster.
    """
    address = given(options.brokerAddr)
    return [address] if address else await admin.masters((options.clusterName or "").strip())


def unsupported(error: BrokerError, what: str) -> BrokerError:
    """Return an error that says what the broker does not support, if that is its reason."""
    from steelyard.wire.remoting.codes import ResponseCode

    if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return error
    return BrokerError(error.code, f"this broker does not support {what}", error.address)


def given(text: str | None) -> str | None:
    """Return an option's value without surrounding spaces; None if not given or empty."""
    return (text or "").strip() or None


def read_password(name: str) -> str:
    """Ask for a password twice, or read one line if standard input is not a terminal."""
    import getpass

    if not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = getpass.getpass(f"Password of {name}: ")
        if password != getpass.getpass("Again: "):
            raise ConfigError("the two passwords differ; nothing was changed")
    if not password:
        raise ConfigError("the password is empty; write it to standard input")
    return password


def log_to_stderr(level: str, formatter: logging.Formatter | None = None) -> None:
    """Log to standard error from this level, by default as text.

    Commands report their own final error.
    """
    import logging

    from steelyard.driver.logs import Printable

    text = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    stream = logging.StreamHandler()
    stream.setFormatter(formatter or logging.Formatter(text))
    logging.basicConfig(level=level, handlers=[stream])
    for handler in logging.getLogger().handlers:
        handler.addFilter(Printable())  # of asyncio and other libraries too


def _run(asking: Asking, options: argparse.Namespace) -> int:
    from steelyard.driver.loops import run

    log_to_stderr("CRITICAL")
    if getattr(options, "watch", None) is not None:
        code = run(_watch(asking, options))
        if code == exits.CLOSED_PIPE:
            raise BrokenPipeError
        return code

    async def ask() -> tuple[CommandOutcome, list[Unreachable]]:
        async with new_admin(options) as admin:
            return await _telling_of_a_wait(_answered(asking, admin, options))

    answer, unreachable = run(ask())
    if options.json:
        print(document_text(answer.document, unreachable), end="")
    else:
        print(printable_lines(answer.text), end="")
    sys.stdout.flush()
    return _end(answer, unreachable)


async def _telling_of_a_wait(answer: Awaitable[T]) -> T:
    """Wait for an answer; say so on a terminal if it takes long: a server or a member hangs."""
    import asyncio

    task = asyncio.ensure_future(answer)
    done, _ = await asyncio.wait([task], timeout=WAIT_TOLD_SECONDS)
    if not done and sys.stderr.isatty():
        print("steelyard: not everybody has answered yet; waiting ...", file=sys.stderr)
    return await task


async def _watch(asking: Asking, options: argparse.Namespace) -> int:
    from steelyard.admin.watching import watch

    async with new_admin(options) as admin:
        return await watch(admin, lambda: _answered(asking, admin, options), options)


async def _answered(
    asking: Asking, admin: PatientAdmin, options: argparse.Namespace
) -> tuple[CommandOutcome, list[Unreachable]]:
    """Run a command. Raises UnreachableError if it failed and brokers did not answer."""
    from steelyard.admin.reaching import told

    try:
        answer = await asking(admin, options)
    except ConfigError:
        raise
    except SteelyardError as error:
        missing = await admin.unreachable()
        if not missing:
            if isinstance(error, RouteError):
                await _raise_for_other_protocol(error, admin, options)
            raise
        texts = [told(broker) for broker in missing]
        if not isinstance(error, RemotingError):
            texts.append(str(error))
        raise UnreachableError("; ".join(texts)) from error
    return answer, await admin.unreachable()


async def check_is_no_kafka_group(options: argparse.Namespace, group: str, instead: str) -> None:
    """Raise RouteError for a group of Kafka clients only: RocketMQ's requests do not change it.

    `instead`: the command for such a group. This asks more brokers than the command does, so with
    an administrator of its own: the command has not failed if one of them does not answer.
    """
    is_only_kafkas = False
    with suppress(SteelyardError):
        async with new_admin(options) as admin:
            is_only_kafkas = (
                await _is_kafka_group(admin, group)
                and not await admin.group_config(group)
                and not await _is_rocketmq_group(admin, group)
            )
    if is_only_kafkas:
        raise RouteError(f"{group} is a Kafka group; use `{instead}`")


async def _raise_for_other_protocol(
    error: RouteError, admin: PatientAdmin, options: argparse.Namespace
) -> None:
    """Raise a RouteError that names the command for a group which this one does not know."""
    asked = (getattr(options, name, None) for name in GROUP_OPTIONS)
    group = next(filter(None, map(given, asked)), None)
    if group is None or f"group {group}" not in str(error):
        return
    found = ""
    with suppress(SteelyardError):
        if await _is_rocketmq_group(admin, group):
            if f"Kafka group {group}" not in str(error):
                return  # it was asked for as what it is
            found = (
                f"{group} is a RocketMQ group; use `steelyard admin consumerProgress -g {group}`"
            )
        elif await _is_kafka_group(admin, group):
            found = f"{group} is a Kafka group; use `steelyard admin kafkaGroup -g {group}`"
    if found:
        raise RouteError(found) from error


async def _is_kafka_group(admin: PatientAdmin, group: str) -> bool:
    return any(one.group == group for one in await admin.kafka_groups())


async def _is_rocketmq_group(admin: PatientAdmin, group: str) -> bool:
    """Return whether the group has ever had a RocketMQ member."""
    from steelyard.wire.remoting.names import retry_topic

    try:
        await admin.route(retry_topic(group))
    except RouteError:
        return False
    return True


def _end(answer: CommandOutcome, unreachable: list[Unreachable]) -> int:
    """Name the brokers that did not answer on standard error; return the exit code."""
    from steelyard.admin.reaching import told

    for broker in unreachable:
        print(f"steelyard: {printable(told(broker))}", file=sys.stderr)
    return exits.UNREACHABLE if unreachable else answer.code
