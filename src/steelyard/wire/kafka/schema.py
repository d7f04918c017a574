"""Declarations of messages, and their compilation to codecs.

A message is an `ApiMessage`, a structure within one a `Part`; its fields are in the order of the
wire. A field's type is one of the primitives below, a `Part`, or a `Sequence` of either, with marks
where it is not in every version:

    topics: Sequence[FetchTopic] = ()
    session_id: Annotated[Int32, Since(7)] = 0
    topic: Annotated[String, Versions(0, 12)] = ""
    cluster_id: Annotated[NullableString, Since(12), Tag(0)] = None

Every field has a default, which applies in versions without the field; a tagged field that has its
default is omitted. For each version in use a reader and a writer are generated as Python source, as
`dataclasses` does, with one `struct` call for each run of fixed-width fields. Source:
clients/src/main/resources/common/message/README.md, KIP-482.
"""

from __future__ import annotations

import collections.abc
import struct
import types
import typing
from collections.abc import Callable, Generator, Sequence
from functools import cache
from itertools import groupby
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from steelyard.errors import ProtocolError
from steelyard.types import FileRange, Sendable, joined
from steelyard.wire.kafka import primitives


class Fixed(NamedTuple):
    """A primitive of fixed width, with its code in `struct`."""

    code: str


class Sized(NamedTuple):
    """A primitive with a size: `string` or `bytes`."""

    kind: str
    nullable: bool = False


class Versions(NamedTuple):
    """The versions that have a field; `last` is None if later versions have it as well."""

    first: int
    last: int | None = None


def Since(first: int) -> Versions:  # noqa: N802  # reads as a mark
    """The field exists from this version on."""
    return Versions(first)


class Tag(NamedTuple):
    """The field is tagged, from version `since` on."""

    number: int
    since: int = 0


Bool = Annotated[bool, Fixed("?")]
Int8 = Annotated[int, Fixed("b")]
Int16 = Annotated[int, Fixed("h")]
Int32 = Annotated[int, Fixed("i")]
Int64 = Annotated[int, Fixed("q")]
Uint16 = Annotated[int, Fixed("H")]
Float64 = Annotated[float, Fixed("d")]
Uuid = Annotated[bytes, Fixed("16s")]
String = Annotated[str, Sized("string")]
NullableString = Annotated[str | None, Sized("string", nullable=True)]
Bytes = Annotated[bytes, Sized("bytes")]
NullableBytes = Annotated[bytes | None, Sized("bytes", nullable=True)]
Records = bytes | FileRange
"""Record batches, opaque here: see `wire.kafka.records`.

Received ones are always bytes; those to be sent may lie in a file.
"""
NullableRecords = Annotated[Records | None, Sized("bytes", nullable=True)]

NO_ID = bytes(16)
"""The topic id that means none."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """A structure within a message."""


class ApiMessage(Part, frozen=True, gc=False):
    """A request, a response, or one of the structures that group members exchange."""


class Api(NamedTuple):
    """A request with its response.

    `versions`: the supported ones, both inclusive; `flexible`: the first flexible one.
    """

    key: int
    request: type[ApiMessage]
    response: type[ApiMessage]
    versions: tuple[int, int]
    flexible: int | None

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible


M = TypeVar("M", bound=ApiMessage)

_STEP_PIECES = 4_000
"""Pieces written in one step, some 4 ms of work."""
_STEP_EFFORT = 4_000
"""Effort read in one step, some 4 ms of work.

An item of an array counts for 1, and for 1 more per 16 bytes, up to _ITEM_EFFORT_MAX: bytes and
texts are copied, however long they are, but a structure may have many tagged fields.
"""
_ITEM_EFFORT_MAX = 60
_FIXED_PER_EFFORT = 16
"""Numbers of an array that count for 1."""
ITEMS_MAX = 1_000_000
"""Maximum items in all arrays of a message read in steps.

