"""Output folders of every kind that a report tells of, written by hand: green, failed, refused, retried, and so on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cut_quarry import lay_out
from made_output import EVENING, NAN, OOM, MadeOutput, night, pictures
from made_stages import batch_in

from splatbatch.config import Recipe, Variant
from splatbatch.files import write_json
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.evaluation import PhotoMeasurement, SceneEvaluation, SceneMeasurement, SeamMeasurement
from splatbatch.report import write_facts, write_report
from splatbatch.report.build import build
from splatbatch.report.facts import CameraPosition, CoreBox, ReportedPartition, ReportedSeam
from splatbatch.tasks.batch import open_batch

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>"
HOSTILE_NAMES = (
    EVIL.replace("/", ""),
    "p1\nsplatbatch; rm -rf ~ #",
    "$(reboot)`id`",
    "\x1b[31mred\x1b[0m",
    "\u202egnp.egami",
    "x" * 180,
    "p 0 'quoted' \"twice\"",
    "-c",
)
CAPS = {"small": 200_000, "large": 1_000_000, "huge": 4_000_000}


@dataclass(frozen=True)
class Kind:
    """A report that was written, and how many patches it is about."""

    output: OutputFolder
    num_patches: int

    @property
    def page(self) -> Path:
        return self.output.report("html")


def begun(root: Path, **facts: Any) -> MadeOutput:
    made = MadeOutput(root)
    made.output.create()
    made.tell(EVENING, "batch_started", patches=["p0"], slots=["GPU 0", "GPU 1"], changes={}, **facts)
    return made


def written(made: MadeOutput, names: tuple[str, ...] = (), variants: tuple[Variant, ...] = ()) -> Kind:
    made.tell(max(made.clock.values(), default=EVENING) + 5, "batch_ended", trained=0, of=0)
    report = write_report(made.finish(), names, variants, previews_mib=0)
    return Kind(made.output, len(report.patches))


def green(root: Path) -> Kind:
    made = begun(root)
    for index in range(9):
        made.trained(f"p{index}", f"GPU {index % 2}", 600 + 9 * index, 26 + 0.2 * index)
    return written(made)


def failed(root: Path) -> Kind:
    made = begun(root)
    for index in range(3):
        made.trained(f"p{index}", "GPU 0", 600 + 9 * index, 26 + 0.2 * index)
    for name, diagnosis in (("p3", OOM), ("p4", NAN), ("p5", NAN)):
        for _ in range(2):
            made.attempt(name, "GPU 1", 120, outcome="failed", phase="train", step=712, diagnosis=diagnosis)
        made.tell(EVENING, "gave_up", patch=name, reason="twice at the same place", trained_in_between=["p1"])
    made.attempt("p6", "GPU 1", 40, outcome="stopped", reason="SIGTERM", phase="train", step=300)
    return written(made, ("p7",))


def refused(root: Path) -> Kind:
    made = begun(root)
    made.tell(EVENING - 5, "audit", verified=True, refused={"p1": "x", "p2": "y"}, warnings=["p0: IMG_1.JPG is dark"])
    made.tell(EVENING - 4, "refused", patch="p1", reason="images.bin is missing: restore it.")
    made.tell(EVENING - 4, "refused", patch="p2", reason="IMG_0031.JPG: 4000 x 3000, its camera says 3000 x 4000.")
    made.trained("p0", "GPU 0", 600, 26.0)
    return written(made, ("p1", "p2"))


def retried_worse(root: Path) -> Kind:
    """A night, and a retry on the day after that made one patch worse, one better, and ended early for one."""
    made = begun(root)
    for index in range(4):
        made.trained(f"p{index}", "GPU 0", 600, 24.6 + index)
    made.tell(EVENING + 3000, "batch_ended", trained=4, of=4)
    made.clock = {"x GPU 0": EVENING + 50_000}
    made.tell(EVENING + 50_000, "batch_started", patches=["p1", "p2"], slots=["GPU 0"], changes={})
    retry(made, "p1", 16.5, {"training.init_scale": 40}, "8.1 dB worse than attempt 1: kept attempt 1", keep=True)
    retry(made, "p2", 28.1, {"training.cap_max": 2_000_000}, "1.5 dB better than attempt 1", keep=False)
    return written(made)


def retry(made: MadeOutput, patch: str, psnr: float, changes: Mapping[str, Any], choice: str, *, keep: bool) -> None:
    """Try a patch again; `keep`: its earlier splat stays the product."""
    folder = made.output.patch(patch)
    before = folder.result.read_bytes()
    first = folder.attempts()[0]
    shutil.copy(folder.result, first.result)
    made.trained(patch, "GPU 0", 700, psnr, changes=dict(changes), num_gaussians=1_400_000)
    made.events[-1] |= {"accepted": not keep, "choice": choice}
    latest = folder.attempts()[-1]
    shutil.copy(folder.result, latest.result)
    latest.splat.touch()
    first.splat.touch()
    if keep:
        folder.result.write_bytes(before)


def sweep(root: Path) -> Kind:
    made = begun(root)
    variants = tuple(
        Variant(name, {"training.cap_max": cap}, {"training.cap_max": cap}, Recipe()) for name, cap in CAPS.items()
    )
    for patch in range(3):
        for index, name in enumerate(CAPS):
            if (patch, name) == (2, "huge"):
                made.attempt(f"p{patch}@{name}", "GPU 0", 90, outcome="failed", phase="train", step=90, diagnosis=OOM)
            else:
                made.trained(f"p{patch}@{name}", "GPU 0", 300 + 90 * index, 25 + 0.7 * index + patch)
    return written(made, variants=variants)


def scene(root: Path) -> Kind:
    partition = lay_out(root / "quarry")
    batch = open_batch(root / "quarry/splat_config.yml")
    for index, psnr in enumerate((21.5, 23.0)):
        folder = batch.output.patch(f"p{index}")
        attempt = folder.new_attempt()
        pictures(attempt, psnr)
        result = json.loads(folder.result.read_text())
        final = {**result["metrics"]["final"], "psnr": psnr, "ssim": 0.71}
        write_json(folder.result, {**result, "metrics": {"final": final}, "num_gaussians": 2600, "seconds": 61.0})
    photos = {name: PhotoMeasurement(psnr=24.0 + index, home="p0") for index, name in enumerate(sorted(partition.test))}
    across = SceneMeasurement(psnr=24.0, num_photos=2)
    seams = (SeamMeasurement("p0", "p1", across, 12, 0.2, 31.0, 4.5, (4.5, 0.0, 0.0), 0.03, 1.1),)
    found = SceneEvaluation(total=SceneMeasurement(psnr=25.0, num_photos=4), photos=photos, seams=seams)
    write_json(batch.output.scene.evaluation, found.to_record())
    report = write_report(batch.output, batch.names, previews_mib=0, standing=batch.standing())
    return Kind(batch.output, len(report.patches))


def many(root: Path) -> Kind:
    made = begun(root)
    for index in range(200):
        name, slot = f"p{index}", f"GPU {index % 4}"
        if index % 40 == 7:
            made.attempt(name, slot, 90, outcome="failed", phase="train", step=712, diagnosis=OOM)
        else:
            made.trained(name, slot, 300 + index % 7, 26 + index % 3)
    return written(made)


def scene_of_sixty(root: Path) -> Kind:
    """A merged scene of ten by six patches, measured, with a step at one seam."""
    made = begun(root)
    places = [(column, row) for row in range(6) for column in range(10)]
    for index in range(len(places)):
        made.trained(f"p{index}", f"GPU {index % 4}", 300 + index % 7, 26 + index % 3)
    cores = tuple(CoreBox(f"p{i}", (x, y), (x + 1, y + 1)) for i, (x, y) in enumerate(places))
    cameras = tuple(CameraPosition((x + 0.5, y + 0.5)) for x, y in places)
    seam = ReportedSeam(
        "p0", "p1", num_views=12, color_offset=4.5, depth_step=0.03, line=((1, 0), (1, 1)), grade="step"
    )
    total = SceneEvaluation(total=SceneMeasurement(psnr=25.0, num_photos=4))
    found = ReportedPartition(cores, cameras, (seam,), evaluation=total, splat=str(made.output.scene.splat))
    report = replace(build(made.finish(), ()), scene=found)
    return Kind(made.output, len(write_facts(report, made.output, 0, None).patches))


def reconstruction(root: Path) -> Kind:
    """Photographs of which one did not register."""
    batch = batch_in(root, "features-1", "pairs", "matches-1", "mapping", "model")
    report = write_report(batch.output, batch.names, previews_mib=0, standing=batch.standing())
    return Kind(batch.output, len(report.patches))


def hostile(root: Path) -> Kind:
    made = begun(root)
    made.tell(EVENING - 5, "audit", verified=True, refused={}, warnings=[EVIL, "\x1b]0;title\x07"])
    diagnosis = {"cause": EVIL, "advice": f"{EVIL} Try: {EVIL}", "evidence": [EVIL, "</pre></details>", "\x1b[2J"]}
    for index, name in enumerate(HOSTILE_NAMES):
        if index % 2:
            made.attempt(name, EVIL, 90, outcome="failed", phase=EVIL, step=712, diagnosis=diagnosis)
        else:
            made.trained(name, "GPU 0", 300, 26 + index, warnings=[EVIL], changes={EVIL: EVIL})
    return written(made)


def night_of_all(root: Path) -> Kind:
    output = night(root)
    report = write_report(output, ["p9"], previews_mib=0)
    return Kind(output, len(report.patches))


KINDS: Mapping[str, Callable[[Path], Kind]] = {
    "green": green,
    "failed": failed,
    "refused": refused,
    "retried": retried_worse,
    "sweep": sweep,
    "scene": scene,
    "many": many,
    "sixty": scene_of_sixty,
    "reconstruction": reconstruction,
    "hostile": hostile,
    "night": night_of_all,
}
