"""`steelyard pipeline sink` and `steelyard pipeline compact`."""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from steelyard.arguments import name_and_value, seconds, whole_number
from steelyard.errors import ConfigError
from steelyard.spark.options.reading import read_options
from steelyard.spark.options.table import OPTIONS, named
from steelyard.spark.reading.catalog import Catalog
from steelyard.spark.reading.planning import look
from steelyard.spark.session import MakeSession
from steelyard.spark.table.compaction import RETAIN_S, TARGET_BYTES, compact
from steelyard.spark.table.files import TableLog
from steelyard.spark.table.kept import Kept, agreed, alone, keep, read_kept
from steelyard.spark.table.payloads import inferred_json, payload_of
from steelyard.spark.table.query import (
    DAY,
    BatchReport,
    Compaction,
    SinkSettings,
    start,
    table_columns,
)
from steelyard.spark.table.tables import FORMATS, open_log
from steelyard.spark.terminal import ProgressLine
from steelyard.spark.waiting import noting_signals, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_S = 5.0
BATCH_MAX = 500_000
INFERRED_FROM = 1_000
COMPACT_EVERY = 60
COUNT_MAX = 1_000_000_000
_OWN_OPTIONS = {
    "nameservers": "--nameservers",
    "subscribe": "--topic",
    "maxOffsetsPerTrigger": "--batch-max",
    "columns": "--schema",
}
"""Options of the source that arguments of the sink set."""


def add_sink(jobs: Any, session: MakeSession) -> argparse.ArgumentParser:
    """Add the parser of `steelyard pipeline sink`."""
    parser: argparse.ArgumentParser = jobs.add_parser(
        "sink",
        help="write a topic to a table",
        description="Writes the messages of a topic to a table, each once: those that are there,"
        " then those that come, until it is interrupted. Started again, it continues.",
    )
    parser.set_defaults(run=lambda options: run_sink(options, session))
    parser.add_argument("-n", "--nameservers", required=True, help="host:port, separated by ;")
    parser.add_argument("-t", "--topic", required=True, help="the topic, or several separated by ,")
    _add_table_options(parser)
    parser.add_argument(
        "--schema",
        choices=("raw", "json", "avro"),
        help="what bodies are: raw keeps the columns of the source; default: raw, or that of the"
        " checkpoint",
    )
    schema = parser.add_mutually_exclusive_group()
    schema.add_argument(
        "--schema-file",
        type=Path,
        metavar="FILE",
        help="for json: the fields, as Spark's DDL or JSON; for avro: the schema (.avsc)",
    )
    schema.add_argument(
        "--schema-ddl", metavar="TEXT", help="for json: the fields, e.g. 'id bigint, name string'"
    )
    parser.add_argument(
        "--infer-from",
        type=whole_number(1, COUNT_MAX),
        default=INFERRED_FROM,
        metavar="COUNT",
        help="for json without a schema: messages from which it is inferred; default: %(default)s",
    )
    parser.add_argument(
        "--prefix",
        default="_",
        help="what names of columns about messages begin with; default: %(default)s",
    )
    parser.add_argument(
        "--once", action="store_true", help="end when everything that was there is written"
    )
    parser.add_argument(
        "--interval",
        type=seconds,
        default=INTERVAL_S,
        metavar="SECONDS",
        help="time between micro-batches; default: %(default)s",
    )
    parser.add_argument(
        "--batch-max",
        type=whole_number(1, COUNT_MAX),
        default=BATCH_MAX,
        metavar="COUNT",
        help="messages in a micro-batch; default: %(default)s",
    )
    parser.add_argument(
        "--compact-every",
        type=whole_number(0, COUNT_MAX),
        default=COMPACT_EVERY,
        metavar="COUNT",
        help="merge small files after so many micro-batches, 0: never; default: %(default)s",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=name_and_value,
        metavar="NAME=VALUE",
        help="an option of the source (docs/SPARK_SOURCE.md), e.g. tls=true; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON per micro-batch")
    return parser


