"""`steelyard up`, `nameserver`, `broker`, `http` and `console`: servers in the foreground.

Each prints one line when clients can use it, and stops cleanly on SIGTERM and SIGINT. This module
loads little: `up` starts its servers before it does anything else, and stays small.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from steelyard.admin import exits, server_options
from steelyard.driver.log_lines import JSON, TEXT, own_line
from steelyard.errors import ConfigError, SteelyardError
from steelyard.printable import printable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from steelyard.config import HttpConfig
    from steelyard.servers.deployment import Deployment
    from steelyard.servers.server import LocalServer
    from steelyard.web.serving import HttpServer

STDIN = 0
"""The descriptor of standard input, which may not be open."""

Run = Callable[[argparse.Namespace], int]

REGISTER_SECONDS = 5.0
"""How long a broker waits for its nameserver before it says that it is ready all the same."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    server_options.add_up(commands).set_defaults(run=_logging_errors(run_up))
    server_options.add_nameserver(commands).set_defaults(run=_logging_errors(run_nameserver))
    server_options.add_broker(commands).set_defaults(run=_logging_errors(run_broker))
    server_options.add_http(commands).set_defaults(run=_logging_errors(run_http))
    server_options.add_console(commands).set_defaults(run=_logging_errors(run_console))


def _logging_errors(run: Run) -> Run:
    """Wrap a command: with `--log-format json` its final error, too, is a line of JSON."""

    def wrapped(options: argparse.Namespace) -> int:
        try:
            return run(options)
        except SteelyardError as error:
            if options.log_format == TEXT:
                raise
            print(own_line(options.log_format, "ERROR", "", printable(str(error))), file=sys.stderr)
            return exits.code_of(error)

    return wrapped


def run_up(options: argparse.Namespace) -> int:
    from steelyard.servers.deployment import warnings_of
    from steelyard.servers.supervisor import Supervisor

    layout = server_options.layout(options)
    server_options.check_effects(options, layout)
    if layout.http_port is not None:
        _check_http_packages()
    supervisor = Supervisor(
        layout,
        *server_options.passed_on(options),
        log_format=options.log_format,
    )
    with supervisor.signals(), supervisor:
        if options.until_stdin_closes:
            supervisor.watch(STDIN)
        ready = supervisor.start()
        if ready is None:
            return 0
        for text in (*warnings_of(layout), *_exposed_up(options, layout)):
            _warn(options, "up", text)
        _say_up(options, ready)
        return supervisor.wait()


def _says_json(options: argparse.Namespace) -> bool:
    """Return whether the ready line is JSON: journald, and others, put it among the log lines."""
    return bool(options.json) or options.log_format == JSON


def _exposed_up(options: argparse.Namespace, layout: Deployment) -> list[str]:
    from steelyard.addresses import is_loopback
    from steelyard.driver.listening import exposed, kafka_doors, remoting_doors

    if is_loopback(layout.host):
        return []
    from steelyard.config import BrokerConfig, KafkaConfig
    from steelyard.settings import build

    config = build(BrokerConfig, server_options.values(options, "broker", BrokerConfig))
    doors = remoting_doors("the RocketMQ ports", has_logins=config.has_logins)
    if layout.kafka_port is not None:
        doors |= kafka_doors(has_logins=(config.kafka or KafkaConfig()).has_logins)
    return exposed(layout.host, doors)


def _say_up(options: argparse.Namespace, ready: dict[str, object]) -> None:
    if _says_json(options):
        _say(json.dumps(ready))
        return
    brokers = ready["brokers"]
    assert isinstance(brokers, dict)
    named = ", ".join(f"{name} at {address}" for name, address in brokers.items())
    kafka = f", Kafka at {ready['kafka']}" if "kafka" in ready else ""
    http = ""
    if "http" in ready:
        http = f", console at http://{ready['http']}, metrics at http://{ready['http']}/metrics"
    _say(f"ready: nameserver at {ready['nameserver']}, {named}{kafka}{http}")


def run_nameserver(options: argparse.Namespace) -> int:
    return _run_supervised(options, _serve_nameserver(options))


