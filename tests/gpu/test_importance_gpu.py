"""What Gaussians are worth on a GPU: the same by every rasteriser, and what leaving one out shows."""

from __future__ import annotations

import pytest
import torch
from test_kernels import some_gaussians, some_photos

from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions
from splatbatch.training.strategies.importance import PruningViews, prunable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
    pytest.mark.usefixtures("own_stream"),
]

WAYS = {"ours": RasterOptions(), "plain": RasterOptions(fused=False)}
OPAQUE = 25.0
"""A logit whose sigmoid is 1 in float32."""


def large_ones() -> dict[str, torch.Tensor]:
    some = {name: value.detach() for name, value in some_gaussians(200).items()}
    some["scales"] += 1.5
    some["opacities"][:3] = OPAQUE
    return some


@pytest.mark.parametrize("way", WAYS)
def test_importance_is_what_leaving_one_out_changes_by_every_rasteriser(way: str) -> None:
    some, photos, options = large_ones(), some_photos(2), WAYS[way]
    probes = [PruningViews(photos, options, seed=seed).importance(some).total for seed in range(100)]
    estimated = torch.stack(probes).mean(0)[:10]
    exact = torch.zeros(10, device="cuda")
    for photo in photos:
        whole = rasterize(some, photo.view, options).colors
        for index in range(10):
            others = torch.arange(200, device="cuda") != index
            left = rasterize({name: value[others] for name, value in some.items()}, photo.view, options).colors
            exact[index] += (whole - left).square().sum()
    assert torch.allclose(estimated, exact, rtol=0.4, atol=0.02 * float(exact.max()))


@pytest.mark.parametrize("way", WAYS)
def test_what_is_opaque_stays_and_what_cannot_be_seen_goes(way: str) -> None:
    some = large_ones()
    some["means"][:3] = torch.tensor([[-0.4, 0.0, -1.5], [0.1, 0.0, -1.5], [0.6, 0.0, -1.5]])  # before all others
    some["means"][-20:, 2] = -50.0
    leaves = prunable(some, PruningViews(some_photos(2), WAYS[way]), 0.05)
    assert leaves[-20:].all()
    assert not leaves[:3].any()
