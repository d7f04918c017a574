"""`tests/assertions.py` of sentry-arroyo, which its source package lacks: by what its tests expect of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def assert_changes(look: Callable[[], object], before: object, after: object) -> Iterator[None]:
    """Assert that the block turns one value into the other."""
    assert look() == before
    yield
    assert look() == after


@contextmanager
def assert_does_not_change(look: Callable[[], object], value: object) -> Iterator[None]:
    """Assert that the value is there before and after the block."""
    assert look() == value
    yield
    assert look() == value
