"""`steelyard backup`: which directories it takes, exit codes, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.admin.processes import start
from tests.admin.test_checking import flip, written
from tests.damage.filling import filled

from steelyard.admin.main import main
from steelyard.driver.disk import LiveDisk
from steelyard.store.memory import MemoryDisk


@pytest.fixture(scope="module")
def whole() -> MemoryDisk:
    return filled()


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_directory_in_use(
    tmp_path: Path, whole: MemoryDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, target = written(tmp_path / "data", whole), tmp_path / "made" / "copy"
    disk = LiveDisk(str(folder))
    assert main(["backup", str(folder), str(target)]) == 0
    disk.close()
    line = capsys.readouterr().out
    assert line.startswith(f"{target}: broker 'broker-a' of cluster 'DefaultCluster', node 1; 14 ")
    assert f"copied from {folder} and read back in " in line
    assert line.endswith("; 0 damaged, 0 notes\n")
    assert line.count("\n") == 1
    expected = contents(folder)
    del expected["clean-stop"]
    assert contents(target) == expected


def test_all_brokers_of_up_one_of_them_damaged(
    tmp_path: Path, whole: MemoryDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    data, target = tmp_path / "data", tmp_path / "copy"
    target.mkdir()
    for name in ("broker-a", "broker-b"):
        written(data / name, whole)
    flip(data / "broker-b" / "tables" / "offsets.table", 5)
    assert main(["backup", "--json", str(data), str(target)]) == 1
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(report["kind"], report["directory"]) for report in reports] == [
        ("backup", str(target / "broker-a")),
        ("finding", str(target / "broker-b")),
        ("backup", str(target / "broker-b")),
    ]
    assert reports[0]["source"] == str(data / "broker-a")
    assert [report["summary"]["damage"] for report in (reports[0], reports[2])] == [0, 1]


@pytest.mark.parametrize(
    ("source", "target", "wrong"),
    [
        ("data", "full", "full is not empty; name a directory that is empty or does not exist"),
        ("data", "full/file", "cannot read"),
        ("data", "full/file/below", "full/file/below: Not a directory"),
        ("missing", "copy", "missing: No such file or directory"),
        ("full", "copy", "full is not a data directory"),
        ("data", "data/copy", "data/copy is inside "),
        ("data", "link/copy", "link/copy is inside "),
    ],
)
def test_what_cannot_be_copied(
    tmp_path: Path,
    whole: MemoryDisk,
    source: str,
    target: str,
    wrong: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    written(tmp_path / "data", whole)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    (tmp_path / "link").symlink_to("data")
    assert main(["backup", str(tmp_path / source), str(tmp_path / target)]) == 2
    captured = capsys.readouterr()
    assert wrong in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not (tmp_path / "copy").exists()
    assert not (tmp_path / "data" / "copy").exists()


def test_output_that_cannot_be_written(tmp_path: Path, whole: MemoryDisk) -> None:
    """It is not the source that cannot be read."""
    folder = written(tmp_path / "data", whole)
    with open("/dev/full", "wb") as full:
        copying = start("backup", str(folder), str(tmp_path / "copy"), stdout=full)
        said = copying.communicate(timeout=60)[1]
    assert said == b"steelyard: cannot write the output: No space left on device\n"
    assert copying.returncode == 1
