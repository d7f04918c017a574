"""Parser of SQL92 conditions by recursive descent, following RocketMQ's grammar.

    or          and (OR and)*
    and         equality (AND equality)*
    equality    comparison (= comparison | <> comparison | IS NULL | IS NOT NULL)*
    comparison  unary (> unary | >= unary | < unary | <= unary
                    | [NOT] BETWEEN unary AND unary | [NOT] IN ('text', ...)
                    | [NOT] CONTAINS 'text' | [NOT] STARTSWITH 'text' | [NOT] ENDSWITH 'text')*
    unary       + unary | - unary | NOT unary | primary
    primary     'text' | number | TRUE | FALSE | NULL | property | (or)

- NOT binds tighter than a comparison: `NOT a = 1` is `(NOT a) = 1`, which is never true; write
  `NOT (a = 1)`.
- There is no LIKE, no arithmetic and no `!=`. CONTAINS, STARTSWITH and ENDSWITH came with 5.x.
- Keywords are case-insensitive, names of properties are not. A quote in a text is doubled. `--` to
  the end of the line and `/* */` are comments.
- Integers must fit into 64 bits, and 0.0 is refused as too small, as in RocketMQ.
- Refused here but not in RocketMQ: text after a complete condition (which it silently ignores), and
  more than CHARACTERS_MAX or DEPTH_MAX.

Source: filter/parser/SelectorParser.jj; checks of operands: ComparisonExpression.java.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from math import inf
from typing import NamedTuple

from steelyard.errors import ProtocolError
from steelyard.sql92.expressions import (
    INTEGER_BITS,
    LONG_BITS,
    NULL,
    And,
    Condition,
    Constant,
    Equal,
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
    compare,
)

CHARACTERS_MAX = 16 * 1024
"""Maximum length of a condition, some 40 ms of work."""
DEPTH_MAX = 50
"""Maximum nesting of parentheses, signs and chained comparisons; AND and OR do not count."""

CACHED_MAX = 200
"""Number of parsed conditions cached, because heartbeats and pulls repeat them.

