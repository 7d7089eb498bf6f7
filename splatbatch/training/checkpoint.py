"""Checkpoints: a resumed run is equal to an uninterrupted run, bit by bit on the CPU.

The file is written under a temporary name and renamed when whole. Only tensors and plain values are in the file, and
nothing else is unpickled. A checkpoint is used only with the settings, photographs and initial Gaussians of its own
run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from splatbatch.config import Recipe
from splatbatch.files import write_whole
from splatbatch.splats.health import HealthFinding
from splatbatch.training.evaluation.evaluate import Evaluator
from splatbatch.training.photos.dataset import TrainingImages
from splatbatch.training.photos.transient_mask import TransientMask
from splatbatch.training.progress import ProgressRecorder
from splatbatch.training.stop_request import StopRequest
from splatbatch.training.strategies import Strategy

FORMAT = 5
PIXEL_STRIDE = 16
"""Stride, in px along both axes, of the pixels of photographs that are hashed (see `identity`)."""


@dataclass(frozen=True)
class RunState:
    """Everything that a step of a run changes, to be saved in and restored from a checkpoint.

    The order of the photographs is not part of the state: it follows from the seed and the step.
    """

    strategy: Strategy
    """Strategy of the run, with the Gaussians and their optimizers."""
    evaluator: Evaluator
    transients: TransientMask
    """Masks of what moves between photographs, as people and cars."""

    def kind(self) -> str:
        """Return the type of the device and the class of the optimizer, in one string.

        A checkpoint resumes only a run with the same string.
        """
        adam = type(self.strategy.optimizers["means"])
        return f"{self.strategy.gaussians['means'].device.type} {adam.__module__}.{adam.__qualname__}"

    def to_record(self) -> dict[str, Any]:
        """Return the state as tensors, not copied, and plain values, by name; on a CPU "random_cuda" is None."""
        gaussians, device = self.strategy.gaussians, self.strategy.gaussians["means"].device
        return {
            "gaussians": {name: value.detach() for name, value in gaussians.items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.strategy.optimizers.items()},
            "strategy": self.strategy.state(),
            "movers": self.transients.state(),
            "evaluations": json.dumps(self.evaluator.evaluations),
            "early_stopping": json.dumps(self.evaluator.early.state()),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        }

    def restore(self, record: Mapping[str, Any]) -> None:
        """Restore the state in place from a record of `to_record`.

        Its tensors are moved to the Gaussians' device, transient masks included. Only the evidence for these masks and
        the state of the CPU's random numbers are on the CPU.

        Raises:
            KeyError: the record lacks an entry.
        """
        gaussians, device = self.strategy.gaussians, self.strategy.gaussians["means"].device
        for name, value in record["gaussians"].items():
            gaussians[name] = Parameter(value.to(device))
            optimizer = self.strategy.optimizers[name]
            optimizer.param_groups[0]["params"] = [gaussians[name]]
            optimizer.load_state_dict(record["optimizers"][name])
            for group in optimizer.param_groups:
                group.update(_moved(group, device))  # learning rates may be tensors
        self.strategy.restore(_moved(record["strategy"], device))
        self.transients.restore(_moved(record["movers"], device))
        self.evaluator.evaluations[:] = json.loads(record["evaluations"])
        self.evaluator.early.restore(json.loads(record["early_stopping"]))
        torch.set_rng_state(record["random"])
        if device.type == "cuda" and record["random_cuda"] is not None:
            torch.cuda.set_rng_state(record["random_cuda"], device)


@dataclass(frozen=True)
class Checkpoints:
    """Checkpoints of one run: the file, how often it is written, and the checkpoint to resume from."""

    path: Path
    """File of the checkpoint, which each write replaces whole."""
    identity: str
    """Hash of everything the run depends on; a checkpoint with another hash is not used."""
    every: int
    """Number of steps between checkpoints; 0: a checkpoint is written only when a stop is requested."""
    resume_from: Path | None
    """Checkpoint of an earlier attempt to resume from; None: the run begins at step 0."""
    progress: ProgressRecorder
    stop: StopRequest
    """Request to stop, after which a checkpoint is written in any case."""

    def resume(self, changing: RunState) -> int:
        """Restore `changing` in place from the checkpoint of an earlier attempt; return the number of steps done.

        0 if there is no checkpoint to resume from. 0, with a warning and `changing` as before, if the checkpoint cannot
        be read or is of another run: as of other settings, photographs, device or kernels.

        Raises:
            KeyError: a checkpoint of this run lacks an entry of the state.
        """
        if self.resume_from is None:
            return 0
        try:
            record = torch.load(self.resume_from, map_location="cpu", weights_only=True)
            step, why = int(record["step"]), ""
            if (record["format"], record["identity"]) != (FORMAT, self.identity):
                why = f"{self.resume_from}: checkpoint of other settings or photographs: training starts at step 0"
            elif record["kind"] != changing.kind():
                why = (
                    f"{self.resume_from}: checkpoint of another device or other GPU kernels: training starts at step 0"
                )
        except Exception as error:  # noqa: BLE001 - torch raises what it likes over a file that is not whole
            why = f"{self.resume_from}: checkpoint cannot be read ({error}): training starts at step 0"
        if why:
            self.progress.warn(why)
            return 0
        changing.restore(record["run"])
        changing.evaluator.resumed_from = {"attempt": self.resume_from.parent.name, "step": step}
        return step

    def step_done(self, step: int, changing: RunState) -> None:
        """Write a checkpoint of `step` steps if one is due or a stop is requested; on a request, then end the process.

        A write that fails becomes a warning. None is written while a parameter is not finite.
        """
        if (self.every and step % self.every == 0) or self.stop.is_there:
            self._write(step, changing)
        if self.stop.is_there:
            self.stop.obey(step)

    def _write(self, step: int, changing: RunState) -> None:
        """Write a checkpoint, unless a parameter is not finite; a failed write is only a health finding."""
        run = changing.to_record()
        record = {"format": FORMAT, "identity": self.identity, "kind": changing.kind(), "step": step, "run": run}
        if not all(bool(value.isfinite().all()) for value in run["gaussians"].values()):
            return  # an attempt must not resume from NaN
        try:
            write_whole(self.path, lambda file: torch.save(record, file))
        except (OSError, RuntimeError) as error:
            lost = f"{self.path.name} of step {step} could not be written ({error}): free space, or correct permissions"
            self.progress.found(HealthFinding("no_checkpoint", lost))


def identity(recipe: Recipe, views: TrainingImages, first: Mapping[str, Tensor]) -> str:
    """Return a hash, 16 hexadecimal digits, of everything on which the result of a run depends.

    Hashed are settings with an effect; photographs with camera, masks and colour correction; initial Gaussians `first`;
    border and backdrop. Of photographs every `PIXEL_STRIDE`-th pixel along both axes is hashed.
    """
    digest = hashlib.sha256(json.dumps(recipe.decisive(), sort_keys=True).encode())
    for photo in (*views.training, *views.holdout):
        digest.update(photo.name.encode())
        thinned = photo.pixels[::PIXEL_STRIDE, ::PIXEL_STRIDE]
        for tensor in (photo.view.viewmat, photo.view.K, thinned, photo.mask, photo.correction, photo.coverage_mask):
            digest.update(b"" if tensor is None else tensor.contiguous().cpu().numpy().tobytes())
    for values in (first, views.border.to_hash()):
        for name in sorted(values):
            digest.update(values[name].detach().contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _moved(state: Any, device: torch.device) -> Any:
    """Return a state with its tensors on a device, also those of mappings within."""
    if isinstance(state, Mapping):
        return {key: _moved(value, device) for key, value in state.items()}
    return state.to(device) if isinstance(state, Tensor) else state
