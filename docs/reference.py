"""The API reference, from the docstrings of all public names; part of the site (docs/site.py).

A public name without a docstring is an error, and so is any warning. A field may be described in
the docstring of its class instead, in backticks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pdoc
from pdoc.doc import Class, Module

PUBLIC = (
    "steelyard",
    "steelyard.aio",
    "steelyard.config",
    "steelyard.errors",
    "steelyard.otel",
    "steelyard.spark",
    "steelyard.spark.options.reading",
    "steelyard.spark.source",
)


def load() -> list[Module]:
    """The public modules. The names of `steelyard` are there once they were asked for."""
    for name in PUBLIC:
        module = import_module(name)
        for public in getattr(module, "__all__", ()):
            value = getattr(module, public)
            if isinstance(value, type) and issubclass(value, tuple):
                # pdoc cannot resolve the annotations of a named tuple: its code is in no module.
                value.__new__.__annotations__ = get_type_hints(value)
            elif "__orig_bases__" in getattr(value, "__dict__", {}):
                # Of a generic class pdoc would take the methods of a base instead of its own.
                bases = value.__orig_bases__
                value.__orig_bases__ = tuple(b for b in bases if not isinstance(b, type))
    return [Module(import_module(name)) for name in PUBLIC]


def undocumented(place: Module | Class, home: str = "steelyard.") -> Iterator[str]:
    """Return the public names of ours in a module or class that have no docstring."""
    if not place.docstring:
        yield place.fullname
    texts = "".join(each.__doc__ or "" for each in getattr(place.obj, "__mro__", ()))
    for member in place.members.values():
        if member.name.startswith("_") or not member.taken_from[0].startswith(home):
            continue
        if isinstance(member, Class):
            yield from undocumented(member, home)
        elif not member.docstring and f"`{member.name}`" not in texts:
            yield member.fullname


def write(folder: Path) -> None:
    """Write the reference. Raises ValueError where a name has no docstring."""
    warnings.simplefilter("error")
    missing = sorted({name for module in load() for name in undocumented(module)})
    if missing:
        raise ValueError(f"public names without a docstring: {', '.join(missing)}")
    pdoc.render.configure(docformat="markdown", search=True, show_source=False)
    specs = [each for name in PUBLIC for each in (name, f"!{name}[.].*")]  # no modules within it
    pdoc.pdoc(*specs, output_directory=folder)
