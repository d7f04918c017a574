"""`steelyard up`, `steelyard nameserver`, `steelyard broker`: servers in the foreground.

Each prints one line when clients can use it, and stops cleanly on SIGTERM and SIGINT. This module loads little:
`up` starts its servers before it does anything else, and stays small.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from steelyard.admin import exits
from steelyard.errors import ArgumentError, ConfigError, SteelyardError
from steelyard.printable import printable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from steelyard.servers.server import Server
    from steelyard.servers.supervisor import Layout

REGISTER_SECONDS = 5.0
"""How long a broker waits for its nameserver before it says that it is ready all the same."""

HOST = "127.0.0.1"

TABLES = ("up", "nameserver", "broker")
"""Of a settings file: one for each command; the brokers of `up` have that of `broker`."""

LAYOUT = (
    "brokers",
    "data",
    "host",
    "nameserver_port",
    "broker_port",
    "kafka_port",
    "restarts_max",
)
"""Settings of `up`, which are options, too."""

FROM_UP = ("name", "address", "nameservers", "kafka.address", "kafka.node_id", "kafka.brokers")
"""Settings that `up` gives to each broker."""

FOR_BOTH = ("max_connections", "max_connections_per_ip")
"""Settings of the brokers of `up` that its nameserver has, too."""


class _Sets(argparse.Action):
    """An option for the setting in `dest`: `--flush sync` is another way to write `--set flush=sync`."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, default=argparse.SUPPRESS, **options)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        value = self.const if self.nargs == 0 else values
        namespace.settings = [*namespace.settings, f"{self.dest}={value}"]


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    up = commands.add_parser(
        "up",
        help="start a nameserver and brokers",
        description="Start a nameserver and brokers, and start those that end again, until SIGTERM or Ctrl-C.",
        epilog=f"Exit codes: {exits.SUCCESS} stopped; {exits.FAILED} a server was given up; {exits.WRONG} a setting is"
        " wrong, or a port or data directory is in use.",
    )
    up.add_argument(
        "--brokers",
        type=int,
        metavar="N",
        help="number of brokers; default: 1",
    )
    up.add_argument(
        "--data",
        metavar="DIR",
        help="directory with a subdirectory for each broker; default: steelyard-data",
    )
    up.add_argument(
        "--nameserver-port",
        type=int,
        metavar="P",
        help="the nameserver's port (0: pick a free port); default: 9876",
    )
    up.add_argument(
        "--broker-port",
        type=int,
        metavar="P",
        help="first broker's port, the others follow (0: pick free ports); default: 10911",
    )
    up.add_argument(
        "--kafka-port",
        type=int,
        metavar="P",
        help="serve Kafka clients from this port on, one for each broker (0: pick free ports); default: not served",
    )
    up.add_argument(
        "--restarts-max",
        type=int,
        metavar="N",
        help="give a server up after so many restarts in a row (0: never restart); default: 10",
    )
    _add_serving_options(up)
    _add_broker_options(up)
    up.set_defaults(run=run_up)

    nameserver = commands.add_parser(
        "nameserver",
        help="start one nameserver",
        description="Start a nameserver; SIGTERM or Ctrl-C stops it.",
    )
    nameserver.add_argument(
        "--port",
        type=int,
        default=9876,
        metavar="P",
        help="port to listen on (0: pick a free port); default: %(default)s",
    )
    nameserver.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    nameserver.add_argument("--listener", type=int, help=argparse.SUPPRESS)
    _add_serving_options(nameserver)
    _add_settings(nameserver, "--set", example="broker_expiry_ms=30000")
    nameserver.set_defaults(run=run_nameserver, host=HOST)

    broker = commands.add_parser(
        "broker",
        help="start one broker",
        description="Start a broker; SIGTERM or Ctrl-C stops it.",
    )
    broker.add_argument(
        "--name",
        action=_Sets,
        help="a name unique in the cluster; default: broker-a",
    )
    broker.add_argument("--data", required=True, metavar="DIR", help="the broker's own directory")
    broker.add_argument(
        "--port",
        type=int,
        default=10911,
        metavar="P",
        help="port to listen on (0: pick a free port); default: %(default)s",
    )
    broker.add_argument(
        "--nameserver",
        action=_Sets,
        dest="nameservers",
        metavar="HOST:PORT[;HOST:PORT]",
        help="nameservers to register with; default: the variable NAMESRV_ADDR, or 127.0.0.1:9876",
    )
    broker.add_argument(
        "--advertise",
        action=_Sets,
        dest="address",
        metavar="HOST:PORT",
        help="address that clients connect to, if it is not the one listened on",
    )
    broker.add_argument(
        "--kafka-port",
        type=int,
        metavar="P",
        help="serve Kafka clients on this port (0: pick a free port); default: not served",
    )
    broker.add_argument(
        "--kafka-advertise",
        action=_Sets,
        dest="kafka.address",
        metavar="HOST:PORT",
        help="address that Kafka clients connect to, if it is not the one listened on",
    )
    broker.add_argument(
        "--node-id",
        action=_Sets,
        dest="kafka.node_id",
        metavar="N",
        help="the broker's id for Kafka clients, unique in the cluster; default: 1",
    )
    broker.add_argument(
        "--kafka-brokers",
        action=_Sets,
        dest="kafka.brokers",
        metavar="NAME,NAME",
        help="names of all brokers of the cluster; Kafka groups get their coordinators once all of them are running",
    )
    broker.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    _add_serving_options(broker)
    _add_broker_options(broker)
    broker.set_defaults(run=run_broker, host=HOST)


