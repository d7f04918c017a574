"""The examples of docs/TESTING.md, and of other pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

GUIDE = Path(__file__).parents[2] / "docs" / "TESTING.md"

_BLOCKS = re.compile(
    r"^```(?P<language>python|java|go|js)\n(?P<code>.*?)^```\n(?:\n?^```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


class Example(NamedTuple):
    """Code of the guide, and what it must print; None if nothing is said about that."""

    code: str
    output: str | None
    line: int


def examples(language: str, guide: Path = GUIDE) -> list[Example]:
    """All examples in a language, in the guide's order."""
    text = guide.read_text()
    return [
        Example(block["code"], block["output"], text.count("\n", 0, block.start("code")) + 1)
        for block in _BLOCKS.finditer(text)
        if block["language"] == language
    ]
