"""Validation of the public API's arguments: `checked` wraps all public methods of a client.

The rules are the annotations and `steelyard.checks`. A wrong argument raises ArgumentError in the
caller, before anything else happens. A coroutine function raises when it is awaited, so that one
wrong call among several gathered ones is one failed call.

Keywords that come in groups (`**fields: Unpack[MessageFields]`) are expanded in the signature, and
described in the docstring, that `help()` shows: the method's own, or the class's for a constructor.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature, cleandoc, iscoroutinefunction, signature
from types import FunctionType, SimpleNamespace
from typing import Any, TypeVar, Unpack, get_args, get_origin, get_type_hints

from steelyard.checks import Kind, is_right, kind_of, unknown
from steelyard.errors import ArgumentError

T = TypeVar("T", bound=type)

_LEFT_OUT = {"ssl": SimpleNamespace(SSLContext=Any)}
"""Names imported for the type checker only: `settings.tls_context` checks the argument.

It loads ssl late.
"""


class _Optional:
    """Placeholder in a signature for a default that the docstring describes."""

    def __repr__(self) -> str:
        return "..."


_OPTIONAL = _Optional()


class _Rules:
    """The rules for a function's arguments, compiled at its first call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._kinds: dict[str, Kind] | None = None
        self._positional: tuple[tuple[str, Kind], ...] = ()
        self._rest: Kind | None = None

    def compile(self) -> dict[str, Kind]:
        """Compile the rules; an annotation without a rule is a bug and fails an assertion."""
        hints = get_type_hints(self._function, localns=_LEFT_OUT, include_extras=True)
        named: dict[str, Kind] = {}
        positional: list[tuple[str, Kind]] = []
        for parameter in list(signature(self._function).parameters.values())[1:]:
            hint = hints.get(parameter.name, Any)
            if parameter.kind is Parameter.VAR_KEYWORD:
                named.update(_unpacked(hint))
                continue
            kind = kind_of(hint)
            if parameter.kind is Parameter.VAR_POSITIONAL:
                self._rest = kind
                continue
            named[parameter.name] = kind
            if parameter.kind is not Parameter.KEYWORD_ONLY:
                positional.append((parameter.name, kind))
        self._positional = tuple(positional)
        self._kinds = named
        return named

    def _unknown(self, name: str, kinds: Mapping[str, Kind]) -> None:
        """Handle an unknown name in a group of keywords; elsewhere Python raises by itself."""
        if group_of(self._function) is not None:
            raise unknown("argument", name, kinds)

    def take(self, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
        """Return the positional arguments to use; changes `options` in place.

        Raises ArgumentError.
        """
        kinds = self._kinds or self.compile()
        for name, value in options.items():
            kind = kinds.get(name)
            if kind is None:
                self._unknown(name, kinds)
            elif not is_right(kind, value):
                options[name] = kind.take(name, value)
        changed: list[Any] | None = None
        for (name, kind), value in zip(self._positional, args):  # noqa: B905  # either may be longer
            if not is_right(kind, value):
                taken = kind.take(name, value)
                if taken is not value:
                    changed = changed or list(args)
                    changed[[each for each, _ in self._positional].index(name)] = taken
        rest, count = self._rest, len(self._positional)
        if rest is not None and len(args) > count:
            changed = changed or list(args)
            changed[count:] = [
                rest.take(f"argument {count + number}", value)
                for number, value in enumerate(args[count:], 1)
            ]
        return args if changed is None else tuple(changed)


def _unpacked(hint: Any) -> Mapping[str, Kind]:
    """Return the rules of `**options: Unpack[SomeTypedDict]`."""
    if get_origin(hint) is not Unpack:
        return {}
    (keys,) = get_args(hint)
    return {name: kind_of(each) for name, each in get_type_hints(keys, include_extras=True).items()}


def checked(cls: T) -> T:
    """Wrap the public methods of a class, including inherited ones, to check their arguments."""
    for name in dir(cls):
        if name.startswith("_") and name != "__init__":
            continue
        function = next(vars(base)[name] for base in cls.__mro__ if name in vars(base))
        if isinstance(function, FunctionType) and len(signature(function).parameters) > 1:
            wrapped = _wrapped(function)
            group = group_of(function)
            if group is not None:
                wrapped.__signature__ = _spelled_out(function, group)  # type: ignore[attr-defined]  # inspect looks there
                described = cls if name == "__init__" else wrapped
                texts = (described.__doc__ or "", group.__doc__ or "")
                described.__doc__ = "\n\n".join(map(cleandoc, texts))
            setattr(cls, name, wrapped)
    return cls


def group_of(function: Callable[..., Any]) -> type | None:
    """Return the TypedDict of the keywords that the function takes as a group."""
    for hint in function.__annotations__.values():
        if isinstance(hint, str) and hint.startswith("Unpack["):
            found: type = function.__globals__[hint[len("Unpack[") : -1]]
            return found
    return None


def _spelled_out(function: Callable[..., Any], group: type) -> Signature:
    plain = signature(function)
    parameters = list(plain.parameters.values())
    keywords = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=_OPTIONAL, annotation=hint)
        for name, hint in get_type_hints(group).items()
    ]
    return plain.replace(parameters=[*parameters[:-1], *keywords])


async def _raise(error: ArgumentError) -> Any:
    raise error


def _marked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a wrapper as a coroutine function, for asyncio and, from Python 3.12, for inspect."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return function


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    rules = _Rules(function)
    take = rules.take
    if iscoroutinefunction(function):

        @wraps(function)
        def call_later(self: object, *args: Any, **options: Any) -> Any:
            # No additional coroutine around it: each send would pay for it.
            try:
                taken = take(args, options)
            except ArgumentError as error:
                return _raise(error)
            return function(self, *taken, **options)

        return _marked(call_later)

    @wraps(function)
    def call(self: object, *args: Any, **options: Any) -> Any:
        return function(self, *take(args, options), **options)

    return call
