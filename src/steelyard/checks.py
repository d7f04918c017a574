"""Validation of arguments and settings by their annotations.

`kind_of(annotation)` compiles an annotation once; `Kind.take(name, value)` returns the value, with
collections copied into tuples and dicts, or raises ArgumentError: which argument, the value given,
and what is expected.

| annotation | takes |
|---|---|
| `int` | whole numbers from 0 to 2^63 - 1, no bool; `Meta(ge=..., le=...)` sets other bounds |
| `float` | numbers; bounds in the same way |
| `str` | text that UTF-8 can encode; `Meta(min_length=1)`: not empty |
| `bytes` | bytes, bytearray, memoryview |
| `Literal`, enums | these values |
| unions | what one of their parts takes |
| `tuple[T, ...]`, `Sequence[T]`, `Iterable[T]`, `Mapping[K, V]` | such collections, but no str |
| `Callable[...]` | anything that can be called |
| a NamedTuple, `msgspec.Struct` or dataclass of the project | instances whose fields are right |
| other classes | instances |
| `Any`, `object`, protocols, type variables | anything: whoever uses it checks it |

`Annotated[T, PLAIN_TOO]` takes a plain tuple for a NamedTuple, and makes one of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from operator import is_
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from steelyard.errors import ArgumentError
from steelyard.wording import nearest

INT_MAX = 2**63 - 1
"""Largest integer if an annotation names no other: what fits into 64 bits on the wire."""

SHOWN_MAX = 80
"""Maximum characters of a value shown in an error."""
NEAREST_MAX = 3
LISTED_MAX = 20
"""Maximum names that are suggested in an error, and that are listed if there is a document, too."""

SECRETS = frozenset({"secret_key", "security_token"})
"""Arguments whose values are never shown in errors."""

Positive = Annotated[int, msgspec.Meta(ge=1, le=INT_MAX)]
Int32 = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""The range of Kafka's INT32 and Java's int."""
PositiveInt32 = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]

PLAIN_TOO = "a plain tuple is taken, too"


class Kind:
    """The rule of one annotation; this class accepts anything.

    `words`: what is expected, to follow "it must be". `quick`: types all of whose values are valid;
    `takes_text`, `takes_counts`: the same for every ASCII str, and every int from 0 to INT_MAX. A
    send cannot afford more checks.
    """

    words = "anything"
    text_words = ""
    """The same where a value is given as text, if that is something else."""
    quick: frozenset[type] = frozenset()
    takes_text = False
    takes_counts = False

    def fits(self, value: object) -> bool:
        """Return whether the value has the right type, without looking inside."""
        return True

    def take(self, name: str, value: object) -> Any:
        """The value as it is used from here on. Raises ArgumentError."""
        if not self.fits(value):
            raise wrong(name, value, self.words, wrong_type=True)
        return self.inner(name, value)

    def inner(self, name: str, value: object) -> Any:
        """The same for a value that fits."""
        return value


def is_right(kind: Kind, value: object) -> bool:
    """Return whether the value is valid at first sight; otherwise `Kind.take` decides."""
    cls = type(value)
    if cls is str:
        return kind.takes_text and value.isascii()  # type: ignore[attr-defined]  # it is a str
    if cls is int:
        return kind.takes_counts and 0 <= value <= INT_MAX  # type: ignore[operator]  # it is an int
    return cls in kind.quick


def wrong(name: str, value: object, words: str, *, wrong_type: bool = False) -> ArgumentError:
    """Build the error for an invalid value."""
    given = f"not {_a(type(value).__name__)}"
    if name.rpartition(".")[2] in SECRETS:
        return ArgumentError(f"{name} must be {words}" + (f", {given}" if wrong_type else ""))
    text = f"{name} is {_shown(value)}; it must be {words}"
    return ArgumentError(f"{text}, {given}" if wrong_type and value is not None else text)


