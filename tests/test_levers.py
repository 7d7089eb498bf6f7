"""`scripts/bench_quality --levers`: what differences in pairs say, and how a call goes on where another one ended."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from fake_batch import ROOT, FakeBatch
from scipy.stats import ttest_rel
from small_patch import paint

from splatbatch.files import append_line

sys.path.append(str(ROOT / "scripts"))

from levers_bench.batches import next_batch
from levers_bench.pairs import Mean, Pair, combined, mean_of, read, table, without

UNDER = ("training.max_steps=20",)


def wanted(scene: str = "reef", patches: str = "p0 p1", num_seeds: int = 3, changes: str = "a") -> list[Pair]:
    seeds = range(1, num_seeds + 1)
    return [Pair(scene, p, s, c, (f"x.{c}=1",), UNDER) for s in seeds for p in patches.split() for c in changes]


def trained(before: float, after: float, *, seconds: float = 10.0, is_alone: bool = True, **changed: object) -> Pair:
    parent = {"psnr": before, "psnr_covered": before + 1, "psnr_even": before, "covered": "c0", "seconds": 10.0}
    figures = {**parent, "psnr": after, "psnr_covered": after + 1, "seconds": seconds, **changed}
    return Pair("reef", "p0", 1, "a", ("x.a=1",), UNDER, is_alone, "c", parent, figures)


def num_seconds(batch: Sequence[Pair]) -> float:
    """Ten for each pair, whatever its kind."""
    return 10.0 * len(batch)


def test_the_interval_is_that_of_the_paired_t_test() -> None:
    random = np.random.default_rng(1)
    before = random.normal(30, 2, 12)
    after = before + random.normal(0.2, 0.3, 12)
    found = mean_of(trained(*pair).gain("psnr_covered") for pair in zip(before, after, strict=True))
    interval = ttest_rel(after, before).confidence_interval(0.95)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((interval.low, interval.high))


def test_an_interval_has_what_it_promises() -> None:
    random = np.random.default_rng(2)
    found = [mean_of(random.normal(0.15, 0.4, 8)) for _ in range(2000)]
    assert 0.935 < np.mean([abs(one.mean - 0.15) < one.half for one in found]) < 0.965


def test_ten_seeds_of_seven_patches_tell_a_seventh_of_a_decibel_and_say_none_of_nothing() -> None:
    spreads = {0.11: 20, 0.2: 50, 0.8: 10}  # dB between the differences of pairs, and pairs: quarry, caliterra, flight
    random = np.random.default_rng(3)

    def found(gain: float) -> Mean:
        return combined(mean_of(random.normal(gain, spread, num)) for spread, num in spreads.items())

    planted, nothing = [found(-0.15) for _ in range(1000)], [found(0.0) for _ in range(1000)]
    assert 0.935 < np.mean([abs(one.mean) < one.half for one in nothing]) < 0.97
    assert np.mean([one.verdict() == "worse" for one in planted]) > 0.99
    assert np.mean([one.verdict() == "none" for one in nothing]) > 0.95


def test_scenes_whose_pairs_are_equal_are_told_to_have_none() -> None:
    found = combined([mean_of([0.0, 0.0, 0.0]), mean_of([0.0, 0.0])])
    assert (found.num, found.mean, found.verdict()) == (5, 0.0, "none")


def test_scenes_with_fewer_than_two_pairs_do_not_count() -> None:
    known = mean_of([0.1, 0.3])
    assert combined([mean_of([5.0]), known, mean_of([])]) == known
    assert combined([]).verdict() == "undecided"


@pytest.mark.parametrize(
    ("mean", "half", "verdict"),
    [
        (0.03, 0.06, "none"),
        (0.05, 0.02, "none"),  # there is a difference, but a small one
        (0.15, 0.10, "better"),
        (-0.15, 0.10, "worse"),
        (0.05, 0.20, "undecided (some 40 pairs give ±0.1 dB)"),
    ],
)
def test_verdicts(mean: float, half: float, verdict: str) -> None:
    assert Mean(10, mean, half).verdict() == verdict


def test_one_pair_decides_nothing() -> None:
    assert mean_of([0.5, None]).verdict() == "undecided"
    assert str(mean_of([0.5])) == "+0.50"
    assert str(mean_of([])) == "-"


def test_figures_of_other_pixels_or_other_tones_are_not_compared() -> None:
    assert trained(30, 31).gain("psnr") == 1
    assert trained(30, 31, covered="other").gain("psnr") is None
    assert trained(30, 31, psnr_even=None).gain("psnr") is None
    assert trained(30, 31, psnr_covered=None).gain("psnr_covered") is None


def test_where_one_leaves_photographs_out_those_that_both_have_are_compared() -> None:
    def images(**psnr: float) -> dict[str, dict[str, float]]:
        return {name: {"psnr": one, "psnr_covered": one + 1} for name, one in psnr.items()}

    pair = trained(30, 34, covered="other", images=images(a=30, b=31, c=45))
    pair.parent["images"] = images(a=29, b=31.5)
    assert pair.gain("psnr") == pytest.approx(0.25)
    pair.parent["images"] = images(d=29)
    assert pair.gain("psnr_covered") is None


def test_seconds_are_compared_where_nothing_else_was_trained_beside() -> None:
    assert trained(30, 30, seconds=11.0).slower() == pytest.approx(10)
    assert trained(30, 30, seconds=11.0, is_alone=False).slower() is None


def test_the_table_says_what_failed_and_what_was_left_out() -> None:
    failed = wanted(patches="p1", num_seeds=1)[0]
    lines = table([trained(30, 30.2), trained(31, 31.3, is_alone=False), trained(30, 31, covered="other"), failed])
    assert lines[2].startswith("| reef | a | 2 | +0.25 (-0.39 to +0.89) | undecided")
    assert lines[2].endswith("| 2 | +0.00 (+0.00 to +0.00) |")
    assert [line.partition(": ")[2] for line in lines[3:]] == [
        "left out: pixels or corrections of tones differ",
        "not trained: see train.log",
    ]


def test_a_later_call_trains_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "levers.jsonl"
    pairs = wanted(changes="ab")
    for pair in pairs[:5]:
        append_line(path, asdict(pair))
    with path.open("a") as file:
        file.write(json.dumps(asdict(pairs[5]))[:40])  # the machine was taken away
    assert [pair.key for pair in read(path)] == [pair.key for pair in pairs[:5]]
    assert without(pairs, read(path)) == pairs[5:]
    others = [Pair(one.scene, one.patch, one.seed, one.change, ("x.a=2",), UNDER) for one in pairs]
    assert without(others, read(path)) == others
    assert read(tmp_path / "none") == []


def test_a_batch_is_as_many_seeds_as_fit() -> None:
    missing = wanted(num_seeds=9)
    assert [one.seed for one in next_batch(missing, (), 1000, num_seconds)] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert [one.seed for one in next_batch(missing, (), 45, num_seconds)] == [1, 1, 2, 2]
    assert [one.patch for one in next_batch(missing, (), 15, num_seconds)] == ["p0"]
    assert next_batch(missing, (), 5, num_seconds) == []
    assert [one.seed for one in next_batch(missing, (), math.inf, lambda batch: 200.0 * len(batch))] == [1, 1]


def test_a_batch_trains_nothing_twice() -> None:
    missing = wanted(num_seeds=2)[1:]  # p0 of the first seed is there
    batch = next_batch(missing, (), 1000, num_seconds)
    assert [(one.seed, one.patch) for one in batch] == [(1, "p1")]


def test_those_alone_on_a_card_come_first_and_by_themselves() -> None:
    missing = wanted(num_seeds=4)
    batch = next_batch(missing, (1, 2), 1000, num_seconds)
    assert [(one.seed, one.is_alone) for one in batch] == [(1, True), (1, True), (2, True), (2, True)]
    batch = next_batch(missing[4:], (1, 2), 1000, num_seconds)
    assert {(one.seed, one.is_alone) for one in batch} == {(3, False), (4, False)}


def test_the_scene_that_lacks_most_seeds_is_next_and_one_that_fits_where_it_does_not() -> None:
    missing = [*wanted("reef", num_seeds=2), *wanted("wall", num_seeds=3)]
    assert {one.scene for one in next_batch(missing, (), 1000, num_seconds)} == {"wall"}

    def slow_wall(batch: Sequence[Pair]) -> float:
        return 500 if batch[0].scene == "wall" else 10

    assert {one.scene for one in next_batch(missing, (), 100, slow_wall)} == {"reef"}


@pytest.mark.all
def test_one_pair_on_the_cpu(tmp_path: Path) -> None:
    batch = FakeBatch(tmp_path / "reef").make("p0")
    paint(batch.folder / "images")
    command = [sys.executable, ROOT / "scripts/bench_quality", "--levers", "--scene", batch.folder, "--steps", "20"]
    command += ["--seeds", "1", "--variant", "slow", "learning_rates.sh0=0.0001", "--set", "limits.free_disk_mib=0"]
    command += ["--device", "cpu", "--out", tmp_path / "out"]
    first, again = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert "reef p0 slow, seed 1: psnr" in first
    assert again.strip() == first.partition("\n\n")[2].strip(), "nothing is trained again, and the table is the same"
    (pair,) = read(tmp_path / "out/levers.jsonl")
    assert pair.parent["psnr"] > pair.changed["psnr"]
    assert pair.parent["seconds"] > 0
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == ["levers.jsonl", "levers.md", "train.log"]
