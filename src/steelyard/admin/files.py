"""Files that commands write beside what they print."""

from __future__ import annotations

from pathlib import Path

from steelyard.errors import ConfigError


def write_file(path: Path, data: bytes) -> None:
    """Write a file, with the directories above it. Raises ConfigError if that is impossible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
