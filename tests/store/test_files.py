"""What is synced in another thread must not come back to life when it was removed meanwhile."""

from pathlib import Path

import pytest

from steelyard.driver.disk import LiveDisk
from steelyard.store.disk import Disk, File
from steelyard.store.files import Files, Unsynced
from steelyard.store.memory import MemoryDisk


class Hurried:
    """A disk on which a file is removed at the worst moment: when the syncing thread has just seen it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def exists(self, path: str) -> bool:
        found = self._disk.exists(path)
        self._disk.remove(path)
        return found

    def open(self, path: str) -> File:
        return self._disk.open(path)

    def open_existing(self, path: str) -> File | None:
        self._disk.remove(path)
        return self._disk.open_existing(path)


@pytest.mark.parametrize("kind", ["memory", "live"])
def test_a_file_that_goes_while_it_is_to_be_synced_stays_away(kind: str, tmp_path: Path) -> None:
    disk: Disk = MemoryDisk() if kind == "memory" else LiveDisk(str(tmp_path))
    files = Files(disk)
    files.create("folder/log")
    files.write("folder/log", 0, b"data")
    paths = files.take().paths
    assert paths == ("folder/log",)
    Unsynced(Hurried(disk), paths, ()).sync()  # type: ignore[arg-type]  # all that a sync asks for
    assert disk.list("folder") == []
