"""Folders that earlier versions wrote: they are opened, and everything in them is read as it was then."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from tests.damage.both import BothRig
from tests.damage.filling import filled
from tests.damage.reading import faults_of, read_everything

from steelyard.store.memory import MemoryDisk

GOLDEN = Path(__file__).parents[1] / "golden"


def unpacked(name: str) -> tuple[MemoryDisk, object]:
    """The folder in a golden archive, and what is to be read from it.

    Format 1 was written when the end of a queue with an open transaction was not yet its last
    stable offset.
    """
    disk = MemoryDisk()
    with zipfile.ZipFile(GOLDEN / name) as archive:
        for member in archive.namelist():
            if member.startswith("data/"):
                path = member.removeprefix("data/")
                disk.make_folder(path.rpartition("/")[0])
                disk.open(path).write(0, archive.read(member))
        expected = json.loads(archive.read("expected.json"))
    if name == "store-format-1.zip":
        expected["remoting"]["events/1"]["high"] = 26
        expected["times"]["events/1"]["10000000"][0] = "26"
    return disk, expected


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("store-format-*.zip")))
def test_a_folder_of_an_earlier_version_is_read_in_full(name: str) -> None:
    disk, expected = unpacked(name)
    rig = BothRig(disk)
    assert json.loads(json.dumps(read_everything(rig))) == expected
    rig.stop()
    assert json.loads(json.dumps(read_everything(BothRig(disk)))) == expected


def test_what_is_read_from_a_new_folder_does_not_depend_on_when() -> None:
    disk = filled()
    first = read_everything(BothRig(disk.copy()))
    assert faults_of(first) == []
    assert read_everything(BothRig(disk.copy())) == first