def _add_serving_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (0.0.0.0: all); default: 127.0.0.1")
    parser.add_argument("--json", action="store_true", help="print the ready line as JSON")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="log at level INFO; default: WARNING"
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML file with settings in the tables [up], [nameserver] and [broker]; options go before it",
    )
    for option, what in (
        ("--max-connections", "limit of RocketMQ clients' connections to one server"),
        ("--max-connections-per-ip", "limit of those from one IP address"),
    ):
        parser.add_argument(
            option,
            action=_Sets,
            metavar="N",
            help=f"{what}; default: as many as the limit of open files allows",
        )


def _add_settings(parser: argparse.ArgumentParser, *options: str, example: str) -> None:
    parser.add_argument(
        *options,
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help=f"any setting of docs/SETTINGS.md, such as {example}; may be repeated",
    )


def _add_broker_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--flush",
        action=_Sets,
        choices=("async", "sync"),
        help="acknowledge a message when the kernel (async) or the disk (sync) has it; default: async",
    )
    parser.add_argument(
        "--cluster", action=_Sets, help="the cluster's name; default: DefaultCluster"
    )
    parser.add_argument(
        "--no-ledger",
        action=_Sets,
        nargs=0,
        const="false",
        dest="ledger",
        help="do not write the rebalance ledger",
    )
    _add_settings(parser, "--set", "--kafka-set", example="store.retention_ms=3600000")


def _table(options: argparse.Namespace, name: str) -> Mapping[str, object]:
    """A table of the settings file; empty without a file. Raises ConfigError."""
    if options.config is None:
        return {}
    import tomllib

    from steelyard.checks import unknown

    where = f"--config {options.config}"
    try:
        with open(options.config, "rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not TOML: {error}") from None
    for each in tables:
        if each not in TABLES:
            raise ConfigError(f"{where}: {unknown('table', each, TABLES)}")
        if not isinstance(tables[each], dict):
            raise ConfigError(f"{where}: {each} is not a table; write [{each}]")
    table: Mapping[str, object] = tables.get(name, {})
    return table


def _from_file(options: argparse.Namespace, name: str, cls: type) -> dict[str, object]:
    """What the file says of the settings of a configuration. Raises ConfigError."""
    from steelyard.settings import from_table

    try:
        return from_table(cls, _table(options, name))
    except ArgumentError as error:
        raise ConfigError(f"--config {options.config}, [{name}]: {error}") from None


def _values(options: argparse.Namespace, name: str, cls: type) -> dict[str, object]:
    """The same, and what the options say, which go before it."""
    from steelyard.settings import from_texts

    return _from_file(options, name, cls) | from_texts(cls, options.settings)


def run_up(options: argparse.Namespace) -> int:
    from steelyard.servers.supervisor import Supervisor

    layout = _layout(options)
    shared = ["--verbose"] if options.verbose else []
    if options.config is not None:
        shared += ["--config", os.path.abspath(options.config)]
    passed = [f"--set={each}" for each in options.settings]
    both = [each for each in passed if each.partition("=")[2].partition("=")[0] in FOR_BOTH]
    supervisor = Supervisor(layout, [*passed, *shared], [*both, *shared])
    with supervisor.signals(), supervisor:
        ready = supervisor.start()
        if ready is None:
            return 0
        _say_up(options, ready)
        return supervisor.wait()


def _layout(options: argparse.Namespace) -> Layout:
    """What `up` starts. What is wrong with the servers' settings is said here, once, and not by each of them."""
    from steelyard.servers.supervisor import Layout

    given = {name: getattr(options, name) for name in LAYOUT}
    given = {name: value for name, value in given.items() if value is not None}
    if options.config is None and not options.settings:
        return Layout(**given)
    from steelyard.config import BrokerConfig, NameserverConfig
    from steelyard.settings import build

    broker = _values(options, "broker", BrokerConfig)
    for name in FROM_UP:
        if name in broker:
            raise ConfigError(
                f"{name} cannot be set here: `steelyard up` gives each broker its own"
            )
    build(BrokerConfig, broker)
    build(NameserverConfig, _from_file(options, "nameserver", NameserverConfig))
    return build(Layout, _from_file(options, "up", Layout) | given)


def _say_up(options: argparse.Namespace, ready: dict[str, object]) -> None:
    if options.json:
        _say(json.dumps(ready))
        return
    brokers = ready["brokers"]
    assert isinstance(brokers, dict)
    named = ", ".join(f"{name} at {address}" for name, address in brokers.items())
    kafka = f", Kafka at {ready['kafka']}" if "kafka" in ready else ""
    _say(f"ready: nameserver at {ready['nameserver']}, {named}{kafka}")


