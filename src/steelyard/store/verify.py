"""Verification of a log's folder for `steelyard check`: index rows, entries, and their links.

It does the same as a broker that opens the log and reads all of it, but on an `Overlay`: nothing on
disk is changed. The result is therefore exactly what a broker would serve, repair and refuse. The
log must not be in use. Memory: a piece, or an entry if it is larger, and 28 bytes for each missing
index row.

Damaged rows (ROWS) are rebuilt when they are read, or when the index file is removed before the
store is opened. A damaged entry (LOG) is lost: `Log.give_up` makes readers skip it. A torn tail
(TAIL) is cut at the next start.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from steelyard.errors import CorruptError, DescriptorsError, StorageError
from steelyard.store.files import Files
from steelyard.store.findings import Findings
from steelyard.store.index import Buffers
from steelyard.store.log import Log
from steelyard.store.log_config import LogConfig
from steelyard.store.overlay import Overlay
from steelyard.store.segment import Origin
from steelyard.store.segment_names import LOG_SUFFIX, segments_in
from steelyard.store.tables import Table

LOG = "log"
ROWS = "rows"
TAIL = "tail"

PIECE_BYTES = 1024 * 1024
_ROWS_MAX = 1 << 40
_NOW = 1 << 55
"""Later than any timestamp of an entry."""


class Stretch(msgspec.Struct, frozen=True):
    """Part of a file: `size` bytes from `position`, for `count` offsets from `offset`.

    `problem`: what is wrong with them, "" if nothing. `part`: LOG, ROWS or TAIL; see the module
    docstring.
    """

    path: str
    position: int
    size: int
    offset: int
    count: int
    problem: str = ""
    part: str = LOG


def verify_log(files: Files, folder: str, end: tuple[int, int] | None = None) -> Iterator[Stretch]:
    """Verify the log in `folder`: yield damage, and intact stretches of 1 MiB between it.

    `folder` is `logs/<topic>/<queue id>-<log id>`. `end`: position and offset recorded by a clean
    stop; None after a kill, when the last bytes may be a torn write. Entries that the disk cannot
    read count as damaged. Raises StorageError if that prevents a recovery.
    """
    files = Files(Overlay(files.disk))
    findings = Findings()
    queue, _, log_id = folder.rpartition("/")[2].partition("-")
    starts = Table(files, "tables/none.table")
    made_with = (files, Buffers(_ROWS_MAX), _ROWS_MAX, folder)
    origin = Origin(*made_with, folder, int(queue), int(log_id), findings)
    log = Log(origin, LogConfig(1, -1), starts)
    report = log.recover(_NOW, end)
    known: set[tuple[str, int]] = set()
    yield from _found(findings, known)
    if report.bytes_cut or report.segments_cut:
        problem = f"{report.bytes_cut} bytes at the end do not make a whole entry"
        if report.segments_cut:
            problem += (
                f", {report.segments_cut} segments among them that do not follow the one before"
            )
        name = segments_in(files, folder)[-1]
        path = f"{folder}/{name}{LOG_SUFFIX}"
        position = log.end[0] - name.position
        yield Stretch(path, position, report.bytes_cut, log.max_offset, 0, problem, TAIL)
    offset = log.min_offset
    while offset < log.max_offset:
        extent = log.find_run(offset, PIECE_BYTES, log.max_offset, refuse=False)
        segment, stop = extent.segment, extent.next_offset
        size, problem = extent.size, ""
        if size:
            try:
                run = extent.read()
                stop, size = run.next_offset, len(run.data)
            except CorruptError as error:
                stop, size = error.next_offset, 0
            except DescriptorsError:
                raise
            except StorageError as error:
                extent = log.find_run(offset, 0, log.max_offset, refuse=False)
                stop, size, problem = extent.next_offset, extent.size, str(error)
        yield from _found(findings, known)
        if size:
            position = extent.position - segment.base_position
            yield Stretch(segment.log_path, position, size, offset, stop - offset, problem)
        offset = stop
    files.close()


def _found(findings: Findings, known: set[tuple[str, int]]) -> Iterator[Stretch]:
    for item in findings.take():
        if (item.path, item.position) not in known:
            known.add((item.path, item.position))
            part = ROWS if item.mended else LOG
            yield Stretch(
                item.path, item.position, item.size, item.offset, item.count, item.problem, part
            )
