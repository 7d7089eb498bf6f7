"""What a grade means: no defect found, never quality; and that health warnings are none the less found."""

from __future__ import annotations

import re
from pathlib import Path

import splatbatch
from splatbatch.output.records.quality import (
    HEALTH_RULES,
    NEEDED,
    Inspection,
    QualityFigure,
    grade,
    grade_in_words,
    health_rules,
)

SOUND = (QualityFigure("depth", 0.1, 0.25),)
HOPELESS = {"zero_gradients", "repeated_image"}
"""End a run of ours, and no program says them in its log: no splat comes of them."""


def test_a_splat_whose_training_warned_of_its_loss_is_not_graded_as_if_nothing_had_been_found() -> None:
    found = Inspection(grade="A", figures=SOUND).aware_of(["loss_not_falling: loss 0.2 at the start, 0.2 at step 80"])
    assert found.grade == grade(found.figures) == "B"
    assert [figure.name for figure in found.found] == ["health"]
    assert found.found[0].meaning == "warnings during the training: loss_not_falling"


def test_other_warnings_change_no_grade() -> None:
    sound = Inspection(grade="A", figures=SOUND)
    assert sound.aware_of(["the program did not end by itself", "no_checkpoint: the disk is full"]) == sound


def test_every_rule_of_health_that_speaks_of_a_splat_counts() -> None:
    package = Path(splatbatch.__file__).parent
    files = [package / "splats/health.py", *(package / "training").rglob("*.py")]
    known = {one for path in files for one in re.findall(r'Finding\(\s*"(\w+)"', path.read_text())}
    assert known - HOPELESS - {"no_checkpoint"} == set(HEALTH_RULES)
    assert health_rules(["health: shrunk: 3", "shrunk: 4"]) == ("shrunk",)


def test_nothing_is_graded_a_without_the_figures_of_held_out_photographs() -> None:
    shown, unknown = (QualityFigure(NEEDED, value, 0) for value in (0.0, None))
    assert [grade((*SOUND, *more)) for more in ((shown,), (unknown,), ())] == ["A", "B", "A"]
    assert grade((*SOUND, unknown, QualityFigure("veil", 0.5, 0.4))) == "B"


def test_a_grade_says_what_was_found_and_not_how_good_it_is() -> None:
    assert grade_in_words("A").startswith("grade A: no defect found, and held-out photographs are reproduced")
    assert grade_in_words("") == "grade unknown"
