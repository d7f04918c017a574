"""The live fuzzer, for two seconds: that it works, and that it notices."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from tests.fuzz import fuzz_server


def test_a_short_run_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz_server.fuzz(2, seed=1) == 0
    printed = capsys.readouterr().out
    assert "seed 1, 2 s" in printed
    assert "good client: " in printed


def test_a_dead_broker_is_noticed_and_the_inputs_are_saved(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check = fuzz_server.Servers.check

    def check_of_a_fragile_broker(servers: fuzz_server.Servers) -> None:
        if psutil.pid_exists(servers.processes["broker"].pid):
            servers.processes["broker"].kill()
            servers.processes["broker"].wait()
        check(servers)

    monkeypatch.setattr(fuzz_server.Servers, "check", check_of_a_fragile_broker)
    monkeypatch.setattr(fuzz_server, "ROOT", tmp_path)
    assert fuzz_server.fuzz(20, seed=2) == 1
    assert "FAILED: the broker ended" in capsys.readouterr().out
    saved = (tmp_path / "out" / "fuzz-2.txt").read_text()
    assert saved.startswith("seed 2: the broker ended")
    assert "server output" in saved