def unknown(
    what: str,
    name: str,
    known: Collection[str],
    names: Iterable[str] = (),
    *,
    listed_in: str = "",
) -> ArgumentError:
    """The error of a name that is not `known`: with the nearest of these, or of all `names`.

    If none is near with all that are known, or, of many, with the document that they are
    `listed_in`.
    """
    near = nearest(name, names or known, NEAREST_MAX)
    words = f"did you mean {_one_of(near)}?" if near else f"expected one of: {', '.join(known)}"
    if listed_in and not near and len(known) > LISTED_MAX:
        words = f"{listed_in} lists all that there are"
    return ArgumentError(f"unknown {what} {_shown(name)}; {words}")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # of a class that is not ours
        text = "something that cannot be shown"
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 3]}..."


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


class _None(Kind):
    words = "None"
    quick = frozenset({NoneType})

    def fits(self, value: object) -> bool:
        return value is None


class _Bool(Kind):
    words = "True or False"
    text_words = "true or false"
    quick = frozenset({bool})

    def fits(self, value: object) -> bool:
        return isinstance(value, bool)


class _Number(Kind):
    def __init__(self, types: tuple[type, ...], meta: msgspec.Meta | None) -> None:
        self._types = types
        self._least: float | None = None
        self._above: float | None = None
        self._most: float | None = None
        self.takes_counts = meta is None and types == (int,)
        if self.takes_counts:
            self._least, self._most = 0, INT_MAX
        elif meta is not None:
            self._least, self._above, self._most = meta.ge, meta.gt, meta.le
        self._range = self._bounds()
        noun = "an int" if types == (int,) else "a number"
        of = "" if self._above is not None or not self._range else "of "
        self.words = f"{noun} {of}{self._range}" if self._range else noun

    def _bounds(self) -> str:
        if self._above is not None:
            return f"above {self._above}" + (
                "" if self._most is None else f" and at most {self._most}"
            )
        if self._least is None:
            return "" if self._most is None else f"{self._most} or less"
        if self._most in (None, INT_MAX):
            return f"{self._least} or more"
        return f"{self._least} to {self._most}"

    def fits(self, value: object) -> bool:
        return isinstance(value, self._types) and not isinstance(value, bool)

    def inner(self, name: str, value: Any) -> Any:
        if self._most == INT_MAX and value > INT_MAX:
            raise wrong(name, value, f"at most {INT_MAX}")
        least, above, most = self._least, self._above, self._most
        if (
            (least is None or value >= least)
            and (above is None or value > above)
            and (most is None or value <= most)
            and value == value  # not NaN
        ):
            return value
        raise wrong(name, value, self._range or self.words)


class _Str(Kind):
    def __init__(self, meta: msgspec.Meta | None = None) -> None:
        self._least = 0 if meta is None else meta.min_length or 0
        self.takes_text = not self._least
        self.words = "a non-empty str" if self._least else "a str"

    def take(self, name: str, value: object) -> Any:
        if (
            type(value) is str and value.isascii() and len(value) >= self._least
        ):  # nearly always, and what a send can afford
            return value
        return super().take(name, value)

    def fits(self, value: object) -> bool:
        return isinstance(value, str)

    def inner(self, name: str, value: Any) -> Any:
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                text = "text that UTF-8 can encode, without lone surrogates"
                raise wrong(name, value, text) from None
        if len(value) < self._least:
            raise wrong(name, value, self.words)
        return value


class _Bytes(Kind):
    words = "bytes"
    quick = frozenset({bytes})

    def fits(self, value: object) -> bool:
        return isinstance(value, bytes | bytearray | memoryview)

    def inner(self, name: str, value: Any) -> Any:
        return bytes(value)


class _Choice(Kind):
    """One of some values: a Literal."""

    def __init__(self, values: tuple[object, ...]) -> None:
        self._values = values
        self.names = ", ".join(map(repr, values))
        self.words = f"one of {self.names}"

    def fits(self, value: object) -> bool:
        return any(type(value) is type(one) for one in self._values)

    def inner(self, name: str, value: Any) -> Any:
        if value not in self._values:
            raise wrong(name, value, self.words)
        return value


