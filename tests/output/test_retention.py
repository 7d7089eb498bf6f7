"""Which splat is the product and which stay: the better one where photographs see it, and never an unmeasured one."""

from __future__ import annotations

from typing import Any

import pytest

from splatbatch.output.records.result import Result
from splatbatch.output.retention import Retention, choose_splats

EIGHT = ("a", "i")
FOUR = ("a", "e", "i")
FILES = {"images/a": [1, 1, "x"], "sparse/images.bin": [2, 2, "y"]}


def result(number: int, psnr: float | None, covered: float | None = None, set_of: str = "", **told: Any) -> Result:
    final = {"psnr": psnr} | ({} if covered is None else {"psnr_covered": covered, "covered_share": 0.9})
    metrics = {"final": final, **({"covered": {"hash": set_of}} if set_of else {}), **told.pop("metrics", {})}
    names = {"patch": "p0", "attempt": f"attempt-{number:02d}", "splat": {"sha256": f"{number}" * 64}}
    return Result.from_record({**names, "inputs": "in", "files": FILES, "metrics": metrics, **told})


def retried(new: Result, accepted: Result, **how: Any) -> Retention:
    return choose_splats([accepted, new], accepted, new, is_retry=True, **how)


def told(*held_out: str) -> dict[str, Any]:
    return {"photographs": {"trained": [name for name in "abcdefghi" if name not in held_out], "held_out": held_out}}


def by_photo(**psnr: float) -> dict[str, Any]:
    final = {"psnr": sum(psnr.values()) / len(psnr), "images": {name: {"psnr": one} for name, one in psnr.items()}}
    return {"metrics": {"final": final}, **told(*psnr)}


def test_one_that_invents_less_but_is_worse_where_photographs_see_it_is_not_taken() -> None:
    accepted, new = result(1, 30.0, 36.0, "set"), result(2, 33.0, 34.0, "set")
    found = retried(new, accepted)
    assert found.product == accepted
    assert found.words == "2.0 dB worse than attempt 1 on covered pixels (3.0 dB better on all): kept attempt 1"


def test_one_that_invents_more_but_is_better_where_photographs_see_it_is_taken() -> None:
    found = retried(new := result(2, 30.0, 36.0, "set"), result(1, 33.0, 34.0, "set"))
    assert (found.product, found.words) == (new, "2.0 dB better than attempt 1 on covered pixels (3.0 dB worse on all)")


def test_where_nothing_is_covered_all_pixels_decide() -> None:
    assert retried(result(2, 33.0, None, "set"), result(1, 30.0, None, "set")).words == "3.0 dB better than attempt 1"


def test_an_earlier_splat_is_compared_as_it_was_measured_on_the_pixels_of_the_new_one() -> None:
    accepted = result(1, 30.0, 37.0, "old")
    anew = {"sha256": accepted.sha256, "final": {"psnr": 31.0, "psnr_covered": 36.5, "covered_share": 0.8}}
    new = result(2, 33.0, 36.0, "new", metrics={"earlier": anew})
    found = retried(new, accepted)
    assert found.words == "0.5 dB worse than attempt 1 on covered pixels (2.0 dB better on all): kept attempt 1"
    assert kept(new, accepted) == [1, 2]


def test_a_splat_of_before_covered_pixels_were_known_is_compared_on_all() -> None:
    assert retried(result(2, 33.0, 36.0, "new"), result(1, 34.0)).words.startswith("1.0 dB worse than attempt 1:")