They take some 100 MB of memory, and as much again for the response.
"""


def read(
    kind: type[M],
    data: bytes,
    version: int,
    *,
    flexible: bool,
    at: int = 0,
    more_allowed: bool = False,
) -> M:
    """Read the message that begins at `at` and fills the rest of `data`, or raise ProtocolError.

    `more_allowed`: bytes after it are ignored.
    """
    reader = _codec(kind, version, flexible).read
    try:
        message, end = reader(data, at)
    except (struct.error, ProtocolError) as error:
        raise _unreadable(kind, version, error) from None
    if end != len(data) and not more_allowed:
        raise ProtocolError(
            f"{kind.__name__} version {version} has {len(data) - end} bytes too many"
        )
    return typing.cast("M", message)


def read_prefix(kind: type[M], data: bytes, version: int, *, at: int = 0) -> M:
    """As `read`, but ignores what later versions have appended to the message."""
    try:
        message, _ = _codec(kind, version, False).read(data, at)
    except (struct.error, ProtocolError) as error:
        raise _unreadable(kind, version, error) from None
    return typing.cast("M", message)


def _unreadable(kind: type[ApiMessage], version: int, error: Exception) -> ProtocolError:
    if isinstance(error, struct.error):
        return ProtocolError(f"{kind.__name__} version {version} ends too early")
    return ProtocolError(f"{kind.__name__} version {version}: {error}")


def write(message: ApiMessage, version: int, *, flexible: bool) -> list[Sendable]:
    """The message in pieces. Raises ProtocolError where a value does not fit its field."""
    if isinstance(message, Written):
        return list(message.pieces)
    out: list[Sendable] = []
    try:
        _codec(type(message), version, flexible).write(message, out)
    except (struct.error, TypeError, AttributeError) as error:
        raise _unwritable(type(message), version, error) from None
    return out


def _unwritable(kind: type[ApiMessage], version: int, error: Exception) -> ProtocolError:
    return ProtocolError(f"{kind.__name__} version {version} cannot be written: {error}")


class Unread(ApiMessage, frozen=True, gc=False):
    """A long message, still undecoded bytes: `read_in_steps` decodes it."""

    kind: type[ApiMessage]
    data: bytes
    version: int
    flexible: bool
    at: int


class Written(ApiMessage, frozen=True, gc=False):
    """A message that is written already, for the version that it is sent in."""

    kind: type[ApiMessage]
    pieces: Sequence[Sendable]


class _Pace:
    """What may still be read before the next step (see `_STEP_EFFORT`), and the items in all."""

    __slots__ = ("_items", "left", "step")

    def __init__(self) -> None:
        self.left = self.step = _STEP_EFFORT
        self._items = 0

    def count(self, count: int) -> None:
        """Count the items of an array. Raises ProtocolError if there are too many."""
        self._items += count
        if self._items > ITEMS_MAX:
            raise ProtocolError(
                f"more than {ITEMS_MAX:,} items in its arrays; send several requests"
            )


def read_in_steps(message: Unread) -> Generator[None, None, ApiMessage]:
    """As `read` with `more_allowed`, a bit before each `yield`. Raises ProtocolError as that."""
    kind, version = message.kind, message.version
    reader = _stepper(kind, version, message.flexible).read
    try:
        found, _ = yield from reader(message.data, message.at, _Pace())
    except (struct.error, ProtocolError) as error:
        raise _unreadable(kind, version, error) from None
    return typing.cast("ApiMessage", found)


def written(message: ApiMessage, version: int, *, flexible: bool) -> Generator[None, None, Written]:
    """The message as `write` writes it, a bit before each `yield`. Raises ProtocolError as that."""
    kind = type(message)
    pieces: list[Sendable] = []
    out: list[Sendable] = []
    try:
        for _ in _stepper(kind, version, flexible).write(message, out, _STEP_PIECES):
            _put_together(out, pieces)
            yield
    except (struct.error, TypeError, AttributeError) as error:
        raise _unwritable(kind, version, error) from None
    _put_together(out, pieces)
    return Written(kind, pieces)


def _put_together(out: list[Sendable], pieces: list[Sendable]) -> None:
    """Move the contents of `out` to `pieces`, joining small pieces.

    File ranges stay as they are.
    """
    for is_bytes, some in groupby(out, key=lambda piece: isinstance(piece, bytes)):
        if is_bytes:
            pieces.append(joined(some))
        else:
            pieces += some
    out.clear()


def has_field(kind: type[ApiMessage], name: str, version: int) -> bool:
    """Return whether these messages have that field in this version, tagged fields aside."""
    return any(each.name == name for each in _fields(kind, version, False))


# -- from a declaration to a codec -----------------------------------------------------------------


class _Field(NamedTuple):
    name: str
    kind: Fixed | Sized | type[Part]
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any


class _Codec(NamedTuple):
    read: Callable[[bytes, int], tuple[Part, int]]
    write: Callable[[Any, list[Sendable]], None]


@cache
def _codec(kind: type[Part], version: int, flexible: bool) -> _Codec:
    return _Codec(*_compiled(kind, version, flexible, in_steps=False))


class _Stepper(NamedTuple):
    """A codec that ends a step with each `yield`."""

    read: Callable[[bytes, int, _Pace], Generator[None, None, tuple[Part, int]]]
    write: Callable[[Any, list[Sendable], int], Generator[None, None, None]]


@cache
def _stepper(kind: type[Part], version: int, flexible: bool) -> _Stepper:
    return _Stepper(*_compiled(kind, version, flexible, in_steps=True))


def _compiled(
    kind: type[Part], version: int, flexible: bool, *, in_steps: bool
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compile the structure's reader and writer; `in_steps`: always as generators."""
    fields = list(_fields(kind, version, flexible))
    source = _Source(version, flexible, in_steps=in_steps)
    pace, most, ending = "", "", []
    if in_steps:
        pace, most, ending = ", pace", ", most", ["    return", "    yield"]
    lines = [f"def read(data, at{pace}):", *source.reading(fields), *ending]
    lines += [f"def write(message, out{most}):", *source.writing(fields), *ending]
    names: dict[str, Any] = dict(source.names, **vars(primitives), kind=kind)
    exec("\n".join(lines), names)
    return names["read"], names["write"]