def add_compact(jobs: Any, session: MakeSession) -> argparse.ArgumentParser:
    """Add the parser of `steelyard pipeline compact`."""
    parser: argparse.ArgumentParser = jobs.add_parser(
        "compact",
        help="merge small files of a table",
        description="Merges small files of a table that `steelyard pipeline sink` writes, also"
        " while it does, and deletes those that were merged earlier.",
    )
    parser.set_defaults(run=lambda options: run_compact(options, session))
    _add_table_options(parser)
    return parser


def _add_table_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", choices=FORMATS, default="parquet", help="default: %(default)s")
    parser.add_argument(
        "--out",
        required=True,
        metavar="TABLE",
        help="folder of the table, which all executors must reach; for iceberg"
        " CATALOG.NAMESPACE.TABLE",
    )
    parser.add_argument(
        "--dead-letters",
        metavar="TABLE",
        help="the table of bodies that do not fit the schema; default: TABLE_dead_letters",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FOLDER",
        help="progress of the query; default: _checkpoint in the folder of the table",
    )
    parser.add_argument(
        "--partition-by",
        type=_names,
        default=(DAY,),
        metavar="COLUMNS",
        help="how files are divided: day (of storing, UTC), columns of the table separated by ,"
        " or none; default: day",
    )
    parser.add_argument(
        "--file-size",
        type=whole_number(1, COUNT_MAX),
        default=TARGET_BYTES >> 20,
        metavar="MIB",
        help="merge files to this size; default: %(default)s",
    )
    parser.add_argument(
        "--retain",
        type=seconds,
        default=RETAIN_S,
        metavar="SECONDS",
        help="keep files that were merged for those who read them; default: %(default)s",
    )


def run_sink(options: argparse.Namespace, session: MakeSession) -> int:
    """Run the query until it ends or is interrupted; return the exit code."""
    source = _source(options)
    _check_topic(source)
    checkpoint = _checkpoint(options)
    with ExitStack() as held:
        is_held = checkpoint.is_dir()
        if is_held:
            held.enter_context(alone(checkpoint))
        kept = read_kept(checkpoint)
        options.schema = options.schema or ("raw" if kept is None else kept.kind)
        schema = _schema_given(options)
        stored = f"{'' if options.schema == 'raw' else options.prefix}storeTimestamp"
        log = open_log(options.to, options.out, options.partition_by, stored)
        given = Kept(
            topic=options.topic,
            to=options.to,
            out=options.out,
            kind=options.schema,
            schema=schema,
            prefix=options.prefix,
            partition_by=options.partition_by,
        )
        if kept is not None:
            kept = agreed(kept, given)
        elif log.files():
            raise ConfigError(
                f"table {options.out!r} has data, but its checkpoint {checkpoint} does not exist;"
                " give that, or another table"
            )
        elif options.schema == "avro" and not schema:
            raise ConfigError("--schema avro needs --schema-file, the Avro schema (.avsc)")
        spark = session(options)
        if kept is None:
            if options.schema == "json" and not schema:
                schema = inferred_json(spark, _sample(source), options.infer_from)
            table_columns(
                payload_of(spark, given.kind, schema), options.prefix, options.partition_by
            )  # before anything is written
            if not is_held:
                held.enter_context(alone(checkpoint))
            kept = keep(checkpoint, msgspec.structs.replace(given, schema=schema))
        payload = payload_of(spark, kept.kind, kept.schema)
        bad = None if payload is None else _open_dead_letters(options)
        target = SinkSettings(
            log=log,
            dead_letters=bad,
            payload=payload,
            prefix=kept.prefix,
            partition_by=kept.partition_by,
            copies_partitions=options.to == "iceberg",
        )
        return _run(options, spark, source, target, kept.query, checkpoint)


