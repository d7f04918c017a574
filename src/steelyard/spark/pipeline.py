"""`steelyard pipeline`: the Spark jobs of the command line.

    steelyard pipeline ledger -n 127.0.0.1:9876 --out out/ledger

The names of `__all__` but `main` are for programs that compute the ledger's tables themselves.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.arguments import OneLineParser
from steelyard.errors import SteelyardError
from steelyard.printable import printable
from steelyard.spark.archive import add_archive
from steelyard.spark.incidents.archive import add_archive_offsets
from steelyard.spark.incidents.command import add_incident
from steelyard.spark.ledger.command import add_ledger
from steelyard.spark.ledger.job import (
    LedgerTables,
    follow_ledger,
    ledger_tables,
    read_ledger,
    tables_in,
)
from steelyard.spark.move.command import add_move
from steelyard.spark.session import MASTERS_EXPLAINED, session
from steelyard.spark.shipping import NOT_IMPORTED
from steelyard.spark.table.command import add_compact, add_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LedgerTables", "follow_ledger", "ledger_tables", "main", "read_ledger", "tables_in"]


EXIT_CODES = (
    "Exit codes: 0 success, or Ctrl-C stopped a job that can continue later; 1 an unexpected error,"
    " with a traceback; 2 any other error, told in one line; 130 interrupted (Ctrl-C)."
)
"""The end of help texts; `move` has its own."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `steelyard pipeline …`; return 0 on success, 2 after an error line on stderr."""
    options = build_parser().parse_args(argv)

    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except SteelyardError as error:
        words = str(error)
    except OSError as error:
        if error.filename is None:
            raise
        words = f"{error.filename} cannot be used: {error.strerror}"
    except (PySparkException, Py4JError) as error:
        found = reason_in(str(error))
        if found is None:
            raise
        words = found
    print(f"steelyard pipeline: {printable(words)}", file=sys.stderr)
    return 2


def build_parser() -> OneLineParser:
    """Build the parser; each job sets `run`, a function from options to an exit code."""
    parser = OneLineParser(
        "steelyard pipeline", description="Spark jobs over topics.", epilog=EXIT_CODES
    )
    jobs = parser.add_subparsers(dest="job", metavar="COMMAND", required=True)
    for add in (add_ledger, add_sink, add_compact):
        _add_spark_options(add(jobs, _session))
    for add_other in (add_incident, add_archive_offsets, add_move, add_archive):
        add_other(jobs)
    for job in jobs.choices.values():
        job.epilog = job.epilog or EXIT_CODES
    return parser


# -- options of Spark ------------------------------------------------------------------------------


def _add_spark_options(parser: argparse.ArgumentParser) -> None:
    options = parser.add_argument_group(
        "Spark", "Default: a local Spark of two cores, or the one that SPARK_HOME sets up."
    )
    options.add_argument("--master", metavar="URL", help=f"where Spark runs: {MASTERS_EXPLAINED}")
    options.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=VALUE",
        help="a setting of Spark; repeatable",
    )
    options.add_argument(
        "--packages",
        type=_packages,
        metavar="LIST",
        help="Maven coordinates group:artifact:version, separated by commas",
    )
    options.add_argument(
        "--jars", type=_jars, metavar="LIST", help="jar files or URLs, separated by commas"
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark.") or name.endswith("."):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=VALUE with a name that begins with 'spark.'"
        )
    return name, value


def _packages(text: str) -> str:
    for one in text.split(","):
        if not re.fullmatch(r"[^:\s]+:[^:\s]+:[^:\s]+", one):
            raise argparse.ArgumentTypeError(f"{one!r} is not group:artifact:version")
    return text


def _jars(text: str) -> str:
    for one in text.split(","):
        if "://" not in one and not Path(one).is_file():
            raise argparse.ArgumentTypeError(f"there is no file {one!r}")
    return text


def settings_of(options: argparse.Namespace) -> dict[str, str]:
    """Return Spark's settings; options of their own take precedence over --spark-conf."""
    settings = dict(options.spark_conf)
    own = {
        "spark.master": options.master,
        "spark.jars.packages": options.packages,
        "spark.jars": options.jars,
    }
    return settings | {name: text for name, text in own.items() if text is not None}


def _session(options: argparse.Namespace) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    is_long = options.job == "sink" and not options.once
    try:
        return session(settings_of(options), optimize=is_long)
    except (PySparkException, Py4JError) as error:
        # Of an exception in Java the second line has the words, after a colon.
        lines = [line.removeprefix(": ") for line in str(error).splitlines()]
        words = lines[1] if lines[0].startswith("An error occurred while") else lines[0]
        raise SteelyardError(f"Spark does not start: {words}") from error


_UNUSABLE = re.compile(
    r"\b(?:java\.io|java\.nio\.file|java\.net|org\.apache\.hadoop)\.[\w.$]*Exception: (.+)"
    r"|\bjava\.lang\.(?=ClassNotFoundException: Class org\.apache\.hadoop)(.+)"
)
"""How Java says that a folder cannot be used, its server is away, or its file system unknown."""


def reason_in(text: str) -> str | None:
    """Return the line that a user can act on in Spark's message; None: there is no such line.

    One of our errors, raised in a worker, arrives as a text with a traceback in it.
    """
    for line in reversed(text.splitlines()):
        if line.startswith(("steelyard.errors.", NOT_IMPORTED)):
            return line.partition(": ")[2]
    missing = re.search(r"No module named '(steelyard|msgspec|numpy|pyarrow|pandas|google)'", text)
    if missing:
        name = {"google": "protobuf"}.get(missing[1], missing[1])
        return f"the executors have no {name}; see `steelyard pipeline archive --help`"
    unusable = _UNUSABLE.search(text)
    return None if unusable is None else f"Spark: {unusable[1] or unusable[2]}"
