"""An output folder as a night leaves it, written by hand: nine patches on two GPUs, failures, retries, pictures."""

from __future__ import annotations

import functools
import io
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from splatbatch.files import write_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.report.pictures import KINDS

RANKS = ("worst", "median", "best")

NASTY = 'p"><script>alert(1)'
EVENING = 1_790_000_000.0
STEPS = 30_000
OOM = {
    "cause": "cuda_oom",
    "action": "degrade",
    "advice": "Less is held on the GPU in the next attempt.",
    "evidence": ["line 812: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.10 GiB", "<b>x</b>"],
}
NAN = {
    "cause": "nan_loss",
    "advice": "Check points3D of this patch: 3 points lie a kilometre away.",
    "evidence": [
        "line 9: health: nan_loss: loss nan, gradient norm nan at step 712",
        "</pre><script>alert(2)</script>",
    ],
}


@dataclass
class MadeOutput:
    root: Path
    events: list[dict[str, Any]] = field(default_factory=list)
    clock: dict[str, float] = field(default_factory=dict)
    host: str = "x"
    worker: str = ""
    """Where, and whose, the next attempts are."""

    @property
    def output(self) -> OutputFolder:
        return OutputFolder(self.root)

    def tell(self, at: float, event: str, **facts: Any) -> None:
        self.events.append({"t": at, "event": event, **facts})

    def attempt(self, patch: str, slot: str, seconds: float, **facts: Any) -> AttemptFolder:
        """Write an attempt that came next on its slot."""
        start = self.clock.get(f"{self.host} {slot}", EVENING) + 4
        self.clock[f"{self.host} {slot}"] = start + seconds
        folder = self.output.patch(patch).new_attempt()
        changes = facts.pop("changes", {})
        if folder.number > 1:
            waited = {"waited_s": 3.5, "reason": "900 MiB more GPU memory in use than before"}
            self.tell(start, "gate", patch=patch, attempt=folder.number, slot=slot, **waited)
        self.tell(start, "attempt_started", patch=patch, attempt=folder.number, slot=slot, changes=changes)
        end = {"outcome": "trained", "seconds": seconds, "gpu_peak_mib": 9123, "num_gaussians": 1, **facts}
        self.tell(start + seconds, "attempt_ended", patch=patch, attempt=folder.number, **end)
        write_json(folder.start, {"started_at": start, "host": self.host, "pid": 1})
        write_json(folder.job, {"claim": {"worker": self.worker, "generation": 1}})
        write_json(folder.exit, {"kind": "exited", "code": 0, "seconds": seconds, "ended_at": start + seconds})
        steps = STEPS if end["outcome"] == "trained" else int(end.get("step") or STEPS / 3)
        self._curves(folder, start, seconds, steps)
        return folder

    def _curves(self, folder: AttemptFolder, start: float, seconds: float, steps: int) -> None:
        noise = np.random.default_rng(len(self.events)).normal(0, 0.004, 301)
        lines = [{"t": start + 1 + i, "phase": phase, "step": 0} for i, phase in enumerate(("start", "load", "init"))]
        for i in range(301):
            step, at = i * steps // 300, start + 12 + (seconds - 15) * i / 300
            loss, num = 0.06 + 0.3 * math.exp(-step / 2500) + noise[i], int(1e5 + 9e5 * (1 - math.exp(-step / 6000)))
            lines.append({"t": at, "phase": "train", "step": step, "loss": loss, "num_gaussians": num})
            if i and i % 60 == 0:
                lines.append({"t": at, "phase": "train", "step": step, "psnr": 20 + 6 * (1 - math.exp(-step / 5000))})
        folder.progress.write_text("".join(json.dumps({"max_steps": STEPS, **line}) + "\n" for line in lines))
        samples = [
            {"t": start + 2 * i, "used_mib": min(9123, 900 + 40 * i), "temperature_c": min(71, 38 + i // 4),
             "utilisation_percent": 96 + i % 4}
            for i in range(int(seconds / 2))
        ]  # fmt: skip
        folder.gpu_samples.write_text("".join(json.dumps(sample) + "\n" for sample in samples))

    def trained(self, patch: str, slot: str, seconds: float, psnr: float, **facts: Any) -> None:
        """Write an attempt that left a splat, and its pictures."""
        num = facts.pop("num_gaussians", 998_000)
        folder = self.attempt(patch, slot, seconds, num_gaussians=num, **facts)
        metrics = {
            "initial": {"psnr": 12.5},
            "final": {"psnr": psnr, "ssim": psnr / 32},
            "made_with": {"torch": "2.13"},
        }
        result = {"attempt": folder.path.name, "step": STEPS, "num_gaussians": num, "seconds": seconds}
        result |= {"host": self.host, "worker": self.worker}
        write_json(
            self.output.patch(patch).result,
            {**result, "metrics": metrics, "changes": facts.get("changes", {}), "version": "0.1.0"},
        )
        self.output.patch(patch).splat.touch()
        pictures(folder, psnr)

    def finish(self) -> OutputFolder:
        self.output.ledger.parent.mkdir(exist_ok=True)
        self.output.ledger.write_text("".join(json.dumps(event) + "\n" for event in self.events))
        self.output.config.write_text("training:\n  max_steps: 30000\nnote: '</pre><script>alert(3)</script>'\n")
        return self.output


def night(root: Path) -> OutputFolder:
    """Nine patches: six as they should be, one poor, one saved by a rung, one given up, one refused."""
    made = MadeOutput(root)
    made.output.create()
    made.tell(EVENING - 5, "audit", verified=True, refused={"p9": "x"}, warnings=["p3: img7.jpg: <i>dark</i>"] * 3)
    made.tell(EVENING - 4, "refused", patch="p9", reason="IMG_0031.JPG: 4000 x 3000, its camera says 3000 x 4000.")
    made.tell(EVENING, "batch_started", patches=["p0"], slots=["GPU 0", "GPU 1"], changes={})
    for index, name in enumerate(["p0", "p1", "p2", "p3", NASTY]):
        made.trained(name, f"GPU {index % 2}", 610 + 35 * index, 26.3 + 0.2 * index)
    made.attempt("p5", "GPU 1", 250, outcome="failed", phase="train", step=11_000, diagnosis=OOM)
    made.tell(EVENING, "retry", patch="p5", wait_s=10.0, ladder="gpu_memory", changes={"training.images": "host"})
    made.trained("p6", "GPU 0", 655, 26.6)
    made.trained("p5", "GPU 1", 1320, 20.4, changes={"training.images": "host"}, num_gaussians=310_000)
    for _ in range(2):
        made.attempt("p8", "GPU 0", 60, outcome="failed", phase="train", step=712, diagnosis=NAN)
        made.tell(EVENING, "retry", patch="p8", wait_s=10.0, ladder="", changes={}, trained_in_between=["p6"])
    made.events[-1] |= {"event": "gave_up", "reason": "nan_loss twice at the same place: it is the patch, not the GPU"}
    made.tell(max(made.clock.values()), "batch_ended", trained=7, of=9)
    return made.finish()


def pictures(folder: AttemptFolder, psnr: float) -> None:
    """Write pictures as detailed as a photograph: what a JPEG of the trainer may take at most."""
    folder.views.parent.mkdir()
    views = {}
    for rank, offset in zip(RANKS, (-4, 0, 2), strict=True):
        views[rank] = {"name": f"{rank}<img>.jpg", "psnr": psnr + offset, "ssim": 0.8, "width": 480, "height": 320}
        for kind in KINDS:
            folder.picture(rank, kind).write_bytes(landscape(rank, kind))
    write_json(folder.views, views)


@functools.cache
def landscape(rank: str, kind: str) -> bytes:
    rng = np.random.default_rng(RANKS.index(rank))
    small = rng.integers(0, 255, (40, 60, 3), dtype=np.uint8)
    tint = {"photo": (150, 140, 110), "render": (140, 146, 120), "error": (90, 20, 60)}[kind]
    ground = Image.fromarray(small).resize((480, 320), Image.Resampling.BICUBIC)
    grain = rng.normal(0, 9 if kind == "photo" else 3, (320, 480, 1))
    pixels = np.asarray(ground, dtype=np.float32) * 0.4 + np.array(tint) * 0.6 + grain
    picture, most = Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), 9_000 if kind == "error" else 21_000
    for quality in range(80, 10, -5):
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality)
        if len(file.getvalue()) <= most:
            break
    return file.getvalue()
