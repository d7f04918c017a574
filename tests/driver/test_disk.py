"""The real disk: positions, names, the lock, a full device."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard.driver.disk import LiveDisk, LiveFile
from steelyard.errors import StorageError


def test_files_are_read_and_written_at_positions(tmp_path: Path) -> None:
    disk = LiveDisk(str(tmp_path / "new" / "folder"))
    file = disk.open("a")
    file.write(0, b"hello")
    file.write(10, b"world")
    assert file.size() == 15
    assert file.read(0, 15) == b"hello\0\0\0\0\0world"
    assert file.read(10, 100) == b"world"
    assert file.read(15, 1) == b""
    file.write(0, b"HE")
    file.truncate(5)
    file.sync()
    assert file.read(0, 100) == b"HEllo"
    file.close()
    assert disk.open("a").read(0, 5) == b"HEllo"
    disk.close()


def test_names(tmp_path: Path) -> None:
    disk = LiveDisk(str(tmp_path))
    disk.make_folder("b/c")
    disk.make_folder("b/c")
    for name in ("b/2", "b/1", "top"):
        disk.open(name).close()
    assert disk.list("b") == ["1", "2", "c"]
    assert disk.list("") == ["b", "top"], "the lock file is not the store's"
    assert disk.list("missing") == []
    disk.rename("b/2", "b/1")
    assert disk.list("b") == ["1", "c"]
    assert disk.exists("b/1")
    assert not disk.exists("b/2")
    disk.remove("b/1")
    disk.remove("b/c")
    disk.sync_folder("b")
    disk.sync_folder("")
    assert disk.list("b") == []
    disk.close()


def test_a_directory_has_one_user_at_a_time(tmp_path: Path) -> None:
    disk = LiveDisk(str(tmp_path))
    with pytest.raises(StorageError, match=rf"in use by another process \({os.getpid()}\)"):
        LiveDisk(str(tmp_path))
    disk.close()
    LiveDisk(str(tmp_path)).close()


def test_a_killed_process_leaves_the_directory_free(tmp_path: Path) -> None:
    program = (
        "import sys, time; from steelyard.driver.disk import LiveDisk;"
        f" disk = LiveDisk({str(tmp_path)!r}); print('locked', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(StorageError, match=str(process.pid)):
            LiveDisk(str(tmp_path))
        process.kill()
    LiveDisk(str(tmp_path)).close()


def test_what_is_no_directory_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        LiveDisk(str(tmp_path / "file"))


@pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="Linux has a device that is always full"
)
def test_a_full_disk_is_an_os_error() -> None:
    file = LiveFile("/dev/full")
    with pytest.raises(OSError) as caught:
        file.write(0, b"x")
    assert caught.value.errno == errno.ENOSPC
    file.close()
