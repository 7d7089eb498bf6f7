"""External trainers: their command comes from a template of the YAML, their splat from the files they write."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from splatbatch.config import Recipe
from splatbatch.config.trainers.programs import Measures, Program, fill, in_words, names_in
from splatbatch.errors import SceneError
from splatbatch.files import MIB, PRIVATE, Record, TooManyFiles, read_regular, write_json
from splatbatch.json_text import parse
from splatbatch.outcome import Exit, Exited, Lost, Rejected, Splat
from splatbatch.output import retention
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import PatchFolder
from splatbatch.output.records.attempt import Finish, JobSpec, ProgressLine, Then, WatchSettings
from splatbatch.output.records.metrics import BY_ITSELF, QualityFigures, TrainingSettings
from splatbatch.output.records.result import Result
from splatbatch.scene.colmap.copies import write_shifted
from splatbatch.scene.colors.normalised_copies import write_evened
from splatbatch.scene.holdout import choose_holdout
from splatbatch.scene.patches import MODEL_FILE_NAMES, Patch, list_names
from splatbatch.splats import check_splat, health
from splatbatch.supervisor.external import Artifacts, TooSlow
from splatbatch.supervisor.job import GPU_PLACE
from splatbatch.supervisor.log import Secrets, shown_anyway
from splatbatch.text import one_line
from splatbatch.trainers.builtin import earlier_splat, settings_for
from splatbatch.trainers.last_step import SILENT, StepHistory, whose_splat, why_from_before

MOST_FIGURES_BYTES = 32 * MIB
"""Largest file of a program's figures that is read, in bytes; figures of 10,000 photographs have 3 MiB."""

MEASURING = "splatbatch.training.evaluation"
"""Python module that measures the splat of an external trainer, after the program has ended."""


