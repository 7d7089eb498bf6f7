"""Reconstructing a model from photographs: the stages of the plan are the tasks of a batch.

A second start resumes the work, or shares it with the first one while that runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from splatbatch.config import Config, Cooldown, Executor, Limits, Output, Scene, Training, nearest
from splatbatch.errors import ConfigError, SceneError
from splatbatch.files import write_json
from splatbatch.isolated import TaskFault, WaitHooks, answer
from splatbatch.machine.gpu import presence
from splatbatch.monitor.messages import log_line
from splatbatch.output.layout import OutputFolder
from splatbatch.processes import num_cores
from splatbatch.reconstruction.facts import ReconstructionRecord, check_output_folder
from splatbatch.reconstruction.photographs import survey
from splatbatch.reconstruction.plan import ReconstructionOptions, ReconstructionPlan
from splatbatch.run.decide import TrainOptions
from splatbatch.run.follow_ups import Show
from splatbatch.run.worker import work
from splatbatch.scene.audit.audit import Audit, AuditExtent, audit_patches
from splatbatch.scene.patches import Patch
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.reconstruction import facts_of, has_cuda, plan_file, reconstruction_tasks
from splatbatch.trainers import rules_of

MAPPERS, PAIRINGS = ("auto", "incremental", "global"), ("auto", "gps", "sequence", "all")
CAMERA_MODELS = (
    "auto",
    "SIMPLE_PINHOLE",
    "PINHOLE",
    "SIMPLE_RADIAL",
    "RADIAL",
    "OPENCV",
    "FULL_OPENCV",
    "SIMPLE_RADIAL_FISHEYE",
    "RADIAL_FISHEYE",
    "OPENCV_FISHEYE",
    "THIN_PRISM_FISHEYE",
)
FOLDER = "reconstruction"
"""Name of the output folder of a reconstruction, below the folder of the model.

It holds ledger, claims, attempts and products of the stages."""


@dataclass(frozen=True)
class ReconstructOptions:
    """Options of `reconstruct`: photographs, target folder, and how the model is made."""

    images: Path
    """Folder of the photographs."""
    out: Path
    """Folder for the model and the output folder; a relative path counts from the working folder."""
    wanted: ReconstructionOptions = field(default_factory=ReconstructionOptions)
    threads: int | None = None
    """Threads of each stage; None: as many as the cores that this process may use."""


def options_from(camera: str, rig: str, mapper: str, pairs: str, features: int) -> ReconstructionOptions:
    """Return the options of the command line as a record, after checking them.

    Args:
        camera: a camera model of `CAMERA_MODELS`.
        rig: folders of the cameras of a rig, with commas between; empty: no rig.
        mapper: one of `MAPPERS`.
        pairs: which photographs are matched, one of `PAIRINGS`.
        features: most features per photograph.

    Raises:
        ConfigError: a value is unknown, or a rig has a single folder.
    """
    known = {"--mapper": (mapper, MAPPERS), "--pairs": (pairs, PAIRINGS), "--camera": (camera, CAMERA_MODELS)}
    for option, (value, values) in known.items():
        if value not in values:
            raise ConfigError(f"{option} {value}: unknown value", nearest(value, values))
    folders = tuple(one.strip("/ ") for one in rig.split(",") if one.strip("/ "))
    if len(folders) == 1:
        raise ConfigError(f"--rig {rig}: a rig needs two or more folders", "Write `--rig left,right`.")
    return ReconstructionOptions(features, camera, folders, mapper, pairs)


def open_reconstruction(options: ReconstructOptions) -> tuple[Batch, ReconstructionPlan]:
    """Survey the photographs, and plan the reconstruction; return its batch and its plan.

    Nothing is written.

    Raises:
        SceneError: there are too few usable photographs, or reading them fails or hangs.
        ConfigError: an option does not fit the photographs.
        OutputError: the folder for the model holds something else, or a later version of splatbatch wrote a record.
    """
    out = options.out.absolute()
    check_output_folder(out)

    def look(images: Path) -> dict[str, Any]:
        """Return the plan as JSON; runs in a reader process, since a mount with the photographs may stall."""
        return survey(images, options.wanted).to_record()

    try:
        plan = ReconstructionPlan.from_record(answer(look, options.images, WaitHooks(tell=log_line)).result("plan"))
    except TaskFault as fault:
        raise SceneError("; ".join(fault.diagnosis.evidence), fault.diagnosis.advice) from fault
    on_gpu = has_cuda() and presence().is_here()
    config = Config(
        scene=Scene(patches=out),
        training=Training(device="auto" if on_gpu else "cpu"),
        executor=Executor(gpus="auto" if on_gpu else ()),
        cooldown=Cooldown(),
        limits=Limits(),
        output=Output(folder=out / FOLDER),
    )
    tasks = reconstruction_tasks(config, plan, out, options.threads or num_cores(), on_gpu=on_gpu)
    return Batch(config, tasks, path=out / FOLDER / "batch.yaml", every=tasks), plan


def reconstruct(options: ReconstructOptions, show: Show) -> int:
    """Reconstruct a model from photographs, alone or with other workers; return the exit code, 0 if the model is made.

    Other codes are those of `work`. Finished stages are not repeated. `show` is called with each product and the
    summary.

    Raises:
        SplatbatchError: the reconstruction cannot be started, or nothing can be done here.
        OSError: the plan cannot be written, or the disk stays full for an hour.
        Interrupted: a signal came while a full disk kept the first stage from starting.
    """
    batch, plan = open_reconstruction(options)
    for line in plan.in_words():
        log_line(line)
    batch.output.create()
    file = plan_file(batch.output, plan)
    file.parent.mkdir(exist_ok=True)
    if ReconstructionPlan.read(file) != plan:  # the same photographs may lie in a moved folder
        write_json(file, plan.to_record())
    return work(batch, None, TrainOptions(), show, reopen=lambda: replace(batch))


@dataclass(frozen=True)
class ReconstructedModel:
    """A model that was reconstructed from photographs, with its record, its audit and its report."""

    told: ReconstructionRecord
    audited: Audit
    """The audit of the model and its photographs, by the rules of splatbatch's own trainer."""
    report: Path


def result_of(options: ReconstructOptions) -> ReconstructedModel | None:
    """Audit the finished model and return it; None if the reconstruction is not finished.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the record of the model.
    """
    out = options.out.absolute()
    output = OutputFolder(out / FOLDER)
    told = facts_of(output)
    if told is None:
        return None
    patch = Patch("model", out / "sparse" / "0", out / "images")
    audit = audit_patches([patch], None, rules_of([Config().recipe("")]), AuditExtent(cache=output.audit_cache))
    return ReconstructedModel(told, audit, output.report("html"))
