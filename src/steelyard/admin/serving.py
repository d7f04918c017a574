"""`steelyard up`, `steelyard nameserver`, `steelyard broker`: servers in the foreground.

Each prints one line when clients can use it, and stops cleanly on SIGTERM and SIGINT.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from steelyard.admin.asking import log_to_stderr
from steelyard.errors import SteelyardError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from steelyard.live.server import Server
    from steelyard.live.supervisor import Supervisor

EXIT_WRONG = 2

REGISTER_SECONDS = 5.0
"""How long a broker waits for its nameserver before it says that it is ready all the same."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    up = commands.add_parser("up", help="start a nameserver and brokers")
    up.add_argument("--brokers", type=int, default=1, metavar="N", help="how many; default 1")
    up.add_argument(
        "--data", default="steelyard-data", metavar="DIR", help="a folder per broker in it"
    )
    up.add_argument("--nameserver-port", type=int, default=9876, metavar="P", help="0: a free one")
    up.add_argument(
        "--broker-port", type=int, default=10911, metavar="P", help="of the first; 0: free ones"
    )
    _add_serving_options(up)
    _add_broker_options(up)
    up.set_defaults(run=run_up)

    nameserver = commands.add_parser("nameserver", help="start one nameserver")
    nameserver.add_argument("--port", type=int, default=9876, metavar="P", help="0: a free one")
    _add_serving_options(nameserver)
    nameserver.set_defaults(run=run_nameserver)

    broker = commands.add_parser("broker", help="start one broker")
    broker.add_argument("--name", default="broker-a", help="unique in its cluster")
    broker.add_argument("--data", required=True, metavar="DIR", help="the broker's own folder")
    broker.add_argument("--port", type=int, default=10911, metavar="P", help="0: a free one")
    broker.add_argument("--nameserver", metavar="HOST:PORT", help="several separated by ';'")
    broker.add_argument(
        "--advertise", metavar="HOST:PORT", help="what clients are told to connect to"
    )
    broker.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    _add_serving_options(broker)
    _add_broker_options(broker)
    broker.set_defaults(run=run_broker)


def _add_serving_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="listen here; 0.0.0.0: everywhere")
    parser.add_argument("--json", action="store_true", help="the ready line as JSON")
    parser.add_argument("-v", "--verbose", action="store_true", help="log more to standard error")


def _add_broker_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--flush",
        choices=("async", "sync"),
        default="async",
        help="acknowledge when the kernel (async) or the disk (sync) has a message",
    )
    parser.add_argument("--cluster", default="DefaultCluster", help="the cluster's name")
    parser.add_argument("--no-ledger", action="store_true", help="write no rebalance ledger")


def run_up(options: argparse.Namespace) -> int:
    from steelyard.live.supervisor import Layout, Supervisor

    passed = ["--flush", options.flush, "--cluster", options.cluster]
    passed += ["--no-ledger"] if options.no_ledger else []
    passed += ["--verbose"] if options.verbose else []
    supervisor = Supervisor(
        Layout(
            brokers=options.brokers,
            data=options.data,
            host=options.host,
            nameserver_port=options.nameserver_port,
            broker_port=options.broker_port,
            options=tuple(passed),
        )
    )
    supervisor.spawn()
    return _run_logging(options, _serve_up(options, supervisor))


async def _serve_up(options: argparse.Namespace, supervisor: Supervisor) -> int:
    ready = await supervisor.start()
    if options.json:
        _say(json.dumps(ready))
    else:
        brokers = ready["brokers"]
        assert isinstance(brokers, dict)
        named = ", ".join(f"{name} at {address}" for name, address in brokers.items())
        _say(f"ready: nameserver at {ready['nameserver']}, {named}")
    return await supervisor.wait()


def run_nameserver(options: argparse.Namespace) -> int:
    return _run_logging(options, _serve_nameserver(options))


async def _serve_nameserver(options: argparse.Namespace) -> int:
    from steelyard.live.server import serve_nameserver, stop_signals, until_stopped

    stop = stop_signals()
    server = await serve_nameserver(options.host, options.port)
    _say_ready(options, "nameserver", server)
    code = await until_stopped(server.driver, stop)
    await server.stop()
    return code


def run_broker(options: argparse.Namespace) -> int:
    try:
        return _run_logging(options, _serve_broker(options))
    except SteelyardError as error:
        if not options.supervised:
            raise
        _report(error=str(error))
        return EXIT_WRONG


async def _serve_broker(options: argparse.Namespace) -> int:
    import asyncio

    from steelyard.config import BrokerConfig
    from steelyard.live.server import registered, serve_broker, stop_signals, until_stopped
    from steelyard.live.settings import nameserver_addresses

    stop = stop_signals()
    nameservers = nameserver_addresses(options.nameserver)
    config = BrokerConfig(
        name=options.name,
        cluster=options.cluster,
        nameservers=nameservers,
        flush=options.flush,
        ledger=not options.no_ledger,
    )
    server = await serve_broker(
        options.data,
        host=options.host,
        port=options.port,
        advertise=options.advertise,
        config=config,
    )
    waits = [
        asyncio.ensure_future(registered(config.name, server.address, nameservers)),
        asyncio.ensure_future(stop.wait()),
    ]
    done, _ = await asyncio.wait(
        waits, timeout=REGISTER_SECONDS, return_when=asyncio.FIRST_COMPLETED
    )
    for wait in waits:
        wait.cancel()
    if not done:
        print(
            f"steelyard: {config.name} is not registered with {';'.join(nameservers)} yet",
            file=sys.stderr,
        )
    if options.supervised:
        _report(address=server.address)
        code = await until_stopped(server.driver, stop, _end_of_input())
    else:
        _say_ready(options, "broker", server)
        code = await until_stopped(server.driver, stop)
    await server.stop()
    return code


async def _end_of_input() -> None:
    """Returns when standard input ends: the supervisor stops us, or is gone."""
    import asyncio

    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await reader.read()


def _report(*, address: str = "", error: str = "") -> None:
    from steelyard.live.supervisor import report_line

    _say(report_line(address=address, error=error))


def _say_ready(options: argparse.Namespace, kind: str, server: Server) -> None:
    if options.json:
        _say(json.dumps({kind: server.address}))
    else:
        _say(f"ready: {kind} at {server.address}")


def _say(line: str) -> None:
    print(line, flush=True)


def _run_logging(options: argparse.Namespace, main: Coroutine[None, None, int]) -> int:
    """Run on a new loop, with the log on standard error."""
    from steelyard.live.loops import run

    log_to_stderr("INFO" if options.verbose else "WARNING")
    return run(main)