class ExternalTrainer:
    """Trains with an external program.

    `watch.json` tells the supervisor how to watch it, and which files it must write.
    """

    stands_by = False

    def __init__(self, recipe: Recipe, program: Program) -> None:
        """Keep the recipe (all settings of a task), and the external program that the YAML describes."""
        self._recipe = recipe
        self._program = program

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Write settings.json and watch.json, link the scene if the command needs it, and return the command.

        The links (see `stage`) are made if the template names {scene}; also for {sparse} of a model with an offset, and
        for {images} that get colour correction.

        Raises:
            SplatbatchError: the model, a photograph, or the manifest of the accepted splat cannot be read.
            OSError: the folder of the attempt cannot be written.
            KeyError: the model lacks the camera of a photograph that gets colour correction.
        """
        values = self._values(patch, folder)
        argv = _filled(self._program.command, values)
        folder.output.mkdir(exist_ok=True)
        program = self._program
        named = names_in([*program.command, *program.artifact.export, *map(str, program.env.values())])
        if "scene" in named or ("sparse" in named and any(patch.offset)) or ("images" in named and patch.is_evened):
            stage(patch, folder)
        recipe = self._recipe.model_dump(mode="json")
        settings = TrainingSettings(folder.task, recipe, argv, holdout=self._held_out(patch))
        write_json(folder.settings, settings.to_record())
        if told := self._measuring(patch, folder, settings):
            write_json(folder.measuring, told.to_record())
        write_json(folder.watch, self._watch(folder, values).to_record(), PRIVATE)
        return argv

    def _measuring(self, patch: Patch, folder: AttemptFolder, settings: TrainingSettings) -> TrainingSettings | None:
        """Return the settings for our evaluation of the program's splat; None if it is off, or nothing is held out.

        The program gets all photographs, also those that the settings hold out. If the settings hold out none, the
        splat is measured on the photographs that the accepted splat held out.
        """
        home = PatchFolder(folder.path.parent)
        names = settings.holdout or tuple(sorted(retention.held_out(home.read_result() or Result()) or ()))
        if not self._program.metrics.evaluate or not names:
            return None
        told = settings_for(self._recipe, patch, folder.task)
        return dataclasses.replace(told, backdrop="", backdrop_sha256="", holdout=names, earlier=earlier_splat(home))

    def _held_out(self, patch: Patch) -> tuple[str, ...]:
        """Return the photographs that the settings hold out; the program may train on them. Empty if unreadable."""
        with contextlib.suppress(SceneError):  # the audit reports a broken model
            return choose_holdout(patch, self._recipe.evaluation)
        return ()

    def collect(self, folder: AttemptFolder) -> Splat | Rejected:
        """Return the splat of the highest step if it is from the last step, complete and finite.

        Of several files of that step the newest counts. Otherwise the reason why there is none.

        Its metrics are those that splatbatch measured or, without any, the program's own. Values of secret environment
        variables are masked in a reason.

        Raises:
            LaterFormatError: a later version wrote the manifest of another task.
            OSError: the splat was removed meanwhile.
        """
        try:
            found = self._collect(folder)
            if isinstance(found, Rejected):  # the reason may quote the program's files
                return dataclasses.replace(found, reason=Secrets(folder.read_watch()).mask_text(found.reason))
            return found
        except TooSlow:
            step = self._program.artifact.step
            return Rejected(
                f"not found: the regular expression artifact.step {step!r} takes too long over a file's name"
            )
        except TooManyFiles as error:
            return Rejected(f"not found: {error}")

    def _collect(self, folder: AttemptFolder) -> Splat | Rejected:
        watch = folder.read_watch()
        if watch is None:
            return Rejected("missing")
        artifacts = Artifacts.of(folder, watch.final())
        if artifacts is None:
            return Rejected(f"{folder.watch.name} does not say which step is the last")
        product = artifacts.newest()
        if product is None:
            left = list_names(sorted(one_line(one.name) for one in folder.output.glob("*")), 5) or "nothing"
            wanted = " or ".join(artifacts.finish.products)
            return Rejected(f"no file is called {wanted} (artifact.ply); the program left {left}")
        if not artifacts.is_last(product):
            return Rejected(f"from step {product.step}, not from the last step {artifacts.last_step}")
        splat = check_splat(artifacts.real_file(product))
        if isinstance(splat, Rejected):
            return splat
        if reason := _why_not_its_own(folder, splat.path):
            return Rejected(reason)
        lines = folder.read_progress()
        steps = StepHistory.of(lines)
        if reason := self._why_not_trusted(folder, artifacts) or self._why_not_last(folder, artifacts, splat, steps):
            return Rejected(reason)
        is_believed = steps.heard.highest is None and not artifacts.name_last_step()
        figures = read_measures(self._program.metrics, artifacts, watch.metrics, lines)
        final, believed = figures.get("final", {}), QualityFigures.from_record(figures.get("final"))
        doubted = {name: final.pop(name) for name in [*final] if getattr(believed, name) is None}
        warnings = (
            *([SILENT] if is_believed else []),
            *(f"the program's own {name} of {value:,g} is not believed" for name, value in doubted.items()),
            *judge_log(lines, self._recipe.training.max_steps),
        )
        measured = _as_measured(folder, splat, figures if final else {})
        return dataclasses.replace(splat, step=self._recipe.training.max_steps, metrics=measured, warnings=warnings)

    def _why_not_trusted(self, folder: AttemptFolder, artifacts: Artifacts) -> str:
        if not artifacts.all_there():
            return f"beside the splat something is missing or empty: {', '.join(artifacts.finish.files)}"
        if not self._program.artifact.trusted_after_crash and exit_of(folder) != Exited(0):
            return "whole, but the program ended with an error, and artifact.trusted_after_crash is false"
        return ""

    def _why_not_last(self, folder: AttemptFolder, artifacts: Artifacts, splat: Splat, steps: StepHistory) -> str:
        """Return why a splat is not, or not surely, from the last step; empty if its name or the log shows it."""
        if artifacts.name_last_step():
            return ""
        max_steps, is_trusted = self._recipe.training.max_steps, self._program.artifact.trusted_after_crash is True
        why = steps.why_not_last(exit_of(folder), max_steps, is_trusted=is_trusted)
        return why or steps.why_too_old(splat.path, folder.progress, max_steps)

    def _values(self, patch: Patch, folder: AttemptFolder) -> dict[str, object]:
        training, settings = self._recipe.training, self._program.settings
        return {
            **{f"setting.{name}": value for name, value in settings.items()},
            "patch": folder.task,
            "scene": folder.staging,
            "images": folder.staging / "images" if patch.is_evened else patch.images,
            "sparse": _staged_model(folder) if any(patch.offset) else patch.sparse,
            "output": folder.output,
            "steps": training.max_steps,
            "seed": training.seed,
            "gpu": GPU_PLACE,
        }

    def _watch(self, folder: AttemptFolder, values: Mapping[str, object]) -> WatchSettings:
        program, artifact = self._program, self._program.artifact
        metrics = _globs([program.metrics.file] if program.metrics.file else [], values)
        product = Finish(
            products=_globs(artifact.ply, values),
            step=artifact.step,
            last_step=self._recipe.training.max_steps - 1 + artifact.first_step,
            files=_globs(artifact.files, values),
            awaited=metrics,
        )
        before = dataclasses.replace(product, products=(), awaited=())
        env = {name: fill(in_words(value), values) for name, value in program.env.items()}
        literal = {name: fill(in_words(value), defaultdict(str)) for name, value in program.env.items()}
        settings = [in_words(value) for value in self._recipe.as_given().values()]
        return WatchSettings(
            cwd=str(program.working_folder or folder.output.relative_to(folder.path)),
            env=env,
            shown=shown_anyway(literal, env, (*settings, *_filled(program.command, values), *values.values())),
            progress=program.progress.model_dump() | program.metrics.log,
            max_steps=self._recipe.training.max_steps,
            finish=before if artifact.export else product,
            finished_after_s=artifact.finished_after_s,
            then=Then(_filled(artifact.export, values), product) if artifact.export else None,
            metrics=metrics,
            measure=(sys.executable, "-m", MEASURING, str(folder.path)) if folder.measuring.exists() else (),
        )


def _as_measured(folder: AttemptFolder, splat: Splat, by_itself: Record) -> Record:
    """Return the metrics of our evaluation with the program's figures as "by_itself"; without one only the latter."""
    measured = folder.read_metrics()
    if measured is None or not measured.measured_by or folder.path / measured.splat != splat.path:
        return by_itself
    return {**measured.to_record(), "by_itself": by_itself.get("final", {})}