async def _serve_nameserver(options: argparse.Namespace) -> int:
    import socket

    from steelyard.config import NameserverConfig
    from steelyard.driver.listening import exposed, remoting_doors
    from steelyard.servers.server import serve_nameserver, stop_signals, until_stopped
    from steelyard.settings import build

    stop = stop_signals()
    listener = None if options.listener is None else socket.socket(fileno=options.listener)
    _name_log("nameserver")
    config = build(NameserverConfig, server_options.values(options, "nameserver", NameserverConfig))
    server = await serve_nameserver(options.host, options.port, config=config, listener=listener)
    if options.supervised:
        _report(address=server.address)
        code = await until_stopped(server.driver, stop, _end_of_input())
    else:
        doors = remoting_doors("the nameserver", has_logins=config.has_logins)
        for text in exposed(options.host, doors):
            _warn(options, "nameserver", text)
        _say_ready(options, "nameserver", server)
        code = await until_stopped(server.driver, stop)
    await server.stop()
    return code


def run_broker(options: argparse.Namespace) -> int:
    return _run_supervised(options, _serve_broker(options))


async def _serve_broker(options: argparse.Namespace) -> int:
    import asyncio

    from steelyard.client.settings import nameserver_addresses
    from steelyard.config import BrokerConfig, KafkaConfig
    from steelyard.driver.listening import exposed, kafka_doors, remoting_doors, unreachable
    from steelyard.nodes.broker.peers.joining import AwaitRefusal
    from steelyard.servers.server import serve_broker, stop_signals, until_stopped
    from steelyard.settings import build

    stop = stop_signals()
    values: dict[str, Any] = server_options.values(options, "broker", BrokerConfig)
    nameservers = nameserver_addresses(values.get("nameservers"))
    config = build(BrokerConfig, {**values, "nameservers": nameservers})
    _name_log(config.name)
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
        asyncio.ensure_future(server.known()),
        asyncio.ensure_future(stop.wait()),
    ]
    done, _ = await asyncio.wait(
        [*waits, refusal], timeout=REGISTER_SECONDS, return_when=asyncio.FIRST_COMPLETED
    )
    for wait in waits:
        wait.cancel()
    await _stop_refused(server, refusal)
    if not done:
        _warn(
            options,
            config.name,
            f"{config.name} is not registered with {';'.join(nameservers)} yet",
        )
    if options.supervised:
        _report(address=server.address, kafka=server.kafka)
        code = await until_stopped(server.driver, stop, refusal, _end_of_input())
    else:
        advertised = filter(None, (server.address, server.kafka))
        for text in unreachable(options.host, (each.rpartition(":")[0] for each in advertised)):
            _warn(options, config.name, text)
        doors = remoting_doors("the RocketMQ port", has_logins=config.has_logins)
        if server.kafka:
            doors |= kafka_doors(has_logins=(config.kafka or KafkaConfig()).has_logins)
        for text in exposed(options.host, doors):
            _warn(options, config.name, text)
        _say_ready(options, "broker", server)
        code = await until_stopped(server.driver, stop, refusal)
    await _stop_refused(server, refusal)
    await server.stop()
    return code


def run_http(options: argparse.Namespace) -> int:
    return _run_supervised(options, _serve_http(options))


async def _serve_http(options: argparse.Namespace) -> int:
    from steelyard.admin.asking import credentials
    from steelyard.client.environment import kafka_login
    from steelyard.servers.server import stop_signals

    config = _http_config(options)
    http = _http_server_class()
    stop = stop_signals()
    server = http(
        config,
        host=options.host,
        port=options.port,
        access=credentials(),
        login=kafka_login(),
        option="" if options.supervised else "--port",
    )
    console = f"console at http://{server.address}, " if config.console else ""
    ready = f"ready: {console}metrics at http://{server.address}/metrics"
    return await _run_http_server(options, config, server, stop, ready)


def run_console(options: argparse.Namespace) -> int:
    return _run_logging(options, _serve_console(options))


async def _serve_console(options: argparse.Namespace) -> int:
    from dataclasses import replace

    from steelyard.admin.asking import credentials
    from steelyard.client.environment import kafka_login
    from steelyard.client.settings import tls_context
    from steelyard.servers.server import stop_signals

    kafka = await _kafka_brokers(options)
    config = replace(_http_config(options), console=True)
    http = _http_server_class()
    stop = stop_signals()
    server = http(
        config,
        host=options.host,
        port=options.port,
        kafka=kafka,
        tls=tls_context(options.tls),
        access=credentials(),
        login=kafka_login(),
        option="--http",
    )
    url = f"http://{server.address}/"
    if options.open:
        import webbrowser

        webbrowser.open(url)
    return await _run_http_server(options, config, server, stop, f"ready: console at {url}")


