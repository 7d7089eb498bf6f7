"""A certificate made of what is known of a patch's product, and held against what there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from splatbatch.identity import sha256_of
from splatbatch.plain_text import spell_files
from splatbatch.store.folders.patch import PatchFolder
from splatbatch.store.folders.scene import SceneFolder
from splatbatch.store.layout import OutputFolder
from splatbatch.store.records.merge import Merge
from splatbatch.store.records.quality.certificate import Certificate, lacks, seal_of
from splatbatch.store.records.quality.inspection import Inspection, InspectionSettings, grade
from splatbatch.store.records.result import Result
from splatbatch.tasks.fingerprints.fingerprint import recipe_hash
from splatbatch.tasks.fingerprints.inputs import locate
from splatbatch.tasks.task import Task


def certificate_of(task: Task, result: Result, found: Inspection) -> Certificate:
    """Return the certificate of a product that was inspected."""
    depends = result.trained_from
    files = {key: fact for key, fact in depends.files.items() if fact.num_bytes >= 0 and not key.endswith("/")}
    hashes = {key: fact.sha256 or sha256_of(locate(key, task.patch, task.recipe)) for key, fact in files.items()}
    psnrs = {name: one.psnr for name, one in result.metrics.photos().items()}
    return Certificate(
        patch=task.name,
        grade=found.grade,
        figures=found.figures,
        splat=result.sha256,
        num_gaussians=result.num_gaussians,
        settings=depends.settings,
        settings_hash=depends.effective or depends.recipe,
        inputs={key: sha256 for key, sha256 in hashes.items() if sha256},
        holdout={name: _known_of(found, name, psnr) for name, psnr in psnrs.items() if psnr is not None},
        offset=depends.offset,
        made_with=_versions(result),
    ).sealed()


def certificate_of_scene(folder: SceneFolder, settings: InspectionSettings, found: Inspection) -> Certificate:
    """Return the certificate of a merged scene that was inspected: what it was made from are its patches' splats."""
    merged = folder.merged.read() or Merge()
    held_out = {name: one for name, one in found.photos.items() if "psnr" in one}
    return Certificate(
        patch=found.patch,
        grade=found.grade,
        figures=found.figures,
        splat=found.splat,
        num_gaussians=merged.num_gaussians,
        settings=settings.recipe.get("training", {}),
        settings_hash=merged.key,
        inputs=_parts(merged),
        holdout={name: _known_of(found, name, one["psnr"]) for name, one in held_out.items()},
        offset=settings.offset,
        made_with={"splatbatch": merged.version} if merged.version else {},
    ).sealed()


def _parts(merged: Merge) -> dict[str, str]:
    return {f"patches/{one.patch}/splat.ply": one.sha256 for one in merged.parts if one.sha256}


def why_scene_outdated(record: dict[str, Any], output: OutputFolder) -> Iterator[str]:
    """Yield what of the merged scene, and of its patches, is no longer as a certificate says."""
    said, merged = Certificate.from_record(record), output.scene.merged.read()
    if merged is not None and said.settings_hash != merged.key:
        yield "is of another merge than merge.json"
    found = output.scene.read_inspection()
    if found is not None and found.splat == said.splat and found.figures != said.figures:
        yield "has other figures than inspection.json"
    for one in merged.parts if merged else ():
        result = output.patch(one.patch).read_result()
        if one.sha256 and result is not None and result.sha256 != one.sha256:
            yield f"was made from another splat of {one.patch} than is accepted"


def _versions(result: Result) -> dict[str, str]:
    """Return what a splat was made with."""
    return {**result.metrics.made_with, "splatbatch": result.version}


def _known_of(found: Inspection, name: str, psnr: float) -> dict[str, float]:
    """Return what is said of a held-out photograph: its PSNR at full size, and where it stands."""
    known = found.photos.get(name, {})
    return {key: known[key] for key in ("x", "y", "z", "distance", "piece") if key in known} | {"psnr": psnr}


def why_not_genuine(record: dict[str, Any], splat_sha256: str) -> Iterator[str]:
    """Yield what of a certificate does not hold by itself and beside a splat of this hash."""
    if missing := lacks(record):
        yield f"is no whole certificate: lacks {', '.join(missing)}"
        return
    said = Certificate.from_record(record)
    if said.seal != seal_of(record):
        yield "was changed after it was written: its seal is broken"
    if said.grade != grade(said.figures):
        yield f"says grade {said.grade}, its figures say {grade(said.figures) or 'none'}"
    if not splat_sha256:
        yield "speaks of a splat that cannot be read"
    elif said.splat != splat_sha256:
        yield f"speaks of another splat: {said.splat[:12]}…, not {splat_sha256[:12]}…"


def why_outdated(record: dict[str, Any], task: Task, folder: PatchFolder) -> Iterator[str]:
    """Yield what of the batch is no longer as a certificate says."""
    said, result = Certificate.from_record(record), folder.read_result()
    if result is not None and said.splat != result.sha256:
        yield "is not of the accepted splat"
    if result is not None and said.settings_hash not in (result.trained_from.effective, result.trained_from.recipe):
        yield "names other settings than result.json does"
    if not result or (not result.changes and said.settings_hash != recipe_hash(task.recipe)):
        yield "names other settings than the YAML has now"
    if result is not None and said.made_with != _versions(result):
        yield "names other versions than result.json does"
    found = folder.read_inspection()
    if found is not None and found.splat == said.splat and found.figures != said.figures:
        yield "has other figures than inspection.json"
    now = {key: sha256_of(locate(key, task.patch, task.recipe)) for key in said.inputs}
    if differing := [key for key, sha256 in said.inputs.items() if now[key] != sha256]:
        yield f"was made from other files: {spell_files(differing)}"