class _Instance(Kind):
    def __init__(self, cls: type, words: str = "") -> None:
        self.cls = cls
        self.words = words or _a(cls.__name__)
        if issubclass(cls, Enum):
            self.words = _one_of([f"{cls.__name__}.{member.name}" for member in cls])
            self.text_words = _one_of([str(member.value) for member in cls])
            self.quick = frozenset({cls})

    def fits(self, value: object) -> bool:
        return isinstance(value, self.cls)


class _Function(Kind):
    words = "a function"

    def fits(self, value: object) -> bool:
        return callable(value)


class _Fields(_Instance):
    """An object with named fields. `tuples`: a plain tuple is converted to one."""

    def __init__(self, cls: type, *, tuples: bool = False) -> None:
        super().__init__(cls)
        self._tuples = tuples
        names = getattr(cls, "_fields", ())
        if names:
            self.words += f"({', '.join(names)})"
        self._hints: dict[str, Kind] | None = None

    def fits(self, value: object) -> bool:
        return isinstance(value, self.cls) or (
            self._tuples and type(value) is tuple and len(value) <= len(self.kinds)
        )

    @property
    def kinds(self) -> dict[str, Kind]:
        """Of the fields, by name.

        Compiled when first needed: a class may be declared before those in its fields.
        """
        if self._hints is None:
            self._hints = kinds_of(self.cls)
        return self._hints

    def inner(self, name: str, value: Any) -> Any:
        if not isinstance(value, self.cls):
            try:
                value = self.cls(*value)
            except TypeError:
                raise wrong(name, value, self.words) from None
        changed: dict[str, object] = {}
        kinds = self._hints or self.kinds
        if type(value) is not self.cls and _is_own(type(value)):
            kinds = kinds_of(type(value))
        for field, kind in kinds.items():
            part = getattr(value, field)
            if is_right(kind, part):
                continue
            taken = kind.take(f"{name}.{field}" if name else field, part)
            if taken is not part:
                changed[field] = taken
        return _replaced(value, changed) if changed else value


def _replaced(value: Any, changed: dict[str, object]) -> object:
    if isinstance(value, tuple):
        return value._replace(**changed)  # type: ignore[attr-defined]  # a NamedTuple
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changed)
    return dataclasses.replace(value, **changed)


class _Items(Kind):
    """A collection of values of one kind, as a tuple."""

    def __init__(self, cls: type | tuple[type, ...], noun: str, item: Kind) -> None:
        self._class = cls
        self._item = item
        self.words = f"a {noun}" if item.words == Kind.words else f"a {noun} of {_bare(item.words)}"
        if isinstance(item, _Choice):
            self.text_words = f"one or more of {item.names}, separated by commas"

    def fits(self, value: object) -> bool:
        return isinstance(value, self._class) and not isinstance(
            value, str | bytes | bytearray | memoryview
        )

    def inner(self, name: str, value: Any) -> Any:
        item = self._item
        given = value if type(value) is tuple else tuple(value)
        taken = [
            one if is_right(item, one) else item.take(f"{name}[{position}]", one)
            for position, one in enumerate(given)
        ]
        return given if all(map(is_, taken, given)) else tuple(taken)


class _Pairs(Kind):
    def __init__(self, key: Kind, value: Kind) -> None:
        self._key, self._value = key, value
        self.words = f"a mapping of {_bare(key.words)} to {_bare(value.words)}"

    def fits(self, value: object) -> bool:
        return isinstance(value, Mapping)

    def inner(self, name: str, value: Any) -> Any:
        for key, item in value.items():
            if not (is_right(self._key, key) and is_right(self._value, item)):
                break
        else:
            return value
        return {
            self._key.take(f"a key of {name}", key): self._value.take(f"{name}[{key!r}]", item)
            for key, item in value.items()
        }


