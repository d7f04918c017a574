"""`steelyard pipeline move`."""

from __future__ import annotations

import argparse
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from steelyard.arguments import OneLineParser, name_and_value
from steelyard.errors import ConfigError
from steelyard.spark.move.contract import MoveCluster, R
from steelyard.spark.move.group_move import OffsetResult, move_offsets
from steelyard.spark.move.journal import Clusters, Journal, MoveFolder
from steelyard.spark.move.kafka import KafkaSide
from steelyard.spark.move.kafka_servers import KafkaAccess
from steelyard.spark.move.plan import Planner, TopicPlan
from steelyard.spark.move.printing import printed
from steelyard.spark.move.queue_move import QueueMove, QueueResult
from steelyard.spark.move.rocketmq import RocketMQSide
from steelyard.spark.offsets import QueueName
from steelyard.spark.options.logins import SASL, login_among
from steelyard.spark.options.reading import Options, read_options
from steelyard.spark.options.table import ACCESS
from steelyard.spark.terminal import ProgressLine
from steelyard.spark.waiting import noting_signals
from steelyard.wire.kafka.compression import Compression

QUEUES_TOGETHER = 4
"""Queues that are moved, or read back, at the same time."""
PULL_GROUP = "steelyard-move"
"""The consumer group that brokers of RocketMQ see."""

TLS = [one.name for one in ACCESS if one.name.startswith("tls")]
TIMES = ["timeoutMs", "retryTimeoutMs"]
SERVER_OPTIONS = {
    "rocketmq": [*(one.name for one in ACCESS), *TIMES, "consumerGroup"],
    "kafka": [*TLS, *SASL, *TIMES],
}
"""Options of the Spark source that say how servers are reached."""

Row = TypeVar("Row")


class MoveResult(msgspec.Struct, frozen=True):
    """What `--json` prints. `matches`: everything is at the target as it was at the source."""

    matches: bool
    queues: list[dict[str, Any]]
    offsets: list[OffsetResult]


