"""The blocking clients, the keyword groups and docs/SETTINGS.md are what programs in tools/ make of their sources."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard.client.aio import client as own_client
from steelyard.client.aio import producer as own
from steelyard.client.blocking import client as made_client
from steelyard.client.blocking import producer as made

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("program", ["tools/shells.py", "tools/settings.py"])
def test_nothing_generated_is_stale(program: str) -> None:
    """`./dev generate` renews it."""
    command = [sys.executable, program, "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_generated_module_is_its_source_without_await() -> None:
    text = Path(str(made.__file__)).read_text()
    assert text.startswith("# Written by tools/shells.py from client/aio/producer.py")
    assert "await" not in text
    assert "asyncio" not in text
    for source, written in ((own.Producer, made.Producer), (own_client.Client, made_client.Client)):
        names = {re.sub("^__a(enter|exit)__$", r"__\1__", name) for name in vars(source)}
        assert names == set(vars(written))