def _why_not_its_own(folder: AttemptFolder, splat: Path) -> str:
    """Return why a splat cannot be this attempt's: it is older, or another task's; empty if neither is the case."""
    if reason := why_from_before(splat, folder.start):
        return reason
    inputs = (folder.read_job() or JobSpec()).depends_on.inputs
    other = whose_splat(folder.path.parent.parent, splat, folder.task, inputs)
    return f"the file is the splat of {other}, which was trained from other inputs" if other else ""


def exit_of(folder: AttemptFolder) -> Exit:
    """Return how an attempt ended, by the exit.json of its supervisor; `Lost` if there is no readable one."""
    facts = folder.read_exit()
    return facts.end if facts else Lost("there is no exit.json")


def _staged_model(folder: AttemptFolder) -> Path:
    return folder.staging / "sparse" / "0"


def stage(patch: Patch, folder: AttemptFolder) -> None:
    """Make images/, sparse/0/ and masks/ in scene/ of an attempt's folder: links to photographs, model files and masks.

    A model with an offset is copied with the offset subtracted; colour-corrected photographs are copied, too. The
    folders belong to the attempt, so that a program that writes beside its model (points3D.ply, images_2) does not
    change the user's scene.

    Raises:
        SceneError: the model or a photograph cannot be read.
        OSError: a file cannot be written, or the folder exists already.
        KeyError: the model lacks the camera of a photograph that gets colour correction.
    """
    sparse = _staged_model(folder)
    sparse.mkdir(parents=True)
    if any(patch.offset):
        write_shifted(patch.sparse, patch.offset, sparse)
    else:
        for path in (patch.sparse / name for name in MODEL_FILE_NAMES):
            if path.is_file():
                (sparse / path.name).symlink_to(path.resolve())
    if patch.is_evened:
        write_evened(patch, folder.staging / "images")
    else:
        (folder.staging / "images").symlink_to(patch.images.resolve(), target_is_directory=True)
    if patch.masks is not None:
        (folder.staging / "masks").symlink_to(patch.masks.resolve(), target_is_directory=True)