def add_move(jobs: argparse._SubParsersAction[OneLineParser]) -> None:
    """Add the parser of `steelyard pipeline move`."""
    parser = jobs.add_parser(
        "move",
        help="carry topics and groups' offsets to another cluster",
        description="Copies what topics have now from one cluster to another, each queue in order,"
        " reads it back and compares counts and checksums; then commits groups' offsets there."
        " Started again, it continues, also after a kill.",
        epilog="Exit codes: 0 everything matches; 1 it does not, or the move was stopped; 2 an"
        " error, told in one line.",
    )
    parser.set_defaults(run=run)
    parser.add_argument("protocol", choices=("rocketmq", "kafka"), help="what both clusters speak")
    for name, dest, side in (("--from", "source", "source"), ("--to", "target", "target")):
        parser.add_argument(
            name,
            dest=dest,
            required=True,
            type=_addresses,
            metavar="HOST:PORT",
            help=f"nameservers (rocketmq) or brokers (kafka) of the {side}, separated by ;",
        )
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("-t", "--topic", action="append", metavar="TOPIC", help="repeatable")
    topics.add_argument("--all-topics", action="store_true", help="all but those of the servers")
    groups = parser.add_mutually_exclusive_group()
    groups.add_argument(
        "-g", "--group", action="append", metavar="GROUP", help="also its offsets; repeatable"
    )
    groups.add_argument(
        "--all-groups", action="store_true", help="all that have offsets of the topics"
    )
    parser.add_argument(
        "--overwrite-offsets",
        action="store_true",
        help="also where a group has progress of its own at the target",
    )
    parser.add_argument(
        "--state",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="the record of the move: what went where; always the same for one move",
    )
    parser.add_argument(
        "--compression",
        choices=[one.name.lower() for one in Compression],
        default="none",
        help="of batches, for kafka; default: %(default)s",
    )
    for side in ("from", "to"):
        parser.add_argument(
            f"--{side}-option",
            action="append",
            default=[],
            type=name_and_value,
            metavar="NAME=VALUE",
            help="how servers are reached, e.g. tls=true (docs/SPARK_SOURCE.md); repeatable",
        )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit code. Raises SteelyardError."""
    with _quiet():
        if options.protocol == "rocketmq":
            return _run(
                options,
                RocketMQSide(_servers(options, "source", options.from_option)),
                RocketMQSide(_servers(options, "target", options.to_option)),
            )
        compression = Compression[options.compression.upper()]
        return _run(
            options,
            KafkaSide(_kafka(_servers(options, "source", options.from_option)), compression),
            KafkaSide(_kafka(_servers(options, "target", options.to_option)), compression),
        )


def _run(options: argparse.Namespace, source: MoveCluster[R], target: MoveCluster[R]) -> int:
    folder = MoveFolder(options.state)
    given = Clusters(options.protocol, source.address, target.address)
    folder.agree(given)
    planner = Planner(source, target, folder)
    names = source.topics() if options.all_topics else list(dict.fromkeys(options.topic))
    plans = [planner.plan(name) for name in names]
    named = None if options.all_groups else options.group or []
    groups = planner.groups(plans, named)
    if options.dry_run:
        lines = [line for plan in plans for line in planner.explained(plan)]
        print("\n".join([*lines, f"groups: {', '.join(groups) or 'none'}"]))
        return 0
    try:
        with ExitStack() as stack:
            stack.enter_context(folder.locked(given))
            mover = Mover(source, target, planner, plans, stack)
            results = mover.run()
            if results is None:
                print("stopped; started again, it continues here", file=sys.stderr)
                return 1
            matching = {
                queue: mover.journals[queue]
                for queue in mover.journals
                if all(result.matches for result in results if result.topic == queue[0])
            }
            overwrite = options.overwrite_offsets
            offsets = move_offsets(source, target, folder, matching, groups, overwrite=overwrite)
    except OSError as error:
        if error.filename is None:
            raise
        raise ConfigError(f"{error.filename} cannot be used: {error.strerror}") from None
    return _tell(options, results, offsets)


def _tell(
    options: argparse.Namespace, results: Sequence[QueueResult], offsets: list[OffsetResult]
) -> int:
    matches = all(one.matches for one in results) and not any(one.is_wrong for one in offsets)
    if options.json:
        queues = [msgspec.structs.asdict(one) | {"matches": one.matches} for one in results]
        print(msgspec.json.encode(MoveResult(matches, queues, offsets)).decode())
    else:
        print(printed(results, offsets))
    return 0 if matches else 1


class Mover:
    """Moves all queues, some at a time, and reads them back."""

    def __init__(
        self,
        source: MoveCluster[R],
        target: MoveCluster[R],
        planner: Planner[R],
        plans: Sequence[TopicPlan],
        stack: ExitStack,
    ) -> None:
        self._stopped = threading.Event()
        self._line = ProgressLine()
        self._lock = threading.Lock()
        self._phase = ""
        self._done = self._in_all = 0
        self._extents = {queue: one for plan in plans for queue, one in plan.extents.items()}
        self.journals: dict[QueueName, Journal] = {}
        for plan in plans:
            for queue, journal in planner.open(plan).items():
                stack.callback(journal.close)
                self.journals[queue] = journal
        self._moves = {
            queue: QueueMove(source, target, journal, stopped=self._stopped, told=self._told)
            for queue, journal in self.journals.items()
        }

    def run(self) -> list[QueueResult] | None:
        """Return a result for each queue; None if it was interrupted."""
        before = {queue: one.total.records for queue, one in self.journals.items()}
        with noting_signals(self._stopped):
            self._begin(
                "moved",
                sum(
                    max(extent.end - max(self.journals[queue].next, extent.first), 0)
                    for queue, extent in self._extents.items()
                ),
            )
            self._each(lambda queue: self._moves[queue].move(self._extents[queue]))
            if self._stopped.is_set():
                return None
            unread = (one.unverified for one in self.journals.values())
            self._begin("read back", sum(extent.end - extent.first for extent in unread))
            results = self._each(
                lambda queue: self._moves[queue].check(
                    self.journals[queue].total.records - before[queue]
                )
            )
        return None if self._stopped.is_set() else results

    def _each(self, work: Callable[[QueueName], Row]) -> list[Row]:
        """Do work for all queues; after a failure the others stop with their next chunk."""
        with ThreadPoolExecutor(QUEUES_TOGETHER, "move") as pool:
            futures: list[Future[Row]] = [pool.submit(work, queue) for queue in self.journals]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    if future.done() and future.exception() is not None:
                        self._stopped.set()
                        pool.shutdown(cancel_futures=True)
                        future.result()
                return [future.result() for future in futures]
            finally:
                self._line.clear()

    def _begin(self, phase: str, messages: int) -> None:
        self._phase, self._done, self._in_all = phase, 0, messages

    def _told(self, records: int) -> None:
        with self._lock:
            self._done += records
            self._line.show(f"{self._phase} {self._done:,} of {self._in_all:,} messages")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep clients from logging what the error of the command says."""
    logger = logging.getLogger("steelyard")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _servers(options: argparse.Namespace, side: str, given: Sequence[tuple[str, str]]) -> Options:
    allowed = SERVER_OPTIONS[options.protocol]
    for name, _ in given:
        if name.lower() not in {one.lower() for one in allowed}:
            raise ConfigError(
                f"option {name!r} does not say how {options.protocol} servers are reached; those"
                f" that do: {', '.join(allowed)}"
            )
    others, login = login_among(given)
    texts: Mapping[str, str] = {"consumerGroup": PULL_GROUP} | dict(others)
    found = read_options({"nameservers": getattr(options, side), "topic": "any", **texts})
    return replace(found, access=replace(found.access, login=login))


def _kafka(options: Options) -> KafkaAccess:
    return KafkaAccess(
        options.nameservers, options.access, options.timeout_ms, options.retry_timeout_ms
    )


def _addresses(text: str) -> str:
    for one in re.split("[;,]", text):
        host, _, port = one.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise argparse.ArgumentTypeError(f"{one!r} is not HOST:PORT, e.g. 127.0.0.1:9876")
    return text