class _Union(Kind):
    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        self.quick = frozenset().union(*(kind.quick for kind in kinds))
        self.takes_text = any(kind.takes_text for kind in kinds)
        self.takes_counts = any(kind.takes_counts for kind in kinds)
        self.words = _one_of(list(dict.fromkeys(kind.words for kind in kinds)))

        self._exact: dict[type, Kind] = {
            kind.cls: kind for kind in kinds if isinstance(kind, _Instance)
        }
        for kind in kinds:
            if isinstance(kind, _Pairs):
                self._exact[dict] = kind

    def take(self, name: str, value: object) -> Any:
        kind = self._exact.get(type(value))
        return super().take(name, value) if kind is None else kind.inner(name, value)

    def fits(self, value: object) -> bool:
        return any(kind.fits(value) for kind in self._kinds)

    def inner(self, name: str, value: Any) -> Any:
        kind = next(kind for kind in self._kinds if kind.fits(value))
        return kind.inner(name, value)


def _bare(words: str) -> str:
    """Without the article."""
    return words.removeprefix("a ").removeprefix("an ")


def _one_of(words: list[str]) -> str:
    *most, last = words
    if not most:
        return last
    comma = "," if any(" or " in each for each in most) else ""
    return f"{', '.join(most)}{comma} or {last}"


_ANY = Kind()
_PLAIN: Mapping[object, Kind] = {
    None: _None(),
    NoneType: _None(),
    bool: _Bool(),
    str: _Str(),
    bytes: _Bytes(),
    Any: _ANY,
    object: _ANY,
}


@cache
def kind_of(hint: Any) -> Kind:
    """What the annotation takes; see the module's text."""
    if get_origin(hint) is Annotated:
        inner, *more = get_args(hint)
        meta = next((each for each in more if isinstance(each, msgspec.Meta)), None)
        if inner is str:
            return _Str(meta)
        if inner in (int, float):
            return _Number((int,) if inner is int else (int, float), meta)
        return _Fields(inner, tuples=True) if PLAIN_TOO in more else kind_of(inner)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if hint in (int, float):
        return _Number((int,) if hint is int else (int, float), None)
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _union(parts)
    if origin is Literal:
        return _Choice(parts)
    if hint is Callable or origin is Callable:
        return _Function()
    if origin in (tuple, list):
        assert len(parts) == 1 or parts[1:] == (...,), f"no rule for {hint}"
        noun = "list" if origin is list else "tuple or list"
        return _Items((tuple, list), noun, kind_of(parts[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _Pairs(*map(kind_of, parts))
    if origin is not None and issubclass(origin, Iterable):
        noun = "sequence" if issubclass(origin, Sequence) else "collection"
        return _Items(origin, noun, kind_of(parts[0]))
    return _of_class(hint if origin is None else origin)


def _union(parts: tuple[Any, ...]) -> Kind:
    kinds = [kind_of(part) for part in parts]
    if any(kind is _ANY for kind in kinds):
        return _ANY
    return _Union(
        [*(k for k in kinds if k.words != "None"), *(k for k in kinds if k.words == "None")]
    )


def _of_class(hint: Any) -> Kind:
    if isinstance(hint, TypeVar) or getattr(hint, "_is_protocol", False) or is_typeddict(hint):
        return _ANY
    assert isinstance(hint, type), f"no rule for {hint!r}"
    return _Fields(hint) if _is_own(hint) and _is_made_by_callers(hint) else _Instance(hint)


def _is_own(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == __name__.partition(".")[0]


def _is_made_by_callers(cls: type) -> bool:
    """Return whether callers create it: NamedTuple, dataclass or frozen struct."""
    if issubclass(cls, msgspec.Struct):
        return bool(cls.__struct_config__.frozen)
    return dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))


_KINDS: dict[object, dict[str, Kind]] = {}


def kinds_of(cls: Any) -> dict[str, Kind]:
    """What the fields of a class take that are annotated, by name. Compiled once."""
    if cls not in _KINDS:
        _KINDS[cls] = _compiled(cls)
    return _KINDS[cls]


def _compiled(cls: Any) -> dict[str, Kind]:
    hints = get_type_hints(cls, include_extras=True)
    names: Iterable[str]
    if issubclass(cls, msgspec.Struct):
        names = cls.__struct_fields__
    elif dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
    else:
        names = getattr(cls, "_fields", ())
    return {name: kind_of(hints[name]) for name in names if not name.startswith("_")}
