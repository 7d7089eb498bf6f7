"""A reconstruction whose stages were not run: some are done, and what came of the photographs is told."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from splatbatch.config import Config, Output, Scene
from splatbatch.files import write_json
from splatbatch.output.layout import OutputFolder
from splatbatch.reconstruction.facts import OURS, GpsFit, ReconstructionRecord
from splatbatch.reconstruction.plan import (
    CameraGroup,
    Photograph,
    ReconstructionPlan,
    StageMetrics,
    product_of,
    record_of,
)
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.reconstruction import ReconstructTask, plan_file, reconstruction_tasks

PLAN = ReconstructionPlan(
    "photos", tuple(Photograph(f"{one}.jpg", 1) for one in range(3)), (CameraGroup(),), pairing="all"
)
TOLD = ReconstructionRecord.from_record(
    {
        "given": 4, "registered": 3, "components": [3], "points": 1234, "reprojection_px": 0.5,
        "gps": GpsFit(3, 1.2, 1.0, 2.0, 3.0).to_record(),
        "placed": [{"name": f"{one}<b>.jpg", "at": [one, one**2, 2], "error_px": 0, "gps_m": one} for one in range(3)],
        "missing": {"far.jpg": "no overlap"},
    }
)  # fmt: skip


def batch_in(folder: Path, *done: str) -> Batch:
    """Return a reconstruction of which some stages are done; the last of them, the model, says what came of it."""
    config = Config(scene=Scene(patches=folder), output=Output(folder=folder / "reconstruction"))
    tasks = reconstruction_tasks(config, PLAN, folder, 1, on_gpu=False)
    file = plan_file(OutputFolder(config.output.folder), PLAN)
    file.parent.mkdir(parents=True)
    write_json(file, PLAN.to_record())
    for task in tasks:
        if isinstance(task, ReconstructTask) and task.name in done:
            products = folder / "reconstruction/patches"
            (place := product_of(products, task.name)).mkdir(parents=True)
            (place / "part").write_bytes(b"made")
            if task.name == "model":
                write_json(place / OURS, TOLD.to_record())
            parts = {"part": sha256(b"made").hexdigest()}
            write_json(record_of(products, task.name), StageMetrics(task.inputs, parts).to_record())
    return Batch(config, tasks, every=tasks)
