"""The JSON of Java peers: what fastjson 1.2 writes is not always JSON.

Beyond the standard, the dialect has
- keys that are numbers: `{0:"127.0.0.1:10911"}`;
- keys that are objects: `{{"brokerName":"b","queueId":3,"topic":"t"}:100}`;
- references to an object written before: `{"$ref":"$.offsetTable.TopicA"}`, also as keys. A path names
  an object key by Java's `toString` of it, or by `null` where that key was the first use.

`loads` reads both; `read` and `write` do so for the typed bodies of `bodies`. Whatever a peer sends,
these raise nothing but ProtocolError, and take time and memory in proportion to the bytes: trees are
limited in depth and in nodes, and a reference to an object around it is refused.
Source: com.alibaba.fastjson.serializer.JSONSerializer, SerialContext, MapSerializer (1.2.83).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from steelyard.errors import ProtocolError
from steelyard.types import MessageQueue
from steelyard.wire.remoting.bodies import Body

B = TypeVar("B", bound=Body)

DEPTH_MAX = 64
"""Deepest nesting; the bodies of the protocol have 8."""

NODES_MAX = 500_000
"""Most values and keys in a text of the dialect, references counted as what they stand for."""

_QUEUE_KEYS = frozenset(("brokerName", "queueId", "topic"))

# Possessive, so that a hostile text cannot make the scanner remember or retry.
_SPACE = re.compile(r"[ \t\r\n]*+")
_SCALAR = re.compile(
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?\d[\d.eE+-]*+|true|false|null', re.DOTALL | re.ASCII
)
_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)++)|\[(\d{1,9})\]", re.DOTALL | re.ASCII)
_QUEUE_NAME = re.compile(
    r"MessageQueue \[topic=(.*), brokerName=(.*), queueId=(-?\d{1,10})\]", re.DOTALL | re.ASCII
)


# -- reading ---------------------------------------------------------------------------------------


def loads(data: bytes) -> object:
    """The tree in `data`: dict, list, str, int, float, bool, None; MessageQueue where an object was a key."""
    try:
        tree: object = msgspec.json.decode(data)
    except RecursionError:
        raise ProtocolError("JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        tree = _Parser(data).parse()
    if b'"$ref"' in data:
        tree = _Resolver(tree).resolve()
    return tree


def read(kind: type[B], data: bytes) -> B:
    """The typed body in `data`, standard JSON or dialect. Unknown fields are ignored, null counts as absent.

    Raises ProtocolError, in words for the peer's remark.
    """
    if not _mentions_queue(kind) and b'"$ref"' not in data:
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # not standard, or loose in its types: the long way knows
    try:
        tree = _typed_tree(loads(data), _mentions_queue(kind), 0)
        return msgspec.convert(tree, kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"body {kind.__name__}: {error}") from None


def _typed_tree(value: object, queues: bool, depth: int) -> object:
    """`value` without nulls in objects, and with MessageQueue for each object that is one."""
    if depth > DEPTH_MAX:
        raise ProtocolError("JSON is nested too deeply")
    if isinstance(value, dict):
        if queues and value.keys() == _QUEUE_KEYS:
            return _queue(value)
        return {
            key: _typed_tree(item, queues, depth + 1)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [_typed_tree(item, queues, depth + 1) for item in value]
    return value


def _queue(fields: Mapping[object, object]) -> MessageQueue:
    topic, broker_name, queue_id = fields["topic"], fields["brokerName"], fields["queueId"]
    if not (isinstance(topic, str) and isinstance(broker_name, str)):
        raise ProtocolError("a message queue's topic or broker name is no text")
    if not isinstance(queue_id, int) or isinstance(queue_id, bool):
        raise ProtocolError("a message queue's id is no number")
    return MessageQueue(topic, broker_name, queue_id)


class _KeyReference(NamedTuple):
    """A key written as a reference; numbered, for several of one path are different keys."""

    path: str
    serial: int


class _Parser:
    """Recursive descent over the dialect, for texts that standard JSON refuses."""

    def __init__(self, data: bytes) -> None:
        try:
            self._text = data.decode()
        except UnicodeDecodeError:
            raise ProtocolError("JSON is not UTF-8") from None
        self._position = 0
        self._nodes = 0

    def parse(self) -> object:
        value = self._value(0)
        if self._peek():
            raise self._wrong("end")
        return value

    def _wrong(self, wanted: str) -> ProtocolError:
        return ProtocolError(f"JSON: {wanted} expected at character {self._position}")

    def _peek(self) -> str:
        """The next character that is no space, "" at the end."""
        match = _SPACE.match(self._text, self._position)
        assert match is not None
        self._position = match.end()
        return self._text[self._position : self._position + 1]

    def _take(self, mark: str) -> None:
        if self._peek() != mark:
            raise self._wrong(repr(mark))
        self._position += 1

    def _value(self, depth: int) -> object:
        self._nodes += 1
        if depth > DEPTH_MAX or self._nodes > NODES_MAX:
            raise ProtocolError("JSON is nested too deeply or has too many values")
        mark = self._peek()
        if mark == "{":
            return self._object(depth + 1)
        if mark == "[":
            return self._list(depth + 1)
        return self._scalar()

    def _scalar(self) -> object:
        match = _SCALAR.match(self._text, self._position)
        if match is None:
            raise self._wrong("a value")
        try:
            value: object = msgspec.json.decode(match[0])
        except msgspec.DecodeError:
            raise self._wrong("a proper text or number") from None
        self._position = match.end()
        return value

    def _list(self, depth: int) -> list[object]:
        self._take("[")
        items: list[object] = []
        if self._peek() != "]":
            items.append(self._value(depth))
            while self._peek() == ",":
                self._position += 1
                items.append(self._value(depth))
        self._take("]")
        return items

    def _object(self, depth: int) -> dict[object, object]:
        self._take("{")
        fields: dict[object, object] = {}
        if self._peek() != "}":
            self._field(fields, depth)
            while self._peek() == ",":
                self._position += 1
                self._field(fields, depth)
        self._take("}")
        return fields

    def _field(self, fields: dict[object, object], depth: int) -> None:
        key = self._key(depth)
        self._take(":")
        fields[key] = self._value(depth)

    def _key(self, depth: int) -> object:
        key = self._value(depth)
        if isinstance(key, dict):
            if key.keys() == _QUEUE_KEYS:
                return _queue(key)
            path = _reference_path(key)
            if path is not None:
                return _KeyReference(path, self._nodes)
        elif isinstance(key, str | int) and not isinstance(key, bool):
            return key
        raise self._wrong("before a text, a number or a message queue as key")


def _reference_path(value: object) -> str | None:
    """The path in `{"$ref": path}`, None for anything else."""
    if isinstance(value, dict) and value.keys() == {"$ref"}:
        path = value["$ref"]
        return path if isinstance(path, str) else None
    return None


class _Resolver:
    """Copies a tree in the order it was written, references replaced by what they stand for."""

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
        """What goes into the copy for `value`; a container goes in empty, so that paths find what is written."""
        path = _reference_path(value)
        if path is not None:
            return self._follow(path)
        if isinstance(value, dict):
            return {}
        return [] if isinstance(value, list) else value

    def _fill(self, copy: object, value: object, depth: int) -> None:
        """Fill the container `copy` from `value`, if it is one that `_begin` left empty."""
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
                        raise ProtocolError("JSON: a reference used as key stands for no key")
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
        """Count a referred value in full: a few references to references could stand for billions."""
        self._nodes += 1
        if self._nodes > NODES_MAX or depth > DEPTH_MAX:
            raise ProtocolError("JSON: references stand for too many values")
        if value is self._root or id(value) in self._open:
            raise ProtocolError("JSON: a reference to an object around it")
        if isinstance(value, dict):
            for item in value.values():
                self._charge(item, depth + 1)
        elif isinstance(value, list):
            for item in value:
                self._charge(item, depth + 1)


def _down(value: object, step: str | int, path: str) -> object:
    """The part of `value` that one step of a path names."""
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
    """The keys that fastjson calls `step`: a text, a number in one of its two forms, or a queue."""
    if isinstance(step, int):
        return [step, str(step)]
    queue = _QUEUE_NAME.fullmatch(step)
    if queue is not None:
        return [step, MessageQueue(queue[1], queue[2], int(queue[3]))]
    return [step, int(step)] if re.fullmatch(r"-?[0-9]{1,19}", step) else [step]


def _unresolved(path: str) -> ProtocolError:
    return ProtocolError(f"JSON: nothing, or not one thing, at the reference {path[:200]!r}")


# -- writing ---------------------------------------------------------------------------------------


def write(body: Body, *, int_keys_quoted: bool = True) -> bytes:
    """`body` as fastjson writes it: compact, keys in order, None left out, queues as objects.

    `int_keys_quoted=False` writes `{0:...}`, which clients before 4.9.4 are used to.
    """
    if _is_standard(type(body)) and int_keys_quoted:
        return msgspec.json.encode(body, order="sorted")
    parts: list[str] = []
    _write_value(parts, body, '"' if int_keys_quoted else "")
    return "".join(parts).encode()


def _write_value(parts: list[str], value: object, quote: str) -> None:
    if isinstance(value, MessageQueue):
        parts.append(
            f'{{"brokerName":{_text(value.broker_name)},"queueId":{value.queue_id},"topic":{_text(value.topic)}}}'
        )
    elif isinstance(value, msgspec.Struct):
        fields = [
            (f'"{wire_name}":', item)
            for name, wire_name in _fields(type(value))
            if (item := getattr(value, name)) is not None
        ]
        _write_fields(parts, fields, quote)
    elif isinstance(value, Mapping):
        items = [(key, item) for key, item in value.items() if item is not None]
        items.sort()
        _write_fields(parts, [(_key_text(key, quote), item) for key, item in items], quote)
    elif isinstance(value, tuple | list):
        parts.append("[")
        for position, item in enumerate(value):
            if position:
                parts.append(",")
            _write_value(parts, item, quote)
        parts.append("]")
    else:
        parts.append(msgspec.json.encode(value).decode())


def _write_fields(parts: list[str], fields: list[tuple[str, object]], quote: str) -> None:
    parts.append("{")
    for position, (key, item) in enumerate(fields):
        parts.append("," + key if position else key)
        _write_value(parts, item, quote)
    parts.append("}")


def _key_text(key: object, quote: str) -> str:
    if isinstance(key, int):
        return f"{quote}{key}{quote}:"
    if isinstance(key, MessageQueue):
        parts: list[str] = []
        _write_value(parts, key, quote)
        return "".join(parts) + ":"
    assert isinstance(key, str)
    return _text(key) + ":"


def _text(text: str) -> str:
    return msgspec.json.encode(text).decode()


# -- what a kind of body holds ---------------------------------------------------------------------


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """(our name, wire name) of each field, in the order of the wire names."""
    fields = msgspec.structs.fields(kind)
    return tuple(
        sorted(((item.name, item.encode_name) for item in fields), key=lambda pair: pair[1])
    )


@cache
def _mentions_queue(kind: type[Body]) -> bool:
    return inspect.NamedTupleType in _types_in(kind)


@cache
def _is_standard(kind: type[Body]) -> bool:
    """Whether msgspec itself writes the bytes: no queue, no number as key, and nothing that may be None."""
    return _types_in(kind).isdisjoint((inspect.NamedTupleType, inspect.NoneType, _NumberKey))


class _NumberKey:
    """Stands in `_types_in` for a table whose keys are no texts."""


@cache
def _types_in(kind: type[Body]) -> frozenset[type]:
    """The msgspec.inspect classes of everything that a body of this kind may hold."""
    found: set[type] = set()
    _collect(inspect.type_info(kind), found)
    return frozenset(found)


def _collect(info: inspect.Type, found: set[type]) -> None:
    """Bodies do not contain themselves, so this ends."""
    found.add(type(info))
    match info:
        case inspect.StructType(fields=fields):
            for item in fields:
                _collect(item.type, found)
        case inspect.UnionType(types=types):
            for item_type in types:
                _collect(item_type, found)
        case inspect.VarTupleType(item_type=item_type):
            _collect(item_type, found)
        case inspect.DictType(key_type=key, value_type=value):
            if not isinstance(key, inspect.StrType):
                found.add(_NumberKey)
            _collect(key, found)
            _collect(value, found)
