"""The kill storm, hostile requests and the long load, for seconds: that they work, and that they notice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.fuzz import hostile, load, soak, storm, trial


@pytest.mark.timeout(400)
def test_a_short_storm_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert storm.storm(4, seed=1) == 0, capsys.readouterr().out
    printed = capsys.readouterr().out
    assert "kills: " in printed
    assert "no commit lost" in printed


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction waits for the broker's question."""
    monkeypatch.setattr(load.Transactions, "UNDECIDED_EVERY", 1_000_000)


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("decided")
def test_a_short_soak_tells_latencies(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "SAMPLE_SECONDS", 0.5)
    monkeypatch.setattr(soak, "GROWTH_BYTES_MAX", 1 << 30)  # it has hardly begun
    monkeypatch.setattr(soak, "GROWTH_DESCRIPTORS_MAX", 1_000)
    assert soak.soak(2, seed=1) == 0, capsys.readouterr().out
    assert "p99.9" in capsys.readouterr().out


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("decided")
def test_hostile_requests_harm_nobody_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert hostile.hostile(3, seed=1) == 0, capsys.readouterr().out
    assert "attacks: " in capsys.readouterr().out


@pytest.mark.timeout(400)
def test_a_lost_record_is_noticed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As if a broker had acknowledged what it does not have."""
    verify = load.Produces.verify

    def verify_more(produces: load.Produces) -> str:
        produces.acknowledged[0, 10**9] = b"never written"
        return verify(produces)

    monkeypatch.setattr(load.Produces, "verify", verify_more)
    monkeypatch.setattr(storm.Storm, "blow", lambda self: time.sleep(0.1))
    monkeypatch.setattr(trial, "ROOT", tmp_path)
    assert storm.storm(1, seed=2) == 1
    assert "FAILED: 1 acknowledged records are not where they were" in capsys.readouterr().out