@cache
def _has_arrays(kind: type[Part], version: int, flexible: bool) -> bool:
    """Return whether it may be long: contains an array, at any depth. Tagged fields are short."""
    return any(
        field.is_array
        or (isinstance(field.kind, type) and _has_arrays(field.kind, version, flexible))
        for field in _fields(kind, version, flexible)
        if field.tag is None
    )


@cache
def _hints(kind: type[Part]) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _fields(kind: type[Part], version: int, flexible: bool) -> collections.abc.Iterator[_Field]:
    """Yield the fields of a version in wire order."""
    hints = _hints(kind)
    for info in msgspec.structs.fields(kind):
        shape, marks, nullable = _taken_apart(hints[info.name])
        tag = None
        for mark in marks:
            if isinstance(mark, Versions):
                if version < mark.first or (mark.last is not None and version > mark.last):
                    break
            elif isinstance(mark, Tag) and flexible and version >= mark.since:
                tag = mark.number
        else:
            is_array = typing.get_origin(shape) is collections.abc.Sequence
            if is_array:
                shape, element_marks, _ = _taken_apart(typing.get_args(shape)[0])
                marks = element_marks
            primitive = next((m for m in marks if isinstance(m, Fixed | Sized)), None)
            if isinstance(primitive, Sized) and not is_array:
                nullable = primitive.nullable
            default = info.default_factory() if info.default is msgspec.NODEFAULT else info.default
            yield _Field(info.name, primitive or shape, is_array, nullable, tag, default)


def _taken_apart(hint: Any) -> tuple[Any, list[Any], bool]:
    """Split an annotation into its type, its marks, and whether it may be None."""
    marks: list[Any] = []
    nullable = False
    while True:
        if typing.get_origin(hint) is Annotated:
            marks += hint.__metadata__
            hint = hint.__origin__
            # the mark says whether it may be None
            if any(isinstance(mark, Fixed | Sized) for mark in marks):
                return hint, marks, False
        elif isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
            (hint,) = [arm for arm in typing.get_args(hint) if arm is not type(None)]
            nullable = True
        else:
            return hint, marks, nullable


