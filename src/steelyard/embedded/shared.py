"""One server for all workers of pytest-xdist.

The first worker that needs it starts `steelyard up`, and writes where it is to a file; the others
read it. Its standard input is a named pipe that every worker holds open for writing, so that it
stops when the last one has ended, however that happened.

Workers agree under a lock on the file. A server whose users have all ended is stopping, or has
stopped: then the next worker starts another one.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard.config import BrokerConfig
from steelyard.embedded.administrator import access_of
from steelyard.embedded.attached import AttachedServer
from steelyard.errors import SteelyardError
from steelyard.settings import from_texts

PLACE_NAME = "steelyard.json"

WORDS_MAX = 500
"""Characters of the server's log that an error quotes."""


class SharedServer(AttachedServer):
    """The server of all workers whose files are in `folder`; stops when the last has left.

    Raises SteelyardError if it cannot be started.
    """

    def __init__(self, folder: Path, brokers: int, settings: Sequence[str]) -> None:
        self._folder = folder
        with (folder / "steelyard.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            place = self._place()
            if place is None:
                place = self._start(brokers, settings)
            else:
                self._lifeline = os.open(place["pipe"], os.O_WRONLY | os.O_CLOEXEC)
            place["users"] = [*place["users"], os.getpid()]
            (folder / PLACE_NAME).write_text(json.dumps(place))
        access = access_of(place["nameserver"], from_texts(BrokerConfig, settings))
        super().__init__(place["nameserver"], place["kafka"], Path(place["log"]), access=access)

    def _place(self) -> dict[str, Any] | None:
        """Return where a server is that somebody uses."""
        try:
            place: dict[str, Any] = json.loads((self._folder / PLACE_NAME).read_text())
        except FileNotFoundError:
            return None
        place["users"] = [user for user in place["users"] if _lives(user)]
        return place if place["users"] else None

    def _start(self, brokers: int, settings: Sequence[str]) -> dict[str, Any]:
        number = len(list(self._folder.glob("steelyard-*.log")))
        pipe = self._folder / f"steelyard-{number}.pipe"
        log = self._folder / f"steelyard-{number}.log"
        os.mkfifo(pipe)
        reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._lifeline = os.open(pipe, os.O_WRONLY | os.O_CLOEXEC)
        os.set_blocking(reading, True)
        command = [sys.executable, "-m", "steelyard", "up", "--json", "--until-stdin-closes"]
        command += ["--brokers", str(brokers), "--data", str(self._folder / f"steelyard-{number}")]
        command += ["--nameserver-port", "0", "--broker-port", "0", "--kafka-port", "0"]
        command += ["--verbose", *(f"--set={each}" for each in settings)]
        with log.open("wb") as errors:
            process = subprocess.Popen(
                command,
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for pytest
            )
        os.close(reading)
        assert process.stdout is not None
        with process.stdout:
            line = process.stdout.readline()
        if not line:
            process.wait()
            self.leave()
            words = log.read_text(errors="replace").strip()[-WORDS_MAX:]
            raise SteelyardError(f"steelyard up ended before it was ready: {words}")
        ready: Mapping[str, str] = json.loads(line)
        place = {"nameserver": ready["nameserver"], "kafka": ready["kafka"]}
        return {**place, "pipe": str(pipe), "log": str(log), "users": []}

    def leave(self) -> None:
        """Do not use the server any more."""
        os.close(self._lifeline)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
