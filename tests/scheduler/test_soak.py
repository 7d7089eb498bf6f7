"""An hour of a hundred patches with every trouble of a night: the parent stays as it was, and all is accounted for.

SOAK_FOLDER names a folder outside: a soak that was cut short goes on in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from soak import Sample, Soak, grown


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
@pytest.mark.parametrize(
    ("patches", "seconds"),
    [pytest.param(12, 40, marks=pytest.mark.all), pytest.param(100, 3600, marks=pytest.mark.long)],
)
def test_a_parent_holds_no_more_after_a_long_night_than_at_its_beginning(
    patches: int, seconds: float, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    soak = Soak(Path(os.environ.get("SOAK_FOLDER", tmp_path)) / f"soak-{patches}", patches, seconds)
    wrong = soak.run()
    first, last = (soak.samples()[at] for at in (len(soak.samples()) // 5, -1))
    record_property("figure", f"{patches} patches in {soak.spent_s:.0f} s: {words_of(first)}; {words_of(last)}")
    assert wrong == []


def words_of(sample: Sample) -> str:
    return f"{sample.mib:.0f} MiB, {sample.threads} threads, {sample.descriptors} descriptors"


@pytest.mark.parametrize(("name", "most"), [("mib", 8), ("threads", 0), ("descriptors", 0)])
def test_what_grows_is_named(name: str, most: float) -> None:
    def lives(step: float) -> list[Sample]:
        held = {"mib": 60.0, "threads": 4, "descriptors": 20}
        return [Sample(one, 7, **held | {name: held[name] + one * step}) for one in range(100)]

    assert list(grown(lives(0))) == []
    assert list(grown(lives((most + 1) / 50)))
