"""Regular expressions of clients: whole names, RE2's language, no pattern that takes for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.groups.kafka.patterns import PATTERN_CHARACTERS_MAX, Pattern, PatternError


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a", ["a"], ["A", "aa", "b"]),
        ("a|bc|", ["a", "bc"], ["b", "abc"]),
        ("^topic-.*$", ["topic-1"], ["topic", "my-topic-1"]),
        (r"\Atopic\z", ["topic"], ["topics"]),
        (r"a\.c", ["a.c"], ["abc"]),
        ("[[:alpha:][:digit:]]+", ["a1"], ["a-1"]),
        ("(?i)ab", ["ab", "AB", "aB"], ["b"]),
        (r"\Qa.b\E+", ["a.b", "a.bb"], ["axb"]),
        (r"\btopic\b.*", ["topic-1"], ["topics"]),
    ],
)
def test_all_of_a_name_must_match(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [name for name in matching if not compiled.matches(name)] == []
    assert [name for name in others if compiled.matches(name)] == []


@pytest.mark.parametrize(
    "pattern",
    ["(", "[a", "*", "a{1001}", "(?=a)", "(?<!a)b", r"(a)\1", "(?i", "\ud800", "(a{999}){999}"],
)
def test_what_is_no_pattern_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(PatternError) as refused:
        Pattern(pattern)
    assert str(refused.value)


def test_a_pattern_has_a_longest_length() -> None:
    assert Pattern("a" * PATTERN_CHARACTERS_MAX).matches("a" * PATTERN_CHARACTERS_MAX)
    with pytest.raises(PatternError, match="longer than 1000 characters"):
        Pattern("a" * (PATTERN_CHARACTERS_MAX + 1))


@pytest.mark.parametrize("pattern", ["(a+)+", "(a*)*c", "(a|a)*", "(a|aa)+", "((a?)a){100}"])
def test_what_blows_up_elsewhere(pattern: str) -> None:
    """Backtracking takes 2 to the power of 200 steps here; this test would not end."""
    assert not Pattern(pattern).matches("a" * 200 + "b")


@given(st.text(max_size=40), st.text("aB1.-_", max_size=10))
def test_any_text_is_a_pattern_or_refused(text: str, name: str) -> None:
    try:
        pattern = Pattern(text)
    except PatternError:
        return
    assert pattern.matches(name) in (True, False)
