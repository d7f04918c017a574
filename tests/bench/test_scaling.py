"""The bench of more brokers at its smallest: two of them have their messages stored, and cost processor time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import scaling

pytestmark = pytest.mark.proof


def test_two_brokers(tmp_path: Path) -> None:
    brokers = scaling.Brokers(tmp_path / "data", 2)
    try:
        for what in scaling.LOADS.values():
            cost = brokers.measure(replace(what, seconds=0.3))
            assert cost.brokers_us > 0
            assert (cost.messages_per_s is not None) == brokers.is_pinned
    finally:
        brokers.stop()
    found = {(name, count): [cost] for name in scaling.LOADS for count in (1, 2)}
    assert len(scaling.table(found).splitlines()) == 2 + len(found)
