"""Golden data of Apache RocketMQ: see tests/golden/README.md."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

GOLDEN = Path(__file__).parent.parent / "golden"


class Captured(msgspec.Struct, frozen=True):
    """One frame of the capture; `code` is None in requests."""

    kind: str
    request: int
    ext: dict[str, str]
    code: int | None = None
    remark: str = ""
    body: str = ""

    @property
    def body_bytes(self) -> bytes:
        return self.body.encode() if self.body.startswith("{") else bytes.fromhex(self.body)


@pytest.fixture(scope="session")
def golden() -> dict[str, str]:
    """Name of the section -> its first line."""
    text = (GOLDEN / "rocketmq-5.3.3.txt").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {name: rest.split("\n")[0] for name, _, rest in (s.partition("\n") for s in sections)}


@pytest.fixture(scope="session")
def captures() -> list[Captured]:
    lines = (GOLDEN / "rocketmq-4.9.8.jsonl").read_bytes().splitlines()
    decoder = msgspec.json.Decoder(Captured)
    return [decoder.decode(line) for line in lines]
