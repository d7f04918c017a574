"""The scripts and recipes of docs/SPARK.md, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/SPARK.md"


def blocks(language: str) -> dict[str, str]:
    """The code blocks of a language by the name in their first line, a comment."""
    found = re.findall(rf"^```{language}\n# (\S+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    return dict(found)


SCRIPTS = blocks("python")
RECIPES = blocks("sh")
