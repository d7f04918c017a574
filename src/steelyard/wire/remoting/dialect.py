r"""The JSON dialect of Java peers: the output of fastjson 1.2 is not always JSON.

Beyond the standard, the dialect has
- keys that are numbers: `{0:"127.0.0.1:10911"}`;
- keys that are objects: `{{"brokerName":"b","queueId":3,"topic":"t"}:100}`;
- references to an earlier object: `{"$ref":"$.offsetTable.TopicA"}`, also as keys. A path names an
  object key by its `toString` in Java, or by `null` if that key was the first use.

Fastjson also reads

- texts and keys in single quotes, and keys that are names without quotes;
- empty items between commas, and commas before the first and after the last item;
- `/* comments */` and `// comments` between values, and a byte order mark at the start;
- `\x41`, `\'`, `\v`, `\0` to `\7` and raw control characters in texts;
- numbers with a plus sign, leading zeros, no digits after the point, or a suffix L, S, B, F, D;
- `undefined` and `NaN`, which count as null.

`loads` reads all of it. For any input it raises nothing but ProtocolError, and takes time and
memory in proportion to the bytes: trees are limited in depth and in values, and a reference to an
enclosing object is refused. Source: com.alibaba.fastjson.serializer.JSONSerializer, SerialContext,
MapSerializer, parser.JSONLexerBase, parser.DefaultJSONParser (1.2.83).
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

import msgspec

from steelyard.errors import ProtocolError
from steelyard.types import MessageQueue
from steelyard.wire.remoting import values

DEPTH_MAX = 64
"""Maximum nesting; the bodies of the protocol have 8 levels."""

NODES_MAX = 100_000
"""Maximum values in a text, with references counted in expanded form.

That is enough for the statistics of 12,000 queues, and bounds the time that a hostile text takes,
some 3 µs per value.
"""

# Possessive, so that a hostile text cannot make the scanner backtrack. No lookahead is used in a
# possessive group: before Python 3.11.5 such a pattern matches nothing (gh-106052).
_SPACE = re.compile(r"(?:[ \t\r\n\f\b]++|/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/|//[^\n]*+(?:\n|\Z))*+")
_TEXT = re.compile(r"""\"((?:[^"\\]|\\.)*+)"|'((?:[^'\\]|\\.)*+)'""", re.DOTALL)
_NUMBER = re.compile(r"([+-]?\d{1,400}+(\.\d{0,400}+)?([eE][+-]?\d{1,9}+)?)[LSBFD]?", re.ASCII)
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {
    **{str(digit): chr(digit) for digit in range(8)},
    **dict(zip("btnvfFr\"'/\\", "\b\t\n\v\f\f\r\"'/\\", strict=True)),
}
_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)++)|\[(\d{1,9})\]", re.DOTALL | re.ASCII)
_QUEUE_NAME = re.compile(
    r"MessageQueue \[topic=(.*), brokerName=(.*), queueId=(-?\d{1,10})\]", re.DOTALL | re.ASCII
)


_standard = msgspec.json.Decoder(float_hook=Decimal).decode