class _Source:
    """Lines of Python for one version, and the names that they use.

    `in_steps`: for generators that yield after each step.
    """

    def __init__(self, version: int, flexible: bool, *, in_steps: bool = False) -> None:
        self.names: dict[str, Any] = {}
        self._in_steps = in_steps
        self._version = version
        self._flexible = flexible
        self._compact = "compact_" if flexible else ""

    def _name(self, prefix: str, value: object) -> str:
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def _codec(self, kind: type[Part]) -> _Codec:
        return _codec(kind, self._version, self._flexible)

    def _is_stepped(self, kind: object, place: str) -> bool:
        """Return whether a structure is processed in steps.

        `place`: its container; not tagged fields.
        """
        in_steps = self._in_steps and place in ("data", "out")
        return (
            in_steps and isinstance(kind, type) and _has_arrays(kind, self._version, self._flexible)
        )

    @staticmethod
    def _runs(fields: list[_Field]) -> collections.abc.Iterator[list[_Field]]:
        """Yield untagged fields; consecutive ones of fixed width together."""
        run: list[_Field] = []
        for field in fields:
            if field.tag is not None:
                continue
            if isinstance(field.kind, Fixed) and not field.is_array:
                run.append(field)
                continue
            if run:
                yield run
                run = []
            yield [field]
        if run:
            yield run

    def _packing(self, run: list[_Field]) -> struct.Struct:
        return struct.Struct(">" + "".join([f.kind.code for f in run if isinstance(f.kind, Fixed)]))

    # -- reading ---------------------------------------------------------------------------------

    def reading(self, fields: list[_Field]) -> list[str]:
        lines: list[str] = []
        for run in self._runs(fields):
            field = run[0]
            if isinstance(field.kind, Fixed) and not field.is_array:
                packing = self._packing(run)
                unpack = self._name("unpack", packing.unpack_from)
                targets = ", ".join([f"v_{f.name}" for f in run])
                lines += [f"{targets}, = {unpack}(data, at)", f"at += {packing.size}"]
            else:
                lines += self._read_one(field)
        tagged = [field for field in fields if field.tag is not None]
        if self._flexible:
            lines.append(
                "tags, at = read_tags(data, at) if data[at:at + 1] != b'\\0' else (None, at + 1)"
            )
            for field in tagged:
                lines += self._read_tagged(field)
        given = ", ".join([f"{field.name}=v_{field.name}" for field in fields])
        lines.append(f"return kind({given}), at")
        return [f"    {line}" for line in lines]

    def _read_one(self, field: _Field, data: str = "data", at: str = "at") -> list[str]:
        target = f"v_{field.name}"
        if not field.is_array:
            return self._read_value(field, target, data, at)
        null = f"{target} = None" if field.nullable else f"{target} = ()"
        if self._in_steps and data == "data":
            items = [f"{target} = []", *self._read_in_steps(field, target)]
        elif isinstance(field.kind, Fixed):
            items = self._read_numbers(field.kind, f"{target} =", "count", data, at)
        else:
            one = self._read_value(field._replace(nullable=False), "value", data, at)
            items = [f"{target} = []", f"add = {target}.append", "for _ in range(count):"]
            items += [f"    {line}" for line in (*one, "add(value)")]
        return [
            f"count, {at} = read_{self._compact}count({data}, {at})",
            f"if count < 0: {null}",
            "else:",
            *[f"    {line}" for line in items],
        ]

    def _read_numbers(
        self, kind: Fixed, assigned: str, count: str, data: str = "data", at: str = "at"
    ) -> list[str]:
        """Generate the reading of as many fixed-width values as the variable `count` says."""
        size = struct.calcsize(">" + kind.code)
        if kind.code == "16s":
            values = f"[{data}[i:i + 16] for i in range({at}, end, 16)]"
        else:
            unpack = self._name("unpack", struct.unpack_from)
            values = f"{unpack}(f'>{{{count}}}{kind.code}', {data}, {at})"
        return [
            f"end = {at} + {count} * {size}",
            f"if end > len({data}): raise ends_early({at})",
            f"{assigned} {values}",
            f"{at} = end",
        ]

    def _read_in_steps(self, field: _Field, target: str) -> list[str]:
        """Generate the reading of the `count` items of an array."""
        counted = "pace.count(count)"
        rest = ["if pace.left <= 0:", "    pace.left = pace.step", "    yield"]
        if isinstance(field.kind, Fixed):
            lines = [
                f"some = min(count, pace.step * {_FIXED_PER_EFFORT})",
                *self._read_numbers(field.kind, f"{target} +=", "some"),
                "count -= some",
                f"pace.left -= some // {_FIXED_PER_EFFORT}",
                *rest,
            ]
            return [counted, "while count > 0:", *[f"    {line}" for line in lines]]
        lines = [
            "begin = at",
            *self._read_value(field._replace(nullable=False), "value", "data", "at"),
            "add(value)",
        ]
        if self._is_stepped(field.kind, "data"):
            lines.append("pace.left -= 1")  # its parts count for themselves
        else:
            lines.append(f"pace.left -= 1 + min((at - begin) >> 4, {_ITEM_EFFORT_MAX})")
        items = [f"    {line}" for line in (*lines, *rest)]
        return [counted, f"add = {target}.append", "for _ in range(count):", *items]

    def _read_value(self, field: _Field, target: str, data: str, at: str) -> list[str]:
        kind = field.kind
        if isinstance(kind, Fixed):
            packing = struct.Struct(">" + kind.code)
            unpack = self._name("unpack", packing.unpack_from)
            return [f"{target}, = {unpack}({data}, {at})", f"{at} += {packing.size}"]
        if isinstance(kind, Sized):
            lines = [f"{target}, {at} = read_{self._compact}{kind.kind}({data}, {at})"]
            if not field.nullable:
                empty = '""' if kind.kind == "string" else 'b""'
                lines.append(f"if {target} is None: {target} = {empty}")
            return lines
        if self._is_stepped(kind, data):
            stepper = _stepper(kind, self._version, self._flexible)
            reader = f"yield from {self._name('read', stepper.read)}"
            pace = ", pace"
        else:
            reader, pace = self._name("read", self._codec(kind).read), ""
        lines = [f"{target}, {at} = {reader}({data}, {at}{pace})"]
        if field.nullable:
            lines = [
                f"if {data}[{at}:{at} + 1] == b'\\xff':",
                f"    {target} = None",
                f"    {at} += 1",
                "else:",
                f"    {target}, {at} = {reader}({data}, {at} + 1{pace})",
            ]
        return lines

    def _read_tagged(self, field: _Field) -> list[str]:
        default = self._name("default", field.default)
        lines = [f"if tags is None or {field.tag} not in tags:", f"    v_{field.name} = {default}"]
        lines += ["else:", f"    part = tags[{field.tag}]", "    place = 0"]
        return lines + [f"    {line}" for line in self._read_one(field, "part", "place")]

    # -- writing ---------------------------------------------------------------------------------

    def writing(self, fields: list[_Field]) -> list[str]:
        lines: list[str] = []
        for run in self._runs(fields):
            field = run[0]
            if isinstance(field.kind, Fixed) and not field.is_array:
                pack = self._name("pack", self._packing(run).pack)
                values = ", ".join([f"message.{f.name}" for f in run])
                lines.append(f"out.append({pack}({values}))")
            else:
                lines += self._write_one(field)
        tagged = [field for field in fields if field.tag is not None]
        if tagged:
            lines.append("tags = []")
            for field in sorted(tagged, key=lambda item: item.tag or 0):
                default = self._name("default", field.default)
                differs = "" if field.is_array and not field.default else f" != {default}"
                lines.append(f"if message.{field.name}{differs}:")
                lines += ["    part = []"]
                lines += [f"    {line}" for line in self._write_one(field, "part")]
                lines.append(f"    tags.append(({field.tag}, b''.join(part)))")
            lines.append("write_tags(out, tags)")
        elif self._flexible:
            lines.append("out.append(b'\\0')")
        return [f"    {line}" for line in lines or ["pass"]]

    def _write_one(self, field: _Field, out: str = "out") -> list[str]:
        value = f"message.{field.name}"
        if not field.is_array:
            return self._write_value(field, value, out)
        lines = []
        if isinstance(field.kind, Fixed) and field.kind.code != "16s":
            pack = self._name("pack", struct.pack)
            lines = [f"{out}.append({pack}(f'>{{len({value})}}{field.kind.code}', *{value}))"]
        else:
            one = self._write_value(field._replace(nullable=False), "item", out)
            if self._in_steps and out == "out":
                one.append("if len(out) >= most: yield")
            lines = [f"for item in {value}:", *[f"    {line}" for line in one]]
        null = [f"if {value} is None:", f"    write_{self._compact}count({out}, -1)", "else:"]
        body = [f"write_{self._compact}count({out}, len({value}))", *lines]
        return [*null, *[f"    {line}" for line in body]] if field.nullable else body

    def _write_value(self, field: _Field, value: str, out: str) -> list[str]:
        kind = field.kind
        if isinstance(kind, Fixed):
            pack = self._name("pack", struct.Struct(">" + kind.code).pack)
            return [f"{out}.append({pack}({value}))"]
        if isinstance(kind, Sized):
            return [f"write_{self._compact}{kind.kind}({out}, {value})"]
        if self._is_stepped(kind, out):
            stepper = _stepper(kind, self._version, self._flexible)
            writer, most = f"yield from {self._name('write', stepper.write)}", ", most"
        else:
            writer, most = self._name("write", self._codec(kind).write), ""
        if field.nullable:
            return [
                f"if {value} is None:",
                f"    {out}.append(b'\\xff')",
                "else:",
                f"    {out}.append(b'\\x01')",
                f"    {writer}({value}, {out}{most})",
            ]
        return [f"{writer}({value}, {out}{most})"]
