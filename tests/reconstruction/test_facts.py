"""Why a photograph did not register, and what is advised."""

from __future__ import annotations

from collections import Counter

import pytest
from drawn import drawn
from made_stages import TOLD

from splatbatch.reconstruction.registration import advice, nearest, why_missing
from splatbatch.report.maps import camera_map

USUAL = {"sharpness": 1.0, "brightness": 120.0, "clipped": 0.01, "features": 3000.0}
MATCHES = {"x": Counter({"1": 12, "9": 80})}


@pytest.mark.parametrize(
    ("look", "matches", "said"),
    [
        ({"sharpness": 0.1}, {}, "blur: 10% of the sharpness that is usual for this camera"),
        ({"brightness": 5.0, "clipped": 0.9}, {}, "exposure: mean brightness 5 of 255, 90 % of pixels black or white"),
        ({"features": 20.0}, {}, "few features: 20 found"),
        ({}, MATCHES, "at most 12 matches with registered photographs, 80 with photographs that are not registered"),
        ({}, {"x": Counter({"1": 200})}, "no pose was found, despite 200 matches"),
    ],
)
def test_why_a_photograph_did_not_register(look: dict[str, float], matches: dict[str, Counter[str]], said: str) -> None:
    assert said in why_missing(USUAL | look, 1.0, matches.get("x", Counter()), {"1", "2"})


def test_of_another_component_the_nearest_photographs_are_named() -> None:
    found = nearest(["x", "y"], {"1"}, MATCHES)
    assert (found.of_theirs, found.of_ours, found.matches) == ("x", "1", 12)
    assert nearest(["y"], {"1"}, MATCHES).matches == 0


def test_advice_says_which_photographs_would_join_components() -> None:
    (said,) = advice({}, [["a", "b"], ["p7", "p8", "p9"]], 0.5)
    assert "3 photographs, p7 to p9" in said and "between these" in said


def test_what_is_told_names_what_is_missing_and_the_datum() -> None:
    words = "\n".join(TOLD.in_words())
    assert "3 of 4 photographs registered; 1,234 points" in words and "no vertical datum" in words
    assert "far.jpg: not registered: no overlap" in words


def test_the_page_maps_the_cameras_and_escapes_their_names() -> None:
    html = drawn("scene", "reconstruction", TOLD, camera_map(TOLD))
    assert html.count("<circle") == 3 and "0&lt;b&gt;.jpg: 0 m from GPS" in html and "far.jpg" in html