def loads(data: bytes) -> object:
    """Read the tree in `data`: dict, list, str, int, Decimal, bool, None.

    A key that was an object becomes a MessageQueue.
    """
    # Every value but the outermost comes after one of these.
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > NODES_MAX:
        raise ProtocolError("JSON has too many values")
    try:
        tree: object = _standard(data)
    except RecursionError:
        raise ProtocolError("JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        tree = _Parser(data).parse()
    if b"$ref" in data:
        tree = _Resolver(tree).resolve()
    return tree


class _KeyReference(NamedTuple):
    """A key written as a reference; `position` distinguishes keys with the same path."""

    path: str
    position: int


class _Parser:
    """Recursive descent over the dialect, for texts that standard JSON refuses."""

    def __init__(self, data: bytes) -> None:
        try:
            self._text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ProtocolError("JSON is not UTF-8") from None
        self._position = 0

    def parse(self) -> object:
        value = self._value(0)
        if self._peek():
            raise self._wrong("end")
        return value

    def _wrong(self, wanted: str) -> ProtocolError:
        return ProtocolError(f"JSON: expected {wanted} at character {self._position}")

    def _peek(self) -> str:
        """Return the next character other than white space, "" at the end."""
        mark = self._text[self._position : self._position + 1]
        if mark > " " and mark != "/":
            return mark
        match = _SPACE.match(self._text, self._position)
        assert match is not None
        self._position = match.end()
        return self._text[self._position : self._position + 1]

    def _take(self, mark: str) -> None:
        if self._peek() != mark:
            raise self._wrong(repr(mark))
        self._position += 1

    def _value(self, depth: int) -> object:
        if depth > DEPTH_MAX:
            raise ProtocolError("JSON is nested too deeply")
        mark = self._peek()
        if mark == "{":
            return self._object(depth + 1)
        if mark == "[":
            return self._list(depth + 1)
        return self._scalar()

    def _scalar(self) -> object:
        mark = self._text[self._position : self._position + 1]
        if mark and mark in "\"'":
            return self._quoted()
        number = _NUMBER.match(self._text, self._position)
        if number is not None:
            self._position = number.end()
            return Decimal(number[1]) if number[2] or number[3] else int(number[1])
        word = _WORD.match(self._text, self._position)
        if word is None or word[0] not in _WORDS:
            raise self._wrong("a value")
        self._position = word.end()
        return _WORDS[word[0]]

    def _quoted(self) -> str:
        found = _TEXT.match(self._text, self._position)
        if found is None:
            raise self._wrong("the end of a text")
        inner: str = found[found.lastindex or 0]
        if "\\" in inner:
            inner = _ESCAPE.sub(self._unescaped, inner)
            # Two escapes may form one character: Java's are halves of UTF-16.
            inner = inner.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        self._position = found.end()
        return inner

    def _unescaped(self, found: re.Match[str]) -> str:
        digits = found[1] or found[2]
        if digits:
            return chr(int(digits, 16))
        if found[3] not in _ESCAPES:
            raise self._wrong("an escape that fastjson knows")
        return _ESCAPES[found[3]]

    def _past_commas(self) -> str:
        """Return the next character other than white space and commas."""
        mark = self._peek()
        while mark == ",":
            self._position += 1
            mark = self._peek()
        return mark

    def _list(self, depth: int) -> list[object]:
        self._take("[")
        items: list[object] = []
        mark = self._past_commas()
        while mark != "]":
            items.append(self._value(depth))
            mark = self._between("]")
        self._take("]")
        return items

    def _object(self, depth: int) -> dict[object, object]:
        self._take("{")
        fields: dict[object, object] = {}
        mark = self._past_commas()
        while mark != "}":
            self._field(fields, depth)
            mark = self._between("}")
        self._take("}")
        return fields

    def _between(self, end: str) -> str:
        """Skip the commas after an item and return the next mark.

        Without a comma only the end may follow.
        """
        if self._peek() not in (",", end):
            raise self._wrong(f"',' or {end!r}")
        return self._past_commas()

    def _field(self, fields: dict[object, object], depth: int) -> None:
        key = self._key(depth)
        self._take(":")
        fields[key] = self._value(depth)

    def _key(self, depth: int) -> object:
        self._peek()
        word = _WORD.match(self._text, self._position)
        if word is not None:
            self._position = word.end()
            return word[0]
        key = self._value(depth)
        if isinstance(key, dict):
            path = _reference_path(key)
            if path is not None:
                return _KeyReference(path, self._position)
            return values.queue(key)
        if isinstance(key, str | int):
            return key
        raise self._wrong("before a text, a number or a message queue as key")


def _reference_path(value: object) -> str | None:
    """Return the path in `{"$ref": path}`, None for anything else."""
    if isinstance(value, dict) and value.keys() == {"$ref"}:
        path = value["$ref"]
        return path if isinstance(path, str) else None
    return None


class _Resolver:
    """Copies a tree in the order it was written, with references resolved."""

    def __init__(self, tree: object) -> None:
        self._tree = tree
        self._root: object = None
        self._open: set[int] = set()
        self._nodes = 0

    def resolve(self) -> object:
        self._root = self._begin(self._tree)
        self._fill(self._root, self._tree, 0)
        return self._root

    def _begin(self, value: object) -> object:
        """Return the copy of `value`.

        Containers are empty at first, so that paths find only earlier parts.
        """
        path = _reference_path(value)
        if path is not None:
            return self._follow(path)
        if isinstance(value, dict):
            return {}
        return [] if isinstance(value, list) else value

    def _fill(self, copy: object, value: object, depth: int) -> None:
        """Fill the container `copy` from `value`, if `_begin` left it empty."""
        if depth > DEPTH_MAX:
            raise ProtocolError("JSON is nested too deeply")
        if _reference_path(value) is not None:
            return
        self._open.add(id(copy))
        if isinstance(copy, list) and isinstance(value, list):
            for item in value:
                copy.append(self._begin(item))
                self._fill(copy[-1], item, depth + 1)
        elif isinstance(copy, dict) and isinstance(value, dict):
            for key, item in value.items():
                if isinstance(key, _KeyReference):
                    key = self._follow(key.path)
                    if not isinstance(key, MessageQueue | str | int):
                        raise ProtocolError(
                            "JSON: a reference used as a key does not resolve to a key"
                        )
                copy[key] = self._begin(item)
                self._fill(copy[key], item, depth + 1)
        self._open.discard(id(copy))

    def _follow(self, path: str) -> object:
        found = self._find(path)
        self._charge(found, 0)
        return found

    def _find(self, path: str) -> object:
        found, position = self._root, 1
        while position < len(path) and path.startswith("$"):
            step = _STEP.match(path, position)
            if step is None:
                break
            position = step.end()
            name, index = step.groups()
            found = _down(found, re.sub(r"\\(.)", r"\1", name) if name else int(index), path)
        if position != len(path) or not path.startswith("$"):
            raise _unresolved(path)
        return found

    def _charge(self, value: object, depth: int) -> None:
        """Count a referenced value in full: a few nested references could expand to billions."""
        self._nodes += 1
        if self._nodes > NODES_MAX or depth > DEPTH_MAX:
            raise ProtocolError("JSON: references expand to too many values")
        if value is self._root or id(value) in self._open:
            raise ProtocolError("JSON: a reference to an enclosing object")
        if isinstance(value, dict):
            for item in value.values():
                self._charge(item, depth + 1)
        elif isinstance(value, list):
            for item in value:
                self._charge(item, depth + 1)


def _down(value: object, step: str | int, path: str) -> object:
    """Return the part of `value` named by one step of a path."""
    if isinstance(value, list):
        if isinstance(step, int) and step < len(value):
            return value[step]
    elif isinstance(value, dict):
        for key in _keys_named(step):
            if key in value:
                return value[key]
        if step == "null" and len(value) == 1:
            return next(iter(value))  # the key itself: it was written without a name
    raise _unresolved(path)


def _keys_named(step: str | int) -> list[object]:
    """Return the keys that fastjson calls `step`: a text, a number in either form, or a queue."""
    if isinstance(step, int):
        return [step, str(step)]
    queue = _QUEUE_NAME.fullmatch(step)
    if queue is not None:
        return [step, MessageQueue(queue[1], queue[2], int(queue[3]))]
    return [step, int(step)] if re.fullmatch(r"-?[0-9]{1,19}", step) else [step]


def _unresolved(path: str) -> ProtocolError:
    return ProtocolError(f"JSON: no value, or more than one, at the reference {path[:200]!r}")
