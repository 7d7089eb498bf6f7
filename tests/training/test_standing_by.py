"""What stands by may open its GPU ahead of its turn, and rehearse: what it trains then is the same to the bit."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from small_patch import prepared, recipe, trained

from splatbatch.errors import TrainerError
from splatbatch.files import write_json
from splatbatch.hashing import sha256_of
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.scene.patches import Patch
from splatbatch.training import attempt
from splatbatch.training.attempt import train_attempt


def tell(folder: AttemptFolder, path: Path, gpu: str | None) -> None:
    write_json(path, {"gpu": gpu, "slot": "cpu0", "env": {}})


def go_later(folder: AttemptFolder, rehearsed: list[bool]) -> None:
    while not rehearsed:
        time.sleep(0.01)
    tell(folder, folder.go, None)


@pytest.mark.all
@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_a_rehearsal_changes_nothing_of_the_training(
    patch: Patch, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    plain, _ = trained(patch, recipe(strategy=strategy, coarse_to_fine=True))
    folder, rehearsed = prepared(patch, recipe(strategy=strategy, coarse_to_fine=True), "attempt-02"), list[bool]()
    tell(folder, folder.ahead, None)
    real = attempt.rehearse
    monkeypatch.setattr(attempt, "rehearse", lambda *arguments: (real(*arguments), rehearsed.append(True)))
    going = threading.Thread(target=go_later, args=(folder, rehearsed))
    going.start()
    train_attempt(folder, stands_by=True)
    going.join()
    assert rehearsed == [True]
    assert sha256_of(folder.splat) == sha256_of(plain.splat)


@pytest.mark.all
def test_what_has_its_context_on_another_gpu_does_not_begin(patch: Patch) -> None:
    folder = prepared(patch, recipe())
    tell(folder, folder.ahead, "GPU-1")
    tell(folder, folder.go, "GPU-2")
    folder.go.rename(folder.go.with_suffix(".later"))
    later = threading.Timer(3.0, lambda: folder.go.with_suffix(".later").rename(folder.go))
    later.start()
    with pytest.raises(TrainerError, match="prepared for GPU GPU-1 was told to begin on GPU-2"):
        train_attempt(folder, stands_by=True)
    assert not folder.splat.exists()
    assert folder.last_progress().phase == "standby"
