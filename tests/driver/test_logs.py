from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from steelyard.driver import logs
from steelyard.driver.log_lines import json_line, message_in, own_line

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


# -- JSON ------------------------------------------------------------------------------------------


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What a server with `--log-format json` writes."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    formatter = logs.JsonLines()
    formatter.server = "broker-a"
    handler.setFormatter(formatter)
    handler.addFilter(logs.Printable())
    root = logging.getLogger()
    root.addHandler(handler)
    yield out
    root.removeHandler(handler)


def test_a_record_as_json(lines: io.StringIO) -> None:
    logs.logger("steelyard.test").warning('%s said "no"', HOSTILE)
    line = json.loads(lines.getvalue())
    assert lines.getvalue().count("\n") == 1
    assert line.pop("time").startswith("20")
    assert line == {
        "level": "WARNING",
        "logger": "steelyard.test",
        "message": 'x\\x1b[2J\\n2026 ERROR forged\\u2028\\u202e said "no"',
        "server": "broker-a",
    }


@pytest.mark.parametrize("name", ["steelyard.test", "asyncio"])
def test_a_traceback_as_json_is_in_one_line(lines: io.StringIO, name: str) -> None:
    log = logs.logger(name) if name.startswith("steelyard") else logging.getLogger(name)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception("failed")
    assert lines.getvalue().count("\n") == 1
    line = json.loads(lines.getvalue())
    assert line["message"] == "failed"
    assert line["traceback"].startswith("Traceback (most recent call last):\n")
    assert "forged" in line["traceback"].splitlines()[-1]
    assert "\x1b" not in line["traceback"]


def test_the_fields_of_a_line() -> None:
    assert json_line(1_764_000_005.0299, "INFO", "asyncio", "a\nb", traceback="T") == (
        '{"time": "2025-11-24T16:00:05.029Z", "level": "INFO", "logger": "asyncio", '
        '"message": "a\\nb", "traceback": "T"}'
    )


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_message_of_a_line(log_format: str) -> None:
    line = own_line(log_format, "ERROR", "up", 'it "ended"')
    assert message_in(line) == ('it "ended"' if log_format == "json" else 'steelyard: it "ended"')


@pytest.mark.parametrize("line", ["{", '{"a": 1}', "{'message': 1}", "text", ""])
def test_of_other_lines_all_is_the_message(line: str) -> None:
    assert message_in(line) == line
