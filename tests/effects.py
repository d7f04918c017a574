"""What a part of a node orders: parts append it to the list that they get as their last argument."""

from __future__ import annotations

from collections.abc import Callable

from steelyard.nodes.seam import Effect


def effects_of(part: Callable[..., object], *arguments: object) -> list[Effect]:
    """The effects of a call with these arguments."""
    effects: list[Effect] = []
    part(*arguments, effects)
    return effects
