"""`steelyard pipeline archive-offsets`: a copy of `__consumer_offsets` that is not compacted.

    steelyard pipeline archive-offsets --kafka 127.0.0.1:9092 --out archive --every 60

The folder has segments as a broker has them, so `incident --dump` reads it. A run continues where
the last one ended, also after a kill.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path

from steelyard.arguments import SECONDS_MAX, OneLineParser, whole_number
from steelyard.errors import ConfigError, SteelyardError
from steelyard.spark.incidents.reaching import access_of, add_option
from steelyard.spark.incidents.sources import (
    OFFSETS_TOPIC,
    end_of_segment,
    offsets_reader,
    offsets_records,
)
from steelyard.spark.options.access import PLAIN, Access
from steelyard.types import TopicPartition
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.records import Record, write_batch
from steelyard.wording import counted

SEGMENT_BYTES = 100 * 1024 * 1024
"""Size from which on a new file is begun: offsets.topic.segment.bytes."""
BATCH_RECORDS = 1_000


class OffsetArchive:
    """The folder of an archive."""

    def __init__(self, folder: Path) -> None:
        """Open an archive, or begin one; cut what a kill left unfinished. Raises ConfigError."""
        self._folder = folder
        self.ends: dict[TopicPartition, int] = {}
        """Where each partition continues."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(folder.glob(f"{OFFSETS_TOPIC}-*/*.log")):
                self._open(path)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be written: {error.strerror}") from error

    def _open(self, path: Path) -> None:
        number = path.parent.name.removeprefix(f"{OFFSETS_TOPIC}-")
        if not number.isdigit():
            return
        end = end_of_segment(path)
        if end.position < path.stat().st_size:
            with path.open("r+b") as file:
                file.truncate(end.position)
        if end.offset is not None:
            self.ends[TopicPartition(OFFSETS_TOPIC, int(number))] = end.offset

    def add(self, place: TopicPartition, records: list[Record]) -> None:
        """Append records of a partition, which follow those in it. Raises OSError."""
        folder = self._folder / f"{place.topic}-{place.partition}"
        folder.mkdir(exist_ok=True)
        paths = sorted(folder.glob("*.log"))
        path = folder / f"{records[0].offset:020d}.log"
        if paths and paths[-1].stat().st_size < SEGMENT_BYTES:
            path = paths[-1]
        with path.open("ab") as file:
            for start in range(0, len(records), BATCH_RECORDS):
                some = records[start : start + BATCH_RECORDS]
                file.write(write_batch(some, compression=Compression.ZSTD))
        self.ends[place] = records[-1].offset + 1


def archive(bootstrap: str, folder: Path, every_s: int | None, access: Access = PLAIN) -> int:
    """Copy what is new, once or until the process is interrupted; return the number of records."""
    kept = OffsetArchive(folder)
    count = 0
    with offsets_reader(bootstrap, access) as consumer:
        while True:
            for records in offsets_records(consumer, bootstrap, kept.ends):
                found: dict[TopicPartition, list[Record]] = defaultdict(list)
                for one in records:
                    record = Record(one.offset, one.timestamp, one.key, one.value)
                    found[TopicPartition(one.topic, one.partition)].append(record)
                for place in sorted(found):
                    kept.add(place, found[place])
                    count += len(found[place])
            if every_s is None:
                return count
            time.sleep(every_s)


def add_archive_offsets(jobs: argparse._SubParsersAction[OneLineParser]) -> None:
    """Add `archive-offsets` to the parser of `steelyard pipeline`."""
    parser = jobs.add_parser(
        "archive-offsets",
        help="keep what compaction of __consumer_offsets would delete",
        description="Copies what is new in __consumer_offsets to a folder that `incident --dump`"
        " reads.",
    )
    parser.set_defaults(run=_run)
    parser.add_argument("--kafka", required=True, metavar="HOST:PORT", help="a broker")
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="the archive")
    parser.add_argument(
        "--every",
        type=whole_number(1, SECONDS_MAX),
        metavar="SECONDS",
        help="continue until it is interrupted",
    )
    add_option(parser)


def _run(options: argparse.Namespace) -> int:
    try:
        count = archive(options.kafka, options.out, options.every, access_of(options))
    except KeyboardInterrupt:
        return 0
    except SteelyardError:  # of which some are OSErrors
        raise
    except OSError as error:
        raise ConfigError(f"{options.out} cannot be written: {error.strerror}") from error
    print(f"{counted(count, 'new record')} in {options.out}")
    return 0
