"""`steelyard up --until-stdin-closes`: servers end with whoever has started them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
from tests.waiting import PATIENCE_S

UP = [sys.executable, "-m", "steelyard", "up", "--until-stdin-closes", "--json"]
PORTS = ["--nameserver-port", "0", "--broker-port", "0"]


def test_the_end_of_input_stops_everything(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*UP, *PORTS, "--data", str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout, process.stdin:
        assert set(json.loads(process.stdout.readline())) == {"nameserver", "brokers"}
        servers = psutil.Process(process.pid).children()
        assert len(servers) == 2
        process.stdin.write(b"what is written is ignored\n")
        process.stdin.flush()
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
    assert not any(map(psutil.pid_exists, [server.pid for server in servers]))


def test_input_that_never_ends_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with file.open() as stdin:
        done = subprocess.run(
            [*UP, *PORTS, "--data", str(tmp_path / "data")],
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == (
        "steelyard: --until-stdin-closes needs a pipe as standard input, which its starter keeps"
        " open\n"
    )
