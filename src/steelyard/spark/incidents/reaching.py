"""`--option` of `incident` and `archive-offsets`: how brokers of a Kafka cluster are reached."""

from __future__ import annotations

import argparse

from steelyard.arguments import name_and_value
from steelyard.errors import ConfigError
from steelyard.spark.options.access import Access
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
        help="how brokers are reached, e.g. tls=true (docs/SPARK_SOURCE.md); repeatable",
    )


def access_of(options: argparse.Namespace) -> Access:
    """Return what `--option` says. Raises ConfigError."""
    for name, _ in options.option:
        if name.lower() not in {one.lower() for one in NAMES}:
            raise ConfigError(
                f"option {name!r} does not say how Kafka's brokers are reached; those that do:"
                f" {', '.join(NAMES)}"
            )
    needed = {"nameservers": "unused:1", "topic": "unused"}
    return read_options({**needed, **dict(options.option)}).access
