"""The expression tree of an SQL92 condition, and its evaluation for a message's properties.

Values are those of Java: texts, Integer, Long, Double, Boolean and null. Properties are texts. The
logic is three-valued: null means unknown, and a message matches only if the whole condition is
true. The rules are RocketMQ's, including the odd ones:

- A text compared with a number is parsed as a number of that type (`a = 3` requires the text of a
  Java Integer, so neither "3.0" nor "3000000000"); for `<`, `<=`, `>` and `>=` two texts are both
  parsed as Double. A text that cannot be parsed makes the whole condition fail, regardless of its
  other parts, unless AND or OR was already decided.
- `a = b` is null if only `a` is missing, false if only `b` is, true if both are.
- A property alone is never true, because it is not a Boolean; neither is `-a` a number.
- IN, CONTAINS, STARTSWITH and ENDSWITH compare texts only. NOT CONTAINS of a missing property is
  false, NOT IN null.
- `TRUE = a` fails, `a = TRUE` reads `a` as a Boolean. Other mixtures compare as unequal, and
  "less".

Source: filter/expression/ComparisonExpression.java, LogicExpression.java, UnaryExpression.java,
ConstantExpression.java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from math import copysign, inf

import msgspec

Properties = Mapping[str, str]


class Long(int):
    """A number that Java holds as Long; a plain `int` is an Integer."""

    __slots__ = ()


Value = str | int | Long | float | bool | None

INTEGER_BITS = 32
LONG_BITS = 64

_DIGITS = re.compile(r"\d++")
_DECIMAL = re.compile(r"[+-]?(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?\d++)?[fFdD]?", re.ASCII)
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]++\.?+[0-9a-fA-F]*+|\.[0-9a-fA-F]++)[pP][+-]?\d++)[fFdD]?", re.ASCII
)
_NAMED = {
    sign + name: float(sign + name) for sign in ("", "+", "-") for name in ("NaN", "Infinity")
}
_SPACES = "".join(map(chr, range(33)))
"""Characters that Java's `String.trim` removes."""


class EvaluationError(Exception):
    """Two values cannot be compared: the message does not match.

    (Java throws, and its broker logs it.)
    """


class Ordering(Enum):
    """The comparisons that need an order."""

    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="


class TextMatch(Enum):
    """Which part of a text is compared."""

    CONTAINS = "CONTAINS"
    STARTS_WITH = "STARTSWITH"
    ENDS_WITH = "ENDSWITH"


# -- values ----------------------------------------------------------------------------------------


class Constant(msgspec.Struct, frozen=True):
    """A literal; TRUE, FALSE and NULL are conditions as well."""

    value: Value

    def evaluate(self, properties: Properties) -> Value:
        return self.value


class Property(msgspec.Struct, frozen=True):
    name: str

    def evaluate(self, properties: Properties) -> Value:
        return properties.get(self.name)


class Negation(msgspec.Struct, frozen=True):
    """`-operand`: a number, or null for any other operand."""

    operand: Expression

    def evaluate(self, properties: Properties) -> Value:
        value = self.operand.evaluate(properties)
        if value is None or isinstance(value, str | bool):
            return None
        return Long(-value) if isinstance(value, Long) else -value


# -- conditions ------------------------------------------------------------------------------------


class Truth(msgspec.Struct, frozen=True):
    """A property used as a condition: false, because its text is not a Boolean; null if missing."""

    property: Property

    def evaluate(self, properties: Properties) -> bool | None:
        return None if self.property.evaluate(properties) is None else False


class Not(msgspec.Struct, frozen=True):
    condition: Condition

    def evaluate(self, properties: Properties) -> bool | None:
        value = self.condition.evaluate(properties)
        return None if value is None else not value


class And(msgspec.Struct, frozen=True):
    """False at the first false operand; later ones are not evaluated."""

    conditions: tuple[Condition, ...]

    def evaluate(self, properties: Properties) -> bool | None:
        result: bool | None = True
        for condition in self.conditions:
            value = condition.evaluate(properties)
            if value is None:
                result = None
            elif not value:
                return False
        return result


class Or(msgspec.Struct, frozen=True):
    """True at the first true operand; later ones are not evaluated."""

    conditions: tuple[Condition, ...]

    def evaluate(self, properties: Properties) -> bool | None:
        result: bool | None = False
        for condition in self.conditions:
            value = condition.evaluate(properties)
            if value is None:
                result = None
            elif value:
                return True
        return result


class Equal(msgspec.Struct, frozen=True):
    """`left = right`, and with NULL on the right `left IS NULL`."""

    left: Expression
    right: Expression

    def evaluate(self, properties: Properties) -> bool | None:
        left = self.left.evaluate(properties)
        right = self.right.evaluate(properties)
        if left is None:
            return True if right is None else None
        return right is not None and compare(left, right) == 0


