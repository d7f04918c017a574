"""What a JVM of ours and its Python workers print on stderr, without what means nothing.

Spark closes the connection of a Python worker that has had nothing to do for a minute, or whose
task was ended. The worker flushes to that connection, fails, and prints a traceback; PySpark has
no setting for that. It also tells of each step of a streaming query's worker.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from typing import IO, TextIO

BEGIN = "Traceback (most recent call last):"
LOST = re.compile(
    rf"{re.escape(BEGIN)}"
    r"|  File \".*[/\\]pyspark[/\\]daemon\.py\", line \d+, in (manager|worker)"
    r"|    code = worker\(sock, authenticated\)|    outfile\.flush\(\)| +[\^~]+"
    r"|(BrokenPipeError|ConnectionResetError): .*"
)
"""The lines of a traceback of a worker whose connection is gone."""
CHATTER = ("Starting Streaming TransformWithState", "Streaming TransformWithState")
LINES_MAX = 200
"""Most lines that are looked at as a whole."""


def meaningful(lines: Iterable[str]) -> Iterator[str]:
    """Leave out tracebacks of workers without a connection, and what workers say of themselves.

    Tracebacks of several workers may be mixed, line by line.
    """
    held: list[str] = []
    unfinished = 0
    chatted = False
    for line in lines:
        if held or line.startswith(BEGIN):
            held.append(line)
            unfinished += 1 if line.startswith(BEGIN) else 0 if line.startswith(" ") else -1
            if not unfinished or len(held) == LINES_MAX:
                if not all(LOST.fullmatch(one.rstrip("\r\n")) for one in held):
                    yield from held
                held, unfinished = [], 0
            continue
        is_blank_after = chatted and not line.strip()
        chatted = line.startswith(CHATTER)
        if not (chatted or is_blank_after):
            yield line
    yield from held


def pass_on(source: IO[bytes], target: TextIO) -> None:
    """Copy what is meaningful from one stream to the other, in the background, to its end."""

    def copy() -> None:
        for line in meaningful(str(each, "utf-8", "replace") for each in source):
            target.write(line)
            target.flush()

    threading.Thread(target=copy, name="stderr of Spark", daemon=True).start()