def _run(
    options: argparse.Namespace,
    spark: SparkSession,
    source: dict[str, str],
    target: SinkSettings,
    query_name: str,
    checkpoint: Path,
) -> int:
    logs = [log for log in (target.log, target.dead_letters) if log is not None]
    compaction = Compaction(spark, logs, options.compact_every, **_limits(options))

    def told(report: BatchReport) -> None:
        line.clear()
        words = msgspec.json.encode(report).decode() if options.json else str(report)
        print(words, flush=True)

    line, ended = ProgressLine(), threading.Event()
    with noting_signals(ended):
        query = start(
            spark,
            source,
            target,
            query_name,
            checkpoint,
            interval_s=None if options.once else options.interval,
            compaction=compaction,
            told=told,
        )
        wait_for(query, line, ended)
    if ended.is_set():
        print("stopped; started again, it continues here", file=sys.stderr)
    compaction.wait()
    return 0


def run_compact(options: argparse.Namespace, session: MakeSession) -> int:
    """Merge the small files of a table and its dead letters; return the exit code."""
    logs = {
        options.out: open_log(options.to, options.out, options.partition_by, "storeTimestamp"),
        _dead_letters(options): _open_dead_letters(options),
    }
    logs = {table: log for table, log in logs.items() if log.files()}
    if not logs:
        raise ConfigError(f"there is no table {options.out!r} with files")
    spark = session(options)
    for table, log in logs.items():
        print(f"{table}: {compact(spark, log, **_limits(options))}")
    return 0


def _limits(options: argparse.Namespace) -> dict[str, Any]:
    return {"target_bytes": options.file_size << 20, "retain_s": options.retain}


def _source(options: argparse.Namespace) -> dict[str, str]:
    source = dict(options.option)
    known = named(OPTIONS)
    for name in source:
        option = known.get(name.lower())
        if option is not None and option.name in _OWN_OPTIONS:
            raise ConfigError(
                f"--option {name} is not for the sink; use {_OWN_OPTIONS[option.name]}"
            )
    given = {name.lower(): name for name in source}
    source["startingOffsets"] = source.pop(given.get("startingoffsets", ""), "earliest")
    source |= {"nameservers": options.nameservers, "subscribe": options.topic}
    return source | {"maxOffsetsPerTrigger": str(options.batch_max)}


def _sample(source: dict[str, str]) -> dict[str, str]:
    """Return the options of a batch that begins where the stream does, but not at the latest."""
    known = named(OPTIONS)
    found = {name: text for name, text in source.items() if known[name.lower()].only != "stream"}
    if found["startingOffsets"].strip() == "latest":
        found["startingOffsets"] = "earliest"
    return found


def _check_topic(source: dict[str, str]) -> None:
    """Raise what is wrong with the options or the topic before Spark is started."""
    options = read_options(source, "stream")
    with Catalog(options) as catalog:
        look(catalog, options)


def _schema_given(options: argparse.Namespace) -> str:
    text: str = options.schema_ddl or ""
    if options.schema_file is not None:
        try:
            text = options.schema_file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--schema-file cannot be read: {error}") from None
    if text and options.schema == "raw":
        raise ConfigError("--schema raw has no schema; choose json or avro, or leave it out")
    if options.schema_ddl and options.schema != "json":
        raise ConfigError("--schema-ddl is for --schema json")
    return text.strip()


def _checkpoint(options: argparse.Namespace) -> Path:
    if options.checkpoint is not None:
        return Path(options.checkpoint).absolute()
    if options.to == "iceberg":
        raise ConfigError("--to iceberg needs --checkpoint, a folder for the query's progress")
    return Path(options.out).absolute() / "_checkpoint"


def _open_dead_letters(options: argparse.Namespace) -> TableLog:
    return open_log(options.to, _dead_letters(options), (DAY,), "storeTimestamp")


def _dead_letters(options: argparse.Namespace) -> str:
    return options.dead_letters or f"{options.out.rstrip('/')}_dead_letters"


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return () if names == ("none",) else names