class Ordered(msgspec.Struct, frozen=True):
    """`left < right`, `<=`, `>` or `>=`."""

    left: Expression
    order: Ordering
    right: Expression

    def evaluate(self, properties: Properties) -> bool | None:
        left = self.left.evaluate(properties)
        if left is None:
            return None
        right = self.right.evaluate(properties)
        if right is None:
            return None
        if isinstance(left, str) and isinstance(right, str):
            left, right = _double(left), _double(right)
        sign = compare(left, right)
        match self.order:
            case Ordering.GREATER:
                return sign > 0
            case Ordering.GREATER_OR_EQUAL:
                return sign >= 0
            case Ordering.LESS:
                return sign < 0
            case Ordering.LESS_OR_EQUAL:
                return sign <= 0


class In(msgspec.Struct, frozen=True):
    """`property IN ('a', 'b')`, or NOT IN."""

    property: Property
    texts: frozenset[str]
    negated: bool

    def evaluate(self, properties: Properties) -> bool | None:
        value = properties.get(self.property.name)
        return None if value is None else (value in self.texts) != self.negated


class Partial(msgspec.Struct, frozen=True):
    """`operand CONTAINS 'text'`, STARTSWITH or ENDSWITH, or NOT.

    Never null: false for an empty text and for anything that is not a text.
    """

    operand: Expression
    part: TextMatch
    text: str
    negated: bool

    def evaluate(self, properties: Properties) -> bool:
        value = self.operand.evaluate(properties)
        if not self.text or not isinstance(value, str):
            return False
        match self.part:
            case TextMatch.CONTAINS:
                found = self.text in value
            case TextMatch.STARTS_WITH:
                found = value.startswith(self.text)
            case TextMatch.ENDS_WITH:
                found = value.endswith(self.text)
        return found != self.negated


class Literal(msgspec.Struct, frozen=True):
    """TRUE, FALSE or NULL: a constant that is a condition."""

    value: bool | None

    def evaluate(self, properties: Properties) -> bool | None:
        return self.value


Condition = Truth | Not | And | Or | Equal | Ordered | In | Partial | Literal
"""Expressions that are true, false or null."""

Expression = Constant | Property | Negation | Condition

NULL = Literal(None)


# -- comparing -------------------------------------------------------------------------------------


def compare(left: Value, right: Value) -> int:
    """Compare as Java's `compareTo`, with a text parsed as the type of the other operand.

    Returns a negative number, zero or a positive one. Neither is null. Raises EvaluationError.
    """
    if isinstance(left, bool):
        if isinstance(right, str):  # Java casts the wrong one of the two, and fails
            raise EvaluationError(f"a Boolean on the left cannot be compared with {right!r}")
        return int(left) - int(right) if isinstance(right, bool) else -1
    if isinstance(left, str):
        if isinstance(right, str):
            return 0 if left == right else -1
        left = _read(left, right)
    elif isinstance(right, str):
        right = _read(right, left)
    elif isinstance(right, bool):
        return -1
    assert left is not None
    assert right is not None
    if isinstance(left, float) or isinstance(right, float):
        return _compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def _read(text: str, kind: Value) -> int | float | bool:
    """Parse the text as a value of the type of `kind`. Raises EvaluationError."""
    if isinstance(kind, bool):
        return text.lower() == "true"
    if isinstance(kind, float):
        return _double(text)
    return _integer(text, LONG_BITS if isinstance(kind, Long) else INTEGER_BITS)


def _integer(text: str, bits: int) -> int:
    """Parse as Java's Integer.valueOf or Long.valueOf: optional sign, digits of any script."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    significant = digits.lstrip("0") or "0"
    # The length is checked first: Python converts a long text slowly, and a very long one not at
    # all.
    if _DIGITS.fullmatch(digits) and len(significant) <= bits:
        number = -int(significant) if text[0] == "-" else int(significant)
        if -(1 << bits - 1) <= number < 1 << bits - 1:
            return number
    raise EvaluationError(f"{text[:100]!r} is not an integer of {bits} bits")


def _double(text: str) -> float:
    """Parse as Java's Double.valueOf."""
    trimmed = text.strip(_SPACES)
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed.rstrip("fFdD"))
    if trimmed in _NAMED:
        return _NAMED[trimmed]
    hexadecimal = _HEXADECIMAL.fullmatch(trimmed)
    if hexadecimal is None:
        raise EvaluationError(f"{text[:100]!r} is not a number")
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return -inf if trimmed.startswith("-") else inf


def _compare_doubles(left: float, right: float) -> int:
    """Compare as Double.compareTo: NaN is the largest and equals itself, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_key = (left != left, copysign(1, left) if left == left else 0)
    right_key = (right != right, copysign(1, right) if right == right else 0)
    return (left_key > right_key) - (left_key < right_key)
