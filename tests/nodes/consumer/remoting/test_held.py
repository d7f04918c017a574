"""Each part of a held queue has one writer."""

from __future__ import annotations

import ast
from pathlib import Path

import steelyard.nodes.consumer.remoting
from steelyard.nodes.consumer.remoting.held import Held

WRITERS = {
    "pull": {"pulling"},
    "commits": {"commits"},
    "application": {"concurrent", "ordered", "polled"},
    "wishes": {"polled"},
    "handover": {"handover"},
}
"""As the module's text says. A consumer has one of several."""


def written() -> dict[str, set[str]]:
    """By part, or by field of `Held`: the modules that assign to it, or to one of its fields."""
    found: dict[str, set[str]] = {}
    for path in Path(steelyard.nodes.consumer.remoting.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
                continue
            owner = node.value
            if isinstance(owner, ast.Attribute) and owner.attr in WRITERS:
                part = owner.attr
            elif isinstance(owner, ast.Name) and owner.id in WRITERS:
                part = owner.id
            elif node.attr in Held.__struct_fields__ and not is_self(owner):
                part = "Held"
            else:
                continue
            found.setdefault(part, set()).add(path.stem)
    return found


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def test_every_part_is_written_by_its_owner_only() -> None:
    assert written() == WRITERS | {"Held": {"holdings"}}


def test_states_are_moved_by_holdings_only() -> None:
    room = Path(steelyard.nodes.consumer.remoting.__path__[0])
    movers = {path.stem for path in room.glob("*.py") if ".holding.move(" in path.read_text()}
    assert movers == {"holdings"}
