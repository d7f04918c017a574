"""The options of `steelyard up`, `nameserver`, `broker`, `http` and `console`, and of the file.

Many an option is another way to write a setting: `--flush sync` is `--set flush=sync`. This module
loads little, as `serving`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from steelyard.admin import exits
from steelyard.driver.log_lines import FORMATS, TEXT
from steelyard.errors import ArgumentError, ConfigError

if TYPE_CHECKING:
    from steelyard.servers.deployment import Deployment

HOST = "127.0.0.1"

TABLES = ("up", "nameserver", "broker", "http")
"""Of a settings file: one for each command; the brokers of `up` have that of `broker`."""

CONSOLE_PORT = 9470
"""Default port of `console`."""

HTTP_OF_UP = ("nameservers", "brokers", "address_translation")
"""Settings that `up` gives to its HTTP server."""

UP = (
    ("--brokers", int, "N", "number of brokers; default: 1"),
    ("--data", str, "DIR", "directory with a subdirectory for each broker; default: steelyard-data"),
    ("--nameserver-port", int, "P", "the nameserver's port (0: pick a free port); default: 9876"),
    ("--broker-port", int, "P", "first broker's port, the others follow (0: pick free ports); default: 10911"),
    ("--kafka-port", int, "P", "first broker's Kafka port, the others follow (0: pick free ports); default: Kafka is not served"),
    ("--advertise", str, "HOST[:FIRST_PORT]", "host that RocketMQ clients connect to, and the first broker's port there, the others follow; default: the host and ports listened on"),
    ("--kafka-advertise", str, "HOST[:FIRST_PORT]", "the same for Kafka clients"),
    ("--restarts-max", int, "N", "give up a server after this many restarts in a row (0: never restart); default: 10"),
)  # fmt: skip
"""Options of `up`, which are settings of the table [up]; so are `--http` and `--http-host`."""

BROKER = (
    ("--name", "name", "NAME", "a name unique in the cluster; default: broker-a"),
    ("--nameserver", "nameservers", "HOST:PORT[;HOST:PORT]", "nameservers to register with; default: the variable NAMESRV_ADDR, or 127.0.0.1:9876"),
    ("--advertise", "address", "HOST:PORT", "address that clients connect to, if it is not the one listened on"),
    ("--kafka-advertise", "kafka.address", "HOST:PORT", "address that Kafka clients connect to, if it is not the one listened on"),
    ("--node-id", "kafka.node_id", "N", "the broker's id for Kafka clients, unique in the cluster; default: 1"),
    ("--kafka-brokers", "kafka.brokers", "NAME,NAME", "names of all brokers of the cluster; Kafka groups get their coordinators once all of them are running"),
)  # fmt: skip
"""Options of `broker`, and the settings that they are."""

BOUNDS = (
    ("--max-connections", "max_connections", "maximum number of RocketMQ connections per server"),
    ("--max-connections-per-ip", "max_connections_per_ip", "maximum number of them per IP address"),
)  # fmt: skip


SECURITY = (
    ("--tls-mode", "tls.server_mode", "disabled|permissive|enforcing", "whether RocketMQ clients may, or must, connect with TLS; default: permissive, if there is a certificate"),
    ("--tls-certificate", "tls.server_cert_file", "FILE", "certificate of the RocketMQ ports and its chain, in PEM"),
    ("--tls-key", "tls.server_key_file", "FILE", "the certificate's key, in PEM; default: it is in the same file"),
    ("--tls-client-ca", "tls.server_trust_file", "FILE", "certificates, in PEM, of those who may sign the certificates of RocketMQ clients"),
    ("--tls-client-auth", "tls.server_need_client_auth", "none|optional|require", "whether RocketMQ clients must show a certificate; default: none"),
    ("--acl-file", "acl_file", "FILE", "YAML file with the accounts of RocketMQ clients, as plain_acl.yml; they must then sign their requests"),
)  # fmt: skip
"""Options of servers for their RocketMQ ports, and the settings that they are."""

ACL_ACCESS_KEY = (
    "--acl-access-key",
    "acl_access_key",
    "KEY",
    "the administrator's account in --acl-file with which brokers sign their own requests",
)
TLS_CA = (
    "--tls-ca",
    "tls_client.trust_file",
    "FILE",
    "connect to nameservers and brokers with TLS, and trust these certificates, in PEM, and any that they signed",
)
"""Options of servers that ask others."""

KAFKA_SECURITY = (
    ("--kafka-tls-certificate", "kafka.ssl_certificate_file", "FILE", "encrypt Kafka connections (TLS) with this certificate and its chain, in PEM"),
    ("--kafka-tls-key", "kafka.ssl_key_file", "FILE", "the certificate's key, in PEM; default: it is in the same file"),
    ("--kafka-tls-client-ca", "kafka.ssl_client_ca_file", "FILE", "certificates, in PEM, of those who may sign the certificates of Kafka clients"),
    ("--kafka-tls-client-auth", "kafka.ssl_client_auth", "none|requested|required", "whether Kafka clients must show a certificate; default: none"),
    ("--kafka-sasl", "kafka.sasl_enabled_mechanisms", "MECHANISM,MECHANISM", "Kafka clients log in, with PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER (see docs/OPERATIONS.md); default: they do not"),
    ("--users", "users_file", "FILE", "TOML file with users to create if they never existed: a table [NAME] with a password for each"),
    ("--kafka-authorizer", "kafka.authorizer", "none|acl", "whether access rules (ACLs) say what Kafka clients may do; default: none, everybody may do everything"),
    ("--kafka-super-users", "kafka.super_users", "User:NAME,User:NAME", "Kafka clients that may do everything, whatever the rules"),
)  # fmt: skip
"""Options of `up` and `broker` for the Kafka listener, and the settings that they are."""


class _Sets(argparse.Action):
    """An option for the setting in `dest`."""

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
        if option_string is not None and option_string.startswith("--kafka-"):
            namespace.kafka_options = [*getattr(namespace, "kafka_options", []), option_string]
        namespace.settings = [*namespace.settings, f"{self.dest}={value}"]


class _NamedOtherwise(argparse.Action):
    """An option of another command: names the one in `const` that this command has for it."""

    def __init__(self, option_strings: Sequence[str], dest: str, const: str) -> None:
        super().__init__(
            option_strings, argparse.SUPPRESS, nargs="?", const=const, help=argparse.SUPPRESS
        )

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        parser.error(f"the port is given with {self.const} here, not with {option_string}")


def add_up(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    up = commands.add_parser(
        "up",
        help="start a nameserver and brokers",
        description="Start a nameserver and brokers, and restart any that ends, until SIGTERM or"
        " Ctrl-C.",
        epilog=f"Exit codes: {exits.SUCCESS} stopped; {exits.FAILED} a server was given up;"
        f" {exits.WRONG} a setting is"
        " wrong, or a port or data directory is in use.",
    )
    for option, kind, metavar, text in UP:
        up.add_argument(option, type=kind, metavar=metavar, help=text)
    up.add_argument(
        "--until-stdin-closes",
        action="store_true",
        help="stop also when standard input, a pipe, is closed: whoever started this has ended",
    )
    up.add_argument(
        "--http",
        dest="http_port",
        type=int,
        metavar="P",
        help="serve the console, metrics and health over HTTP on this port (0: pick a free port);"
        " default: not served; needs pip install 'steelyard[http]'",
    )
    up.add_argument(
        "--http-host",
        metavar="ADDRESS",
        help="address that it listens on; default: that of --host",
    )
    _add_allow_changes(up, action="store_true")
    _add_serving_options(up)
    _add_broker_options(up)
    return up


def add_nameserver(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    nameserver = commands.add_parser(
        "nameserver",
        help="start one nameserver",
        description="Start a nameserver; SIGTERM or Ctrl-C stops it.",
        epilog=exits.SERVERS_EXPLAINED,
    )
    _add_own_options(nameserver, 9876)
    nameserver.add_argument("--listener", type=int, help=argparse.SUPPRESS)
    _add_serving_options(nameserver)
    _add_set_options(nameserver, SECURITY)
    _add_settings(nameserver, "--set", example="broker_expiry_ms=30000")
    return nameserver


def add_broker(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    broker = commands.add_parser(
        "broker",
        help="start one broker",
        description="Start a broker; SIGTERM or Ctrl-C stops it.",
        epilog=exits.SERVERS_EXPLAINED,
    )
    broker.add_argument("--data", required=True, metavar="DIR", help="the broker's own directory")
    _add_own_options(broker, 10911)
    broker.add_argument(
        "--kafka-port",
        type=int,
        metavar="P",
        help="serve Kafka clients on this port (0: pick a free port); default: not served",
    )
    _add_set_options(broker, BROKER)
    _add_serving_options(broker)
    _add_broker_options(broker)
    return broker


def add_http(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    http = commands.add_parser(
        "http",
        help="serve a cluster's metrics, health and console over HTTP",
        description="Serve /metrics, /healthz and /readyz of a cluster, and its console; SIGTERM or"
        " Ctrl-C stops it. `steelyard up --http` starts this, too.",
        epilog=exits.SERVERS_EXPLAINED,
    )
    _add_own_options(http, 9464)
    http.add_argument("--http", action=_NamedOtherwise, const="--port")
    option, setting, metavar, _ = BROKER[1]
    text = "nameservers of the cluster; default: the variable NAMESRV_ADDR, or 127.0.0.1:9876"
    http.add_argument(option, action=_Sets, dest=setting, metavar=metavar, help=text)
    http.add_argument(
        "--brokers",
        action=_Sets,
        metavar="NAME,NAME",
        help="names of brokers that must answer before the cluster is ready; default: those that"
        " are registered",
    )
    _add_set_options(http, [TLS_CA])
    _add_allow_changes(http, action=_Sets, nargs=0, const="true")
    _add_common_options(http)
    _add_settings(http, "--set", example="timeout_ms=1000")
    return http


def add_console(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    console = commands.add_parser(
        "console",
        help="serve the console of a cluster to browsers",
        description="Serve the console of a cluster of Steelyard, Apache RocketMQ or Apache Kafka;"
        " SIGTERM or Ctrl-C stops it. `steelyard up --http` serves it, too.",
        epilog=exits.SERVERS_EXPLAINED,
    )
    console.set_defaults(host=HOST, supervised=False)
    where = console.add_mutually_exclusive_group()
    where.add_argument(
        "-n",
        "--nameserver",
        action=_Sets,
        dest="nameservers",
        metavar="HOST:PORT[;HOST:PORT]",
        help="nameservers of the cluster; default: the variable NAMESRV_ADDR, or 127.0.0.1:9876",
    )
    where.add_argument(
        "--kafka",
        metavar="HOST:PORT[,HOST:PORT]",
        help="Kafka brokers of the cluster, for clusters without nameservers",
    )
    console.add_argument(
        "--tls",
        action="store_true",
        help="encrypt connections to the cluster; trusts the system's certificates, or those in the"
        " file SSL_CERT_FILE",
    )
    console.add_argument(
        "--http",
        dest="port",
        type=int,
        default=CONSOLE_PORT,
        metavar="P",
        help="port to serve the console on (0: pick a free port); default: %(default)s",
    )
    console.add_argument("--port", action=_NamedOtherwise, const="--http")
    console.add_argument("--open", action="store_true", help="open it in the default browser")
    _add_allow_changes(console, action=_Sets, nargs=0, const="true")
    _add_common_options(console)
    _add_settings(console, "--set", example="console_history_ms=86400000")
    return console


def _add_allow_changes(parser: argparse.ArgumentParser, **how: Any) -> None:
    parser.add_argument(
        "--allow-changes",
        help="let the console change the cluster: reset offsets, create and delete topics; default:"
        " it only reads",
        **how,
    )


def _add_own_options(parser: argparse.ArgumentParser, port: int) -> None:
    """Options that `up` has not: it passes them to each server."""
    parser.set_defaults(host=HOST)
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--port",
        type=int,
        default=port,
        metavar="P",
        help="port to listen on (0: pick a free port); default: %(default)s",
    )


def _add_serving_options(parser: argparse.ArgumentParser) -> None:
    _add_common_options(parser)
    for option, setting, text in BOUNDS:
        text += "; default: as many as the limit of open files allows"
        parser.add_argument(option, action=_Sets, dest=setting, metavar="N", help=text)


def _add_common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help=f"address to listen on (0.0.0.0: all); default: {HOST}")
    parser.add_argument("--json", action="store_true", help="print the ready line as JSON")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="log at level INFO; default: WARNING"
    )
    parser.add_argument(
        "--log-format",
        choices=FORMATS,
        default=TEXT,
        help="log as text or as one JSON object per line; default: text",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML file with settings in the tables [up], [nameserver], [broker] and [http];"
        " options take precedence",
    )


def _add_set_options(
    parser: argparse.ArgumentParser, table: Iterable[tuple[str, str, str, str]]
) -> None:
    """Add options that are settings."""
    for option, setting, metavar, text in table:
        parser.add_argument(option, action=_Sets, dest=setting, metavar=metavar, help=text)


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
        help="acknowledge a message when the kernel (async) or the disk (sync) has it; default:"
        " async",
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
    _add_set_options(parser, (*SECURITY, ACL_ACCESS_KEY, TLS_CA, *KAFKA_SECURITY))
    _add_settings(parser, "--set", "--kafka-set", example="store.retention_ms=3600000")


# -- what they come to -----------------------------------------------------------------------------


def values(options: argparse.Namespace, name: str, cls: type) -> dict[str, object]:
    """What the file's table of that name and then the options say of a configuration, by setting.

    Raises ConfigError.
    """
    from steelyard.settings import from_texts

    return _from_file(options, name, cls) | from_texts(cls, options.settings)


def _from_file(options: argparse.Namespace, name: str, cls: type) -> dict[str, object]:
    from steelyard.settings import from_table

    try:
        return from_table(cls, _table(options.config, name))
    except ArgumentError as error:
        raise ConfigError(f"--config {options.config}, [{name}]: {error}") from None


def _table(path: str | None, name: str) -> Mapping[str, object]:
    """A table of the settings file; empty without a file. Raises ConfigError."""
    if path is None:
        return {}
    import tomllib

    from steelyard.checks import unknown

    where = f"--config {path}"
    try:
        with open(path, "rb") as file:
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


def layout(options: argparse.Namespace) -> Deployment:
    """Return what `up` starts. Raises for its servers' settings here, once, not in each server."""
    from steelyard.servers.deployment import Deployment

    given = {each.name: getattr(options, each.name) for each in fields(Deployment)}
    given = {name: value for name, value in given.items() if value is not None}
    if options.config is None and not options.settings:
        return Deployment(**given)
    from steelyard.config import BrokerConfig, HttpConfig, NameserverConfig
    from steelyard.servers.deployment import broker_settings
    from steelyard.settings import build

    broker_settings(values(options, "broker", BrokerConfig))
    http = _from_file(options, "http", HttpConfig)
    for name in HTTP_OF_UP:
        if name in http:
            text = f"{name} cannot be set in [http]: `steelyard up` passes those that it starts"
            raise ConfigError(text)
    build(HttpConfig, http)
    build(NameserverConfig, _from_file(options, "nameserver", NameserverConfig))
    return build(Deployment, _from_file(options, "up", Deployment) | given)