RocketMQ keeps 100.
"""

_TOKEN = re.compile(
    r"""
      (?P<space>   [ \t\n\r\f]++ | --[^\n\r]*+[\n\r] | /\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/ )
    | (?P<float>   (?:[0-9]++\.[0-9]*+ | \.[0-9]++)(?:[eE][+-]?[0-9]++)? | [0-9]++[eE][+-]?[0-9]++ )
    | (?P<integer> 0 | [1-9][0-9]*+[lL]? )
    | (?P<text>    '(?:[^']++|'')*+' )
    | (?P<word>    [A-Za-z_$][A-Za-z0-9_$]*+ )
    | (?P<sign>    <> | <= | >= | [=<>(),+-] )
    """,
    re.VERBOSE,
)
_LITERALS = {"TRUE": Literal(True), "FALSE": Literal(False), "NULL": NULL}
_ORDERS = {order.value: order for order in Ordering}
_PARTS = {part.value: part for part in TextMatch}
_PREDICATES = frozenset(("BETWEEN", "IN", *_PARTS))
"""Keywords after an operand, with or without NOT."""
_RESERVED = _PREDICATES | _LITERALS.keys() | {"NOT", "AND", "OR", "IS"}

_LESS_THAN_ANY = 5e-324
"""Double.MIN_VALUE: the smallest number allowed as a literal."""


class _Token(NamedTuple):
    """`kind`: a group of the pattern, `reserved` (`text` is then in upper case) or `end`."""

    kind: str
    text: str
    position: int


@lru_cache(maxsize=CACHED_MAX)
def parse(text: str) -> Condition:
    """Parse a condition. Raises ProtocolError that says what is wrong and where."""
    if len(text) > CHARACTERS_MAX:
        raise ProtocolError(f"a condition of {len(text)} characters; {CHARACTERS_MAX} are allowed")
    return _Parser(_tokens(text)).parse()


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            hint = "; write <>" if text.startswith("!=", position) else ""
            raise ProtocolError(
                f"SQL92: {text[position : position + 20]!r} at character {position} is not part"
                f" of a condition{hint}"
            )
        kind = match.lastgroup
        assert kind is not None
        word = match[0].upper()
        if kind == "word" and word in _RESERVED:
            found.append(_Token("reserved", word, position))
        elif kind != "space":
            found.append(_Token(kind, match[0], position))
        position = match.end()
    found.append(_Token("end", "", position))
    return found


class _Parser:
    """The parser.

    `_height` is that of the last expression: chained comparisons grow by one each.
    """

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0
        self._height = 0

    def parse(self) -> Condition:
        condition = _condition(self._or())
        if self._next.kind != "end":
            raise self._expected("the end, or AND, or OR")
        return condition

    # -- tokens ----------------------------------------------------------------------------------

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position]

    def _is(self, *texts: str) -> bool:
        """Return whether the next tokens are one of these reserved words or signs."""
        ahead = self._tokens[self._position : self._position + len(texts)]
        return [token.text for token in ahead if token.kind in ("reserved", "sign")] == [*texts]

    def _took(self, *texts: str) -> bool:
        """Consume these reserved words or signs if they are next."""
        if not self._is(*texts):
            return False
        self._position += len(texts)
        return True

    def _take(self, text: str) -> None:
        if not self._took(text):
            raise self._expected(text)

    def _expected(self, what: str) -> ProtocolError:
        kind, text, position = self._next
        found = "the end" if kind == "end" else repr(text[:50])
        return ProtocolError(f"SQL92: expected {what} at character {position}, not {found}")

    def _grown(self, *heights: int) -> None:
        """Set the height of the last expression from those of its parts."""
        self._height = 1 + max(heights)
        if self._height > DEPTH_MAX:
            raise ProtocolError(f"SQL92: nested more than {DEPTH_MAX} deep")

    # -- grammar ---------------------------------------------------------------------------------

    def _or(self) -> Expression:
        first = self._and()
        if not self._is("OR"):
            return first
        return Or(self._joined(first, "OR", self._and))

    def _and(self) -> Expression:
        first = self._equality()
        if not self._is("AND"):
            return first
        return And(self._joined(first, "AND", self._equality))

    def _joined(
        self, first: Expression, word: str, read: Callable[[], Expression]
    ) -> tuple[Condition, ...]:
        conditions = [_condition(first)]
        heights = [self._height]
        while self._took(word):
            conditions.append(_condition(read()))
            heights.append(self._height)
        self._grown(*heights)
        return tuple(conditions)

    def _equality(self) -> Expression:
        left = self._comparison()
        while True:
            height = self._height
            if self._took("="):
                left = _equal(left, self._comparison())
            elif self._took("<>"):
                left = Not(_equal(left, self._comparison()))
            elif self._took("IS", "NULL"):
                left = Equal(left, NULL)
            elif self._took("IS", "NOT", "NULL"):
                left = Not(Equal(left, NULL))
            else:
                return left
            self._grown(height, self._height)

    def _comparison(self) -> Expression:
        left = self._unary()
        while True:
            height = self._height
            token = self._next
            if token.kind == "sign" and token.text in _ORDERS:
                self._position += 1
                left = _ordered(left, _ORDERS[token.text], self._unary())
            elif token.kind == "reserved" and (token.text == "NOT" or token.text in _PREDICATES):
                left = self._predicate(left, negated=self._took("NOT"))
            else:
                return left
            self._grown(height, self._height)

    def _predicate(self, left: Expression, *, negated: bool) -> Condition:
        """Parse a predicate: a keyword after its operand."""
        if self._took("BETWEEN"):
            low = self._unary()
            height = self._height
            self._take("AND")
            high = self._unary()
            self._height = max(height, self._height)
            return _not_between(left, low, high) if negated else _between(left, low, high)
        if self._took("IN"):
            if not isinstance(left, Property):
                raise ProtocolError("SQL92: expected a property before IN")
            self._take("(")
            texts = [self._text()]
            while self._took(","):
                texts.append(self._text())
            self._take(")")
            return In(left, frozenset(texts), negated)
        for word, part in _PARTS.items():
            if self._took(word):
                return Partial(left, part, self._text(), negated)
        raise self._expected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")

    def _unary(self) -> Expression:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ProtocolError(f"SQL92: nested more than {DEPTH_MAX} deep")
        expression: Expression
        if self._took("+"):
            expression = self._unary()
        elif self._took("-"):
            expression = Negation(self._unary())
            self._grown(self._height)
        elif self._took("NOT"):
            expression = Not(_condition(self._unary()))
            self._grown(self._height)
        elif self._took("("):
            expression = self._or()
            self._take(")")
        else:
            expression = self._primary()
            self._height = 1
        self._depth -= 1
        return expression

    def _primary(self) -> Expression:
        kind, text, _ = self._next
        if kind == "text":
            return Constant(self._text())
        if kind == "word":
            self._position += 1
            return Property(text)
        if kind == "integer":
            self._position += 1
            return Constant(_integer(text))
        if kind == "float":
            self._position += 1
            return Constant(_float(text))
        if kind == "reserved" and text in _LITERALS:
            self._position += 1
            return _LITERALS[text]
        raise self._expected("a property, a text, a number or a parenthesis")

    def _text(self) -> str:
        kind, text, _ = self._next
        if kind != "text":
            raise self._expected("a text in quotes")
        self._position += 1
        return text[1:-1].replace("''", "'")


# -- literals and operands -------------------------------------------------------------------------


def _integer(text: str) -> int | Long:
    digits = text.rstrip("lL")
    if len(digits) > 19 or int(digits) >> LONG_BITS - 1:
        raise ProtocolError(f"SQL92: {text[:50]} does not fit into {LONG_BITS} bits")
    number = int(digits)
    return Long(number) if number >> INTEGER_BITS - 1 else number


def _float(text: str) -> float:
    number = float(text)
    if number == inf or number < _LESS_THAN_ANY:
        raise ProtocolError(f"SQL92: {text[:50]} is too {'large' if number else 'small'}")
    return number


def _condition(expression: Expression) -> Condition:
    """Return the expression as a condition."""
    if isinstance(expression, Property):
        return Truth(expression)
    if isinstance(expression, Constant | Negation):
        raise ProtocolError("SQL92: expected a condition, not a number or a text alone")
    return expression


def _equal(left: Expression, right: Expression) -> Equal:
    if NULL in (left, right):
        raise ProtocolError("SQL92: a comparison with NULL is never true; write IS NULL")
    if isinstance(left, Literal) and isinstance(right, Constant):
        raise ProtocolError("SQL92: TRUE and FALSE cannot be compared with a number or a text")
    return Equal(left, right)


def _ordered(left: Expression, order: Ordering, right: Expression) -> Ordered:
    for operand in (left, right):
        if isinstance(operand, Constant):
            fits = not isinstance(operand.value, str)
        else:
            fits = isinstance(operand, Property | Negation)
        if not fits:
            raise ProtocolError(f"SQL92: only numbers and properties are {order.value} something")
    return Ordered(left, order, right)


def _between(value: Expression, low: Expression, high: Expression) -> And:
    above = _ordered(value, Ordering.GREATER_OR_EQUAL, low)
    below = _ordered(value, Ordering.LESS_OR_EQUAL, high)
    constant = isinstance(low, Constant) and isinstance(high, Constant)
    if constant and compare(high.evaluate({}), low.evaluate({})) < 0:
        raise ProtocolError("SQL92: BETWEEN: the lower bound exceeds the upper bound")
    return And((above, below))


def _not_between(value: Expression, low: Expression, high: Expression) -> Or:
    return Or((_ordered(value, Ordering.LESS, low), _ordered(value, Ordering.GREATER, high)))
