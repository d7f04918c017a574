"""Packages that only an extra of Steelyard installs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from steelyard.errors import SteelyardError


def imported(module: str, extra: str, what: str) -> Any:
    """Import a module of an extra, which is needed for `what`.

    Raises SteelyardError, which names the extra, if it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise SteelyardError(
            f"more packages are needed for {what}: pip install 'steelyard[{extra}]' ({error})"
        ) from None
