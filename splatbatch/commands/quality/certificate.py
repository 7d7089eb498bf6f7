"""`inspect --check`: whether certificates speak of the splats, settings and files that there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from splatbatch.commands.output import print_json
from splatbatch.errors import OutputError
from splatbatch.identity import sha256_of
from splatbatch.plain_text import one_line
from splatbatch.store.folders import PatchFolder, SceneFolder
from splatbatch.store.layout import OutputFolder
from splatbatch.store.records.quality import read_certificate
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.quality.certificate import (
    why_contradicted,
    why_not_genuine,
    why_outdated,
    why_scene_contradicted,
    why_scene_outdated,
)
from splatbatch.tasks.quality.inspection import SCENE
from splatbatch.tasks.task import Task, of_patches

NOT_ALL = 1
INSPECT = "none: splatbatch inspect writes it"


def verify(config: Path | None, names: Sequence[str], file: Path | None, *, as_json: bool) -> None:
    """Check certificates of a batch, or a single file beside its splat; exit with 1 if one does not hold.

    Raises:
        OutputError: the named file is none.
    """
    found = {str(file): _of_file(file)} if file else _of_batch(config, names)
    if as_json:
        print_json({name: {"holds": not why, "problems": why} for name, why in found.items()})
    else:
        for name, why in found.items():
            typer.echo(one_line(f"{name}: {'; '.join(why) or 'holds'}"))
    raise typer.Exit(NOT_ALL if any(found.values()) else 0)


def _of_file(file: Path) -> list[str]:
    record = read_certificate(file)
    if record is None:
        raise OutputError(f"{file}: is no certificate: no JSON object can be read there", "Name a certificate.json.")
    broken = list(why_not_genuine(record, sha256_of(file.with_name("splat.ply"))))
    patch, scene = PatchFolder(file.parent), SceneFolder(file.parent)
    if broken or file.name != patch.certificate.name:
        return broken
    if patch.result.exists():  # it was not handed on: its records lie beside it
        return list(why_contradicted(record, patch))
    return list(why_scene_contradicted(record, scene)) if scene.merge.exists() else []


def _of_batch(config: Path | None, names: Sequence[str]) -> dict[str, list[str]]:
    """Return what does not hold of the certificates of patches; of the scene's where it is named, or there is one."""
    wanted = [name for name in names if name != SCENE]
    batch = open_batch(config, wanted)
    is_patch = SCENE in [task.name for task in batch.every]
    if is_patch and len(wanted) < len(names):
        batch = open_batch(config, names)
    tasks = of_patches(batch.tasks) if wanted or is_patch or not names else ()
    found = {task.name: _of_patch(task, batch.output.patch(task.name)) for task in tasks}
    if not is_patch and (SCENE in names or (not names and batch.output.scene.certificate.exists())):
        found[SCENE] = _of_scene(batch.output)
    return found


def _of_scene(output: OutputFolder) -> list[str]:
    record = read_certificate(output.scene.certificate)
    if record is None:
        return [INSPECT]
    broken = list(why_not_genuine(record, sha256_of(output.scene.splat)))
    return broken or [*why_scene_contradicted(record, output.scene), *why_scene_outdated(output)]


def _of_patch(task: Task, folder: PatchFolder) -> list[str]:
    record, result = read_certificate(folder.certificate), folder.read_result()
    if record is None:
        return [INSPECT]
    splat = folder.splat_of(result) if result else folder.splat
    broken = list(why_not_genuine(record, sha256_of(splat)))
    return broken or [*why_contradicted(record, folder), *why_outdated(record, task, folder)]
