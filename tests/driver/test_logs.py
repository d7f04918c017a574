from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from steelyard.driver import logs

HOSTILE = "x\x1b[2J\n2026 ERROR forged\u2028\u202e"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a plain handler of an application writes."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    root = logging.getLogger("steelyard")
    root.addHandler(handler)
    yield out
    root.removeHandler(handler)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("%s said", (HOSTILE,)),
        ("%s said", (ValueError(HOSTILE),)),
        (HOSTILE, ()),
        ("%(name)s said", ({"name": HOSTILE},)),
    ],
)
def test_a_record_is_one_line_without_controls(
    written: io.StringIO, text: str, arguments: tuple[object, ...]
) -> None:
    logs.logger("steelyard.test").warning(text, *arguments)
    line = written.getvalue()
    assert line.startswith("WARNING x\\x1b[2J\\n2026 ERROR forged\\u2028\\u202e")
    assert line.count("\n") == 1
    assert "\x1b" not in line


def test_a_traceback_keeps_its_lines_but_no_controls(written: io.StringIO) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logs.logger("steelyard.test").exception("failed")
    text = written.getvalue()
    assert "Traceback" in text.split("\n")[1]
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_what_has_lines_by_design_keeps_them(written: io.StringIO) -> None:
    logs.logger("steelyard.test").error("the last:\n%s", "a\nb\x1b", extra=logs.LINES)
    assert written.getvalue() == "ERROR the last:\na\nb\\x1b\n"


def test_a_logger_has_the_filter_once() -> None:
    first = logs.logger("steelyard.test")
    before = len(first.filters)
    assert logs.logger("steelyard.test") is first
    assert len(first.filters) == before