BIASED = {"metrics": {"earlier": {"sha256": "1" * 64, "final": {"psnr": 50.0}}}}
BY_ITSELF = {"metrics": {"measured_by": "the program itself"}}
OTHER_PHOTO = {"files": FILES | {"images/a": [1, 1, "z"], "images/b": [3, 3, ""]}}
CASES: dict[str, tuple[Result, Result, int, str]] = {  # accepted, new, the attempt that is the product, why
    "better": (result(1, 20.0, **told(*EIGHT)), result(2, 21.0, **told(*EIGHT)), 2, "1.0 dB better than attempt 1"),
    "worse": (result(1, 20.0, **told(*EIGHT)), result(2, 19.0, **told(*EIGHT)), 1, "1.0 dB worse than attempt 1: kept"),
    "unmeasured": (result(1, 20.0), result(2, None), 1, "attempt 2 has no hold-out PSNR: kept attempt 1"),
    "nan": (result(1, 20.0), result(2, float("nan")), 1, "attempt 2 has no hold-out PSNR: kept attempt 1"),
    "not plausible": (result(1, 20.0), result(2, 99_999.0), 1, "attempt 2 has no hold-out PSNR: kept attempt 1"),
    "trained on the set": (
        *(result(1, 20.0, **told(*EIGHT)), result(2, None, **told())),
        *(1, "attempt 2 was trained on photographs that attempt 1 holds out: kept attempt 1"),
    ),
    "another set": (
        *(result(1, 20.0, **told("a", "i")), result(2, 30.0, **told("b", "i"))),
        *(1, "attempt 2 was trained on photographs that attempt 1 holds out: kept attempt 1"),
    ),
    "the accepted one measured anew on what it was trained on": (
        *(result(1, 20.0, **told("a", "i")), result(2, 30.0, **told("b", "i"), **BIASED)),
        *(1, "attempt 2 was trained on photographs that attempt 1 holds out: kept attempt 1"),
    ),
    "a larger set, better on the smaller one": (
        *(result(1, None, **by_photo(a=20.0, i=22.0)), result(2, None, **by_photo(a=21.0, i=22.0, e=5.0))),
        *(2, "0.5 dB better than attempt 1"),
    ),
    "a smaller set, worse on it": (
        *(result(1, None, **by_photo(a=20.0, i=22.0, e=5.0)), result(2, None, **by_photo(a=19.0, i=22.0))),
        *(1, "0.5 dB worse than attempt 1: kept attempt 1"),
    ),
    "the accepted one is measured anew, as the new one was": (
        *(result(1, None, **told("a", "i")), result(2, 30.0, **told("a", "i"), **BIASED)),
        *(1, "20.0 dB worse than attempt 1: kept attempt 1"),
    ),
    "measured by its trainer": (
        *(result(1, 20.0), result(2, 40.0, **BY_ITSELF)),
        *(1, "one was measured by the program that trained it, the other by splatbatch: kept attempt 1"),
    ),
    "other covered pixels": (
        result(1, 30.0, 37.0, "old"),
        result(2, 33.0, 36.0, "new"),
        1,
        "measured on other covered",
    ),
    "both unmeasured": (result(1, None), result(2, None), 2, "replaces attempt 1; the two cannot be compared"),
    "the first that is measured": (
        *(result(1, None, **told()), result(2, 20.0, **told(*EIGHT))),
        *(2, "the two cannot be compared: attempt 1 was trained on photographs that attempt 2 holds out"),
    ),
    "other photographs": (
        *(result(1, 20.0), result(2, 10.0, **OTHER_PHOTO)),
        *(2, "replaces attempt 1; the two cannot be compared: other input files: images/"),
    ),
    "another model or hold-out by the YAML": (
        *(result(1, 20.0), result(2, None, inputs="other")),
        *(2, "replaces attempt 1; the two cannot be compared: they differ in the model or the held-out photographs"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_retry_replaces_a_measured_splat_only_by_one_that_was_measured_no_worse(case: str) -> None:
    accepted, new, number, why = CASES[case]
    found = retried(new, accepted)
    assert found.product and found.product.number == number
    assert why in found.words
    assert (" --attempt 2` accepts attempt 2 anyway" in found.words) == ("cannot be compared with" in found.words)


def test_a_train_that_changed_nothing_lets_no_unmeasured_splat_replace_a_measured_one() -> None:
    accepted, new = result(1, 20.0, recipe="r"), result(2, None, recipe="r")
    assert choose_splats([accepted, new], accepted, new).product == accepted
    changed = choose_splats([accepted, new], accepted, again := result(2, None, recipe="other"))
    assert changed.product == again
    assert changed.words.endswith("has no hold-out PSNR: `splatbatch accept p0 --attempt 1` brings attempt 1 back")


def test_the_best_whole_splat_takes_the_place_of_a_damaged_one() -> None:
    lost, shelf = result(4, 24.0), [result(1, 20.0), result(2, 23.0), result(3, None)]
    assert choose_splats(shelf, lost, damaged=[lost]).product == shelf[1]
    assert choose_splats(shelf, result(4, None)).product is None
    assert choose_splats([*shelf, new := result(5, 21.0)], lost, new, is_retry=True).product == shelf[1]


def kept(product: Result, *others: Result, damaged: tuple[Result, ...] = ()) -> list[int]:
    found = choose_splats([product, *others], product, damaged=damaged).kept
    return sorted(int(name[-2:]) for name in found)


def test_the_best_measured_splat_of_each_set_of_photographs_stays() -> None:
    eight, four = told(*EIGHT), told("b", *FOUR)
    shelf = [result(1, 20.0, **eight), result(2, 19.0, **eight), result(3, 30.0, **four), result(4, 29.0, **four)]
    assert kept(result(5, None, **told()), *shelf) == [1, 3, 5]
    assert kept(result(5, 21.0, **eight), *shelf) == [3, 5]
    assert kept(result(5, 19.5, **eight), *shelf) == [1, 3, 5]


def test_a_damaged_splat_outdoes_none_and_goes_only_where_a_whole_one_is_as_good() -> None:
    best = result(1, 24.0)
    assert kept(result(3, 20.0), result(2, 22.0), damaged=(best,)) == [1, 2, 3]
    assert kept(result(3, 25.0), result(2, 22.0), damaged=(best,)) == [3]


def test_a_splat_of_other_photographs_than_the_products_goes() -> None:
    assert kept(result(2, None), result(1, 24.0, **OTHER_PHOTO)) == [2]
