"""Archives for executors that have no Steelyard: of this environment's files, needing no network.

A reader is pickled here and unpickled in the executors' Python, so both need the same versions:
what is packed is what is installed here. Compiled packages (msgspec, pyarrow) cannot be imported
from a zip file, so `--py-files` serves executors that have them; `--archives` unpacks everything.
PySpark is left out, as executors have their own.
"""

from __future__ import annotations

import argparse
import re
import tarfile
import zipfile
from collections.abc import Collection, Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pyspark_rocketmq
import steelyard
from steelyard.arguments import OneLineParser
from steelyard.errors import ConfigError, SteelyardError

NEEDED = ("steelyard", "pyarrow", "numpy")
"""What reads a topic. Their dependencies are added."""

OURS = (steelyard, pyspark_rocketmq)
LEFT_OUT = {"__pycache__", "tests"}
"""Folders that nothing imports at run time."""

COMPRESSION = 5
"""Of gzip: 6 to 9 are slower and hardly smaller."""


def write_archive(
    out: str | Path, *, added: Collection[str] = (), left_out: Collection[str] = ()
) -> int:
    """Write `out`, whose name ends with .tar.gz or .zip; return its size in bytes.

    `added` and `left_out` are names of distributions, for .tar.gz only. Raises ConfigError for
    another name, for a distribution that is not installed or, to be left out, not needed, and if
    `out` cannot be written.
    """
    path = Path(out)
    try:
        _write(path, added, left_out)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None
    return path.stat().st_size


def _write(path: Path, added: Collection[str], left_out: Collection[str]) -> None:
    if path.name.endswith((".tar.gz", ".tgz")):
        names = required([*NEEDED, *added], left_out)
        with tarfile.open(path, "w:gz", compresslevel=COMPRESSION) as archive:
            for name, file in _files(names):
                archive.add(file, name, recursive=False)
    elif path.suffix == ".zip":
        if added or left_out:
            raise ConfigError("a .zip has Steelyard alone; --with and --without need a .tar.gz")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, file in _own_files():
                archive.write(file, name)
    else:
        raise ConfigError(f"--out is {str(path)!r}; its name must end with .tar.gz or .zip")


def required(names: Iterable[str], left_out: Iterable[str] = ()) -> list[str]:
    """Return the distributions that `names` need, themselves included, as far as installed here.

    Without `left_out` and what only those need. Raises ConfigError if one of `names` is not
    installed, or one of `left_out` is not needed anyway.
    """
    names = list(names)
    skipped = {_canonical(name) for name in left_out}
    if skipped:
        needed = required(names)
        for name in sorted(skipped.difference(needed)):
            text = f"{name!r} cannot be left out: it is not needed; these are: {', '.join(needed)}"
            raise ConfigError(text)
    waiting = [_canonical(name) for name in names]
    first = set(waiting)
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in found or name in skipped:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            # A dependency of other platforms or versions of Python.
            if name not in first:
                continue
            raise ConfigError(f"{name!r} is not installed here: pip install {name}") from None
        found.add(name)
        for requirement in distribution.requires or ():
            text, _, condition = requirement.partition(";")
            if "extra" not in condition:
                waiting.append(_canonical(re.split(r"[^\w.-]", text, maxsplit=1)[0]))
    return sorted(found)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _files(names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield (name in the archive, file); Steelyard may be installed in editable mode."""
    yield from _own_files()
    for name in names:
        distribution = metadata.distribution(name)
        if name == "steelyard":
            continue
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            # What lies outside of site-packages are scripts.
            if ".." not in file.parts and not LEFT_OUT & {*file.parts} and path.is_file():
                yield str(file), path


def _own_files() -> Iterator[tuple[str, Path]]:
    for package in OURS:
        folder = Path(package.__path__[0])
        if not folder.is_dir():
            raise SteelyardError(f"Steelyard runs from {folder}; install it to pack it")
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(folder.parent)), path


# -- command line ----------------------------------------------------------------------------------


def add_archive(jobs: argparse._SubParsersAction[OneLineParser]) -> None:
    """Add the parser of `steelyard pipeline archive`."""
    parser = jobs.add_parser(
        "archive",
        help="what executors need, for --archives or --py-files of Spark",
        description="Writes what Spark's Python workers need: FILE.tar.gz, for --archives, has"
        " Steelyard with its dependencies as they are installed here, for the same platform and"
        " version of Python; FILE.zip, for --py-files, has Steelyard alone.",
    )
    parser.set_defaults(run=_run)
    parser.add_argument("--out", required=True, metavar="FILE", help="FILE.tar.gz or FILE.zip")
    parser.add_argument(
        "--with",
        action="append",
        default=[],
        dest="added",
        metavar="NAME",
        help="another installed package, with its dependencies, e.g. pandas; repeatable",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        dest="left_out",
        metavar="NAME",
        help="a package that executors have, e.g. pyarrow, numpy; repeatable",
    )


def _run(options: argparse.Namespace) -> int:
    size = write_archive(options.out, added=options.added, left_out=options.left_out)
    print(f"{options.out}: {size / 1e6:.1f} MB")
    return 0