def run_nameserver(options: argparse.Namespace) -> int:
    return _run_supervised(options, _serve_nameserver(options))


async def _serve_nameserver(options: argparse.Namespace) -> int:
    import socket

    from steelyard.config import NameserverConfig
    from steelyard.servers.server import serve_nameserver, stop_signals, until_stopped
    from steelyard.settings import build

    stop = stop_signals()
    listener = None if options.listener is None else socket.socket(fileno=options.listener)
    config = build(NameserverConfig, _values(options, "nameserver", NameserverConfig))
    server = await serve_nameserver(options.host, options.port, config=config, listener=listener)
    if options.supervised:
        _report(address=server.address)
        code = await until_stopped(server.driver, stop, _end_of_input())
    else:
        _say_ready(options, "nameserver", server)
        code = await until_stopped(server.driver, stop)
    await server.stop()
    return code


def run_broker(options: argparse.Namespace) -> int:
    return _run_supervised(options, _serve_broker(options))


async def _serve_broker(options: argparse.Namespace) -> int:
    import asyncio

    from steelyard.client.settings import nameserver_addresses
    from steelyard.config import BrokerConfig
    from steelyard.nodes.broker.peers.joining import AwaitRefusal
    from steelyard.servers.server import serve_broker, stop_signals, until_stopped
    from steelyard.settings import build

    stop = stop_signals()
    values: dict[str, Any] = _values(options, "broker", BrokerConfig)
    nameservers = nameserver_addresses(values.get("nameservers"))
    config = build(BrokerConfig, {**values, "nameservers": nameservers})
    server = await serve_broker(
        options.data,
        host=options.host,
        port=options.port,
        advertise=values.get("address"),
        config=config,
        kafka_port=options.kafka_port,
        kafka_advertise=values.get("kafka.address"),
    )
    refusal = server.driver.ask(AwaitRefusal())
    waits: list[asyncio.Future[object]] = [
        asyncio.ensure_future(_known(server, config.name, nameservers)),
        asyncio.ensure_future(stop.wait()),
    ]
    done, _ = await asyncio.wait(
        [*waits, refusal], timeout=REGISTER_SECONDS, return_when=asyncio.FIRST_COMPLETED
    )
    for wait in waits:
        wait.cancel()
    await _stop_refused(server, refusal)
    if not done:
        print(
            f"steelyard: {config.name} is not registered with {';'.join(nameservers)} yet",
            file=sys.stderr,
        )
    if options.supervised:
        _report(address=server.address, kafka=server.kafka)
        code = await until_stopped(server.driver, stop, refusal, _end_of_input())
    else:
        _say_ready(options, "broker", server)
        code = await until_stopped(server.driver, stop, refusal)
    await _stop_refused(server, refusal)
    await server.stop()
    return code


async def _stop_refused(server: Server, refusal: asyncio.Future[object]) -> None:
    """Where another broker has what is ours: stop, and raise the ConfigError that says so."""
    if refusal.done() and not refusal.cancelled():
        error = refusal.exception()
        if isinstance(error, ConfigError):
            await server.stop()
            raise error


async def _known(server: Server, name: str, nameservers: tuple[str, ...]) -> None:
    """Wait until clients of either dialect find the broker."""
    from steelyard.nodes.broker.node import KafkaReady
    from steelyard.servers.server import registered

    await registered(name, server.address, nameservers)
    if server.kafka:
        await server.driver.ask(KafkaReady())


async def _end_of_input() -> None:
    """Returns when standard input ends: the supervisor stops us, or is gone."""
    import asyncio

    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await reader.read()


def _report(*, address: str = "", kafka: str = "", error: str = "") -> None:
    from steelyard.servers.children import report_line

    _say(report_line(address=address, kafka=kafka, error=error))


def _say_ready(options: argparse.Namespace, kind: str, server: Server) -> None:
    if options.json:
        _say(json.dumps({kind: server.address} | ({"kafka": server.kafka} if server.kafka else {})))
    else:
        kafka = f", Kafka at {server.kafka}" if server.kafka else ""
        _say(f"ready: {kind} at {server.address}{kafka}")


def _say(line: str) -> None:
    print(printable(line), flush=True)


def _run_supervised(options: argparse.Namespace, main: Coroutine[None, None, int]) -> int:
    """As `_run_logging`; what is wrong is reported to the supervisor where there is one."""
    try:
        return _run_logging(options, main)
    except SteelyardError as error:
        if not options.supervised:
            raise
        _report(error=str(error))
        return exits.WRONG


def _run_logging(options: argparse.Namespace, main: Coroutine[None, None, int]) -> int:
    """Run on a new loop, with the log on standard error."""
    from steelyard.admin.asking import log_to_stderr
    from steelyard.driver.loops import run

    log_to_stderr("INFO" if options.verbose else "WARNING")
    return run(main)
