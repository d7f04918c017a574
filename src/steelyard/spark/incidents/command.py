"""`steelyard pipeline incident`: what rebalances cost on Apache clusters, from their own records.

    steelyard pipeline incident --kafka 127.0.0.1:9092 --group stock
    steelyard pipeline incident --dump /copied/kafka-logs --logs /copied/logs --out out/incident

What is read (`sources`) means what `steelyard.incident` makes of it. Spark is not needed: one core
decodes 10 million commits in less than a minute.
"""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime
from pathlib import Path

from steelyard.arguments import OneLineParser
from steelyard.errors import ConfigError
from steelyard.incident.kafka.offsets_topic import OffsetsTopic
from steelyard.spark.incidents.output import SHOWN, printed_lag, write_incident_report, write_tables
from steelyard.spark.incidents.reaching import access_of, add_option
from steelyard.spark.incidents.sources import read_dump, read_kafka, read_logs, read_rocketmq_logs
from steelyard.spark.incidents.tables import Sources, Tables, rocketmq_tables, tables
from steelyard.spark.printing import printed_rebalances, terminal_width
from steelyard.spark.terminal import ProgressLine
from steelyard.wording import counted


def add_incident(jobs: argparse._SubParsersAction[OneLineParser]) -> None:
    """Add `incident` to the parser of `steelyard pipeline`."""
    parser = jobs.add_parser(
        "incident",
        help="what rebalances of an Apache Kafka cluster's groups cost, from its own records",
        description="Reads __consumer_offsets, of a running cluster or from copied segments, and"
        " prints a line for each rebalance.",
    )
    parser.set_defaults(run=run)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--kafka", metavar="HOST:PORT", help="a broker of the cluster")
    source.add_argument(
        "--dump",
        type=_folder,
        metavar="DIR",
        help="copy of brokers' log.dirs (__consumer_offsets-*)",
    )
    parser.add_argument(
        "--logs",
        type=_folder,
        metavar="DIR",
        help="logs of Kafka's brokers, which add reasons; alone: of RocketMQ's brokers and clients",
    )
    parser.add_argument(
        "--utc-offset",
        type=_utc_offset,
        metavar="+HH:MM",
        help="time zone of the logs; default: UTC for Kafka, +08:00 for RocketMQ",
    )
    parser.add_argument("-g", "--group", help="one group; default: all")
    for name, dest, meaning in (("from", "begin", "start"), ("to", "end", "end")):
        parser.add_argument(
            f"--{name}",
            type=_moment,
            dest=dest,
            metavar="TIME",
            help=f"{meaning} of the period, as 2026-11-23T21:00 (UTC)",
        )
    add_option(parser)
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="also write Parquet tables")
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write an HTML report")


def run(options: argparse.Namespace) -> int:
    """Run the command. Raises SteelyardError."""
    if None not in (options.begin, options.end) and options.begin > options.end:
        raise ConfigError("--from is after --to")
    if options.kafka is None and options.dump is None:
        if options.logs is None:
            raise ConfigError("incident needs --kafka, --dump or --logs")
        events = read_rocketmq_logs(options.logs, options.utc_offset)
        made = rocketmq_tables(events, options.group, options.begin, options.end)
        words = ", ".join(
            (
                counted(len({event.group for event in events}), "group"),
                counted(len(events), "log line"),
            )
        )
    else:
        made, words = _of_kafka(options)
    width = terminal_width()
    print(printed_rebalances(made.rebalances, SHOWN, width) or "no rebalances")
    if made.lag:
        print(f"\nlag\n{printed_lag(made.lag, width)}")
    print(
        f"\n{words}; {counted(len(made.rebalances), 'rebalance')},"
        f" {counted(sum(row.queues_moved for row in made.rebalances), 'queue')} moved"
    )
    if options.out is not None:
        write_tables(made, options.out)
        print(f"tables in {options.out}")
    if options.report is not None:
        print(f"report: {write_incident_report(options.report, made, options.group)}")
    return 0


def _of_kafka(options: argparse.Namespace) -> tuple[Tables, str]:
    """Return the tables of a Kafka cluster, and in words what was read."""
    found = OffsetsTopic(options.group)
    access = access_of(options)
    line = ProgressLine()
    try:
        if options.dump is not None:
            ends, words = read_dump(options.dump, found, line.show), str(options.dump)
        else:
            ends = read_kafka(options.kafka, found, line.show, access)
            words = f"the cluster of {options.kafka}"
    finally:
        line.clear()
    evidence = [] if options.logs is None else read_logs(options.logs, options.utc_offset)
    made = tables(Sources(found, ends, evidence, words), options.group, options.begin, options.end)
    counts = f"{counted(len(found.groups), 'group')}, {counted(found.commits, 'commit')}"
    skipped = sum(found.unknown.values())
    if skipped or found.unreadable:
        counts += (
            f"; skipped: {counted(skipped, 'record')} of unknown types,"
            f" {found.unreadable:,} unreadable"
        )
    return made, counts


def _folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}")
    return path


def _moment(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 2026-11-23T21:00"
        ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _utc_offset(text: str) -> int:
    match = re.fullmatch(r"([+-])(\d\d):(\d\d)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time zone such as +02:00")
    minutes = int(match[2]) * 60 + int(match[3])
    return (minutes if match[1] == "+" else -minutes) * 60_000
