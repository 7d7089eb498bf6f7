"""Of two splats the one is kept that is better where photographs see it; what it shows elsewhere is told."""

from __future__ import annotations

from typing import Any

from splatbatch.store.best import Rules, better_than, choose
from splatbatch.store.records.result import Result

RETRY = Rules(is_retry=True)


def result(number: int, psnr: float, covered: float | None = None, set_of: str = "", **metrics: Any) -> Result:
    final = {"psnr": psnr} | ({} if covered is None else {"psnr_covered": covered, "covered_share": 0.9})
    told = {"final": final, **({"covered": {"hash": set_of}} if set_of else {}), **metrics}
    names = {"patch": "p0", "attempt": f"attempt-{number:02d}", "splat": {"sha256": f"{number}" * 64}}
    return Result.from_record({**names, "metrics": told})


def test_one_that_invents_less_but_is_worse_where_photographs_see_it_is_not_taken() -> None:
    accepted, new = result(1, 30.0, 36.0, "set"), result(2, 33.0, 34.0, "set")
    choice = choose(new, accepted, RETRY)
    assert not choice.takes_new
    assert choice.words == "2.0 dB worse than attempt 1 on covered pixels (3.0 dB better on all): kept attempt 1"


def test_one_that_invents_more_but_is_better_where_photographs_see_it_is_taken() -> None:
    choice = choose(result(2, 30.0, 36.0, "set"), result(1, 33.0, 34.0, "set"), RETRY)
    assert choice.takes_new
    assert choice.words == "2.0 dB better than attempt 1 on covered pixels (3.0 dB worse on all)"


def test_where_nothing_is_covered_all_pixels_decide() -> None:
    assert (
        choose(result(2, 33.0, None, "set"), result(1, 30.0, None, "set"), RETRY).words
        == "3.0 dB better than attempt 1"
    )


def test_covered_figures_of_other_pixels_are_not_compared() -> None:
    choice = choose(result(2, 33.0, 36.0, "new"), result(1, 30.0, 37.0, "old"), RETRY)
    assert choice.words == "replaces attempt 1; they cannot be compared: measured on other covered pixels"


def test_an_earlier_splat_is_compared_as_it_was_measured_on_the_pixels_of_the_new_one() -> None:
    accepted = result(1, 30.0, 37.0, "old")
    anew = {"sha256": accepted.sha256, "final": {"psnr": 31.0, "psnr_covered": 36.5, "covered_share": 0.8}}
    new = result(2, 33.0, 36.0, "new", earlier=anew)
    choice = choose(new, accepted, RETRY)
    assert choice.words == "0.5 dB worse than attempt 1 on covered pixels (2.0 dB better on all): kept attempt 1"
    assert better_than(new, [accepted]) == accepted


def test_a_splat_of_before_covered_pixels_were_known_is_compared_on_all() -> None:
    assert choose(result(2, 33.0, 36.0, "new"), result(1, 34.0), RETRY).words.startswith("1.0 dB worse than attempt 1:")
