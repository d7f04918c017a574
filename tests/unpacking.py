"""Unpacking tar archives with any Python: filters came with 3.11.4 (PEP 706)."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Extract all members, none of them outside the folder where Python can see to that."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
    else:
        archive.extractall(folder)
