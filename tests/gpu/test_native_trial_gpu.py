"""Tile lists of our own and Adam within the backward pass, on a GPU: the same pictures, and the same learning."""

from __future__ import annotations

import warnings

import pytest
import torch
from test_native_training_gpu import a_step, drawn

from splatbatch.training import loss
from splatbatch.training.cuda.native import trial
from splatbatch.training.cuda_graph import GraphedStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]


@pytest.mark.parametrize("options", [{}, {"antialiased": True}, {"absgrad": True}])
def test_lists_of_our_own_make_the_same_picture(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "ON", frozenset())
    before, gradients = drawn(options)
    monkeypatch.setattr(trial, "ON", frozenset({"lists"}))
    after, ours = drawn(options)
    assert float(loss.psnr(after.colors.detach(), before.colors.detach())) > 90
    for name, gradient in gradients.items():
        assert float((ours[name] - gradient).norm() / gradient.norm().clamp_min(1e-12)) < 1e-3, name


@pytest.mark.parametrize("on", ["lists", "adam", "loss", "lists,loss,adam,sparse"])
def test_recorded_steps_never_wait_and_learn_the_same(on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = []
    for names in ("", on):
        monkeypatch.setattr(trial, "ON", frozenset(names.split(",")))
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            step, photos = a_step()
            step(photos[0], 3)
            run = GraphedStep(step)
            torch.cuda.set_sync_debug_mode("warn")
            with warnings.catch_warnings(record=True) as waits:
                warnings.simplefilter("always")
                for index in range(60):
                    run(photos[index % len(photos)], 3)
            torch.cuda.set_sync_debug_mode("default")
            assert [str(wait.message) for wait in waits if "synchroniz" in str(wait.message)] == []
            losses.append(float(step.derive(photos[0], 3)[0]))
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
