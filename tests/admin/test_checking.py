"""`steelyard check`: which directories it takes, exit codes, what it prints, and a broker that starts after a repair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.damage.filling import filled

from steelyard.admin.main import main
from steelyard.driver.disk import LiveDisk
from steelyard.store.memory import MemoryDisk


def written(root: Path, disk: MemoryDisk) -> Path:
    for name, file in disk.files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(file.data))
    return root


@pytest.fixture(scope="module")
def whole() -> MemoryDisk:
    return filled()


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))


def test_a_sound_directory(
    tmp_path: Path, whole: MemoryDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "data", whole)
    assert main(["check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{folder}: broker 'broker-a' of cluster 'DefaultCluster', node 1; ")
    assert out.endswith("; a clean stop; 0 damaged, 0 notes\n")


def test_all_brokers_of_up_and_a_repair(
    tmp_path: Path, whole: MemoryDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = written(tmp_path / "broker-a", whole)
    hurt = written(tmp_path / "broker-b", whole)
    (tmp_path / "something else").mkdir()
    flip(hurt / "tables" / "offsets.table", 5)
    assert main(["check", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [str(sound), str(hurt), str(hurt)]
    assert lines[1].startswith(f"{hurt}: damage: tables/offsets.table, byte 0 (")
    assert f"steelyard check --repair {hurt}" in captured.err
    assert main(["check", "--repair", "--json", str(tmp_path)]) == 1
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [(report["directory"], report["kind"]) for report in reports]
    assert kinds == [
        (str(sound), "summary"),
        (str(hurt), "finding"),
        (str(hurt), "summary"),
        (str(hurt), "repair"),
    ]
    assert "byte 0" in reports[-1]["repair"]["lost"]
    assert main(["check", str(tmp_path)]) == 0
    assert len(list(hurt.glob("damaged-*/tables/offsets.table"))) == 1


@pytest.mark.parametrize("what", ["missing", "empty", "a file"])
def test_what_is_no_data_directory(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x"
    if what == "empty":
        path.mkdir()
    elif what == "a file":
        path.write_text("")
    assert main(["check", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
    assert path.exists() == (what != "missing")
    assert not (path / "lock").exists()


def test_a_broker_runs_on_it(
    tmp_path: Path, whole: MemoryDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "data", whole)
    disk = LiveDisk(str(folder))
    assert main(["check", str(folder)]) == 2
    assert "in use by another process" in capsys.readouterr().err
    disk.close()


def test_a_newer_format(
    tmp_path: Path, whole: MemoryDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "data", whole)
    (folder / "format").write_text("steelyard-store 99".ljust(63) + "\n538817c3\n")
    assert main(["check", "--repair", str(folder)]) == 2
    assert "has format 99" in capsys.readouterr().err


def test_a_broker_on_a_damaged_directory_names_file_and_command(
    tmp_path: Path, whole: MemoryDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "data", whole)
    flip(folder / "tables" / "topics.table", 20)
    arguments = ["broker", "--data", str(folder), "--port", "0", "--kafka-port", "0"]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"steelyard: data directory {folder}: tables/topics.table is damaged: bytes 0 to "
    )
    assert f"`steelyard check --repair {folder}`" in line


def test_a_broker_on_anothers_directory_is_told_whose_it_is(
    tmp_path: Path, whole: MemoryDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "data", whole)
    arguments = ["broker", "--data", str(folder), "--port", "0", "--name", "broker-b"]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "belongs to broker 'broker-a' of cluster 'DefaultCluster', node 1" in line
    assert "not to broker 'broker-b'" in line
    command = f"steelyard check --disown {folder}"
    assert f"`{command}`" in line
    assert main(command.split()[1:]) == 0
    assert "belonged to broker 'broker-a'" in capsys.readouterr().out
    assert main(["check", str(folder)]) == 0
    assert f"{folder}: nobody yet; " in capsys.readouterr().out