async def _kafka_brokers(options: argparse.Namespace) -> list[str]:
    """Return the addresses of --kafka. Raises ConfigError, or ConnectError for another server."""
    if options.kafka is None:
        return []
    from steelyard.admin.asking import kafka_brokers
    from steelyard.admin.ports import listening, wrong_port
    from steelyard.errors import ConnectError
    from steelyard.wire.strangers import ServerKind

    kafka = kafka_brokers(options.kafka)
    for address in () if options.tls else kafka:
        found = await listening(address, ServerKind.KAFKA)
        if found not in (None, ServerKind.KAFKA):
            assert found is not None
            raise ConnectError(wrong_port(address, found, ServerKind.KAFKA, options))
    return kafka


HTTP_PACKAGES = ("prometheus_client", "starlette", "uvicorn")
"""Of the extra `http`."""


def _check_http_packages() -> None:
    """Raise ConfigError if one is missing, without loading any."""
    from importlib.util import find_spec

    for package in HTTP_PACKAGES:
        if find_spec(package) is None:
            raise ConfigError(_missing(f"No module named {package!r}"))


def _missing(reason: object) -> str:
    return f"HTTP needs more packages: pip install 'steelyard[http]' ({reason})"


def _http_server_class() -> type[HttpServer]:
    try:
        from steelyard.web.serving import HttpServer
    except ModuleNotFoundError as error:
        raise ConfigError(_missing(error)) from None
    return HttpServer


def _http_config(options: argparse.Namespace) -> HttpConfig:
    from steelyard.client.settings import nameserver_addresses
    from steelyard.config import HttpConfig
    from steelyard.settings import build

    values: dict[str, Any] = server_options.values(options, "http", HttpConfig)
    nameservers = nameserver_addresses(values.get("nameservers"))
    return build(HttpConfig, {**values, "nameservers": nameservers})


async def _run_http_server(
    options: argparse.Namespace,
    config: HttpConfig,
    server: HttpServer,
    stop: asyncio.Event,
    ready: str,
) -> int:
    """Serve until a signal comes, or whoever supervises this has ended. `ready`: what to say."""
    import asyncio

    from steelyard.addresses import is_loopback

    if not is_loopback(options.host):
        changes = ", and may reset offsets and delete topics," if config.allow_changes else ""
        _warn(
            options,
            "http",
            f"whoever reaches http://{server.address} sees groups and messages there{changes}"
            " without a login; to keep it to this machine: --http-host 127.0.0.1 of `up`, otherwise"
            " --host",
        )
    async with server:
        waits = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(server.ended())]
        if options.supervised:
            _report(address=server.address)
            waits.append(asyncio.ensure_future(_end_of_input()))
        elif _says_json(options):
            _say(json.dumps({"http": server.address}))
        else:
            _say(ready)
        done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in pending:
            wait.cancel()
        for wait in done:
            wait.result()
    return exits.SUCCESS


async def _stop_refused(server: LocalServer, refusal: asyncio.Future[object]) -> None:
    """Where another broker has what is ours: stop, and raise the ConfigError that says so."""
    if refusal.done() and not refusal.cancelled():
        error = refusal.exception()
        if isinstance(error, ConfigError):
            await server.stop()
            raise error


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


def _say_ready(options: argparse.Namespace, kind: str, server: LocalServer) -> None:
    if _says_json(options):
        _say(json.dumps({kind: server.address} | ({"kafka": server.kafka} if server.kafka else {})))
    else:
        kafka = f", Kafka at {server.kafka}" if server.kafka else ""
        _say(f"ready: {kind} at {server.address}{kafka}")


def _warn(options: argparse.Namespace, server: str, text: str) -> None:
    print(own_line(options.log_format, "WARNING", server, printable(text)), file=sys.stderr)


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
    from steelyard.driver.logs import JsonLines
    from steelyard.driver.loops import run

    formatter = JsonLines() if options.log_format == JSON else None
    log_to_stderr("INFO" if options.verbose else "WARNING", formatter)
    return run(main)


def _name_log(server: str) -> None:
    """Put the server's name into the lines of the log from now on, if they are JSON."""
    import logging

    from steelyard.driver.logs import JsonLines

    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonLines):
            handler.formatter.server = server
