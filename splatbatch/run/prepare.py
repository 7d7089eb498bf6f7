"""Preparing a batch: importing a scene, writing its first YAML, repairing models."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from splatbatch import config as configuration
from splatbatch.config import Offset
from splatbatch.errors import ConfigError, OutputError, SceneError
from splatbatch.files import write_text
from splatbatch.machine.gpu import presence
from splatbatch.machine.limited_program import CallBounds, ProgramEnd, run_bounded
from splatbatch.output.records.frame import Frame
from splatbatch.scene.audit.audit import Audit, AuditResult
from splatbatch.scene.finder import find_layout
from splatbatch.scene.template import ImportNotes, config_for
from splatbatch.tasks.audits import audit_for_all
from splatbatch.tasks.batch import Batch, FolderNamed, batch_of, open_batch
from splatbatch.tasks.task import Task, of_patches, patches_of
from splatbatch.text import plural

if TYPE_CHECKING:
    from splatbatch.scene.camera_fix import FixedModel
    from splatbatch.scene.imports.capture import ImportOptions
    from splatbatch.scene.imports.run import ImportResult

Tell = Callable[[str], None]
AUDIT_S, AUDIT_MIB = 24 * 3600.0, 1 << 20
"""Bounds of the audit of a repair, in seconds and MiB; so wide that they hardly bind, as the first audit has none."""


@dataclass(frozen=True)
class VerifyOutput(AuditResult):
    """Output of `verify-dims --json`: the findings of an audit.

    `frame` has the offset that a training would subtract. `colors` has the tones of each scene by name, or under "all"
    those of all patches together; null without --colors.
    """

    frame: Frame | None = None
    colors: dict[str, dict[str, Any]] | None = None


@dataclass(frozen=True)
class Import:
    """Output of `import --json`: the imported model, what was converted and left out, and its audit.

    `kind` is the kind of its source, `config` the path of its YAML, and `offset` what is subtracted before training.
    """

    kind: str
    config: str
    num_points: int
    offset: Offset
    crs: str | None
    """Coordinate system of the model, as EPSG:32632; null if the source names none."""
    converted: tuple[str, ...]
    left_out: tuple[str, ...]
    audit: AuditResult

    @classmethod
    def of(cls, done: ImportResult, config: Path, audit: Audit) -> Import:
        """Return what `import --json` prints of an imported scene; `config` is the path of its YAML."""
        log, crs = done.log, done.capture.crs or None
        told = (tuple(log.converted), tuple(log.left_out), audit.facts())
        return cls(done.capture.kind, str(config), done.num_points, done.offset, crs, *told)


def import_scene(source: Path, folder: Path, options: ImportOptions) -> tuple[ImportResult, Path, Audit]:
    """Import another program's reconstruction: write a COLMAP model and a YAML into a new folder, and audit the model.

    Returns:
        The imported model, the path of the YAML, and the audit.

    Raises:
        SceneError: the source holds mistakes.
        ConfigError: the folder is not new, or an option does not fit the source.
        OutputError: the folder cannot be written.
        OSError: the YAML cannot be written, or a mask was removed during the audit.
    """
    from splatbatch.scene.imports import run
    from splatbatch.scene.imports.write import HOLDOUT

    done = run.bring_in(source, folder, options)
    config = folder / configuration.DEFAULT_CONFIG
    kept = ImportNotes(done.offset, done.capture.crs, HOLDOUT if done.holdout else "")
    write_text(config, config_for(find_layout(folder), folder.resolve(), has_gpu=presence().is_here(), kept=kept))
    return done, config, audit_for_all(open_batch(config))


def begin(place: Path, *, writes: bool = True) -> tuple[Path | None, tuple[str, ...], str]:
    """Write a commented YAML for the scene that a folder holds or belongs to; an existing YAML is never overwritten.

    Args:
        place: folder of the scene, or of a part of it.
        writes: whether the YAML is written; else it is only returned.

    Returns:
        The path of the YAML, notes on it, and its text. If the place holds a source that must be imported first: None
            as path, one note with the command for the import, and no text.

    Raises:
        SceneError: there is no scene; the hint says what the place holds instead.
        ConfigError: the YAML exists already, or would have mistakes.
        OutputError: the YAML cannot be written, or a later version of splatbatch wrote partition.json.
    """
    try:
        found = find_layout(place)
    except SceneError:
        if told := _next_command(place):
            return None, (told,), ""
        raise
    # nerfstudio keeps the model that its transforms.json was made of in a folder of that name
    if [patch.name for patch in found.patches] == ["colmap"] and (told := _next_command(place)):
        return None, (told,), ""
    target = found.top / configuration.DEFAULT_CONFIG
    if target.exists():
        raise ConfigError(f"{target} exists already", "Move or rename that file.")
    text = config_for(found, target.resolve().parent, has_gpu=presence().is_here())
    configuration.load(target, text)  # for its errors
    try:
        if writes:
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"{target}: cannot be written ({error.strerror})", "Check the folder's permissions."
        ) from error
    note = "" if writes else " (not written: this is a dry run)"
    return target, (*found.notes, f"{target}: {plural(len(found.patches), 'patch', 'es')}{note}"), text


def open_or_init(  # noqa: PLR0913 - as `open_batch`
    config: Path | None,
    names: Sequence[str],
    changes: Mapping[str, object],
    conditions: Sequence[str],
    tell: Tell,
    *,
    writes: bool = True,
) -> Batch:
    """Open a batch to train; if a folder is named instead of patches, write its YAML first, as `init` does.

    Args:
        config: the YAML; None: the default one.
        names: patches, or a folder and then patches.
        changes: settings by full name, as {"training.seed": 1}.
        conditions: conditions for the patches, as "variant=base".
        tell: is called with each note on the YAML that was written.
        writes: whether a missing YAML is written; else the batch is opened from the text that it would have.

    Raises:
        SplatbatchError: the batch cannot be opened, or its YAML not be written: see `open_batch` and `begin`.
    """
    try:
        return open_batch(config, names, changes, conditions)
    except FolderNamed as named:
        if config is not None or Path(names[0]) != named.folder:
            raise
        try:
            target, lines, text = begin(named.folder, writes=writes)
        except SceneError as error:
            raise named from error
        if target is None:
            raise ConfigError(f"{named.folder}: no COLMAP model", lines[0]) from named
    for told in lines:
        tell(told)
    return batch_of(configuration.load(target, text), target, names[1:], changes, conditions)


def _next_command(place: Path) -> str:
    """Return a line with the source that can be imported from a place, and the command for that; empty if none."""
    from splatbatch.scene.imports.run import find_sources

    found = find_sources(place)
    if not found:
        return ""
    alike = [one for one in found if one.kind == found[0].kind]
    source = found[0].paths[0] if len(alike) > 1 or found[0].kind != "transforms" else place
    whole = place.resolve()
    target = whole.with_name(f"{whole.stem if place.is_file() else whole.name}-colmap")
    command = f"splatbatch import {shlex.quote(str(source))} {shlex.quote(str(target))}"
    others = f" and {len(alike) - 1} more like it" if len(alike) > 1 else ""
    return f"{place}: {found[0].in_words()}{others}. Next: {command}"


def fix_cameras(
    batch: Batch, audit: Audit, how: Literal["scale", "crop"], out: Path
) -> tuple[tuple[FixedModel, ...], Path, ProgramEnd | None]:
    """Write a corrected copy of every model if one does not fit its photographs, and a YAML that trains the copies.

    The originals are not changed. A `verify-dims` in a new process then audits the copies, from the files alone.

    Args:
        batch: the batch with the models.
        audit: the audit of the models, with the sizes of the photographs.
        how: whether cameras are scaled to the photographs, or cropped.
        out: a new folder for the copies and the YAML.

    Returns:
        The corrected models, the path of the YAML, and the end of that audit. If no model needs correction, nothing
        is written or run: no models, and None as the end.

    Raises:
        SceneError: a model cannot be corrected safely, or `out` is not empty or cannot be written.
        ConfigError: the YAML cannot be read, or its copy cannot be written.
        OSError: the audit of the copies cannot be started.
    """
    from splatbatch.scene.camera_fix import fix_models

    own = of_patches(batch.tasks)
    repaired = fix_models(audit, patches_of(own), batch.config.scene.source, how, out)
    config = out / configuration.DEFAULT_CONFIG
    if not repaired:
        return (), config, None
    _write_corrected_config(batch, own, out, config)
    command = (sys.executable, "-m", "splatbatch", "verify-dims", "--config", str(config.absolute()))
    return repaired, config, run_bounded(command, CallBounds(AUDIT_S, AUDIT_MIB))


def _write_corrected_config(batch: Batch, tasks: Sequence[Task], out: Path, config: Path) -> None:
    """Write the YAML of the corrected copies beside them: that of the batch, with the new paths."""
    scene = batch.config.scene
    new = {"patches": "."} | ({"source": "source"} if scene.source else {})
    new |= {name: str(path.resolve()) for name in ("images", "masks") if (path := getattr(scene, name))}
    paths = {"output.folder": "output"}
    if batch.config.evaluation.holdout_list:
        paths["evaluation.holdout_list"] = str(batch.config.evaluation.holdout_list.resolve())
    programs = {name: getattr(program, "working_folder", None) for name, program in batch.config.trainers.items()}
    paths |= {f"trainers.{name}.working_folder": str(folder.resolve()) for name, folder in programs.items() if folder}
    configuration.save_moved(batch.path, config, new, paths, [task.patch.name for task in tasks])