def check_effects(options: argparse.Namespace, layout: Deployment) -> None:
    """Raise ConfigError for an option of `up` that has no effect without another one.

    Settings are not looked at: a file may be shared, and say more than is started.
    """
    kafka_options = getattr(options, "kafka_options", [])
    if kafka_options and layout.kafka_port is None:
        raise ConfigError(f"{kafka_options[0]} needs a Kafka listener: give --kafka-port as well")
    if options.allow_changes and layout.http_port is None:
        raise ConfigError("--allow-changes needs the console: give --http as well")


def passed_on(options: argparse.Namespace) -> tuple[list[str], list[str], list[str]]:
    """The options of `up` for each broker, for its nameserver, and for its HTTP server."""
    shared = ["--verbose"] if options.verbose else []
    if options.log_format != TEXT:
        shared += ["--log-format", options.log_format]
    if options.config is not None:
        shared += ["--config", os.path.abspath(options.config)]
    from steelyard.servers.deployment import HTTP_SHARED, NAMESERVER_SHARED, shared_texts

    broker = [f"--set={each}" for each in options.settings]
    nameserver = [f"--set={each}" for each in shared_texts(options.settings, NAMESERVER_SHARED)]
    http = [f"--set={each}" for each in shared_texts(options.settings, HTTP_SHARED)]
    http += ["--allow-changes"] if options.allow_changes else []
    return [*broker, *shared], [*nameserver, *shared], [*http, *shared]