def _filled(words: Iterable[str], values: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(fill(word, values) for word in words)


def _globs(globs: Iterable[str], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return globs with the values filled in; wildcards within values are escaped."""
    escaped = {name: glob.escape(in_words(value)) for name, value in values.items()}
    return tuple(fill(one, escaped) for one in globs)


def judge_log(lines: Sequence[ProgressLine], max_steps: int) -> tuple[str, ...]:
    """Return the warnings of the health rules for the progress that a program logged; empty if there are none.

    A line without a number of Gaussians counts with that of the line before.

    Args:
        lines: lines of progress.jsonl, in order.
        max_steps: number of steps of the training.
    """
    num = next((line.num_gaussians for line in lines if line.num_gaussians is not None), 1)
    history = list[health.StepFigures]()
    for line in lines:
        num = num if line.num_gaussians is None else line.num_gaussians
        if line.step is not None and line.loss is not None:
            history.append(health.StepFigures(line.step, line.loss, num))
    found = health.judge(history, health.Expectations(max_steps))
    return (*(line.health for line in lines if line.health), *map(str, found))


def read_measures(
    measures: Measures, artifacts: Artifacts, globs: Sequence[str], lines: Iterable[ProgressLine]
) -> Record:
    """Return the program's own figures in the form of the builtin trainer's metrics: {"final": {"psnr": …}}.

    Figures come from the log and, taking precedence, from the figures file of the highest step, of several the newest.
    Unknown figures are left out. Empty if none is known.

    Args:
        measures: names of the figures in the log and in the file.
        artifacts: the files of the attempt.
        globs: globs of the figures file, below `output` of the attempt's folder.
        lines: progress of the attempt.

    Raises:
        TooSlow, TooManyFiles: the figures file cannot be found in time; see `Artifacts.newest`.
    """
    told = ((name, line.figure(name)) for line in lines for name in measures.log)
    figures = {name: value for name, value in told if value is not None}  # the last value of each figure wins
    figures_file = dataclasses.replace(artifacts.finish, products=tuple(globs))
    newest = Artifacts(artifacts.folder, figures_file).newest()
    if newest is not None:
        tree = _tree(newest.path)
        found = {name: _figure(_at(tree, keys.split("."))) for name, keys in measures.keys.items()}
        figures |= {name: value for name, value in found.items() if value is not None}
    return {"final": figures, "measured_by": BY_ITSELF} if figures else {}


def _tree(path: Path) -> Any:
    try:
        return parse(read_regular(path, MOST_FIGURES_BYTES))
    except (OSError, ValueError, MemoryError):
        return None


def _at(tree: Any, keys: Sequence[str]) -> Any:
    """Return the value at a path of names and indices in nested JSON, None if absent; * means the last member."""
    for key in keys:
        if isinstance(tree, dict):
            tree = list(tree.values())[-1] if key == "*" and tree else tree.get(key)
        elif isinstance(tree, list) and tree:
            index = -1 if key == "*" else int(key) if key.isdecimal() else len(tree)
            tree = tree[index] if index < len(tree) else None
        else:
            return None
    return tree


def _figure(value: Any) -> float | None:
    try:
        figure = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return figure if math.isfinite(figure) else None
