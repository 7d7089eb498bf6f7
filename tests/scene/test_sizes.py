from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splatbatch.scene.photos.headers import (
    NearSize,
    SameSize,
    ScaledSize,
    ShapeMismatch,
    TransposedSize,
    relate,
    spell_factor,
)

SIDES = st.integers(400, 9000)


@pytest.mark.parametrize(
    ("camera", "photo", "relation"),
    [
        ((1548, 1357), (1548, 1357), SameSize()),
        ((1548, 1360), (1548, 1357), NearSize(1.0, (0, -3))),
        ((1550, 1357), (1548, 1357), NearSize(1.0, (-2, 0))),
        ((4946, 3286), (1237, 822), ScaledSize(0.25)),
        ((4946, 3286), (1236, 821), ScaledSize(0.25)),
        ((1548, 1360), (774, 678), NearSize(0.5, (0, -2))),
        ((1000, 750), (750, 1000), TransposedSize(1.0)),
        ((1000, 750), (375, 500), TransposedSize(0.5)),
        ((1000, 750), (1000, 600), ShapeMismatch()),
    ],
)
def test_sizes_of_the_field_are_told_apart(camera: tuple[int, int], photo: tuple[int, int], relation: object) -> None:
    assert relate(camera, photo) == relation


@given(width=SIDES, height=SIDES, divisor=st.sampled_from([2, 3, 4, 8]), up=st.booleans())
def test_a_downscale_is_recognised_however_it_was_rounded(width: int, height: int, divisor: int, up: bool) -> None:
    photo = (-(-width // divisor), -(-height // divisor)) if up else (width // divisor, height // divisor)
    assert relate((width, height), photo) == ScaledSize(1 / divisor)


@given(camera=st.tuples(*[st.integers(1, 2**64)] * 2), photo=st.tuples(*[st.integers(1, 2**32)] * 2))
def test_any_two_sizes_have_a_relation(camera: tuple[int, int], photo: tuple[int, int]) -> None:
    assert isinstance(relate(camera, photo), SameSize | TransposedSize | NearSize | ScaledSize | ShapeMismatch)
    assert (relate(camera, photo) == SameSize()) == (camera == photo)


def test_factors_are_spelt_in_the_words_of_the_field() -> None:
    assert [spell_factor(factor) for factor in (0.25, 0.5, 2.0, 0.375)] == [
        "images_4, a quarter", "images_2, a half", "2 times as large", "37.5 % of the size",
    ]  # fmt: skip
