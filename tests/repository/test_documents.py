"""Links between the documents lead somewhere, and every decision record is complete and listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")]
)
DECISIONS = ROOT / "docs/decisions"


def links(text: str) -> list[str]:
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in target]


def anchors(text: str) -> set[str]:
    """Of its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ +(.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(document: Path) -> None:
    for link in links(document.read_text()):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), f"{link}: no such file"
        if anchor:
            assert anchor in anchors(target.read_text()), f"{link}: no such heading"


def test_decision_records_are_numbered_dated_and_listed() -> None:
    records = sorted(DECISIONS.glob("[0-9]*.md"))
    numbers = [int(record.name[:4]) for record in records]
    assert numbers == list(range(1, len(records) + 1))
    listed = re.findall(
        r"^\| (\d+) \| \[(.+)\]\((.+)\) \| (.+) \|$",
        (DECISIONS / "README.md").read_text(),
        flags=re.MULTILINE,
    )
    stated = []
    for record in records:
        found = re.match(
            r"# (\d+)\. (.+)\n\nDate: (\d{4}-\d\d-\d\d) · Status: (accepted|superseded by .+)\n\n"
            r"## Context\n.+\n\n## Decision\n.+\n\n## Consequences\n.+",
            record.read_text(),
            flags=re.DOTALL,
        )
        assert found, f"{record.name}: expected title, date, status and three sections"
        number, title, date, _status = found.groups()
        stated.append((number, title, record.name, date))
    assert listed == stated
