"""Conditions as text: what is read how, what is refused, limits; and any tree, written out, is read back."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from steelyard.errors import ProtocolError
from steelyard.sql92.expressions import (
    NULL,
    And,
    Condition,
    Constant,
    Equal,
    EvaluationError,
    Expression,
    In,
    Literal,
    Long,
    Negation,
    Not,
    Or,
    Ordered,
    Ordering,
    Partial,
    Property,
    TextMatch,
    Truth,
)
from steelyard.sql92.parser import CHARACTERS_MAX, DEPTH_MAX, parse

A, B, C = Property("a"), Property("b"), Property("c")
ONE, TWO, X = Constant(1), Constant(2), Constant("x")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1", Equal(A, ONE)),
        ("a<>1", Not(Equal(A, ONE))),
        ("a IS NULL", Equal(A, NULL)),
        ("a is Not null", Not(Equal(A, NULL))),
        (
            "a between 1 and 2",
            And(
                (
                    Ordered(A, Ordering.GREATER_OR_EQUAL, ONE),
                    Ordered(A, Ordering.LESS_OR_EQUAL, TWO),
                )
            ),
        ),
        (
            "a not between 1 and 2",
            Or((Ordered(A, Ordering.LESS, ONE), Ordered(A, Ordering.GREATER, TWO))),
        ),
        ("a in ('x','y')", In(A, frozenset(("x", "y")), negated=False)),
        ("a NOT IN ( 'x' )", In(A, frozenset(("x",)), negated=True)),
        ("a contains 'x'", Partial(A, TextMatch.CONTAINS, "x", negated=False)),
        ("a not endswith 'it''s'", Partial(A, TextMatch.ENDS_WITH, "it's", negated=True)),
        ("a = 1 or b = 2 and c = 1", Or((Equal(A, ONE), And((Equal(B, TWO), Equal(C, ONE)))))),
        ("(a = 1 or b = 2) and c", And((Or((Equal(A, ONE), Equal(B, TWO))), Truth(C)))),
        ("NOT a = 1", Equal(Not(Truth(A)), ONE)),
        ("NOT (a = 1)", Not(Equal(A, ONE))),
        ("NOT NOT a", Not(Not(Truth(A)))),
        ("a = 1 = TRUE", Equal(Equal(A, ONE), Literal(True))),
        ("a > -1", Ordered(A, Ordering.GREATER, Negation(ONE))),
        ("a > - + 1", Ordered(A, Ordering.GREATER, Negation(ONE))),
        ("a = 1L", Equal(A, ONE)),
        ("a = 2147483648", Equal(A, Constant(Long(2147483648)))),
        ("a = 1.", Equal(A, Constant(1.0))),
        ("a = .5E-1", Equal(A, Constant(0.05))),
        ("a = 5e3", Equal(A, Constant(5000.0))),
        ("a=1/* b *//**/--c\nor/***/b=2--\r", Or((Equal(A, ONE), Equal(B, TWO)))),
        ("a = --1", Equal(A, Negation(Negation(ONE)))),
        ("_$1 = '\n\t''\\'", Equal(Property("_$1"), Constant("\n\t'\\"))),
        ("Contains_ = 'x'", Equal(Property("Contains_"), X)),
        # filter/src/test/java/org/apache/rocketmq/filter/ParserTest.java
        ("a <= now", Ordered(A, Ordering.LESS_OR_EQUAL, Property("now"))),
    ],
)
def test_what_is_read_how(text: str, tree: Condition) -> None:
    assert parse(text) == tree


def test_numbers_are_of_the_type_that_java_gives_them() -> None:
    for text, kind in (("1", int), ("2147483647", int), ("2147483648", Long), ("1.0", float)):
        tree = parse(f"a = {text}")
        assert isinstance(tree, Equal)
        assert isinstance(tree.right, Constant)
        assert type(tree.right.value) is kind


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not the end"),
        (" ", "not the end"),
        ("a =", "not the end"),
        (
            "a and between 2 and 10",
            "expected a property, a text, a number or a parenthesis at character 6, not 'BETWEEN'",
        ),
        ("a between 10 and 0", "the lower bound exceeds the upper bound"),
        ("a > 100000000000000000000000", "64 bits"),
        ("a > 9223372036854775808", "64 bits"),
        (f"a > {'1' * 5000}.{'1' * 5000}", "too large"),
        ("a > 0.0", "too small"),
        ("a != 1", "write <>"),
        ("a == 1", "not '='"),
        ("a like 'x'", "expected the end, or AND, or OR at character 2, not 'like'"),
        ("a = 1 b = 2", "the end, or AND, or OR"),
        ("a = 1)", "the end"),
        ("(a = 1", "expected ) at"),
        ("a = 'x", "not part of a condition"),
        ('a = "x"', "not part of a condition"),
        ("a = 007", "the end"),
        ("a = NULL", "write IS NULL"),
        ("NULL <> a", "write IS NULL"),
        ("TRUE = 1", "cannot be compared"),
        ("a > 'x'", "only numbers and properties"),
        ("'x' < a", "only numbers and properties"),
        ("a >= TRUE", "only numbers and properties"),
        ("a > 1 > 2", "only numbers and properties"),
        ("a between 'x' and 'y'", "only numbers and properties"),
        ("a in (1, 2)", "a text in quotes"),
        ("a in ()", "a text in quotes"),
        ("'x' in ('x')", "expected a property"),
        ("a contains b", "a text in quotes"),
        ("a not 'x'", "BETWEEN, IN, CONTAINS"),
        ("a is 1", "the end"),
        ("5", "expected a condition"),
        ("'x' and a", "expected a condition"),
        ("-a or a", "expected a condition"),
        ("NOT 5", "expected a condition"),
        ("é = 1", "not part of a condition"),
        ("/* a = 1", "not part of a condition"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse(text)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "a = '" + "x" * CHARACTERS_MAX + "'",
        "(" * (DEPTH_MAX + 1) + "a" + ")" * (DEPTH_MAX + 1),
        "NOT " * DEPTH_MAX + "a",
        "a = " + "-" * DEPTH_MAX + "1",
        "a" + " is null" * DEPTH_MAX,
        "(" * 40 + "a" + " is null" * 20 + ")" * 40 + " is null" * 40,
    ],
)
def test_limits(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse(text)


def test_many_terms_are_no_depth() -> None:
    terms = [f"(a = {number} and b in ('x'))" for number in range(500)]
    assert parse(" or ".join(terms)).evaluate({"a": "499", "b": "x"}) is True
    deep = "(" * (DEPTH_MAX - 1) + "a is null" + ")" * (DEPTH_MAX - 1)
    assert parse(deep).evaluate({}) is True


# -- round trips -----------------------------------------------------------------------------------

RESERVED = {
    *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"),
    *("CONTAINS", "STARTSWITH", "ENDSWITH"),
}
names = st.from_regex(r"[a-z_$][A-Za-z0-9_$]{0,5}", fullmatch=True).filter(
    lambda name: name.upper() not in RESERVED
)
properties = names.map(Property)
texts = st.text(st.characters(codec="utf-8"), max_size=5)
integers = st.integers(0, 2**63 - 1).map(lambda n: Long(n) if n >= 2**31 else n)
floats = st.floats(min_value=1e-300, max_value=1e300)
numbers = st.one_of(integers, floats).map(Constant)
operands = st.recursive(
    st.one_of(properties, numbers), lambda inner: inner.map(Negation), max_leaves=3
)
orders = st.sampled_from(Ordering)


def conditions(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(inner, min_size=2, max_size=4).map(tuple)
    sides = inner.filter(lambda tree: not isinstance(tree, Truth | Literal))
    return st.one_of(
        inner.map(Not),
        several.map(And),
        several.map(Or),
        st.builds(
            Equal, sides, st.one_of(st.just(NULL), st.just(Literal(True)), properties, sides)
        ),
    )


leaves = st.one_of(
    properties.map(Truth),
    st.sampled_from((Literal(True), Literal(False), NULL)),
    st.builds(Equal, st.one_of(operands, texts.map(Constant)), operands),
    st.builds(Ordered, operands, orders, operands),
    st.builds(In, properties, st.frozensets(texts, min_size=1, max_size=3), st.booleans()),
    st.builds(Partial, properties, st.sampled_from(TextMatch), texts, st.booleans()),
)
trees = st.recursive(leaves, conditions, max_leaves=12)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def written(tree: Expression) -> str:
    """A text that is read as this tree: every part in parentheses."""
    match tree:
        case Constant(str() as text):
            return quoted(text)
        case Constant(float() as number):
            return repr(number) if "." in repr(number) or "e" in repr(number) else f"{number}.0"
        case Constant(number):
            return str(number)
        case Property(name) | Truth(Property(name)):
            return name
        case Literal(value):
            return {True: "TRUE", False: "FALSE", None: "NULL"}[value]
        case Negation(operand):
            return f"- {written(operand)}"
        case Not(condition):
            return f"NOT ({written(condition)})"
        case And(parts):
            return " AND ".join(f"({written(part)})" for part in parts)
        case Or(parts):
            return " or ".join(f"({written(part)})" for part in parts)
        case Equal(left, Literal(None)):
            return f"({written(left)}) IS NULL"
        case Equal(left, right):
            return f"({written(left)})=({written(right)})"
        case Ordered(left, order, right):
            return f"({written(left)}){order.value}({written(right)})"
        case In(Property(name), members, negated):
            word = " not in " if negated else " in "
            return f"{name}{word}({','.join(map(quoted, sorted(members)))})"
        case Partial(operand, part, text, negated):
            word = f"not {part.value}" if negated else part.value
            return f"({written(operand)}) {word} {quoted(text)}"
    raise AssertionError(tree)


@settings(max_examples=examples(300))
@given(trees)
def test_a_tree_written_out_is_read_back(tree: Condition) -> None:
    assert parse(written(tree)) == tree


WORDS = (
    *("a", "b", "TAGS", "1", "2.5", "'x'", "''''", "(", ")", ",", "=", "<>", "<", "<=", ">", ">="),
    *("+", "-", "/*", "*/", "--", "\n", "$", ";", "é", *sorted(RESERVED)),
)


@settings(max_examples=examples(500))
@given(st.lists(st.sampled_from(WORDS), max_size=15).map(" ".join))
def test_any_text_is_read_or_refused_and_what_was_read_can_be_evaluated(text: str) -> None:
    try:
        tree = parse(text)
    except ProtocolError:
        return
    with suppress(EvaluationError):
        assert tree.evaluate({"a": "1", "TAGS": "x"}) in (True, False, None)
