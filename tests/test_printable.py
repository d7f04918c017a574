from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.printable import printable, printable_json, printable_lines

UNFIT = "\x00\x07\x08\x0b\x1b\x7f\x80\x85\x9b\u2028\u2029\u061c\u200b\u200e\u200f\u202a\u202e\u2066\u2069\ufeff"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("ümlaut 漢字 \U0001f600 é", "ümlaut 漢字 \U0001f600 é"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nWARNING b\r\tc", "a\\nWARNING b\\r\\tc"),
        ("\x9b31m\x85", "\\x9b31m\\x85"),
        ("a\u2028b\u2029", "a\\u2028b\\u2029"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("mark", UNFIT)
def test_no_unfit_character_is_left(mark: str) -> None:
    assert mark not in printable(f"a{mark}b")
    assert mark not in printable_lines(f"a{mark}b")


def test_all_controls_and_line_ends_of_unicode_are_escaped() -> None:
    for code in range(sys.maxunicode + 1):
        kind = unicodedata.category(chr(code))
        bidirectional = unicodedata.bidirectional(chr(code)) in (
            *("LRE", "RLE", "LRO", "RLO", "PDF"),
            *("LRI", "RLI", "FSI", "PDI"),
        )
        if kind in ("Cc", "Zl", "Zp", "Cs") or bidirectional:
            assert chr(code) not in printable(chr(code)), hex(code)


@given(st.text())
def test_a_line_stays_a_line(text: str) -> None:
    assert len(printable(text).splitlines()) <= 1
    assert printable(printable(text)) == printable(text)


def test_lines_stay_lines() -> None:
    assert printable_lines("a\tb\nc\x1b\r") == "a\tb\nc\\x1b\\x0d".replace("\\x0d", "\\r")


@pytest.mark.parametrize("value", ["plain", "a\tb", "bell\x07", "next\x85line", "\u202e"])
def test_json_stays_the_same_json(value: str) -> None:
    text = json.dumps({"name": value}, ensure_ascii=False, indent=1)
    shown = printable_json(text)
    assert json.loads(shown) == {"name": value}
    assert shown == printable_lines(shown)
    assert shown.count("\n") == text.count("\n")
