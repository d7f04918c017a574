"""`steelyard up`, `steelyard nameserver`, `steelyard broker`: servers in the foreground.

Each prints one line when clients can use it, and stops cleanly on SIGTERM and SIGINT. This module loads little:
`up` starts its servers before it does anything else, and stays small.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from steelyard.admin import exits
from steelyard.errors import ConfigError, SteelyardError
from steelyard.printable import printable
from steelyard.servers.restarts import RESTARTS_MAX, RestartPolicy

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from steelyard.servers.server import Server

REGISTER_SECONDS = 5.0
"""How long a broker waits for its nameserver before it says that it is ready all the same."""


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
        default=1,
        metavar="N",
        help="number of brokers; default: %(default)s",
    )
    up.add_argument(
        "--data",
        default="steelyard-data",
        metavar="DIR",
        help="directory with a subdirectory for each broker; default: %(default)s",
    )
    up.add_argument(
        "--nameserver-port",
        type=int,
        default=9876,
        metavar="P",
        help="the nameserver's port (0: pick a free port); default: %(default)s",
    )
    up.add_argument(
        "--broker-port",
        type=int,
        default=10911,
        metavar="P",
        help="first broker's port, the others follow (0: pick free ports); default: %(default)s",
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
        default=RESTARTS_MAX,
        metavar="N",
        help="give a server up after so many restarts in a row (0: never restart); default: %(default)s",
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
    nameserver.set_defaults(run=run_nameserver)

    broker = commands.add_parser(
        "broker",
        help="start one broker",
        description="Start a broker; SIGTERM or Ctrl-C stops it.",
    )
    broker.add_argument(
        "--name", default="broker-a", help="a name unique in the cluster; default: %(default)s"
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
        metavar="HOST:PORT[;HOST:PORT]",
        help="nameservers to register with; default: the variable NAMESRV_ADDR, or 127.0.0.1:9876",
    )
    broker.add_argument(
        "--advertise",
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
        metavar="HOST:PORT",
        help="address that Kafka clients connect to, if it is not the one listened on",
    )
    broker.add_argument(
        "--node-id",
        type=int,
        default=1,
        metavar="N",
        help="the broker's id for Kafka clients, unique in the cluster; default: %(default)s",
    )
    broker.add_argument(
        "--kafka-brokers",
        metavar="NAME,NAME",
        default="",
        help="names of all brokers of the cluster; Kafka groups get their coordinators once all of them are running",
    )
    broker.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    _add_serving_options(broker)
    _add_broker_options(broker)
    broker.set_defaults(run=run_broker)


def _add_serving_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (0.0.0.0: all); default: %(default)s",
    )
    parser.add_argument("--json", action="store_true", help="print the ready line as JSON")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="log at level INFO; default: WARNING"
    )
    for option, what in (
        ("--max-connections", "limit of RocketMQ clients' connections to one server"),
        ("--max-connections-per-ip", "limit of those from one IP address"),
    ):
        parser.add_argument(
            option,
            type=int,
            metavar="N",
            help=f"{what}; default: as many as the limit of open files allows",
        )


def _add_broker_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--flush",
        choices=("async", "sync"),
        default="async",
        help="acknowledge a message when the kernel (async) or the disk (sync) has it; default: %(default)s",
    )
    parser.add_argument(
        "--cluster", default="DefaultCluster", help="the cluster's name; default: %(default)s"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help="a storage setting, such as retention_ms=3600000; may be repeated",
    )
    parser.add_argument(
        "--no-ledger", action="store_true", help="do not write the rebalance ledger"
    )
    parser.add_argument(
        "--kafka-set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Kafka broker setting, such as group.initial.rebalance.delay.ms=3000; may be repeated",
    )


def _connection_bounds(options: argparse.Namespace) -> dict[str, int]:
    """Those that were given, by their names in the configuration."""
    bounds = {
        name: getattr(options, name) for name in ("max_connections", "max_connections_per_ip")
    }
    return {name: bound for name, bound in bounds.items() if bound is not None}


def run_up(options: argparse.Namespace) -> int:
    from steelyard.servers.supervisor import Layout, Supervisor

    verbose = ["--verbose"] if options.verbose else []
    passed = ["--flush", options.flush, "--cluster", options.cluster]
    passed += ["--no-ledger"] if options.no_ledger else []
    if options.kafka_set or options.settings:
        from steelyard.config import kafka_config, store_config

        kafka_config(options.kafka_set)  # what is wrong is said once, not by every broker
        store_config(options.settings, options.kafka_set)
    passed += [f"--kafka-set={setting}" for setting in options.kafka_set]
    passed += [f"--set={setting}" for setting in options.settings]
    bounds = [
        f"--{name.replace('_', '-')}={bound}" for name, bound in _connection_bounds(options).items()
    ]
    layout = Layout(
        brokers=options.brokers,
        data=options.data,
        host=options.host,
        nameserver_port=options.nameserver_port,
        broker_port=options.broker_port,
        kafka_port=options.kafka_port,
        options=(*passed, *bounds, *verbose),
        nameserver_options=(*bounds, *verbose),
        restarts=RestartPolicy(restarts_max=options.restarts_max),
    )
    supervisor = Supervisor(layout)
    with supervisor.signals(), supervisor:
        ready = supervisor.start()
        if ready is None:
            return 0
        _say_up(options, ready)
        return supervisor.wait()


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

    stop = stop_signals()
    listener = None if options.listener is None else socket.socket(fileno=options.listener)
    config = NameserverConfig(**_connection_bounds(options))
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
    from dataclasses import replace

    from steelyard.client.settings import nameserver_addresses
    from steelyard.config import BrokerConfig, kafka_config, store_config
    from steelyard.nodes.broker.peers.joining import AwaitRefusal
    from steelyard.servers.server import serve_broker, stop_signals, until_stopped

    stop = stop_signals()
    nameservers = nameserver_addresses(options.nameserver)
    config = BrokerConfig(
        name=options.name,
        cluster=options.cluster,
        nameservers=nameservers,
        flush=options.flush,
        ledger=not options.no_ledger,
        kafka=kafka_config(options.kafka_set, options.node_id, _names(options.kafka_brokers)),
        store=store_config(options.settings, options.kafka_set),
    )
    config = replace(config, **_connection_bounds(options))  # type: ignore[arg-type]  # both are numbers
    server = await serve_broker(
        options.data,
        host=options.host,
        port=options.port,
        advertise=options.advertise,
        config=config,
        kafka_port=options.kafka_port,
        kafka_advertise=options.kafka_advertise,
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


def _names(text: str) -> tuple[str, ...]:
    """The names in a list with commas; none in an empty one."""
    return tuple(name.strip() for name in text.split(",")) if text.strip() else ()


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
