"""`--option` of `incident` and `archive-offsets`: how brokers of a Kafka cluster are reached."""

from __future__ import annotations

import argparse
from dataclasses import replace

from steelyard.arguments import name_and_value
from steelyard.client.environment import kafka_login
from steelyard.errors import ConfigError
from steelyard.spark.options.access import Access
from steelyard.spark.options.logins import SASL, login_among
from steelyard.spark.options.reading import read_options
from steelyard.spark.options.table import ACCESS

NAMES = [one.name for one in ACCESS if one.name.startswith("tls")]


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--option` to the parser of a command."""
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=name_and_value,
        metavar="NAME=VALUE",
        help="how brokers are reached, e.g. tls=true or saslUsername=NAME (docs/INCIDENT.md);"
        " repeatable",
    )


def access_of(options: argparse.Namespace) -> Access:
    """Return what `--option` says. Raises ConfigError."""
    given, login = login_among(options.option)
    for name, _ in given:
        if name.lower() not in {one.lower() for one in NAMES}:
            raise ConfigError(
                f"option {name!r} does not say how Kafka's brokers are reached; those that do:"
                f" {', '.join((*NAMES, *SASL))}"
            )
    needed = {"nameservers": "unused:1", "topic": "unused"}
    access = read_options({**needed, **dict(given)}).access
    return replace(access, login=login or kafka_login())
