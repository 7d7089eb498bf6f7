"""What one photograph alone shows is left out of the training; details that all are wrong about are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image as Pillow
from small_patch import recipe, trained
from test_checkpoint import died, growing, warnings
from torch import Tensor

from splatbatch.scene.patches import Patch
from splatbatch.training.photos import transient_mask
from splatbatch.training.photos.transient_mask import (
    CELL_PX,
    STRONG,
    WEAK,
    ResidualGrid,
    ResidualMap,
    alone,
    grown,
    large,
    middles,
    pieces_of,
)
from splatbatch.training.rendering.view import RenderCamera

HEIGHT, WIDTH = 12, 16
PLANE = torch.full((HEIGHT * CELL_PX, WIDTH * CELL_PX), 3.0)
"""What all cameras see: a plane three units away."""


def seen_from(x: float, off: Tensor) -> ResidualMap:
    """A camera at x that looks at the plane; one unit there is one cell."""
    viewmat, K = torch.eye(4), torch.tensor([[3.0 * CELL_PX, 0, WIDTH * 2], [0, 3.0 * CELL_PX, HEIGHT * 2], [0, 0, 1]])
    viewmat[0, 3] = -x
    return ResidualMap(RenderCamera(viewmat, K, WIDTH * CELL_PX, HEIGHT * CELL_PX), off)


def usual(value: float = 0.04) -> Tensor:
    return torch.full((HEIGHT, WIDTH), value)


def with_block(value: float, left: int = 6) -> Tensor:
    off = usual()
    off[4:8, left : left + 4] = value
    return off


def found(one: ResidualMap, others: list[ResidualMap], evidence: transient_mask.TransientEvidence = STRONG) -> Tensor:
    return alone(one.residual, ResidualGrid.of([one, *others]).seen_from(0, middles(PLANE, one.view)), evidence)


def test_what_one_photograph_alone_shows_is_found() -> None:
    cells = found(seen_from(0, with_block(0.3)), [seen_from(x, usual()) for x in (-2, -1, 1, 2)])
    assert torch.equal(cells, with_block(1.0) == 1)


def test_what_all_photographs_are_wrong_about_is_not() -> None:
    others = [seen_from(x, with_block(0.3, left=6 - int(x))) for x in (-2, -1, 1, 2)]  # the same place, seen from aside
    assert not found(seen_from(0, with_block(0.3)), others).any()


def test_what_others_are_wrong_about_a_cell_aside_is_not() -> None:
    """Where a depth is not learned yet, the place in other photographs is off by as much."""
    others = [seen_from(x, with_block(0.3, left=7 - int(x))) for x in (-2, -1, 1, 2)]
    assert not found(seen_from(0, with_block(0.3)), others).any()


def test_what_a_third_of_others_are_wrong_about_too_is_not() -> None:
    """Where a splat is not good yet, no photograph is to blame."""
    others = [seen_from(x, with_block(0.3 if x > 0 else 0.04, left=6 - int(x))) for x in (-2, -1, -0.5, -1.5, 1, 2)]
    assert not found(seen_from(0, with_block(0.3)), others).any()
    assert found(seen_from(0, with_block(0.3)), others, WEAK).any()


def test_only_a_piece_of_which_enough_is_sure_is_a_mover() -> None:
    maybe, sure = with_block(1.0) == 1, torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)
    assert not pieces_of(maybe, sure).any()
    sure[4:6, 6:8] = True
    assert torch.equal(pieces_of(maybe, sure), maybe)
    assert not pieces_of(maybe, sure.roll(8, dims=1)).any()


def test_what_fewer_than_four_others_show_is_no_ones_to_judge() -> None:
    assert not found(seen_from(0, with_block(0.3)), [seen_from(x, usual()) for x in (-1, 1, 2)]).any()
    away = [*(seen_from(x, usual()) for x in (-1, 1, 2)), *(seen_from(x, usual()) for x in (100, -100))]
    assert not found(seen_from(0, with_block(0.3)), away).any()


def test_pixels_that_a_mask_hides_judge_nothing() -> None:
    hidden = [seen_from(x, usual(torch.nan)) for x in (-2, -1, 1, 2)]
    assert not found(seen_from(0, with_block(0.3)), hidden).any()
    assert not large(usual(torch.nan) > 0).any()


def test_specks_are_no_movers_and_edges_belong_to_them() -> None:
    cells = torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)
    cells[2, 2:5] = cells[6:8, 6:8] = True
    assert large(cells).sum() == 4
    assert grown(large(cells)).sum() == 16


def plant(images: Path, name: str = "img3.png") -> None:
    """Something stands before the camera of one photograph."""
    with Pillow.open(images / name) as opened:
        picture = opened.copy()
    picture.paste((255, 0, 255), (8, 6, 20, 18))
    picture.save(images / name)


@pytest.mark.all
def test_a_mover_is_left_out_and_said(patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transient_mask, "CELL_PX", 2)
    monkeypatch.setattr(transient_mask, "LOOKS", (0.8, 0.9))  # of 60 steps: nothing is sure before
    clean, _ = trained(patch, recipe(strategy="default", colors="as_is"), "clean-01")
    assert not any("moving objects" in said for said in warnings(clean))
    plant(patch.images)
    found, _ = trained(patch, recipe(strategy="default", colors="as_is"), "found-01")
    (said,) = [one for one in warnings(found) if "moving objects" in one]
    assert "1 of 7 photographs" in said
    assert "img3.png" in said


@pytest.mark.all
def test_a_run_goes_on_without_what_it_had_left_out(patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transient_mask, "CELL_PX", 2)
    monkeypatch.setattr(transient_mask, "LOOKS", (0.4, 0.45))  # before the checkpoint: much is off yet
    monkeypatch.setattr(transient_mask, "TIMES", 1.2)
    monkeypatch.setattr(transient_mask, "STRONG", WEAK)
    monkeypatch.setattr(transient_mask, "LEAST_CELLS", 1)
    plant(patch.images)
    straight, whole = trained(patch, growing("default"), "straight-01")
    assert any("moving objects" in said for said in warnings(straight))
    died(patch, growing("default"))
    _, splat = trained(patch, growing("default"), "attempt-02")
    assert splat.path.read_bytes() == whole.path.read_bytes()
