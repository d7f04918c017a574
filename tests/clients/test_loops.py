"""Servers run on uvloop where it is installed, and on asyncio's own loop elsewhere: both protocols, answers that lie in files too."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from tests.clients.confluent import Confluent
from tests.clients.libraries import Sent
from tests.peers.kafka import servers

from steelyard import Producer

RECORD_BYTES = 50_000
"""Batches of a few of them are sent from the file."""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc to see the loop")
@pytest.mark.parametrize("uvloop", [True, False], ids=["uvloop", "asyncio"])
def test_a_server_takes_the_loop_that_there_is(
    uvloop: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if uvloop and find_spec("uvloop") is None:
        pytest.skip("uvloop is not installed")
    if not uvloop:
        (tmp_path / "uvloop.py").write_text("raise ImportError('not here')\n")
        monkeypatch.setenv(
            "PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
        )
    with servers.run_steelyard(tmp_path / "cluster") as running:
        (broker,) = [
            process
            for process in psutil.Process().children(recursive=True)
            if "broker" in process.cmdline() and str(tmp_path) in " ".join(process.cmdline())
        ]
        assert ("/uvloop/loop." in Path(f"/proc/{broker.pid}/maps").read_text()) is uvloop
        with Producer("loops", running.nameserver) as producer:
            assert producer.send("Loops", b"one").queue_offset == 0
        library = Confluent(running.bootstrap)
        values = [bytes([number]) * RECORD_BYTES for number in range(100)]
        library.create_topic("large")
        library.send("large", [Sent(value) for value in values])
        assert [record.value for record in library.read("large", {0: 0}, 100)] == values
        library.close()
