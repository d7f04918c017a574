"""Writes docs/METRICS.md from the declarations in web/metrics.py.

./dev generate                     write it
python tools/metrics.py --check    say whether it is stale, and fail
"""

from __future__ import annotations

import sys
from pathlib import Path

from steelyard.web.metrics import page

PAGE = Path(__file__).resolve().parents[1] / "docs" / "METRICS.md"


def main() -> int:
    """Write the page; with --check say whether it is stale."""
    if "--check" not in sys.argv:
        PAGE.write_text(page())
        return 0
    if PAGE.read_text() == page():
        return 0
    print("docs/METRICS.md is stale: run ./dev generate")
    return 1


if __name__ == "__main__":
    sys.exit(main())
