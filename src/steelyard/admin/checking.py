"""`steelyard check DIR`: verify the data directory of a broker that is stopped, and repair it.

Exit code 0: nothing is damaged, 1: something is, 2: the directory cannot be checked (it is not a
data directory, or in use by a broker). After `--repair` 1 means that something is lost.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator

import msgspec

from steelyard.driver.disk import LiveDisk
from steelyard.errors import StorageError
from steelyard.store import check, salvage
from steelyard.store.files import Files, storage_error
from steelyard.wording import counted

PROGRESS_SECONDS = 1.0
"""Interval of progress updates, if standard error is a terminal."""

_MARKS = ("format", "tables", "logs")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check",
        help="verify the data of a stopped broker",
        description="Verify every checksum in a broker's data directory, or in all of those that"
        " `steelyard up` keeps in one. Nothing is changed without --repair.",
        epilog="Exit codes: 0 nothing is damaged; 1 something is damaged, or was lost by --repair;"
        " 2"
        " the directory"
        " cannot be checked.",
    )
    parser.add_argument(
        "directory", metavar="DIR", help="a broker's data directory, or that of `steelyard up`"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--repair",
        action="store_true",
        help="move damaged files to DIR/damaged-TIME, rebuild what can be rebuilt, and report what"
        " is lost",
    )
    action.add_argument(
        "--disown",
        action="store_true",
        help="allow a broker with another name, cluster or node id to use the directory",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    report = Report(as_json=options.json)
    code = 0
    for directory in directories(options.directory):
        disk = LiveDisk(directory)
        try:
            code = max(code, _look_at(directory, Files(disk), options, report))
        except OSError as error:
            raise storage_error("read", directory, error) from error
        finally:
            disk.close()
    return code


def directories(path: str) -> list[str]:
    """Return the data directory itself, or those of the brokers in it. Raises StorageError."""
    if _is_data(path):
        return [path]
    try:
        inside = [
            entry.path for entry in os.scandir(path) if entry.is_dir() and _is_data(entry.path)
        ]
    except OSError as error:
        raise storage_error("read", path, error) from None
    if not inside:
        raise StorageError(
            f"{path} is not a data directory: neither it nor a subdirectory contains a file"
            " 'format'"
        )
    return sorted(inside)


def _is_data(path: str) -> bool:
    return any(os.path.exists(os.path.join(path, mark)) for mark in _MARKS)


def _look_at(directory: str, files: Files, options: argparse.Namespace, report: Report) -> int:
    if options.disown:
        owner = salvage.disown(files)
        report.say(
            directory,
            "disowned",
            f"belonged to {owner}; the next broker that starts on it becomes its owner",
            was=owner,
        )
        return 0
    findings: list[check.CheckFinding] = []
    damage = 0
    for result in shown(directory, check.check(files)):
        if isinstance(result, check.CheckFinding):
            findings.append(result)
            report.finding(directory, result)
        elif isinstance(result, check.Summary):
            damage = result.damage
            report.summary(directory, result)
    if not options.repair:
        if damage:
            report.advise(f"steelyard check --repair {directory}")
        return 1 if damage else 0
    if not findings:
        return 0
    label = time.strftime("%Y%m%d-%H%M%S")
    lost = 0
    for deed in salvage.repair(files, findings, label, time.time_ns() // 1_000_000):
        lost += bool(deed.lost)
        report.deed(directory, deed)
    return 1 if lost else 0


def shown(
    directory: str, results: Iterable[check.Result]
) -> Iterator[check.CheckFinding | check.Summary]:
    """The results but for the progress, which goes to standard error if that is a terminal."""
    shows = sys.stderr.isatty()
    shown_at, done = time.monotonic(), 0
    for result in results:
        if not isinstance(result, check.BytesRead):
            yield result
            continue
        done += result.bytes
        if shows and time.monotonic() - shown_at >= PROGRESS_SECONDS:
            shown_at = time.monotonic()
            sys.stderr.write(f"\r{directory}: {done / 1e6:,.0f} MB read, at {result.path}\x1b[K")
            sys.stderr.flush()
    if shows:
        sys.stderr.write("\r\x1b[K")


class Report:
    """Prints results as text or JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def say(self, directory: str, kind: str, text: str, **more: object) -> None:
        if self._as_json:
            line = {"kind": kind, "directory": directory, "text": text}
            line |= {name: msgspec.to_builtins(value) for name, value in more.items()}
            print(json.dumps(line), flush=True)
        else:
            print(f"{directory}: {text}", flush=True)

    def finding(self, directory: str, found: check.CheckFinding) -> None:
        where = found.path
        if found.position >= 0:
            where += f", byte {found.position} ({counted(found.size, 'byte')})"
        whose = ""
        if found.count:
            last = found.offset + found.count - 1
            whose = (
                f" [topic {found.topic!r}, queue {found.queue_id}, offsets {found.offset} to"
                f" {last}]"
            )
        text = f"{found.severity}: {where}: {found.problem}{whose}"
        self.say(directory, "finding", text, finding=found)

    def summary(self, directory: str, summary: check.Summary) -> None:
        stop = "a clean stop" if summary.clean_stop else "no clean stop"
        text = f"{contents(summary)}; {stop}; {verdict(summary)}"
        self.say(directory, "summary", text, summary=summary)

    def deed(self, directory: str, deed: salvage.Deed) -> None:
        lost = f"; lost: {deed.lost}" if deed.lost else ""
        self.say(directory, "repair", f"repaired: {deed.path}: {deed.done}{lost}", repair=deed)

    def advise(self, command: str) -> None:
        if not self._as_json:
            print(f"`{command}` sets damaged files aside and keeps intact data", file=sys.stderr)


def contents(summary: check.Summary) -> str:
    """Format whose data it is, and how much."""
    owner = str(summary.owner) if summary.owner.broker else "nobody yet"
    return (
        f"{owner}; {counted(summary.tables, 'table')}, {counted(summary.logs, 'log')},"
        f" {counted(summary.messages, 'message')}, {counted(summary.bytes, 'byte')}"
    )


def verdict(summary: check.Summary) -> str:
    """Format how much is damaged, and how many notes there are."""
    return f"{summary.damage:,} damaged, {counted(summary.notes, 'note')}"
