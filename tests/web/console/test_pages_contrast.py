"""The colours of the pages: what meets on them has the contrast that WCAG 2.2 asks for, in both themes.

AA: 4.5 for text (1.4.3), 3 for borders of controls and for what a graphic tells (1.4.11).
"""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

import steelyard.web

STATIC = Path(steelyard.web.__file__).parent / "console" / "static"
THEMES = ("light", "dark")
PAIR = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")
TOKENS = {
    name: {"light": light, "dark": dark}
    for name, light, dark in PAIR.findall((STATIC / "tokens.css").read_text())
}
MEMBERS = [f"member-{number}" for number in range(1, 9)]

TEXT = [
    *(
        (text, ground)
        for text in ("text", "muted")
        for ground in ("canvas", "surface", "sunken", "hover")
    ),
    *(("text", ground) for ground in ("accent-soft", "warn-soft", "bad-soft", "good-soft")),
    *(("accent", ground) for ground in ("canvas", "surface", "hover", "accent-soft", "warn-soft")),
    *((tone, f"{tone}-soft") for tone in ("good", "warn", "bad")),
    *((tone, ground) for tone in ("good", "warn", "bad") for ground in ("canvas", "surface")),
    ("on-accent", "accent"),
    ("on-accent", "bad"),
    *(("on-member", member) for member in MEMBERS),
    *((member, "surface") for member in MEMBERS),
]
"""Texts and what they stand on."""

GRAPHICS = [
    *(("edge", ground) for ground in ("canvas", "surface")),
    *((member, ground) for member in MEMBERS for ground in ("surface", "hover")),
    ("accent", "sunken"),
    ("warn", "surface"),
]
"""Borders of controls and parts of graphics, and what they stand on."""


def luminance(colour: str) -> float:
    """Relative luminance of "#rrggbb", as WCAG defines it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_as_defined() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(
        4.48, abs=0.005
    )  # WCAG's well-known near miss


@pytest.mark.parametrize("theme", THEMES)
def test_texts(theme: str) -> None:
    poor = {
        pair: round(contrast(TOKENS[pair[0]][theme], TOKENS[pair[1]][theme]), 2) for pair in TEXT
    }
    assert {pair: found for pair, found in poor.items() if found < 4.5} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_graphics(theme: str) -> None:
    poor = {
        pair: round(contrast(TOKENS[pair[0]][theme], TOKENS[pair[1]][theme]), 2)
        for pair in GRAPHICS
    }
    assert {pair: found for pair, found in poor.items() if found < 3} == {}


# -- members for people who do not tell all colours apart ------------------------------------------

MATRICES = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""Machado, Oliveira and Fernandes, 2009: severity 1.0, for linear RGB."""

APART = 9.0
"""Least distance in CIELAB of two neighbours in the order of members. A difference of 2.3 is just noticeable."""


def linear(colour: str) -> list[float]:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels
    ]


def lab(rgb: list[float]) -> tuple[float, float, float]:
    red, green, blue = (min(1.0, max(0.0, each)) for each in rgb)
    xyz = (
        (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047,
        0.2126729 * red + 0.7151522 * green + 0.0721750 * blue,
        (0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883,
    )
    x, y, z = (
        each ** (1 / 3) if each > 216 / 24389 else (24389 / 27 * each + 16) / 116 for each in xyz
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("sight", [None, *MATRICES])
def test_members_are_told_apart(sight: str | None, theme: str) -> None:
    """Each member has a number and a column as well; colours only make it quicker."""

    def seen(member: str) -> tuple[float, float, float]:
        rgb = linear(TOKENS[member][theme])
        if sight is None:
            return lab(rgb)
        return lab([sum(a * b for a, b in zip(row, rgb, strict=True)) for row in MATRICES[sight]])

    close = {
        (one, other): round(distance, 1)
        for one, other in combinations(MEMBERS, 2)
        if (
            distance := sum((a - b) ** 2 for a, b in zip(seen(one), seen(other), strict=True))
            ** 0.5
        )
        < APART
    }
    assert close == {}
