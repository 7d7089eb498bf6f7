"""Morton order: neighbours in space become neighbours in memory, with all that their optimizers keep."""

from __future__ import annotations

import pytest
import torch

from splatbatch.training import morton
from splatbatch.training.cuda.native import trial


def test_codes_interleave_the_bits_of_places() -> None:
    places = torch.rand(500, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 20.0, 0.1])
    spread, middle = torch.std_mean(places, 0)
    cells = (((places - middle) / (6 * spread) + 0.5) * 1024).clamp(0, 1023).int()
    expected = [
        sum(((int(c[axis]) >> bit) & 1) << (3 * bit + axis) for bit in range(10) for axis in range(3)) for c in cells
    ]
    assert morton.codes(places).tolist() == expected


def test_a_sort_takes_along_what_optimizers_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "ON", frozenset({"morton"}))
    means = torch.randn(64, 3, generator=torch.Generator().manual_seed(1))
    gaussians = {"means": torch.nn.Parameter(means.clone()), "sh0": torch.nn.Parameter(means[:, None].clone())}
    optimizers = {name: torch.optim.Adam([value], 1e-5) for name, value in gaussians.items()}
    (gaussians["means"].square().sum() + gaussians["sh0"].square().sum()).backward()
    for optimizer in optimizers.values():
        optimizer.step()
    morton.sort(gaussians, optimizers, 5)  # type: ignore[arg-type]
    assert torch.equal(gaussians["means"], gaussians["sh0"][:, 0])
    assert not torch.equal(gaussians["means"], means)
    for name, optimizer in optimizers.items():
        (value,) = optimizer.param_groups[0]["params"]
        assert value is gaussians[name]
        assert torch.allclose(
            optimizer.state[value]["exp_avg"].sign(), value.detach().view(64, 3).view_as(value).sign()
        )
