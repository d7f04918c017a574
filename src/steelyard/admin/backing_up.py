"""`steelyard backup DIR TARGET`: copy the data directory of a broker that may be running.

The copy is read back and verified as `steelyard check` does. Exit code 0: it is whole, 1: something
in it is damaged, 2: it could not be made.
"""

from __future__ import annotations

import argparse
import os
import time

from steelyard.admin import exits
from steelyard.admin.checking import Report, contents, directories, shown, verdict
from steelyard.driver.disk import LiveDisk
from steelyard.driver.source import LiveSource
from steelyard.errors import StorageError
from steelyard.store import backup, check
from steelyard.store.files import Files, storage_error


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "backup",
        help="copy the data of a broker, which may be running, and verify the copy",
        description="Copy a broker's data directory, or all of those that `steelyard up` keeps in"
        " one, and verify every checksum of the copy. The broker may run meanwhile: what it has"
        " acknowledged before is in the copy. A broker can be started on the copy as it is.",
        epilog="Exit codes: 0 the copy is whole; 1 something in it is damaged, so probably in DIR"
        " as well; 2 it could not be made.",
    )
    parser.add_argument(
        "directory", metavar="DIR", help="a broker's data directory, or that of `steelyard up`"
    )
    parser.add_argument(
        "target", metavar="TARGET", help="directory for the copy; must be empty or not exist"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    report = Report(as_json=options.json)
    sources = directories(options.directory)
    _check_outside(options.target, options.directory)
    _check_empty(options.target)
    code = exits.SUCCESS
    for source in sources:
        target = options.target
        if source != options.directory:
            target = os.path.join(target, os.path.basename(source))
        code = max(code, _back_up(source, target, report))
    return code


def _check_outside(target: str, directory: str) -> None:
    """Raise StorageError for a copy that would become a part of what is copied."""
    inside, outside = os.path.realpath(target), os.path.realpath(directory)
    if os.path.commonpath([inside, outside]) == outside:
        raise StorageError(f"{target} is inside {directory}; name a directory outside of it")


def _check_empty(target: str) -> None:
    try:
        names = os.listdir(target)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error("read", target, error) from None
    if names:
        raise StorageError(
            f"{target} is not empty; name a directory that is empty or does not exist"
        )


def _back_up(source: str, target: str, report: Report) -> int:
    """Copy one data directory and verify the copy; return the exit code."""
    began = time.monotonic()
    disk = LiveDisk(target)
    try:
        files = Files(disk)
        list(shown(source, backup.copy(LiveSource(source), files)))  # this shows the progress
        code = exits.SUCCESS
        for result in shown(target, check.check(files)):
            if isinstance(result, check.Summary):
                seconds = time.monotonic() - began
                text = (
                    f"{contents(result)}; copied from {source} and read back in {seconds:.1f} s;"
                    f" {verdict(result)}"
                )
                report.say(target, "backup", text, source=source, summary=result)
            elif result.severity == check.DAMAGE:
                code = exits.FAILED
                report.finding(target, result)
    except OSError as error:
        raise storage_error("read", source, error) from error
    finally:
        disk.close()
    return code
