"""Colours of the page: whatever is written can be read, in light and dark, also on a bar and on the map."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

CSS = files("splatbatch.report").joinpath("templates/page.css").read_text()
LEAST = 4.5
"""WCAG 2.2, 1.4.3, for text of any size."""
TEXTS = ("ink", "quiet", "trained", "failed", "stopped", "running", "waiting", "accent")
GROUNDS = ("page", "card", "soft")
BARS = ("trained", "failed", "stopped", "running", "waiting")
SETUP_SHADE = 0.18


def palette(scheme: str) -> dict[str, tuple[float, ...]]:
    light, dark = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    found = re.findall(r"--([\w-]+): #([0-9a-f]{3,6});", light if scheme == "light" else dark)
    return {name: rgb(value if len(value) == 6 else "".join(2 * one for one in value)) for name, value in found}


def rgb(value: str) -> tuple[float, ...]:
    return tuple(int(value[at : at + 2], 16) / 255 for at in (0, 2, 4))


def luminance(color: tuple[float, ...]) -> float:
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in color]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_is_21() -> None:
    assert contrast(rgb("000000"), rgb("ffffff")) == pytest.approx(21)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_written_can_be_read_on_every_ground(scheme: str) -> None:
    colors = palette(scheme)
    found = {(text, ground): contrast(colors[text], colors[ground]) for text in TEXTS for ground in GROUNDS}
    assert {pair: round(value, 2) for pair, value in found.items() if value < LEAST} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_stands_on_a_bar_can_be_read_also_where_it_is_shaded(scheme: str) -> None:
    colors = palette(scheme)
    for name in BARS:
        shaded = tuple((1 - SETUP_SHADE) * channel for channel in colors[name])
        assert contrast(colors["on"], colors[name]) >= LEAST, name
        assert contrast(colors["on"], shaded) >= LEAST, name
